# SPDX-License-Identifier: Apache-2.0
"""How many blocks share the tiles of a kernel that moves bytes: as many as run at once, or more.

Persistent blocks have equal shares; on an H200 some SMs are done earlier than others, and wait.
With a few tiles for each block they get another one: about half of what that gains is there, why
there is more was not isolated (docs/tuning.md, "Streams").
"""

from pipegen.description import KernelDescription
from pipegen.planning.model import Number


def tiles_asked(description: KernelDescription) -> int | None:
    """`tiles_per_block` of the op's own section; None for "auto"."""
    reduce = description.kernel.op == "reduce"
    asked = (description.reduce if reduce else description.stream).tiles_per_block
    return None if asked == "auto" else asked


def grid_numbers(each: int | None, blocks: int) -> tuple[Number, ...]:
    """The grid: persistent if `each` is None, else of blocks that take at most so many tiles.

    `blocks`: of an SM.
    """
    if each is None:
        why = "a fixed stride over tiles: as many blocks as the GPU runs at once"
        return (Number("grid", "persistent", "blocks", f"min(tiles, SMs * {blocks})", why),)
    return (
        Number(
            "tiles_per_block",
            each,
            "tiles",
            str(each),
            "at most, where there are more tiles than blocks that run at once",
        ),
        Number(
            "grid",
            "a few tiles a block",
            "blocks",
            f"min(tiles, max(SMs * {blocks}, ceil(tiles / {each})))",
            "with many tiles more than run at once: an SM that is done early gets another block",
        ),
    )
