# SPDX-License-Identifier: Apache-2.0
"""Floating-point arithmetic, comparison and conversion.

PTX ISA, sections "Floating Point Instructions", "Half Precision Floating Point Instructions",
"Mixed Precision Floating Point Instructions" and "cvt" in chapter 9.7. Results are rounded to
nearest even, of fma also up or down. `.approx` functions are computed exactly and then rounded, so
they are at least as good as the hardware's.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pipegen.emulator.machine import formats
from pipegen.emulator.machine.emitting import Emitter, bits_of, emits
from pipegen.emulator.machine.values import FULL, INT, UINT, WARP, Array, Value, pack
from pipegen.emulator.ptx.ir import Instruction, Register

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_KINDS = {"f32": ("f32", 1), "f64": ("f64", 1), "f16": ("f16", 1), "bf16": ("bf16", 1)}
_KINDS |= {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2), "f32x2": ("f32", 2)}
_KNOWN = frozenset(("rn", "ftz", "approx", "full", "sat", "relu", "NaN", "noftz"))


def is_float(i: Instruction) -> bool:
    """Whether the instruction's last type is a floating-point one."""
    return i.parts[-1] in _KINDS


def numbers_of(value: Value, kind: str, count: int) -> Array:
    """(lanes, count) numbers; one row where all lanes agree."""
    bits = formats.WIDTHS[kind]
    if type(value) is int:
        row = [value >> bits * n & ((1 << bits) - 1) for n in range(count)]
        return formats.decode(np.array([row], UINT[bits]), kind)
    if value is None:
        return np.full((1, count), np.nan, np.float32)
    if count == 1:
        return formats.decode(value[:, None], kind)
    return formats.decode(np.ascontiguousarray(value).view(UINT[bits]).reshape(WARP, count), kind)


def value_of(numbers: Array, kind: str, saturate: bool = False) -> Value:
    """The register value of (lanes, count) numbers."""
    coded = formats.encode(numbers, kind, saturate)
    rows, count = coded.shape
    if rows == 1:
        bits = formats.WIDTHS[kind]
        return sum(int(each) << bits * n for n, each in enumerate(coded[0]))
    if count == 1:
        return coded[:, 0]
    wide = UINT[formats.WIDTHS[kind] * count]
    return np.ascontiguousarray(coded).view(wide)[:, 0]


def _exact_fma(a: Any, b: Any, c: Any) -> Any:
    return a.astype(np.float64) * b + c


# Towards minus or plus infinity: exp is computed with these (fma.rm finds the whole exponent).
_DIRECTIONS = {"rm": -np.inf, "rp": np.inf}


