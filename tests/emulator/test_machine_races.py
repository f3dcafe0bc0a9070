# SPDX-License-Identifier: Apache-2.0
"""Accesses that nothing orders, of kinds that JAX's labelled race tests have and ours had not."""

from dataclasses import replace

import numpy as np
import pytest
from small_kernels import launch_of
from test_machine_matrices import FENCE, operands, swizzled, tcgen05_kernel

from pipegen.emulator.machine import run

__all__ = ["operands"]  # a fixture

POLICIES = ("late", "random", "early")
START = """
    mov.b32 %r2, smem; mov.u32 %r1, %tid.x; add.s32 %r3, %r2, 256; add.s32 %r4, %r2, 512;
    setp.ne.u32 %p1, %r1, 0; @%p1 ret;
    mbarrier.init.shared.b64 [%r2], 1;
"""
LOAD = (
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{to}], [%d0], 32, [%r2];"
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 32;"
)
WAIT = """
    mbarrier.arrive.shared.b64 _, [%r2], 1;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra AGAIN;
"""
STORE = (
    "cp.async.bulk.global.shared::cta.bulk_group [%d1+{at}], [%r3], 32;"
    "cp.async.bulk.commit_group;"
)
ALL, ALL_BUT_ONE = "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group 1;"
ALL_READ = "cp.async.bulk.wait_group.read 0;"
USE = "ld.global.b32 %r9, [%d1]; st.shared.b32 [%r4], %r9;"
OVERWRITE = "st.global.b32 [%d1], %r1;"


def kinds_of(body: str, **options: int) -> list[tuple[str, ...]]:
    arrays = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    launch = launch_of(body, *arrays, **options)
    runs = [run(launch, seed=seed, late=late) for seed, late in enumerate(POLICIES)]
    return [tuple(dict.fromkeys(f.kind for f in each.findings)) for each in runs]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # A copy into what a thread wrote: ordered, but not between the proxies.
        ("st.shared.b32 [%r3], %r1;" + LOAD.format(to="%r3") + WAIT, "missing-proxy-fence"),
        ("st.shared.b32 [%r3], %r1;" + FENCE + LOAD.format(to="%r3") + WAIT, ""),
        # What a thread has read may be copied into without a fence, as every ring does.
        ("ld.shared.b32 %r9, [%r3];" + LOAD.format(to="%r3") + WAIT, ""),
        # Two copies into the same place, in one phase of one mbarrier.
        (LOAD.format(to="%r3") + LOAD.format(to="%r3") + WAIT, "race"),
        (LOAD.format(to="%r3") + LOAD.format(to="%r4") + WAIT, ""),
        (LOAD.format(to="%r3") + WAIT + LOAD.format(to="%r3") + WAIT.replace("AGAIN", "MORE"), ""),
    ],
)
def test_copies_into_shared_memory(steps, expected):
    steps = steps.replace("%p2, [%r2], 0; @!%p2 bra MORE", "%p2, [%r2], 1; @!%p2 bra MORE")
    assert kinds_of(START + steps) == [(expected,) if expected else ()] * 3


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (STORE.format(at=0) + ALL + USE, ""),
        # .read says that shared memory was read, and nothing of global memory.
        (STORE.format(at=0) + ALL_READ + USE, "race"),
        (STORE.format(at=0) + ALL_READ + OVERWRITE, "race"),
        (STORE.format(at=0) + ALL_READ + ALL + OVERWRITE, ""),
        # The newest group may still be under way, the one before it not.
        (STORE.format(at=0) + STORE.format(at=64) + ALL_BUT_ONE + USE + ALL, ""),
        (STORE.format(at=64) + STORE.format(at=0) + ALL_BUT_ONE + USE + ALL, "race"),
        # Two stores to the same place.
        (STORE.format(at=0) + STORE.format(at=16) + ALL, "race"),
        (STORE.format(at=0) + ALL + STORE.format(at=0) + ALL, ""),
        # A thread writes what a copy may still read.
        (LOAD.format(to="%r3") + "st.global.b32 [%d0], %r1;" + WAIT, "race"),
        (LOAD.format(to="%r3") + WAIT + "st.global.b32 [%d0], %r1;", ""),
    ],
)
def test_bulk_copies_and_global_memory(steps, expected):
    assert kinds_of(START + steps) == [(expected,) if expected else ()] * 3


CP_ASYNC = """
    mov.b32 %r2, smem; mov.u32 %r1, %tid.x;
    cp.async.ca.shared.global [%r2], [%d0], 4; cp.async.commit_group;
    {wait} st.global.b32 [%d0], %r1;
    cp.async.wait_group 0;
"""


@pytest.mark.parametrize(("wait", "expected"), [("", "race"), ("cp.async.wait_group 0;", "")])
def test_a_copy_of_threads_reads_global_memory(wait, expected):
    body = "mov.u32 %r5, %tid.x; setp.ne.u32 %p1, %r5, 0; @%p1 ret;" + CP_ASYNC.format(wait=wait)
    assert kinds_of(body) == [(expected,) if expected else ()] * 3


