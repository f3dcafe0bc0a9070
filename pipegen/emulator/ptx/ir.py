# SPDX-License-Identifier: Apache-2.0
"""PTX as data: a module's kernels, and their instructions with the lines they came from.

The names follow the PTX ISA: chapters 4 (syntax), 5 (state spaces, types, variables) and 6
(operands).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


class PtxError(Exception):
    """The PTX cannot be read or executed. `line` counts from 1 in the PTX text, 0 is none."""

    def __init__(self, message: str, line: int = 0, text: str = "") -> None:
        where = f"PTX line {line}: " if line else ""
        what = f" in `{text}`" if text else ""
        super().__init__(f"{where}{message}{what}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the kernel's source, from `.loc` (line 0: the compiler knows of none)."""

    file: int
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a kernel; `type` without its dot: "pred", "b16", "b32", "b64", "b128", …

    Registers that an inner scope declares carry the scope's number, so that names are unique.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer, or the bits of a float with its width in `float_bits`."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that is not a register: variable, parameter, special register or label."""

    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, …}`."""

    items: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; `rest` has what follows the base, as coordinates of a tensor do."""

    base: "Operand"
    offset: int = 0
    rest: tuple["Operand", ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations of one instruction."""

    first: "Operand"
    second: "Operand"


Operand = Register | Immediate | Symbol | Vector | Address | Pair


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `parts` is its name, cut at the dots: ("add", "s32").

    `guard` is its predicate register or None, `negated` for `@!p`. `line` counts lines of the PTX
    text from 1.
    """

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    line: int
    guard: Register | None = None
    negated: bool = False
    location: Location | None = None

    @property
    def name(self) -> str:
        """The whole name, with its dots."""
        return ".".join(self.parts)

    @property
    def opcode(self) -> str:
        """The name up to the first dot."""
        return self.parts[0]

    def has(self, part: str) -> bool:
        """Whether the name holds this part."""
        return part in self.parts


@dataclass(frozen=True, slots=True)
class Label:
    """A place to branch to. Labels of inner scopes carry the scope's number."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """One `.param` of an entry: its bytes and where it lies in the parameter space."""

    name: str
    bytes: int
    align: int
    offset: int


@dataclass(frozen=True, slots=True)
class SharedVariable:
    """A `.shared` variable; `bytes` 0 is the dynamic one (`.extern`)."""

    name: str
    bytes: int
    align: int


@dataclass(frozen=True, slots=True)
class LocalVariable:
    """A `.local` variable of a kernel, one for each thread."""

    name: str
    bytes: int
    align: int


@dataclass(frozen=True)
class Kernel:
    """An entry function. `threads` is `.reqntid` or `.maxntid` as (x, y, z), or None."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Instruction | Label, ...]
    registers: tuple[Register, ...]
    shared: tuple[SharedVariable, ...] = ()
    local: tuple[LocalVariable, ...] = ()
    threads: tuple[int, int, int] | None = None

    @property
    def instructions(self) -> Iterator[Instruction]:
        """The instructions in the order of the text."""
        return (item for item in self.body if isinstance(item, Instruction))


@dataclass(frozen=True)
class Module:
    """One PTX text. `files` maps the numbers of `.loc` to paths."""

    kernels: tuple[Kernel, ...]
    version: str = ""
    target: str = ""
    shared: tuple[SharedVariable, ...] = ()
    files: dict[int, str] = field(default_factory=dict)

    def kernel(self, name: str) -> Kernel:
        """The entry of this name. Raises PtxError if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        names = ", ".join(kernel.name for kernel in self.kernels) or "none"
        raise PtxError(f"no entry {name} (entries: {names})")
