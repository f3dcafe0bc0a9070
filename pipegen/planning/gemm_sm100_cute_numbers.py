# SPDX-License-Identifier: Apache-2.0
"""Every derived number of the CuTe DSL Blackwell GEMM, with its formula and its source."""

from pipegen.arithmetic import (
    align_up,
    clc_consumer_arrive_count,
    elected_consumer_arrive_count,
    fewest_store_buffers,
    multicast_partners,
    ring_barrier_bytes,
    tmem_columns,
    umma_consumer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MMA_K_BYTES, SWIZZLE_128B_ALIGNMENT, WARP
from pipegen.planning.formulas import of_each, quotient, stages_or_given
from pipegen.planning.gemm_sm90_cute import smem_text
from pipegen.planning.model import Number
from pipegen.planning.smem import MAX_STORE_BUFFERS
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_sm100 import ANSWER_BYTES, accumulators_of, answers_of, cta_group_of
from pipegen.vocabulary import DTYPE

EPILOGUE_WARPS = 4  # a warp reaches the 32 TMEM lanes of its number modulo 4 (PTX, "tcgen05.ld")


def answer_arrive_count(cluster_mn: tuple[int, int], cta_group: int) -> int:
    """Arrivals that free one answer: in each CTA the TMA and the epilogue warps read it, and one
    MMA warp for each MMA."""
    return clc_consumer_arrive_count(cluster_mn, cta_group, 1 + EPILOGUE_WARPS, 1)


def gemm_sm100_numbers(
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
    group, answers = cta_group_of(description), answers_of(description)
    pairs = (cluster[0] // group, cluster[1])
    partners = multicast_partners(cluster, group)
    per_cta = f"{budget.a_bytes} + {budget.b_bytes}"
    b_rows = f"{n}" if group == 1 else f"{n} / 2"
    scheduler_warps = 1 if answers else 0
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
        Number("b_stage_bytes", budget.b_bytes, "B", f"{b_rows} * {k} * {b.bytes}", "dense B tile"),
        Number(
            "tx_count",
            group * stage_bytes,
            "B",
            per_cta if group == 1 else f"2 * ({per_cta})",
            "PTX ISA, mbarrier complete-tx: bytes count where they land, multicast or not; in a "
            "pair at the leader's barrier",
        ),
        Number(
            "multicast_partners",
            partners,
            "CTAs",
            f"{pairs[0]} + {pairs[1]} - 1",
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
            umma_consumer_arrive_count(cluster, group),
            "arrivals",
            (
                of_each("1 commit of the MMA warp", partners, "multicast partners")
                if group == 1
                else of_each("1 commit of the leader", partners, "pairs")
            ),
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
            elected_consumer_arrive_count(EPILOGUE_WARPS, group),
            "arrivals",
            f"1 elected lane of each of {EPILOGUE_WARPS} epilogue warps"
            + (" of both CTAs" if group == 2 else ""),
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
            ring_barriers + acc_barriers + ring_barrier_bytes(answers) + (8 if group == 2 else 0),
            "B",
            f"2 * {split.stages} * 8 + 2 * {accumulators} * 8"
            + (f" + 2 * {answers} * 8" if answers else "")
            + (" + 8" if group == 2 else ""),
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
            WARP * (EPILOGUE_WARPS + 2 + scheduler_warps),
            "threads",
            f"{WARP} * ({EPILOGUE_WARPS} + 1 + 1" + (" + 1)" if answers else ")"),
            "epilogue, MMA and TMA warps" + (", and the scheduler's" if answers else ""),
        ),
        Number(
            "mma_per_stage",
            k // mma_k,
            "instructions",
            f"{k} / {mma_k}",
            "PTX ISA, tcgen05.mma: K is 32 bytes of the operand type",
        ),
        Number("blocks_per_sm", 1, "blocks", "1", "min_blocks_per_mp; SMEM and TMEM fill an SM"),
        *_of_the_tiles(cluster, group, answers),
        *_of_a_pair(m, group),
        *_of_the_edge(description, budget, group),
    )


def _of_the_tiles(cluster: tuple[int, int], group: int, answers: int) -> tuple[Number, ...]:
    """The grid, and what the answers of cluster launch control count."""
    ctas = cluster[0] * cluster[1]
    if not answers:
        return (
            Number(
                "grid",
                "persistent",
                "blocks",
                f"{cluster[0]} * {cluster[1]} * min(tiles in clusters, SMs // {ctas})",
                "static persistent scheduler: as many clusters as the GPU runs at once",
            ),
        )
    return (
        Number(
            "grid",
            "dynamic",
            "blocks",
            f"{cluster[0]} * {cluster[1]} * tiles in clusters",
            "cluster launch control: running clusters cancel waiting ones and do their work",
        ),
        Number(
            "scheduler_empty_arrive_count",
            answer_arrive_count(cluster, group),
            "arrivals",
            f"{WARP} * ({ctas} * (1 + {EPILOGUE_WARPS}) + {ctas // group} + 1)",
            "cutlass.pipeline.PipelineClcFetchAsync.consumer_release: one for each calling thread, "
            "at CTA 0: TMA and epilogue warps, an MMA warp for each MMA, the scheduler warp",
        ),
        Number("answer_bytes", ANSWER_BYTES, "B", "16", "PTX ISA, clusterlaunchcontrol.try_cancel"),
    )


def _of_a_pair(m: int, group: int) -> tuple[Number, ...]:
    if group == 1:
        return ()
    why = "PTX ISA, tcgen05.mma, .cta_group::2: each CTA holds half of the rows"
    return (
        Number("mma_m", 2 * m, "rows", f"2 * {m}", why),
        Number(
            "tmem_free_arrive_count",
            WARP,
            "arrivals",
            f"{WARP} threads of the other CTA's store warp",
            "cutlass.memory.TmemAllocator.free",
        ),
    )


def _of_the_edge(
    description: KernelDescription, budget: SmemBudget, group: int
) -> tuple[Number, ...]:
    """The bytes that are not expected where the right half of a B tile is outside the matrix."""
    if not description.pipeline["mainloop"].expected_tx:
        return ()
    half = budget.b_bytes * group // 2
    n, k = description.tile.n or 0, description.tile.k or 0
    # Of one CTA's tile half; of a pair's, which is split already, all that the second CTA holds.
    formula = f"{n // 2} * {k} * {DTYPE[str(description.dtype.b)].bytes}"
    source = "cutlass.pipeline.PipelineTmaUmma.producer_acquire(expected_tx=...)"
    return (Number("half_b_bytes", half, "B", formula, source),)
