# SPDX-License-Identifier: Apache-2.0
"""Writes instructions back as PTX: for messages, and to check the parser by a round trip."""

from pipegen.emulator.ptx.ir import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)


def write(instruction: Instruction) -> str:
    """The instruction as one line of PTX, without its semicolon."""
    guard = ""
    if instruction.guard is not None:
        guard = f"@{'!' if instruction.negated else ''}{instruction.guard.name} "
    operands = ", ".join(map(operand_text, instruction.operands))
    return f"{guard}{instruction.name} {operands}".rstrip()


def shortened(instruction: Instruction, width: int = 100) -> str:
    """The instruction for a message: long operand lists are cut."""
    text = write(instruction)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def operand_text(operand: Operand) -> str:
    """One operand as PTX."""
    if isinstance(operand, Register | Symbol):
        return operand.name
    if isinstance(operand, Immediate):
        if operand.float_bits:
            letter, digits = ("f", 8) if operand.float_bits == 32 else ("d", 16)
            return f"0{letter}{operand.value:0{digits}X}"
        return str(operand.value)
    if isinstance(operand, Vector):
        return f"{{{', '.join(map(operand_text, operand.items))}}}"
    if isinstance(operand, Pair):
        return f"{operand_text(operand.first)}|{operand_text(operand.second)}"
    offset = f"{operand.offset:+d}" if operand.offset else ""
    rest = "".join(f", {operand_text(item)}" for item in operand.rest)
    return f"[{operand_text(operand.base)}{offset}{rest}]"


__all__ = ["Address", "operand_text", "shortened", "write"]
