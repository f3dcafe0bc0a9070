# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Hopper GEMM in ping-pong: two consumer warpgroups take turns, each with an
output tile of its own; one TMA -> wgmma ring feeds both."""

from pipegen.arithmetic import (
    accumulator_registers,
    align_up,
    blocks_per_sm,
    fewest_store_buffers,
    launch_registers,
    multicast_partners,
    order_arrive_count,
    order_barrier_bytes,
    ring_barrier_bytes,
    tma_consumer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MMA_K_BYTES, SWIZZLE_128B_ALIGNMENT, WARP, WARPGROUP
from pipegen.planning.formulas import (
    aligned_sum,
    product,
    quotient,
    registers_or_given,
    stages_or_given,
)
from pipegen.planning.gemm_sm90_cute import grid_text, multicast_text
from pipegen.planning.gemm_sm90_cute_template import template_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import MAX_STORE_BUFFERS, smem_of, stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.turns import TURN_STAGES, TURN_WARPGROUPS
from pipegen.vocabulary import DTYPE

WARPS = WARPGROUP // WARP  # of the warpgroup that empties a stage


def plan_gemm_sm90_pingpong(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    split = budget.split
    arrivals = tma_consumer_arrive_count(WARPS, description.cluster.shape or (1, 1))
    pipelines = (
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="wgmma",
            construct="PipelineTmaAsync",
            stages=split.stages,
            stage_bytes=budget.stage_bytes,
            tx_count=budget.stage_bytes,
            full_arrive_count=1,
            empty_arrive_count=arrivals,
            filled_by="TMA loads of one A and one B tile, in the order of the output tiles",
            emptied_by="one lane of each warp of the warpgroup whose tile it is, after its wgmma",
        ),
        PipelinePlan(
            name="turns",
            producer="thread",
            consumer="thread",
            construct="PipelineOrder",
            stages=TURN_STAGES,
            stage_bytes=0,
            tx_count=None,
            full_arrive_count=order_arrive_count(WARPS),
            empty_arrive_count=None,
            filled_by="all threads of a warpgroup, once they have issued their tile's last wgmma",
            emptied_by="nobody: the next warpgroup waits for its own barrier",
            groups=TURN_WARPGROUPS,
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
            filled_by="the four warps of a warpgroup, one subtile of its accumulator",
            emptied_by="the TMA store, once it has read the buffer",
        ),
    )
    producer, consumer = description.role["producer"], description.role["consumer"]
    roles = (
        RolePlan(
            "producer",
            1,
            WARPGROUP,
            producer.registers or 0,
            "one warp issues TMA loads; three sleep",
        ),
        RolePlan(
            "consumer",
            TURN_WARPGROUPS,
            WARPGROUP * TURN_WARPGROUPS,
            consumer.registers or 0,
            "wgmma mainloop, then the epilogue, of every second tile",
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
    numbers = (*_numbers(given, description, budget), *_machine(given, description, budget))
    values = {
        **template_values(description, budget),
        "turn_barrier": f"{WARPGROUP} arrives",
        "store_stages": f"{TURN_WARPGROUPS} x {split.store_buffers}",
    }
    return Plan(name, given, description, template, pipelines, roles, numbers, limit, values)


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    """The pipelines: bytes, arrive counts, stages."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    cluster = description.cluster.shape or (1, 1)
    dtype = description.dtype
    a, b, out = (DTYPE[str(word)] for word in (dtype.a, dtype.b, dtype.out))
    split, stage_bytes, buffer_bytes = budget.split, budget.stage_bytes, budget.buffer_bytes
    epi_m, epi_n = budget.epi_tile_mn
    partners = multicast_partners(cluster)
    barrier_room = align_up(split.barrier_bytes, SWIZZLE_128B_ALIGNMENT)
    automatic = description.pipeline["epilogue"].stages == "auto"
    fewest = fewest_store_buffers(budget.subtiles) if automatic else split.store_buffers
    stage_formula = quotient(
        budget.capacity,
        stage_bytes,
        split.stages,
        (
            f"{barrier_room} - {TURN_WARPGROUPS} * {fewest} * {buffer_bytes}",
            barrier_room + TURN_WARPGROUPS * fewest * buffer_bytes,
        ),
    )
    left = budget.capacity - barrier_room - split.stages * stage_bytes
    room = f"({budget.capacity} - {barrier_room} - {split.stages} * {stage_bytes}) // "
    room = f"{room}({TURN_WARPGROUPS} * {buffer_bytes})"
    fitting = left // (TURN_WARPGROUPS * buffer_bytes)
    if min(MAX_STORE_BUFFERS, budget.subtiles, fitting) != split.store_buffers:
        room = "what fits"
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
            "cutlass.pipeline.PipelineTmaAsync.create: mcast_m_size + mcast_n_size - 1",
        ),
        Number(
            "mainloop_full_arrive_count",
            1,
            "arrivals",
            "1 producer thread arms the barrier with tx_count",
            "cutlass.pipeline.PipelineTmaAsync.producer_acquire",
        ),
        Number(
            "mainloop_empty_arrive_count",
            tma_consumer_arrive_count(WARPS, cluster),
            "arrivals",
            multicast_text(f"{WARPS} warps of one warpgroup", partners),
            "cutlass.pipeline.PipelineTmaAsync.consumer_release: one lane a warp and partner",
        ),
        Number(
            "turn_arrive_count",
            order_arrive_count(WARPS),
            "arrivals",
            f"{WARPGROUP} threads of the warpgroup whose turn ends",
            "cutlass.pipeline.PipelineOrder.arrive: every calling thread arrives",
        ),
        Number(
            "turn_barriers",
            TURN_STAGES * TURN_WARPGROUPS,
            "mbarriers",
            f"{TURN_STAGES} * {TURN_WARPGROUPS}",
            "cutlass.pipeline.PipelineOrder.create: depth * length, one a warpgroup and turn",
        ),
        Number(
            "epi_buffer_bytes",
            buffer_bytes,
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
            "buffers a warpgroup",
            stages_or_given(
                given, "epilogue", f"min({MAX_STORE_BUFFERS}, {budget.subtiles}, {room})"
            ),
            f"as many as fit beside the ring, at most {MAX_STORE_BUFFERS}",
        ),
        Number(
            "store_buffers",
            TURN_WARPGROUPS * split.store_buffers,
            "buffers",
            f"{TURN_WARPGROUPS} * {split.store_buffers}",
            "each warpgroup has its own: its stores never wait for the other's",
        ),
        Number(
            "mbarrier_bytes",
            ring_barrier_bytes(split.stages) + order_barrier_bytes(TURN_STAGES, TURN_WARPGROUPS),
            "B",
            f"2 * {split.stages} * 8 + {TURN_STAGES} * {TURN_WARPGROUPS} * 8",
            "PTX ISA, size of an mbarrier object",
        ),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            _smem_text(budget, barrier_room),
            f"at most {budget.capacity} B a block on {description.kernel.arch} "
            "(CUDA, Compute Capabilities)",
        ),
    )


