# SPDX-License-Identifier: Apache-2.0
"""A stream or reduce kernel must have element types that threads convert to f32 and back.

What it checks
    dtype.a (x), dtype.b (y, or the weight) and dtype.out.

Why
    The arithmetic is f32 in registers. For bf16, f16 and f32 one element is at least two bytes, the
    least that a thread can store by itself at the edge of the matrix.

Example
    out = "e4m3" with op = "stream".

Use instead
    bf16, f16 or f32, in any mix.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing

STREAM_TYPES = ("bf16", "f16", "f32")


def check(description: KernelDescription) -> Iterator[Problem]:
    for key in ("a", "b", "out"):
        value = getattr(description.dtype, key)
        inherited = key != "a" and value == description.dtype.a
        if value not in STREAM_TYPES and not inherited:
            yield Problem(
                f"the {description.kernel.op} kernels have no such element type",
                f"dtype.{key}",
                value,
                listing(f'"{word}"' for word in STREAM_TYPES),
                '"bf16"',
            )
