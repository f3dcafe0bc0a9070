# SPDX-License-Identifier: Apache-2.0
"""PTX text -> `Module` (PTX ISA, chapters 4 to 6).

Reads what compilers write: entries with registers, labels, scopes and instructions. What it does
not know is an error that names the line.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipegen.emulator.ptx.ir import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Label,
    LocalVariable,
    Location,
    Module,
    Operand,
    Pair,
    Parameter,
    PtxError,
    Register,
    SharedVariable,
    Symbol,
    Vector,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)\s*")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*(?:\.[xyzw](?![\w$]))?")
_NUMBER = re.compile(
    r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?0[xX][0-9a-fA-F]+U?|-?\d[\d.eE]*U?"
)
_ALIGN = re.compile(r"\.align\s+(\d+)")
_REG = re.compile(r"\.reg\s+(?:\.v([24])\s+)?\.(\w+)\s+(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\.(\w+)\s+([\w$%]+)\s*(?:\[(\d*)\])?\s*$")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}


def parse(text: str) -> Module:
    """The module that a PTX text holds. Raises PtxError with the line of what cannot be read."""
    lines = _Lines(_COMMENT.sub(_blank, text))
    kernels: list[Kernel] = []
    shared: list[SharedVariable] = []
    version = target = ""
    files: dict[int, str] = {}
    for head, line, body in lines.top_level():
        if head.startswith(".version"):
            version = head.split()[1]
        elif head.startswith(".target"):
            target = head.split(maxsplit=1)[1]
        elif match := _FILE.match(head):
            files[int(match[1])] = match[2]
        elif ".entry" in head:
            kernels.append(_kernel(head, line, body))
        elif ".shared" in head.split():
            variable = _variable(head, line)
            shared.append(SharedVariable(*variable))
        elif head.startswith((".address_size", ".section", ".file", ".pragma")):
            continue
        else:
            raise PtxError("a statement that the reader does not know", line, head[:80])
    return Module(tuple(kernels), version, target, tuple(shared), files)


def _blank(match: re.Match[str]) -> str:
    """A comment's text gone, its lines kept."""
    return "\n" * match[0].count("\n")


@dataclass
class _Lines:
    """Cuts a text into statements and remembers their lines."""

    text: str

    def top_level(self) -> Iterator[tuple[str, int, str]]:
        """(head, line, body) of each statement; `body` is what stands in its outer braces."""
        text, at, line = self.text, 0, 1
        while at < len(text):
            end = at
            while end < len(text) and text[end] not in "\n;{(":
                end += 1
            head = text[at:end].strip()
            stop = text[end] if end < len(text) else "\n"
            if stop in "\n;" and ".entry" not in head:
                if head:
                    yield head, line, ""
                line += stop == "\n"
                at = end + 1
                continue
            opening = text.index("{", end) if "{" in text[end:] else -1
            if opening < 0:
                raise PtxError("a body that does not open", line, head[:80])
            closing = _matching(text, opening, line)
            whole = text[at:opening].strip()
            start = line + text.count("\n", at, opening)
            yield whole, start, text[opening + 1 : closing]
            line += text.count("\n", at, closing)
            at = closing + 1


