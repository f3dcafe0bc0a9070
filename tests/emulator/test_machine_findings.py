# SPDX-License-Identifier: Apache-2.0
"""Generated kernels run right and without findings; broken in one place, each tells its fault."""

import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

pytest.importorskip("cutlass")
import mutants

from pipegen.emulator.emitted import EmittedModule
from pipegen.emulator.launch import Launch
from pipegen.emulator.machine import Limits, Result, run
from pipegen.emulator.session import capturing

ROOT = Path(__file__).parent.parent.parent
LIMITS = Limits(instructions=1_000_000)


@dataclass
class Runs:
    """What running a module's self-check gave, and what its mutants gave in the same place."""

    passed: list[bool] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    broken: dict[str, set[str]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)


def runs_of(name, arch, sizes, table=(), schedules=1, sync_only=False) -> Runs:
    """The kernel under several schedules; then, on the same arrays, each of its mutants once."""
    runs = Runs()
    policies = ["late", "random", "early"]

    def execute(launch: Launch) -> None:
        policy = policies[len(runs.results) % 3]
        seed = len(runs.results)
        runs.results.append(run(launch, seed=seed, late=policy, sync_only=sync_only))
        if len(runs.results) < schedules:
            return
        for mutant in table:
            broken = replace(launch, ptx=mutant.change(launch.ptx))
            result = run(broken, seed=1, late="random", limits=LIMITS)
            runs.broken[mutant.name] = {finding.kind for finding in result.findings}
            runs.messages[mutant.name] = "\n".join(map(str, result.findings))

    with contextlib.ExitStack() as stack:
        session = stack.enter_context(capturing(execute, arch=arch, sms=2))
        module = EmittedModule(ROOT / "generated" / "cute" / f"{name}.py", session)
        for seed in range(schedules):
            runs.passed.append(module.check(sizes, seed=seed).passed)
    return runs


@pytest.fixture(scope="module")
def hopper():
    sizes = (512, 256, 320)  # two tiles for each CTA of the one cluster, five steps of K each
    return runs_of("gemm_sm90_c2x1", "sm_90a", sizes, mutants.HOPPER_GEMM, 3)


@pytest.fixture(scope="module")
def blackwell():
    sizes = (512, 256, 448)  # two tiles for the one pair: the second one by launch control
    return runs_of("gemm_sm100_clc_pair_c2x1", "sm_100a", sizes, mutants.BLACKWELL_GEMM, 3)


@pytest.mark.parametrize("kernel", ["hopper", "blackwell"])
def test_unbroken_kernels_are_right_and_clean(kernel, request):
    runs = request.getfixturevalue(kernel)
    assert [f for result in runs.results for f in result.findings] == []
    assert runs.passed == [True] * 3
    assert all(result.instructions > 10_000 for result in runs.results)


def test_a_clean_kernel_is_clean_under_twenty_schedules():
    runs = runs_of("stream_sm90_tma_row_c2x1", "sm_90a", (40, 200), schedules=20)
    assert [f for result in runs.results for f in result.findings] == []
    assert runs.passed == [True] * 20


def test_without_data_the_protocol_runs_as_with_it(hopper):
    runs = runs_of("gemm_sm90_c2x1", "sm_90a", (512, 256, 320), sync_only=True)
    (result,) = runs.results
    assert result.findings == ()
    assert result.by_warp == hopper.results[0].by_warp
    assert runs.passed == [False]  # nothing was written


@pytest.mark.parametrize("mutant", mutants.HOPPER_GEMM, ids=lambda m: m.name)
def test_a_broken_hopper_kernel_is_told(mutant, hopper):
    assert mutant.kinds & hopper.broken[mutant.name], hopper.messages[mutant.name]


@pytest.mark.parametrize("mutant", mutants.BLACKWELL_GEMM, ids=lambda m: m.name)
def test_a_broken_blackwell_kernel_is_told(mutant, blackwell):
    assert mutant.kinds & blackwell.broken[mutant.name], blackwell.messages[mutant.name]


def test_a_deadlock_tells_who_waits_and_what_is_missing(hopper):
    text = hopper.messages["empty count one more"]
    assert "CTA 0 warp 0 (at source line" in text
    assert "waits for parity" in text
    assert "with 16 of 17 arrivals; last signalled by mbarrier.arrive.shared::cluster.b64" in text
