# SPDX-License-Identifier: Apache-2.0
"""The control flow of a kernel: basic blocks, what is live, where branches come together again."""

from dataclasses import dataclass, field

from pipegen.emulator.ptx.ir import (
    Address,
    Instruction,
    Kernel,
    Label,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Vector,
)

EXIT = -1
# Instructions whose first operand is read, not written.
_NO_RESULT = frozenset(
    (
        "st",
        "stmatrix",
        "red",
        "bra",
        "ret",
        "exit",
        "trap",
        "bar",
        "barrier",
        "fence",
        "membar",
        "prefetch",
        "setmaxnreg",
        "griddepcontrol",
        "nanosleep",
        "discard",
        "applypriority",
    )
)
_RESULT_OF = frozenset(
    ("arrive", "arrive_drop", "test_wait", "try_wait", "ld", "mma_async", "query_cancel")
)


@dataclass
class Block:
    """Instructions that run one after the other. `next` holds successors, EXIT is the end.

    A block that ends in a conditional branch has `next` = (where it branches to, the following
    block). `join` is the immediate post-dominator: where the two ways meet.
    """

    index: int
    instructions: list[Instruction] = field(default_factory=list)
    next: tuple[int, ...] = ()
    join: int = EXIT
    live_in: frozenset[str] = frozenset()


@dataclass
class Flow:
    """Blocks in the order of the text, and the registers that live across blocks."""

    blocks: list[Block]
    crossing: frozenset[str]


def flow_of(kernel: Kernel) -> Flow:
    """Cut the kernel into blocks. Raises PtxError for a branch to nowhere."""
    blocks, labels = _cut(kernel)
    for block in blocks:
        block.next = _successors(block, labels, len(blocks))
    _joins(blocks)
    return Flow(blocks, _liveness(blocks))


def _cut(kernel: Kernel) -> tuple[list[Block], dict[str, int]]:
    blocks = [Block(0)]
    labels: dict[str, int] = {}
    for item in kernel.body:
        current = blocks[-1]
        ended = bool(current.instructions) and ends_block(current.instructions[-1])
        if ended or (isinstance(item, Label) and current.instructions):
            current = Block(len(blocks))
            blocks.append(current)
        if isinstance(item, Label):
            labels[item.name] = current.index
        else:
            current.instructions.append(item)
    return blocks, labels


def ends_block(instruction: Instruction) -> bool:
    """Whether control may go elsewhere after it."""
    return instruction.opcode in ("bra", "ret", "exit", "trap")


def _successors(block: Block, labels: dict[str, int], count: int) -> tuple[int, ...]:
    following = block.index + 1 if block.index + 1 < count else EXIT
    if not block.instructions:
        return (following,)
    last = block.instructions[-1]
    if last.opcode == "bra":
        target = last.operands[0]
        if not isinstance(target, Symbol) or target.name not in labels:
            raise PtxError("a branch to no label", last.line)
        there = labels[target.name]
        return (there,) if last.guard is None else (there, following)
    if last.opcode in ("ret", "exit", "trap"):
        return (EXIT,) if last.guard is None else (EXIT, following)
    return (following,)


def _joins(blocks: list[Block]) -> None:
    """Immediate post-dominators, by the iterative method on the reversed graph."""
    everything = set(range(len(blocks))) | {EXIT}
    after: list[set[int]] = [set(everything) for _ in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            sets = [{EXIT} if n == EXIT else after[n] for n in block.next]
            new = set.intersection(*sets) | {block.index}
            if new != after[block.index]:
                after[block.index] = new
                changed = True
    for block in blocks:
        strict = after[block.index] - {block.index}
        # The nearest one is post-dominated by all others.
        block.join = max(
            strict, key=lambda n: 0 if n == EXIT else len(after[n] & strict), default=EXIT
        )


def _liveness(blocks: list[Block]) -> frozenset[str]:
    reads: list[set[str]] = []
    writes: list[set[str]] = []
    for block in blocks:
        read: set[str] = set()
        written: set[str] = set()
        for instruction in block.instructions:
            read |= sources(instruction) - written
            if instruction.guard is None:
                written |= results(instruction)
            else:
                # What a guarded instruction leaves alone must have come from before.
                read |= results(instruction) - written
        reads.append(read)
        writes.append(written)
    live: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out: set[str] = set()
            for n in block.next:
                if n != EXIT:
                    out |= live[n]
            new = reads[block.index] | (out - writes[block.index])
            if new != live[block.index]:
                live[block.index] = new
                changed = True
    for block in blocks:
        block.live_in = frozenset(live[block.index])
    return frozenset(set().union(*live)) if live else frozenset()


def names_in(operand: Operand) -> set[str]:
    """The registers that an operand holds."""
    if isinstance(operand, Register):
        return {operand.name}
    if isinstance(operand, Vector):
        return set().union(*map(names_in, operand.items))
    if isinstance(operand, Address):
        return names_in(operand.base).union(*map(names_in, operand.rest))
    if isinstance(operand, Pair):
        return names_in(operand.first) | names_in(operand.second)
    return set()


def _result_count(instruction: Instruction) -> int:
    """How many of the first operands are written."""
    if not instruction.operands or isinstance(instruction.operands[0], Address):
        return 0
    opcode, parts = instruction.opcode, instruction.parts
    if opcode in _NO_RESULT:
        return 0
    if opcode in ("wgmma", "mbarrier", "tcgen05", "clusterlaunchcontrol"):
        return 1 if parts[1] in _RESULT_OF else 0
    if opcode == "cp":
        return 0
    return 1


def results(instruction: Instruction) -> set[str]:
    """The registers that an instruction writes."""
    found: set[str] = set()
    for operand in instruction.operands[: _result_count(instruction)]:
        found |= names_in(operand)
    return found


def sources(instruction: Instruction) -> set[str]:
    """The registers that an instruction reads, its guard included."""
    count = _result_count(instruction)
    found = {instruction.guard.name} if instruction.guard is not None else set()
    for operand in instruction.operands[count:]:
        found |= names_in(operand)
    if instruction.parts[:2] == ("wgmma", "mma_async"):
        found |= results(instruction)  # the accumulator is read as well
    return found
