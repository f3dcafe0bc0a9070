# SPDX-License-Identifier: Apache-2.0
"""A stream kernel's tile must split into equal parts, one for each lane of each consumer warp.

What it checks
    role.consumer.warpgroups: 1 to 4. tile.n: 32 lanes of 1, 2, 4 or 8 elements, at most 16 bytes of
    the widest type. tile.m: the same number of rows for each consumer warp, and for each
    producer warp where no TMA loads; at most 64 elements a lane.

Why
    A warp reads and stores whole rows of a tile, 16 bytes a lane at most (the widest access), so
    that SMEM has no bank conflicts and GMEM sees whole lines. A lane keeps its part in registers. A
    TMA box has at most 256 elements on a side (CUDA driver API, cuTensorMapEncodeTiled), and begins
    at a multiple of 128 bytes of SMEM (PTX ISA, "cp.async.bulk.tensor"): so must a row of y, and
    what one warp stores by TMA.

Example
    n = 96: 3 elements a lane. m = 20 with 8 consumer warps.

Use instead
    The nearest size in the message. Good first choices: 32 x 256 for 16-bit types, 32 x 128 for
    f32.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import TMA_BOX_MAX, TMA_SMEM_ALIGNMENT, VECTOR_BYTES, WARP
from pipegen.planning.stream.sizes import rows_shared_by
from pipegen.vocabulary import DTYPE

DERIVED = True
WARPGROUPS = (1, 2, 3, 4)
LANE_ELEMENTS_MAX = 64


def check(description: KernelDescription) -> Iterator[Problem]:
    warpgroups = description.role["consumer"].warpgroups
    tile = description.tile
    if warpgroups is None or tile.m is None or tile.n is None:
        return
    if warpgroups not in WARPGROUPS:
        yield Problem(
            "a block has 1 to 4 consumer warpgroups",
            "role.consumer.warpgroups",
            warpgroups,
            listing(WARPGROUPS),
            nearest_number(warpgroups, WARPGROUPS),
        )
        return
    columns = sizes_n(description)
    if tile.n not in columns:
        why = (
            f"each of {WARP} lanes has 1, 2, 4 or 8 elements of a row, at most {VECTOR_BYTES} bytes"
        )
        if description.stream.y == "row":
            why += f", and a row of y fills a multiple of {TMA_SMEM_ALIGNMENT} bytes"
        near = nearest_number(tile.n, columns)
        yield Problem(why, "tile.n", tile.n, listing(columns), near)
        return
    rows = sizes_m(description, warpgroups, tile.n)
    if tile.m not in consumer_sizes_m(description, warpgroups, tile.n):  # PG218: the producers'
        producers = rows_shared_by(description)
        roles = f"{4 * warpgroups} consumer warps"
        roles += f" and {producers} producer warps" if producers > 1 else ""
        yield Problem(
            f"each of {roles} has the same number of rows, and a lane at "
            f"most {LANE_ELEMENTS_MAX} elements",
            "tile.m",
            tile.m,
            listing(rows),
            nearest_number(tile.m, rows),
        )


def sizes_n(description: KernelDescription) -> tuple[int, ...]:
    """Columns that a tile can have."""
    dtype, y = description.dtype, description.stream.y
    loaded = (dtype.a, dtype.out) if y == "none" else (dtype.a, dtype.b, dtype.out)
    widest = max(DTYPE[str(word)].bytes for word in loaded)
    # y's rows stand one behind the other in SMEM, and each begins where TMA can write.
    step = TMA_SMEM_ALIGNMENT // DTYPE[str(dtype.b)].bytes if y == "row" else 1
    return tuple(
        WARP * vector
        for vector in (1, 2, 4, 8)
        if vector * widest <= VECTOR_BYTES and WARP * vector % step == 0
    )


def sizes_m(description: KernelDescription, warpgroups: int, columns: int) -> tuple[int, ...]:
    """Rows that a tile of so many columns can have: equal parts for consumers and producers."""
    producers = rows_shared_by(description)
    sizes = consumer_sizes_m(description, warpgroups, columns)
    return tuple(rows for rows in sizes if rows % producers == 0)


def consumer_sizes_m(
    description: KernelDescription, warpgroups: int, columns: int
) -> tuple[int, ...]:
    """Rows that the consumers can split."""
    row_bytes = columns * DTYPE[str(description.dtype.out)].bytes
    stored = "epilogue" in description.pipeline
    return tuple(
        4 * warpgroups * rows
        for rows in range(1, LANE_ELEMENTS_MAX * WARP // columns + 1)
        if 4 * warpgroups * rows <= TMA_BOX_MAX
        and not (stored and rows * row_bytes % TMA_SMEM_ALIGNMENT)
    )
