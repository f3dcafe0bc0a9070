# SPDX-License-Identifier: Apache-2.0
"""Which registers of a kernel its protocol depends on: branches, addresses, barriers, descriptors.

What only flows into stored data or into matrix products may be left out when the protocol alone is
of interest.
"""

from collections.abc import Sequence
from typing import Literal

from pipegen.emulator.ptx.flow import names_in, results, sources
from pipegen.emulator.ptx.ir import Instruction, Kernel, Register

RunPlace = Literal["alone", "first", "middle", "last"]
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


def runs(instructions: Sequence[Instruction]) -> dict[int, RunPlace]:
    """Accesses of a block that may be noted together: number -> "first", "middle" or "last".

    Those of one kind with only instructions without an effect between them. Nothing that orders
    comes in between, and so all of them meet the same others.
    """
    found: dict[int, RunPlace] = {}
    run: list[int] = []
    kind: tuple[str, ...] = ()
    for number, instruction in enumerate(instructions):
        this = _run_kind(instruction)
        if not this and not has_effect(instruction):
            continue
        if this != kind:
            _close(run, found)
            run, kind = [], this
        if this:
            run.append(number)
    _close(run, found)
    return found


def _run_kind(instruction: Instruction) -> tuple[str, ...]:
    """What may stand in one run has the same kind; () for what may stand in none."""
    parts = instruction.parts
    if instruction.guard is not None:
        return ()
    if parts[:2] == ("wgmma", "mma_async"):
        return parts[:2]
    if parts[:2] == ("cp", "async") and parts[2] in ("ca", "cg"):
        return parts[:2] + tuple(map(str, instruction.operands[2:3]))
    if "async" in parts:
        return ()
    if parts[0] in ("st", "stmatrix") and any(part.startswith("shared") for part in parts):
        return parts
    return parts[:2] if parts[:2] == ("tcgen05", "mma") else ()


def _close(run: list[int], found: dict[int, RunPlace]) -> None:
    if len(run) > 1:
        for number in run:
            found[number] = "middle"
        found[run[0]], found[run[-1]] = "first", "last"


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
        # Of st.async the barrier counts as well.
        return names_in(operands[0]).union(*map(names_in, operands[2:]))
    if parts[:2] == ("cp", "async") and parts[2] in ("ca", "cg"):
        return names_in(operands[0]) | names_in(operands[2]) | _guard(instruction)
    if parts[:2] == ("wgmma", "mma_async"):
        fragment = operands[1] if isinstance(operands[1], Register) else operands[2]
        return names_in(fragment) | names_in(operands[2]) | names_in(operands[3])
    if parts[:2] == ("tcgen05", "mma"):
        # Which lanes are left out, and whether it accumulates, are data.
        places = operands[:4]
        return set().union(*map(names_in, places)) | _guard(instruction)
    return sources(instruction)


def _guard(instruction: Instruction) -> set[str]:
    return set() if instruction.guard is None else {instruction.guard.name}
