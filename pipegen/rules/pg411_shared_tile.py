# SPDX-License-Identifier: Apache-2.0
"""The CTAs that share a tile must each have a part of it that TMA can copy.

What it checks
    On sm_100a, for a B tile that is shared along M, or halved in a pair: a K-major one is cut along
    N, in parts of a multiple of 8 rows; an N-major one along K, in parts of at least 8 rows; and
    half of an N-major tile in whole 32-byte rows.

Why
    A swizzled tile in SMEM is made of atoms of 8 rows (PTX ISA, "Shared memory swizzling modes"). A
    part that begins inside of one would be swizzled as if it began one.

Example
    cluster.shape = [4, 1] with tile.n = 48: parts of 12 rows.

Use instead
    A tile.n that is a multiple of 8 * cluster M; [2, 1] takes every tile.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.smem_sm100 import cta_group_of

DERIVED = True
ATOM_ROWS = 8
MAX_N = 256
N_MAJOR_HALF = 32  # 2 * 16 elements of 16 bits: half of the tile is rows of 32 B


def check(description: KernelDescription) -> Iterator[Problem]:
    n, k, shape = description.tile.n or 0, description.tile.k or 0, description.cluster.shape
    group = cta_group_of(description)
    if shape is None or min(n, k, *shape) < 1:
        return
    if description.layout.b == "k":
        # In a pair: n / 2 rows in each CTA, for shape[0] / 2 CTAs to share. The same parts.
        step, parts = ATOM_ROWS * shape[0], shape[0]
        what = f"{parts} CTAs load parts of a B tile of {n} rows, which are atoms of {ATOM_ROWS}"
    else:
        rows = ATOM_ROWS * shape[0] // group
        if k < rows:
            yield Problem(
                f"{shape[0] // group} CTAs share a B tile of {k} rows of K, cut in atoms of "
                f"{ATOM_ROWS}",
                "tile.k",
                k,
                f"at least {rows}",
                str(rows),
            )
        step = N_MAJOR_HALF if group == 2 else 1
        what = f"each CTA of a pair holds half of {n} columns, in rows of a multiple of 32 B"
    if n % step:
        yield Problem(
            what,
            "tile.n",
            n,
            f"multiples of {step} up to {MAX_N}",
            str(max(step, n // step * step)),
        )