def _matching(text: str, opening: int, line: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxError("a body that does not close", line)


def _variable(text: str, line: int) -> tuple[str, int, int]:
    """(name, bytes, align) of a variable's or parameter's declaration."""
    align = _ALIGN.search(text)
    match = _VARIABLE.search(_ALIGN.sub("", text))
    size = _SIZES.get(match[1].lstrip("bsuf")) if match else None
    if match is None or size is None:
        raise PtxError("a declaration that the reader does not know", line, text[:80])
    count = 1 if match[3] is None else int(match[3] or 0)
    return match[2], size * count, int(align[1]) if align else size


def _kernel(head: str, line: int, body: str) -> Kernel:
    name = _ENTRY.search(head)
    if name is None:
        raise PtxError("an entry without a name", line, head[:80])
    parameters: list[Parameter] = []
    offset = 0
    if "(" in head:
        for text in head[head.index("(") + 1 : head.index(")")].split(","):
            if not text.strip():
                continue
            words = re.sub(r"\.ptr(?:\s+\.(?:global|shared|const|local))?", "", text)
            parameter, size, align = _variable(words, line)
            offset = -(-offset // align) * align
            parameters.append(Parameter(parameter, size, align, offset))
            offset += size
    threads = _THREADS.search(head)
    reader = _Body(line)
    reader.read(body)
    return Kernel(
        name=name[1],
        parameters=tuple(parameters),
        body=tuple(reader.items),
        registers=tuple(reader.registers),
        shared=tuple(reader.shared),
        local=tuple(reader.local),
        threads=_triple(threads) if threads else None,
    )


def _triple(match: re.Match[str]) -> tuple[int, int, int]:
    return int(match[1]), int(match[2] or 1), int(match[3] or 1)


@dataclass
class _Scope:
    """Names that a `{ }` declares: registers by name or by prefix, and its labels."""

    number: int
    named: dict[str, Register] = field(default_factory=dict)
    ranges: dict[str, str] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    vectors: dict[str, int] = field(default_factory=dict)  # name -> how many elements


class _Body:
    """Reads the body of an entry."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.items: list[Instruction | Label] = []
        self.registers: list[Register] = []
        self.shared: list[SharedVariable] = []
        self.local: list[LocalVariable] = []
        self._seen: set[Register] = set()
        self._scopes: list[_Scope] = []
        self._count = 0
        self._location: Location | None = None
        self._locations: dict[tuple[int, int, int], Location] = {}

    def read(self, text: str) -> None:
        """Append the text's statements."""
        self._open(text, 0)
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\n":
                self.line += 1
                at += 1
            elif char.isspace() or char == ";":
                at += 1
            elif char == "{":
                self._open(text, at + 1)
                at += 1
            elif char == "}":
                self._scopes.pop()
                at += 1
            elif match := _LOC.match(text, at):
                key = int(match[1]), int(match[2]), int(match[3])
                self._location = self._locations.setdefault(key, Location(*key))
                at = text.find("\n", at) if "\n" in text[at:] else len(text)
            elif match := _LABEL.match(text, at):
                self.items.append(Label(self._label(match[1]), self.line))
                self.line += match[0].count("\n")
                at = match.end()
            else:
                end = text.find(";", at)
                if end < 0:
                    raise PtxError("a statement that does not end", self.line, text[at:][:60])
                self._statement(text[at:end])
                self.line += text.count("\n", at, end)
                at = end + 1

    def _open(self, text: str, start: int) -> None:
        scope = _Scope(self._count)
        self._count += 1
        depth = 0
        at = start
        # A label may be used before it stands: collect those of this scope first.
        for match in re.compile(r"[{}]|([A-Za-z_$%][\w$]*)\s*:(?!:)").finditer(text, at):
            if match[0] == "{":
                depth += 1
            elif match[0] == "}":
                depth -= 1
                if depth < 0:
                    break
            elif depth == 0:
                scope.labels.add(match[1])
        self._scopes.append(scope)

    def _label(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope.labels:
                return f"{name}.{scope.number}" if scope.number else name
        return name

    def _statement(self, text: str) -> None:
        text = text.strip()
        if match := _REG.match(text):
            self._declare(match[2], match[3], int(match[1] or 0))
        elif text.startswith(".pragma"):
            return
        elif text.startswith(".shared"):
            self.shared.append(SharedVariable(*_variable(text, self.line)))
        elif text.startswith(".local"):
            self.local.append(LocalVariable(*_variable(text, self.line)))
        elif text.startswith("."):
            raise PtxError("a directive that the reader does not know", self.line, text[:80])
        else:
            self.items.append(self._instruction(text))

    def _declare(self, kind: str, names: str, elements: int) -> None:
        scope = self._scopes[-1]
        if elements:
            vectors = dict.fromkeys((part.strip() for part in names.split(",")), elements)
            scope.vectors |= vectors
            names = ", ".join(f"{v}.{axis}" for v in vectors for axis in "xyzw"[:elements])
        for name in (part.strip() for part in names.split(",")):
            if name.endswith(">"):
                scope.ranges[name[: name.index("<")]] = kind
            else:
                unique = f"{name}.{scope.number}" if scope.number else name
                scope.named[name] = Register(unique, kind)

    def _register(self, name: str) -> Register | None:
        prefix = name.rstrip("0123456789")
        for scope in reversed(self._scopes):
            found = scope.named.get(name)
            if found is None and prefix != name and prefix in scope.ranges:
                found = scope.named[name] = Register(name, scope.ranges[prefix])
            if found is not None:
                if found not in self._seen:
                    self._seen.add(found)
                    self.registers.append(found)
                return found
        return None

    def _vector(self, name: str) -> Vector | None:
        """The elements of a vector that is declared as one: those of `a` are a.x, a.y, …"""
        count = next((s.vectors[name] for s in reversed(self._scopes) if name in s.vectors), 0)
        elements = [self._register(f"{name}.{axis}") for axis in "xyzw"[:count]]
        return Vector(tuple(each for each in elements if each is not None)) if count else None

    def _instruction(self, text: str) -> Instruction:
        guard: Register | None = None
        negated = False
        if text.startswith("@"):
            word, text = text[1:].split(None, 1)
            negated = word.startswith("!")
            guard = self._register(word.lstrip("!"))
            if guard is None:
                raise PtxError("a guard that is not a register", self.line, word)
        name, _, rest = text.replace("\n", " ").replace("\t", " ").partition(" ")
        reader = _Operands(rest.strip(), self)
        return Instruction(
            tuple(name.split(".")), reader.all(), self.line, guard, negated, self._location
        )


class _Operands:
    """Reads the operands of one instruction."""

    def __init__(self, text: str, body: _Body) -> None:
        self.text = text
        self.at = 0
        self.body = body

    def all(self) -> tuple[Operand, ...]:
        return self._list("") if self.text else ()

    def _list(self, closing: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while True:
            found.append(self._one())
            self._space()
            char = self.text[self.at : self.at + 1]
            if char == closing:
                self.at += 1
                return tuple(found)
            if char != ",":
                raise self._error("operands that the reader does not know")
            self.at += 1

    def _space(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def _error(self, message: str) -> PtxError:
        return PtxError(message, self.body.line, self.text[:80])

    def _one(self) -> Operand:
        self._space()
        first = self._simple()
        self._space()
        if self.text[self.at : self.at + 1] == "|":
            self.at += 1
            self._space()
            return Pair(first, self._simple())
        return first

    def _simple(self) -> Operand:
        char = self.text[self.at : self.at + 1]
        if char == "{":
            self.at += 1
            return Vector(self._list("}"))
        if char == "[":
            self.at += 1
            return self._address()
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            return _number(match[0])
        if match := _NAME.match(self.text, self.at):
            self.at = match.end()
            name = match[0]
            found = self.body._register(name) or self.body._vector(name)
            return found if found is not None else Symbol(self.body._label(name))
        raise self._error("an operand that the reader does not know")

    def _address(self) -> Operand:
        base = self._simple()
        self._space()
        offset = 0
        if self.text[self.at : self.at + 1] in "+-":
            sign = -1 if self.text[self.at] == "-" else 1
            self.at += 1
            self._space()
            number = _NUMBER.match(self.text, self.at)
            if number is None:
                raise self._error("an address whose offset is not a number")
            self.at = number.end()
            offset = sign * _number(number[0]).value
            self._space()
        rest: tuple[Operand, ...] = ()
        char = self.text[self.at : self.at + 1]
        self.at += 1
        if char == ",":
            rest = self._list("]")
        elif char != "]":
            raise self._error("an address that the reader does not know")
        return Address(base, offset, rest)


def _number(text: str) -> Immediate:
    text = text.rstrip("U")
    if text[:2] in ("0f", "0F"):
        return Immediate(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D"):
        return Immediate(int(text[2:], 16), 64)
    if any(char in text for char in ".eE") and not text.lower().lstrip("-").startswith("0x"):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return Immediate(int(text, 0) if not text.lstrip("-").isdigit() else int(text))
