# SPDX-License-Identifier: Apache-2.0
"""mbarriers by numbers derived by hand from the PTX ISA's rules, and what goes wrong with them."""

import numpy as np
import pytest
from small_kernels import launch_of, store_by_lane

from pipegen.emulator.machine import run

# One thread: steps on a barrier at `smem`, after each the answers of test_wait for both parities.
ONE = """
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
    mov.b32 %r2, smem; mov.b32 %r9, 0; mov.b32 %r8, 0;
    mbarrier.init.shared.b64 [%r2], {count};
"""
LOOK = """
    mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 0;
    mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 1;
    selp.b32 %r3, 1, 0, %p2; selp.b32 %r4, 2, 0, %p3; or.b32 %r3, %r3, %r4;
    shl.b32 %r9, %r9, 4; or.b32 %r9, %r9, %r3;
"""
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r2], {n};"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {n};"
BULK = (
    "add.s32 %r5, %r2, {to}; cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
    "[%r5], [%d0], {n}, [%r2];"
)

# A look gives 2 in an even phase (the phase before counts as odd and complete) and 1 in an odd one.


@pytest.mark.parametrize(
    ("count", "steps", "expected"),
    [
        # Phase 0 lasts for two arrivals, and so does phase 1.
        (2, [ARRIVE.format(n=1)] * 4, [2, 1, 1, 2]),
        (3, [ARRIVE.format(n=2), ARRIVE.format(n=1)], [2, 1]),
        # Announced bytes keep the phase open although all have arrived.
        (1, [EXPECT.format(n=32), BULK.format(n=16, to=64), BULK.format(n=16, to=96)], [2, 2, 1]),
        # Bytes may come before they are announced.
        (1, [BULK.format(n=32, to=64), EXPECT.format(n=32)], [2, 1]),
        (2, [BULK.format(n=16, to=64), ARRIVE.format(n=1), EXPECT.format(n=16)], [2, 2, 1]),
    ],
)
def test_phases_by_hand(count, steps, expected):
    out = np.zeros(64, np.uint32)
    looks = "".join(step + LOOK for step in ["", *steps])
    result = run(launch_of(ONE.format(count=count) + looks + store_by_lane("%r9"), out), late=False)
    assert result.findings == ()
    answers = [int(digit) for digit in f"{out[0]:x}"]
    assert answers == [2, *expected]


WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0, 1000; @!%p2 bra AGAIN;"


def found(body, **options):
    data = np.zeros(64, np.uint32)
    results = [
        run(launch_of(body, data, **options), seed=seed, late=late)
        for seed, late in ((0, "late"), (1, "random"), (2, "early"))
    ]
    kinds = [tuple(f.kind for f in r.findings) for r in results]
    return kinds, results[0].findings


def test_a_wait_for_nobody_is_a_deadlock_that_names_the_barrier():
    kinds, findings = found(ONE.format(count=2) + ARRIVE.format(n=1) + WAIT)
    assert kinds == [("deadlock",)] * 3
    text = findings[0].message
    assert "CTA 0 warp 0" in text
    assert "parity 0 of the mbarrier at SMEM offset 0x0 of CTA 0" in text
    assert "in phase 0 with 1 of 2 arrivals" in text
    assert "last signalled by mbarrier.arrive.shared.b64 of CTA 0 warp 0" in text


def test_bytes_that_do_not_come_are_counted():
    steps = EXPECT.format(n=48) + BULK.format(n=16, to=64) + WAIT
    kinds, findings = found(ONE.format(count=1) + steps)
    assert kinds == [("tx-count", "deadlock")] * 3
    assert "32 B that were announced have not come" in findings[0].message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("arrive-count", ONE.format(count=1) + ARRIVE.format(n=2)),
        ("barrier-not-initialised", "mov.b32 %r2, smem;" + ARRIVE.format(n=1)),
        ("barrier-count", ONE.format(count=0) + ARRIVE.format(n=1)),
        (
            "barrier-initialised-twice",
            ONE.format(count=1) + ARRIVE.format(n=1) + "mbarrier.init.shared.b64 [%r2], 1;",
        ),
        (
            "misaligned",
            "mov.b32 %r2, smem; add.s32 %r2, %r2, 4; mbarrier.init.shared.b64 [%r2], 32;",
        ),
        ("out-of-bounds", "mov.b32 %r2, 64; ld.shared.b32 %r3, [%r2];"),
        (
            "outside-cluster",
            "mov.b32 %r2, smem; mapa.shared::cluster.u32 %r3, %r2, 1; "
            "ld.shared::cluster.b32 %r4, [%r3];",
        ),
        ("named-barrier", "bar.sync 1, 48;"),
        ("deadlock", "bar.sync 1, 64;"),
        (
            "lanes-disagree",
            "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; mov.b32 %r2, smem; @%p1 bra SKIP; "
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r1}; SKIP:",
        ),
    ],
)
def test_each_misuse_has_its_kind(kind, body):
    kinds, _ = found(body)
    assert all(kind in each for each in kinds), kinds


