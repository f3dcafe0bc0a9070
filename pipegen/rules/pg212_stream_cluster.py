# SPDX-License-Identifier: Apache-2.0
"""A stream kernel's cluster must share something: a row y, between tiles one below the other.

What it checks
    cluster.shape, CTAs along M and along N; no stream.tiles_per_block beside it.

Why
    Every element of a matrix is used once, so only a row that all rows of x share can be multicast.
    Each CTA of the cluster loads an equal part of it for all, and TMA writes to multiples of 128
    bytes of SMEM (PTX ISA, "cp.async.bulk.tensor"). A portable cluster has at most 8 CTAs (CUDA C++
    Programming Guide, "Thread Block Clusters").
    More clusters of 2 than run at once gained nothing on an H200: 3.98 TB/s with equal shares, 3.97
    with 8 tiles for each, 2.34 with one (benchmarks/stream_blocks.json).

Example
    shape = [2, 1] without y. shape = [1, 2].

Use instead
    [1, 1]; or y = "row" in [stream] with [2, 1].
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, toml_literal
from pipegen.hardware import HARDWARE, TMA_SMEM_ALIGNMENT
from pipegen.vocabulary import DTYPE

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    shape, columns = description.cluster.shape, description.tile.n
    if shape is None or columns is None:
        return
    shapes = clusters(description, columns)
    tiles = description.stream.tiles_per_block
    if shape in shapes and shape != (1, 1) and tiles != "auto":
        why = "more clusters than run at once gain nothing: theirs are persistent"
        yield Problem(why, "stream.tiles_per_block", tiles, '"auto"', '"auto"')
    if shape in shapes:
        return
    if description.stream.y != "row":
        why = 'the CTAs of a cluster share the row y, and this kernel has none (stream.y = "row")'
    elif shape[1] != 1:
        why = "CTAs side by side along N need different parts of y, and share nothing"
    else:
        why = f"each CTA loads an equal part of y's {columns} elements, a multiple of "
        why += f"{TMA_SMEM_ALIGNMENT} bytes"
    near = min(shapes, key=lambda choice: (abs(choice[0] - shape[0] * shape[1]), choice))
    allowed = listing(toml_literal(choice) for choice in shapes)
    yield Problem(why, "cluster.shape", shape, allowed, toml_literal(near))


def clusters(description: KernelDescription, columns: int) -> tuple[tuple[int, int], ...]:
    """The clusters that the kernel can have."""
    if description.stream.y != "row":
        return ((1, 1),)
    row_bytes = columns * DTYPE[str(description.dtype.b)].bytes
    most = HARDWARE[description.kernel.arch].max_cluster
    fitting = [m for m in (2, 4, 8) if m <= most and row_bytes % (m * TMA_SMEM_ALIGNMENT) == 0]
    return ((1, 1), *((m, 1) for m in fitting))
