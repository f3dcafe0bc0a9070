# SPDX-License-Identifier: Apache-2.0
"""What one cp.async of a stream copies must be 4, 8 or 16 bytes of each input.

What it checks
    tile.n of a stream kernel that cp.async feeds: 32 lanes of one or more copies, each of the same
    number of elements of each input, which are 4, 8 or 16 bytes and at most layout.alignment.

Why
    cp.async knows 4, 8 and 16 bytes only, and faults on an address that is not a multiple of them
    (PTX ISA, "cp.async").

Example
    n = 32: one element of bf16 is 2 bytes.
    a = "bf16", b = "f32" and alignment = 4: so is one element of x, and two of y are 8 bytes.

Use instead
    The tile.n of the message; where there is none, producer = "thread", which loads single
    elements too.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import WARP
from pipegen.planning.stream.threads_sizes import lane_vector
from pipegen.rules.pg211_stream_tile import sizes_n as all_sizes_n


def check(description: KernelDescription) -> Iterator[Problem]:
    tile_n, alignment = description.tile.n, description.layout.alignment
    copies = description.pipeline["mainloop"].producer == "cp_async"
    if tile_n is None or not copies:
        return
    columns = sizes_n(description)
    if tile_n in columns:
        return
    if not columns:
        yield Problem(
            "no vector of rows so aligned is 4, 8 or 16 bytes of each input",
            "layout.alignment",
            alignment,
            "8, 16",
            "8",
        )
        return
    yield Problem(
        f"each of {WARP} lanes copies 4, 8 or 16 bytes of each input at once, at most "
        f'"layout.alignment", {alignment} B',
        "tile.n",
        tile_n,
        listing(columns),
        nearest_number(tile_n, columns),
    )


def sizes_n(description: KernelDescription) -> tuple[int, ...]:
    """Columns that a tile can have."""
    return tuple(size for size in all_sizes_n(description) if lane_vector(description, size))
