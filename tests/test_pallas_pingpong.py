# SPDX-License-Identifier: Apache-2.0
"""The Pallas GEMM in ping-pong: its numbers by hand, what it refuses, and what its text states.

Its protocol is tried by the interpreter (test_interpreted.py) and by the emulator, which also finds
it broken in three ways (test_emulator_pallas.py).
"""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE
from pipegen.selection import select
from pipegen.tuning.proposing import PING_PONG, proposals

EMITTED = sorted(
    (Path(__file__).parent.parent / "generated" / "pallas").glob("pallas_gemm_sm90_pingpong*.py")
)


def planned(**sections):
    kernel = {"op": "gemm", "backend": "pallas", "arch": "sm_90a"}
    scheduler = {"consumers": "ping-pong"}
    return api.plan(description_from_data({"kernel": kernel, "scheduler": scheduler, **sections}))


def test_the_default_plan():
    made = planned()
    assert made.template == "pallas/gemm_sm90_pingpong.py.j2"
    expected = {
        "tx_count": 32768,  # (128 + 128) * 64 * 2: a whole tile is one warpgroup's
        "mainloop_full_arrive_count": 256,  # 128 threads for each of two copies
        "mainloop_empty_arrive_count": 128,
        "turn_arrive_count": 128,
        "mainloop_barriers": 18,  # two full and one empty for each of 6 stages
        "epi_buffer_bytes": 8192,  # 64 * 64 * 2
        "epi_subtiles": 4,  # 128 / 64 * 128 / 64
        "mainloop_stages": 6,  # (232448 - 2 * 2 * 8192 - 16) / (32768 + 24) = 6.09
        "epilogue_buffers": 2,
        "barrier_bytes": 160,  # (18 + 2) * 8
        "smem_bytes": 229536,  # 6 * 32768 + 4 * 8192 + 160
        "threads": 384,
        "producer_registers": 56,
        "consumer_registers": 224,  # (512 - 56) / 2 = 228
        "accumulator_registers": 128,
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert check_formulas(made) >= 12
    assert [pipeline.name for pipeline in made.pipelines] == ["mainloop", "turns", "epilogue"]
    for each in made.pipeline("mainloop").releases:
        assert (each.in_flight, each.delay_release, each.fault) == (1, 1, "")


def test_the_table_names_the_template():
    said = select("tma", "wgmma", "sm_90a", "pallas").status_text
    assert "pallas/gemm_sm90_warp_specialized.py.j2" in said
    # Its ring is of no class of the table: the barriers are declared by hand.
    assert "pallas/gemm_sm90_pingpong.py.j2" not in said


@settings(max_examples=150)
@given(
    m=st.sampled_from([64, 128, 192]),
    n=st.integers(1, 17).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    a=st.sampled_from(["bf16", "f16", "e4m3", "f32", "i8"]),
    layout=st.sampled_from([("k", "k"), ("m", "n"), ("k", "n")]),
    stages=st.one_of(st.just("auto"), st.integers(0, 20)),
    buffers=st.one_of(st.just("auto"), st.integers(1, 8)),
)
def test_every_plan_fits_the_machine(m, n, k, a, layout, stages, buffers):
    """Whatever is asked for: a refusal, or a plan within every limit of the hardware and of jax."""
    try:
        made = planned(
            dtype={"a": a},
            layout=dict(zip("ab", layout, strict=True)),
            tile={"m": m, "n": n, "k": k},
            pipeline={"mainloop": {"stages": stages}, "epilogue": {"stages": buffers}},
        )
    except InputError:
        return
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    assert m in (64, 128)
    assert value["smem_bytes"] <= HARDWARE["sm_90a"].smem_per_block
    assert 2 <= value["mainloop_stages"] <= 16  # two full barriers each, at most 32 in a group
    assert value["epi_subtiles"] % value["epilogue_buffers"] == 0
    assert value["accumulator_registers"] + 32 <= value["consumer_registers"]


def test_many_small_stages_stop_at_jaxs_group():
    made = planned(tile={"m": 64, "n": 16, "k": 16}, pipeline={"mainloop": {"stages": "auto"}})
    assert made.number("mainloop_stages").value == 16
    assert "at most 32 barriers in a group" in made.stage_limit


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_the_emitted_file_states_the_protocol(path):
    """Barriers as planned; who waits where, and in which order."""
    text = path.read_text(encoding="utf-8")
    assert "plgpu.Barrier(num_arrivals=2, num_barriers=CONSUMERS * MAINLOOP_STAGES)" in text
    kernel = text.partition("def gemm_kernel(")[2].partition("\n@functools.partial(jax.jit")[0]
    mainloop = kernel.partition("def mainloop(")[2].partition("def epilogue(")[0]
    order = [
        "barrier_wait(turn.at[warpgroup])",
        "barrier_wait(full.at[warpgroup * MAINLOOP_STAGES + stage])",
        "plgpu.wgmma(",
        "plgpu.wgmma_wait(1)",
        "barrier_arrive(empty.at[stage_of(tile * k_tiles + k - 1)])",
        "barrier_arrive(turn.at[1 - warpgroup])",
        "plgpu.wgmma_wait(0)",
        "barrier_arrive(empty.at[stage_of((tile + 1) * k_tiles - 1)])",
    ]
    places = [mainloop.index(each) for each in order]
    assert places == sorted(places)
    assert len(re.findall(r"barrier_(?:wait|arrive)\(", kernel)) == 7


def test_a_search_tries_it_where_it_exists():
    def modes(**kernel):
        description = description_from_data(
            {"kernel": {"op": "gemm", "backend": "pallas", "arch": "sm_90a", **kernel}}
        )
        found = proposals(description, (4096, 4096, 4096), [(128, 128)])
        return [PING_PONG[0] in values for values in found]

    assert modes()[0]  # and first
    assert not any(modes(style="emit-pipeline"))
    assert not any(modes(arch="sm_100a"))
