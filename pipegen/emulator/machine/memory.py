# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of registers, and the memories they reach.

PTX ISA, sections "State Spaces" (chapter 5) and "Data Movement and Conversion Instructions": ld,
st, cvta, mapa, isspacep, prefetch, atom and red. Addresses of global memory are this process'
own; every access must lie in one of the launch's buffers.
"""

import ctypes
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.launch import Buffer
from pipegen.emulator.machine.emitting import Emitter, bits_of, emits, type_of
from pipegen.emulator.machine.state import (
    LOCAL_WINDOW,
    OFFSET_MASK,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    SMEM_BASE,
    WINDOW_MASK,
    Cta,
)
from pipegen.emulator.machine.values import (
    FULL,
    UINT,
    WARP,
    Array,
    Value,
    array_of,
    lane_list,
    lanes,
    resized,
)
from pipegen.emulator.ptx.ir import Address, Instruction, Register, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_MODIFIERS = frozenset(
    "volatile relaxed acquire release weak cta cluster gpu sys nc L1::evict_first L1::evict_last "
    "L1::evict_normal L1::evict_unchanged L1::no_allocate L2::cache_hint L2::64B L2::128B L2::256B "
    "L2::evict_first L2::evict_last L2::evict_normal ca cg cs lu cv wb wt".split()
)
_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "param", "local", "const")
Lanes = tuple[Value, ...]


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


def _form(c: Emitter, i: Instruction) -> tuple[str, int, str, int]:
    """(space, vector length, type letter, element bytes)."""
    space, count = "generic", 1
    for part in i.parts[1:-1]:
        if part in _SPACES:
            space = part
        elif part in ("v2", "v4", "v8"):
            count = int(part[1])
        elif part not in _MODIFIERS:
            raise c.unknown(f"modifier .{part}, which the emulator does not know")
    letter, bits = type_of(i.parts[-1], c)
    if bits > 64:
        raise c.unknown("an access of a type that the emulator does not know")
    return space, count, letter, bits // 8


@emits("ld", "ldu")
def _load(c: Emitter, i: Instruction) -> None:
    space, count, letter, size = _form(c, i)
    d, a, *_ = i.operands
    address = c.address(a, 32 if space.startswith("shared") else 64)
    function = {"param": load_param, "local": load_local, "generic": load_generic}.get(space)
    function = function or (load_global if space in ("global", "const") else load_shared)
    name = c.use(function.__name__, function)
    loaded = f"{name}(w, {address}, {size}, {count}, mask, {c.at})"
    targets = d.items if isinstance(d, Vector) else (d,)
    if not isinstance(d, Vector):
        loaded = f"{loaded}[0]"
    widths = {bits_of(t.type) for t in targets if isinstance(t, Register)}
    if widths != {8 * size}:
        wide = functools.partial(_widen, letter == "s", 8 * size, max(widths))
        loaded = f"{c.use(f'widen_{letter}{size}_{max(widths)}', wide)}({loaded})"
    c.assign(d, loaded)


def _widen(is_signed: bool, bits: int, to_bits: int, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(resized(each, bits, is_signed, to_bits) for each in value)
    return resized(value, bits, is_signed, to_bits)


@emits("st")
def _store(c: Emitter, i: Instruction) -> None:
    space, count, _, size = _form(c, i)
    a, source, *_ = i.operands
    address = c.address(a, 32 if space.startswith("shared") else 64)
    function = {"local": store_local, "generic": store_generic, "global": store_global}.get(space)
    if space in ("param", "const"):
        raise c.unknown("a store that the emulator does not know")
    function = function or store_shared
    if c.sync_only and space == "global":
        return
    items = source.items if isinstance(source, Vector) else (source,)
    data = "".join(f"{c.value(item, 8 * size)}, " for item in items)
    name = c.use(function.__name__, function)
    c.line(f"{name}(w, {address}, {size}, ({data}), mask, {c.at})")


def load_param(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """From the parameter space, which all threads share."""
    if type(address) is not int:
        raise TypeError("a parameter's address differs between lanes")
    data = w.machine.parameters
    return tuple(
        int.from_bytes(data[address + size * k : address + size * (k + 1)], "little")
        for k in range(n)
    )


def load_local(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """From the thread's own memory."""
    return _gather(_local(w), _local_index(address, size, n), size, mask)


