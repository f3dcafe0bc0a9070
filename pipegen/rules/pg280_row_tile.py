# SPDX-License-Identifier: Apache-2.0
"""A tile of a Pallas stream or reduce kernel must split into whole vectors of whole rows.

What it checks
    tile.n. stream: 32 lanes of 1 to 8 elements, at most 16 bytes of the widest type and at least
    128 bytes of the narrowest. reduce: a multiple of what the warps of a row read at once (16 bytes
    a lane), a row of at most 32768 bytes, and at most 128 elements of a tile for each thread.
    tile.m: the same number of rows for each consumer warpgroup, and in it for each warp; of a
    reduction also 1 or 2 rows, which its warps share. At most 256 rows.

Why
    A lane reads and writes 16 bytes at most, and a warp whole stretches of a row, so that SMEM has
    no bank conflicts. TMA copies pieces of 128 bytes of a row, at most 256 on a side of its box
    (CUDA driver API, cuTensorMapEncodeTiled). A reduction keeps its rows in registers: beyond 128
    elements a thread they would spill.

Example
    n = 96 for a stream: 3 elements a lane. n = 5000 for a reduce: not a multiple of 1024.

Use instead
    The nearest size in the message. Longer rows of a reduction: split them into several passes of
    your own.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import TMA_BOX_MAX, VECTOR_BYTES, WARP, WARPGROUP
from pipegen.planning.rows.sizes import PIECE_BYTES, element_types, row_warps_of, widest
from pipegen.vocabulary import DTYPE

DERIVED = True
STREAM_ELEMENTS_MAX = 64  # of a tile for each thread
REDUCE_ELEMENTS_MAX = 128
ROW_BYTES_MAX = PIECE_BYTES * TMA_BOX_MAX


def check(description: KernelDescription) -> Iterator[Problem]:
    tile, warpgroups = description.tile, description.role["consumer"].warpgroups
    if tile.m is None or tile.n is None or not warpgroups or warpgroups < 1:
        return
    reduces = description.kernel.op == "reduce"
    rows = sizes_m(description, warpgroups)
    if not rows:
        return  # more warpgroups than any tile has: PG281 says so
    if tile.m not in rows:
        shared = ", or 1 or 2 rows that its warps share" if reduces else ""
        yield Problem(
            f"each of {warpgroups} consumer warpgroup(s) has the same number of rows, and each of "
            f"its 4 warps{shared}",
            "tile.m",
            tile.m,
            f"{listing(rows[:4])}, ... {rows[-1]}",
            nearest_number(tile.m, rows),
        )
        return
    columns = sizes_n(description, tile.m // warpgroups)
    if not columns:
        fitting = [m for m in rows if sizes_n(description, m // warpgroups)]
        yield Problem(
            "not even the shortest rows of so many leave each thread few enough elements",
            "tile.m",
            tile.m,
            f"{listing(fitting[:4])}, ... {fitting[-1]}",
            nearest_number(tile.m, fitting),
        )
    elif tile.n not in columns:
        yield _columns(description, columns)


def _columns(description: KernelDescription, columns: tuple[int, ...]) -> Problem:
    """What is wrong with tile.n beside tile.m."""
    tile, most = description.tile, STREAM_ELEMENTS_MAX
    why = f"each of {WARP} lanes has 1, 2, 4 or 8 elements of a row, at most {VECTOR_BYTES} bytes"
    why += f" and together at least {PIECE_BYTES}"
    allowed = listing(columns)
    if description.kernel.op == "reduce":
        most = REDUCE_ELEMENTS_MAX
        why = f"the warps of a row read {columns[0]} columns at once, and a row has at most "
        why += f"{ROW_BYTES_MAX} bytes"
        allowed = f"multiples of {columns[0]} up to {columns[-1]}"
    return Problem(
        f"{why}; a thread has at most {most} elements of a tile of {tile.m} rows",
        "tile.n",
        tile.n,
        allowed,
        nearest_number(tile.n or 0, columns),
    )


def sizes_m(description: KernelDescription, warpgroups: int) -> tuple[int, ...]:
    """Rows that a tile can have."""
    few = (1, 2) if description.kernel.op == "reduce" else ()
    each = (*few, *range(4, TMA_BOX_MAX + 1, 4))
    return tuple(warpgroups * rows for rows in each if warpgroups * rows <= TMA_BOX_MAX)


def sizes_n(description: KernelDescription, wg_m: int) -> tuple[int, ...]:
    """Columns that a tile can have with so many rows of a warpgroup."""
    types = [DTYPE[word].bytes for word in element_types(description).values()]
    vector = VECTOR_BYTES // widest(description)
    if description.kernel.op == "reduce":
        step = WARP * vector * row_warps_of(wg_m)
        longest = min(ROW_BYTES_MAX // max(types), REDUCE_ELEMENTS_MAX * WARPGROUP // wg_m)
        return tuple(range(step, longest + 1, step))
    return tuple(
        WARP * each
        for each in (1, 2, 4, 8)
        if each <= vector
        and WARP * each * min(types) % PIECE_BYTES == 0
        and wg_m * WARP * each <= STREAM_ELEMENTS_MAX * WARPGROUP
    )
