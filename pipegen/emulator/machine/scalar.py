# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic, comparison, selection and moves.

PTX ISA, sections "Integer Arithmetic Instructions", "Comparison and Selection Instructions" and
"Data Movement and Conversion Instructions" (mov, and cvt between integers), in chapter 9.7.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pipegen.emulator.machine import floating, values
from pipegen.emulator.machine.emitting import Emitter, bits_of, emits, type_of
from pipegen.emulator.machine.values import (
    FULL,
    UINT,
    Value,
    pack,
    resized,
    signed,
    unsigned,
)
from pipegen.emulator.ptx.ir import Instruction, Register, Vector


def _wrapping(op: Callable[[Any, Any], Any], bits: int) -> Callable[[Value, Value], Value]:
    low = (1 << bits) - 1

    def compute(a: Value, b: Value) -> Value:
        c = op(a, b)
        return c & low if type(c) is int else c

    return compute


_ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


@emits("add", "sub", "mul", "mad")
def _arithmetic(c: Emitter, i: Instruction) -> None:
    if floating.is_float(i):
        floating.arithmetic(c, i)
        return
    if i.opcode == "add" and i.parts[1:] in (("s16x2",), ("u16x2",)):
        d, a, b = i.operands
        c.assign(d, f"{c.use('add_16x2', add_halves)}({c.value(a)}, {c.value(b)})")
        return
    letter, bits = c.kind(i)
    d, *rest = i.operands
    args = [c.value(x, bits) for x in rest]
    if i.opcode in ("add", "sub"):
        if set(i.parts[1:-1]) - {"lo"}:
            raise c.unknown("a modifier that the emulator does not know")
        name = c.use(f"{i.opcode}_{bits}", _wrapping(_ARITHMETIC[i.opcode], bits))
        c.assign(d, f"{name}({', '.join(args)})")
        return
    half = i.parts[1]
    if half not in ("lo", "hi", "wide"):
        raise c.unknown("a product without .lo, .hi or .wide")
    width = 2 * bits if half == "wide" else bits
    name = c.use(f"mul_{half}_{letter}{bits}", functools.partial(_product, half, letter, bits))
    product = f"{name}({args[0]}, {args[1]})"
    if i.opcode == "mad":
        add = c.use(f"add_{width}", _wrapping(operator.add, width))
        product = f"{add}({product}, {c.value(rest[2], width)})"
    c.assign(d, product)


def add_halves(a: Value, b: Value) -> Value:
    """`add.s16x2` and `add.u16x2`: two sums of 16 bits, no carry between (PTX ISA, "add")."""
    low = (a & 0xFFFF) + (b & 0xFFFF) & 0xFFFF
    high = (a & 0xFFFF_0000) + (b & 0xFFFF_0000) & 0xFFFF_0000
    return low | high


def _product(half: str, letter: str, bits: int, a: Value, b: Value) -> Value:
    if half == "lo":
        c = a * b
        return c & ((1 << bits) - 1) if type(c) is int else c
    if letter == "s":
        a, b = signed(a, bits), signed(b, bits)
    if type(a) is int and type(b) is int:
        return (
            (a * b >> (bits if half == "hi" else 0))
            & ((1 << 2 * bits) - 1)
            & ((1 << bits) - 1 if half == "hi" else (1 << 2 * bits) - 1)
        )
    if bits == 64:
        both = np.broadcast(a, b)
        wide = [int(x) * int(y) >> (64 if half == "hi" else 0) for x, y in both]
        return np.array([x & ((1 << 64) - 1) for x in wide], np.uint64)
    target = (values.INT if letter == "s" else UINT)[2 * bits]
    a = a if type(a) is int else a.astype(target)
    b = b if type(b) is int else b.astype(target)
    c = (a * b).view(UINT[2 * bits])
    return c if half == "wide" else (c >> bits).astype(UINT[bits])


