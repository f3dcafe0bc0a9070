# SPDX-License-Identifier: Apache-2.0
"""Operand matrices of wgmma and tcgen05.mma in shared memory.

PTX ISA, sections "Asynchronous Warpgroup Level Matrix Shared Memory Layout" (9.7.15.5.1) and
"tcgen05 Shared Memory Layout and Swizzling", "Shared Memory Descriptor" (9.7.16.4, 9.7.16.10). A
matrix is made of 16-byte chunks; a descriptor says where each lies. The swizzle changes the bits of
the chunk's address, as it does for tensor copies.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.machine import formats
from pipegen.emulator.machine.values import Array

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta

_HOPPER = {0: 0, 1: 128, 2: 64, 3: 32}
_BLACKWELL = {0: 0, 2: 128, 4: 64, 6: 32}


class DescriptorError(Exception):
    """A descriptor that the PTX ISA does not allow, or that the emulator does not know."""


@dataclass(frozen=True)
class Descriptor:
    """A decoded matrix descriptor; all in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int


@functools.lru_cache(maxsize=4096)
def descriptor(bits: int, blackwell: bool) -> Descriptor:
    """Decode 64 bits. Raises DescriptorError."""
    table = _BLACKWELL if blackwell else _HOPPER
    code = bits >> 61 & 7 if blackwell else bits >> 62 & 3
    if code not in table:
        raise DescriptorError(f"swizzle mode {code} of a matrix descriptor is not known")
    if bits >> 49 & 7:
        raise DescriptorError("a matrix descriptor with a base offset, which is not known")
    # "Shared memory descriptor" of tcgen05 in the PTX ISA.
    if blackwell and bits >> 46 & 7 != 1:
        raise DescriptorError("a matrix descriptor without the fixed value 1 in bits 46 to 48")
    if blackwell and bits >> 52 & 1:
        raise DescriptorError("a matrix descriptor with an absolute leading dimension address")
    start, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    return Descriptor(start, leading, stride, table[code])


@functools.lru_cache(maxsize=16384)
def chunk_rows(where: Descriptor, rows: int, chunks: int, k_major: bool) -> Array:
    """16-byte rows of shared memory that hold a matrix.

    K-major: (rows, chunks) with `chunks` along K. Else `rows` counts K, `chunks` along M or N.
    """
    r = np.arange(rows, dtype=np.int64)[:, None]
    c = np.arange(chunks, dtype=np.int64)[None, :]
    span = where.swizzle // 16  # chunks in a row of the swizzle's pattern
    if k_major and span:
        line = r // 8 * where.stride + r % 8 * where.swizzle + c * 16
    elif k_major:
        line = r // 8 * where.stride + r % 8 * 16 + c * where.leading
    elif span:
        line = r // 8 * where.stride + r % 8 * where.swizzle
        line = line + c // span * where.leading + c % span * 16
    else:
        line = r // 8 * where.leading + r % 8 * 16 + c * where.stride
    address = where.start + line
    mask = {0: 0, 2: 1, 4: 3, 8: 7}[span]
    return (address ^ (address >> 7 & mask) << 4) >> 4


def rows_of(where: Descriptor, extent: int, k: int, item: int, k_major: bool) -> Array:
    """The 16-byte rows of an (extent, k) matrix with elements of `item` bytes."""
    if k_major:
        return chunk_rows(where, extent, k * item // 16, True)
    return chunk_rows(where, k, extent * item // 16, False)


def read(cta: "Cta", rows: Array, kind: str, k_major: bool) -> Array:
    """The matrix as (extent, k) numbers: float32, or int32 for integer kinds."""
    raw = cta.rows[rows]
    item = formats.element(kind)
    flat = raw.reshape(raw.shape[0], -1).view(item)
    numbers = formats.integers(flat, kind) if kind in ("s8", "u8") else formats.decode(flat, kind)
    return numbers if k_major else numbers.T


# Above this many multiplications a BLAS may start threads, which costs more than it gains here.
_ONE_THREAD = 1 << 18


def product(a: Array, b: Array) -> Array:
    """a @ b.T, in pieces that stay on one core; float32, or int32 for integers."""
    rows = max(1, _ONE_THREAD // (b.shape[0] * b.shape[1]))
    with np.errstate(all="ignore"):
        if len(a) <= rows:
            return a @ b.T
        turned = b.T
        pieces = [a[n : n + rows] @ turned for n in range(0, len(a), rows)]
        return np.concatenate(pieces)
