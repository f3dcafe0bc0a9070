# SPDX-License-Identifier: Apache-2.0
"""CTA pairs, cluster launch control and the mainloop's options on Blackwell, without one: numbers
by hand, the DSL's masks and layouts evaluated on the host, and the protocol in any order."""

import re
from pathlib import Path
from unittest import mock

import pytest
from blackwell_model import Cluster, Counts
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT

ROOT = Path(__file__).parent.parent
EMITTED = ROOT / "generated" / "cute"
SINGLES = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2)]
PAIRS = [(2, 1), (2, 2), (4, 1), (4, 2)]
SHAPES = [(1, shape) for shape in SINGLES] + [(2, shape) for shape in PAIRS]


def planned(cluster, group=1, mainloop=None, tiles="static", **sections):
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_100a"}
    data = {
        "pipegen": 1,
        "kernel": kernel,
        "cluster": {"shape": list(cluster), "cta_group": group},
        "pipeline": {"mainloop": mainloop or {}},
        "scheduler": {"tiles": tiles},
        **sections,
    }
    return api.plan(description_from_data(data))


def values(made, names):
    return {name: made.number(name).value for name in names}


def test_the_numbers_of_a_pair():
    made = planned((2, 1), 2)
    expected = {
        "a_stage_bytes": 16384,  # 128 * 64 * 2: each CTA's own rows
        "b_stage_bytes": 16384,  # 128 * 64 * 2: half of 256 rows
        "tx_count": 65536,  # both CTAs' copies, 2 * (16384 + 16384), at the leader
        "mainloop_full_arrive_count": 1,  # the leader's TMA warp
        "mainloop_empty_arrive_count": 1,  # one commit of the leader, at both CTAs
        "accumulator_full_arrive_count": 1,
        "accumulator_empty_arrive_count": 8,  # 4 warps of 2 CTAs, at the leader
        "mainloop_stages": 6,  # (232448 - 1024 - 2 * 8192) / 32768 = 6.6
        "epilogue_buffers": 4,
        "mbarrier_bytes": 136,  # 2 * 6 * 8 + 2 * 2 * 8 + 8, for freeing TMEM
        "smem_bytes": 230400,  # 1024 + 6 * 32768 + 4 * 8192
        "tmem_columns": 512,
        "threads": 192,
        "mma_m": 256,
    }
    assert values(made, expected) == expected
    assert check_formulas(made) >= 10


def test_the_numbers_of_a_cluster_of_pairs():
    # [4, 2]: four pairs, in a square of 2 x 2: a stage is read by 2 + 2 - 1 of their leaders.
    assert planned((4, 2), 2).number("mainloop_empty_arrive_count").value == 3
    assert planned((4, 1), 2).number("mainloop_empty_arrive_count").value == 2
    assert planned((2, 2), 2).number("mainloop_empty_arrive_count").value == 2
    # Without pairs: 4 + 2 - 1 CTAs.
    assert planned((4, 2)).number("mainloop_empty_arrive_count").value == 5


@pytest.mark.parametrize(
    ("cluster", "group", "arrivals"),
    [
        ((1, 1), 1, 224),  # 32 * (TMA + 4 epilogue + MMA + scheduler)
        ((2, 1), 1, 416),  # 32 * (2 * (1 + 4 + 1) + 1)
        ((2, 1), 2, 384),  # 32 * (2 * (1 + 4) + 1 + 1): one MMA warp
        ((4, 2), 1, 1568),  # 32 * (8 * 6 + 1)
        ((4, 2), 2, 1440),  # 32 * (8 * 5 + 4 + 1)
    ],
)
def test_who_reads_an_answer(cluster, group, arrivals):
    made = planned(cluster, group, tiles="clc")
    assert made.number("scheduler_empty_arrive_count").value == arrivals
    assert made.number("threads").value == 224
    scheduler = next(each for each in made.pipelines if each.name == "scheduler")
    assert (scheduler.construct, scheduler.stages) == ("PipelineClcFetchAsync", 2)
    assert (scheduler.tx_count, scheduler.full_arrive_count) == (16, 1)
    assert scheduler.empty_arrive_count == arrivals
    check_formulas(made)


def test_answers_take_smem():
    # 4 stages: 64 B of barriers, 32 of the accumulators', 32 of the answers', 32 of answers, 4.
    made = planned((1, 1), tiles="clc")
    assert made.number("mbarrier_bytes").value == 128
    assert made.number("smem_bytes").value == 230400


