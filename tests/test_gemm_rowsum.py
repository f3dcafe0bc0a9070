# SPDX-License-Identifier: Apache-2.0
"""The Blackwell GEMM whose A tiles have two readers, which no machine here can run: its numbers,
the DSL's own signals against them, the reading of swizzled rows, and a model of the ring."""

import itertools
import re
import runpy
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT

ROOT = Path(__file__).parent.parent
EMITTED = sorted((ROOT / "generated" / "cute").glob("gemm_rowsum_sm100_*.py"))
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2)]
needs_dsl = pytest.mark.skipif(bool(find_dsl("cute").reason), reason="needs the CuTe DSL")


def planned(**sections):
    kernel = {"op": "gemm_rowsum", "backend": "cute", "arch": "sm_100a"}
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def test_the_default_plan():
    made = planned()
    expected = {
        "tx_count": 49152,  # (128 + 256) * 64 * 2
        "mainloop_full_arrive_count": 1,
        "umma_arrive_count": 2,  # [2, 1]: a commit of each of 2 + 1 - 1 CTAs
        "statistic_arrive_count": 8,  # and one lane of 4 warps of each
        "mainloop_empty_arrive_count": 10,
        "threads": 320,  # 32 * 10
        "mainloop_stages": 4,
        "smem_bytes": 230400,  # no more than without the statistic
        "chunk": 8,  # 16 B of bf16
        "chunks": 8,  # 64 / 8
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert check_formulas(made) >= 10
    assert made.pipeline("mainloop").construct == "PipelineTmaMultiConsumersAsync"
    assert made.pipeline("mainloop").empty_arrive_count == 10
    assert made.name == "sm100_gemm_rowsum_tma_umma_thread_s4_c2x1"
    assert sum(role.threads for role in made.roles) == 320


@pytest.mark.parametrize(
    ("cluster", "commits", "arrives"),
    [((1, 1), 1, 4), ((2, 1), 2, 8), ((1, 2), 2, 8), ((2, 2), 3, 12), ((4, 2), 5, 20)],
)
def test_both_readers_of_every_partner_are_counted(cluster, commits, arrives):
    made = planned(cluster={"shape": cluster})
    assert made.number("umma_arrive_count").value == commits
    assert made.number("statistic_arrive_count").value == arrives
    assert made.pipeline("mainloop").empty_arrive_count == commits + arrives


@settings(max_examples=100)
@given(
    n=st.integers(1, 16).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128]),
    cluster=st.sampled_from(CLUSTERS),
    a=st.sampled_from(["bf16", "f16", "e4m3"]),
    b_major=st.sampled_from(["k", "n"]),
    out=st.sampled_from(["f32", "bf16", "f16"]),
)
def test_every_plan_fits_the_machine(n, k, cluster, a, b_major, out):
    """Whatever is asked for: a refusal, or a plan within every limit, and whole rows in chunks."""
    try:
        made = planned(
            dtype={"a": a, "out": out},
            layout={"b": b_major},
            tile={"n": n, "k": k},
            cluster={"shape": cluster},
        )
    except InputError:
        # Parts of a shared B tile are atoms of 8 rows, of N or of K.
        cut = n % (8 * cluster[0]) if b_major == "k" else k < 8 * cluster[0]
        assert a == "e4m3" or cut
        return
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    assert value["smem_bytes"] <= HARDWARE["sm_100a"].smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["chunk"] * value["chunks"] == k
    signals = {(i, 0) for i in range(cluster[0])} | {(0, j) for j in range(cluster[1])}
    assert value["mainloop_empty_arrive_count"] == 5 * len(signals)


# --- What the DSL signals, evaluated on the host --------------------------------------------------


def signals(cluster: tuple[int, int], expression: str) -> tuple[list[int], list[int]]:
    """Arrivals at each CTA's empty barrier in one stage: by commits, and by statistic warps."""
    from cutlass import cute, pipeline

    size = cluster[0] * cluster[1]
    commits, arrives = [0] * size, [0] * size
    names = {"cute": cute, "CLUSTER_M": cluster[0], "CLUSTER_N": cluster[1]}

    def evaluate():
        ctas = eval(expression, names)
        multi = pipeline.PipelineTmaMultiConsumersAsync
        signal = multi._init_empty_barrier_arrive_signal_2sm.__wrapped__
        for rank in range(size):
            with (
                mock.patch.object(cute.arch, "block_idx_in_cluster", return_value=rank),
                mock.patch.object(cute.arch, "make_warp_uniform", return_value=rank),
            ):
                mask = pipeline.PipelineTmaUmma._compute_mcast_arrival_mask(ctas, (1, 1))
                for other in range(size):
                    commits[other] += mask.value >> other & 1
                for warp, lane in itertools.product(range(4), range(32)):
                    found = signal(ctas, 32 * warp + lane)
                    if found[1]:
                        arrives[found[0]] += 1

    @cute.jit
    def trace():
        evaluate()

    trace()
    return commits, arrives


@needs_dsl
@pytest.mark.parametrize("cluster", CLUSTERS[1:])
def test_each_empty_barrier_hears_as_often_as_it_counts(cluster):
    text = next(path for path in EMITTED if "c2x2" in path.name).read_text()
    expression = re.search(r"    ctas = (cute\.make_layout\(\(1, .*\))\n", text)[1]
    commits, arrives = signals(cluster, expression)
    made = planned(cluster={"shape": cluster})
    assert set(commits) == {made.number("umma_arrive_count").value}
    assert set(arrives) == {made.number("statistic_arrive_count").value}


# --- The rows that threads read -------------------------------------------------------------------


