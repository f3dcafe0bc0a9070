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

from pipegen.arithmetic import tma_consumer_arrive_count, umma_consumer_arrive_count
from pipegen.compiling.installed import dsl as find_dsl

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
SM100 = [
    (
        derived("PipelineTmaUmma", (v, m, n), consumer=WARP),
        (1, umma_consumer_arrive_count((m, n)), TX_COUNT),
    )
    for v, m, n in PAIRED
]
SM100 += [
    (
        derived(
            "PipelineTmaMultiConsumersAsync",
            (1, m, n),
            consumer_umma=WARP,
            consumer_async=WARP * warps,
        ),
        (
            1,
            umma_consumer_arrive_count((m, n)) + tma_consumer_arrive_count(warps, (m, n)),
            TX_COUNT,
        ),
    )
    for (m, n), warps in itertools.product(CLUSTERS, (1, 4))
]


@pytest.fixture(scope="module", params=[("sm_90a", SM90), ("sm_100a", SM100)], ids=lambda p: p[0])
def traced(request):
    """What the DSL initialises, beside what we expect."""
    arch, cases = request.param
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
    for (request, (full, empty, tx_count)), counts in traced:
        assert (counts["full"], counts["empty"], counts["tx_count"]) == (
            full,
            empty,
            tx_count,
        ), request
        assert counts["barriers"] == 2 * request[1]["stages"]


def test_counts_in_threads_would_be_noticed(traced):
    """The usual mistake: threads in the place of warps."""
    for (request, (_, empty, _)), counts in traced:
        assert counts["empty"] != WARP * empty, request
