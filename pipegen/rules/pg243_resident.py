# SPDX-License-Identifier: Apache-2.0
"""Tiles by cluster launch control in Pallas need the SM's TMEM for every CTA that starts on it.

What it checks
    scheduler.tiles = "clc" with backend = "pallas": the CTAs that find room in an SM's SMEM also
    find their accumulators' columns in its TMEM.

Why
    One CTA is launched for each tile, so an SM starts as many as fit its SMEM and threads
    (registers are the compiler's and not counted here). TMEM is no part of that: a CTA whose
    tcgen05.alloc finds no columns waits until another leaves (PTX ISA, "tcgen05.alloc"), with a
    tile in its hands that nobody can cancel, and the other leaves when no tiles are left. That
    tile is computed alone, after all others.

Example
    tile.k = 32 with pipeline.mainloop.stages = 2: 82 KB a CTA, two on an SM, with 512 columns each.

Use instead
    stages = "auto", which fills an SM's SMEM.
"""

from collections.abc import Iterator

from pipegen.arithmetic import align_up, tmem_columns
from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or
from pipegen.hardware import HARDWARE, TMEM_COLUMNS_MAX, WARPGROUP
from pipegen.planning.smem import stage_range, with_stages
from pipegen.planning.smem_sm100 import accumulators_of
from pipegen.planning.smem_sm100_pallas import pallas_sm100_budget, takes_answers

WARPGROUPS = 3  # of a CTA that takes tiles so
SMEM_UNIT = 128  # in which SMEM is allocated (CUDA, occupancy of compute capability 9.0 and later)

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    kernel, n = description.kernel, description.tile.n
    if kernel.backend != "pallas" or kernel.arch != "sm_100a" or not takes_answers(description):
        return
    stages = description.pipeline["mainloop"].stages
    if stages == "auto" or not n:
        return
    fewest, most = stage_range(description)
    columns = tmem_columns(accumulators_of(description), n)
    if not fewest <= stages <= most or columns > TMEM_COLUMNS_MAX:
        return  # rule PG201 or PG204 says it
    blocks = resident_blocks(description, stages)
    if blocks * columns <= TMEM_COLUMNS_MAX:
        return
    room = TMEM_COLUMNS_MAX // columns
    choices = (s for s in range(stages, most + 1) if resident_blocks(description, s) <= room)
    enough = next(choices, most)
    yield Problem(
        f"an SM's SMEM has room for {blocks} CTAs of so few stages, its TMEM of "
        f"{TMEM_COLUMNS_MAX} columns not for {blocks} times {columns}: a CTA that waits for TMEM "
        "keeps its tile from all others",
        "pipeline.mainloop.stages",
        stages,
        auto_or(enough, most),
        str(enough),
    )


def resident_blocks(description: KernelDescription, stages: int) -> int:
    """How many CTAs with so many stages an SM's SMEM and threads have room for."""
    hardware = HARDWARE[description.kernel.arch]
    budget = pallas_sm100_budget(with_stages(description, mainloop=stages))
    block = align_up(budget.split.total_bytes, SMEM_UNIT) + hardware.smem_reserved_per_block
    by_threads = hardware.max_threads_per_sm // (WARPGROUPS * WARPGROUP)
    return min(hardware.smem_per_sm // block, by_threads)
