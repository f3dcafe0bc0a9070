# SPDX-License-Identifier: Apache-2.0
"""Promotion is for fp8 operands, in a template that has it.

What it checks
    dtype.promote_every: 0, or 1 to 64 for fp8 operands and backend "cute" on sm_90a; and that a
    Pallas kernel with fp8 operands, which has no promotion, does not promise an f32 output.

Why
    wgmma adds fp8 products with about 14 bits; a second f32 accumulator that takes over the sum
    every few K tiles keeps the error where an f32 output deserves it. For 16-bit operands wgmma
    accumulates in f32, and promotion would cost registers for nothing. On sm_100a the accumulator
    is in TMEM, and no template promotes.

Example
    a = "bf16" with promote_every = 4.

Use instead
    promote_every = "auto".
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.vocabulary import DTYPE

MOST = 64


def check(description: KernelDescription) -> Iterator[Problem]:
    dtype, backend = description.dtype, description.kernel.backend
    fp8 = DTYPE[dtype.a].fp8
    every = dtype.promote_every
    short = description.kernel.arch == "sm_90a"  # tcgen05 adds up in f32
    if backend != "cute" and short and fp8 and dtype.out == "f32":
        yield Problem(
            f"an fp8 GEMM with f32 output needs promotion, which no {backend} template has yet",
            "dtype.out",
            dtype.out,
            '"bf16", "f16"',
            '"bf16"',
        )
    promotes = backend == "cute" and description.kernel.arch == "sm_90a"
    most = MOST if fp8 and promotes else 0
    if every == "auto" or 0 <= every <= most:
        return
    yield Problem(
        f"there are 0 to {MOST} K tiles between promotions" if most else "nothing to promote here",
        "dtype.promote_every",
        every,
        f'"auto" or 0 to {most}' if most else '"auto" or 0',
        str(min(most, max(0, every))),
    )
