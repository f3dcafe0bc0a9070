# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Blackwell GEMM: TMA -> tcgen05 mainloop, accumulators in TMEM, TMA store
epilogue, persistent; one CTA to an MMA."""

from pipegen.arithmetic import (
    align_up,
    fewest_store_buffers,
    multicast_partners,
    ring_barrier_bytes,
    tmem_columns,
    umma_consumer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MMA_K_BYTES, SWIZZLE_128B_ALIGNMENT, WARP
from pipegen.planning.formulas import quotient, stages_or_given
from pipegen.planning.gemm_sm90_cute import smem_text
from pipegen.planning.gemm_sm100_cute_template import template_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import MAX_STORE_BUFFERS, accumulators_of, smem_of, stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.vocabulary import DTYPE

EPILOGUE_WARPS = 4  # a warp reaches the 32 TMEM lanes of its number modulo 4 (PTX, "tcgen05.ld")
WARPS = EPILOGUE_WARPS + 2  # and one for the MMAs, one for the loads


def plan_gemm_sm100_cute(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    split = budget.split
    accumulators = accumulators_of(description)
    arrivals = umma_consumer_arrive_count(description.cluster.shape or (1, 1))
    pipelines = (
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="umma",
            construct="PipelineTmaUmma",
            stages=split.stages,
            stage_bytes=budget.stage_bytes,
            tx_count=budget.stage_bytes,
            full_arrive_count=1,
            empty_arrive_count=arrivals,
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
            empty_arrive_count=EPILOGUE_WARPS,
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
    )
    # No register changes hands: six warps may have all that a thread can hold.
    most = HARDWARE[description.kernel.arch].max_registers_per_thread
    roles = (
        RolePlan("tma", 0, WARP, most, "one warp issues all TMA loads"),
        RolePlan("mma", 0, WARP, most, "one warp issues all MMAs"),
        RolePlan(
            "epilogue",
            1,
            WARP * EPILOGUE_WARPS,
            most,
            "reads the accumulator from TMEM, and stores it while the next one is made",
        ),
    )
    _, most_stages = stage_range(description)
    if description.pipeline["mainloop"].stages == "auto":
        limit = (
            f"SMEM: {split.stages + 1} stages of {budget.stage_bytes} B and the store buffers "
            f"would exceed {budget.capacity} B"
        )
    else:
        limit = f"the description ({split.stages}); {most_stages} would fit"
    numbers = _numbers(given, description, budget)
    values = template_values(description, budget)
    return Plan(name, given, description, template, pipelines, roles, numbers, limit, values)


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    cluster = description.cluster.shape or (1, 1)
    hardware = HARDWARE[description.kernel.arch]
    dtype = description.dtype
    a, b, out = (DTYPE[str(word)] for word in (dtype.a, dtype.b, dtype.out))
    split, stage_bytes = budget.split, budget.stage_bytes
    epi_m, epi_n = budget.epi_tile_mn
    accumulators = accumulators_of(description)
    columns = tmem_columns(accumulators, n)
    partners = multicast_partners(cluster)
    ring_barriers, acc_barriers = ring_barrier_bytes(split.stages), ring_barrier_bytes(accumulators)
    barrier_room = align_up(split.barrier_bytes, SWIZZLE_128B_ALIGNMENT)
    automatic = description.pipeline["epilogue"].stages == "auto"
    fewest = fewest_store_buffers(budget.subtiles) if automatic else split.store_buffers
    taken = barrier_room + fewest * budget.buffer_bytes
    stage_formula = quotient(
        budget.capacity,
        stage_bytes,
        split.stages,
        (f"{barrier_room} - {fewest} * {budget.buffer_bytes}", taken),
    )
    left = (budget.capacity - barrier_room - split.stages * stage_bytes) // budget.buffer_bytes
    room = f"({budget.capacity} - {barrier_room} - {split.stages} * {stage_bytes}) // "
    room = f"{room}{budget.buffer_bytes}"
    if min(MAX_STORE_BUFFERS, budget.subtiles, left) != split.store_buffers:
        room = "what fits"
    mma_k = MMA_K_BYTES // a.bytes
    return (
        Number("a_stage_bytes", budget.a_bytes, "B", f"{m} * {k} * {a.bytes}", "dense A tile"),
        Number("b_stage_bytes", budget.b_bytes, "B", f"{n} * {k} * {b.bytes}", "dense B tile"),
        Number(
            "tx_count",
            stage_bytes,
            "B",
            f"{budget.a_bytes} + {budget.b_bytes}",
            "PTX ISA, mbarrier complete-tx: bytes count where they land, multicast or not",
        ),
        Number(
            "multicast_partners",
            partners,
            "CTAs",
            f"{cluster[0]} + {cluster[1]} - 1",
            "cutlass.pipeline.PipelineTmaUmma.create: mcast_m_size + mcast_n_size - 1",
        ),
        Number(
            "mainloop_full_arrive_count",
            1,
            "arrivals",
            "1 elected lane of the TMA warp arms the barrier with tx_count",
            "cutlass.pipeline.PipelineTmaUmma.producer_acquire",
        ),
        Number(
            "mainloop_empty_arrive_count",
            umma_consumer_arrive_count(cluster),
            "arrivals",
            f"1 commit of the MMA warp of each of {partners} multicast partners",
            "cutlass.pipeline.PipelineTmaUmma.consumer_release; PTX ISA, tcgen05.commit",
        ),
        Number(
            "accumulator_full_arrive_count",
            1,
            "arrivals",
            "1 commit of the MMA warp",
            "cutlass.pipeline.PipelineUmmaAsync.producer_commit",
        ),
        Number(
            "accumulator_empty_arrive_count",
            EPILOGUE_WARPS,
            "arrivals",
            f"1 elected lane of each of {EPILOGUE_WARPS} epilogue warps",
            "cutlass.pipeline.PipelineAsync.consumer_release: one for each calling thread",
        ),
        Number(
            "accumulator_buffers",
            accumulators,
            "buffers",
            stages_or_given(given, "accumulator", str(accumulators)),
            "the epilogue reads one while the MMAs fill the next",
        ),
        Number(
            "tmem_columns",
            columns,
            "columns",
            (
                f"{accumulators} * {n}"
                if accumulators * n == columns
                else f"{accumulators} * {n} up to a power of two"
            ),
            "PTX ISA, tcgen05.alloc: a power of two from 32 to 512",
        ),
        Number(
            "epi_buffer_bytes",
            budget.buffer_bytes,
            "B",
            f"{epi_m} * {epi_n} * {out.bytes}",
            "one epilogue subtile",
        ),
        Number(
            "epi_subtiles",
            budget.subtiles,
            "subtiles",
            f"({m} / {epi_m}) * ({n} / {epi_n})",
            "subtiles of a tile, stored one after the other",
        ),
        Number(
            "mainloop_stages",
            split.stages,
            "stages",
            stages_or_given(given, "mainloop", stage_formula),
            "as many as fit; counted with the fewest store buffers",
        ),
        Number(
            "epilogue_buffers",
            split.store_buffers,
            "buffers",
            stages_or_given(
                given, "epilogue", f"min({MAX_STORE_BUFFERS}, {budget.subtiles}, {room})"
            ),
            f"as many as fit beside the ring, at most {MAX_STORE_BUFFERS}",
        ),
        Number(
            "mbarrier_bytes",
            ring_barriers + acc_barriers,
            "B",
            f"2 * {split.stages} * 8 + 2 * {accumulators} * 8",
            "PTX ISA, size of an mbarrier object",
        ),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            smem_text(split, budget, barrier_room),
            f"at most {budget.capacity} B a block on {hardware.arch} (CUDA, Compute Capabilities)",
        ),
        Number(
            "threads",
            WARP * WARPS,
            "threads",
            f"{WARP} * ({EPILOGUE_WARPS} + 1 + 1)",
            "epilogue, MMA and TMA warps",
        ),
        Number(
            "mma_per_stage",
            k // mma_k,
            "instructions",
            f"{k} / {mma_k}",
            "PTX ISA, tcgen05.mma: K is 32 bytes of the operand type",
        ),
        Number("blocks_per_sm", 1, "blocks", "1", "min_blocks_per_mp; SMEM and TMEM fill an SM"),
        Number(
            "grid",
            "persistent",
            "blocks",
            f"{cluster[0]} * {cluster[1]} * min(tiles in clusters, SMs // "
            f"{cluster[0] * cluster[1]})",
            "static persistent scheduler: as many clusters as the GPU runs at once",
        ),
    )
