# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Hopper mixed GEMM: threads convert the weights for wgmma's registers."""

from pipegen.arithmetic import (
    accumulator_registers,
    align_up,
    blocks_per_sm,
    fewest_store_buffers,
    launch_registers,
    multicast_partners,
    ring_barrier_bytes,
    tma_consumer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import (
    aligned_sum,
    of_each,
    product,
    quotient,
    registers_or_given,
    stages_or_given,
)
from pipegen.planning.mixed_template import mixed_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import smem_of, stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_mixed import MAX_STORE_BUFFERS
from pipegen.vocabulary import DTYPE

MMA_K = 16  # of a wgmma or tcgen05.mma with 16-bit operands
# Steps of K whose weights are converted one after the other, then multiplied: enough that their
# instructions overlap, few enough for the registers of two groups and of what the next one loads.
GROUP_REGISTERS = 16


def group_steps(description: KernelDescription) -> int:
    """wgmmas along K of a group: four registers of converted weights for each 64 channels.

    A stage has at least two groups, so that one's registers are written while the other's are read.
    """
    steps = (description.tile.k or 0) // MMA_K
    return min(GROUP_REGISTERS // (4 * wgmma_rows(description)), steps // 2)


def wgmma_rows(description: KernelDescription) -> int:
    """Times 64 channels that a consumer warpgroup computes."""
    return (description.tile.n or 0) // (64 * (description.role["consumer"].warpgroups or 1))


def plan_mixed_sm90_cute(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    producer, consumer = description.role["producer"], description.role["consumer"]
    warpgroups = consumer.warpgroups or 1
    arrivals = tma_consumer_arrive_count(4 * warpgroups, description.cluster.shape or (1, 1))
    pipelines = (
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="wgmma",
            construct="PipelineTmaAsync",
            stages=budget.split.stages,
            stage_bytes=budget.stage_bytes,
            tx_count=budget.stage_bytes,
            full_arrive_count=1,
            empty_arrive_count=arrivals,
            filled_by=f"TMA loads of {stage_parts(budget)}",
            emptied_by="one lane of each consumer warp, once the stage's wgmmas are done",
        ),
        store_pipeline(budget, "consumer"),
    )
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
            warpgroups,
            WARPGROUP * warpgroups,
            consumer.registers or 0,
            "converts weights in registers, wgmma; then the epilogue of the same tile",
        ),
    )
    values = {
        **mixed_values(description, budget),
        "capability_major": 9,
        "last_consumer_warp": 4 * (1 + warpgroups) - 1,
        "full_barrier": f"1 arrive + {budget.stage_bytes} B",
        "stage_parts": stage_parts(budget),
        "epi_subtiles_m": (description.tile.m or 0) // budget.epi_tile_mn[0],
        "stmatrix": DTYPE[str(description.dtype.out)].bits == 16,
        "plain_store": DTYPE[str(description.dtype.out)].bits != 16,
    }
    numbers = _numbers(given, description, budget)
    limit = stage_limit(description, budget)
    return Plan(name, given, description, template, pipelines, roles, numbers, limit, values)


def stage_parts(budget: SmemBudget) -> str:
    """What a stage holds."""
    return "an A tile, a B tile and its scales" if budget.scale_bytes else "an A and a B tile"


def store_pipeline(budget: SmemBudget, role: str) -> PipelinePlan:
    """The epilogue's pipeline, which the warps of `role` fill."""
    return PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="PipelineTmaStore",
        stages=budget.split.store_buffers,
        stage_bytes=budget.buffer_bytes,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by=f"all {role} warps, one subtile of the accumulator, transposed",
        emptied_by="the TMA store, once it has read the buffer",
    )


def stage_limit(description: KernelDescription, budget: SmemBudget) -> str:
    """What keeps the ring from having more stages."""
    if description.pipeline["mainloop"].stages != "auto":
        return f"the description ({budget.split.stages}); {stage_range(description)[1]} would fit"
    return (
        f"SMEM: {budget.split.stages + 1} stages of {budget.stage_bytes} B and the store buffers "
        f"would exceed {budget.capacity} B"
    )


