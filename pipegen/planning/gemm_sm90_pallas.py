# SPDX-License-Identifier: Apache-2.0
"""Plan of the Pallas (Mosaic GPU) Hopper GEMMs: emit_pipeline, and its warp-specialized form."""

from pipegen.arithmetic import blocks_per_sm, multicast_partners
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import (
    aligned_sum,
    product,
    quotient,
    registers_or_given,
    stages_or_given,
)
from pipegen.planning.gemm_sm90_pallas_template import template_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.release import release_numbers, release_of, releases
from pipegen.planning.smem import stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import (
    EMIT_PIPELINE_BLOCKS,
    MOST_STAGES,
    consumer_warpgroups,
    is_emit_pipeline,
    pallas_budget,
    warpgroup_tile,
)
from pipegen.vocabulary import DTYPE

# Read in the PTX of all three jax versions (Warpgroup semantics): every thread of the issuing
# warpgroup arrives for each of the two copies, and arms its share of the bytes.
FULL_ARRIVALS = 2 * WARPGROUP
# Registers of an emit_pipeline thread beside its accumulator (154 - 128 and 90 - 64 in ptxas
# reports), with some to spare.
OTHER_REGISTERS = 40


def plan_gemm_sm90_pallas(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = pallas_budget(description)
    emit = is_emit_pipeline(description)
    stages, buffers = budget.split.stages, budget.split.store_buffers
    warpgroups = consumer_warpgroups(description)
    cluster = description.cluster.shape or (1, 1)
    arrivals, _ = _empty_arrivals(warpgroups, cluster)
    mainloop = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="wgmma",
        construct="plgpu.emit_pipeline" if emit else "plgpu.emit_pipeline_warp_specialized",
        stages=stages,
        stage_bytes=budget.stage_bytes,
        tx_count=budget.stage_bytes,
        full_arrive_count=FULL_ARRIVALS,
        empty_arrive_count=None if emit else arrivals,
        filled_by="TMA loads of one A and one B tile",
        emptied_by=(
            "the warpgroup itself, when it has waited for its wgmma"
            if emit
            else "all consumer threads; in a cluster, one of each warpgroup and CTA"
        ),
        releases=releases(description, stages),
    )
    epilogue = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="plgpu.copy_smem_to_gmem",
        stages=buffers,
        stage_bytes=budget.buffer_bytes,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by="a consumer warpgroup, one piece of the accumulator",
        emptied_by="the TMA store, once it has read the buffer",
    )
    if description.pipeline["mainloop"].stages == "auto":
        limit = (
            f"SMEM: {stages + 1} stages of {budget.stage_bytes} B would exceed "
            f"{budget.capacity} B"
        )
        limit += f" ({EMIT_PIPELINE_BLOCKS} blocks share an SM)" if emit else ""
        if stages == MOST_STAGES:
            limit = f"jax: at most {MOST_STAGES} barriers in a group, one for each stage"
    else:
        _, most = stage_range(description)
        limit = f"the description ({stages}); {most} would fit"
    return Plan(
        name=name,
        given=given,
        description=description,
        template=template,
        pipelines=(mainloop, epilogue),
        roles=_roles(description, emit, warpgroups),
        numbers=_numbers(given, description, budget),
        stage_limit=limit,
        values=template_values(description, budget),
    )


def _roles(description: KernelDescription, emit: bool, warpgroups: int) -> tuple[RolePlan, ...]:
    producer, consumer = description.role["producer"], description.role["consumer"]
    consumers = RolePlan(
        "consumer",
        warpgroups,
        WARPGROUP * warpgroups,
        0 if emit else consumer.registers or 0,
        "loads by TMA, wgmma, epilogue" if emit else "wgmma mainloop, then the epilogue",
    )
    if emit:
        return (consumers,)
    loads = RolePlan(
        "producer", 1, WARPGROUP, producer.registers or 0, "one thread issues all TMA loads"
    )
    return (loads, consumers)


