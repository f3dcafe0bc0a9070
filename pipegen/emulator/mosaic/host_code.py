# SPDX-License-Identifier: Apache-2.0
"""Runs the host code of a Mosaic GPU kernel: the LLVM function that builds its tensor maps.

Mosaic GPU compiles a host function beside each kernel and writes it as text where
MOSAIC_GPU_DUMP_HOST_LLVM asks for it. It is straight-line code: it reads the addresses of the
operands, fills arrays, and calls a runtime library, which builds tensor maps and launches. It is
run here on this process' memory, with our functions in the place of that library. An instruction
that is not known is an error that quotes its line.

The language is that of the LLVM Language Reference, "Instruction Reference" and "Data Layout".
"""

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(r'%[\w.$-]+|@[\w.$-]+|"[^"]*"|-?\d+|[A-Za-z_][\w.]*|[\[\]{}(),=*<>#!]')
_DEFINE = re.compile(r"^define [^\n]*@(?P<name>[\w.$]+)\((?P<arguments>[^)]*)\)[^\n]*\{\n", re.M)
_POINTER_BYTES = 8
# Words beside a type or an operator that promise something, and change no value.
_PROMISES = frozenset(
    ("nuw", "nsw", "nusw", "inbounds", "exact", "disjoint", "nneg", "noundef", "nonnull")
) | {"tail", "notail", "volatile"}
_UNKNOWN = ("undef", "poison")

# An integer, a tuple of values for an aggregate, or None for a value that was never given.
Value = Any
Call = Callable[[Sequence[int]], int | None]


class HostCodeError(ValueError):
    """Host code that the emulator does not know."""