PAIR = """
    mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5;
    mov.b32 %r2, smem; add.s32 %r3, %r2, 256;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra SECOND;
    st.shared.b32 [%r3], %r1;
    {first}
    ret;
SECOND:
    {second}
    ld.shared.b32 %r5, [%r3];
"""


def test_two_warps_that_share_memory_must_meet():
    """The same bytes: ordered by a barrier they are fine, and else they are a race."""
    kinds, findings = found(PAIR.format(first="", second=""), threads=64)
    assert kinds == [("race",)] * 3
    assert "SMEM at offset 0x100" in findings[0].message
    met = PAIR.format(first="bar.sync 1, 64;", second="bar.sync 1, 64;")
    assert found(met, threads=64)[0] == [()] * 3
    early = PAIR.format(first="bar.arrive 1, 64;", second="bar.sync 1, 64;")
    assert found(early, threads=64)[0] == [()] * 3


def test_different_bytes_of_16_are_no_race():
    body = """
    mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5; shl.b32 %r4, %r1, 2;
    mov.b32 %r2, smem; add.s32 %r3, %r2, %r4;
    st.shared.b32 [%r3], %r1; ld.shared.b32 %r5, [%r3];
"""
    assert found(body, threads=128)[0] == [()] * 3


REMOTE = """
    mov.b32 %r2, smem; mov.u32 %r3, %cluster_ctarank; mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
READY:
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @%p1 bra LAST;
    xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r2, %r4;
    mbarrier.arrive.shared::cluster.b64 _, [%r5];
LAST:
    {last}
"""


def test_a_cta_must_outlive_what_its_peer_sends():
    kinds, _ = found(REMOTE.format(last=""), ctas=2, cluster=2)
    assert kinds == [("cta-gone",)] * 3
    waited = REMOTE.format(last=WAIT)
    assert found(waited, ctas=2, cluster=2)[0] == [()] * 3
    met = REMOTE.format(last="barrier.cluster.arrive; barrier.cluster.wait;")
    assert found(met, ctas=2, cluster=2)[0] == [()] * 3


READ_OF_PEER = """
    mov.b32 %r2, smem; mov.u32 %r3, %cluster_ctarank;
    st.shared.b32 [%r2], %r3;
    barrier.cluster.arrive; barrier.cluster.wait;
    xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r2, %r4;
    {access}
    {last}
"""


@pytest.mark.parametrize(
    ("access", "last", "expected"),
    [
        ("ld.shared::cluster.b32 %r6, [%r5];", "", "cta-gone"),
        # Nothing says that the read has ended when the warp arrives.
        ("ld.shared::cluster.b32 %r6, [%r5];", "{meet}", "cta-gone"),
        ("ld.shared::cluster.b32 %r6, [%r5];", "bar.sync 0; {meet}", ""),
        # A write that has been performed for this CTA need not have been for the other one.
        ("st.shared::cluster.b32 [%r5+4], %r3;", "bar.sync 0; {meet}", "cta-gone"),
    ],
)
def test_a_relaxed_arrival_tells_of_reads_that_have_ended(access, last, expected):
    meet = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
    body = READ_OF_PEER.format(access=access, last=last.format(meet=meet))
    kinds, _ = found(body, ctas=2, cluster=2)
    assert kinds == [(expected,) if expected else ()] * 3


COPY_TO_PEER = """
    mov.b32 %r2, smem; mov.u32 %r3, %cluster_ctarank; mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
READY:
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @%p1 bra LAST;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 32;
    xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r2, %r4; add.s32 %r6, %r5, 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%d0], 32, [%r5];
    {wait}
LAST:
"""


def test_a_copy_into_a_peer_ends_when_the_peers_barrier_says_so():
    """Whoever waits for the bytes outlives them; what the peer did before it issued is no matter.

    Only the copy reaches the other CTA, not the warp that issues it.
    """
    waited = COPY_TO_PEER.format(wait=WAIT)
    assert found(waited, ctas=2, cluster=2)[0] == [()] * 3
    kinds, findings = found(COPY_TO_PEER.format(wait=""), ctas=2, cluster=2)
    assert all("cta-gone" in each for each in kinds), kinds
    assert "CTA" in findings[0].message


