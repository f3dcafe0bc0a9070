# SPDX-License-Identifier: Apache-2.0
"""Stream kernels that cp.async or threads feed: numbers by hand, and the protocol in the text."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen import arithmetic
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE

ROOT = Path(__file__).parent.parent
EMITTED = sorted(
    path
    for kind in ("cp_async", "thread")
    for path in (ROOT / "generated" / "cute").glob(f"stream_*_{kind}*.py")
)


def planned(producer="cp_async", store=False, arch="sm_90a", **sections):
    kernel = {"op": "stream", "backend": "cute", "arch": arch}
    pipelines = {"mainloop": {"producer": producer}}
    if store:
        pipelines["epilogue"] = {"consumer": "tma_store"}
    data = {"pipegen": 1, "kernel": kernel, "pipeline": pipelines, **sections}
    return api.plan(description_from_data(data))


def values(made, *names):
    return tuple(made.number(name).value for name in names)


def test_cp_async_by_hand():
    made = planned()
    expected = {
        "x_tile_bytes": 16384,  # 32 * 256 * 2
        "mainloop_full_arrive_count": 64,  # 2 warps: cp.async's arrive is a thread's own
        "mainloop_empty_arrive_count": 8,  # one lane of each consumer warp
        "warp_m": 4,  # 32 / 8
        "producer_m": 16,  # 32 / 2
        "vector": 8,  # 16 B of bf16
        "threads": 320,
        "smem_capacity": 115712,  # 233472 / 2 - 1024
        "mainloop_stages": 7,  # (115712 - 128) / 16384 = 7.05
        "smem_bytes": 114816,  # 128 + 7 * 16384
        "bytes_in_flight": 229376,  # 2 * 7 * 16384
    }
    assert {name: made.number(name).value for name in expected} == expected
    (mainloop,) = made.pipelines
    assert (mainloop.construct, mainloop.tx_count) == ("PipelineCpAsync", None)
    assert made.template == "cute/stream_cp_async.py.j2"


def test_threads_by_hand():
    made = planned("thread")
    # Eight producer warps, all 256 threads arrive: PipelineAsync chooses no lane.
    assert values(made, "mainloop_full_arrive_count", "mainloop_empty_arrive_count") == (256, 8)
    assert values(made, "producer_m", "threads", "mainloop_stages") == (4, 512, 7)
    assert made.number("bytes_in_flight").value == 32768  # registers: one tile of each of 2 blocks
    assert made.pipelines[0].construct == "PipelineAsync"


def test_tma_store_by_hand():
    made = planned(store=True)
    # One block an SM: (232448 - 256 - 3 * 16384) / 16384 = 11.2. Barriers: 2 * 11 * 8 = 176, up to
    # a multiple of 128: 256. 256 + 14 * 16384 = 229632.
    assert values(made, "blocks_per_sm", "mainloop_stages", "smem_bytes") == (1, 11, 229632)
    assert made.pipeline("epilogue").stage_bytes == 2048  # 4 rows of 512 B
    assert made.pipeline("epilogue").full_arrive_count is None  # bulk groups, no barriers
    # Two blocks for threads: 115712 - 128 - 49152 = 66432; / 16384 = 4.05.
    threads = planned("thread", store=True)
    assert values(threads, "blocks_per_sm", "mainloop_stages") == (2, 4)


def test_two_inputs_share_a_stage():
    made = planned(stream={"y": "matrix"})
    assert made.pipelines[0].stage_bytes == 32768
    assert made.number("mainloop_stages").value == 3  # (115712 - 128) / 32768 = 3.5
    assert made.number("mainloop_full_arrive_count").value == 64  # not one for each input


@pytest.mark.parametrize(
    ("alignment", "vector", "pieces", "lane_n", "warps"),
    [(16, 8, 1, 8, 2), (8, 4, 2, 132, 4), (4, 2, 4, 194, 4)],  # 132: 32 * 4 + 4; 194: 3 * 64 + 2
)
def test_alignment_decides_the_copies(alignment, vector, pieces, lane_n, warps):
    """Narrower copies and more of them; the tile keeps its rows of 512 bytes."""
    made = planned(layout={"alignment": alignment})
    assert (made.description.tile.m, made.description.tile.n) == (32, 256)
    assert values(made, "vector", "pieces", "lane_n") == (vector, pieces, lane_n)
    assert made.number("vector").formula == ("256 / 32" if alignment == 16 else f"{alignment} / 2")
    assert made.number("mainloop_full_arrive_count").value == 32 * warps
    text = api.render(made)[f"{made.name}.py"]
    # .cg exists for 16 bytes only (PTX ISA, "cp.async").
    assert ('"cg"' in text, '"ca"' in text) == (alignment == 16, alignment != 16)
    assert f"assumed_align={alignment}" in text


def test_wider_inputs_get_fewer_elements():
    made = planned(dtype={"a": "f32", "b": "bf16", "out": "f16"}, stream={"y": "matrix"})
    assert made.number("vector").value == 4  # 16 B of f32, 8 B of bf16: copies of two widths
    assert '"ca"' in api.render(made)[f"{made.name}.py"]
    assert planned(dtype={"a": "bf16", "out": "f32"}).number("vector").value == 4


def test_a_gather_has_more_producers():
    assert planned(layout={"gather": True}).number("mainloop_full_arrive_count").value == 128
    assert planned("thread", layout={"gather": True}).number("producer_m").value == 4
    # Two blocks, each with three store buffers: (115712 - 128 - 3 * 16384) / 16384 = 4.05.
    stored = planned(store=True, layout={"gather": True})
    assert values(stored, "blocks_per_sm", "mainloop_stages") == (2, 4)


def test_arrive_counts_differ_by_class():
    """Producers count threads, an elected consumer warps, TMA one arming thread."""
    assert arithmetic.cp_async_producer_arrive_count(2) == 64
    assert arithmetic.thread_producer_arrive_count(8) == 256
    assert arithmetic.elected_consumer_arrive_count(8) == 8
    assert arithmetic.tma_consumer_arrive_count(8, (1, 1)) == 8


@settings(deadline=None, max_examples=60)
@given(
    producer=st.sampled_from(("cp_async", "thread")),
    store=st.booleans(),
    arch=st.sampled_from(("sm_90a", "sm_100a")),
    alignment=st.sampled_from((16, 8, 4)),
    types=st.tuples(*[st.sampled_from(("bf16", "f16", "f32"))] * 3),
    y=st.sampled_from(("none", "matrix")),
    gather=st.booleans(),
)
def test_every_plan_fits_and_its_formulas_hold(producer, store, arch, alignment, types, y, gather):
    sections = {
        "dtype": dict(zip(("a", "b", "out"), types, strict=True)),
        "layout": {"alignment": alignment, "gather": gather and y == "none"},
        "stream": {"y": y},
    }
    try:
        made = planned(producer, store, arch, **sections)
    except InputError as error:
        # bf16 beside f32 in rows of 4 bytes: one element of bf16 is no cp.async.
        assert {problem.rule for problem in error.problems} == {"PG216"}  # noqa: PT017
        assert (producer, alignment, y) == ("cp_async", 4, "matrix")
        return
    check_formulas(made)
    hardware, blocks = HARDWARE[arch], made.number("blocks_per_sm").value
    assert blocks * (made.number("smem_bytes").value + hardware.smem_reserved_per_block) <= (
        hardware.smem_per_sm
    )
    assert blocks * made.number("threads").value <= hardware.max_threads_per_sm
    assert made.pipelines[0].stages >= 2
    width = made.number("vector").value * api.vocabulary.DTYPE[types[0]].bytes
    assert width <= alignment
    pieces = made.number("pieces").value
    assert 32 * made.number("vector").value * pieces == made.description.tile.n
    # More than one only where the alignment allows no wider.
    loaded = types[:2] if y == "matrix" else types[:1]
    widest = max(api.vocabulary.DTYPE[word].bytes for word in loaded)
    assert pieces == 1 or made.number("vector").value * widest == alignment


def test_rows_of_any_alignment_leave_smem_to_l1():
    """Three blocks of four stages, or of two and two store buffers; fewer where they do not fit."""
    made = planned(layout={"alignment": 8})
    assert values(made, "blocks_per_sm", "mainloop_stages") == (3, 4)  # (76800 - 128) / 16384 = 4.7
    assert 3 * (made.number("smem_bytes").value + 1024) <= (228 - 30) * 1024
    made = planned("thread", store=True, layout={"alignment": 4})
    assert values(made, "blocks_per_sm", "mainloop_stages") == (3, 2)
    assert made.pipeline("epilogue").stages == 2
    # 76800 - 128 - 16384 = 60288, less than two stages of 32768: two blocks.
    made = planned(store=True, layout={"alignment": 4}, stream={"y": "matrix"})
    assert values(made, "blocks_per_sm", "mainloop_stages") == (2, 2)
    # 32 * (16 + 8) threads three times are more than the 2048 of an SM.
    made = planned("thread", layout={"alignment": 4}, role={"consumer": {"warpgroups": 4}})
    assert values(made, "blocks_per_sm") == (2,)
    ring = {"mainloop": {"producer": "cp_async", "stages": 12}}
    made = planned(layout={"alignment": 4}, pipeline=ring)
    assert values(made, "blocks_per_sm", "mainloop_stages") == (1, 12)


def test_few_columns_need_no_wide_vector():
    """64 columns are 2 elements a lane, though rows aligned to 16 bytes would allow 8."""
    made = planned(tile={"m": 32, "n": 64})
    assert values(made, "vector", "pieces", "lane_n") == (2, 1, 2)
    assert "4 B" in api.render(made)[f"{made.name}.py"]


def test_formulas_check_finds_a_wrong_number():
    """The control of the test above."""
    made = planned()
    wrong = [*made.numbers]
    wrong[0] = type(wrong[0])("x_tile_bytes", 16385, "B", wrong[0].formula)
    with pytest.raises(AssertionError):
        check_formulas(type(made)(**{**vars(made), "numbers": tuple(wrong)}))


def protocol_faults(text: str) -> list[str]:
    """What breaks the arrive counts: a commit that not every producer thread reaches in each round,
    a release that more or fewer than one lane a warp gives, or one before the warp has met."""
    tree = ast.parse(text)
    kernel = next(n for n in ast.walk(tree) if getattr(n, "name", "") == "stream_kernel")
    role = next(n for n in kernel.body if isinstance(n, ast.If))
    faults = []
    (loop,) = (n for n in role.body if isinstance(n, ast.For))
    commits = [line for line in map(ast.unparse, loop.body) if "commit" in line]
    if commits not in (["stage.commit()"], ["mainloop.producer_commit(stage)"]):
        faults.append("commit")
    body = next(n for n in role.orelse if isinstance(n, ast.For)).body
    at = next((i for i, n in enumerate(body) if "release" in ast.unparse(n)), 0)
    elected = isinstance(body[at], ast.With) and "elect_one" in ast.unparse(body[at])
    if not elected or "sync_warp" not in ast.unparse(body[at - 1]):
        faults.append("release")
    tails = ["tail" in ast.unparse(n) for n in role.body].count(True)
    if tails != 1 or any("mainloop" in t and "tail" in t for t in map(ast.unparse, role.orelse)):
        faults.append("tail")
    return faults


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_emitted_roles_keep_the_arrive_counts(path):
    text = path.read_text(encoding="utf-8")
    assert protocol_faults(text) == []
    warps = int(re.search(r"^CONSUMER_WARPS, PRODUCER_WARPS = \d+, (\d+)", text, re.M)[1])
    assert int(re.search(r"^FULL_ARRIVES = (\d+)", text, re.M)[1]) == 32 * warps
    assert "tx_count" not in text
    assert "barrier_storage=" in text  # PipelineCpAsync.create has no default for it


def test_faults_in_the_protocol_are_seen():
    """The control of the test above."""
    path = ROOT / "generated" / "cute" / "stream_sm90_cp_async.py"
    text = path.read_text(encoding="utf-8")
    commit = "            stage.commit()\n"
    release = "            with cute.arch.elect_one():\n                stage.release()\n"
    assert commit in text
    assert release in text
    guarded = text.replace(commit, "            if lane == 0:\n                stage.commit()\n")
    assert protocol_faults(guarded) == ["commit"]
    assert protocol_faults(text.replace(release, "            stage.release()\n")) == ["release"]
    early = text.replace("            cute.arch.sync_warp()\n" + release, release)
    assert protocol_faults(early) == ["release"]
    assert protocol_faults(text.replace("        mainloop_producer.tail()\n", "")) == ["tail"]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("index(numpy.zeros(4, numpy.int64))", "TypeError index.dtype=int64: must be int32"),
        (
            "index(numpy.zeros((4, 4), numpy.int32))",
            "ValueError index.shape=(4, 4), .stride=(4, 1): must be one dimension, contiguous",
        ),
        (
            "index(numpy.zeros(8, numpy.int32)[::2])",
            "ValueError index.shape=(4,), .stride=(2,): must be one dimension, contiguous",
        ),
        ("index(numpy.zeros(4, numpy.int32))", "(-1, (4,))"),
        (
            'matrix("x", "bfloat16", (4, 6), (7, 1), "bfloat16", module.X_ALIGN)',
            "ValueError x.stride=(7, 1): must be 1 last, and a positive multiple of 8 elements "
            "(16 bytes) before",
        ),
    ],
)
def test_the_launcher_says_what_is_wrong(expression, message):
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    script = (
        "import numpy, stream_sm90_cp_async_gather as module\n"
        "matrix, index = module.matrix, lambda tensor: module.row_index(tensor)[1:]\n"
        f"try: print({expression})\n"
        "except (TypeError, ValueError) as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "generated" / "cute",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == message
