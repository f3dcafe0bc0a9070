# SPDX-License-Identifier: Apache-2.0
"""Generated kernels run right and without findings; broken in one place, each tells its fault."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import mutants
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="the CuTe DSL is not installed"
)
HERE = Path(__file__).parent


SCHEDULES = 20  # of each unbroken kernel


def runs_of(name, arch, sizes, table="", schedules=SCHEDULES, sync=0) -> dict:
    """What `run_kernel` tells: the kernel under several schedules, then each of its mutants."""
    request = {
        "name": name,
        "arch": arch,
        "sizes": sizes,
        "table": table,
        "schedules": schedules,
        "sync": sync,
    }
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]),
        "CUTE_DSL_ARCH": arch,
        "CUTE_DSL_LINEINFO": "1",
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "run_kernel.py"), json.dumps(request)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def hopper():
    sizes = (512, 256, 320)  # two tiles for each CTA of the one cluster, five steps of K each
    return runs_of("gemm_sm90_c2x1", "sm_90a", sizes, "HOPPER_GEMM", sync=2)


@pytest.fixture(scope="module")
def blackwell():
    sizes = (512, 256, 448)  # two tiles for the one pair: the second one by launch control
    return runs_of("gemm_sm100_clc_pair_c2x1", "sm_100a", sizes, "BLACKWELL_GEMM", sync=2)


@pytest.fixture(scope="module")
def cp_async():
    return runs_of("gemm_sm90_cp_async", "sm_90a", (136, 264, 328), "CP_ASYNC_GEMM", sync=1)


@pytest.fixture(scope="module")
def stream():
    return runs_of("stream_sm90_tma_row_c2x1", "sm_90a", (40, 200))


@pytest.mark.parametrize("kernel", ["hopper", "blackwell", "cp_async", "stream"])
def test_unbroken_kernels_are_right_and_clean(kernel, request):
    told = request.getfixturevalue(kernel)
    assert [run["findings"] for run in told["runs"]] == [[]] * SCHEDULES
    assert told["passed"] == [True] * SCHEDULES
    assert kernel == "stream" or all(sum(run["by_warp"]) > 10_000 for run in told["runs"])


@pytest.mark.parametrize("kernel", ["hopper", "blackwell"])
def test_without_data_the_protocol_runs_as_with_it(kernel, request):
    told = request.getfixturevalue(kernel)
    assert [run["findings"] for run in told["sync"]] == [[]] * 2
    assert sum(told["sync"][0]["by_warp"]) == sum(told["runs"][0]["by_warp"])


@pytest.mark.parametrize(
    ("kernel", "calls", "fewer"),
    [("hopper", 3.1, 2.8), ("blackwell", 4.0, 3.3), ("cp_async", 2.3, 4.5)],
)
def test_without_data_little_is_called(kernel, calls, fewer, request):
    """What makes a run without data several times faster, in numbers that no other load changes.

    Calls of functions for each warp instruction: `calls` at most, and `fewer` times fewer than with
    data, where many of them take longer, too. None of them looks at granules one by one.
    """
    with_data, without = request.getfixturevalue(kernel)["calls"]
    assert without["each"] <= calls
    assert with_data["each"] >= fewer * without["each"]
    assert with_data["by_granules"] > 100
    assert without["by_granules"] == 0


@pytest.mark.parametrize("mutant", mutants.HOPPER_GEMM, ids=lambda m: m.name)
def test_a_broken_hopper_kernel_is_told(mutant, hopper):
    assert mutant.kinds & set(hopper["broken"][mutant.name]), hopper["messages"][mutant.name]
    assert mutant.kinds & set(hopper["broken_sync"][mutant.name]), "not told without data"


@pytest.mark.parametrize("mutant", mutants.BLACKWELL_GEMM, ids=lambda m: m.name)
def test_a_broken_blackwell_kernel_is_told(mutant, blackwell):
    assert mutant.kinds & set(blackwell["broken"][mutant.name]), blackwell["messages"][mutant.name]
    assert mutant.kinds & set(blackwell["broken_sync"][mutant.name]), "not told without data"


def test_a_deadlock_tells_who_waits_and_what_is_missing(hopper, blackwell):
    text = hopper["messages"]["empty count one more"]
    assert "Producer" in text
    assert "(mainloop empty, stage 0 of 4), in phase 0 with 16 of 17 arrivals" in text
    assert "last signalled by mbarrier.arrive.shared::cluster.b64 of " in text
    text = blackwell["messages"]["accumulator count one more"]
    assert "(accumulator empty, stage " in text
    assert "MMA (CTA 0 warp 4) (at source line" in text


@pytest.mark.parametrize("mutant", mutants.CP_ASYNC_GEMM, ids=lambda m: m.name)
def test_a_broken_kernel_with_copies_of_threads_is_told(mutant, cp_async):
    assert mutant.kinds & set(cp_async["broken"][mutant.name]), cp_async["messages"][mutant.name]
    assert mutant.kinds & set(cp_async["broken_sync"][mutant.name]), "not told without data"
