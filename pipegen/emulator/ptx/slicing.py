# SPDX-License-Identifier: Apache-2.0
"""Which registers of a kernel its protocol depends on: branches, addresses, barriers, descriptors.

What only flows into stored data or into matrix products may be left out when the protocol alone is
of interest.
"""

from pipegen.emulator.ptx.flow import names_in, results, sources
from pipegen.emulator.ptx.ir import Instruction, Kernel, Register

# Instructions that do something besides writing registers.
_EFFECTS = frozenset(
    (
        *("st", "stmatrix", "ld", "ldu", "ldmatrix", "cp", "mbarrier", "bar", "barrier", "wgmma"),
        *("tcgen05", "atom", "red", "fence", "membar", "setmaxnreg", "griddepcontrol", "nanosleep"),
        *("bra", "ret", "exit", "trap"),
    )
)


def has_effect(instruction: Instruction) -> bool:
    """Whether it must be executed even if nobody needs the registers that it writes."""
    if instruction.opcode == "clusterlaunchcontrol":
        return instruction.parts[1] == "try_cancel"
    return instruction.opcode in _EFFECTS


def protocol_registers(kernel: Kernel) -> frozenset[str]:
    """The registers that decide what happens when, and where."""
    needed: set[str] = set()
    pure: list[Instruction] = []
    for instruction in kernel.instructions:
        if instruction.guard is not None:
            needed.add(instruction.guard.name)
        if has_effect(instruction):
            needed |= _decisive(instruction)
        else:
            pure.append(instruction)
    while True:
        before = len(needed)
        for instruction in reversed(pure):
            if results(instruction) & needed:
                needed |= sources(instruction)
        if len(needed) == before:
            return frozenset(needed)


def _decisive(instruction: Instruction) -> set[str]:
    """The sources of an instruction with an effect, without the data that it moves."""
    opcode, parts, operands = instruction.opcode, instruction.parts, instruction.operands
    if opcode in ("st", "stmatrix") or parts[:2] == ("tcgen05", "st"):
        return names_in(operands[0])
    if parts[:2] == ("wgmma", "mma_async"):
        fragment = operands[1] if isinstance(operands[1], Register) else operands[2]
        return names_in(fragment) | names_in(operands[2]) | names_in(operands[3])
    return sources(instruction)
