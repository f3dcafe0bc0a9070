# SPDX-License-Identifier: Apache-2.0
"""Reads PTX text: `parse` gives typed statements, `flow_of` the basic blocks of a kernel."""

from pipegen.emulator.ptx.flow import Block, Flow, flow_of
from pipegen.emulator.ptx.ir import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Location,
    Module,
    Operand,
    Parameter,
    PtxError,
    Register,
    SharedVariable,
    Symbol,
    Vector,
)
from pipegen.emulator.ptx.parsing import parse
from pipegen.emulator.ptx.writing import write

__all__ = [
    "Address",
    "Block",
    "Flow",
    "Immediate",
    "Instruction",
    "Kernel",
    "Location",
    "Module",
    "Operand",
    "Parameter",
    "PtxError",
    "Register",
    "SharedVariable",
    "Symbol",
    "Vector",
    "flow_of",
    "parse",
    "write",
]