@pytest.mark.parametrize(("group", "half"), [(1, 16384), (2, 16384)])
def test_half_a_b_tile(group, half):
    # 128 of 256 rows of 64 * 2 B; in a pair that is all that the second CTA holds.
    made = planned((2, 1), group, {"expected_tx": True})
    assert made.number("half_b_bytes").value == half
    check_formulas(made)


@settings(max_examples=150)
@given(
    shape=st.sampled_from(SHAPES),
    n=st.integers(1, 16).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128]),
    b=st.sampled_from(["k", "n"]),
    a=st.sampled_from(["bf16", "f16", "e4m3"]),
    tiles=st.sampled_from(["static", "clc"]),
    edge=st.booleans(),
)
def test_every_plan_fits_the_machine(shape, n, k, b, a, tiles, edge):
    """Whatever is asked for: a refusal, or a plan that fits, in parts of whole swizzle atoms."""
    group, (m, _) = shape
    try:
        made = planned(
            shape[1],
            group,
            {"expected_tx": edge},
            tiles,
            dtype={"a": a},
            tile={"n": n, "k": k},
            layout={"b": b},
        )
    except InputError:
        return
    check_formulas(made)
    value = {number.name: number.value for number in made.numbers}
    assert value["smem_bytes"] <= HARDWARE["sm_100a"].smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["tx_count"] == group * (value["a_stage_bytes"] + value["b_stage_bytes"])
    assert value["mainloop_stages"] >= 2
    if b == "k":
        boxes = 2 // group if edge else 1
        assert n // group // boxes % (8 * (m // group)) == 0
    else:
        assert k // (m // group) >= 8


# ---- The protocol, in any order ------------------------------------------------------------------
def counts(group, cluster, answers, edge, **changed):
    """The plan's counts, for a ring of 3 stages: laps come soon."""
    stages = {"stages": 3, "expected_tx": edge}
    scheduler = {"pipeline": {"mainloop": stages, "scheduler": {"stages": answers}}}
    made = planned(
        cluster,
        group,
        tiles="clc" if answers else "static",
        **(scheduler if answers else {"pipeline": {"mainloop": stages}}),
    )
    pipelines = {each.name: each for each in made.pipelines}
    found = {
        "cluster": cluster,
        "group": group,
        "stages": pipelines["mainloop"].stages,
        "accumulators": pipelines["accumulator"].stages,
        "answers": answers,
        "a": made.number("a_stage_bytes").value,
        "b": made.number("b_stage_bytes").value,
        "tx": pipelines["mainloop"].tx_count,
        "empty": pipelines["mainloop"].empty_arrive_count,
        "acc_empty": pipelines["accumulator"].empty_arrive_count,
        "answer_empty": pipelines["scheduler"].empty_arrive_count if answers else 0,
        "half_b": made.number("half_b_bytes").value if edge else 0,
    }
    return Counts(**{**found, **changed})


@pytest.mark.parametrize("edge", [False, True], ids=["whole", "edge"])
@pytest.mark.parametrize("answers", [0, 1, 2])
@pytest.mark.parametrize(("group", "cluster"), SHAPES)
def test_the_protocol_runs_in_any_order(group, cluster, answers, edge):
    """No deadlock, nothing overwritten or read early, and no signal for a CTA that has left."""
    for seed in range(3):
        Cluster(counts(group, cluster, answers, edge), 4, 4, {1, 3}, seed).run()


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"empty": 2}, "race|arrivals|deadlock"),
        ({"empty": 4}, "deadlock"),
        ({"acc_empty": 4}, "race|left|arrivals|deadlock"),
        ({"acc_empty": 9}, "deadlock"),
        ({"tx": 32768}, "race|deadlock"),
        ({"answer_empty": 1408}, "deadlock|left|arrivals|wrong answer"),
        ({"answer_empty": 1472}, "deadlock"),
    ],
)
def test_the_model_finds_a_wrong_count(changed, fault):
    wrong = counts(2, (4, 2), 1, False, **changed)

    def orders():
        for seed in range(20):
            Cluster(wrong, 5, 5, set(), seed).run()

    with pytest.raises(AssertionError, match=fault):
        orders()


# ---- What the DSL computes -----------------------------------------------------------------------
def evaluated(function):
    """What `function` returns, traced by the DSL on the host."""
    from cutlass import cute

    found = []

    @cute.jit
    def trace():
        found.append(function())

    trace()
    return found[0]


