# SPDX-License-Identifier: Apache-2.0
"""A stream kernel's ring and store buffers must fit in its block's share of an SM.

What it checks
    stream.blocks_per_sm, pipeline.mainloop.stages and pipeline.epilogue.stages: at least 2 stages,
    at least 1 store buffer a warp, all of it in the SMEM that so many blocks leave to each, and no
    more threads than an SM holds. With stream.tiles_per_block no more stages than a block has
    tiles, but at least 2.

Why
    With one stage nothing is loaded while a tile is read. Too much SMEM fails at launch, or lets
    fewer blocks run at once than the persistent grid counts on: the rest would be a second wave.
    A stage beyond a block's last tile is never filled.

Example
    stages = 20 for tiles of 16384 B with 2 blocks on an SM: 7 fit.

Use instead
    stages = "auto", or a number in the range that the message gives.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or, listing, nearest_number
from pipegen.hardware import WARP
from pipegen.planning.stream.sizes import (
    FEWEST_STAGES,
    StreamSizes,
    filled_stages,
    fits,
    stream_sizes,
    with_stages,
)
from pipegen.rules.pg211_stream_tile import sizes_m

DERIVED = True
BLOCKS_MAX = 8
BUFFERS_MAX = 16


def check(description: KernelDescription) -> Iterator[Problem]:
    blocks = description.stream.blocks_per_sm
    choices = [b for b in range(1, BLOCKS_MAX + 1) if fits(with_stages(description, blocks=b))]
    sizes = stream_sizes(with_stages(description, epilogue=1, blocks=1))
    if blocks == "auto" or sizes is None:
        return
    if not choices:
        yield _too_large(description, sizes)
        return
    if blocks not in choices:
        why = f"so many blocks leave each too little SMEM for {FEWEST_STAGES} stages of "
        why += f"{sizes.stage_bytes} B, or are more threads than an SM holds"
        allowed, near = f'"auto", {listing(choices)}', nearest_number(blocks, choices)
        yield Problem(why, "stream.blocks_per_sm", blocks, allowed, near)
        return
    yield from _stages(description)


def _too_large(description: KernelDescription, sizes: StreamSizes) -> Problem:
    """Not even one block's ring fits: the most rows that do."""
    tile = description.tile
    warpgroups = sizes.warps // 4

    def with_rows(rows: int) -> KernelDescription:
        return with_stages(
            description.model_copy(update={"tile": tile.model_copy(update={"m": rows})}), blocks=1
        )

    rows = [m for m in sizes_m(description, warpgroups, tile.n or WARP) if fits(with_rows(m))]
    why = f"{FEWEST_STAGES} stages of {sizes.stage_bytes} B do not fit in {sizes.capacity} B"
    return Problem(why, "tile.m", tile.m, listing(rows), str(rows[-1]))


def _stages(description: KernelDescription) -> Iterator[Problem]:
    """The ring beside the fewest store buffers; then the buffers beside the ring."""
    sizes = stream_sizes(with_stages(description, epilogue=1))
    stages = description.pipeline["mainloop"].stages
    if sizes is None:
        return
    if stages != "auto" and not FEWEST_STAGES <= stages <= sizes.stages:
        why = f"{stages} stages of {sizes.stage_bytes} B exceed {sizes.capacity} B of SMEM"
        if sizes.stages == filled_stages(description):
            each = description.stream.tiles_per_block
            why = f"a block with stream.tiles_per_block = {each} fills no more of them"
        if stages < FEWEST_STAGES:
            why = f"a ring needs at least {FEWEST_STAGES} stages"
        yield Problem(
            why,
            "pipeline.mainloop.stages",
            stages,
            auto_or(FEWEST_STAGES, sizes.stages),
            str(FEWEST_STAGES if stages < FEWEST_STAGES else sizes.stages),
        )
        return
    epilogue = description.pipeline.get("epilogue")
    if epilogue is None or epilogue.stages == "auto":
        return
    buffers = [b for b in range(1, BUFFERS_MAX + 1) if fits(with_stages(description, stages, b))]
    if epilogue.stages not in buffers:
        yield Problem(
            f"a store buffer for each warp takes {sizes.tile_out_bytes} B beside the ring",
            "pipeline.epilogue.stages",
            epilogue.stages,
            f'"auto", {listing(buffers)}',
            nearest_number(epilogue.stages, buffers),
        )
