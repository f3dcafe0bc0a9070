# SPDX-License-Identifier: Apache-2.0
"""wgmma and tcgen05.mma on operands laid out by CuTe's canonical layouts, against numpy."""

import itertools

import numpy as np
import pytest
from small_kernels import launch_of

from pipegen.emulator.machine import run
from pipegen.emulator.machine.smem_matrices import Descriptor, chunk_rows

SPANS = {0: 1, 32: 2, 64: 4, 128: 8}  # chunks of 16 bytes in a row of the swizzle's pattern


def offset_of(shape, stride, coordinate):
    """CuTe's crd2idx for a mode ((a, b), …): the coordinate is taken apart, first part fastest."""
    total = 0
    for extent, step in zip(shape, stride, strict=True):
        total += coordinate % extent * step
        coordinate //= extent
    return total


def canonical(swizzle, k_major, leading, stride, outer, chunk):
    """The chunk's place, in chunks: the canonical layouts of CUTLASS' mma_sm100_desc, T = 1 chunk.

    K-major: `outer` counts M or N, `chunk` K. Else `outer` counts K and `chunk` M or N.
    """
    span, much = SPANS[swizzle], 1 << 10
    if k_major and swizzle:
        place = offset_of((8, much), (span, stride), outer) + chunk
    elif k_major:
        place = offset_of((8, much), (1, stride), outer) + chunk * leading
    elif swizzle:
        place = offset_of((span, much), (1, leading), chunk)
        place += offset_of((8, much), (span, stride), outer)
    else:
        place = chunk * stride + offset_of((8, much), (1, leading), outer)
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle]
    return place ^ ((place >> 3) & ((1 << bits) - 1))


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("k_major", [True, False])
def test_descriptors_mean_the_canonical_layouts(swizzle, k_major):
    leading, stride = 96, 64  # in chunks, multiples of the pattern's size
    where = Descriptor(0, 16 * leading, 16 * stride, swizzle)
    rows = chunk_rows(where, 16, 2, k_major)
    for outer, chunk in itertools.product(range(16), range(2)):
        assert rows[outer, chunk] == canonical(swizzle, k_major, leading, stride, outer, chunk)


def to_bf16(numbers):
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def of_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def swizzled(matrix):
    """A (rows, 64) matrix of 16-bit elements as it lies in SMEM, K-major, 128 B swizzle."""
    chunks = matrix.reshape(len(matrix), 8, 8)
    placed = np.empty_like(chunks)
    for row, chunk in itertools.product(range(len(matrix)), range(8)):
        placed[row, chunk ^ row % 8] = chunks[row, chunk]
    return placed.reshape(-1)


COPY_IN = """
    mov.u32 %r1, %tid.x; mov.b32 %r2, smem;
    mov.u32 %r3, %r1;
COPY:
    mul.wide.u32 %d5, %r3, 16; add.s64 %d6, %d0, %d5;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d6];
    shl.b32 %r4, %r3, 4; add.s32 %r4, %r4, %r2;
    st.shared.v4.b32 [%r4], {{%r10, %r11, %r12, %r13}};
    add.s32 %r3, %r3, 128; setp.lt.u32 %p1, %r3, {chunks}; @%p1 bra COPY;
    {fence}
    bar.sync 0;
"""
# Start address of A, then of B 8 KiB later; stride 1024 B, 128 B swizzle of wgmma and of tcgen05.
HOPPER, BLACKWELL = 1 << 62 | 64 << 32, 2 << 61 | 1 << 46 | 64 << 32
DESCRIPTORS = """
    shr.u32 %r5, %r2, 4; cvt.u64.u32 %d7, %r5; or.b64 %d8, %d7, {fixed};
    add.s64 %d9, %d8, 512;
"""
FENCE = "fence.proxy.async.shared::cta;"


