# SPDX-License-Identifier: Apache-2.0
"""The raster group must be a small positive number.

What it checks
    scheduler.raster_group: 1 to 64.

Why
    A persistent kernel walks this many cluster rows before it takes the next column, so that
    neighbours find each other's tiles in L2. 1 is plain row order; much more than the waves on the
    chip makes columns of the whole matrix, and the reuse is gone.

Example
    raster_group = 0.

Use instead
    8, the default; 4 to 16 are worth trying.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem


def check(description: KernelDescription) -> Iterator[Problem]:
    group = description.scheduler.raster_group
    if group is not None and not 1 <= group <= 64:
        yield Problem(
            "the number of tile rows walked together is out of range",
            "scheduler.raster_group",
            group,
            "1 to 64",
            str(min(64, max(1, group))),
        )
