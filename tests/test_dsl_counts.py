# SPDX-License-Identifier: Apache-2.0
"""The installed CuTe DSL initialises its barriers with the counts that our arithmetic gives.

Every pipeline is created while a kernel is traced, as emitted kernels create it, and its barriers'
counts are read (`trace_counts.py`). Where a class can derive its arrivals from warps and cluster,
it does: that is the independent reference.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipegen.arithmetic import (
    clc_consumer_arrive_count,
    cp_async_producer_arrive_count,
    elected_consumer_arrive_count,
    multi_consumer_arrive_count,
    order_arrive_count,
    thread_producer_arrive_count,
    tma_consumer_arrive_count,
    umma_consumer_arrive_count,
)
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.protocols import protocols

TRACE = Path(__file__).with_name("trace_counts.py")
WARP = 32
SIDES = (1, 2, 4)
TX_COUNT = 49152


def ask(name, **request):
    """A request to `trace_counts.py`."""
    return name, {"stages": 4, "producer": 1, **request}


def derived(name, cluster, **groups):
    """A pipeline that works out its arrivals itself, from threads and the cluster (V, M, N)."""
    return ask(name, cluster=list(cluster), tx_count=TX_COUNT, derive=True, **groups)


CLUSTERS = [(m, n) for m, n in itertools.product(SIDES, SIDES) if m * n <= 8]
PAIRED = [(v, m, n) for v in (1, 2) for m, n in CLUSTERS if v * m * n <= 8]

# The request, and the counts that we expect: full, empty, bytes.
SM90 = [
    (
        derived("PipelineTmaAsync", (1, m, n), consumer=WARP * warps),
        (1, tma_consumer_arrive_count(warps, (m, n)), TX_COUNT),
    )
    for (m, n), warps in itertools.product(CLUSTERS, (1, 4, 8))
]
SM90 += [
    (
        derived("PipelineTmaAsync", (1, m, n), consumer=WARP * 4, mcast_mode=mode),
        (1, tma_consumer_arrive_count(4, (m, n), mode), TX_COUNT),
    )
    for (m, n), mode in itertools.product(CLUSTERS, ((1, 0), (0, 1)))
]
SM100 = [
    (
        derived("PipelineTmaUmma", (v, m, n), consumer=WARP),
        (1, umma_consumer_arrive_count((v * m, n), v), TX_COUNT),
    )
    for v, m, n in PAIRED
]
SM100 += [
    (
        derived("PipelineTmaUmma", (1, m, n), consumer=WARP, mcast_mode=mode),
        (1, umma_consumer_arrive_count((m, n), 1, mode), TX_COUNT),
    )
    for (m, n), mode in itertools.product(CLUSTERS, ((1, 0), (0, 1)))
]
SM100 += [
    (
        derived(
            "PipelineTmaMultiConsumersAsync",
            (1, m, n),
            consumer_umma=WARP,
            consumer_async=WARP * warps,
        ),
        (1, multi_consumer_arrive_count(warps, (m, n)), TX_COUNT),
    )
    for (m, n), warps in itertools.product(CLUSTERS, (1, 4))
]

# Classes that take the count as it is given: who calls is the kernel's affair. What they initialise
# is what the emitted kernels pass.
AS_GIVEN_ANYWHERE = [
    (
        ask("PipelineAsync", producer=WARP * 4, consumer=8),
        (thread_producer_arrive_count(4), elected_consumer_arrive_count(8), 0),
    ),
    (
        ask("PipelineCpAsync", producer=WARP * 4, consumer=8),
        (cp_async_producer_arrive_count(4), elected_consumer_arrive_count(8), 0),
    ),
    (
        ask("PipelineOrder", producer=WARP * 4, depth=1, length=2),
        (order_arrive_count(4), None, 0),
    ),
]
AS_GIVEN_SM100 = [
    (
        ask("PipelineAsyncUmma", producer=WARP * 4 * v, consumer=1, cluster=[v, 1, 1]),
        (thread_producer_arrive_count(4, v), 1, 0),
    )
    for v in (1, 2)
]
AS_GIVEN_SM100 += [
    (
        ask("PipelineUmmaAsync", consumer=4 * v, cluster=[v, 1, 1]),
        (1, elected_consumer_arrive_count(4, v), 0),
    )
    for v in (1, 2)
]
AS_GIVEN_SM100 += [
    (
        # Of each CTA the load warp and four epilogue warps, of each MMA one warp, one scheduler.
        ask("PipelineClcFetchAsync", consumer=threads, cluster=[v, m, n], tx_count=16),
        (1, clc_consumer_arrive_count((v * m, n), v, 5, 1), 16),
    )
    for v, m, n, threads in (
        (1, 1, 1, 32 * 7),
        (1, 2, 1, 32 * 13),
        (2, 1, 1, 32 * 12),
        (2, 2, 2, 32 * 45),
    )
]
CASES = [
    ("sm_90a", SM90, AS_GIVEN_ANYWHERE),
    ("sm_100a", SM100, AS_GIVEN_ANYWHERE + AS_GIVEN_SM100),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case[0])
def traced(request):
    """What the DSL initialises, beside what we expect."""
    arch, derives, given = request.param
    cases = derives + given
    found = find_dsl("cute")
    if found.reason:
        pytest.skip(found.reason)
    done = subprocess.run(
        [sys.executable, str(TRACE), json.dumps([made for made, _ in cases])],
        env={**os.environ, "CUTE_DSL_ARCH": arch},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("COUNTS ")]
    assert lines, done.stderr[-2000:]
    return list(zip(cases, json.loads(lines[0][7:]), strict=True))


def test_the_dsl_agrees_with_the_arithmetic(traced):
    """Each class, warps and cluster: arrivals that fill, arrivals that empty, bytes that arm."""
    for (request, expected), counts in traced:
        assert (counts["full"], counts["empty"], counts["tx_count"]) == expected, request


def test_every_class_has_as_many_barriers_as_planned(traced):
    """A full and an empty one a stage; PipelineOrder one a group and depth."""
    for ((name, asked), _), counts in traced:
        wanted = asked["depth"] * asked["length"] if "depth" in asked else 2 * asked["stages"]
        assert counts["barriers"] == wanted, name


def test_every_class_with_barriers_is_traced():
    """PipelineTmaStore has none."""
    named = {name for _, *cases in CASES for requests in cases for (name, _), _ in requests}
    assert named == set(protocols()) - {"PipelineTmaStore"}


def test_counts_in_threads_would_be_noticed(traced):
    """The usual mistake, where the class itself knows better: threads in the place of warps."""
    for (request, (_, empty, _)), counts in traced:
        if request[1].get("derive"):
            assert counts["empty"] != WARP * empty, request