@dataclass(frozen=True)
class Type:
    """An integer or a pointer (no `fields`), an array or a struct (the types of its elements)."""

    bits: int
    fields: tuple["Type", ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes in memory, padding included."""
        if not self.fields:
            return -(-self.bits // 8)
        end = max(at + field.bytes for at, field in zip(self.offsets, self.fields, strict=True))
        return -(-end // self.align) * self.align

    @property
    def align(self) -> int:
        """The alignment in bytes: the size of a scalar, the largest of an aggregate's."""
        return max((field.align for field in self.fields), default=max(1, self.bytes_of_scalar))

    @property
    def bytes_of_scalar(self) -> int:
        """Bytes of an integer or pointer."""
        return -(-self.bits // 8)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each element begins, in bytes."""
        found, end = [], 0
        for field in self.fields:
            end = -(-end // field.align) * field.align
            found.append(end)
            end += field.bytes
        return tuple(found)

    def blank(self) -> Value:
        """A value of which nothing is known."""
        return tuple(field.blank() for field in self.fields) if self.fields else None


@dataclass(frozen=True)
class Function:
    """A function of straight-line code: the names of its arguments, and its lines."""

    name: str
    arguments: tuple[str, ...]
    lines: tuple[str, ...]

    def calls(self, name: str) -> bool:
        """Whether it calls a function."""
        return any(f" @{name}(" in line for line in self.lines)


def functions(text: str) -> tuple[Function, ...]:
    """The functions that a module defines."""
    found = []
    for match in _DEFINE.finditer(text):
        body = text[match.end() : text.index("\n}", match.end())]
        arguments = tuple(each.split()[-1] for each in match["arguments"].split(",") if each)
        lines = tuple(line.strip() for line in body.splitlines() if line.strip())
        found.append(Function(match["name"], arguments, lines))
    return tuple(found)


def run_function(function: Function, given: Sequence[int], calls: Mapping[str, Call]) -> None:
    """Run a function with these arguments; `calls` are the functions that it may call.

    Addresses are those of this process. HostCodeError for what is not known.
    """
    values: dict[str, Value] = dict(zip(function.arguments, given, strict=True))
    memory: list[Any] = []  # what `alloca` took, until the function returns
    for text in function.lines:
        line = _Line(text, values)
        target, operation = line.begin()
        if operation == "ret":
            return
        if operation == "alloca":
            values[target] = _alloca(line, memory)
        elif operation == "call":
            values[target] = _call(line, calls)
        elif operation in _OPERATIONS:
            values[target] = _OPERATIONS[operation](line)
        else:
            raise line.error(f"the instruction {operation!r}")
    raise HostCodeError(f"{function.name} does not return")


class _Line:
    """One instruction, read from the left."""

    def __init__(self, text: str, values: Mapping[str, Value]) -> None:
        self.text = text
        self._values = values
        self._tokens = [each for each in _TOKEN.findall(text) if each not in _PROMISES]
        self._at = 0

    def error(self, what: str) -> HostCodeError:
        return HostCodeError(f"the host code has {what}, which is not known: {self.text[:200]}")

    def begin(self) -> tuple[str, str]:
        """(target, operation); a target that nothing reads is empty."""
        target = ""
        if self.peek().startswith("%"):
            target = self.next()
            self.expect("=")
        return target, self.next()

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def expect(self, *wanted: str) -> None:
        for each in wanted:
            if self.next() != each:
                raise self.error(f"something else than {each!r}")

    def type(self) -> Type:
        token = self.next()
        if token == "ptr":
            if self.peek() == "addrspace":
                raise self.error("a pointer of another address space")
            return Type(8 * _POINTER_BYTES)
        if re.fullmatch(r"i\d+", token):
            return Type(int(token[1:]))
        if token == "[":
            count = int(self.next())
            self.expect("x")
            of = self.type()
            self.expect("]")
            return Type(0, (of,) * count)
        if token == "{":
            fields: list[Type] = []
            while self.peek() != "}":
                if fields:
                    self.expect(",")
                fields.append(self.type())
            self.expect("}")
            return Type(0, tuple(fields))
        raise self.error(f"the type {token!r}")

    def value(self, of: Type) -> Value:
        token = self.next()
        if token.startswith("%"):
            if token not in self._values:
                raise self.error(f"{token}, which nothing gave a value,")
            return self._values[token]
        if token in _UNKNOWN:
            return of.blank()
        if token in ("null", "false"):
            return 0
        if token == "true":
            return 1
        if re.fullmatch(r"-?\d+", token):
            return int(token) & (1 << of.bits) - 1
        raise self.error(f"the value {token!r}")

    def typed(self) -> tuple[Type, Value]:
        of = self.type()
        return of, self.value(of)

    def number(self) -> int:
        """A scalar with its type in front, whose value must be known."""
        of, value = self.typed()
        if of.fields or value is None:
            raise self.error("no known number where one is used")
        return int(value)

    def signed(self) -> int:
        of, value = self.typed()
        if of.fields or value is None:
            raise self.error("no known number where one is used")
        return int(value) - (int(value) >> of.bits - 1 << of.bits)

    def comma(self) -> bool:
        """Whether there is more; the comma is read."""
        if self.peek() != ",":
            return False
        self.next()
        return True

    def indices(self) -> Iterator[int]:
        while self.comma():
            yield int(self.next())


def _alloca(line: _Line, memory: list[Any]) -> int:
    of, count, align = line.type(), 1, 16
    while line.comma():
        if line.peek() == "align":
            line.next()
            align = max(align, int(line.next()))
        else:
            count = line.number()
    raw = ctypes.create_string_buffer(of.bytes * count + align)
    memory.append(raw)
    return -(-ctypes.addressof(raw) // align) * align


def _call(line: _Line, calls: Mapping[str, Call]) -> int | None:
    if line.peek() == "void":
        line.next()
    else:
        line.type()
    name = line.next()
    if name[:1] != "@" or name[1:] not in calls:
        raise line.error(f"a call of {name}")
    line.expect("(")
    given = []
    while line.peek() != ")":
        given.append(line.number())
        line.comma()
    return calls[name[1:]](given)


def _load(line: _Line) -> Value:
    of = line.type()
    line.expect(",")
    return _decode(of, ctypes.string_at(line.number(), of.bytes))


def _store(line: _Line) -> None:
    of, value = line.typed()
    line.expect(",")
    _write(line, of, value, line.number())


def _decode(of: Type, raw: bytes) -> Value:
    if not of.fields:
        return int.from_bytes(raw[: of.bytes], "little")
    pairs = zip(of.offsets, of.fields, strict=True)
    return tuple(_decode(field, raw[at : at + field.bytes]) for at, field in pairs)


def _write(line: _Line, of: Type, value: Value, address: int) -> None:
    if value is None:
        raise line.error("a store of no known value")
    if not of.fields:
        ctypes.memmove(address, int(value).to_bytes(of.bytes, "little"), of.bytes)
        return
    for at, field, each in zip(of.offsets, of.fields, value, strict=True):
        _write(line, field, each, address + at)


def _element_address(line: _Line) -> int:
    of = line.type()
    line.expect(",")
    address = line.number()
    line.expect(",")
    address += line.signed() * of.bytes
    while line.comma():
        index = line.signed()
        if not of.fields:
            raise line.error("an index into a scalar")
        # An index beyond an array is legal; the elements of an array are all alike.
        same = len(set(of.fields)) == 1
        address += index * of.fields[0].bytes if same else of.offsets[index]
        of = of.fields[0] if same else of.fields[index]
    return address & (1 << 64) - 1


def _insert(line: _Line) -> Value:
    _, value = line.typed()
    line.expect(",")
    _, new = line.typed()
    return _with(value, list(line.indices()), new)


def _with(value: Value, indices: list[int], new: Value) -> Value:
    if not indices:
        return new
    first, *rest = indices
    return (*value[:first], _with(value[first], rest, new), *value[first + 1 :])


def _extract(line: _Line) -> Value:
    _, value = line.typed()
    for index in line.indices():
        value = value[index]
    return value


def _arithmetic(compute: Callable[[int, int], int]) -> Callable[[_Line], int]:
    def run(line: _Line) -> int:
        of, left = line.typed()
        line.expect(",")
        right = line.value(of)
        if left is None or right is None:
            raise line.error("no known number where one is used")
        return compute(left, right) & (1 << of.bits) - 1

    return run


def _cast(line: _Line) -> int:
    value = line.number()
    line.expect("to")
    return value & (1 << line.type().bits) - 1


def _sign_extend(line: _Line) -> int:
    value = line.signed()
    line.expect("to")
    return value & (1 << line.type().bits) - 1


_OPERATIONS: Mapping[str, Callable[[_Line], Value]] = {
    "load": _load,
    "store": _store,
    "getelementptr": _element_address,
    "insertvalue": _insert,
    "extractvalue": _extract,
    "add": _arithmetic(lambda left, right: left + right),
    "sub": _arithmetic(lambda left, right: left - right),
    "mul": _arithmetic(lambda left, right: left * right),
    "udiv": _arithmetic(lambda left, right: left // right),
    "and": _arithmetic(lambda left, right: left & right),
    "or": _arithmetic(lambda left, right: left | right),
    "shl": _arithmetic(lambda left, right: left << right),
    "lshr": _arithmetic(lambda left, right: left >> right),
    "ptrtoint": _cast,
    "inttoptr": _cast,
    "trunc": _cast,
    "zext": _cast,
    "sext": _sign_extend,
}
