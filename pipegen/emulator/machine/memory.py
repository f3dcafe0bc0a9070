# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of registers, and the memories they reach.

PTX ISA, sections "State Spaces" (chapter 5) and "Data Movement and Conversion Instructions": ld,
st, cvta and prefetch.
"""

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.machine import store_async
from pipegen.emulator.machine.access_runs import write_run
from pipegen.emulator.machine.addresses import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW_MASK,
)
from pipegen.emulator.machine.emitting import Emitter, bits_of, emits, type_of
from pipegen.emulator.machine.global_memory import load_global, store_global, touch_global
from pipegen.emulator.machine.shared_memory import (
    load_shared,
    load_shared_of_protocol,
    store_shared,
    touch_shared,
)
from pipegen.emulator.machine.values import (
    UINT,
    WARP,
    Array,
    Value,
    array_of,
    lanes,
    resized,
)
from pipegen.emulator.ptx.ir import Instruction, Register, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_MODIFIERS = frozenset(
    [
        "volatile",
        "relaxed",
        "acquire",
        "release",
        "weak",
        "cta",
        "cluster",
        "gpu",
        "sys",
        "nc",
        "L1::evict_first",
        "L1::evict_last",
        "L1::evict_normal",
        "L1::evict_unchanged",
        "L1::no_allocate",
        "L2::cache_hint",
        "L2::64B",
        "L2::128B",
        "L2::256B",
        "L2::evict_first",
        "L2::evict_last",
        "L2::evict_normal",
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
    ]
)
_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "param", "local", "const")
Lanes = tuple[Value, ...]


def _form(c: Emitter, i: Instruction) -> tuple[str, int, str, int]:
    """(space, vector length, type letter, element bytes)."""
    space, count = "generic", 1
    for part in i.parts[1:-1]:
        if part in _SPACES:
            space = part
        elif part == "param::entry":  # of the entry, not of a function that it calls
            space = "param"
        elif part in ("v2", "v4", "v8"):
            count = int(part[1])
        elif part not in _MODIFIERS:
            raise c.unknown(f"modifier .{part}, which the emulator does not know")
    letter, bits = type_of(i.parts[-1], c)
    if bits > 64 and (i.opcode, bits, count) != ("ld", 128, 1):
        raise c.unknown("an access of a type that the emulator does not know")
    return space, count, letter, bits // 8


@emits("ld", "ldu")
def _load(c: Emitter, i: Instruction) -> None:
    space, count, letter, size = _form(c, i)
    whole = size == 16  # a .b128 register is two of 64 bits (PTX ISA, "ld"; "Fundamental Types")
    if whole:
        count, size = 2, 8
    d, a, *_ = i.operands
    address = c.address(a, 32 if space.startswith("shared") else 64)
    function = {"param": load_param, "local": load_local, "generic": load_generic}.get(space)
    function = function or (load_global if space in ("global", "const") else load_shared)
    if not c.wants(i):
        if space.startswith("shared"):
            name = c.use("touch_read", touch_shared)
            c.line(f"{name}(w, {address}, {size * count}, False, mask, {c.at})")
        return
    if c.sync_only and function is load_shared:
        function = load_shared_of_protocol
    name = c.use(function.__name__, function)
    loaded = f"{name}(w, {address}, {size}, {count}, mask, {c.at})"
    targets = d.items if isinstance(d, Vector) else (d,)
    if not isinstance(d, Vector) and not whole:
        loaded = f"{loaded}[0]"
    widths = {bits_of(t.type) for t in targets if isinstance(t, Register)}
    if not whole and widths != {8 * size}:
        wide = functools.partial(_widen, letter == "s", 8 * size, max(widths))
        loaded = f"{c.use(f'widen_{letter}{size}_{max(widths)}', wide)}({loaded})"
    c.assign(d, loaded)


def _widen(is_signed: bool, bits: int, to_bits: int, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(resized(each, bits, is_signed, to_bits) for each in value)
    return resized(value, bits, is_signed, to_bits)


@emits("st")
def _store(c: Emitter, i: Instruction) -> None:
    if "async" in i.parts:
        store_async.emit(c, i)
        return
    space, count, _, size = _form(c, i)
    a, source, *_ = i.operands
    address = c.address(a, 32 if space.startswith("shared") else 64)
    function = {"local": store_local, "generic": store_generic, "global": store_global}.get(space)
    if space in ("param", "const"):
        raise c.unknown("a store that the emulator does not know")
    function = function or store_shared
    if c.sync_only:
        if function is store_shared:
            name = c.use("write_run", write_run)
            c.line_of_addresses(name, a, f"{size * count}, mask, {c.at}")
        elif function is store_global:
            name = c.use("touch_global", touch_global)
            c.line(f"{name}(w, {address}, {size * count}, mask, {c.at})")
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