def _machine(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    """Threads, registers, instructions and the grid."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    cluster = description.cluster.shape or (1, 1)
    hardware = HARDWARE[description.kernel.arch]
    producer = description.role["producer"].registers or 0
    consumer = description.role["consumer"].registers or 0
    threads = WARPGROUP * (1 + TURN_WARPGROUPS)
    start = launch_registers(threads, hardware)
    accumulators = 2 if description.dtype.promote_every else 1
    mma_k = MMA_K_BYTES // DTYPE[description.dtype.a].bytes
    blocks = blocks_per_sm(threads, start, budget.split.total_bytes, hardware)
    return (
        Number(
            "threads", threads, "threads", f"128 * (1 + {TURN_WARPGROUPS})", "a producer warpgroup"
        ),
        Number(
            "launch_registers",
            start,
            "registers a thread",
            f"min(256, {hardware.registers_per_sm} // {threads} // 8 * 8)",
            "PTX ISA, setmaxnreg",
        ),
        Number(
            "producer_registers",
            producer,
            "registers a thread",
            registers_or_given(given, "producer", str(producer)),
            "setmaxnreg",
        ),
        Number(
            "consumer_registers",
            consumer,
            "registers a thread",
            registers_or_given(
                given,
                "consumer",
                f"min(240, ({1 + TURN_WARPGROUPS} * {start} - {producer}) // "
                f"{TURN_WARPGROUPS} // 8 * 8)",
            ),
            "setmaxnreg: all roles together at most what the launch allocated",
        ),
        Number(
            "accumulator_registers",
            accumulators * accumulator_registers(m, n, 1),
            "registers a thread",
            f"{accumulators} * {m} * {n} / 128",
            "PTX ISA, wgmma accumulator fragments: a whole tile in one warpgroup",
        ),
        Number(
            "wgmma_per_stage",
            k // mma_k,
            "instructions",
            f"{k} / {mma_k}",
            "PTX ISA, wgmma: K is 32 bytes of the operand type",
        ),
        Number(
            "blocks_per_sm",
            blocks,
            "blocks",
            f"min(by registers, SMEM, threads, {hardware.max_blocks_per_sm})",
            "CUDA, Compute Capabilities",
        ),
        Number(
            "grid",
            "persistent",
            "blocks",
            grid_text(cluster, blocks),
            "static persistent scheduler: as many as the GPU runs at once",
        ),
    )


def _smem_text(budget: SmemBudget, barrier_room: int) -> str:
    """The SMEM sum: barriers, ring and both warpgroups' store buffers."""
    split = budget.split
    rings = [product(split.stages, size) for size in (budget.a_bytes, budget.b_bytes)]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    text, size = product(split.store_buffers, budget.buffer_bytes)
    stores = f"{TURN_WARPGROUPS} * {text}", TURN_WARPGROUPS * size
    return aligned_sum((str(barrier_room), barrier_room), *rings, stores)
