# SPDX-License-Identifier: Apache-2.0
"""Logic, shifts and bit fields.

PTX ISA, sections "Logic and Shift Instructions", "bfe", "bfi" (9.7.1) and "prmt" (9.7.9).
"""

import functools

import numpy as np

from pipegen.emulator.machine import values
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.values import FULL, UINT, Value, array_of, signed, unsigned
from pipegen.emulator.ptx.ir import Immediate, Instruction


@emits("and", "or", "xor")
def _logic(c: Emitter, i: Instruction) -> None:
    letter, bits = c.kind(i)
    sign = {"and": "&", "or": "|", "xor": "^"}[i.opcode]
    d, a, b = i.operands
    if letter == "pred":
        c.assign(d, f"({c.predicate(a)} {sign} {c.predicate(b)})")
    else:
        c.assign(d, f"({c.value(a, bits)} {sign} {c.value(b, bits)})")


@emits("lop3")
def _three_inputs(c: Emitter, i: Instruction) -> None:
    d, *abc, table = i.operands
    if i.parts != ("lop3", "b32") or not isinstance(table, Immediate):
        raise c.unknown("a form of lop3 that the emulator does not know")
    name = c.use("lop3", _lop3)
    c.assign(d, f"{name}({', '.join(c.value(x) for x in abc)}, {table.value})")


def _lop3(a: Value, b: Value, c: Value, table: int) -> Value:
    result: Value = 0
    for row in range(8):
        if table >> row & 1:
            term: Value = FULL
            for value, bit in ((a, 4), (b, 2), (c, 1)):
                term = term & (value if row & bit else value ^ FULL)
            result = result | term
    return result


@emits("shl", "shr")
def _shift(c: Emitter, i: Instruction) -> None:
    letter, bits = c.kind(i)
    d, a, n = i.operands
    function = functools.partial(_shifted, i.opcode, letter, bits)
    name = c.use(f"{i.opcode}_{letter}{bits}", function)
    value, by = c.value(a, bits), c.value(n, 32)
    general = f"{name}({value}, {by})"
    if by.isdigit() and int(by) < bits and (i.opcode, letter) != ("shr", "s"):
        sign = "<<" if i.opcode == "shl" else ">>"
        general = c.fast([value], f"{value} {sign} {by} & {(1 << bits) - 1}", general)
    c.assign(d, general)


def _shifted(opcode: str, letter: str, bits: int, a: Value, n: Value) -> Value:
    if opcode == "shr" and letter == "s":
        a = signed(a, bits)
    if type(n) is int:
        if n >= bits:
            if opcode == "shl" or letter != "s":
                return 0
            n = bits - 1
        if type(a) is int:
            return (a << n if opcode == "shl" else a >> n) & ((1 << bits) - 1)
        return unsigned(a << n if opcode == "shl" else a >> n, bits)
    kind = values.INT[bits] if letter == "s" and opcode == "shr" else UINT[bits]
    x = np.asarray(a, kind)
    amount = np.minimum(n, bits - 1).astype(kind)
    moved = x << amount if opcode == "shl" else x >> amount
    if letter != "s" or opcode == "shl":
        moved = np.where(n >= bits, kind(0), moved)
    return moved.astype(kind).view(UINT[bits])


@emits("shf")
def _funnel(c: Emitter, i: Instruction) -> None:
    _, side, mode, _ = i.parts
    d, low, high, n = i.operands
    name = c.use(f"shf_{side}_{mode}", functools.partial(_funnel_shift, side, mode))
    c.assign(d, f"{name}({c.value(low)}, {c.value(high)}, {c.value(n)})")


def _funnel_shift(side: str, mode: str, low: Value, high: Value, n: Value) -> Value:
    n = n & 31 if mode == "wrap" else (min(n, 32) if type(n) is int else np.minimum(n, 32))
    both = values.joined((low, high), 32)
    if type(both) is int and type(n) is int:
        return (both << n >> 32 if side == "l" else both >> n) & FULL
    both = array_of(both, 64)
    amount = np.asarray(n, np.uint64)
    if side == "l":
        return (both >> (np.uint64(32) - amount) & np.uint64(FULL)).astype(np.uint32)
    return (both >> amount & np.uint64(FULL)).astype(np.uint32)


@emits("bfe", "bfi")
def _bit_field(c: Emitter, i: Instruction) -> None:
    letter, bits = c.kind(i)
    d, *rest = i.operands
    function = _extract if i.opcode == "bfe" else _insert
    name = c.use(f"{i.opcode}_{letter}{bits}", functools.partial(function, letter, bits))
    c.assign(d, f"{name}({', '.join(c.value(x, bits) for x in rest)})")


def _extract(letter: str, bits: int, a: Value, position: Value, length: Value) -> Value:
    if not (type(position) is int and type(length) is int):
        raise values.NotUniform("bfe with a position that differs between lanes")
    position, length = position & 255, min(length & 255, bits)
    length = min(length, max(bits - position, 0)) if letter != "s" else length
    if length == 0:
        return 0
    moved = _shifted("shl", "b", bits, _shifted("shr", letter, bits, a, position), bits - length)
    return _shifted("shr", letter, bits, moved, bits - length)


def _insert(letter: str, bits: int, a: Value, b: Value, position: Value, length: Value) -> Value:
    if not (type(position) is int and type(length) is int):
        raise values.NotUniform("bfi with a position that differs between lanes")
    field = ((1 << (length & 255)) - 1) << (position & 255) & ((1 << bits) - 1)
    return (b & ~field & ((1 << bits) - 1)) | (_shifted("shl", "b", bits, a, position) & field)


@emits("prmt")
def _permute(c: Emitter, i: Instruction) -> None:
    if i.parts != ("prmt", "b32"):
        raise c.unknown("a mode of prmt that the emulator does not know")
    d, a, b, selector = i.operands
    name = c.use("prmt", _permuted)
    c.assign(d, f"{name}({c.value(a)}, {c.value(b)}, {c.value(selector)})")


def _permuted(a: Value, b: Value, selector: Value) -> Value:
    both = values.joined((a, b), 32)
    if type(both) is int and type(selector) is int:
        result = 0
        for n in range(4):
            s = selector >> 4 * n & 15
            byte = both >> 8 * (s & 7) & 255
            result |= (byte if s < 8 else (255 if byte & 128 else 0)) << 8 * n
        return result
    source = array_of(both, 64).view(np.uint8).reshape(32, 8)
    chosen = array_of(selector, 32)[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & 15
    picked = np.take_along_axis(source, (chosen & 7).astype(np.int64), axis=1)
    signs = np.where(picked & 128, np.uint8(255), np.uint8(0))
    picked = np.where(chosen >= 8, signs, picked)
    return np.ascontiguousarray(picked).view(np.uint32)[:, 0]
