# SPDX-License-Identifier: Apache-2.0
"""A row statistic needs rows of A that lie together in SMEM, in a type that threads convert.

What it checks
    For op = "gemm_rowsum": layout.a = "k", and dtype.a and dtype.b of 16 bits.

Why
    The tensor core takes A either way, but here threads read the same tile, each the row of one m,
    16 bytes at a time. Stored M-major, 16 bytes hold eight rows, and every thread would need a part
    of each. fp8 elements take more instructions each to convert, and a stage has twice as many; no
    template does it yet.

Example
    layout.a = "m".

Use instead
    A stored (L, M, K); bf16 or f16.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.vocabulary import DTYPE


def check(description: KernelDescription) -> Iterator[Problem]:
    if description.layout.a != "k":
        yield Problem(
            "each thread reads a row of A, 16 bytes at a time, so rows must be contiguous",
            "layout.a",
            description.layout.a,
            '"k"',
            '"k"',
        )
    if DTYPE[description.dtype.a].bits == 8:
        yield Problem(
            "the threads that add up the rows of A convert 16-bit elements only",
            "dtype.a",
            description.dtype.a,
            '"bf16", "f16"',
            '"bf16"',
        )
