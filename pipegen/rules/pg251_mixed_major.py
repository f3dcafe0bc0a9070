# SPDX-License-Identifier: Apache-2.0
"""The operands of a mixed GEMM are K-major.

What it checks
    layout.a and layout.b: "k".

Why
    A thread converts weights that lie side by side along K, two at a time, because that is how the
    tensor core wants them in a register (PTX ISA, "wgmma.mma_async", fragments of A) or in a TMEM
    lane. N-major weights would have to be transposed byte by byte.

Example
    layout.b = "n".

Use instead
    Weights stored (N, K), as torch.nn.Linear has them: transpose once, when they are quantized.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem


def check(description: KernelDescription) -> Iterator[Problem]:
    for operand, shape in (("a", "(L, M, K)"), ("b", "(L, N, K)")):
        major = getattr(description.layout, operand)
        if major != "k":
            yield Problem(
                f"a mixed GEMM reads {operand.upper()} stored {shape}",
                f"layout.{operand}",
                major,
                '"k"',
                '"k"',
            )
