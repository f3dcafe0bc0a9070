# SPDX-License-Identifier: Apache-2.0
"""Element types: how numpy stores them, and what the stored bits mean.

numpy has no bfloat16 and no 8-bit floats: they are stored as unsigned integers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _same(values: Array) -> Array:
    return values


@dataclass(frozen=True)
class DType:
    """An element type by torch's name. `decode` gives numbers for stored bits, `encode` back.

    `encode` takes floats and rounds to nearest, ties to even.
    """

    name: str
    storage: np.dtype[Any]
    decode: Callable[[Array], Array] = field(default=_same, repr=False, compare=False)
    encode: Callable[[Array], Array] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"torch.{self.name}"

    def store(self, values: Array) -> Array:
        """The numbers, rounded to this type, as they are stored; always a new array."""
        if self.encode is None:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.array(values).astype(self.storage)
        return self.encode(np.asarray(values, np.float32))


def _decode_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _encode_bf16(values: Array) -> Array:
    bits = np.atleast_1d(np.ascontiguousarray(values, np.float32)).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    # Adding to a NaN's bits may carry into the sign: it becomes the quiet NaN.
    found = np.where(np.isnan(values), 0x7FFF, rounded.reshape(values.shape))
    return found.astype(np.uint16)


@cache
def _f8_values(exponent_bits: int, mantissa_bits: int, infinite: bool) -> Array:
    """The value of each of the 256 codes of an 8-bit float (OCP OFP8, "E4M3 and E5M2")."""
    codes = np.arange(256)
    mantissa = codes & (1 << mantissa_bits) - 1
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    fraction = mantissa / (1 << mantissa_bits)
    normal = (1 + fraction) * 2.0 ** (exponent - bias)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), normal)
    top = exponent == (1 << exponent_bits) - 1
    if infinite:
        values = np.where(top, np.where(mantissa == 0, np.inf, np.nan), values)
    else:
        values = np.where(top & (mantissa == (1 << mantissa_bits) - 1), np.nan, values)
    return np.where(codes & 128, -values, values).astype(np.float32)


def _f8(name: str, exponent_bits: int, mantissa_bits: int, infinite: bool) -> DType:
    def decode(bits: Array) -> Array:
        return _f8_values(exponent_bits, mantissa_bits, infinite)[bits]

    def encode(values: Array) -> Array:
        table = _f8_values(exponent_bits, mantissa_bits, infinite)[:128]
        finite = table[np.isfinite(table)].astype(np.float64)
        size = np.abs(values).astype(np.float64)
        above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
        below, middle = above - 1, (finite[above - 1] + finite[above]) / 2
        up = (size > middle) | ((size == middle) & (above % 2 == 0))
        codes = np.where(up, above, below)
        # Beyond the largest number by more than half a step: infinity, or NaN where there is none.
        beyond = size >= finite[-1] + (finite[-1] - finite[-2]) / 2
        codes = np.where(beyond, len(finite) if infinite else 127, codes)
        codes = np.where(np.isnan(values), 127, codes)
        return (codes | np.where(np.signbit(values), 128, 0)).astype(np.uint8)

    return DType(name, np.dtype(np.uint8), decode, encode)


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bfloat16", np.dtype(np.uint16), _decode_bf16, _encode_bf16),
        _f8("float8_e4m3fn", 4, 3, infinite=False),
        _f8("float8_e5m2", 5, 2, infinite=True),
        *(
            DType(name, np.dtype(name))
            for name in (
                *("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64"),
                *("uint8", "uint16", "uint32"),
            )
        ),
    )
}


def dtype_of(array: Array) -> DType:
    """The element type whose numbers numpy itself stores in the array."""
    return DTYPES[str(array.dtype)]
