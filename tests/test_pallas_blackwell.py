# SPDX-License-Identifier: Apache-2.0
"""The Blackwell GEMMs in Pallas, without a Blackwell: numbers by hand, what the compiler made of
them, jax's interpreter for one CTA, and a model of the protocol for pairs, which it cannot run."""

import json
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pallas_blackwell_model import Cluster, Counts
from test_planning import check_formulas

import pipegen as api
from pipegen.description_file import description_from_data, load_description
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT
from pipegen.planning import plan

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "generated" / "pallas").glob("pallas_gemm_sm100*.py"))
SINGLE = [path for path in MODULES if "_pair" not in path.stem]
SHARED = [(1, "static", shape) for shape in ((2, 1), (1, 2), (2, 2))]
VARIANTS = [(1, "static"), (1, "clc"), (2, "static"), (2, "clc")]


def planned(group=1, tiles="static", shape=None, **sections):
    data = {
        "pipegen": 1,
        "kernel": {"op": "gemm", "backend": "pallas", "arch": "sm_100a"},
        "cluster": {"cta_group": group, **({"shape": list(shape)} if shape else {})},
        "scheduler": {"tiles": tiles},
        **sections,
    }
    return api.plan(description_from_data(data))


def values(made, names):
    return {name: made.number(name).value for name in names}


# ---- Numbers -------------------------------------------------------------------------------------
def test_the_numbers_of_one_cta():
    made = planned()
    expected = {
        "a_stage_bytes": 16384,  # 128 * 64 * 2
        "b_stage_bytes": 32768,  # 256 * 64 * 2
        "tx_count": 49152,
        "mainloop_full_arrive_count": 256,  # 128 for each of two copies
        "mainloop_empty_arrive_count": 1,
        "accumulator_full_arrive_count": 1,
        "accumulator_empty_arrive_count": 1,
        "mainloop_stages": 4,  # (232448 - 2 * 16384) / 49152 = 4.06
        "epilogue_buffers": 2,
        "epi_buffer_bytes": 16384,  # 128 rows of 128 B
        "epi_subtiles": 4,
        "barrier_bytes": 100,  # 2 * 8 * (4 + 2) + 4
        "smem_bytes": 229476,  # 4 * 49152 + 2 * 16384 + 100
        "tmem_columns": 512,
        "threads": 256,
    }
    assert values(made, expected) == expected
    assert check_formulas(made) >= 10


def test_the_numbers_of_a_pair_with_answers():
    made = planned(2, "clc")
    expected = {
        "a_stage_bytes": 16384,
        "b_stage_bytes": 16384,  # half of 256 rows
        "tx_count": 65536,  # both CTAs' copies, at the leader
        "mainloop_full_arrive_count": 256,
        "accumulator_empty_arrive_count": 2,  # both epilogues
        "scheduler_full_arrive_count": 384,
        "scheduler_empty_arrive_count": 6,  # 3 warpgroups of 2 CTAs
        "mainloop_stages": 6,
        "mma_m": 256,
        "threads": 384,
        # 6 * 32768 + 2 * 16384, the answers' 32 B up to 1024, 2 * 8 * (6 + 2 + 2) + 4
        "smem_bytes": 230564,
    }
    assert values(made, expected) == expected
    assert check_formulas(made) >= 10
    assert planned(1, "clc").number("scheduler_empty_arrive_count").value == 384
    assert made.description.cluster.shape == (2, 1)
    assert {role.name: role.threads for role in made.roles} == {
        "tma": 128,
        "mma": 128,
        "epilogue": 128,
    }