def wgmma_kernel(fence=FENCE, group=0):
    accumulators = ", ".join(f"%r{n}" for n in range(100, 132))
    steps = "".join(
        f"add.s64 %d10, %d8, {2 * k}; add.s64 %d11, %d9, {2 * k};"
        f"setp.ne.u32 %p2, {k}, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        f"{{{accumulators}}}, %d10, %d11, %p2, 1, 1, 0, 0;"
        for k in range(4)
    )
    stores = "".join(f"st.global.b32 [%d6+{4 * n}], %r{100 + n};" for n in range(32))
    return (
        COPY_IN.format(chunks=1024, fence=fence)
        + DESCRIPTORS.format(fixed=HOPPER)
        + "wgmma.fence.sync.aligned;"
        + steps
        + "wgmma.commit_group.sync.aligned;"
        + f"wgmma.wait_group.sync.aligned {group};"
        + "mul.wide.u32 %d5, %r1, 128; add.s64 %d6, %d1, %d5;"
        + stores
    )


@pytest.fixture(scope="module")
def operands():
    draw = np.random.default_rng(3)
    return to_bf16(draw.normal(size=(64, 64))), to_bf16(draw.normal(size=(64, 64)))


@pytest.mark.parametrize("late", ["late", "early", "random"])
def test_wgmma(operands, late):
    a, b = operands
    data = np.concatenate([swizzled(a), swizzled(b)])
    out = np.zeros((128, 32), np.float32)
    result = run(launch_of(wgmma_kernel(), data, out, threads=128, smem=16384), late=late)
    assert result.findings == ()
    product = of_bf16(a).astype(np.float64) @ of_bf16(b).T.astype(np.float64)
    for thread, register in itertools.product(range(128), range(32)):
        warp, lane = divmod(thread, 32)
        row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
        column = 8 * (register // 4) + 2 * (lane % 4) + register % 2
        assert out[thread, register] == pytest.approx(product[row, column], abs=1e-4)


def test_wgmma_not_waited_for_leaves_nan(operands):
    data = np.concatenate([swizzled(each) for each in operands])
    out = np.zeros((128, 32), np.float32)
    launch = launch_of(wgmma_kernel(group=1), data, out, threads=128, smem=16384)
    assert {f.kind for f in run(launch, late="late").findings} == {"accumulator-in-flight"}
    assert np.isnan(out).all()


def test_wgmma_of_generic_writes_needs_the_proxy_fence(operands):
    data = np.concatenate([swizzled(each) for each in operands])
    out = np.zeros((128, 32), np.float32)
    launch = launch_of(wgmma_kernel(fence=""), data, out, threads=128, smem=16384)
    assert {f.kind for f in run(launch).findings} == {"missing-proxy-fence"}


TMEM_WAIT = "tcgen05.wait::ld.sync.aligned; bar.sync 0;"


def tcgen05_kernel(
    order="", free="tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 64;", wait=TMEM_WAIT
):
    """M 64, N 64, K 64: one warp multiplies, each warp loads its 16 rows of lanes."""
    steps = "".join(
        f"add.s64 %d10, %d8, {2 * k}; add.s64 %d11, %d9, {2 * k};"
        "tcgen05.mma.cta_group::1.kind::f16 [%r20], %d10, %d11, %r21, "
        f"{'%p4' if k else '%p5'};"
        for k in range(4)
    )
    loaded = ", ".join(f"%r{n}" for n in range(100, 164))
    stores = "".join(f"st.global.b32 [%d6+{4 * n}], %r{100 + n};" for n in range(64))
    idesc = 1 << 4 | 1 << 7 | 1 << 10 | (64 >> 3) << 17 | (64 >> 4) << 24
    return (
        "mov.u32 %r1, %tid.x; mov.b32 %r2, smem; setp.ge.u32 %p6, %r1, 32;"
        "add.s32 %r18, %r2, 16384; add.s32 %r19, %r2, 16392;"
        "@%p6 bra READY;"
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r18], 64;"
        "elect.sync %r22|%p7, -1; @!%p7 bra READY; mbarrier.init.shared.b64 [%r19], 1;"
        "READY:"
        + COPY_IN.format(chunks=1024, fence=FENCE)
        + DESCRIPTORS.format(fixed=BLACKWELL)
        + f"ld.shared.b32 %r20, [%r18]; mov.b32 %r21, {idesc};"
        "mov.pred %p4, 1; mov.pred %p5, 0; @%p6 bra ISSUED;"
        "elect.sync %r22|%p7, -1; @!%p7 bra ISSUED;"
        + steps
        + "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r19];"
        "ISSUED:"
        + (order or "AGAIN: mbarrier.try_wait.parity.shared.b64 %p8, [%r19], 0; @!%p8 bra AGAIN;")
        + "shr.u32 %r23, %r1, 5; shl.b32 %r23, %r23, 21; add.s32 %r23, %r23, %r20;"
        f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{loaded}}}, [%r23];"
        f"{wait} @%p6 bra FREED; {free} FREED:"
        "mul.wide.u32 %d5, %r1, 256; add.s64 %d6, %d1, %d5;" + stores
    )


