# SPDX-License-Identifier: Apache-2.0
"""Turns instructions into lines of Python: what every chapter's handlers share.

A handler is registered for an opcode with `@emits("add", …)`. It calls `Emitter.assign` for a
result and `Emitter.line` for an effect. The text it writes may use the names `w` (the warp),
`mask`, `full` and those it took from `Emitter.use`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pipegen.emulator.machine import values
from pipegen.emulator.ptx.flow import results
from pipegen.emulator.ptx.ir import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Vector,
)
from pipegen.emulator.ptx.slicing import RunPlace, has_effect
from pipegen.emulator.ptx.writing import shortened

Handler = Callable[["Emitter", Instruction], None]
HANDLERS: dict[str, Handler] = {}
_BITS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "b128": 128}
_MODIFIERS = frozenset(("rn", "rz", "rm", "rp", "ftz", "sat", "wide", "lo", "hi"))


def emits(*opcodes: str) -> Callable[[Handler], Handler]:
    """Register a handler for opcodes."""

    def register(handler: Handler) -> Handler:
        for opcode in opcodes:
            HANDLERS[opcode] = handler
        return handler

    return register


def bits_of(register_type: str) -> int:
    """The width of a register: "f32", "s32", "u32" and "b32" are 32, "pred" is 1."""
    if register_type in _BITS:
        return _BITS[register_type]
    return int(register_type.lstrip("bsuf"))


class Emitter:
    """Collects the Python of one kernel's instructions."""

    def __init__(self, kernel: Kernel, crossing: frozenset[str]) -> None:
        self.kernel = kernel
        self.crossing = crossing
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.prologue: dict[str, str] = {}
        self.guarded = False
        self.spins = False  # a wait that its own loop repeats
        # In a run without data, of instructions that are taken together: where this one stands.
        self.run: RunPlace = "alone"
        self._offsets: list[int] = []
        self.needed: frozenset[str] | None = None  # None: all registers
        self.at = 0
        self.current: Instruction | None = None
        self._parameters = {p.name: p for p in kernel.parameters}
        self._counter = 0

    def instruction(self, instruction: Instruction, at: int) -> None:
        """Emit one instruction that is no branch; `at` is its number in the kernel."""
        self.at, self.current = at, instruction
        handler = HANDLERS.get(instruction.opcode)
        if handler is None:
            raise self.unknown("an instruction that the emulator does not know")
        if not has_effect(instruction) and not self.wants(instruction):
            return
        if instruction.guard is None:
            handler(self, instruction)
            return
        guard = self.value(instruction.guard)
        guard = f"~{guard}" if instruction.negated else guard
        outer, self.lines, self.guarded = self.lines, [], True
        handler(self, instruction)
        inner, self.lines, self.guarded = self.lines, outer, False
        self.line(f"outer_mask, mask = mask, mask & {guard}")
        self.line("full = mask == FULL")
        self.line("if mask:")
        self.lines += [f"    {line}" for line in inner or ["pass"]]
        self.line("mask = outer_mask; full = mask == FULL")

    @property
    def sync_only(self) -> bool:
        """Whether data is left out."""
        return self.needed is not None

    def wants(self, instruction: Instruction) -> bool:
        """Whether the protocol depends on what the instruction writes to registers."""
        return self.needed is None or bool(results(instruction) & self.needed)

    def unknown(self, message: str) -> PtxError:
        """An error for the current instruction."""
        assert self.current is not None
        return PtxError(message, self.current.line, shortened(self.current))

    def use(self, name: str, thing: Any) -> str:
        """Make a function or object known to the generated text."""
        self.names[name] = thing
        return name

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append(text)

    def line_of_run(self, function: str, item: str, rest: str) -> None:
        """Call `function(w, items, rest)`: at the end of a run, with what all of it gave."""
        if self.run == "alone":
            self.line(f"{function}(w, [{item}], {rest})")
            return
        self.line(f"run = [{item}]" if self.run == "first" else f"run.append({item})")
        if self.run == "last":
            self.line(f"{function}(w, run, {rest})")

    def line_of_addresses(self, function: str, operand: Operand, rest: str) -> None:
        """Call `function(w, bases, offsets, rest)` at the end of a run of addresses."""
        if not isinstance(operand, Address):
            raise self.unknown("an operand that should be an address")
        if self.run in ("alone", "first"):
            self._offsets = []
        self._offsets.append(operand.offset)
        self.line_of_run(function, self.value(operand.base), f"{tuple(self._offsets)}, {rest}")

    def temporary(self) -> str:
        """A new name."""
        self._counter += 1
        return f"t{self._counter}"

    def name(self, register: Register) -> str:
        """A register's name in the generated text."""
        text = register.name.replace("%", "").replace("$", "_d_").replace(".", "_s")
        return f"R_{text}"

    def value(self, operand: Operand, bits: int = 32) -> str:
        """An expression for a source operand; `bits` is how wide a constant is taken."""
        if isinstance(operand, Register):
            return self.name(operand)
        if isinstance(operand, Immediate):
            if operand.float_bits and operand.float_bits != bits:
                raise self.unknown(f"a constant that is not {bits} bits wide")
            return str(operand.value & ((1 << bits) - 1))
        if isinstance(operand, Symbol):
            return self._symbol(operand.name)
        if isinstance(operand, Vector):
            return f"({''.join(self.value(item, bits) + ', ' for item in operand.items)})"
        raise self.unknown("an operand of a kind that the emulator does not know here")

    def predicate(self, operand: Operand) -> str:
        """An expression for a predicate operand: a mask."""
        if isinstance(operand, Register):
            return self.name(operand)
        if isinstance(operand, Immediate):
            return "FULL" if operand.value else "0"
        raise self.unknown("a predicate of a kind that the emulator does not know")

    def _symbol(self, name: str) -> str:
        if name in self._parameters:
            return str(self._parameters[name].offset)
        if name == "WARP_SZ":
            return "32"
        variable = "S_" + "".join(c if c.isalnum() else "_" for c in name)
        self.prologue[variable] = f"w.symbol({name!r}, {self.current.line if self.current else 0})"
        return variable

    def address(self, operand: Operand, bits: int = 32) -> str:
        """An expression for an address operand."""
        if not isinstance(operand, Address):
            raise self.unknown("an operand that should be an address")
        base = self.value(operand.base, bits)
        if operand.offset == 0:
            return base
        if base.isdigit():
            return str(int(base) + operand.offset)
        add = self.use(f"offset_{bits}", functools.partial(moved, bits))
        low = (1 << bits) - 1
        general = f"{add}({base}, {operand.offset})"
        return self.fast([base], f"{base} + {operand.offset} & {low}", general)

    def fast(self, inputs: Sequence[str], on_ints: str, general: str) -> str:
        """An expression that spares a call where all inputs are ints: most are, and it is slow."""
        names = [each for each in dict.fromkeys(inputs) if each.isidentifier()]
        if not names or not all(each.isidentifier() or each.isdigit() for each in inputs):
            return general
        types = " is ".join(f"type({name})" for name in names)
        return f"({on_ints} if {types} is int else {general})"

    def assign(self, operand: Operand, expression: str) -> None:
        """Write a result: into the active lanes if others may still need the old value."""
        if isinstance(operand, Symbol) and operand.name == "_":
            self.line(expression)
            return
        if isinstance(operand, Vector):
            names = [self.temporary() for _ in operand.items]
            self.line(f"{', '.join(names)}, = {expression}")
            for item, name in zip(operand.items, names, strict=True):
                self.assign(item, name)
            return
        if not isinstance(operand, Register):
            raise self.unknown("a result that goes to no register")
        name = self.name(operand)
        if operand.name not in self.crossing and not self.guarded:
            self.line(f"{name} = {expression}")
        elif operand.type == "pred":
            self.line(f"{name} = {expression} & mask | {name} & ~mask")
        else:
            bits = bits_of(operand.type)
            merge = self.use(f"merge_{bits}", functools.partial(values.merge, bits))
            simple = expression if expression.isidentifier() else self.temporary()
            if simple != expression:
                self.line(f"{simple} = {expression}")
            self.line(f"{name} = {simple} if full else {merge}(mask, {simple}, {name})")

    def assign_pair(self, operand: Operand, expression: str) -> None:
        """Write `d|p`, or `d` alone; the expression gives both."""
        if isinstance(operand, Pair):
            first, second = self.temporary(), self.temporary()
            self.line(f"{first}, {second} = {expression}")
            if not (isinstance(operand.first, Symbol) and operand.first.name == "_"):
                self.assign(operand.first, first)
            self.assign(operand.second, second)
        else:
            self.assign(operand, f"({expression})[0]")

    def kind(self, instruction: Instruction) -> tuple[str, int]:
        """("s", 32) of an instruction's last type."""
        return type_of(instruction.parts[-1], self)


def type_of(part: str, emitter: Emitter) -> tuple[str, int]:
    """("s", 32) of "s32"."""
    letter, digits = part.rstrip("0123456789x"), part.lstrip("bsufe")
    if part == "pred":
        return "pred", 1
    if not digits.isdigit() or letter not in ("b", "s", "u", "f"):
        raise emitter.unknown(f"type .{part}, which the emulator does not know here")
    return letter, int(digits)


def moved(bits: int, base: Any, offset: int) -> Any:
    """An address and an offset, of all lanes."""
    if type(base) is int:
        return (base + offset) & ((1 << bits) - 1)
    if offset < 0:
        return base - base.dtype.type(-offset)
    return base + base.dtype.type(offset)
