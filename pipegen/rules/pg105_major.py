# SPDX-License-Identifier: Apache-2.0
"""An operand that is not of 16 bits must be K-major.

What it checks
    layout.a and layout.b for fp8, i8 and f32 operands.

Why
    wgmma reads MN-major operands from SMEM for 16-bit types only: the transpose bits of the
    instruction exist for f16 and bf16 (PTX ISA, "wgmma.mma_async", imm-trans-a and imm-trans-b).
    tcgen05.mma reads fp8 either way, but no template for it does yet.

Example
    dtype.b = "e4m3" with layout.b = "n".

Use instead
    layout "k": store B as (N, K). Transpose once, ahead of the kernel.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.vocabulary import DTYPE


def check(description: KernelDescription) -> Iterator[Problem]:
    hopper = description.kernel.arch == "sm_90a"
    reader = "wgmma" if hopper else "the tcgen05 template"
    for operand, shape in (("a", "(L, M, K)"), ("b", "(L, N, K)")):
        dtype, major = getattr(description.dtype, operand), getattr(description.layout, operand)
        if DTYPE[dtype].bits != 16 and major != "k":
            yield Problem(
                f"{reader} reads {dtype} operands K-major only, so {operand.upper()} must be "
                f"stored {shape}",
                f"layout.{operand}",
                major,
                '"k"',
                '"k"',
            )