@pytest.mark.parametrize("late", ["late", "early", "random"])
def test_tcgen05(operands, late):
    a, b = operands
    data = np.concatenate([swizzled(a), swizzled(b)])
    out = np.zeros((128, 64), np.float32)
    result = run(launch_of(tcgen05_kernel(), data, out, threads=128, smem=16400), late=late)
    assert result.findings == ()
    product = of_bf16(a).astype(np.float64) @ of_bf16(b).T.astype(np.float64)
    for warp in range(4):
        rows = out[32 * warp : 32 * warp + 16]
        np.testing.assert_allclose(rows, product[16 * warp : 16 * warp + 16], atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("race", {"order": "bar.sync 0;"}),
        # Its registers are used, and a barrier follows: the load itself may still be under way.
        ("tmem-load-not-waited", {"wait": "bar.sync 0;"}),
        # The load is waited for, and nobody tells the warp that frees.
        ("race", {"wait": "tcgen05.wait::ld.sync.aligned;"}),
        ("tmem-not-freed", {"free": ""}),
        (
            "tmem-allocation",
            {"free": "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r20, 32;"},
        ),
    ],
)
def test_tensor_memory_is_watched(operands, kind, change):
    data = np.concatenate([swizzled(each) for each in operands])
    out = np.zeros((128, 64), np.float32)
    launch = launch_of(tcgen05_kernel(**change), data, out, threads=128, smem=16400)
    for sync_only in (False, True):
        runs = [run(launch, seed=seed, sync_only=sync_only) for seed in range(4)]
        assert kind in {finding.kind for each in runs for finding in each.findings}


def test_mma_of_one_warp():
    draw = np.random.default_rng(5)
    a, b = to_bf16(draw.normal(size=(16, 16))), to_bf16(draw.normal(size=(8, 16)))
    lane = np.arange(32)
    given = np.zeros((32, 6), np.uint32)
    for n in range(4):
        row, k = lane // 4 + 8 * (n % 2), 2 * (lane % 4) + 8 * (n // 2)
        given[:, n] = a[row, k].astype(np.uint32) | a[row, k + 1].astype(np.uint32) << 16
    for n in range(2):
        k = 2 * (lane % 4) + 8 * n
        given[:, 4 + n] = b[lane // 4, k].astype(np.uint32) | (
            b[lane // 4, k + 1].astype(np.uint32) << 16
        )
    loads = "".join(f"ld.global.b32 %r{10 + n}, [%d6+{4 * n}];" for n in range(6))
    stores = "".join(f"st.global.b32 [%d6+{4 * n}], %r{20 + n};" for n in range(4))
    body = (
        "mov.u32 %r1, %tid.x; mul.wide.u32 %d5, %r1, 24; add.s64 %d6, %d0, %d5;"
        + loads
        + "mov.b32 %r5, 0f40000000; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%r20, %r21, %r22, %r23}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%r5, %r5, %r5, %r5};"
        "mul.wide.u32 %d5, %r1, 16; add.s64 %d6, %d1, %d5;" + stores
    )
    out = np.zeros((32, 4), np.float32)
    assert run(launch_of(body, given, out)).findings == ()
    product = of_bf16(a).astype(np.float64) @ of_bf16(b).T.astype(np.float64) + 2
    for n in range(4):
        row, column = lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2
        np.testing.assert_allclose(out[:, n], product[row, column], atol=1e-4)
