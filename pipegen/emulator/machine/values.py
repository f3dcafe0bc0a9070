# SPDX-License-Identifier: Apache-2.0
"""What a register of a warp holds, and how 32 lanes compute at once.

A value is a Python int where all active lanes agree, and else a numpy array of 32 unsigned
integers as wide as the register. A predicate is an int with one bit a lane, as active masks are.
UNWRITTEN is a register that was never written. Floats are kept as their bits.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = Any  # int, NDArray of 32 unsigned integers, or UNWRITTEN
Array = NDArray[Any]
Lanes = tuple[Value, ...]  # one value for each element of an access
WARP = 32
FULL = 0xFFFF_FFFF
UINT: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
INT: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
LANE_IDS: Array = np.arange(WARP, dtype=np.uint32)


class _Unwritten(int):
    """What a register holds before it is written: a number as good as any.

    Code may compute with it, as it does for rows beyond a tensor's end, as long as nothing comes
    of it.
    """


UNWRITTEN = _Unwritten(0xDEAD_BEEF)


class NotUniform(Exception):
    """Lanes disagree where the machine needs one value for the warp."""


@functools.lru_cache(maxsize=8192)
def lanes(mask: int) -> Array:
    """The mask as 32 booleans, lane 0 first."""
    return (np.uint32(mask) >> LANE_IDS & 1).astype(bool)


@functools.lru_cache(maxsize=8192)
def lane_list(mask: int) -> tuple[int, ...]:
    """The lanes that are in the mask."""
    return tuple(lane for lane in range(WARP) if mask >> lane & 1)


def pack(flags: Array) -> int:
    """32 booleans as a mask."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def first_lane(mask: int) -> int:
    """The lowest lane of a mask that is not empty."""
    return (mask & -mask).bit_length() - 1


def array_of(value: Value, bits: int) -> Array:
    """The value as 32 lanes. A register that was never written reads as a poison pattern."""
    if isinstance(value, np.ndarray):
        return value
    return np.full(WARP, value & ((1 << bits) - 1), UINT[bits])


def uniform(value: Value, mask: int) -> int:
    """The one value of all active lanes. Raises NotUniform."""
    if type(value) is int:
        return value
    if value is UNWRITTEN:
        raise NotUniform("a register that was never written")
    active = value[lanes(mask)]
    if (active != active[0]).any():
        raise NotUniform("lanes disagree")
    return int(active[0])


def by_lane(value: Value, mask: int) -> list[int]:
    """The value of each active lane."""
    if isinstance(value, int):
        return [value] * mask.bit_count()
    return [int(each) for each in value[lanes(mask)]]


def simplified(value: Value, mask: int) -> Value:
    """An int if all active lanes agree, else the array."""
    if isinstance(value, int):
        return value
    active = value[lanes(mask)]
    return int(active[0]) if (active == active[0]).all() else value


def signed(value: Value, bits: int) -> Value:
    """The two's complement reading of a value."""
    if isinstance(value, int):
        half = 1 << (bits - 1)
        return ((value & ((1 << bits) - 1)) ^ half) - half
    return value.view(INT[bits])


def unsigned(value: Value, bits: int) -> Value:
    """Back from `signed`, or from any result of a signed computation of `bits` width."""
    if isinstance(value, int):
        return value & ((1 << bits) - 1)
    return value.view(UINT[bits])


def resized(value: Value, bits: int, is_signed: bool, to_bits: int) -> Value:
    """The low `bits` of a value, extended or cut to `to_bits`."""
    if isinstance(value, int):
        low = signed(value, bits) if is_signed else value & ((1 << bits) - 1)
        return low & ((1 << to_bits) - 1)
    low = value.astype(UINT[bits], copy=False)
    if is_signed and to_bits > bits:
        return low.view(INT[bits]).astype(INT[to_bits]).view(UINT[to_bits])
    return low.astype(UINT[to_bits], copy=False)


def merge(bits: int, mask: int, new: Value, old: Value) -> Value:
    """`new` in the active lanes, `old` in the others."""
    if old is UNWRITTEN or (type(new) is int and type(old) is int and new == old):
        return new
    if isinstance(new, tuple):
        return new
    if new is UNWRITTEN:
        return old
    return np.where(lanes(mask), array_of(new, bits), array_of(old, bits))


def select(bits: int, mask: int, chosen: int, a: Value, b: Value) -> Value:
    """`a` in the lanes of `chosen`, `b` in the others (as far as they are active)."""
    active = chosen & mask
    if active == mask:
        return a
    if active == 0:
        return b
    if type(a) is int and type(b) is int and a == b:
        return a
    return np.where(lanes(chosen), array_of(a, bits), array_of(b, bits))


def joined(items: tuple[Value, ...], bits: int) -> Value:
    """Registers of `bits` width as one wide register, the first one lowest."""
    if all(type(item) is int for item in items):
        return sum(item << (bits * n) for n, item in enumerate(items))
    wide = bits * len(items)
    if wide == 128:
        return items
    stacked = np.stack([array_of(item, bits) for item in items], axis=1)
    return np.ascontiguousarray(stacked).view(UINT[wide])[:, 0]


def cut(value: Value, count: int, bits: int) -> tuple[Value, ...]:
    """A wide register as `count` registers of `bits` width."""
    if type(value) is int:
        low = (1 << bits) - 1
        return tuple(value >> (bits * n) & low for n in range(count))
    if isinstance(value, tuple):
        return value
    if value is UNWRITTEN:
        return (UNWRITTEN,) * count
    parts = np.ascontiguousarray(value).view(UINT[bits]).reshape(WARP, count)
    return tuple(parts[:, n].copy() for n in range(count))


def unchanged(view: Array, start: Any, data: Lanes, mask: int, kind: Any) -> bool:
    """Whether memory already holds what the active lanes store from `start` on."""
    for k, value in enumerate(data):
        if type(value) is int:
            new: Any = kind(value & int(np.iinfo(kind).max))
        else:
            new = array_of(value, 8 * np.dtype(kind).itemsize)[lanes(mask)].astype(kind)
        at = start + k if type(start) is int else start.astype(np.int64) + k
        if not np.all(view[at] == new):
            return False
    return True


def each_lane(value: Value, mask: int) -> list[tuple[int, int]]:
    """(lane, value) of the active lanes; one lane stands for all if they agree."""
    if type(value) is int:
        return [(first_lane(mask), value)]
    return [(lane, int(value[lane])) for lane in lane_list(mask)]


def spread(found: Array, mask: int) -> Lanes:
    """Rows of the active lanes as registers of all lanes."""
    if mask != FULL:
        whole = np.zeros((WARP, found.shape[1]), found.dtype)
        whole[lanes(mask)] = found
        found = whole
    return tuple(np.ascontiguousarray(found[:, k]) for k in range(found.shape[1]))
