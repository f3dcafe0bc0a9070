# SPDX-License-Identifier: Apache-2.0
"""A kernel as one Python generator function: what a warp executes.

Registers are the function's local variables, and a basic block is a branch on `pc`. The function
yields where the warp may be suspended. Lanes that part at a branch run one way after the other, and
meet again at the branch's immediate post-dominator; a stack of [join, other pc, other mask, mask
before] keeps the ways not taken yet.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipegen.emulator.findings.cells import Cells
from pipegen.emulator.machine import (  # noqa: F401  (their handlers register themselves)
    async_copies,
    atomics,
    barriers,
    bitwise,
    clusters,
    floating,
    memory,
    scalar,
    tensor_memory,
    warp,
    warp_matrix,
    warp_mma,
    wgmma,
)
from pipegen.emulator.machine.emitting import Emitter
from pipegen.emulator.machine.values import FULL, UNWRITTEN
from pipegen.emulator.ptx import Block, Flow, Kernel, Module, flow_of, parse
from pipegen.emulator.ptx.in_flight import uses_in_flight
from pipegen.emulator.ptx.ir import Instruction, PtxError, Symbol
from pipegen.emulator.ptx.slicing import protocol_registers, runs

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_PREDICATE = "pred"
Stack = list[list[int]]


@dataclass
class Program:
    """A compiled kernel.

    `names` and `instructions` are by instruction number; `lengths` counts the instructions of each
    block; `variables` maps shared variables to offsets; `barriers` is how many mbarriers a CTA may
    have before their clocks are shared; `line_of` maps lines of the Python text to PTX lines;
    `has_flags`: it may order accesses by what it keeps in global memory; `in_flight`: the first use
    of an accumulator that is not waited for.
    """

    kernel: Kernel
    module: Module
    instructions: list[Instruction]
    names: list[str]
    lengths: list[int]
    variables: dict[str, int]
    static_bytes: int
    local_bytes: int
    barriers: int
    text: str
    function: Callable[["Warp"], Iterator[None]]
    line_of: dict[int, int]
    has_flags: bool
    in_flight: list[int]
    cells: dict[tuple[str, int], Cells] = field(default_factory=dict)

    def static_smem(self, dynamic: int) -> int:
        """Bytes of shared memory of a CTA, static and dynamic."""
        return self.static_bytes + dynamic


@functools.lru_cache(maxsize=16)
def program_of(ptx: str, name: str, sync_only: bool = False) -> Program:
    """Compile a kernel. Raises PtxError for what the emulator does not know, before it runs."""
    module = parse(ptx)
    kernel = module.kernel(name)
    flow = flow_of(kernel)
    emitter = Emitter(kernel, flow.crossing)
    emitter.needed = protocol_registers(kernel) if sync_only else None
    instructions: list[Instruction] = []
    blocks = [_block(emitter, flow, block, instructions) for block in flow.blocks]
    variables, static = _layout(module, kernel)
    local = _local_layout(kernel, variables)
    text, line_of = _assemble(emitter, flow, blocks)
    names = {
        **emitter.names,
        "FULL": FULL,
        "UNWRITTEN": UNWRITTEN,
        "rejoin": rejoin,
        "leave": leave,
        "part": part,
    }
    names["turn"] = turn
    exec(compile(text, f"<ptx {name[:40]}>", "exec"), names)
    inits = sum(i.parts[:2] == ("mbarrier", "init") for i in instructions)
    return Program(
        kernel=kernel,
        module=module,
        instructions=instructions,
        names=[i.name for i in instructions],
        lengths=[len(block.instructions) for block in flow.blocks],
        variables=variables,
        static_bytes=static,
        local_bytes=local,
        barriers=max(16, 2 * inits),
        text=text,
        function=names["kernel"],
        line_of=line_of,
        in_flight=[instructions.index(use) for use in uses_in_flight(flow)[:1]],
        has_flags=any(map(_is_flag, instructions)),
    )


def _is_flag(instruction: Instruction) -> bool:
    """Whether it may be of a flag or a counter, by which threads order other accesses."""
    if instruction.opcode in ("atom", "red"):
        return True
    strong = {"acquire", "release", "relaxed", "volatile"} & set(instruction.parts)
    return bool(strong) and instruction.opcode in ("ld", "st") and "global" in instruction.parts


def _layout(module: Module, kernel: Kernel) -> tuple[dict[str, int], int]:
    """Offsets of shared variables; the dynamic one comes last."""
    variables: dict[str, int] = {}
    offset = 0
    shared = (*module.shared, *kernel.shared)
    for variable in sorted(shared, key=lambda v: v.bytes == 0):
        offset = -(-offset // variable.align) * variable.align
        variables[variable.name] = offset
        offset += variable.bytes
    return variables, offset


def _local_layout(kernel: Kernel, variables: dict[str, int]) -> int:
    offset = 0
    for variable in kernel.local:
        offset = -(-offset // variable.align) * variable.align
        if offset:
            raise PtxError("more than one .local variable, which the emulator does not know")
        offset += variable.bytes
    return offset


Lines = list[tuple[str, int]]  # (text, PTX line)


def _block(emitter: Emitter, flow: Flow, block: Block, instructions: list[Instruction]) -> Lines:
    lines: Lines = []
    together = runs(block.instructions) if emitter.sync_only else {}
    for number, instruction in enumerate(block.instructions):
        emitter.run = together.get(number, "alone")
        at = len(instructions)
        instructions.append(instruction)
        emitter.lines = []
        emitter.at, emitter.current = at, instruction
        if instruction.opcode == "bra":
            _branch(emitter, block, instruction)
        elif instruction.opcode in ("ret", "exit"):
            _exit(emitter, block, instruction)
        elif instruction.opcode == "trap":
            raise emitter.unknown("trap, which the emulator does not know")
        else:
            emitter.spins = _spins(flow, block, instruction)
            emitter.instruction(instruction, at)
        lines += [(line, instruction.line) for line in emitter.lines]
    last = block.instructions[-1] if block.instructions else None
    if last is None or last.opcode not in ("bra", "ret", "exit"):
        lines.append((f"pc = {block.next[0]}", last.line if last else 0))
        if block.next[0] < 0:
            lines.append(("return", last.line if last else 0))
    return lines


def _branch(c: Emitter, block: Block, instruction: Instruction) -> None:
    if instruction.guard is None:
        c.line(f"pc = {block.next[0]}")
        return
    there, here = block.next
    guard = c.value(instruction.guard)
    chosen = f"mask & ~{guard}" if instruction.negated else f"{guard} & mask"
    c.line(f"taken = {chosen}")
    c.line(f"if taken == mask: pc = {there}")
    c.line(f"elif taken == 0: pc = {here}")
    c.line(
        f"else: pc, mask = part(stack, {block.join}, {there}, {here}, taken, mask); full = False"
    )


def _exit(c: Emitter, block: Block, instruction: Instruction) -> None:
    if instruction.guard is None:
        c.line("pc, mask = leave(w, stack, mask)")
    else:
        guard = c.value(instruction.guard)
        c.line(f"taken = mask & ~{guard}" if instruction.negated else f"taken = {guard} & mask")
        c.line(f"pc = {block.next[1]}")
        c.line("if taken == mask: pc, mask = leave(w, stack, mask)")
        c.line("elif taken: w.exited |= taken; mask &= ~taken")
    c.line("if mask == 0: return")
    c.line("full = mask == FULL")


def _spins(flow: Flow, block: Block, instruction: Instruction) -> bool:
    """Whether a wait is the loop `again: wait p; @p bra done; bra again`, or `@!p bra again`."""
    if instruction.parts[:2] not in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
        return False
    if len(block.instructions) < 2 or block.instructions[-2] is not instruction:
        return False
    last = block.instructions[-1]
    if last.opcode != "bra" or last.guard != instruction.operands[0]:
        return False
    if block.instructions[0] is not instruction or isinstance(last.guard, Symbol):
        return False
    there, here = block.next
    failed = there if last.negated else here
    if failed == block.index:
        return True
    if failed < 0:
        return False
    again = flow.blocks[failed]
    return [i.opcode for i in again.instructions] == ["bra"] and again.next == (block.index,)


def part(stack: Stack, join: int, there: int, here: int, taken: int, mask: int) -> tuple[int, int]:
    """Lanes part: some go on, the others wait on the stack.

    The fewer go first. Where compilers let the lanes that are not elected walk a way of their own,
    they wait on it for what the elected lane issues; threads of a warp progress independently.
    """
    rest = mask & ~taken
    if rest.bit_count() < taken.bit_count():
        stack.append([join, there, taken, mask, False])
        return here, rest
    stack.append([join, here, rest, mask, False])
    return there, taken


def turn(stack: Stack, pc: int, mask: int) -> tuple[int, int] | None:
    """Before a wait, the lanes that took the other way come first, up to their next wait.

    Both ways may wait for the same phases, one of them only to keep step: it must not fall behind
    by more than a wait, or the barrier passes a second phase before it looks. None for the lanes
    whose turn it is.
    """
    top = stack[-1]
    top[4] = not top[4]
    if not top[4]:
        return None
    other = top[1], top[2]
    top[1], top[2] = pc, mask
    return other


def rejoin(w: "Warp", stack: Stack) -> tuple[int, int]:
    """Lanes have come to their join: the others' turn, or all together again."""
    top = stack[-1]
    others = top[2] & ~w.exited
    if others:
        top[2] = 0
        return top[1], others
    stack.pop()
    return top[0], top[3] & ~w.exited


