# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Blackwell mixed GEMM: threads convert the weights into TMEM for tcgen05."""

from pipegen.arithmetic import (
    elected_consumer_arrive_count,
    ring_barrier_bytes,
    thread_producer_arrive_count,
    tma_consumer_arrive_count,
    tmem_columns,
    umma_consumer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, TMEM_COLUMNS_MAX, WARP
from pipegen.planning.formulas import of_each, stages_or_given
from pipegen.planning.gemm_sm100_cute_template import commits_text
from pipegen.planning.mixed_sm90_cute import smem_numbers, stage_limit, store_pipeline
from pipegen.planning.mixed_template import mixed_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import smem_of
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_mixed import (
    ACCUMULATORS,
    MAX_TRANSFORM_STAGES,
    transform_columns,
    transform_stages,
)

# A warp reaches the 32 TMEM lanes of its number modulo 4 (PTX, "tcgen05.ld", "tcgen05.st").
LANE_WARPS = 4
A_ONLY, B_ONLY = (1, 0), (0, 1)  # what a stage holds, as mcast_mode_mn
WARPS = 2 * LANE_WARPS + 2  # epilogue and transform, and one for the MMAs, one for the loads


def plan_mixed_sm100_cute(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    m, n = description.tile.m or 0, description.tile.n or 0
    cluster = description.cluster.shape or (1, 1)
    stages, converted = budget.split.stages, transform_stages(description)
    weights_bytes = budget.b_bytes + budget.scale_bytes
    pipelines = (
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="umma",
            construct="PipelineTmaUmma",
            stages=stages,
            stage_bytes=budget.a_bytes,
            tx_count=budget.a_bytes,
            full_arrive_count=1,
            empty_arrive_count=umma_consumer_arrive_count(cluster, 1, A_ONLY),
            filled_by="a TMA load of one A tile",
            emptied_by="a tcgen05 commit, once the MMAs before it have read SMEM",
        ),
        PipelinePlan(
            name="weights",
            producer="tma",
            consumer="thread",
            construct="PipelineTmaAsync",
            stages=stages,
            stage_bytes=weights_bytes,
            tx_count=weights_bytes,
            full_arrive_count=1,
            empty_arrive_count=tma_consumer_arrive_count(LANE_WARPS, cluster, B_ONLY),
            filled_by=f"TMA loads of one B tile{' and its scales' if budget.scale_bytes else ''}",
            emptied_by="one lane of each transform warp, once it has read its channels",
        ),
        PipelinePlan(
            name="transform",
            producer="thread",
            consumer="umma",
            construct="PipelineAsyncUmma",
            stages=converted,
            stage_bytes=2 * n * (description.tile.k or 0),
            tx_count=None,
            full_arrive_count=thread_producer_arrive_count(LANE_WARPS),
            empty_arrive_count=1,
            filled_by="the transform threads, a channel each, in TMEM",
            emptied_by="a tcgen05 commit, once the MMAs before it have read TMEM",
        ),
        PipelinePlan(
            name="accumulator",
            producer="umma",
            consumer="thread",
            construct="PipelineUmmaAsync",
            stages=ACCUMULATORS,
            stage_bytes=4 * m * n,
            tx_count=None,
            full_arrive_count=1,
            empty_arrive_count=elected_consumer_arrive_count(LANE_WARPS),
            filled_by="the MMAs of all K tiles, then one tcgen05 commit",
            emptied_by="one lane of each epilogue warp, once its part is in registers",
        ),
        store_pipeline(budget, "epilogue"),
    )
    # No register changes hands: ten warps have what the compiler gives them.
    most = HARDWARE[description.kernel.arch].registers_per_sm // (WARP * WARPS) // 8 * 8
    roles = (
        RolePlan("tma", 0, WARP, most, "one warp issues all TMA loads"),
        RolePlan("mma", 0, WARP, most, "one warp issues all MMAs"),
        RolePlan("transform", 1, WARP * LANE_WARPS, most, "converts weights from SMEM into TMEM"),
        RolePlan(
            "epilogue",
            1,
            WARP * LANE_WARPS,
            most,
            "reads the accumulator from TMEM, and stores it while the next one is made",
        ),
    )
    values = {
        **mixed_values(description, budget),
        "capability_major": 10,
        "mainloop_full": f"1 arrive + {budget.a_bytes} B",
        "mainloop_empty": commits_text(pipelines[0].empty_arrive_count),
        "weights_full": f"1 arrive + {weights_bytes} B",
        "weights_parts": ", tile and scales" if budget.scale_bytes else "",
        "piece_chunks": 1 if description.dtype.b == "i4" else 2,
    }
    numbers = _numbers(given, description, budget)
    limit = stage_limit(description, budget)
    return Plan(name, given, description, template, pipelines, roles, numbers, limit, values)


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    m = description.tile.m or 0
    cluster = description.cluster.shape or (1, 1)
    cluster_m, cluster_n = cluster
    stages, converted = budget.split.stages, transform_stages(description)
    held = transform_columns(description)
    used = ACCUMULATORS * m + converted * held
    columns = tmem_columns(1, used)
    used_formula = f"{ACCUMULATORS} * {m} + {converted} * {held}"
    barriers = 2 * ring_barrier_bytes(stages) + ring_barrier_bytes(converted + ACCUMULATORS)
    weights_bytes = budget.b_bytes + budget.scale_bytes
    return (
        *smem_numbers(given, description, budget),
        Number(
            "weights_tx_count",
            weights_bytes,
            "B",
            (
                f"{budget.b_bytes} + {budget.scale_bytes}"
                if budget.scale_bytes
                else str(budget.b_bytes)
            ),
            "PTX ISA, mbarrier complete-tx: bytes count where they land, multicast or not",
        ),
        Number(
            "mainloop_empty_arrive_count",
            umma_consumer_arrive_count(cluster, 1, A_ONLY),
            "arrivals",
            of_each("1 commit of the MMA warp", cluster_n, "CTAs that share A"),
            "cutlass.pipeline.PipelineTmaUmma.create, mcast_mode_mn = (1, 0)",
        ),
        Number(
            "weights_empty_arrive_count",
            tma_consumer_arrive_count(LANE_WARPS, cluster, B_ONLY),
            "arrivals",
            of_each(f"{LANE_WARPS} transform warps", cluster_m, "CTAs that share B"),
            "cutlass.pipeline.PipelineTmaAsync.create, mcast_mode_mn = (0, 1)",
        ),
        Number(
            "transform_full_arrive_count",
            thread_producer_arrive_count(LANE_WARPS),
            "arrivals",
            f"{WARP} * {LANE_WARPS}",
            "cutlass.pipeline.PipelineAsync.producer_commit: one for each calling thread",
        ),
        Number(
            "transform_stages",
            converted,
            "stages",
            stages_or_given(
                given,
                "transform",
                f"min({MAX_TRANSFORM_STAGES}, ({TMEM_COLUMNS_MAX} - {ACCUMULATORS} * {m}) // "
                f"{held})",
            ),
            "the TMEM columns that the accumulators leave",
        ),
        Number(
            "tmem_columns",
            columns,
            "columns",
            used_formula if used == columns else f"{used_formula} up to a power of two",
            "PTX ISA, tcgen05.alloc: a power of two from 32 to 512",
        ),
        Number(
            "mbarrier_bytes",
            barriers,
            "B",
            f"2 * 2 * {stages} * 8 + 2 * {converted} * 8 + 2 * {ACCUMULATORS} * 8",
            "PTX ISA, size of an mbarrier object",
        ),
        Number(
            "threads",
            WARP * WARPS,
            "threads",
            f"{WARP} * ({LANE_WARPS} + {LANE_WARPS} + 1 + 1)",
            "epilogue, transform, MMA and TMA warps",
        ),
        Number("blocks_per_sm", 1, "blocks", "1", "min_blocks_per_mp; SMEM and TMEM fill an SM"),
        Number(
            "grid",
            "persistent",
            "blocks",
            f"{cluster_m} * {cluster_n} * min(tiles in clusters, SMs // {cluster_m * cluster_n})",
            "static persistent scheduler: as many clusters as the GPU runs at once",
        ),
    )
