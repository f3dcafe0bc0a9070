# SPDX-License-Identifier: Apache-2.0
"""Atomic operations on global and shared memory, lane after lane.

PTX ISA, sections "atom" and "red" (9.7.13).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.machine import formats
from pipegen.emulator.machine.emitting import Emitter, emits, type_of
from pipegen.emulator.machine.global_memory import outside
from pipegen.emulator.machine.values import UINT, WARP, Value, array_of, lane_list
from pipegen.emulator.ptx.ir import Instruction

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_SCOPES = frozenset(
    ["relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz"]
)
_SPACES = ("global", "shared", "shared::cta", "shared::cluster")
_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, new: old + new,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "exch": lambda old, new: new,
    "min": min,
    "max": max,
}


@emits("atom", "red")
def _atomic(c: Emitter, i: Instruction) -> None:
    parts = [part for part in i.parts[1:] if part not in _SCOPES]
    if len(parts) != 3 or parts[0] not in _SPACES:
        raise c.unknown("an atomic operation that the emulator does not know")
    space, operation, kind = parts
    d = i.operands[0] if i.opcode == "atom" else None
    a, *values = i.operands[1:] if d is not None else i.operands
    number = kind in formats.WIDTHS
    if operation != "cas" and (operation not in _INTEGER or (number and operation != "add")):
        raise c.unknown("an atomic operation that the emulator does not know")
    letter, bits = ("f", formats.WIDTHS[kind]) if number else type_of(kind, c)
    shared = space != "global"
    address = c.address(a, 32 if shared else 64)
    data = "".join(f"{c.value(value, bits)}, " for value in values)
    name = c.use("atomic", atomic)
    form = f"{operation!r}, {(kind if number else letter)!r}, {bits}, {shared}"
    call = f"{name}(w, {form}, {address}, ({data}), mask, {c.at})"
    if d is None:
        c.line(call)
    else:
        c.assign(d, call)


def atomic(
    w: "Warp",
    operation: str,
    kind: str,
    bits: int,
    shared: bool,
    address: Value,
    data: tuple[Value, ...],
    mask: int,
    at: int,
) -> Any:
    """The old values. Each active lane operates in turn, also where all give one address."""
    size = bits // 8
    places = array_of(address, 32 if shared else 64)
    columns = [array_of(value, bits) for value in data]
    old = np.zeros(WARP, UINT[bits])
    for lane in lane_list(mask):
        memory = _bytes(w, int(places[lane]), size, shared, at)
        if memory is None:
            continue
        before = int(memory.view(UINT[bits])[0])
        operands = [int(column[lane]) for column in columns]
        old[lane] = before
        memory.view(UINT[bits])[0] = _result(operation, kind, bits, before, operands)
    return old


def _bytes(w: "Warp", address: int, size: int, shared: bool, at: int) -> Any:
    if shared:
        cta, offset = w.shared_place(address, at)
        return None if cta is None else cta.smem[offset : offset + size]
    region = w.machine.memory.find(address, address + size)
    if region is None:
        outside(w, "read and write", address, size, at)
        return None
    return region.bytes[address - region.start : address - region.start + size]


def _result(operation: str, kind: str, bits: int, before: int, operands: list[int]) -> int:
    if operation == "cas":
        return operands[1] if before == operands[0] else before
    if kind in formats.WIDTHS:
        both = np.array([before, operands[0]], UINT[bits])
        total = formats.decode(both, kind).sum(keepdims=True)
        return int(formats.encode(total, kind)[0])
    low = (1 << bits) - 1
    if kind == "s":
        half = 1 << bits - 1
        signed = [(x ^ half) - half for x in (before, operands[0])]
        return _INTEGER[operation](*signed) & low
    return _INTEGER[operation](before, operands[0]) & low
