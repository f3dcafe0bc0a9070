# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Hopper GEMM: TMA -> wgmma mainloop, TMA store epilogue, persistent."""

from pipegen.arithmetic import (
    SmemSplit,
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
from pipegen.hardware import HARDWARE, MMA_K_BYTES, SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import (
    aligned_sum,
    product,
    quotient,
    registers_or_given,
    stages_or_given,
)
from pipegen.planning.gemm_sm90_cute_template import template_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import MAX_STORE_BUFFERS, smem_of, stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.vocabulary import DTYPE


def plan_gemm_sm90_cute(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    m, n, k = tile = _tile(description)
    cluster = description.cluster.shape or (1, 1)
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {tile=}")
    hardware = HARDWARE[description.kernel.arch]
    producer, consumer = description.role["producer"], description.role["consumer"]
    warpgroups = consumer.warpgroups or 1
    producer_registers, consumer_registers = producer.registers or 0, consumer.registers or 0
    producers = producer.warps
    threads = WARPGROUP * (1 + warpgroups)
    consumer_warps = 4 * warpgroups
    partners = multicast_partners(cluster)
    arrivals = tma_consumer_arrive_count(consumer_warps, cluster)
    start_registers = launch_registers(threads, hardware)
    split, stage_bytes = budget.split, budget.stage_bytes
    a, b, out = (DTYPE[str(word)] for word in _dtypes(description))
    epi_m, epi_n = budget.epi_tile_mn
    accumulators = 2 if description.dtype.promote_every else 1
    acc_registers = accumulators * accumulator_registers(m, n, warpgroups)
    barrier_room = align_up(split.barrier_bytes, SWIZZLE_128B_ALIGNMENT)
    fewest = (
        fewest_store_buffers(budget.subtiles)
        if description.pipeline["epilogue"].stages == "auto"
        else split.store_buffers
    )
    taken = barrier_room + fewest * budget.buffer_bytes
    stage_formula = quotient(
        budget.capacity,
        stage_bytes,
        split.stages,
        (f"{barrier_room} - {fewest} * {budget.buffer_bytes}", taken),
    )
    ring = split.stages * stage_bytes
    left = (budget.capacity - barrier_room - ring) // budget.buffer_bytes
    room = f"({budget.capacity} - {barrier_room} - {split.stages} * {stage_bytes}) // "
    room = f"{room}{budget.buffer_bytes}"
    if min(MAX_STORE_BUFFERS, budget.subtiles, left) != split.store_buffers:
        room = "what fits"
    smem_formula = smem_text(split, budget, barrier_room)
    _, most_stages = stage_range(description)
    blocks = blocks_per_sm(threads, start_registers, split.total_bytes, hardware)
    mma_k = MMA_K_BYTES // a.bytes

    numbers = (
        Number("a_stage_bytes", budget.a_bytes, "B", f"{m} * {k} * {a.bytes}", "dense A tile"),
        Number("b_stage_bytes", budget.b_bytes, "B", f"{n} * {k} * {b.bytes}", "dense B tile"),
        Number(
            "tx_count",
            stage_bytes // producers,
            "B",
            (
                f"{budget.a_bytes} + {budget.b_bytes}"
                if producers == 1
                else f"({budget.a_bytes} + {budget.b_bytes}) / {producers}"
            ),
            (
                "PTX ISA, mbarrier complete-tx: bytes count where they land, multicast or not"
                if producers == 1
                else "cutlass.pipeline.PipelineTmaAsync.producer_acquire: armed by each calling "
                "warp; the sum is the stage's bytes"
            ),
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
            producers,
            "arrivals",
            (
                "1 producer thread arms the barrier with tx_count"
                if producers == 1
                else f"1 elected lane of each of {producers} producer warps arms tx_count"
            ),
            "cutlass.pipeline.PipelineTmaAsync.producer_acquire",
        ),
        Number(
            "mainloop_empty_arrive_count",
            arrivals,
            "arrivals",
            multicast_text(f"{consumer_warps} consumer warps", partners),
            "cutlass.pipeline.PipelineTmaAsync.consumer_release: one lane a warp and partner",
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
            ring_barrier_bytes(split.stages),
            "B",
            f"2 * {split.stages} * 8",
            "PTX ISA, size of an mbarrier object",
        ),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            smem_formula,
            f"at most {budget.capacity} B a block on {hardware.arch} (CUDA, Compute Capabilities)",
        ),
        Number(
            "threads", threads, "threads", f"128 * (1 + {warpgroups})", "one producer warpgroup"
        ),
        Number(
            "launch_registers",
            start_registers,
            "registers a thread",
            f"min(256, {hardware.registers_per_sm} // {threads} // 8 * 8)",
            "PTX ISA, setmaxnreg",
        ),
        Number(
            "producer_registers",
            producer_registers,
            "registers a thread",
            registers_or_given(given, "producer", str(producer_registers)),
            "setmaxnreg",
        ),
        Number(
            "consumer_registers",
            consumer_registers,
            "registers a thread",
            registers_or_given(
                given,
                "consumer",
                f"min(240, ({1 + warpgroups} * {start_registers} - {producer_registers}) // "
                f"{warpgroups} // 8 * 8)",
            ),
            "setmaxnreg: all roles together at most what the launch allocated",
        ),
        Number(
            "accumulator_registers",
            acc_registers,
            "registers a thread",
            f"{accumulators} * {m} * {n} / (128 * {warpgroups})",
            "PTX ISA, wgmma accumulator fragments",
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
    pipelines = (
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="wgmma",
            construct="PipelineTmaAsync",
            stages=split.stages,
            stage_bytes=stage_bytes,
            tx_count=stage_bytes // producers,
            full_arrive_count=producers,
            empty_arrive_count=arrivals,
            filled_by="TMA loads of one A and one B tile",
            emptied_by="one lane of each consumer warp, one step after its wgmma",
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
            filled_by="all consumer warps, one subtile of the accumulator",
            emptied_by="the TMA store, once it has read the buffer",
        ),
    )
    roles = (
        RolePlan(
            "producer",
            1,
            WARPGROUP,
            producer_registers,
            (
                "one warp issues TMA loads; three sleep"
                if producers == 1
                else "two warps issue TMA loads, one of A, one of B; two sleep"
            ),
        ),
        RolePlan(
            "consumer",
            warpgroups,
            WARPGROUP * warpgroups,
            consumer_registers,
            "wgmma mainloop, then the epilogue of the same tile",
        ),
    )
    if description.pipeline["mainloop"].stages == "auto":
        limit = (
            f"SMEM: {split.stages + 1} stages of {stage_bytes} B and the store buffers would "
            f"exceed {budget.capacity} B"
        )
    else:
        limit = f"the description ({split.stages}); {most_stages} would fit"
    values = template_values(description, budget)
    return Plan(name, given, description, template, pipelines, roles, numbers, limit, values)


def _tile(description: KernelDescription) -> tuple[int, int, int]:
    tile = description.tile
    return tile.m or 0, tile.n or 0, tile.k or 0


def _dtypes(description: KernelDescription) -> tuple[str | None, ...]:
    return description.dtype.a, description.dtype.b, description.dtype.out


def multicast_text(warps: str, partners: int) -> str:
    """The arrives that empty a stage: of these warps, in each CTA that shares what is loaded."""
    return warps if partners == 1 else f"{warps} * {partners} multicast partners"


def grid_text(cluster: tuple[int, int], blocks: int) -> str:
    """The blocks of a persistent kernel."""
    m, n = cluster
    if m * n == 1:
        return f"min(tiles, SMs * {blocks})"
    return f"{m} * {n} * min(tiles in clusters, SMs // {m * n} * {blocks})"


def smem_text(split: SmemSplit, budget: SmemBudget, barrier_room: int) -> str:
    """The SMEM sum: barriers, ring and store buffers, or A's and B's ring where one is rounded."""
    rings = [product(split.stages, size) for size in (budget.a_bytes, budget.b_bytes)]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    stores = product(split.store_buffers, budget.buffer_bytes)
    return aligned_sum((str(barrier_room), barrier_room), *rings, stores)
