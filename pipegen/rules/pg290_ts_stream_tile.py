# SPDX-License-Identifier: Apache-2.0
"""A Task Scheduling stream's tile must split into equal parts, one for each thread that has it.

What it checks
    role.consumer.warpgroups: 1 to 4; with lanes, one warp for each. tile.n: 32 lanes of 1, 2, 4 or
    8 elements, at most 16 bytes of the widest type. tile.m: the same number of rows for each
    compute warp (with lanes: all rows for one), at most 64 elements a thread; a tile a multiple of
    128 bytes.

Why
    A warp reads and writes whole rows of a tile, 16 bytes a lane at most, and keeps its part in
    registers. Interleaved lanes are warps: Task Scheduling takes a task's warp i for lane i, and
    refuses a task with other than so many warps. TMA begins at a multiple of 128 bytes of SMEM (PTX
    ISA, "cp.async.bulk.tensor").

Example
    m = 20 with 8 compute warps. lanes = 8 with warpgroups = 1.

Use instead
    The nearest size in the message.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import TMA_BOX_MAX, TMA_SMEM_ALIGNMENT, VECTOR_BYTES, WARP
from pipegen.rules.pg211_stream_tile import LANE_ELEMENTS_MAX, WARPGROUPS, sizes_n
from pipegen.vocabulary import DTYPE

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    warpgroups, tile = description.role["consumer"].warpgroups, description.tile
    lanes = description.pipeline["mainloop"].lanes
    if warpgroups is None or tile.m is None or tile.n is None:
        return
    groups = (lanes // 4,) if lanes > 1 else WARPGROUPS
    if warpgroups not in groups:
        why = "a block has 1 to 4 warpgroups that compute"
        if lanes > 1:
            why = f"each of {lanes} lanes is one warp"
        near = nearest_number(warpgroups, groups)
        yield Problem(why, "role.consumer.warpgroups", warpgroups, listing(groups), near)
        return
    columns = sizes_n(description)
    if tile.n not in columns:
        why = f"each of {WARP} lanes of a warp has 1, 2, 4 or 8 elements of a row, at most "
        why += f"{VECTOR_BYTES} bytes"
        yield Problem(why, "tile.n", tile.n, listing(columns), nearest_number(tile.n, columns))
        return
    rows = rows_of(description, 1 if lanes > 1 else 4 * warpgroups, tile.n)
    if tile.m not in rows:
        who = (
            "one warp has all rows" if lanes > 1 else f"each of {4 * warpgroups} warps has as many"
        )
        why = f"{who}, a thread at most {LANE_ELEMENTS_MAX} elements, and a tile is a multiple of "
        why += f"{TMA_SMEM_ALIGNMENT} bytes"
        yield Problem(why, "tile.m", tile.m, listing(rows), nearest_number(tile.m, rows))


def rows_of(description: KernelDescription, parts: int, columns: int) -> tuple[int, ...]:
    """Rows that a tile of so many columns can have."""
    sizes = [DTYPE[str(word)].bytes for word in (description.dtype.a, description.dtype.out)]
    most = min(TMA_BOX_MAX // parts, LANE_ELEMENTS_MAX * WARP // columns)
    return tuple(
        parts * rows
        for rows in range(1, most + 1)
        if all(parts * rows * columns * size % TMA_SMEM_ALIGNMENT == 0 for size in sizes)
    )
