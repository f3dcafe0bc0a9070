# SPDX-License-Identifier: Apache-2.0
"""In a Task Scheduling stream, x and y must have one type: they share a ring.

What it checks
    dtype.b with stream.y = "matrix": that of x.

Why
    A stage is loaded with a tile of x or with one of y, as the schedule says: its barrier is armed
    with the same bytes for either (TmaAsync has one num_bytes for all stages).

Example
    a = "bf16", b = "f32".

Use instead
    The type of x, or backend = "cute", where each has a place of its own in a stage.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    dtype = description.dtype
    if description.stream.y == "matrix" and dtype.b != dtype.a:
        why = "tiles of x and of y are loaded into one ring, whose stages hold as many bytes each"
        yield Problem(why, "dtype.b", dtype.b, f'"{dtype.a}"', f'"{dtype.a}"')