def leave(w: "Warp", stack: Stack, mask: int) -> tuple[int, int]:
    """Lanes have ended: those that still wait on the stack go on. Mask 0 if there are none."""
    w.exited |= mask
    while stack:
        top = stack[-1]
        others = top[2] & ~w.exited
        if others:
            top[2] = 0
            return top[1], others
        stack.pop()
        others = top[3] & ~w.exited
        if others:
            return top[0], others
    return 0, 0


def _assemble(c: Emitter, flow: Flow, blocks: list[Lines]) -> tuple[str, dict[int, int]]:
    crossing = {r.name: r for r in c.kernel.registers if r.name in flow.crossing}
    out: Lines = [("def kernel(w):", 0)]
    body: Lines = [("mask = w.mask", 0), ("full = mask == FULL", 0), ("stack = []", 0)]
    body += [(f"{name} = {text}", 0) for name, text in c.prologue.items()]
    for register in crossing.values():
        start = "0" if register.type == _PREDICATE else "UNWRITTEN"
        body.append((f"{c.name(register)} = {start}", 0))
    for register in c.kernel.registers:
        if register.name not in flow.crossing:
            start = "0" if register.type == _PREDICATE else "UNWRITTEN"
            body.append((f"{c.name(register)} = {start}", 0))
    body += [("visits = w.visits", 0), ("pc = 0", 0), ("yield", 0), ("while True:", 0)]
    out += [(f"    {text}", line) for text, line in body]
    loop = [
        ("while stack and pc == stack[-1][0]:", 0),
        ("    pc, mask = rejoin(w, stack)", 0),
        ("    full = mask == FULL", 0),
        ("visits[pc] += 1", 0),
    ]
    out += [(f"        {text}", line) for text, line in loop]
    _dispatch(out, blocks, 0, len(blocks), 2)
    text = "\n".join(line for line, _ in out) + "\n"
    return text, {number: line for number, (_, line) in enumerate(out, 1) if line}


def _dispatch(out: Lines, blocks: list[Lines], start: int, end: int, depth: int) -> None:
    """A binary tree of comparisons that leads to the block of `pc`."""
    indent = "    " * depth
    if end - start == 1:
        out += [(indent + text, line) for text, line in blocks[start] or [("pass", 0)]]
        return
    middle = (start + end) // 2
    out.append((f"{indent}if pc < {middle}:", 0))
    _dispatch(out, blocks, start, middle, depth + 1)
    out.append((f"{indent}else:", 0))
    _dispatch(out, blocks, middle, end, depth + 1)
