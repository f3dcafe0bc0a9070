# SPDX-License-Identifier: Apache-2.0
"""The ring buffers must have enough stages, and must fit in SMEM.

What it checks
    pipeline.mainloop.stages: at least 2. pipeline.epilogue.stages: a number of buffers that the
    template can use. Both, with the rest of the block's SMEM, within what a block may use
    (232448 B on sm_90 and sm_100; half of an SM for emit-pipeline, so that two blocks share it).
    In Pallas at most 32 stages: jax takes no more barriers in one group.

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
from pipegen.errors import Problem, auto_or, listing, nearest_number
from pipegen.planning.smem import smem_of, stage_range, with_stages
from pipegen.planning.smem_mixed import depths as mixed_depths
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.rules.pg203_mma_tile import sizes_k
from pipegen.vocabulary import DTYPE

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    roomy = with_stages(description, epilogue="auto")
    budget = smem_of(roomy)
    if budget is None:
        return
    fewest, most = stage_range(roomy)
    if most < fewest:
        yield _too_large(description, budget.stage_bytes, budget.capacity, fewest)
        return
    stages = description.pipeline["mainloop"].stages
    if stages != "auto" and not fewest <= stages <= most:
        why = (
            f"a ring needs at least {fewest} stages"
            if stages < fewest
            else f"{stages} stages of {budget.stage_bytes} B and the epilogue's buffers exceed "
            f"{budget.capacity} B of SMEM"
        )
        if stages > most == MOST_STAGES and description.kernel.backend == "pallas":
            why = f"each stage has a barrier, and jax takes at most {MOST_STAGES} in one group"
        yield Problem(
            why,
            "pipeline.mainloop.stages",
            stages,
            auto_or(fewest, most),
            str(fewest if stages < fewest else most),
        )
        return
    buffers = description.pipeline["epilogue"].stages
    # An automatic ring gives way to the buffers, down to its fewest stages.
    choices = choices_of_buffers(with_stages(roomy, mainloop=fewest) if stages == "auto" else roomy)
    if buffers != "auto" and buffers not in choices:
        yield Problem(
            f"the epilogue has {budget.subtiles} stores of {budget.buffer_bytes} B for each "
            f"accumulator, and {listing(choices) or 'no number of'} buffers fit beside the ring",
            "pipeline.epilogue.stages",
            buffers,
            f'"auto"{"".join(f", {choice}" for choice in choices)}',
            nearest_number(buffers, choices) or '"auto"',
        )


def choices_of_buffers(description: KernelDescription) -> tuple[int, ...]:
    """The numbers of store buffers beside the ring that the description has."""
    budget = smem_of(description)
    return budget.buffer_choices if budget else ()


def _depths(description: KernelDescription) -> tuple[int, ...]:
    """Depths of a stage that rules PG203 and PG252 allow."""
    if description.kernel.op == "mixed_gemm":
        return mixed_depths(description.kernel.backend, DTYPE[str(description.dtype.b)].bits)
    return sizes_k(DTYPE[description.dtype.a].bits)


def _too_large(
    description: KernelDescription, stage_bytes: int, capacity: int, fewest: int
) -> Problem:
    """The tile's stages do not fit: the deepest tile that does, if there is one."""
    tile = description.tile
    depths = _depths(description)
    fitting = [
        k
        for k in depths
        if k < (tile.k or 0)
        and stage_range(
            with_stages(
                description.model_copy(update={"tile": tile.model_copy(update={"k": k})}),
                epilogue="auto",
            )
        )[1]
        >= fewest
    ]
    return Problem(
        f"a stage of this tile takes {stage_bytes} B, and {fewest} stages beside the epilogue's "
        f"buffers do not fit in {capacity} B of SMEM",
        "tile.k",
        tile.k,
        f"{listing(fitting)} with this m and n" if fitting else "a smaller tile.m or tile.n",
        str(fitting[-1]) if fitting else f"tile.n = {max(16, (tile.n or 32) // 32 * 16)}",
    )