@emits("div", "rem")
def _division(c: Emitter, i: Instruction) -> None:
    if floating.is_float(i):
        floating.arithmetic(c, i)
        return
    letter, bits = c.kind(i)
    name = c.use(f"{i.opcode}_{letter}{bits}", functools.partial(_divide, i.opcode, letter, bits))
    d, a, b = i.operands
    c.assign(d, f"{name}({c.value(a, bits)}, {c.value(b, bits)})")


def _divide(opcode: str, letter: str, bits: int, a: Value, b: Value) -> Value:
    """Quotients are cut toward zero; dividing by zero gives all ones, as hardware does."""
    if letter == "s":
        a, b = signed(a, bits), signed(b, bits)
    if type(a) is int and type(b) is int:
        if b == 0:
            return (1 << bits) - 1 if opcode == "div" else a & ((1 << bits) - 1)
        q = abs(a) // abs(b)
        q = -q if (a < 0) != (b < 0) else q
        return (q if opcode == "div" else a - q * b) & ((1 << bits) - 1)
    wide: Any = np.int64 if letter == "s" else np.uint64
    x, y = np.broadcast_arrays(np.asarray(a, wide), np.asarray(b, wide))
    zero = y == 0
    y = np.where(zero, wide(1), y)
    q = x // y
    r = x - q * y
    if letter == "s":
        wrong = (r != 0) & ((r < 0) != (x < 0))
        q, r = q + wrong, r - wrong * y
    result = np.where(zero, wide(-1 if letter == "s" else FULL), q) if opcode == "div" else r
    return result.astype(values.INT[64] if letter == "s" else np.uint64).astype(UINT[bits])


@emits("min", "max")
def _extremes(c: Emitter, i: Instruction) -> None:
    if floating.is_float(i):
        floating.arithmetic(c, i)
        return
    letter, bits = c.kind(i)
    name = c.use(f"{i.opcode}_{letter}{bits}", functools.partial(_extreme, i.opcode, letter, bits))
    d, a, b = i.operands
    c.assign(d, f"{name}({c.value(a, bits)}, {c.value(b, bits)})")


def _extreme(opcode: str, letter: str, bits: int, a: Value, b: Value) -> Value:
    if letter == "s":
        a, b = signed(a, bits), signed(b, bits)
    if type(a) is int and type(b) is int:
        return unsigned(min(a, b) if opcode == "min" else max(a, b), bits)
    return unsigned((np.minimum if opcode == "min" else np.maximum)(a, b), bits)


@emits("neg", "abs", "not", "cnot", "popc", "clz", "brev", "bfind")
def _unary(c: Emitter, i: Instruction) -> None:
    if floating.is_float(i):
        floating.arithmetic(c, i)
        return
    letter, bits = c.kind(i)
    d, a = i.operands
    if letter == "pred":
        c.assign(d, f"(~{c.predicate(a)} & FULL)")
        return
    if i.opcode not in _UNARY or len(i.parts) > 2:
        raise c.unknown("an instruction that the emulator does not know")
    name = c.use(f"{i.opcode}_{bits}", functools.partial(_UNARY[i.opcode], bits))
    c.assign(d, f"{name}({c.value(a, bits)})")


def _negate(bits: int, a: Value) -> Value:
    return -a & ((1 << bits) - 1) if type(a) is int else (~a + a.dtype.type(1))


def _absolute(bits: int, a: Value) -> Value:
    return unsigned(abs(signed(a, bits)), bits)


def _invert(bits: int, a: Value) -> Value:
    return ~a & ((1 << bits) - 1) if type(a) is int else ~a


def _each(function: Callable[[int], int]) -> Callable[[Value], Value]:
    """A function of one lane for all lanes; results are 32 bits wide."""

    def compute(a: Value) -> Value:
        if type(a) is int:
            return function(a)
        return np.array([function(int(x)) for x in a], np.uint32)

    return compute


_UNARY: dict[str, Callable[[int, Value], Value]] = {
    "neg": _negate,
    "abs": _absolute,
    "not": _invert,
    "popc": lambda bits, a: _each(int.bit_count)(a),
    "clz": lambda bits, a: _each(lambda x: bits - x.bit_length())(a),
    "brev": lambda bits, a: unsigned(_each(lambda x: int(f"{x:0{bits}b}"[::-1], 2))(a), bits),
    "bfind": lambda bits, a: _each(lambda x: (x.bit_length() - 1) & FULL)(a),
}


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}