def _directed_fma(towards: float, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of f32, rounded in a direction. In f64 the product is exact and the sum is not.

    What the f64 sum is off by comes from the sum's own parts (Knuth's TwoSum).
    """
    product, added = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + added
    rest = total - product
    off = (product - (total - rest)) + (added - rest)
    nearest = total.astype(np.float32)
    over = (nearest > total) | ((nearest == total) & (off < 0))
    under = (nearest < total) | ((nearest == total) & (off > 0))
    wrong = over if towards < 0 else under
    return np.where(wrong, np.nextafter(nearest, np.float32(towards)), nearest)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "fma": _exact_fma,
    "mad": _exact_fma,
    "min": np.fmin,
    "max": np.fmax,
    "neg": operator.neg,
    "abs": np.abs,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}


@emits("fma", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "tanh", "sin", "cos")
def arithmetic(c: Emitter, i: Instruction) -> None:
    """An operation on floats, packed or not."""
    directed = set(_DIRECTIONS) if i.opcode == "fma" and i.parts[-1] == "f32" else set()
    if i.parts[-1] not in _KINDS or set(i.parts[1:-1]) - _KNOWN - directed:
        raise c.unknown("a floating-point instruction that the emulator does not know")
    kind, count = _KINDS[i.parts[-1]]
    d, *rest = i.operands
    name = c.use("f_" + i.name.replace(".", "_"), _calculation(i, kind, count))
    bits = formats.WIDTHS[kind] * count
    c.assign(d, f"{name}({', '.join(c.value(x, bits) for x in rest)})")


def _calculation(i: Instruction, kind: str, count: int) -> Callable[..., Value]:
    operation = _OPERATIONS[i.opcode]
    for word in _DIRECTIONS.keys() & set(i.parts):
        operation = functools.partial(_directed_fma, _DIRECTIONS[word])
    ftz, saturated = i.has("ftz"), i.has("sat")
    relu, nan = i.has("relu"), i.has("NaN")
    if nan:
        operation = np.minimum if i.opcode == "min" else np.maximum

    def compute(*arguments: Value) -> Value:
        numbers = [numbers_of(value, kind, count) for value in arguments]
        with np.errstate(all="ignore"):
            if ftz:
                numbers = [_flushed(each) for each in numbers]
            result = operation(*numbers)
            if kind != "f64":
                result = result.astype(np.float32, copy=False)
            if ftz:
                result = _flushed(result)
            if saturated:
                result = _in_unit(result)
            if relu:
                result = np.maximum(result, np.float32(0))
        return value_of(result, kind)

    return compute


def _flushed(numbers: Array) -> Array:
    tiny = np.abs(numbers) < np.float32(2.0**-126)
    return np.where(tiny, np.copysign(np.float32(0), numbers), numbers)


_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b)),
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


def comparison(c: Emitter, i: Instruction) -> str:
    """The expression of a comparison between floats: a mask."""
    kind, count = _KINDS.get(i.parts[-1], ("", 0))
    word = i.parts[1]
    ordered = word if word in _ORDERED else word.removesuffix("u")
    if count != 1 or ordered not in _ORDERED:
        raise c.unknown("a comparison that the emulator does not know")
    unordered = word not in _ORDERED
    bits = formats.WIDTHS[kind]

    def compute(a: Value, b: Value) -> int:
        x, y = numbers_of(a, kind, 1), numbers_of(b, kind, 1)
        result = _ORDERED[ordered](x, y)
        if unordered:
            result = result | np.isnan(x) | np.isnan(y)
        flat = result[:, 0]
        return pack(flat) if len(flat) == WARP else FULL * int(flat[0])

    name = c.use(f"setp_{word}_{i.parts[-1]}", compute)
    _, a, b, *_ = i.operands
    return f"{name}({c.value(a, bits)}, {c.value(b, bits)})"


_PACKED = {"bf16x2": "bf16", "f16x2": "f16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}
_INTEGERS = {f"{s}{n}": (s == "s", n) for s in "su" for n in (8, 16, 32, 64)}
_TO_INTEGER = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}


def convert(c: Emitter, i: Instruction) -> None:
    """`cvt` with a float on either side."""
    target, source = i.parts[-2], i.parts[-1]
    modifiers = frozenset(i.parts[1:-2])
    d, *sources = i.operands
    if target in _PACKED:
        _convert_packed(c, i, target, source, modifiers)
        return
    if not isinstance(d, Register):
        raise c.unknown("a conversion that the emulator does not know")
    width = bits_of(d.type)
    function: Callable[[Value], Value]
    if source in _INTEGERS and target in formats.WIDTHS and modifiers <= {"rn"}:
        function = functools.partial(_from_integer, *_INTEGERS[source], target)
        bits = _INTEGERS[source][1]
    elif target in _INTEGERS and source in formats.WIDTHS:
        (word,) = modifiers & _TO_INTEGER.keys() or {""}
        if not word or modifiers - {word, "ftz", "sat"}:
            raise c.unknown("a rounding that the emulator does not know")
        function = functools.partial(_to_integer, *_INTEGERS[target], _TO_INTEGER[word], source)
        function = functools.partial(_widened, function, width)
        bits = formats.WIDTHS[source]
    elif target in formats.WIDTHS and source in formats.WIDTHS:
        if modifiers - {"rn", "ftz", "rna", "satfinite", "sat"}:
            raise c.unknown("a rounding that the emulator does not know")
        function = functools.partial(
            _from_float, target, source, "satfinite" in modifiers, "sat" in modifiers
        )
        bits = formats.WIDTHS[source]
    else:
        raise c.unknown("a conversion that the emulator does not know")
    name = c.use("cvt_" + "_".join(i.parts[1:]) + f"_{width}", function)
    c.assign(d, f"{name}({c.value(sources[0], bits)})")


def _widened(function: Callable[[Value], Value], width: int, value: Value) -> Value:
    result = function(value)
    return result if type(result) is int else result.astype(UINT[width], copy=False)


def _from_integer(is_signed: bool, bits: int, target: str, value: Value) -> Value:
    if type(value) is int:
        half = 1 << bits - 1
        low = value & ((1 << bits) - 1)
        number = (low ^ half) - half if is_signed else low
        wide = np.array([[number]], np.float64)
    else:
        low = value.astype(UINT[bits], copy=False)
        wide = (low.view(INT[bits]) if is_signed else low).astype(np.float64)[:, None]
    return value_of(wide if target == "f64" else wide.astype(np.float32), target)


def _to_integer(
    is_signed: bool, bits: int, rounding: Callable[[Any], Any], source: str, value: Value
) -> Value:
    with np.errstate(invalid="ignore"):
        numbers = rounding(numbers_of(value, source, 1).astype(np.float64))
    low = -(1 << bits - 1) if is_signed else 0
    high = (1 << bits - 1) - 1 if is_signed else (1 << bits) - 1
    exact = [0 if n != n else int(min(max(n, low), high)) for n in numbers[:, 0].tolist()]
    result = np.array([n & ((1 << bits) - 1) for n in exact], UINT[bits])
    return int(result[0]) if len(result) == 1 else result


def _from_float(target: str, source: str, saturate: bool, to_unit: bool, value: Value) -> Value:
    """`to_unit`: `.sat`, which keeps a number in [0, 1], and makes a zero of NaN."""
    numbers = numbers_of(value, source, 1)
    return value_of(_in_unit(numbers) if to_unit else numbers, target, saturate)


def _in_unit(numbers: Array) -> Array:
    return np.where(np.isnan(numbers), np.float32(0), np.clip(numbers, 0, 1))


def _convert_packed(
    c: Emitter, i: Instruction, target: str, source: str, modifiers: frozenset[str]
) -> None:
    """`d = {a high, b low}` from two numbers, or two packed ones from two packed ones."""
    if modifiers - {"rn", "satfinite", "relu", "rz"} or "rz" in modifiers:
        raise c.unknown("a rounding that the emulator does not know")
    d, *sources = i.operands
    kind = _PACKED[target]
    saturate, relu = "satfinite" in modifiers, "relu" in modifiers
    if source == "f32" and len(sources) == 2:
        name = c.use("cvt_" + "_".join(i.parts[1:]), functools.partial(_pair, kind, saturate, relu))
        c.assign(d, f"{name}({c.value(sources[0])}, {c.value(sources[1])})")
    elif source in _PACKED:
        function = functools.partial(_repacked, kind, _PACKED[source], saturate, relu)
        name = c.use("cvt_" + "_".join(i.parts[1:]), function)
        c.assign(d, f"{name}({c.value(sources[0])})")
    else:
        raise c.unknown("a conversion that the emulator does not know")


def _pair(kind: str, saturate: bool, relu: bool, high: Value, low: Value) -> Value:
    a, b = numbers_of(high, "f32", 1), numbers_of(low, "f32", 1)
    rows = max(len(a), len(b))
    both = np.empty((rows, 2), np.float32)
    both[:, 0:1], both[:, 1:2] = b, a
    return value_of(np.maximum(both, np.float32(0)) if relu else both, kind, saturate)


def _repacked(kind: str, source: str, saturate: bool, relu: bool, value: Value) -> Value:
    if type(value) is not int:
        value = value.astype(UINT[2 * formats.WIDTHS[source]], copy=False)
    numbers = numbers_of(value, source, 2)
    return value_of(np.maximum(numbers, np.float32(0)) if relu else numbers, kind, saturate)
