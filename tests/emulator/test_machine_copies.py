# SPDX-License-Identifier: Apache-2.0
"""Tensor copies, against numpy and an independent formula of the swizzle."""

import numpy as np
import pytest
from small_kernels import launch_of

from pipegen.emulator.launch import TensorMap
from pipegen.emulator.machine import run, running
from pipegen.emulator.machine.tensor_copies import swizzled_rows

LOAD_AND_STORE = """
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
    mov.b32 %r2, smem; add.s32 %r3, %r2, 8192;
    mbarrier.init.shared.b64 [%r3], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r3], {bytes};
    mov.b32 %r4, {x}; mov.b32 %r5, {y};
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2],
        [%d0, {{%r4, %r5}}], [%r3];
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra AGAIN;
    mov.b32 %r6, {to_x}; mov.b32 %r7, {to_y};
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {{%r6, %r7}}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
"""


def tensor_map(array: np.ndarray, box: tuple[int, int], swizzle: int, nan: bool) -> TensorMap:
    rows, columns = array.shape
    bits = 8 * array.itemsize
    return TensorMap(
        address=array.ctypes.data,
        dtype=f"u{bits}",
        element_bits=bits,
        sizes=(columns, rows),
        strides=(array.strides[0],),
        box=box,
        element_strides=(1, 1),
        swizzle=swizzle,
        oob_nan=nan,
    )


@pytest.mark.parametrize(("x", "y"), [(0, 0), (-8, -3), (40, 17), (100, 0), (16, 19)])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_box_goes_in_and_out_with_what_lies_outside_as_zero(monkeypatch, x, y, swizzle):
    draw = np.random.default_rng(0)
    source = draw.integers(1, 2**16, (20, 56), np.uint16)
    width = swizzle // 2 or 24
    out = np.full((32, 64), 7, np.uint16)
    box = (width, 8)
    maps = [tensor_map(source, box, swizzle, False), tensor_map(out, box, swizzle, False)]
    # The maps lie in two buffers of 128 bytes that only say which they are.
    raw = [np.full(128, n, np.uint8) for n in (0, 1)]
    monkeypatch.setattr(running, "decode_tensor_map", lambda bits: maps[bits[0]])
    body = LOAD_AND_STORE.format(
        bytes=width * 8 * 2, x=x & 0xFFFF_FFFF, y=y & 0xFFFF_FFFF, to_x=0, to_y=3
    )
    launch = launch_of(body, *raw, source, out, smem=8208)
    for late in ("late", "random", "early"):
        result = run(launch, late=late)
        assert result.findings == ()
    padded = np.zeros((200, 300), np.uint16)
    padded[50:70, 100:156] = source
    expected = np.full_like(out, 7)
    expected[3:11, :width] = padded[50 + y : 58 + y, 100 + x : 100 + x + width]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("swizzle", "bits"), [(32, 1), (64, 2), (128, 3)])
def test_the_swizzle_is_that_of_cute(swizzle, bits):
    """CuTe's Swizzle<B, 4, 3>: bits 4 to 4 + B - 1 are changed by those three above."""
    rows = swizzled_rows(1024, 4096, swizzle)
    for n, row in enumerate(rows.tolist()):
        address = 1024 + 16 * n
        upper = (address >> 7) & ((1 << bits) - 1)
        digits = list(f"{address >> 4:012b}")
        low = int("".join(digits[-bits:]), 2) ^ upper
        assert row == (address >> 4 >> bits << bits) + low
    assert sorted(rows.tolist()) == list(range(64, 64 + 256))


def test_a_map_of_memory_that_is_not_the_kernels_is_refused(monkeypatch):
    source = np.zeros((20, 56), np.uint16)
    out = np.zeros((32, 64), np.uint16)
    maps = [tensor_map(source, (24, 8), 0, False), tensor_map(out, (24, 8), 0, False)]
    raw = [np.full(128, n, np.uint8) for n in (0, 1)]
    monkeypatch.setattr(running, "decode_tensor_map", lambda bits: maps[bits[0]])
    body = LOAD_AND_STORE.format(bytes=384, x=0, y=0, to_x=0, to_y=0)
    with pytest.raises(Exception, match="memory that no buffer holds"):
        run(launch_of(body, *raw, out, smem=8208))