@emits("setp")
def _set_predicate(c: Emitter, i: Instruction) -> None:
    letter, bits = c.kind(i)
    d, a, b, *more = i.operands
    if letter == "f" or i.parts[-1] in floating.HALVES:
        compared = floating.comparison(c, i)
    else:
        if i.parts[1] not in _COMPARE:
            raise c.unknown("a comparison that the emulator does not know")
        function = functools.partial(_compared, _COMPARE[i.parts[1]], letter, bits)
        name = c.use(f"setp_{i.parts[1]}_{letter}{bits}", function)
        compared = f"{name}({c.value(a, bits)}, {c.value(b, bits)})"
    for extra in i.parts[2:-1]:
        if extra in ("and", "or", "xor"):
            sign = {"and": "&", "or": "|", "xor": "^"}[extra]
            compared = f"({compared} {sign} {c.predicate(more[0])})"
        elif extra != "ftz":
            raise c.unknown("a modifier that the emulator does not know")
    if isinstance(d, Register):
        c.assign(d, compared)
        return
    name = c.temporary()
    c.line(f"{name} = {compared}")
    c.assign_pair(d, f"({name}, ~{name} & FULL)")


def _compared(op: Callable[[Any, Any], Any], letter: str, bits: int, a: Value, b: Value) -> int:
    if letter == "s":
        a, b = signed(a, bits), signed(b, bits)
    result = op(a, b)
    if result is True:
        return FULL
    return 0 if result is False else pack(result)


@emits("selp")
def _select(c: Emitter, i: Instruction) -> None:
    _, bits = c.kind(i)
    d, a, b, p = i.operands
    name = c.use(f"select_{bits}", functools.partial(values.select, bits))
    c.assign(d, f"{name}(mask, {c.predicate(p)}, {c.value(a, bits)}, {c.value(b, bits)})")


@emits("mov")
def _move(c: Emitter, i: Instruction) -> None:
    d, a = i.operands
    if i.parts[-1] == "pred":
        c.assign(d, c.predicate(a))
        return
    _, bits = c.kind(i)
    if isinstance(d, Vector):
        each = bits // len(d.items)
        name = c.use(f"cut_{len(d.items)}_{each}", functools.partial(_cut, len(d.items), each))
        c.assign(d, f"{name}({c.value(a, bits)})")
    elif isinstance(a, Vector):
        each = bits // len(a.items)
        name = c.use(f"joined_{each}", functools.partial(_joined, each))
        c.assign(d, f"{name}({c.value(a, each)})")
    else:
        c.assign(d, c.value(a, bits))


def _cut(count: int, each: int, value: Value) -> tuple[Value, ...]:
    return values.cut(value, count, each)


def _joined(each: int, items: tuple[Value, ...]) -> Value:
    return values.joined(items, each)


@emits("cvt")
def _convert(c: Emitter, i: Instruction) -> None:
    kinds = [part for part in i.parts[1:] if part[0] in "bsufet" and part[-1].isalnum()]
    target, source = i.parts[-2], i.parts[-1]
    whole = {"s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"}
    if target not in whole or source not in whole:
        floating.convert(c, i)
        return
    if "sat" in i.parts or len(kinds) < 2:
        raise c.unknown("a conversion that the emulator does not know")
    (to_letter, to_bits), (letter, bits) = type_of(target, c), type_of(source, c)
    d, a = i.operands
    assert isinstance(d, Register)
    wide = bits_of(d.type)
    function = functools.partial(_converted, letter == "s", bits, to_letter == "s", to_bits, wide)
    name = c.use(f"cvt_{target}_{source}_{wide}", function)
    c.assign(d, f"{name}({c.value(a, bits)})")


def _converted(
    from_signed: bool, bits: int, to_signed: bool, to_bits: int, wide: int, value: Value
) -> Value:
    return resized(resized(value, bits, from_signed, to_bits), to_bits, to_signed, wide)