@settings(max_examples=150, deadline=None)
@given(
    variant=st.sampled_from([*VARIANTS, *SHARED]),
    n=st.integers(1, 20).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    a=st.sampled_from(["bf16", "f16", "e4m3", "i8"]),
    out=st.sampled_from(["bf16", "f32"]),
    major=st.sampled_from(["k", "n"]),
    accumulators=st.sampled_from(["auto", 2, 3, 4, 8]),
)
def test_every_plan_fits_the_machine(variant, n, k, a, out, major, accumulators):
    """Whatever is asked for: a refusal, or a plan that fits and that Mosaic GPU can make."""
    try:
        made = planned(
            *variant,
            dtype={"a": a, "out": out},
            tile={"n": n, "k": k},
            layout={"b": major},
            pipeline={"accumulator": {"stages": accumulators}},
        )
    except InputError:
        return
    check_formulas(made)
    value = {number.name: number.value for number in made.numbers}
    assert value["smem_bytes"] <= HARDWARE["sm_100a"].smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["tmem_columns"] <= 512
    assert value["accumulator_buffers"] * n <= value["tmem_columns"]
    assert 2 <= value["mainloop_stages"] <= 32
    assert value["epi_subtiles"] % value["epilogue_buffers"] == 0
    # jax/experimental/mosaic/gpu/tcgen05.py: columns of B in each CTA.
    assert n // variant[0] % (32 if a == "i8" and variant[0] == 2 else 16) == 0
    assert made.values["mma_swizzle"] >= 32  # it refuses operands without a swizzle


