# SPDX-License-Identifier: Apache-2.0
"""Plan of the Pallas (Mosaic GPU) Blackwell GEMMs: plgpu.kernel with tcgen05_mma, accumulators in
TMEM; one CTA or a pair to an MMA; tiles by a persistent grid or by cluster launch control."""

from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP, WARPGROUP
from pipegen.planning.gemm_sm100_pallas_numbers import (
    FULL_ARRIVALS,
    answer_arrive_counts,
    gemm_sm100_pallas_numbers,
)
from pipegen.planning.gemm_sm100_pallas_template import template_values
from pipegen.planning.model import PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.planning.smem_sm100 import accumulators_of, cta_group_of
from pipegen.planning.smem_sm100_pallas import (
    ANSWER_BYTES,
    ANSWERS,
    pallas_sm100_budget,
    shared_cluster,
    takes_answers,
)


def plan_gemm_sm100_pallas(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = pallas_sm100_budget(description)
    return Plan(
        name=name,
        given=given,
        description=description,
        template=template,
        pipelines=_pipelines(description, budget),
        roles=_roles(description),
        numbers=gemm_sm100_pallas_numbers(given, description, budget),
        stage_limit=_stage_limit(description, budget),
        values=template_values(description, budget),
    )


def _pipelines(description: KernelDescription, budget: SmemBudget) -> tuple[PipelinePlan, ...]:
    split, group = budget.split, cta_group_of(description)
    mainloop = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="umma",
        construct="plgpu.kernel",
        stages=split.stages,
        stage_bytes=budget.stage_bytes,
        tx_count=group * budget.stage_bytes,
        full_arrive_count=FULL_ARRIVALS,
        empty_arrive_count=1,
        filled_by="TMA loads of one A and one B tile",
        emptied_by="a tcgen05 commit, once the MMAs before it have read SMEM",
    )
    accumulator = PipelinePlan(
        name="accumulator",
        producer="umma",
        consumer="thread",
        construct="plgpu.kernel",
        stages=accumulators_of(description),
        stage_bytes=4 * (description.tile.m or 0) * (description.tile.n or 0),
        tx_count=None,
        full_arrive_count=1,
        empty_arrive_count=group,
        filled_by="the MMAs of all K tiles, then one tcgen05 commit",
        emptied_by="one thread of each epilogue warpgroup, once all of it is in registers",
    )
    epilogue = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="plgpu.copy_smem_to_gmem",
        stages=split.store_buffers,
        stage_bytes=budget.buffer_bytes,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by="the epilogue warpgroup, one piece of the accumulator",
        emptied_by="the TMA store, once it has read the buffer",
    )
    if not takes_answers(description):
        return mainloop, accumulator, epilogue
    full, empty = answer_arrive_counts(group)
    scheduler = PipelinePlan(
        name="scheduler",
        producer="clc",
        consumer="thread",
        construct="plgpu.dynamic_scheduling_loop",
        stages=ANSWERS,
        stage_bytes=ANSWER_BYTES,
        tx_count=ANSWER_BYTES,
        full_arrive_count=full,
        empty_arrive_count=empty,
        filled_by="the answer to a query, written to every CTA of the cluster",
        emptied_by="every warpgroup that has read it",
    )
    return mainloop, accumulator, scheduler, epilogue


def _roles(description: KernelDescription) -> tuple[RolePlan, ...]:
    # No register changes hands: two or three warpgroups may have all that a thread can hold.
    hardware = HARDWARE[description.kernel.arch]
    clc = takes_answers(description)
    most = hardware.registers_per_sm // (3 * WARPGROUP) // 8 * 8
    most = (
        most if clc or shared_cluster(description) != (1, 1) else hardware.max_registers_per_thread
    )
    warpgroups, threads = (1, WARPGROUP) if clc else (0, WARP)
    relays = shared_cluster(description) != (1, 1)
    release = RolePlan(
        "release", 1, WARPGROUP, most, "tells the other CTAs which stages have been read"
    )
    asks = ", and asks for tiles" if clc else ""
    return (
        RolePlan("tma", warpgroups, threads, most, f"one thread issues all TMA loads{asks}"),
        RolePlan("mma", warpgroups, threads, most, "one thread issues all MMAs"),
        RolePlan(
            "epilogue",
            1,
            WARPGROUP,
            most,
            "reads the accumulator from TMEM, and stores it while the next one is made",
        ),
        *((release,) if relays else ()),
    )


def _stage_limit(description: KernelDescription, budget: SmemBudget) -> str:
    stages = budget.split.stages
    if description.pipeline["mainloop"].stages != "auto":
        return f"the description ({stages}); {stage_range(description)[1]} would fit"
    if stages == MOST_STAGES:
        return f"jax: at most {MOST_STAGES} barriers in a group, one for each stage"
    return (
        f"SMEM: {stages + 1} stages of {budget.stage_bytes} B and the store buffers would exceed "
        f"{budget.capacity} B"
    )
