# SPDX-License-Identifier: Apache-2.0
"""Registers of wgmma that are used before the wait for it (PTX ISA, "wgmma.wait_group").

The accumulators of a wgmma belong to it from its issue to the wait; so do the registers of its A
fragment, but only for writing. This looks at the text, not at a run: at all ways through it.
"""

from pipegen.emulator.ptx.flow import Flow, results, sources
from pipegen.emulator.ptx.ir import Immediate, Instruction

_EXEMPT = ("mov", "wgmma")


def uses_in_flight(flow: Flow) -> list[Instruction]:
    """The instructions that read an accumulator which may still be under way, in their order."""
    accumulators = {
        frozenset(results(i))
        for block in flow.blocks
        for i in block.instructions
        if i.parts[:2] == ("wgmma", "mma_async")
    }
    if not accumulators:
        return []
    # With one set of accumulators the newest group, which a wait may leave, always has them.
    alone = len(accumulators) == 1
    entry: list[frozenset[str]] = [frozenset() for _ in flow.blocks]
    waiting = [0]
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        seen.add(number)
        left, _ = _through(flow.blocks[number].instructions, entry[number], alone)
        for following in flow.blocks[number].next:
            if following >= 0 and (following not in seen or not left <= entry[following]):
                entry[following] |= left
                waiting.append(following)
    found: list[Instruction] = []
    for number, block in enumerate(flow.blocks):
        found += _through(block.instructions, entry[number], alone)[1]
    return found


def _through(
    instructions: list[Instruction], before: frozenset[str], alone: bool
) -> tuple[frozenset[str], list[Instruction]]:
    """(what is in flight after the block, the uses in it)."""
    flying = set(before)
    uses: list[Instruction] = []
    for instruction in instructions:
        if instruction.parts[:2] == ("wgmma", "mma_async"):
            flying |= results(instruction)
        elif instruction.parts[:2] == ("wgmma", "wait_group"):
            count = instruction.operands[0]
            if not alone or (isinstance(count, Immediate) and count.value == 0):
                flying.clear()
        elif instruction.opcode not in _EXEMPT and flying & sources(instruction):
            uses.append(instruction)
        if instruction.opcode != "wgmma":
            flying -= results(instruction)
    return frozenset(flying), uses
