# SPDX-License-Identifier: Apache-2.0
"""PTX text -> `Module` (PTX ISA, chapters 4 to 6).

Reads what compilers write: entries with registers, labels, scopes and instructions. What it does
not know is an error that names the line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipegen.emulator.ptx.ir import (
    Immediate,
    Instruction,
    Kernel,
    Label,
    LocalVariable,
    Location,
    Module,
    Operand,
    Parameter,
    PtxError,
    Register,
    SharedVariable,
    Symbol,
)
from pipegen.emulator.ptx.operands import Operands

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)\s*")
_ALIGN = re.compile(r"\.align\s+(\d+)")
_REG = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\.(\w+)\s+([\w$%]+)\s*(?:\[(\d*)\])?\s*$")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_TARGETS = re.compile(r"\.branchtargets\s+(.*)", re.DOTALL)
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
    before = ""
    for head, line, body in lines.top_level():
        previous, before = before, head
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
        elif not head and previous.startswith(".section"):
            continue  # its lines of DWARF may open on a line of their own
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


class _Body:
    """Reads the body of an entry."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.items: list[Instruction | Label] = []
        self.registers: list[Register] = []
        self.shared: list[SharedVariable] = []
        self.local: list[LocalVariable] = []
        self._seen: set[Register] = set()
        self._targets: dict[str, tuple[str, ...]] = {}  # of `.branchtargets`, by their label
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
                self.items.append(Label(self.label(match[1]), self.line))
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

    def label(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope.labels:
                return f"{name}.{scope.number}" if scope.number else name
        return name

    def _statement(self, text: str) -> None:
        text = text.strip()
        if match := _REG.match(text):
            self._declare(match[1], match[2])
        elif text.startswith(".pragma"):
            return
        elif text.startswith(".shared"):
            self.shared.append(SharedVariable(*_variable(text, self.line)))
        elif text.startswith(".local"):
            self.local.append(LocalVariable(*_variable(text, self.line)))
        elif match := _TARGETS.match(text):
            self._name_targets(match[1])
        elif text.startswith("."):
            raise PtxError("a directive that the reader does not know", self.line, text[:80])
        elif text.startswith("brx.idx"):
            self._branch_by_index(text)
        else:
            self.items.append(self._instruction(text))

    def _name_targets(self, text: str) -> None:
        label = self.items[-1] if self.items else None
        if not isinstance(label, Label):
            raise PtxError(".branchtargets without a label before it", self.line)
        self._targets[label.name] = tuple(self.label(each.strip()) for each in text.split(","))

    def _branch_by_index(self, text: str) -> None:
        """`brx.idx index, targets` as one branch after the other.

        PTX ISA, "brx.idx" and ".branchtargets": to the target of that number; one that is not in
        the list is undefined, and goes to the last.
        """
        read = self._instruction(text)
        index, name = read.operands
        targets = self._targets.get(name.name) if isinstance(name, Symbol) else None
        if not targets or read.parts[2:] not in ((), ("uni",)):
            raise PtxError("a branch by index that the reader does not know", self.line, text[:80])
        for number, target in enumerate(targets[:-1]):
            chosen = Register(f"%chosen{len(self.items)}", "pred")
            self.registers.append(chosen)
            test = chosen, index, Immediate(number)
            self._append(("setp", "eq", "u32"), test)
            self._append(("bra",), (Symbol(target),), chosen)
        self._append(("bra",), (Symbol(targets[-1]),))

    def _append(
        self, parts: tuple[str, ...], operands: tuple[Operand, ...], guard: Register | None = None
    ) -> None:
        made = Instruction(parts, operands, self.line, guard, location=self._location)
        self.items.append(made)

    def _declare(self, kind: str, names: str) -> None:
        scope = self._scopes[-1]
        for name in (part.strip() for part in names.split(",")):
            if name.endswith(">"):
                scope.ranges[name[: name.index("<")]] = kind
            else:
                unique = f"{name}.{scope.number}" if scope.number else name
                scope.named[name] = Register(unique, kind)

    def register(self, name: str) -> Register | None:
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

    def _instruction(self, text: str) -> Instruction:
        guard: Register | None = None
        negated = False
        if text.startswith("@"):
            word, text = text[1:].split(None, 1)
            negated = word.startswith("!")
            guard = self.register(word.lstrip("!"))
            if guard is None:
                raise PtxError("a guard that is not a register", self.line, word)
        name, _, rest = text.replace("\n", " ").replace("\t", " ").partition(" ")
        reader = Operands(rest.strip(), self)
        return Instruction(
            tuple(name.split(".")), reader.all(), self.line, guard, negated, self._location
        )