# ---- What the compiler made of them --------------------------------------------------------------
@pytest.fixture(scope="module")
def report():
    """What `pipegen check` says of the Blackwell modules."""
    done = subprocess.run(
        [sys.executable, "-m", "pipegen", "check", *map(str, MODULES), "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {Path(entry["path"]).stem: entry for entry in json.loads(done.stdout)["modules"]}


def compiled_kernel(report, name):
    found = report[name]["compile"]
    if found["status"] == "skip":
        pytest.skip(found["message"])
    (kernel,) = found["kernels"]
    return kernel


def planned_mbarriers(made):
    counts = Counter()
    for pipeline in made.pipelines:
        for count in (pipeline.full_arrive_count, pipeline.empty_arrive_count):
            if count is not None:
                counts[count] += pipeline.stages
    for number in made.numbers:
        if number.name == "mainloop_released_arrive_count":
            counts[number.value] += made.pipeline("mainloop").stages
    return counts


def planned_shares(made):
    """What one thread arms for each copy: the bytes of both CTAs in a pair."""
    threads = next(role.threads for role in made.roles if role.name == "tma")
    operands = ("a_stage_bytes", "b_stage_bytes")
    group = made.description.cluster.cta_group
    return {group * made.number(name).value // threads for name in operands}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_compiler_initialises_the_planned_barriers(report, path):
    kernel = compiled_kernel(report, path.stem)
    made = plan(load_description(path.with_suffix(".toml")))
    assert Counter(kernel["mbarrier_counts"]) == planned_mbarriers(made)
    assert set(kernel["expected_bytes"]) == planned_shares(made)


def test_another_plan_would_be_seen(report):
    kernel = compiled_kernel(report, "pallas_gemm_sm100_pair_clc")
    for other in (planned(2), planned(1, "clc"), planned(2, "clc", tile={"n": 128})):
        assert Counter(kernel["mbarrier_counts"]) != planned_mbarriers(other) or set(
            kernel["expected_bytes"]
        ) != planned_shares(other)


# ---- jax's interpreter ---------------------------------------------------------------------------
@pytest.fixture
def interpreted(newest_jax):
    """What tests/interpret_blackwell.py says of a list of jobs."""

    def run(jobs):
        done = subprocess.run(
            [newest_jax, str(ROOT / "tests" / "interpret_blackwell.py")],
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def job(name, size, edit=("", ""), **others):
    text = (ROOT / "generated" / "pallas" / f"{name}.py").read_text(encoding="utf-8")
    assert edit[0] in text, edit[0]
    return {"text": text.replace(*edit) if edit[0] else text, "size": size, **others}


WELL = {"passed": True, "races": 0, "error": ""}


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
def test_it_is_right_in_any_number_of_stages(interpreted, path):
    """Tails in M, N and K, two batches; several tiles to a CTA, on more CTAs than one, with fewer
    stages and accumulators than the plan's: float64 agrees, and there is no race."""
    tile = plan(load_description(path.with_suffix(".toml"))).description.tile
    size = [tile.m + 8, tile.n + 24, 2 * tile.k + 8, 2]
    jobs = [
        job(path.stem, size, blocks=2),
        job(path.stem, size, blocks=3, constants={"MAINLOOP_STAGES": 2, "ACC_STAGES": 2}),
    ]
    assert interpreted(jobs) == [WELL, WELL]


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_rings_of_other_depths(interpreted, stages):
    name, size = "pallas_gemm_sm100_128x80_k32_two_stages", [264, 150, 100, 2]
    constants = [{"MAINLOOP_STAGES": stages, "ACC_STAGES": buffers} for buffers in (1, 2, 4)]
    jobs = [job(name, size, constants=each, blocks=2) for each in constants]
    assert interpreted(jobs) == [WELL] * 3


def test_a_tile_or_less(interpreted):
    """Fewer tiles than CTAs, and a matrix smaller than a tile."""
    name = "pallas_gemm_sm100_128x80_k32_two_stages"
    jobs = [job(name, size, blocks=4) for size in ([8, 16, 8, 1], [40, 24, 40, 3], [1, 1, 1, 1])]
    assert interpreted(jobs) == [WELL] * 3


@pytest.mark.parametrize(
    "edit",
    [
        ("                plgpu.wait_load_tmem()\n", ""),
        ("@pl.when(count >= ACC_STAGES)", "@pl.when(count >= 1000)"),
        ("@pl.when(step >= MAINLOOP_STAGES)", "@pl.when(step >= 1000)"),
        ("            plgpu.barrier_wait(mainloop_full.at[stage])\n", ""),
        ("            plgpu.commit_smem()\n", ""),
        ("        plgpu.wait_smem_to_gmem(0, wait_read_only=True)\n", "        pass\n"),
        ("Barrier(num_arrivals=2,", "Barrier(num_arrivals=1,"),
    ],
    ids=lambda edit: edit[0].strip(" @\n")[:40],
)
def test_the_interpreter_finds_what_is_left_out(interpreted, edit):
    (found,) = interpreted(
        [job("pallas_gemm_sm100_128x80_k32_two_stages", [136, 150, 100, 2], edit, blocks=1)]
    )
    # Which of these comes first is a matter of how the threads run.
    signs = ("RACE DETECTED", "Not all", "no threads observed phase")
    assert found["races"] or any(sign in found["error"] for sign in signs), found


def test_a_pair_says_that_no_interpreter_runs_it():
    for path in set(MODULES) - set(SINGLE):
        text = path.read_text(encoding="utf-8")
        assert "no interpreter of jax runs the MMAs of a CTA pair" in text
        assert 'print("SKIP no interpreter of jax runs the MMAs of a CTA pair")' in text


def test_the_check_sees_what_a_norm_does_not():
    """A fragment of 4 x 64 that is lost in 2048 x 2048 hardly changes the norm: the worst element
    says it. NaN anywhere, and an exact type that is wrong by one, fail as well."""
    jnp = pytest.importorskip("jax.numpy")

    def checked(name, spoil):
        module = types.ModuleType(name)
        text = (ROOT / "generated" / "pallas" / f"{name}.py").read_text(encoding="utf-8")
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)

        def run(a, b):
            out = module.reference(a, b)
            spoil(out[0])
            return jnp.asarray(out, module.OUT_DTYPE)

        return module.check(run, 2048, 2048, 8)

    def lose(out):
        out[100:104, 64:128] = 0

    def leave(out):
        out[-1, -1] = np.nan

    def miss(out):
        out[7, 9] += 1

    for name in ("pallas_gemm_sm100", "pallas_gemm_sm100_pair"):
        assert checked(name, lambda out: None)
        assert not checked(name, lose)
        assert not checked(name, leave)
    assert checked("pallas_gemm_sm100_i8", lambda out: None)
    assert not checked("pallas_gemm_sm100_i8", miss)


def test_only_the_leader_of_a_pair_waits_for_the_epilogues():
    for path in set(MODULES) - set(SINGLE):
        text = path.read_text(encoding="utf-8")
        assert text.count("leader_tracked=True") == 1
        role = "warp == MMA_WARP" if "TMA_WARP, MMA_WARP" in text else "warpgroup == MMA_WARPGROUP"
        roles = text.count(f"@pl.when(({role}) & (rank == 0))")
        assert roles == (1 if role.startswith("warp ") else 2)  # its tiles; and its tail


# ---- The protocol, in any order ------------------------------------------------------------------
def counts(group, tiles, stages=3, accumulators=2, shape=None, **changed):
    """The plan's counts, for a shorter ring than the plan's: laps come soon."""
    made = planned(
        group,
        tiles,
        shape,
        tile={"n": 64},
        pipeline={"accumulator": {"stages": accumulators}},
    )
    pipelines = {each.name: each for each in made.pipelines}
    found = {
        "group": group,
        "stages": stages,
        "accumulators": pipelines["accumulator"].stages,
        "clc": tiles == "clc",
        "a": made.number("a_stage_bytes").value,
        "b": made.number("b_stage_bytes").value,
        "full": pipelines["mainloop"].full_arrive_count,
        "empty": pipelines["mainloop"].empty_arrive_count,
        "acc_empty": pipelines["accumulator"].empty_arrive_count,
    }
    if tiles == "clc":
        found["answer_full"] = pipelines["scheduler"].full_arrive_count
        found["answer_empty"] = pipelines["scheduler"].empty_arrive_count
    if shape:
        found["cluster"] = shape
        found["released"] = made.number("mainloop_released_arrive_count").value
    return Counts(**{**found, **changed})


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("accumulators", [2, 3])
@pytest.mark.parametrize(("group", "tiles", "shape"), [*((*v, None) for v in VARIANTS), *SHARED])
def test_the_protocol_runs_in_any_order(group, tiles, shape, accumulators, stages):
    """No deadlock, nothing overwritten or read early, no signal for a CTA that has left."""
    found = counts(group, tiles, stages, accumulators, shape)
    for seed in range(4):
        for number, k_tiles in ((1, 1), (1, 4), (5, 2)):
            Cluster(found, number, k_tiles, seed).run()


@pytest.mark.parametrize(("group", "tiles", "shape"), [*((*v, None) for v in VARIANTS), *SHARED])
def test_the_protocol_runs_however_slow_one_role_is(group, tiles, shape):
    """One role goes on only where nothing else can: nobody may be a lap ahead of who waits."""
    found = counts(group, tiles, shape=shape)
    roles = len(Cluster(found, 1, 1, 0).ctas) * (4 if shape else 3)
    for slow in range(roles):
        for number in (4, 5, 9):
            Cluster(found, number, 2, slow).run(slow)


@pytest.mark.parametrize("tiles", ["static", "clc"])
def test_a_role_that_only_looks_on_is_lapped(tiles):
    """Both epilogues arrive in both CTAs, but nothing waits for the MMA role that does not lead:
    two tiles later its barrier shows the parity of before, and it waits for ever."""
    wrong = counts(2, tiles, follower_waits=True)
    follower = 4  # tma, mma, epilogue of the leader, tma, mma
    with pytest.raises(AssertionError, match="a deadlock"):
        Cluster(wrong, 4, 2, 0).run(follower)
    Cluster(counts(2, tiles), 4, 2, 0).run(follower)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"full": 128}, "race|arrivals|deadlock"),
        ({"full": 384}, "deadlock|arrivals"),
        ({"empty": 2}, "deadlock|race"),
        ({"acc_empty": 1}, "race|arrivals|deadlock|left"),
        ({"acc_empty": 3}, "deadlock"),
        ({"answer_full": 256}, "arrivals|wrong answer|deadlock"),
        ({"answer_empty": 5}, "arrivals|wrong answer|deadlock|left"),
        ({"answer_empty": 7}, "deadlock"),
        ({"acquire": False}, "race|arrivals|deadlock"),
        ({"tail": False}, "left"),
    ],
)
def test_the_model_finds_what_is_wrong(changed, fault):
    group, tiles = 2, "clc" if any(name.startswith("answer") for name in changed) else "static"
    wrong = counts(group, tiles, **changed)

    def orders():
        for seed in range(40):
            Cluster(wrong, 5, 4, seed).run()

    with pytest.raises(AssertionError, match=fault):
        orders()


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"released": 2}, "race|arrivals|left"),
        ({"released": 4}, "deadlock"),
        ({"relay": False}, "race|arrivals"),
        ({"acquire": False}, "race|arrivals"),
        ({"tail": False}, "left"),
    ],
)
def test_the_model_finds_what_is_wrong_with_a_multicast(changed, fault):
    wrong = counts(1, "static", shape=(2, 2), **changed)

    def orders():
        for seed in range(40):
            Cluster(wrong, 5, 4, seed).run()

    with pytest.raises(AssertionError, match=fault):
        orders()
