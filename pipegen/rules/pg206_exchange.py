# SPDX-License-Identifier: Apache-2.0
"""The sums that split K exchanges must fit where the mainloop's stages were.

What it checks
    With scheduler.split_k above 1: the f32 sums of a tile, 4 * tile.m * tile.n bytes, take no more
    than the stages of the mainloop.

Why
    A CTA writes its sums over the stages, which nobody needs any more, for the others to read. Room
    of its own would be taken from the ring, and loads would be less far ahead.

Example
    256 x 192 x 64 bf16: 196608 B of sums, and 3 stages of 57344 B.

Use instead
    A smaller tile, or more stages. Small tiles also exchange less, and share K among more CTAs.
"""

from collections.abc import Iterator

from pipegen.arithmetic import exchange_bytes
from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or
from pipegen.planning.smem import smem_of, stage_range

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    budget = smem_of(description)
    if budget is None or description.scheduler.split_k <= 1:
        return
    m, n = description.tile.m or 0, description.tile.n or 0
    needed, ring = exchange_bytes(m, n), budget.split.stages * budget.stage_bytes
    fewest, most = stage_range(description)
    if needed <= ring or most < fewest:  # rule PG201 says that no ring fits
        return
    why = (
        f"each CTA of split K writes {needed} B of sums over its {budget.split.stages} stages of "
        f"{budget.stage_bytes} B"
    )
    enough = -(-needed // budget.stage_bytes)
    given = description.pipeline["mainloop"].stages
    if given != "auto" and enough <= most:
        allowed = auto_or(enough, most)
        yield Problem(why, "pipeline.mainloop.stages", given, allowed, str(enough))
        return
    widest = most * budget.stage_bytes // exchange_bytes(m, 1) // 16 * 16
    yield Problem(why, "tile.n", n, f"16 to {widest} with this m", str(widest))
