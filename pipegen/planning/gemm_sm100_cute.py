# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Blackwell GEMM: TMA -> tcgen05 mainloop, accumulators in TMEM, TMA store
epilogue; one CTA or a pair to an MMA; tiles by a persistent grid or by cluster launch control."""

from pipegen.arithmetic import elected_consumer_arrive_count, umma_consumer_arrive_count
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP
from pipegen.planning.gemm_sm100_cute_numbers import (
    EPILOGUE_WARPS,
    answer_arrive_count,
    gemm_sm100_numbers,
)
from pipegen.planning.gemm_sm100_cute_template import template_values
from pipegen.planning.model import PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import smem_of, stage_range
from pipegen.planning.smem_sm100 import ANSWER_BYTES, accumulators_of, answers_of, cta_group_of


def plan_gemm_sm100_cute(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    split = budget.split
    accumulators = accumulators_of(description)
    cluster, group = description.cluster.shape or (1, 1), cta_group_of(description)
    pipelines = [
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="umma",
            construct="PipelineTmaUmma",
            stages=split.stages,
            stage_bytes=budget.stage_bytes,
            tx_count=group * budget.stage_bytes,
            full_arrive_count=1,
            empty_arrive_count=umma_consumer_arrive_count(cluster, group),
            filled_by="TMA loads of one A and one B tile",
            emptied_by="a tcgen05 commit, once the MMAs before it have read SMEM",
        ),
        PipelinePlan(
            name="accumulator",
            producer="umma",
            consumer="thread",
            construct="PipelineUmmaAsync",
            stages=accumulators,
            stage_bytes=4 * (description.tile.m or 0) * (description.tile.n or 0),
            tx_count=None,
            full_arrive_count=1,
            empty_arrive_count=elected_consumer_arrive_count(EPILOGUE_WARPS, group),
            filled_by="the MMAs of all K tiles, then one tcgen05 commit",
            emptied_by="one lane of each epilogue warp, once its part is in registers",
        ),
        PipelinePlan(
            name="epilogue",
            producer="thread",
            consumer="tma_store",
            construct="PipelineTmaStore",
            stages=split.store_buffers,
            stage_bytes=budget.buffer_bytes,
            tx_count=None,
            full_arrive_count=None,
            empty_arrive_count=None,
            filled_by="all epilogue warps, one subtile of the accumulator",
            emptied_by="the TMA store, once it has read the buffer",
        ),
    ]
    # No register changes hands: six warps may have all that a thread can hold.
    most = HARDWARE[description.kernel.arch].max_registers_per_thread
    roles = [
        RolePlan("tma", 0, WARP, most, "one warp issues all TMA loads"),
        RolePlan("mma", 0, WARP, most, "one warp issues all MMAs"),
        RolePlan(
            "epilogue",
            1,
            WARP * EPILOGUE_WARPS,
            most,
            "reads the accumulator from TMEM, and stores it while the next one is made",
        ),
    ]
    if description.scheduler.tiles == "clc":
        pipelines.insert(
            2,
            PipelinePlan(
                name="scheduler",
                producer="clc",
                consumer="thread",
                construct="PipelineClcFetchAsync",
                stages=answers_of(description),
                stage_bytes=ANSWER_BYTES,
                tx_count=ANSWER_BYTES,
                full_arrive_count=1,
                empty_arrive_count=answer_arrive_count(cluster, group),
                filled_by="the answer to a query, written to every CTA of the cluster",
                emptied_by="every thread that has read it, at the cluster's first CTA",
            ),
        )
        why = "one warp of the cluster's first CTA asks for the next tiles"
        roles.append(RolePlan("scheduler", 0, WARP, most, why))
    _, most_stages = stage_range(description)
    if description.pipeline["mainloop"].stages == "auto":
        limit = (
            f"SMEM: {split.stages + 1} stages of {budget.stage_bytes} B and the store buffers "
            f"would exceed {budget.capacity} B"
        )
    else:
        limit = f"the description ({split.stages}); {most_stages} would fit"
    numbers = gemm_sm100_numbers(given, description, budget)
    values = template_values(description, budget)
    return Plan(
        name, given, description, template, tuple(pipelines), tuple(roles), numbers, limit, values
    )