STORE_TO_PEER = """
    mov.b32 %r2, smem; mov.u32 %r3, %cluster_ctarank; mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [%r2], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {bytes};
READY:
    barrier.cluster.arrive; barrier.cluster.wait;
    xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r2, %r4;
    shl.b32 %r6, %r1, 4; add.s32 %r7, %r6, 64; add.s32 %r8, %r5, %r7;
    {{
    .reg .v4 .b32 four;
    mov.b32 four.x, %r1; mov.b32 four.y, %r3; mov.b32 four.z, 5; mov.b32 four.w, 6;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r8], four, [%r5];
    }}
    {wait}
    add.s32 %r9, %r2, %r7; ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r9];
    shl.b32 %r10, %r10, 8; shl.b32 %r11, %r11, 4; or.b32 %r10, %r10, %r11; or.b32 %r10, %r10, %r12;
    mul.lo.s32 %r14, %r3, 128; cvt.u64.u32 %d9, %r14; add.s64 %d0, %d0, %d9;
"""


def test_asynchronous_stores_to_a_peer():
    """Each lane sends four registers, declared as one vector; they count as bytes there."""
    out = np.zeros(64, np.uint32)
    body = STORE_TO_PEER.format(bytes=512, wait=WAIT) + store_by_lane("%r10")
    for seed, late in enumerate(("late", "early", "random")):
        result = run(launch_of(body, out, ctas=2, cluster=2), seed=seed, late=late)
        assert result.findings == ()
        lanes = np.arange(32)
        assert (out == np.concatenate([lanes << 8 | 0x15, lanes << 8 | 0x05])).all()
    for wait, bytes_, kind in (("", 512, "race"), (WAIT, 528, "tx-count")):
        body = STORE_TO_PEER.format(bytes=bytes_, wait=wait)
        for sync_only in (False, True):
            result = run(launch_of(body, out, ctas=2, cluster=2), sync_only=sync_only)
            assert kind in {finding.kind for finding in result.findings}


def test_a_runner_ahead_by_two_phases_is_told():
    """The second warp waits for phase 0 only; the first one completes 0 and 1 meanwhile."""
    body = """
    mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 5; mov.b32 %r2, smem; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MEET;
    elect.sync %r4|%p3, -1; @!%p3 bra MEET;
    mbarrier.init.shared.b64 [%r2], 32;
MEET:
    bar.sync 0;
    @%p1 bra SECOND;
    mbarrier.arrive.shared.b64 _, [%r2];
    mbarrier.arrive.shared.b64 _, [%r2];
    ret;
SECOND:
    """ + WAIT
    data = np.zeros(64, np.uint32)
    kinds = {
        f.kind
        for seed in range(20)
        for f in run(launch_of(body, data, threads=64), seed=seed).findings
    }
    assert "phase-wrap" in kinds


def test_a_try_outside_a_loop_gives_up_when_nothing_else_can_happen():
    """It fails, the warp goes on, and what it waited for later does not disturb it."""
    body = """
    mov.u32 %r1, %tid.x; shr.u32 %r7, %r1, 5; mov.b32 %r2, smem; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MEET;
    mbarrier.init.shared.b64 [%r2], 1;
MEET:
    bar.sync 0;
    setp.ne.u32 %p4, %r7, 0; @%p4 bra OTHER;
    mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
    selp.b32 %r3, 1, 5, %p2;
    bar.sync 1, 64;
    bra END;
OTHER:
    mov.b32 %r3, 9;
    bar.sync 1, 64;
    elect.sync %r4|%p3, -1; @!%p3 bra END;
    mbarrier.arrive.shared.b64 _, [%r2];
END:
""" + store_by_lane("%r3")
    out = np.zeros(64, np.uint32)
    for seed in range(6):
        assert run(launch_of(body, out, threads=64), seed=seed).findings == ()
        assert out.tolist() == [5] * 32 + [9] * 32


@pytest.mark.parametrize("control", [True, False])
def test_without_data_a_branch_on_data_still_goes_the_right_way(control):
    """A number that threads pass on through shared memory decides, or is only added up."""
    use = "setp.ne.u32 %p3, %r4, 7; @%p3 bra END;" if control else "add.s32 %r5, %r4, 1;"
    body = f"""
    mov.u32 %r1, %tid.x; mov.b32 %r2, smem; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MEET;
    mov.b32 %r3, 7; st.shared.b32 [%r2], %r3;
MEET:
    bar.sync 0;
    ld.shared.b32 %r4, [%r2];
    {use}
    bar.sync 0;
    bar.sync 0;
END:
"""
    data = np.zeros(64, np.uint32)
    full = run(launch_of(body, data, threads=64))
    protocol = run(launch_of(body, data, threads=64), sync_only=True)
    assert full.findings == protocol.findings == ()
    assert full.instructions == protocol.instructions
