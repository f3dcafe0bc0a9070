# SPDX-License-Identifier: Apache-2.0
"""A thread that copies must be able to hold the addresses of its rows.

What it checks
    For loads by cp.async: role.producer.registers, if given, against two for each row that falls to
    a thread, and 40 for the rest.

Why
    A thread copies 16 bytes of each of 24 rows (128 x 256, 16-byte copies), 48 rows with smaller
    copies. Computing 24 addresses anew for each K tile would slow the producer down, and what does
    not fit into its registers is spilled, with the same result, silently.

Example
    registers = 40, enough for a warp that issues TMA loads.

Use instead
    Leave registers out: pipegen fills in what is needed, and the rest goes to the consumers.
"""

from collections.abc import Iterator

from pipegen.arithmetic import row_copies
from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.vocabulary import DTYPE

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    tile, producer = description.tile, description.role.get("producer")
    if producer is None or producer.registers is None or not tile.m or not tile.n:
        return
    bits = DTYPE[description.dtype.a].bits
    copies = row_copies((tile.m, tile.n), bits, description.layout.alignment)
    if producer.registers >= copies.registers:
        return
    rows = copies.a_rows + copies.b_rows
    yield Problem(
        f"a thread copies from {rows} rows of a stage, whose addresses take {2 * rows} registers",
        "role.producer.registers",
        producer.registers,
        f"at least {copies.registers}",
        str(copies.registers),
    )
