# SPDX-License-Identifier: Apache-2.0
"""The ring and the store buffers of a Pallas stream or reduce kernel must fit in SMEM.

What it checks
    blocks_per_sm of [stream] or [reduce], pipeline.mainloop.stages and pipeline.epilogue.stages: at
    least 2 stages, at least 1 store buffer, all of it in the SMEM that so many blocks leave to
    each. One block where there is a memory warpgroup. With out_specs a buffer for each stage. At
    most 32 stages: jax takes no more barriers in one group.

Why
    With one stage nothing is loaded while a tile is read. Too much SMEM fails at launch, or lets
    fewer blocks run at once than the persistent grid counts on. A kernel with setmaxnreg is given
    all registers of an SM, so that a second block would wait.

Example
    A reduce of rows of 8192 f32, with 2 blocks on an SM: 2 stages, 2 buffers and the weight take
    163840 B, and each block has 115712 B.

Use instead
    "auto", or a number in the range that the message gives; a smaller tile.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or, listing, nearest_number
from pipegen.planning.rows.sizes import (
    FEWEST_STAGES,
    RowSizes,
    blocks_of,
    fits,
    has_out_specs,
    is_warp_specialized,
    row_sizes,
    with_values,
)
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.rules.pg280_row_tile import sizes_m, sizes_n

DERIVED = True
BLOCKS_MAX = 8
BUFFERS_MAX = 16


def check(description: KernelDescription) -> Iterator[Problem]:
    blocks, op = blocks_of(description), description.kernel.op
    most = 1 if is_warp_specialized(description) else BLOCKS_MAX
    slim = with_values(description, mainloop="auto", epilogue=1)
    choices = [b for b in range(1, most + 1) if fits(with_values(slim, blocks=b))]
    sizes = row_sizes(with_values(slim, blocks=1))
    if blocks == "auto" or sizes is None:
        return
    if not choices:
        yield _too_large(description, sizes)
    elif blocks not in choices:
        why = "a block with a memory warpgroup is given all registers of an SM"
        if not is_warp_specialized(description):
            why = f"so many blocks leave each too little SMEM for {FEWEST_STAGES} stages of "
            why += f"{sizes.stage_bytes} B and a store buffer of {sizes.tile_out_bytes} B"
        key, near = f"{op}.blocks_per_sm", nearest_number(blocks, choices)
        yield Problem(why, key, blocks, f'"auto", {listing(choices)}', near)
    else:
        yield from _stages(description)


def _too_large(description: KernelDescription, sizes: RowSizes) -> Problem:
    """Not even one block's ring fits: the tile that does, with fewer rows or shorter ones."""
    tile, slim = description.tile, with_values(description, mainloop="auto", epilogue=1, blocks=1)
    rows = [
        m
        for m in sizes_m(description, sizes.warpgroups)
        if m < (tile.m or 0)
        and tile.n in sizes_n(description, m // sizes.warpgroups)
        and fits(with_values(slim, rows=m))
    ]
    columns = [
        n
        for n in sizes_n(description, sizes.wg_m)
        if n < (tile.n or 0) and fits(with_values(slim, columns=n))
    ]
    why = f"{FEWEST_STAGES} stages of {sizes.stage_bytes} B and a store buffer of "
    why += f"{sizes.tile_out_bytes} B do not fit in {sizes.capacity} B of SMEM"
    if rows:
        return Problem(why, "tile.m", tile.m, listing(rows[-4:]), str(rows[-1]))
    return Problem(why, "tile.n", tile.n, f"at most {columns[-1]}", str(columns[-1]))


def _stages(description: KernelDescription) -> Iterator[Problem]:
    """The ring beside the fewest store buffers; then the buffers beside the ring."""
    stages, asked = (description.pipeline[name].stages for name in ("mainloop", "epilogue"))
    roomy = row_sizes(with_values(description, mainloop="auto", epilogue=1))
    if roomy is None:
        return
    if stages != "auto" and not FEWEST_STAGES <= stages <= roomy.stages:
        why = f"{stages} stages of {roomy.stage_bytes} B exceed {roomy.capacity} B of SMEM"
        why += ", each with a store buffer" if has_out_specs(description) else ""
        if stages < FEWEST_STAGES:
            why = f"a ring needs at least {FEWEST_STAGES} stages"
        elif roomy.stages == MOST_STAGES:
            why = f"each stage has a barrier, and jax takes at most {MOST_STAGES} in one group"
        yield Problem(
            why,
            "pipeline.mainloop.stages",
            stages,
            auto_or(FEWEST_STAGES, roomy.stages),
            str(FEWEST_STAGES if stages < FEWEST_STAGES else roomy.stages),
        )
    elif has_out_specs(description):
        made = row_sizes(description)
        if asked != "auto" and made and asked != made.stages:
            yield Problem(
                "out_specs have a buffer for each stage of the mainloop",
                "pipeline.epilogue.stages",
                asked,
                f'"auto", {made.stages}',
                '"auto"',
            )
    elif asked != "auto":
        buffers = [
            b for b in range(1, BUFFERS_MAX + 1) if fits(with_values(description, epilogue=b))
        ]
        if asked not in buffers:
            yield Problem(
                f"a store buffer for each warpgroup takes {roomy.tile_out_bytes} B beside the ring",
                "pipeline.epilogue.stages",
                asked,
                f'"auto", {listing(buffers)}',
                nearest_number(asked, buffers),
            )
