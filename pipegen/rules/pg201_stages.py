# SPDX-License-Identifier: Apache-2.0
"""The ring buffers must have enough stages, and must fit in SMEM.

What it checks
    pipeline.mainloop.stages: at least 2. pipeline.epilogue.stages: a number of buffers that the
    template can use. Both, with the rest of the block's SMEM, within what a block may use
    (232448 B on sm_90 and sm_100; half of an SM for emit-pipeline, so that two blocks share it).

Why
    The consumer releases a stage one step late, because the last wgmma still reads it: with one
    stage the producer would wait for a release that comes after its own copy, a deadlock. Too
    many stages fail at launch, which some launchers do not report.

Example
    128 x 256 x 64 bf16 tiles take 49152 B a stage: 5 stages do not fit.

Use instead
    stages = "auto", or a number in the range that the message gives.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.planning.smem import smem_of, stage_range

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    budget = smem_of(description)
    if budget is None:
        return
    fewest, most = stage_range(description)
    if most < fewest:
        yield Problem(
            f"a stage of this tile takes {budget.stage_bytes} B, and {fewest} stages beside the "
            f"epilogue's buffers do not fit in {budget.capacity} B of SMEM",
            "tile.k",
            description.tile.k,
            "a smaller tile",
            str(max(16, (description.tile.k or 64) // 2)),
        )
        return
    stages = description.pipeline["mainloop"].stages
    if stages != "auto" and not fewest <= stages <= most:
        why = (
            f"a ring needs at least {fewest} stages"
            if stages < fewest
            else f"{stages} stages of {budget.stage_bytes} B and the epilogue's buffers exceed "
            f"{budget.capacity} B of SMEM"
        )
        yield Problem(
            why,
            "pipeline.mainloop.stages",
            stages,
            f'"auto" or {fewest} to {most}',
            str(fewest if stages < fewest else most),
        )
        return
    buffers = description.pipeline["epilogue"].stages
    choices = budget.buffer_choices
    if buffers != "auto" and buffers not in choices:
        yield Problem(
            f"the epilogue has {budget.subtiles} stores of {budget.buffer_bytes} B a tile, and "
            f"{listing(choices) or 'no number of'} buffers that fit beside the ring",
            "pipeline.epilogue.stages",
            buffers,
            f'"auto"{"".join(f", {choice}" for choice in choices)}',
            nearest_number(buffers, choices),
        )
