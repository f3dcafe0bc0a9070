# SPDX-License-Identifier: Apache-2.0
"""`tiles_per_block`: more and shorter blocks than run at once, of what moves bytes."""

import re
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipegen as api
from pipegen.description_file import description_from_data
from pipegen.planning.blocks import grid_numbers
from pipegen.tuning import proposing
from pipegen.tuning.space import Candidate

GENERATED = Path(__file__).parent.parent / "generated"


def planned(op="stream", backend="cute", pipeline=None, **given):
    kernel = {"op": op, "backend": backend, "arch": "sm_90a"}
    section = {key: given.pop(key) for key in ("tiles_per_block", "y") if key in given}
    data = {"pipegen": 1, "kernel": kernel | given.pop("kernel", {}), op: section, **given}
    return api.plan(description_from_data(data | ({"pipeline": pipeline} if pipeline else {})))


def text_of(made):
    (text,) = api.render(made).values()
    return text


def test_a_ring_has_no_stage_that_no_tile_fills():
    assert planned().number("mainloop_stages").value == 7  # (115712 - 128) // 16384
    for tiles, stages in ((2, 2), (4, 4), (16, 7)):
        assert planned(tiles_per_block=tiles).number("mainloop_stages").value == stages
    one = planned(tiles_per_block=1)  # nothing is loaded ahead of it, but a ring has two
    assert (one.number("mainloop_stages").value, one.number("mainloop_stages").formula) == (
        2,
        "the fewest",
    )
    assert planned(tiles_per_block=4).stage_limit == "a block's tiles (4); 7 would fit"


@pytest.mark.parametrize("producer", ["tma", "cp_async", "thread"])
def test_the_emitted_grid(producer):
    short = text_of(planned(tiles_per_block=3, pipeline={"mainloop": {"producer": producer}}))
    equal = text_of(planned(pipeline={"mainloop": {"producer": producer}}))
    assert "\nTILES_PER_BLOCK = 3  #" in short
    assert "TILES_PER_BLOCK" not in equal
    assert "blocks = cutlass.max(max_blocks, cute.ceil_div(tiles, TILES_PER_BLOCK))" in short
    assert "grid=(cutlass.min(tiles, blocks), 1, 1)," in short
    assert "grid=(cutlass.min(tiles, max_blocks), 1, 1)," in equal
    assert ("ersistent" in short, "ersistent" in equal) == (False, True)
    # The roles walk over the tiles as before: `first`, `step` and the end are the grid's.
    loops = [re.findall(r"cutlass\.range\(.*\)", text) for text in (short, equal)]
    assert loops[0] == loops[1]


@pytest.mark.parametrize(
    ("tiles", "producer", "words", "ahead"),
    [
        (2, "tma", "2 tiles of 16 x 256, loads them at once, and computes", "each has a stage"),
        (1, "cp_async", "takes one tile of 16 x 256, and no more.", "copy t0\n"),
        (2, "thread", "2 tiles of 16 x 256, one after the other, and loads", "at most 2 stages"),
        (16, "tma", "16 tiles of 16 x 256, one after the other, and loads", "at most 14 stages"),
    ],
)
def test_the_text_says_what_a_block_does(tiles, producer, words, ahead):
    pipeline = {"mainloop": {"producer": producer}}
    tile = {"m": 16, "n": 256}
    text = text_of(planned(tiles_per_block=tiles, pipeline=pipeline, tile=tile))
    assert words in text.replace("\n", " ")
    assert ahead in text


@pytest.mark.parametrize(("op", "usual"), [("stream", 3), ("reduce", 4)])
def test_pallas_has_a_few_tiles_unless_told_otherwise(op, usual):
    kernel = {"style": "warp-specialized"}
    assert planned(op, "pallas", kernel=kernel).number("tiles_per_block").value == usual
    made = planned(op, "pallas", kernel=kernel, tiles_per_block=11)
    assert "\nTILES_PER_BLOCK = 11  #" in text_of(made)


@given(
    tiles=st.integers(1, 10**6), sms=st.integers(1, 200), each=st.integers(1, 64),
    blocks=st.integers(1, 8),
)  # fmt: skip
def test_no_block_has_more_tiles_and_no_sm_is_idle(tiles, sms, each, blocks):
    _, grid = grid_numbers(each, blocks)
    count = eval(grid.formula, {"tiles": tiles, "SMs": sms, "min": min, "max": max, "ceil": ceil})
    assert ceil(tiles / count) <= each
    assert count >= min(tiles, sms * blocks)


@pytest.mark.parametrize("values", [(("tile.m", 16), ("stream.blocks_per_sm", 4)), ()])
def test_a_search_tries_it_around_what_is_fast(values):
    """Around the description as it stands, too, which has no values of its own."""
    found = proposing.variations(Candidate("fast", values, ""), "stream", stages=7, buffers=0)
    tried = {dict(each).get("stream.tiles_per_block") for each in found}
    assert tried - {None} == set(proposing.TILES_PER_BLOCK)
    gemm = proposing.variations(Candidate("fast", values, ""), "gemm", stages=7, buffers=0)
    assert not any(key.endswith("tiles_per_block") for each in gemm for key, _ in each)


def test_every_kind_of_producer_has_an_example():
    found = [path.read_text("utf-8") for path in GENERATED.glob("cute/stream_*short_blocks.py")]
    classes = {re.search(r"^ +mainloop +(\w+)", text, re.MULTILINE).group(1) for text in found}
    assert classes == {"PipelineTmaAsync", "PipelineCpAsync", "PipelineAsync"}