def smem_numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    """The numbers of SMEM, which both mixed GEMMs have."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a, b, out = (
        DTYPE[str(word)]
        for word in (description.dtype.a, description.dtype.b, description.dtype.out)
    )
    split = budget.split
    epi_m, epi_n = budget.epi_tile_mn
    room_of_barriers = align_up(split.barrier_bytes, SWIZZLE_128B_ALIGNMENT)
    automatic = description.pipeline["epilogue"].stages == "auto"
    fewest = fewest_store_buffers(budget.subtiles) if automatic else split.store_buffers
    stage_formula = quotient(
        budget.capacity,
        budget.stage_bytes,
        split.stages,
        (
            f"{room_of_barriers} - {fewest} * {budget.buffer_bytes}",
            room_of_barriers + fewest * budget.buffer_bytes,
        ),
    )
    ring = split.stages * budget.stage_bytes
    left = (budget.capacity - room_of_barriers - ring) // budget.buffer_bytes
    room = f"({budget.capacity} - {room_of_barriers} - {split.stages} * {budget.stage_bytes}) // "
    room = f"{room}{budget.buffer_bytes}"
    if min(MAX_STORE_BUFFERS, budget.subtiles, left) != split.store_buffers:
        room = "what fits"
    sizes = (budget.a_bytes, budget.b_bytes, budget.scale_bytes)
    rings = [product(split.stages, size) for size in sizes if size]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    stores = product(split.store_buffers, budget.buffer_bytes)
    per_byte = f" / {8 // b.bits}" if b.bits < 8 else ""
    return (
        Number("a_stage_bytes", budget.a_bytes, "B", f"{m} * {k} * {a.bytes}", "dense A tile"),
        Number("b_stage_bytes", budget.b_bytes, "B", f"{n} * {k}{per_byte}", "dense B tile"),
        Number(
            "scale_stage_bytes",
            budget.scale_bytes,
            "B",
            f"{n} * {a.bytes}" if budget.scale_bytes else "none: one scale a channel",
            "the scales of one group of K",
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
            "smem_bytes",
            split.total_bytes,
            "B",
            aligned_sum((str(room_of_barriers), room_of_barriers), *rings, stores),
            f"at most {budget.capacity} B a block (CUDA, Compute Capabilities)",
        ),
        Number(
            "steps",
            k // MMA_K,
            "steps",
            f"{k} / {MMA_K}",
            "PTX ISA, wgmma and tcgen05.mma: K is 32 bytes of the operand type",
        ),
    )


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    cluster = description.cluster.shape or (1, 1)
    hardware = HARDWARE[description.kernel.arch]
    producer, consumer = description.role["producer"], description.role["consumer"]
    warpgroups = consumer.warpgroups or 1
    threads = WARPGROUP * (1 + warpgroups)
    start = launch_registers(threads, hardware)
    partners = multicast_partners(cluster)
    split = budget.split
    blocks = blocks_per_sm(threads, start, split.total_bytes, hardware)
    parts = [str(size) for size in (budget.a_bytes, budget.b_bytes, budget.scale_bytes) if size]
    return (
        *smem_numbers(given, description, budget),
        Number(
            "tx_count",
            budget.stage_bytes,
            "B",
            " + ".join(parts),
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
            "mainloop_empty_arrive_count",
            tma_consumer_arrive_count(4 * warpgroups, cluster),
            "arrivals",
            of_each(f"{4 * warpgroups} consumer warps", partners, "multicast partners"),
            "cutlass.pipeline.PipelineTmaAsync.consumer_release: one lane a warp and partner",
        ),
        Number(
            "mbarrier_bytes",
            ring_barrier_bytes(split.stages),
            "B",
            f"2 * {split.stages} * 8",
            "PTX ISA, size of an mbarrier object",
        ),
        Number(
            "threads", threads, "threads", f"128 * (1 + {warpgroups})", "one producer warpgroup"
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
            producer.registers or 0,
            "registers a thread",
            registers_or_given(given, "producer", str(producer.registers)),
            "setmaxnreg",
        ),
        Number(
            "consumer_registers",
            consumer.registers or 0,
            "registers a thread",
            registers_or_given(
                given,
                "consumer",
                f"min(240, ({1 + warpgroups} * {start} - {producer.registers}) // "
                f"{warpgroups} // 8 * 8)",
            ),
            "setmaxnreg: all roles together at most what the launch allocated",
        ),
        Number(
            "accumulator_registers",
            accumulator_registers(n, m, warpgroups),
            "registers a thread",
            f"{n} * {m} / (128 * {warpgroups})",
            "PTX ISA, wgmma accumulator fragments",
        ),
        Number(
            "fragment_registers",
            n * k // (2 * WARPGROUP * warpgroups),
            "registers a thread",
            f"{n} * {k} / 2 / (128 * {warpgroups})",
            "PTX ISA, wgmma fragments of A: 16-bit, two a register; two groups live at once",
        ),
        Number(
            "group_steps",
            group_steps(description),
            "wgmmas",
            f"min({GROUP_REGISTERS} // (4 * {wgmma_rows(description)}), {k // MMA_K} // 2)",
            "converted one after the other, then multiplied; two groups are under way",
        ),
        Number(
            "groups",
            k // (MMA_K * group_steps(description)),
            "groups",
            f"{k} / ({MMA_K} * {group_steps(description)})",
            "of a stage",
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
            f"{cluster[0]} * {cluster[1]} * min(tiles in clusters, SMs // "
            f"{cluster[0] * cluster[1]} * {blocks})",
            "static persistent scheduler: as many clusters as the GPU runs at once",
        ),
    )