def store_local(w: "Warp", address: Value, size: int, data: Lanes, mask: int, at: int) -> None:
    """To the thread's own memory."""
    index = _local_index(address, size, len(data))
    view = _local(w).view(UINT[8 * size])
    active = lanes(mask)
    for k, value in enumerate(data):
        rows = np.nonzero(active)[0]
        view[rows, index[active, k]] = array_of(value, 8 * size)[active].astype(UINT[8 * size])


def _local(w: "Warp") -> Array:
    if w.local is None:
        w.local = np.full((WARP, max(w.machine.program.local_bytes, 8)), 0xFF, np.uint8)
    return w.local


def _local_index(address: Value, size: int, n: int) -> Array:
    start = (array_of(address, 64).astype(np.int64) & ~WINDOW_MASK) // size
    return start[:, None] + np.arange(n)


def _gather(memory: Array, index: Array, size: int, mask: int) -> Lanes:
    rows = np.arange(WARP)[:, None]
    safe = np.where(lanes(mask)[:, None], index, 0)
    found = memory.view(UINT[8 * size])[rows, safe]
    return tuple(np.ascontiguousarray(found[:, k]) for k in range(found.shape[1]))


def load_generic(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """By generic address: the window it lies in tells the space."""
    window, low = _window(address, mask)
    if window == SHARED_WINDOW:
        return load_shared(w, low, size, n, mask, at)
    if window == PARAM_WINDOW:
        return load_param(w, low, size, n, mask, at)
    if window == LOCAL_WINDOW:
        return load_local(w, low, size, n, mask, at)
    return load_global(w, address, size, n, mask, at)


def store_generic(w: "Warp", address: Value, size: int, data: Lanes, mask: int, at: int) -> None:
    """By generic address."""
    window, low = _window(address, mask)
    if window == SHARED_WINDOW:
        store_shared(w, low, size, data, mask, at)
    elif window == LOCAL_WINDOW:
        store_local(w, low, size, data, mask, at)
    else:
        store_global(w, address, size, data, mask, at)


def _window(address: Value, mask: int) -> tuple[int, Value]:
    first = address if type(address) is int else int(address[lanes(mask)][0])
    window = first & WINDOW_MASK
    if window not in (SHARED_WINDOW, PARAM_WINDOW, LOCAL_WINDOW):
        return 0, address
    if type(address) is int:
        return window, address & ~WINDOW_MASK
    return window, (address & np.uint64(0xFFFF_FFFF)).astype(np.uint32)


def _checked_global(
    w: "Warp", address: Value, bytes_: int, mask: int, at: int
) -> tuple[Region, Value] | None:
    """(buffer, addresses of the active lanes), or None after a finding."""
    active = address if type(address) is int else address[lanes(mask)].astype(np.int64)
    low, high = (active, active) if type(active) is int else (int(active.min()), int(active.max()))
    region = w.machine.memory.find(low, high + bytes_)
    if region is not None:
        wrong = active % bytes_ if type(active) is int else (active % bytes_).any()
        if not wrong:
            return region, active
        w.report("misaligned", f"a global access of {bytes_} B at {low:#x}", at)
    return None


def _each_lane(address: Value, mask: int) -> list[tuple[int, int]]:
    """(lane, address) of the active lanes; one lane stands for all if they agree."""
    if type(address) is int:
        return [((mask & -mask).bit_length() - 1, address)]
    return [(lane, int(address[lane])) for lane in lane_list(mask)]


def load_global(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """From the buffers of the launch. What lies outside is reported and reads as zero."""
    found = _checked_global(w, address, size * n, mask, at)
    if found is None:
        return _load_slowly(w, address, size, n, mask, at)
    region, active = found
    view = region.views.get(size)
    if view is None:
        return _load_slowly(w, address, size, n, mask, at)
    start = (active - region.start) // size
    if type(start) is int:
        return tuple(int(x) for x in view[start : start + n])
    return _spread(view[start[:, None] + np.arange(n)], mask)


def _spread(found: Array, mask: int) -> Lanes:
    """Rows of the active lanes as registers of all lanes."""
    if mask != FULL:
        whole = np.zeros((WARP, found.shape[1]), found.dtype)
        whole[lanes(mask)] = found
        found = whole
    return tuple(np.ascontiguousarray(found[:, k]) for k in range(found.shape[1]))


def _load_slowly(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    result = np.zeros((WARP, n), UINT[8 * size])
    for lane, where in _each_lane(address, mask):
        region = w.machine.memory.find(where, where + size * n)
        if region is None:
            _outside(w, "read", where, size * n, at)
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
    w.machine.wrote(w, region, active, size * n, at)
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
    for lane, where in _each_lane(address, mask):
        region = w.machine.memory.find(where, where + size * len(data))
        if region is None:
            _outside(w, "write", where, size * len(data), at)
            continue
        start = where - region.start
        for k, column in enumerate(columns):
            piece = np.array([column[lane]]).astype(UINT[8 * size]).view(np.uint8)
            region.bytes[start + k * size : start + (k + 1) * size] = piece


def _outside(w: "Warp", what: str, address: int, bytes_: int, at: int) -> None:
    where = w.machine.memory.nearest(address)
    w.report(
        "out-of-bounds", f"a {what} of {bytes_} B of global memory at {address:#x}: {where}", at
    )


def shared_cta(w: "Warp", address: Value, mask: int, at: int) -> tuple[Cta | None, Value]:
    """(CTA, offsets) of shared addresses that are all of one CTA."""
    if type(address) is int:
        return w.shared_place(address, at)
    active = address[lanes(mask)]
    low, high = int(active.min()), int(active.max())
    if low >> RANK_SHIFT != high >> RANK_SHIFT:
        return None, None
    cta, _ = w.shared_place(low, at)
    if cta is None or w.shared_place(high, at)[0] is None:
        return None, 0
    return cta, active & OFFSET_MASK


def granules(offset: Value, bytes_: int) -> tuple[Any, Any]:
    """(granules, bytes in each) of accesses of up to 16 aligned bytes a lane."""
    if type(offset) is int:
        return slice(offset >> 4, (offset >> 4) + 1), ((1 << bytes_) - 1) << (offset & 15)
    which = (offset >> 4).astype(np.int64)
    if bytes_ == 16:
        return which, 0xFFFF
    masks = (np.uint32((1 << bytes_) - 1) << (offset & 15)).astype(np.uint16)
    if len(which) == 1:
        return which, masks
    # Lanes may share a granule: each granule once, with the bytes of all its lanes.
    once, inverse = np.unique(which, return_inverse=True)
    together = np.zeros(len(once), np.uint16)
    np.bitwise_or.at(together, inverse, masks)
    return once, together


def load_shared(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """From shared memory of this CTA, or of another one of the cluster."""
    cta, offset = shared_cta(w, address, mask, at)
    if offset is None:
        return _shared_by_cta(w, address, size, n, mask, at)
    if cta is None:
        return (0,) * n
    bytes_ = size * n
    if offset % bytes_ if type(offset) is int else (offset % bytes_).any():
        w.report("misaligned", f"a shared memory access of {bytes_} B", at)
    where, part = granules(offset, min(bytes_, 16))
    epoch = int(w.clock[GENERIC, w.agent])
    conflict = cta.shadow.read(where, w.agent, epoch, w.clock, at, bytes_=part)
    if conflict:
        w.machine.race(w, cta, conflict, at, "reads")
    if cta is not w.cta:
        w.signals(cta, w.agent, epoch, at)
    view = cta.views[size]
    start = offset // size
    if type(start) is int:
        return tuple(int(x) for x in view[start : start + n])
    if n == 1:
        found = view[start]
        if mask == FULL:
            return (found,)
        return _spread(found[:, None], mask)
    return _spread(view[start.astype(np.int64)[:, None] + np.arange(n)], mask)


def _shared_by_cta(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    result = np.zeros((WARP, n), UINT[8 * size])
    for lane, where in _each_lane(address, mask):
        result[lane] = load_shared(w, where, size, n, 1 << lane, at)
    return tuple(result[:, k].copy() for k in range(n))


def store_shared(w: "Warp", address: Value, size: int, data: Lanes, mask: int, at: int) -> None:
    """To shared memory of this CTA, or of another one of the cluster."""
    cta, offset = shared_cta(w, address, mask, at)
    n = len(data)
    if offset is None:
        for lane, where in _each_lane(address, mask):
            one = tuple(v if type(v) is int else int(v[lane]) for v in data)
            store_shared(w, where, size, one, 1 << lane, at)
        return
    if cta is None:
        return
    bytes_ = size * n
    if offset % bytes_ if type(offset) is int else (offset % bytes_).any():
        w.report("misaligned", f"a shared memory access of {bytes_} B", at)
    where, part = granules(offset, min(bytes_, 16))
    epoch = int(w.clock[GENERIC, w.agent])
    conflict = cta.shadow.write(where, w.agent, epoch, w.clock, at, part)
    if conflict:
        w.machine.race(w, cta, conflict, at, "writes")
    if cta is not w.cta:
        w.signals(cta, w.agent, epoch, at)
    view, kind = cta.views[size], UINT[8 * size]
    start = offset // size
    if type(start) is int:
        last = mask.bit_length() - 1
        for k, value in enumerate(data):
            view[start + k] = (
                value & (1 << 8 * size) - 1 if type(value) is int else kind(value[last])
            )
        return
    chosen = lanes(mask)
    for k, value in enumerate(data):
        if type(value) is int:
            view[start + k] = value & ((1 << 8 * size) - 1)
        else:
            view[start + k] = array_of(value, 8 * size)[chosen].astype(kind, copy=False)


@emits("cvta")
def _convert_address(c: Emitter, i: Instruction) -> None:
    d, a = i.operands
    to_space = i.parts[1] == "to"
    space = i.parts[2] if to_space else i.parts[1]
    if space in ("global", "const"):
        c.assign(d, c.value(a, 64))
        return
    windows = {"shared": SHARED_WINDOW, "param": PARAM_WINDOW, "local": LOCAL_WINDOW}
    window = windows.get(space.partition("::")[0])
    if window is None or not i.parts[-1].endswith("64"):
        raise c.unknown("a state space that the emulator does not know")
    name = c.use("cvta_to" if to_space else "cvta", _to_space if to_space else _from_space)
    c.assign(d, f"{name}({c.value(a, 64)}, {window})")


def _from_space(address: Value, window: int) -> Value:
    if type(address) is int:
        return address | window
    return address.astype(np.uint64) | np.uint64(window)


def _to_space(address: Value, window: int) -> Value:
    if type(address) is int:
        return address & ~WINDOW_MASK
    return address & np.uint64(~WINDOW_MASK & ((1 << 64) - 1))


@emits("isspacep", "prefetch", "prefetchu", "applypriority", "discard")
def _hints(c: Emitter, i: Instruction) -> None:
    if i.opcode == "isspacep":
        raise c.unknown("an instruction that the emulator does not know")
    # A hint to the caches: nothing that the machine models.


__all__ = ["Address", "GlobalMemory", "Region", "SMEM_BASE"]
