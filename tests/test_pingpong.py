# SPDX-License-Identifier: Apache-2.0
"""The ping-pong GEMM: its numbers, derived by hand, and a model of its protocol."""

import itertools
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.arithmetic import order_barrier_bytes
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT
from pipegen.selection import select

ROOT = Path(__file__).parent.parent
EMITTED = sorted((ROOT / "generated" / "cute").glob("gemm_sm90_pingpong_*.py"))
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2)]


def planned(**sections):
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_90a"}
    scheduler = {"consumers": "ping-pong"}
    return api.plan(description_from_data({"kernel": kernel, "scheduler": scheduler, **sections}))


def test_the_default_plan():
    made = planned()
    assert made.template == "cute/gemm_sm90_pingpong.py.j2"
    expected = {
        "tx_count": 32768,  # (128 + 128) * 64 * 2: a whole tile is one warpgroup's
        "mainloop_full_arrive_count": 1,
        "mainloop_empty_arrive_count": 8,  # [2, 1]: 4 warps, not 8, at each of 2 CTAs
        "turn_arrive_count": 128,
        "turn_barriers": 2,  # one a warpgroup
        "epi_buffer_bytes": 4096,  # 64 * 32 * 2
        "epi_subtiles": 8,  # 128 / 64 * 128 / 32
        # (232448 - 1024 - 2 * 2 * 4096) / 32768 = 6.56; 34816 B are left: 4.25 pairs of buffers.
        "mainloop_stages": 6,
        "epilogue_buffers": 4,
        "store_buffers": 8,
        "mbarrier_bytes": 112,  # 2 * 6 * 8 + 2 * 8
        "smem_bytes": 230400,
        "threads": 384,
        "producer_registers": 40,
        "consumer_registers": 232,
        "accumulator_registers": 128,  # 128 * 128 / 128
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert check_formulas(made) >= 15


@pytest.mark.parametrize(("cluster", "arrivals"), [*zip(CLUSTERS, (4, 8, 8, 12), strict=True)])
def test_one_warpgroup_empties_a_stage(cluster, arrivals):
    assert planned(cluster={"shape": cluster}).pipeline("mainloop").empty_arrive_count == arrivals


def test_promotion_halves_the_tile():
    made = planned(dtype={"a": "e4m3", "out": "f32"})
    assert (made.description.tile.m, made.description.tile.n) == (128, 64)
    expected = {
        "tx_count": 24576,  # (128 + 64) * 128
        "accumulator_registers": 128,  # 2 * 128 * 64 / 128
        "epi_buffer_bytes": 8192,  # 64 * 32 * 4
        # (232448 - 1024 - 2 * 2 * 8192) / 24576 = 8.08; 34816 B are left: 2.1 pairs of buffers.
        "mainloop_stages": 8,
        "epilogue_buffers": 2,
        "smem_bytes": 230400,  # 1024 + 8 * 24576 + 2 * 2 * 8192
    }
    assert {name: made.number(name).value for name in expected} == expected


def test_the_barriers_of_an_order():
    assert order_barrier_bytes(1, 2) == 16
    assert order_barrier_bytes(2, 3) == 48


def test_the_table_knows_who_takes_turns():
    """PipelineOrder is ready where a template takes turns: on Hopper, not on Blackwell."""
    from pipegen.selection_table import rows, templates

    order = next(row for row in rows("cute") if row.cls == "PipelineOrder")
    ready = {
        arch
        for arch in order.archs
        for template in templates()
        if arch in template.archs and template.exists and order.emitted_by(template, arch)
    }
    assert ready == {"sm_90a"}
    assert "cute/gemm_sm90_pingpong.py.j2" in select("tma", "wgmma", "sm_90a", "cute").status_text


@settings(max_examples=200)
@given(
    m=st.sampled_from([64, 128, 192, 256]),
    n=st.integers(1, 17).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    cluster=st.sampled_from(CLUSTERS),
    a=st.sampled_from(["bf16", "f16", "e4m3", "e5m2"]),
    out=st.sampled_from(["f32", "bf16", "f16"]),
    stages=st.one_of(st.just("auto"), st.integers(0, 12)),
    buffers=st.one_of(st.just("auto"), st.integers(1, 8)),
)
def test_every_plan_fits_the_machine(m, n, k, cluster, a, out, stages, buffers):
    """Whatever is asked for: a refusal, or a plan within every limit of the hardware."""
    try:
        made = planned(
            dtype={"a": a, "out": out},
            tile={"m": m, "n": n, "k": k},
            cluster={"shape": cluster},
            pipeline={"mainloop": {"stages": stages}, "epilogue": {"stages": buffers}},
        )
    except InputError:
        return
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    assert m in (64, 128)
    assert value["smem_bytes"] <= HARDWARE["sm_90a"].smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["mainloop_stages"] >= 2
    assert value["store_buffers"] == 2 * value["epilogue_buffers"]
    assert value["accumulator_registers"] + 40 <= value["consumer_registers"]
    signalling = {(i, 0) for i in range(cluster[0])} | {(0, j) for j in range(cluster[1])}
    assert value["mainloop_empty_arrive_count"] == 4 * len(signalling)


# ---- A model of the protocol: one CTA, its ring, its turns ---------------------------------------


class Mbarrier:
    """Counts arrivals; a wait passes when the phase of its parity is complete."""

    def __init__(self, count):
        self.count, self.pending, self.completed = count, count, 0

    def arrive(self):
        self.pending -= 1
        if self.pending == 0:
            self.pending, self.completed = self.count, self.completed + 1

    def passes(self, parity):
        return self.completed % 2 != parity


def producer(ring, tiles, k_tiles):
    """Loads the stages of all tiles in order; a load lands some time after it was issued."""
    for count in range(tiles * k_tiles):
        stage, lap = count % len(ring["full"]), count // len(ring["full"])
        yield lambda stage=stage, lap=lap: ring["empty"][stage].passes((lap & 1) ^ 1)
        ring["loads"].append((stage, divmod(count, k_tiles)))


def loads(ring, tiles, k_tiles):
    """TMA: lands the loads, in any order."""
    for _ in range(tiles * k_tiles):
        yield lambda: bool(ring["loads"])
        stage, content = ring["loads"].pop(ring["random"].randrange(len(ring["loads"])))
        ring["content"][stage] = content
        ring["full"][stage].arrive()


def consumer(ring, turns, group, tiles, k_tiles, takes_turns):
    """A warpgroup: every second tile, one step over the stages of the other's."""
    stages = len(ring["full"])
    place = group * k_tiles
    for turn, tile in enumerate(range(group, tiles, 2)):
        if takes_turns:
            parity = (turn & 1) ^ (group == 0)  # the first group's first wait passes at once
            yield lambda parity=parity: turns[group].passes(parity)
        held = []
        for k in range(k_tiles):
            stage, lap = place % stages, place // stages
            yield lambda stage=stage, lap=lap: ring["full"][stage].passes(lap & 1)
            assert ring["content"][stage] == (tile, k), "a stage of another tile"
            place += 1
            held.append(stage)
            if len(held) == 2:  # the newest wgmma stays in flight
                release(ring, held.pop(0))
        turns[1 - group].arrive()
        yield lambda: True
        release(ring, held.pop())
        place += k_tiles
        yield lambda: True  # the epilogue


def release(ring, stage):
    for _ in range(4):  # one lane of each of the warpgroup's warps
        ring["empty"][stage].arrive()


def run(tiles, k_tiles, stages, seed, empty_arrivals=4, takes_turns=True):
    """Runs all roles in a random order; what has not ended when nothing can go on."""
    choose = random.Random(seed)
    ring = {
        "full": [Mbarrier(1) for _ in range(stages)],
        "empty": [Mbarrier(empty_arrivals) for _ in range(stages)],
        "content": [None] * stages,
        "loads": [],
        "random": choose,
    }
    turns = [Mbarrier(1), Mbarrier(1)]
    roles = {
        "producer": producer(ring, tiles, k_tiles),
        "TMA": loads(ring, tiles, k_tiles),
        "warpgroup 0": consumer(ring, turns, 0, tiles, k_tiles, takes_turns),
        "warpgroup 1": consumer(ring, turns, 1, tiles, k_tiles, takes_turns),
    }
    waits = {name: next(role, None) for name, role in roles.items()}
    while ready := [name for name, wait in waits.items() if wait is not None and wait()]:
        name = choose.choice(ready)
        waits[name] = next(roles[name], None)
    return {name for name, wait in waits.items() if wait is not None}


@pytest.mark.parametrize("stages", [2, 3, 6])
def test_nobody_waits_for_ever_and_each_reads_its_own_tiles(stages):
    """Any number of tiles, odd ones and none for a warpgroup included; K around the ring's size."""
    depths = sorted({1, 2, stages - 1, stages, stages + 1, 2 * stages, 2 * stages + 1})
    for tiles, k_tiles, seed in itertools.product(range(8), depths, range(6)):
        assert run(tiles, k_tiles, stages, seed) == set(), (tiles, k_tiles, seed)


def test_both_warpgroups_in_the_empty_count_hang():
    """8 arrivals, as in the cooperative kernel: the second lap never begins."""
    stuck = run(tiles=4, k_tiles=4, stages=3, seed=0, empty_arrivals=8)
    assert "producer" in stuck


def test_without_turns_a_warpgroup_takes_a_stage_of_two_laps_ago():
    """A phase bit does not tell a lap from the one before the last: the order is no mere tuning."""
    with pytest.raises(AssertionError, match="a stage of another tile"):
        [run(tiles=4, k_tiles=4, stages=2, seed=seed, takes_turns=False) for seed in range(50)]


# ---- The emitted files ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_a_turn_ends_after_the_mainloop_and_before_the_epilogue(path):
    """wait, mainloop, arrive; the skip of the other's K tiles; then the epilogue."""
    text = path.read_text()
    loop = text[text.index("for index in cutlass.range(own_first") :]
    places = [
        loop.index(words)
        for words in (
            "turns.wait(turn)",
            "multiply(",
            "turns.arrive(turn)",
            "advance(k_tiles",
            "Cons",
        )
    ]
    assert places == sorted(places)
    assert len(re.findall(r"turns\.(wait|arrive)\(turn\)", text)) == 2
