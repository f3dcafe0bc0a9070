# SPDX-License-Identifier: Apache-2.0
"""Warps that share a row must be those of the only consumer warpgroup.

What it checks
    role.consumer.warpgroups of a Pallas reduce kernel with 1 or 2 rows for each of them.

Why
    Where several warps have a part of a row, a reduction adds their parts up through SMEM. Mosaic
    GPU has one scratch for that in a block (jax 0.10.2 to 0.12.0.1, `reduction_scratch_bytes`),
    and two warpgroups would write it at the same time: a race, and wrong sums. With 4 rows or more
    a warp has whole rows, and adds them up by shuffles.

Example
    warpgroups = 2 with tile.m = 2, one row each.

Use instead
    warpgroups = 1, or rows so short that tile.m can be 4 for each warpgroup.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.rows.sizes import row_sizes

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    sizes = row_sizes(description)
    if sizes and sizes.row_warps > 1 and sizes.warpgroups > 1:
        yield Problem(
            f"{sizes.row_warps} warps share a row (a tile of {description.tile.m} rows), and add "
            "up their parts through one scratch of the block",
            "role.consumer.warpgroups",
            sizes.warpgroups,
            f"1, or tile.m from {4 * sizes.warpgroups} on",
            "1",
        )
