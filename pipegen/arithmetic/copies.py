# SPDX-License-Identifier: Apache-2.0
"""How threads copy operand tiles with cp.async into stages that wgmma reads."""

from dataclasses import dataclass

from pipegen.arithmetic.sizes import align_up
from pipegen.hardware import SETMAXNREG_STEP, SWIZZLE_BYTES, WARPGROUP

SWIZZLE_ROWS = 8  # the 128-byte swizzle repeats after so many rows (PTX, "wgmma", swizzling modes)
# Registers beside the rows' addresses: ptxas takes 85 in all with 24 rows, 121 with 48.
COPY_OVERHEAD = 40


@dataclass(frozen=True)
class RowCopies:
    """What a producer thread copies of one stage, whose rows are 128 bytes of K.

    `threads_per_row` stand side by side; the warpgroup covers `rows_per_pass` rows at a time, so
    that `a_rows` and `b_rows` rows of the tiles fall to a thread, with `copies_per_row` in each.
    """

    elements: int
    threads_per_row: int
    rows_per_pass: int
    a_rows: int
    b_rows: int
    copies_per_row: int

    @property
    def copies(self) -> int:
        """cp.async instructions of a thread in a stage."""
        return (self.a_rows + self.b_rows) * self.copies_per_row

    @property
    def registers(self) -> int:
        """Registers that a thread needs: two for the address of each row, and the rest."""
        return align_up(2 * (self.a_rows + self.b_rows) + COPY_OVERHEAD, SETMAXNREG_STEP)


def row_copies(tile_mn: tuple[int, int], element_bits: int, copy_bytes: int) -> RowCopies:
    """The work of one of 128 threads, for copies of 16, 8 or 4 bytes (PTX, "cp.async").

    A pass covers at least 8 rows: then all rows of a thread are swizzled alike, and their places
    in SMEM differ by constants. Threads with 4-byte copies make up for it with two in a row.
    """
    pieces = SWIZZLE_BYTES // copy_bytes
    threads_per_row = min(pieces, WARPGROUP // SWIZZLE_ROWS)
    rows_per_pass = WARPGROUP // threads_per_row
    m, n = tile_mn
    return RowCopies(
        elements=copy_bytes * 8 // element_bits,
        threads_per_row=threads_per_row,
        rows_per_pass=rows_per_pass,
        a_rows=m // rows_per_pass,
        b_rows=n // rows_per_pass,
        copies_per_row=pieces // threads_per_row,
    )