@needs_dsl
@pytest.mark.parametrize("tile_k", [16, 32, 64, 128])
def test_a_thread_reads_its_row_and_eight_threads_no_bank_twice(tile_k):
    """The layout that tcgen05 reads has row r, column k where the swizzle of TMA puts it."""
    width = min(tile_k, 64)  # elements of a swizzled row
    found = offsets(tile_k)
    for row, column in itertools.product(range(128), range(tile_k)):
        part, inside = divmod(column, 64)
        assert found[row, column] == part * 128 * width + row * width + inside
    # Byte address bits 4 to 6 are xored with bits 7 to 9; with fewer where the row is shorter.
    bits = {128: 0x70, 64: 0x30, 32: 0x10}[2 * width]
    for first, column in itertools.product(range(0, 128, 8), range(0, tile_k, 8)):
        addresses = [2 * found[first + i, column] for i in range(8)]
        places = {(a ^ (a >> 3 & bits)) // 16 % 8 for a in addresses}
        assert len(places) == 8  # 8 threads * 16 B: all 32 banks, each once


def offsets(tile_k: int) -> dict[tuple[int, int], int]:
    """Element offsets within a stage of A's SMEM, before the swizzle: (row, column) -> offset."""
    import cutlass
    from cutlass import cute
    from cutlass.cute.nvgpu import OperandMajorMode, tcgen05

    kinds = {16: "K_SW32", 32: "K_SW64"}
    kind = getattr(tcgen05.SmemLayoutAtomKind, kinds.get(tile_k, "K_SW128"))
    found: dict[tuple[int, int], int] = {}

    @cute.jit
    def trace():
        dtype, major = cutlass.BFloat16, OperandMajorMode.K
        one, smem = tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM
        op = tcgen05.MmaF16BF16Op(dtype, cutlass.Float32, (128, 256, 16), one, smem, major, major)
        shape = cute.make_tiled_mma(op).partition_shape_A((128, tile_k))
        atom = tcgen05.make_smem_layout_atom(kind, dtype)
        layout = tcgen05.tile_to_mma_shape(atom, cute.append(shape, 2), order=(1, 2, 3)).outer
        for row, column in itertools.product(range(128), range(tile_k)):
            place = (row, column % 16), 0, column // 16, 0
            found[row, column] = cute.crd2idx(place, layout)

    trace()
    return found


# --- A model of the ring --------------------------------------------------------------------------

STAGES, LAPS = 2, 3
STEPS = STAGES * LAPS


def faults(statistic_waits: bool, count: int) -> set[str]:
    """What goes wrong in some order of the steps of a producer, the tensor core, a statistic warp.

    A stage's barriers are the number of fills, and the arrivals and completed phases of the empty
    one, which completes with `count` arrivals. A statistic warp that does not wait does not read.
    """
    start = ((0, 0, 0), (0,) * STAGES, (0,) * STAGES, (0,) * STAGES)
    seen, todo, found = {start}, [start], set()
    while todo:
        steps, fills, arrivals, phases = todo.pop()
        following = []
        filled, *readers = steps
        stage, lap = filled % STAGES, filled // STAGES
        if filled < STEPS and phases[stage] >= lap:  # the first lap's acquire passes at once
            before = filled - STAGES  # what the stage held: read by all who read?
            reading = readers if statistic_waits else readers[:1]
            if any(reader <= before for reader in reading):
                found.add("race")
            following.append((bumped(steps, 0), bumped(fills, stage), arrivals, phases))
        for role, waits in ((1, True), (2, statistic_waits)):
            stage, lap = steps[role] % STAGES, steps[role] // STAGES
            if steps[role] < STEPS and (fills[stage] > lap or not waits):
                heard, done = bumped(arrivals, stage), phases
                if heard[stage] == count:
                    heard = tuple(0 if s == stage else a for s, a in enumerate(heard))
                    done = bumped(phases, stage)
                following.append((bumped(steps, role), fills, heard, done))
        if not following and steps != (STEPS,) * 3:
            found.add("deadlock")
        todo += [state for state in following if state not in seen]
        seen.update(following)
    return found


def bumped(values: tuple[int, ...], index: int) -> tuple[int, ...]:
    return tuple(value + (i == index) for i, value in enumerate(values))


def test_the_ring_with_two_readers_neither_hangs_nor_races():
    assert faults(statistic_waits=True, count=2) == set()


def test_a_release_without_a_wait_empties_a_stage_that_is_still_read():
    assert "race" in faults(statistic_waits=False, count=2)


def test_counting_one_reader_only_is_a_race_and_counting_threads_hangs():
    assert "race" in faults(statistic_waits=True, count=1)
    assert faults(statistic_waits=True, count=33) == {"deadlock"}


# --- The launcher ---------------------------------------------------------------------------------


@needs_dsl
@pytest.mark.parametrize(
    ("rowsum", "message"),
    [
        (np.zeros(128, np.float16), "rowsum.dtype=float16: must be float32"),
        (np.zeros((1, 1, 128), np.float32), r"rowsum.shape=\(1, 1, 128\): must be 1 or 2 sizes"),
        (np.zeros(129, np.float32), r"rowsum.shape=\(1, 129\): must be \(L, M\) = \(1, 128\)"),
        (np.zeros((128, 2), np.float32)[:, 0], r"rowsum.stride=\(2,\): must be 1 last"),
        (np.zeros(128, np.float32), "rowsum.device=-1: must be one GPU"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(rowsum, message):
    module = runpy.run_path(str(next(path for path in EMITTED if "f16" in path.name)))
    a, b = np.zeros((128, 64), np.float16), np.zeros((64, 128), np.float16)
    out = np.zeros((128, 128), np.float32)
    with pytest.raises((TypeError, ValueError), match=message):
        module["gemm_rowsum"](a, b, out, rowsum)
