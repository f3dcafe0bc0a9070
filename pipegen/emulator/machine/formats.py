# SPDX-License-Identifier: Apache-2.0
"""Number formats: bits to floats and back, for registers and for matrices.

PTX ISA, section "Fundamental Types" and "Packed Data Types", "Alternate Floating-Point Data
Formats" (bf16, e4m3, e5m2, tf32).
"""

import functools
from typing import Any

import numpy as np

from pipegen.emulator.machine.values import UINT, Array

# Format -> (bits of an element, as float type)
WIDTHS = {
    "f64": 64,
    "f32": 32,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "e4m3": 8,
    "e5m2": 8,
}
_LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B}


def decode(bits: Array, kind: str) -> Array:
    """Elements of a format, given as unsigned integers of its width, as float32 (f64: float64)."""
    if kind == "f32":
        return bits.view(np.float32)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    if kind == "tf32":
        # The low 13 bits of an operand are not looked at.
        return (bits & np.uint32(0xFFFF_E000)).view(np.float32)
    if kind == "f64":
        return bits.view(np.float64)
    return fp8_values(kind)[bits]


def encode(numbers: Array, kind: str, saturate: bool = False) -> Array:
    """Numbers rounded to the nearest element of a format (ties to even), as unsigned integers."""
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "f32":
            return np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        if kind == "f16":
            return np.ascontiguousarray(numbers).astype(np.float16).view(np.uint16)
        if kind == "f64":
            return np.ascontiguousarray(numbers, np.float64).view(np.uint64)
    if kind == "bf16":
        return _to_bf16(np.ascontiguousarray(numbers, np.float32))
    if kind == "tf32":
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        return (bits + np.uint32(0x1000)) & np.uint32(0xFFFF_E000)
    return _to_fp8(numbers, kind, saturate)


def _to_bf16(numbers: Array) -> Array:
    bits = numbers.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(numbers), np.uint32(0x7FFF), rounded).astype(np.uint16)


@functools.cache
def fp8_values(kind: str) -> Array:
    """The 256 numbers of an 8-bit format."""
    mantissa = 3 if kind == "e4m3" else 2
    bias = 7 if kind == "e4m3" else 15
    codes = np.arange(256)
    exponent = codes >> mantissa & (127 >> mantissa)
    fraction = (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    scale = np.exp2(np.where(exponent == 0, 1 - bias, exponent - bias).astype(np.float64))
    number = scale * np.where(exponent == 0, fraction, 1 + fraction)
    magnitude = codes & 127
    if kind == "e4m3":
        number = np.where(magnitude == 127, np.nan, number)
    else:
        number = np.where(magnitude == 124, np.inf, np.where(magnitude > 124, np.nan, number))
    return np.where(codes & 128, -number, number).astype(np.float32)


@functools.cache
def _midpoints(kind: str) -> Array:
    numbers = fp8_values(kind)[: _LARGEST[kind] + 1].astype(np.float64)
    # Above the largest number the next step would follow: what rounds there overflows.
    beyond = 2 * numbers[-1] - numbers[-2]
    return (np.append(numbers[1:], beyond) + numbers) / 2


def _to_fp8(numbers: Array, kind: str, saturate: bool) -> Array:
    wide = np.asarray(numbers, np.float64)
    middles = _midpoints(kind)
    magnitude = np.abs(wide)
    code = np.searchsorted(middles, magnitude, side="left")
    tie = (code < len(middles)) & (middles[np.minimum(code, len(middles) - 1)] == magnitude)
    code = code + (tie & (code % 2 == 1))
    largest = _LARGEST[kind]
    overflow = largest if saturate else largest + 1
    code = np.where(code > largest, overflow, code)
    code = np.where(np.isnan(wide), 0x7F, code)
    return (code | np.where(np.signbit(wide), 128, 0)).astype(np.uint8)


def integers(bits: Array, kind: str) -> Array:
    """Elements of u8 or s8 as int32."""
    return bits.view(np.int8).astype(np.int32) if kind == "s8" else bits.astype(np.int32)


def element(kind: str) -> Any:
    """The numpy type that holds the bits of one element."""
    return UINT[WIDTHS.get(kind, 8)]
