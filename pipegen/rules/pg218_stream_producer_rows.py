# SPDX-License-Identifier: Apache-2.0
"""Each producer warp of a stream kernel must have the same number of a tile's rows.

What it checks
    tile.m of a stream kernel that cp.async or threads feed: a multiple of its producer warps, which
    are 8 where threads load; with cp.async 2, 4 for a gather, 8 for rows aligned to 4 bytes.

Why
    Every producer thread commits every stage once, so that the full barrier's arrive count is the
    number of producer threads. Warps with and without rows would still have to commit alike; equal
    parts keep them all busy.

Example
    m = 20 with threads that load: 8 producer warps.

Use instead
    The nearest size of the message, which suits consumer and producer warps.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import WARP
from pipegen.planning.stream.sizes import producer_warps_of
from pipegen.rules.pg211_stream_tile import WARPGROUPS, sizes_m


def check(description: KernelDescription) -> Iterator[Problem]:
    rows, warps = description.tile.m, producer_warps_of(description)
    columns, warpgroups = description.tile.n or 0, description.role["consumer"].warpgroups
    if rows is None or rows % warps == 0 or warpgroups not in WARPGROUPS or columns < WARP:
        return
    sizes = sizes_m(description, warpgroups, columns)
    why = f"each of {warps} producer warps has the same number of rows, and each of "
    why += f"{4 * warpgroups} consumer warps"
    yield Problem(why, "tile.m", rows, listing(sizes), nearest_number(rows, sizes))
