# SPDX-License-Identifier: Apache-2.0
"""Stores and copies that stand together: noted as one without data, and found as with data."""

import numpy as np
import pytest
from small_kernels import launch_of

from pipegen.emulator.machine import run

# Two warps; %r2 is each thread's place for 16 bytes of the first 1024.
PLACES = """
    mov.u32 %r1, %tid.x; mov.b32 %r9, smem; shl.b32 %r3, %r1, 4; add.s32 %r2, %r9, %r3;
    mul.wide.u32 %d2, %r1, 16; add.s64 %d3, %d0, %d2; mov.b32 %r8, 0;
    mov.b32 %r10, 0;
"""
COPIES = """
    cp.async.cg.shared.global [%r2], [%d3], 16;
    add.s32 %r4, %r2, 1024;
    cp.async.cg.shared.global [%r4], [%d3], 16;
    cp.async.cg.shared.global [%r2+{third}], [%d3], 16;
    cp.async.commit_group;
"""
STORES = """
    st.shared.b32 [%r2], %r8;
    st.shared.b32 [%r2+4], %r8;
    st.shared.v2.b32 [%r2+{third}], {{%r8, %r8}};
"""
# Both warps read what warp 0 brought there.
READ = "ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r9+1024];"
WAIT, MEET = "cp.async.wait_group 0;", "bar.sync 0;"


def kinds(body):
    """What both ways of running find, under several seeds."""
    data = np.zeros(256, np.uint32)
    found = []
    for sync_only in (False, True):
        launch = launch_of(PLACES + body, data, threads=64)
        runs = [run(launch, seed=seed, sync_only=sync_only) for seed in range(3)]
        found.append({finding.kind for each in runs for finding in each.findings})
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (COPIES.format(third=2048) + WAIT + MEET + READ, set()),
        (COPIES.format(third=2048) + MEET + READ, {"race"}),
        (COPIES.format(third=2048) + WAIT + READ, {"race"}),
        # The third copy of each warp goes where the other warp's goes, or beyond the end.
        (COPIES.format(third=512) + WAIT + MEET, {"race"}),
        (COPIES.format(third=8192) + WAIT + MEET, {"out-of-bounds"}),
        (STORES.format(third=8) + MEET + READ, set()),
        (STORES.format(third=1024) + READ, {"race"}),
        (STORES.format(third=520), set()),  # other bytes of the same 16 as the other warp's
        (STORES.format(third=12), {"misaligned"}),
        (STORES.format(third=8192), {"out-of-bounds"}),
    ],
)
def test_a_run_is_found_out_either_way(body, expected):
    assert kinds(body) == [expected, expected]


def test_a_run_that_comes_again_meets_what_came_between():
    """The third round writes what the other warp has read since, and nothing orders that."""
    round_ = "add.s32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra AGAIN;"
    first = "setp.ge.u32 %p1, %r1, 32; "
    ordered = first + "AGAIN: @%p1 bra SKIP;" + STORES.format(third=8) + "SKIP: bar.sync 0;"
    ordered += "ld.shared.v4.b32 {%r11, %r12, %r13, %r14}, [%r9];"
    assert kinds(ordered + "bar.sync 1;" + round_) == [set(), set()]
    assert kinds(ordered + round_) == [{"race"}, {"race"}]
