# SPDX-License-Identifier: Apache-2.0
"""A group of scales must be a whole number of stages.

What it checks
    dtype.scale_group: 0, or for op "mixed_gemm" a positive multiple of tile.k.

Why
    0 is one scale for an output channel, which multiplies the f32 sum: nothing is lost. With groups
    a stage brings the scales of its K, and a weight is scaled when it is converted; a stage whose K
    lay in two groups would need two of each. A group that does not divide K ends with K.

Example
    scale_group = 96 with k = 64.

Use instead
    A group of 128 with k = 128, or 0.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem

GENERAL = True


def check(description: KernelDescription) -> Iterator[Problem]:
    group, depth = description.dtype.scale_group, description.tile.k
    if group == 0:
        return
    if description.kernel.op != "mixed_gemm":
        yield Problem(
            f"a {description.kernel.op} has no scales", "dtype.scale_group", group, "0", "0"
        )
    elif depth and depth > 0 and (group < 0 or group % depth):
        nearest = max(1, round(group / depth)) * depth
        yield Problem(
            f"a stage has {depth} of K, and all of it must share a scale",
            "dtype.scale_group",
            group,
            f"0, or multiples of tile.k = {depth}",
            str(nearest),
        )
