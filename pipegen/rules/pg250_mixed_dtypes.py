# SPDX-License-Identifier: Apache-2.0
"""A mixed GEMM multiplies 16-bit activations by integer weights.

What it checks
    dtype.a: "bf16" or "f16". dtype.b: "i8", or "i4" (two a byte, the lower bits first).
    dtype.acc: "f32". dtype.out: "f32", "bf16" or "f16".

Why
    The weights become A's type before the tensor core sees them: eight bits fit a bf16 exactly,
    and two instructions' worth of bit tricks make them. Other pairs need another conversion.

Example
    op = "mixed_gemm" with b = "e4m3".

Use instead
    op = "gemm" where both operands have types that the tensor core multiplies as they are.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing

ACTIVATIONS = ("bf16", "f16")
WEIGHTS = ("i8", "i4")
OUTPUTS = ("f32", "bf16", "f16")


def check(description: KernelDescription) -> Iterator[Problem]:
    dtype = description.dtype
    for key, words, message in (
        ("acc", ("f32",), "16-bit products are summed as f32"),
        ("a", ACTIVATIONS, "the activations of a mixed GEMM are 16-bit floats"),
        ("b", WEIGHTS, "the weights of a mixed GEMM are integers"),
        ("out", OUTPUTS, "the epilogue stores no such type"),
    ):
        value = getattr(dtype, key)
        if value not in words:
            yield Problem(
                message,
                f"dtype.{key}",
                value,
                listing(f'"{word}"' for word in words),
                f'"{"bf16" if key == "out" else words[0]}"',
            )
    if dtype.promote_every:
        yield Problem(
            "nothing to promote: 16-bit products are summed in f32",
            "dtype.promote_every",
            dtype.promote_every,
            '"auto" or 0',
            "0",
        )
