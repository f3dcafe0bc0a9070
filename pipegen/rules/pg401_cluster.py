# SPDX-License-Identifier: Apache-2.0
"""The cluster must be one that the hardware launches and the template multicasts across.

What it checks
    cluster.shape, CTAs along M and along N.

Why
    A cluster has at most 8 CTAs portably (CUDA C++ Programming Guide, "Thread Block Clusters"),
    and each operand tile is cut into equal parts, one for each CTA that shares it, so a side is
    1 or 2 here. Larger clusters leave SMs idle: 132 SMs come in GPCs of 16 or 18.

Example
    shape = [2, 3], shape = [16, 1].

Use instead
    [2, 1] shares B between two tiles of rows; [1, 2] shares A; [2, 2] both.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, toml_literal

CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))


def check(description: KernelDescription) -> Iterator[Problem]:
    shape = description.cluster.shape
    if shape is None or shape in CLUSTERS:
        return
    m, n = (2 if side >= 2 else 1 for side in shape)
    size = shape[0] * shape[1]
    reason = (
        f"{size} CTAs, and a portable cluster has at most 8"
        if size > 8
        else "the template shares tiles between 1 or 2 CTAs on a side"
    )
    yield Problem(
        reason,
        "cluster.shape",
        shape,
        listing(toml_literal(choice) for choice in CLUSTERS),
        toml_literal((m, n)),
    )
