# SPDX-License-Identifier: Apache-2.0
"""Global memory: the buffers of a launch, and loads and stores of warps.

PTX ISA, section "Global State Space" (5.1.4). Addresses are this process' own; every access must
lie in one of the launch's buffers.
"""

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.launch import Buffer
from pipegen.emulator.machine.global_order import by_threads, note_read, note_write
from pipegen.emulator.machine.values import (
    UINT,
    WARP,
    Array,
    Lanes,
    Value,
    array_of,
    each_lane,
    lanes,
    spread,
    unchanged,
)

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp


class Region:
    """One buffer of global memory, seen as integers of each width."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.start, self.end = buffer.address, buffer.end
        raw = (ctypes.c_uint8 * buffer.bytes).from_address(buffer.address)
        self.bytes: Array = np.ctypeslib.as_array(raw)
        self.views: dict[int, Array] = {}
        for size in (1, 2, 4, 8):
            if buffer.address % size == 0:
                self.views[size] = self.bytes[: buffer.bytes // size * size].view(UINT[8 * size])


class GlobalMemory:
    """The buffers of a launch."""

    def __init__(self, buffers: tuple[Buffer, ...]) -> None:
        self.regions = [Region(buffer) for buffer in buffers if buffer.bytes > 0]

    def find(self, start: int, end: int) -> Region | None:
        """The buffer that holds all bytes from start to end."""
        for region in self.regions:
            if region.start <= start and end <= region.end:
                return region
        return None

    def nearest(self, address: int) -> str:
        """Where an address lies, for a message."""
        for region in self.regions:
            if region.start <= address < region.end:
                return f"byte {address - region.start} of {region.buffer.name}"
        if not self.regions:
            return "there is no buffer"
        near = min(self.regions, key=lambda r: min(abs(address - r.start), abs(address - r.end)))
        if address >= near.end:
            return f"{address - near.end} bytes after the end of {near.buffer.name}"
        return f"{near.start - address} bytes before {near.buffer.name}"


def _checked_global(
    w: "Warp", address: Value, bytes_: int, mask: int, at: int
) -> tuple[Region, Value] | None:
    """(buffer, addresses of the active lanes), or None after a finding."""
    active: Any = address if type(address) is int else address[lanes(mask)].astype(np.int64)
    low = active if type(active) is int else int(active.min())
    high = active if type(active) is int else int(active.max())
    region = w.machine.memory.find(low, high + bytes_)
    if region is not None:
        wrong = active % bytes_ if type(active) is int else (active % bytes_).any()
        if not wrong:
            return region, active
        w.report("misaligned", f"a global access of {bytes_} B at {low:#x}", at)
    return None


def load_global(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """From the buffers of the launch. What lies outside is reported and reads as zero."""
    found = _checked_global(w, address, size * n, mask, at)
    if found is None:
        return _load_slowly(w, address, size, n, mask, at)
    region, active = found
    note_read(w, region, active, size * n, by_threads(w), at)
    view = region.views.get(size)
    if view is None:
        return _load_slowly(w, address, size, n, mask, at)
    start = (active - region.start) // size
    if type(start) is int:
        return tuple(int(x) for x in view[start : start + n])
    return spread(view[start[:, None] + np.arange(n)], mask)


def _load_slowly(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    result = np.zeros((WARP, n), UINT[8 * size])
    for lane, where in each_lane(address, mask):
        region = w.machine.memory.find(where, where + size * n)
        if region is None:
            outside(w, "read", where, size * n, at)
            continue
        start = where - region.start
        data = region.bytes[start : start + size * n].tobytes()
        result[lane] = np.frombuffer(data, UINT[8 * size])
    if type(address) is int:
        lane = (mask & -mask).bit_length() - 1
        return tuple(int(x) for x in result[lane])
    return tuple(result[:, k].copy() for k in range(n))


def store_global(w: "Warp", address: Value, size: int, data: Lanes, mask: int, at: int) -> None:
    """To the buffers of the launch. Lanes that write to one address: the highest lane wins."""
    n = len(data)
    found = _checked_global(w, address, size * n, mask, at)
    view = found[0].views.get(size) if found else None
    if found is None or view is None:
        _store_slowly(w, address, size, data, mask, at)
        return
    region, active = found
    start = (active - region.start) // size
    kind = UINT[8 * size]
    note_write(
        w,
        region,
        active,
        size * n,
        by_threads(w),
        at,
        repeats=lambda: unchanged(view, start, data, mask, kind),
    )
    if type(start) is int:
        last = mask.bit_length() - 1
        for k, value in enumerate(data):
            view[start + k] = (
                value if type(value) is int else array_of(value, 64)[last].astype(kind)
            )
        return
    chosen = lanes(mask)
    for k, value in enumerate(data):
        view[start + k] = value if type(value) is int else value[chosen].astype(kind)


def _store_slowly(w: "Warp", address: Value, size: int, data: Lanes, mask: int, at: int) -> None:
    columns = [array_of(value, 8 * size) for value in data]
    for lane, where in each_lane(address, mask):
        region = w.machine.memory.find(where, where + size * len(data))
        if region is None:
            outside(w, "write", where, size * len(data), at)
            continue
        start = where - region.start
        for k, column in enumerate(columns):
            piece = np.array([column[lane]]).astype(UINT[8 * size]).view(np.uint8)
            region.bytes[start + k * size : start + (k + 1) * size] = piece


def touch_global(w: "Warp", address: Value, bytes_: int, mask: int, at: int) -> None:
    """Note a store whose data is left out."""
    found = _checked_global(w, address, bytes_, mask, at)
    if found is not None:
        # The data is left out: a scalar of Mosaic GPU is taken to be the same in a warpgroup.
        scalar = type(address) is int and w.machine.launch.by_mosaic
        note_write(w, *found, bytes_, by_threads(w), at, repeats=lambda: scalar)
        return
    for _, where in each_lane(address, mask):
        if w.machine.memory.find(where, where + bytes_) is None:
            outside(w, "write", where, bytes_, at)


def outside(w: "Warp", what: str, address: int, bytes_: int, at: int) -> None:
    where = w.machine.memory.nearest(address)
    w.report(
        "out-of-bounds", f"a {what} of {bytes_} B of global memory at {address:#x}: {where}", at
    )
