# SPDX-License-Identifier: Apache-2.0
"""Two producer warps must each load a tile of the same number of bytes.

What it checks
    role.producer.warps = 2: y is a matrix of a type as wide as x's.

Why
    Both warps walk over the same stages with copies of one state, and each `producer_acquire` of
    PipelineTmaAsync arms the full barrier with the pipeline's one tx_count (DSL,
    `PipelineTmaAsync.producer_acquire`). So the count is right only if both load as many bytes:
    one tile. Armed with more, the stage never fills: a deadlock. Armed with less, it may fill
    before its bytes are there: a race.

Example
    warps = 2 without y. warps = 2 with a = "bf16", b = "f32".

Use instead
    warps = 1: one warp loads both tiles and arms the sum.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.vocabulary import DTYPE


def check(description: KernelDescription) -> Iterator[Problem]:
    warps, dtype = description.role["producer"].warps, description.dtype
    if warps != 2:
        return
    a, b = DTYPE[dtype.a], DTYPE[str(dtype.b)]
    if description.stream.y != "matrix":
        why = 'one warp loads x and the other y, which must be a matrix (stream.y = "matrix")'
    elif a.bytes != b.bytes:
        why = f"each warp arms the same bytes, but x is {a.name} and y is {b.name}"
    else:
        return
    yield Problem(why, "role.producer.warps", warps, "1", "1")