TWO_WARPS = """
    mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @!%p1 bra SECOND;
    {first} {meet}
    ret;
SECOND:
    {meet} {second}
"""
WRITES, READS = "st.global.b32 [%d0], 7;", "ld.global.b32 %r9, [%d0]; st.global.b32 [%d1], %r9;"


@pytest.mark.parametrize(("first", "second"), [(WRITES, READS), (READS, WRITES)])
def test_two_warps_that_share_global_memory_must_meet(first, second):
    assert ("race",) in kinds_of(TWO_WARPS.format(first=first, second=second, meet=""), threads=64)
    met = TWO_WARPS.format(first=first, second=second, meet="bar.sync 1, 64;")
    assert kinds_of(met, threads=64) == [()] * 3
    # A flag in global memory may be what orders them: nothing is claimed of what is read.
    flag = TWO_WARPS.format(first=first, second=second, meet="atom.global.add.u32 %r8, [%d0+8], 1;")
    assert kinds_of(flag, threads=64) == [()] * 3


def test_two_clusters_have_nothing_that_orders_a_read_after_a_write():
    body = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra WRITER;"
    body += READS + "ret; WRITER:" + WRITES
    assert ("race",) in kinds_of(body, ctas=2)
    strong = body.replace("ld.global", "ld.acquire.gpu.global")
    assert kinds_of(strong, ctas=2) == [()] * 3


ZEROS = "tcgen05.st.sync.aligned.32x32b.x64.b32 [%r23], {" + ", ".join(["%r1"] * 64) + "};"
HALF = (
    "add.s32 %r24, %r23, 1048576; tcgen05.st.sync.aligned.16x128b.x4.b32 [{at}], {{"
    + ", ".join(["%r1"] * 8)
    + "}};"
)
LOADED = "tcgen05.wait::ld.sync.aligned;"
STORED = "tcgen05.wait::st.sync.aligned;"


@pytest.mark.parametrize(
    ("after_load", "expected"),
    [
        (LOADED + ZEROS + STORED, set()),
        (ZEROS + LOADED + STORED, {"tmem-load-not-waited"}),
        (STORED + ZEROS + STORED + LOADED, {"tmem-load-not-waited"}),
        (LOADED + ZEROS + STORED + ZEROS + STORED, set()),
        (LOADED + ZEROS + ZEROS + STORED, {"race"}),
        (LOADED + ZEROS + LOADED + ZEROS + STORED, {"race"}),
        # Half of the lanes each: the two do not touch each other's.
        (LOADED + HALF.format(at="%r23") + HALF.format(at="%r24") + STORED, set()),
        (LOADED + HALF.format(at="%r24") + HALF.format(at="%r24") + STORED, {"race"}),
    ],
)
def test_a_warps_own_accesses_of_tensor_memory(operands, after_load, expected):
    """tcgen05.ld and .st are asynchronous also for the warp itself (PTX ISA, 9.7.16.6.2)."""
    data = np.concatenate([swizzled(each) for each in operands])
    out = np.zeros((128, 64), np.float32)
    body = tcgen05_kernel(wait=after_load + "bar.sync 0;")
    launch = launch_of(body, data, out, threads=128, smem=16400)
    for sync_only in (False, True):
        result = run(launch, sync_only=sync_only)
        assert {finding.kind for finding in result.findings} == expected


STORED_BY_ALL = {
    "st.global.b32 [%d0], {value};": "global memory",
    "mov.b32 %r6, smem; st.shared.b32 [%r6], {value};": "SMEM",
}


@pytest.mark.parametrize("store", STORED_BY_ALL)
@pytest.mark.parametrize(
    ("value", "threads", "races"),
    [
        ("7", 128, False),  # each thread of a warpgroup stores what all of them have
        ("%r5", 128, True),  # its warps have different numbers
        ("7", 256, True),  # two warpgroups are two threads to those who write for warpgroups
    ],
)
def test_a_warpgroup_may_store_one_value_four_times(store, value, threads, races):
    body = "mov.u32 %r1, %tid.x; shr.u32 %r5, %r1, 5;" + store.format(value=value)
    found = kinds_of(body, threads=threads)
    assert (("race",) in found) == races
    assert set(found) <= {(), ("race",)}


@pytest.mark.parametrize("store", STORED_BY_ALL)
def test_without_data_only_mosaic_gpus_scalars_are_taken_to_be_equal(store):
    body = store.format(value="7")
    launch = launch_of(body, np.zeros(4, np.uint32), threads=128)
    by_mosaic = replace(launch, by_mosaic=True)
    assert {f.kind for f in run(launch, sync_only=True).findings} == {"race"}
    assert run(by_mosaic, sync_only=True).findings == ()
