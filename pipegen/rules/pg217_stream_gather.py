# SPDX-License-Identifier: Apache-2.0
"""A stream kernel that gathers rows must have one input.

What it checks
    layout.gather with stream.y.

Why
    out[i] = f(x[index[i]]) leaves open whether the index holds for y too. No template decides it.

Example
    gather = true with y = "matrix".

Use instead
    y = "none"; or a gather into a matrix, and f(x, y) of that.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem


def check(description: KernelDescription) -> Iterator[Problem]:
    if description.layout.gather and description.stream.y != "none":
        why = "the index names rows of x, and says nothing about y"
        yield Problem(why, "layout.gather", True, "false", "false")
