# SPDX-License-Identifier: Apache-2.0
"""tcgen05.cp, and which operations of the tensor core are in order."""

import numpy as np
import pytest
from small_kernels import launch_of

from pipegen.emulator.machine import run
from pipegen.emulator.ptx.ir import PtxError

POLICIES = ("late", "random", "early")
# Chunks of 16 B: the second of a row 128 B on, the next 8 rows 256 B on; bit 46 is fixed.
DESCRIPTOR = 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46
FILL = "".join(
    f"add.s32 %r11, %r10, {k}; st.shared.b32 [%r9+{128 * (k // 4) + 4 * (k % 4)}], %r11;"
    for k in range(8)
)
COPY = "tcgen05.cp.cta_group::1.{shape} [%r20], %d8;"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r19];"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p8, [%r19], 0; @!%p8 bra AGAIN;"
FENCE = "fence.proxy.async;"


def copying(
    shape="128x256b", fence=FENCE, commit=COMMIT, wait=WAIT, second="", other="", columns=32
) -> str:
    """Each thread fills a row with 8 * its number + 0 to 7, and reads back its lane."""
    loaded = ", ".join(f"%r{n}" for n in range(100, 108))
    stores = "".join(f"st.global.b32 [%d6+{4 * n}], %r{100 + n};" for n in range(8))
    return (
        "mov.u32 %r1, %tid.x; mov.b32 %r2, smem; setp.ge.u32 %p6, %r1, 32;"
        "add.s32 %r18, %r2, 8192; add.s32 %r19, %r2, 8200; shr.u32 %r7, %r1, 5;"
        "@%p6 bra READY;"
        f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r18], {columns};"
        "elect.sync %r22|%p7, -1; @!%p7 bra READY; mbarrier.init.shared.b64 [%r19], 1;"
        "READY:"
        "shr.u32 %r8, %r1, 3; shl.b32 %r8, %r8, 8; and.b32 %r9, %r1, 7; shl.b32 %r9, %r9, 4;"
        "add.s32 %r9, %r9, %r8; add.s32 %r9, %r9, %r2; shl.b32 %r10, %r1, 3;"
        + FILL
        + fence
        + f"bar.sync 0; ld.shared.b32 %r20, [%r18];"
        f"cvt.u64.u32 %d8, %r2; shr.u64 %d8, %d8, 4; or.b64 %d8, %d8, {DESCRIPTOR};"
        "setp.ne.u32 %p9, %r7, 1; @%p6 bra OTHER; elect.sync %r22|%p7, -1; @!%p7 bra OTHER;"
        + COPY.format(shape=shape)
        + second
        + commit
        + "OTHER: @%p9 bra ISSUED; elect.sync %r22|%p7, -1; @!%p7 bra ISSUED;"
        + other
        + "ISSUED:"
        + wait
        + "shl.b32 %r23, %r7, 21; add.s32 %r23, %r23, %r20;"
        f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{loaded}}}, [%r23];"
        "tcgen05.wait::ld.sync.aligned; bar.sync 0; @%p6 bra FREED;"
        f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, {columns};"
        "FREED: mul.wide.u32 %d5, %r1, 32; add.s64 %d6, %d0, %d5;" + stores
    )


def runs(body: str, **options: bool):
    out = np.zeros((128, 8), np.uint32)
    launch = launch_of(body, out, threads=128, smem=8216)
    found = [run(launch, seed=n, late=late, **options) for n, late in enumerate(POLICIES)]
    return out, {finding.kind for each in found for finding in each.findings}


def test_rows_of_shared_memory_become_lanes():
    out, kinds = runs(copying())
    assert kinds == set()
    np.testing.assert_array_equal(out, np.arange(1024).reshape(128, 8))
    half, kinds = runs(copying("128x128b"))
    assert kinds == set()
    np.testing.assert_array_equal(half[:, :4], out[:, :4])
    assert not (half[:, 4:] == out[:, 4:]).any()


# Each warp clears its lanes.
CLEAR = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r23], {" + ", ".join(["%r1"] * 8) + "};"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fence": ""}, {"missing-proxy-fence"}),
        ({"wait": "bar.sync 0;"}, {"race", "cta-gone"}),
        # Two copies are not in order, not even of one thread.
        ({"second": COPY.format(shape="128x256b")}, {"race"}),
        ({"second": COPY.format(shape="128x256b").replace("[%r20]", "[%r20+8]")}, set()),
        # A commit is for what its own thread has issued.
        ({"commit": "", "other": COMMIT}, {"race"}),
        ({"columns": 512}, set()),
    ],
)
def test_a_copy_is_watched(change, expected):
    for sync_only in (False, True):
        assert runs(copying(**change), sync_only=sync_only)[1] == expected


def test_columns_that_are_not_allocated():
    body = copying().replace("[%r20], %d8", "[%r20+28], %d8")
    assert "tmem-allocation" in runs(body)[1]


@pytest.mark.parametrize("shape", ["64x128b.warpx2::02_13", "4x256b", "128x256b.b8x16.b6x16_p32"])
def test_other_forms_are_refused_by_name(shape):
    with pytest.raises(PtxError, match=r"a form of tcgen05\.cp that the emulator does not know"):
        runs(copying(shape))


def test_what_a_thread_knows_of_anothers_operations():
    from pipegen.emulator.findings.clocks import Issued

    issued = Issued()
    assert [issued.add(epoch) for epoch in (1, 1, 4, 6)] == [1, 2, 3, 4]
    assert [issued.until(epoch) for epoch in (0, 1, 3, 4, 5, 9)] == [0, 2, 2, 3, 3, 4]
    assert issued.last == 4


# Two warps multiply into one accumulator; the second may know that the first has issued.
IDESC = 1 << 4 | 1 << 7 | 1 << 10 | (8 >> 3) << 17 | (64 >> 4) << 24  # any bits will do for A and B
MMA = (
    f"mov.b32 %r21, {IDESC}; mov.pred %p4, 1; add.s32 %r24, %r19, 8;"
    "{seen} tcgen05.mma.cta_group::1.kind::f16 [%r20], %d8, %d8, %r21, %p4;"
)
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r24];"
SEEN = "MET: mbarrier.try_wait.parity.shared.b64 %p8, [%r24], 0; @!%p8 bra MET;"


@pytest.mark.parametrize(("seen", "expected"), [("", True), (SEEN, False)])
def test_products_of_two_threads_are_in_order_where_the_threads_are(seen, expected):
    body = copying(commit=MMA.format(seen="") + ARRIVE, other=MMA.format(seen=seen) + COMMIT)
    body = body.replace(COPY.format(shape="128x256b"), "")
    body = body.replace("[%r19], 1;READY", "[%r19], 1; mbarrier.init.shared.b64 [%r19+8], 1;READY")
    out = np.zeros((128, 8), np.uint32)
    launch = launch_of(body, out, threads=128, smem=8224)
    found = [run(launch, seed=n, late=late).findings for n, late in enumerate(POLICIES)]
    messages = [each.message for some in found for each in some]
    # What has seen the second's commit may read what the first's product went into, too.
    assert any("accumulates into TMEM" in message for message in messages) == expected
    assert bool(messages) == expected