def masks_of(group, cluster):
    """For each rank the masks of the mainloop's release, the accumulator's commit, and the loads of
    A and B: the DSL's functions for the CTA layout of an emitted file."""
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    from cutlass import cute, pipeline

    name = "gemm_sm100_pair_c4x2" if group == 2 else "gemm_sm100_c4x2"
    text = (EMITTED / f"{name}.py").read_text()
    layout = re.search(r"    ctas = (cute\.make_layout\(.*\))\n", text)[1]
    place = re.search(r"        place = (.*)\n", text)[1]
    m, n = cluster
    names = {"cute": cute, "CLUSTER_M": m, "CLUSTER_N": n}

    def every():
        ctas = eval(layout, names)
        found = []
        for rank in range(m * n):
            where = {"cta_m": rank % m, "cta_n": rank // m, "v": rank % m % 2}
            coord = eval(place, names, where)
            with (
                mock.patch.object(cute.arch, "block_idx_in_cluster", return_value=rank),
                mock.patch.object(cute.arch, "make_warp_uniform", return_value=rank),
            ):
                mainloop = pipeline.PipelineTmaUmma._compute_mcast_arrival_mask(ctas, (1, 1))
                accumulator = pipeline.PipelineUmmaAsync._compute_tmem_sync_mask(ctas)
            loads = [cute.make_layout_image_mask(ctas, coord, mode=mode) for mode in (2, 1)]
            found.append([each.value for each in (mainloop, accumulator, *loads)])
        return found

    return evaluated(every)


@pytest.mark.parametrize(("group", "cluster"), [each for each in SHAPES if each[1] != (1, 1)])
def test_no_mask_reaches_outside_the_cluster(group, cluster):
    """Each mask names the CTAs that it must, by their places, and so none outside the cluster."""
    m, n = cluster
    found = masks_of(group, cluster)
    places = [(rank % m, rank // m) for rank in range(m * n)]

    def mask(wanted):
        return sum(1 << rank for rank, place in enumerate(places) if wanted(*place))

    signals = [0] * (m * n)
    for (i, j), (mainloop, accumulator, a, b) in zip(places, found, strict=True):
        pair = i // group
        assert a == mask(lambda x, y, i=i: x == i)
        assert b == mask(lambda x, y, i=i, j=j: y == j and x % group == i % group)
        assert accumulator == mask(lambda x, y, j=j, pair=pair: x // group == pair and y == j)
        assert mainloop == mask(lambda x, y, j=j, pair=pair: x // group == pair or y == j)
        assert max(mainloop, accumulator, a, b) < 1 << (m * n)
        if i % group == 0:  # only a leader commits
            signals = [count + (mainloop >> rank & 1) for rank, count in enumerate(signals)]
    assert set(signals) == {planned(cluster, group).number("mainloop_empty_arrive_count").value}


def test_with_another_stride_of_v_a_mask_reaches_outside():
    """Why one CTA's layout spells V's stride out: PipelineTmaUmma still signals V = 1."""
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    from cutlass import cute, pipeline

    def last():
        ctas = cute.make_layout((1, 2, 1, 1), stride=(1, 1, 2, 0))
        with (
            mock.patch.object(cute.arch, "block_idx_in_cluster", return_value=1),
            mock.patch.object(cute.arch, "make_warp_uniform", return_value=1),
        ):
            return pipeline.PipelineTmaUmma._compute_mcast_arrival_mask(ctas, (1, 1)).value

    assert evaluated(last) == 0b111  # rank 2 of two CTAs


@pytest.mark.parametrize(("tile_n", "tile_k", "bits"), [(256, 64, 16), (64, 32, 16), (128, 128, 8)])
def test_halves_of_a_b_tile_lie_where_the_mma_reads(tile_n, tile_k, bits):
    """expected_tx: the layout of half boxes places each element of B as the MMA's layout does."""
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    import cutlass
    from cutlass import cute
    from cutlass.cute.nvgpu import tcgen05

    stages, mma_k = 3, 256 // bits
    dtype = cutlass.BFloat16 if bits == 16 else cutlass.Float8E4M3FN
    kind = tcgen05.SmemLayoutAtomKind
    swizzle = {128: kind.K_SW128, 64: kind.K_SW64}[tile_k * bits // 8]

    def compare():
        atom = tcgen05.make_smem_layout_atom(swizzle, dtype)
        shape = ((tile_n, mma_k), 1, tile_k // mma_k)
        whole = tcgen05.tile_to_mma_shape(atom, cute.append(shape, stages), order=(1, 2, 3))
        half = tile_n // 2
        halves = cute.tile_to_shape(atom, (half, tile_k, 2 * stages), order=(0, 1, 2))
        different = 0
        for stage in range(stages):
            for n in range(tile_n):
                for k in range(0, tile_k, 8):
                    a = whole.outer(((n, k % mma_k), 0, k // mma_k, stage))
                    b = halves.outer((n % half, k, 2 * stage + n // half))
                    different += a != b
        return different

    assert evaluated(compare) == 0