def _empty_arrivals(warpgroups: int, cluster: tuple[int, int]) -> tuple[int, str]:
    """Arrivals that empty a stage, and the formula (read in the PTX of all three jax versions).

    Alone, every thread of each consumer warpgroup arrives; a cluster's barrier takes one arrive of
    each warpgroup of each CTA that shares a tile with this one.
    """
    partners = multicast_partners(cluster)
    if partners == 1:
        return warpgroups * WARPGROUP, f"{warpgroups} * 128"
    return warpgroups * partners, f"{warpgroups} * {partners}"


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a, b, out = (
        DTYPE[str(word)]
        for word in (description.dtype.a, description.dtype.b, description.dtype.out)
    )
    emit, split = is_emit_pipeline(description), budget.split
    warpgroups = consumer_warpgroups(description)
    cluster = description.cluster.shape or (1, 1)
    rows, columns = warpgroup_tile(description)
    epi_m, epi_n = budget.epi_tile_mn
    hardware = HARDWARE[description.kernel.arch]
    threads = WARPGROUP * (warpgroups + (0 if emit else 1))
    producer = description.role["producer"].registers or 0
    consumer = description.role["consumer"].registers or 0
    in_flight, kept = release_of(description)
    rings = [product(split.stages, size) for size in (budget.a_bytes, budget.b_bytes)]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    ring = aligned_sum(*rings)
    held = (1 if emit else warpgroups) * split.store_buffers
    stores = aligned_sum(product(held, budget.buffer_bytes))
    if emit:
        smem = f"max({ring}, {stores}) + {split.barrier_bytes}"
        stage_formula = quotient(budget.capacity, budget.stage_bytes + 8, split.stages)
        barriers = f"8 * {split.stages}"
        threads_formula = f"128 * {warpgroups}"
        registers = min(
            rows * columns // WARPGROUP + OTHER_REGISTERS, hardware.max_registers_per_thread
        )
        blocks = blocks_per_sm(threads, registers, split.total_bytes, hardware)
    else:
        smem = f"{ring} + {stores} + {split.barrier_bytes}"
        taken = held * budget.buffer_bytes
        stage_formula = quotient(
            budget.capacity, budget.stage_bytes + 16, split.stages, (str(taken), taken)
        )
        barriers = f"16 * {split.stages}" + (" + 8" if kept else "")
        threads_formula = f"128 * ({warpgroups} + 1)"
        blocks = 1
    if split.stages == MOST_STAGES:
        stage_formula = str(MOST_STAGES)
    capacity_source = f"at most {budget.capacity} B a block (CUDA, Compute Capabilities)"
    if emit:
        capacity_source = (
            f"at most {budget.capacity} B = {hardware.smem_per_sm} // {EMIT_PIPELINE_BLOCKS} - "
            f"{hardware.smem_reserved_per_block}, so that {EMIT_PIPELINE_BLOCKS} blocks share an SM"
        )
    arrivals, arrivals_formula = _empty_arrivals(warpgroups, cluster)
    numbers = [
        Number("a_stage_bytes", budget.a_bytes, "B", f"{m} * {k} * {a.bytes}", "dense A tile"),
        Number("b_stage_bytes", budget.b_bytes, "B", f"{n} * {k} * {b.bytes}", "dense B tile"),
        Number(
            "tx_count",
            budget.stage_bytes,
            "B",
            f"{budget.a_bytes} + {budget.b_bytes}",
            "armed by the copies themselves, each for its own bytes",
        ),
        Number(
            "mainloop_full_arrive_count",
            FULL_ARRIVALS,
            "arrivals",
            "2 * 128",
            "the issuing warpgroup's threads, for each copy of a stage (read in the PTX)",
        ),
        Number(
            "in_flight",
            in_flight,
            "wgmma",
            str(in_flight),
            "not awaited when a step ends: 1 of a lone warpgroup; several compute in turn",
        ),
        Number(
            "delay_release",
            kept,
            "steps",
            str(kept),
            "that a stage is kept after its own: as many as wgmma are in flight",
        ),
        *release_numbers(releases(description, split.stages)),
        Number(
            "epi_buffer_bytes",
            budget.buffer_bytes,
            "B",
            f"{epi_m} * {epi_n} * {out.bytes}",
            "one store",
        ),
        Number(
            "epi_subtiles",
            budget.subtiles,
            "stores",
            f"({rows} // {epi_m}) * ({columns} // {epi_n})",
            "of a warpgroup's part of the tile",
        ),
        Number(
            "mainloop_stages",
            split.stages,
            "stages",
            stages_or_given(given, "mainloop", stage_formula),
            "max_concurrent_steps: as many as fit",
        ),
        Number(
            "epilogue_buffers",
            split.store_buffers,
            "buffers a warpgroup",
            stages_or_given(
                given,
                "epilogue",
                "one for each store" if emit else "the smallest of 2 to 8 that divides the stores",
            ),
            "they reuse the ring's bytes" if emit else "one is written while another is read",
        ),
        Number("barrier_bytes", split.barrier_bytes, "B", barriers, "8 B each"),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            smem,
            capacity_source,
        ),
        Number("threads", threads, "threads", threads_formula, "a Pallas thread is a warpgroup"),
        Number(
            "wg_tile",
            f"{rows} x {columns}",
            "elements",
            f"{m} x {n} / {warpgroups}",
            "what one consumer warpgroup computes",
        ),
        Number(
            "accumulator_registers",
            rows * columns // WARPGROUP,
            "registers a thread",
            f"{rows} * {columns} / 128",
            "PTX ISA, wgmma accumulator fragments",
        ),
        Number(
            "blocks_per_sm",
            blocks,
            "blocks",
            f"min(by SMEM, by accumulator + {OTHER_REGISTERS} registers)" if emit else "1",
            "one overlaps another's epilogue" if emit else "persistent",
        ),
        Number(
            "grid",
            "one block a tile" if emit else "persistent",
            "blocks",
            "tiles" if emit else f"{hardware.sm_count} on an H100 or H200: one block an SM",
            "",
        ),
    ]
    if not emit:
        numbers += [
            Number(
                "mainloop_empty_arrive_count",
                arrivals,
                "arrivals",
                arrivals_formula,
                "alone: all consumer threads; in a cluster: warpgroups times CTAs (the PTX)",
            ),
            Number(
                "mainloop_drained_arrive_count",
                arrivals,
                "arrivals",
                arrivals_formula,
                "consumers that tell the producer that a tile's last stages are read",
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
                f"min(256, (512 - {producer}) // {warpgroups} // 8 * 8)",
                "the rest of 512 for each lane of a warpgroup (jax, mosaic_gpu/pipeline.py)",
            ),
        ]
    return tuple(numbers)
