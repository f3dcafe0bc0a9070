# SPDX-License-Identifier: Apache-2.0
"""What a lane loads at once must be as wide as its rows are aligned, or narrower.

What it checks
    tile.n of a stream kernel that cp.async or threads feed: tile.n / 32 elements of each input are
    at most layout.alignment bytes; with cp.async they are 4, 8 or 16 bytes.

Why
    A lane loads its part of a row with one access, and the hardware faults on an address that is
    not a multiple of its width. cp.async knows 4, 8 and 16 bytes only (PTX ISA, "cp.async").

Example
    alignment = 4 with n = 256: 8 elements of bf16 are 16 bytes.
    cp.async with a = "bf16", b = "f32" and alignment = 4: one element of x is 2 bytes.

Use instead
    The tile.n of the message; where there is none, producer = "thread", which loads single
    elements too.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import CP_ASYNC_BYTES, VECTOR_BYTES, WARP
from pipegen.planning.stream.threads_sizes import loaded_types
from pipegen.vocabulary import DTYPE


def check(description: KernelDescription) -> Iterator[Problem]:
    tile_n, alignment = description.tile.n, description.layout.alignment
    producer = description.pipeline["mainloop"].producer
    if tile_n is None:
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
    words = 'one of 4, 8 and 16, and at most "layout.alignment"'
    if producer == "thread":
        words = 'at most "layout.alignment"'
    yield Problem(
        f"a lane loads 1/{WARP} of a row of each input at once: its bytes must be {words}, "
        f"{alignment} B",
        "tile.n",
        tile_n,
        listing(columns),
        nearest_number(tile_n, columns),
    )


def sizes_n(description: KernelDescription) -> tuple[int, ...]:
    """Columns that a tile can have."""
    sizes = [DTYPE[word].bytes for word in loaded_types(description.model_dump())]
    widest = max(*sizes, DTYPE[str(description.dtype.out)].bytes)
    copies = description.pipeline["mainloop"].producer == "cp_async"
    return tuple(
        WARP * vector
        for vector in (1, 2, 4, 8)
        if vector * max(sizes) <= description.layout.alignment
        and vector * widest <= VECTOR_BYTES
        and (not copies or all(vector * size in CP_ASYNC_BYTES for size in sizes))
    )
