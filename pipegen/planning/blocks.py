# SPDX-License-Identifier: Apache-2.0
"""How many blocks share the tiles of a kernel that moves bytes: as many as run at once, or more.

Persistent blocks have equal shares; on an H200 some SMs are done earlier than others, and wait.
With a few tiles for each block they get another one. The last blocks end less late the fewer tiles
a block has; but each has its start to pay, while others of the SM compute (docs/tuning.md,
"Streams").
"""

from pipegen.description import KernelDescription
from pipegen.planning.model import Number


def tiles_asked(description: KernelDescription) -> int | None:
    """`tiles_per_block` of the op's own section; None for "auto"."""
    reduce = description.kernel.op == "reduce"
    asked = (description.reduce if reduce else description.stream).tiles_per_block
    return None if asked == "auto" else asked


def grid_numbers(each: int | None, blocks: int, cluster: int = 1) -> tuple[Number, ...]:
    """The grid: persistent if `each` is None, else of blocks that take at most so many tiles.

    `blocks`: of an SM. `cluster`: CTAs of a cluster, which take as many tiles together.
    """
    tiles, at_once, times = "tiles", f"SMs * {blocks}", ""
    if cluster > 1:
        tiles, at_once = f"tiles // {cluster}", f"SMs // {cluster} * {blocks}"
        times = f"{cluster} * "
    if each is None:
        formula = f"{times}min({tiles}, {at_once})"
        why = "a fixed stride over tiles: as many blocks as the GPU runs at once"
        return (Number("grid", "persistent", "blocks", formula, why),)
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
            f"{times}min({tiles}, max({at_once}, {tiles} / {each}))",
            "more than run at once: an SM that is done early gets another block",
        ),
    )
