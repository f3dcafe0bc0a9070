# SPDX-License-Identifier: Apache-2.0
"""Plan of the Pallas Hopper mixed GEMM: threads convert the weights for wgmma's registers."""

from typing import Any

from pipegen.arithmetic import (
    accumulator_registers,
    align_up,
    multicast_partners,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import (
    aligned_sum,
    may_read,
    product,
    quotient,
    registers_or_given,
    stages_or_given,
)
from pipegen.planning.gemm_sm90_pallas_template import widest_swizzle
from pipegen.planning.mixed_defaults import FEW_TOKENS
from pipegen.planning.mixed_template import tolerance
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.pallas_check_limits import mixed_limits
from pipegen.planning.pallas_check_words import random_words
from pipegen.planning.smem import smem_of, stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_mixed_pallas import BARRIERS_A_STAGE, piece_k
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.vocabulary import DTYPE


def plan_mixed_sm90_pallas(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    producer, consumer = description.role["producer"], description.role["consumer"]
    warpgroups = consumer.warpgroups or 1
    arrivals, _ = empty_arrivals(warpgroups, description.cluster.shape or (1, 1))
    mainloop = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="wgmma",
        construct="plgpu.emit_pipeline_warp_specialized",
        stages=budget.split.stages,
        stage_bytes=budget.stage_bytes,
        tx_count=budget.stage_bytes,
        full_arrive_count=WARPGROUP * copies(budget),
        empty_arrive_count=arrivals,
        filled_by=f"TMA loads of {stage_parts(budget)}",
        emptied_by="all consumer threads; in a cluster, one of each warpgroup and CTA",
    )
    epilogue = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="plgpu.copy_smem_to_gmem",
        stages=budget.split.store_buffers,
        stage_bytes=budget.buffer_bytes,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by="a consumer warpgroup, one piece of the accumulator, transposed",
        emptied_by="the TMA store, once it has read the buffer",
    )
    roles = (
        RolePlan(
            "producer", 1, WARPGROUP, producer.registers or 0, "one thread issues all TMA loads"
        ),
        RolePlan(
            "consumer",
            warpgroups,
            WARPGROUP * warpgroups,
            consumer.registers or 0,
            "converts weights in registers, wgmma; then the epilogue of the same tile",
        ),
    )
    return Plan(
        name=name,
        given=given,
        description=description,
        template=template,
        pipelines=(mainloop, epilogue),
        roles=roles,
        numbers=_numbers(given, description, budget),
        stage_limit=_stage_limit(description, budget),
        values=_values(description, budget),
    )


def copies(budget: SmemBudget) -> int:
    """TMA loads of a stage."""
    return 3 if budget.scale_bytes else 2


def stage_parts(budget: SmemBudget) -> str:
    """What a stage holds."""
    return "an A tile, a B tile and its scales" if budget.scale_bytes else "an A and a B tile"


def empty_arrivals(warpgroups: int, cluster: tuple[int, int]) -> tuple[int, str]:
    """Arrivals that empty a stage, and the formula (read in the PTX of all three jax versions)."""
    partners = multicast_partners(cluster)
    if partners == 1:
        return warpgroups * WARPGROUP, f"{warpgroups} * 128"
    return warpgroups * partners, f"{warpgroups} * {partners}"


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


def _values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The template's fields."""
    tile, dtype = description.tile, description.dtype
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    warpgroups = description.role["consumer"].warpgroups or 1
    epi_m, epi_n = budget.epi_tile_mn
    grouped = dtype.scale_group > 0
    a_swizzle = widest_swizzle(k * a.bytes)
    b_swizzle = widest_swizzle(k * b.bits // 8)
    out_swizzle = widest_swizzle(epi_n * out.bytes)
    conversion, lines = CONVERSIONS[a.name, b.name]
    return {
        "a": a,
        "b": b,
        "out": out,
        "scale_group": dtype.scale_group,
        "scale_jax": a.jax if grouped else "float32",
        "conversion": conversion,
        "convert_lines": lines,
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        "cluster_grid": "sm_count // 2",
        "wg_tile_n": n // warpgroups,
        "piece_k": piece_k(description),
        "epi_tile_m": epi_m,
        "epi_tile_n": epi_n,
        "epi_subtiles": budget.subtiles,
        "epi_subtiles_m": -(-m // epi_m),
        **mixed_limits(out, tolerance(description)),
        "full_barrier": f"{WARPGROUP * copies(budget)} arrives + {budget.stage_bytes} B",
        "stage_parts": stage_parts(budget),
        "b_note": f"{b.bytes} B elements" if b.bytes else "elements, two a byte",
        "two_a_byte": "" if b.bytes else " of jnp.int4",
        "a_swizzle": a_swizzle,
        "a_swizzle_columns": a_swizzle // a.bytes,
        "b_swizzle": b_swizzle,
        "b_swizzle_columns": b_swizzle * 8 // b.bits,
        "out_swizzle": out_swizzle,
        "out_swizzle_columns": out_swizzle // out.bytes,
        "a_random": random_words(a, "batches, m, k"),
        "b_random": random_words(b, "batches, n, k"),
        # A tail in M and N, two batches, and three K tiles: small enough for an interpreter.
        "interpret_size": f"{m + 8}, {n + 64}, {3 * k}, 2",
        "interpret_sm_count": 2 * cluster_m * cluster_n,
        # Few tokens: the shuffles would take longer than the loads, which nothing hides.
        "upcast": m > FEW_TOKENS,
        "upcast_layout": UPCAST_LAYOUTS[b.name],
        "one_piece": piece_k(description) == k,
        "scaled": " * scale" if grouped else "",
        "meanwhile": " The other warpgroup keeps wgmma busy." if warpgroups > 1 else "",
        "may_read": may_read(budget.split.store_buffers, "there are"),
        "grouped": grouped,
        "per_channel": not grouped,
        "clustered": cluster_m * cluster_n > 1,
        "split_n": warpgroups > 1,
    }


# How small integers become floats, and what to say about it: by A's type and B's.
CONVERSIONS = {
    ("bf16", "i8"): ("Exact: 8 significant bits.", ("return weights.astype(A_DTYPE)",)),
    ("bf16", "i4"): ("Exact: 4 significant bits.", ("return weights.astype(A_DTYPE)",)),
    ("f16", "i8"): (
        "Exact: 8 significant bits.",
        (
            "# From 1024 on, an f16's last place is 1: 0x6400 | u is 1024 + u (weight + 128).",
            "bits = (weights.astype(jnp.int16) + 128) | 0x6400",
            "return lax.bitcast_convert_type(bits, A_DTYPE) - jnp.float16(1152)",
        ),
    ),
    ("f16", "i4"): (
        "Exact: 4 significant bits.",
        (
            "# Mosaic GPU converts int4 to bf16 two at a time, and to f16 one by one.",
            "return weights.astype(jnp.bfloat16).astype(A_DTYPE)",
        ),
    ),
}
# Layouts in which Mosaic GPU loads a thread's weights 32 bits at a time, by B's type.
UPCAST_LAYOUTS = {"i8": "WGMMA_UPCAST_2X", "i4": "WGMMA_UPCAST_4X"}


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    dtype, split = description.dtype, budget.split
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    cluster = description.cluster.shape or (1, 1)
    warpgroups = description.role["consumer"].warpgroups or 1
    epi_m, epi_n = budget.epi_tile_mn
    hardware = HARDWARE[description.kernel.arch]
    producer = description.role["producer"].registers or 0
    consumer = description.role["consumer"].registers or 0
    sizes = [size for size in (budget.a_bytes, budget.b_bytes, budget.scale_bytes) if size]
    rings = [product(split.stages, size) for size in sizes]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    held = warpgroups * split.store_buffers
    stores = product(held, budget.buffer_bytes)
    taken = align_up(held * budget.buffer_bytes, SWIZZLE_128B_ALIGNMENT)
    stage_formula = quotient(
        budget.capacity,
        budget.stage_bytes + BARRIERS_A_STAGE * 8,
        split.stages,
        (str(taken), taken),
    )
    if split.stages == MOST_STAGES:
        stage_formula = str(MOST_STAGES)
    arrivals, arrivals_formula = empty_arrivals(warpgroups, cluster)
    loads = copies(budget)
    per_byte = f" / {8 // b.bits}" if b.bits < 8 else ""
    piece = piece_k(description)
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
            "tx_count",
            budget.stage_bytes,
            "B",
            " + ".join(map(str, sizes)),
            "armed by the copies themselves, each for its own bytes",
        ),
        Number(
            "mainloop_full_arrive_count",
            WARPGROUP * loads,
            "arrivals",
            f"{loads} * 128",
            "the issuing warpgroup's threads, for each copy of a stage (read in the PTX)",
        ),
        Number(
            "mainloop_empty_arrive_count",
            arrivals,
            "arrivals",
            arrivals_formula,
            "alone: all consumer threads; in a cluster: warpgroups times CTAs (the PTX)",
        ),
        Number(
            "delay_release",
            0,
            "steps",
            "0",
            "a step's wgmmas are awaited in it: the next one writes the registers that they read",
        ),
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
            f"({m} // {epi_m}) * ({n // warpgroups} // {epi_n})",
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
                given, "epilogue", "the smallest of 2 to 8 that divides the stores, or 1"
            ),
            "one is written while another is read",
        ),
        Number(
            "barrier_bytes",
            split.barrier_bytes,
            "B",
            f"{BARRIERS_A_STAGE} * 8 * {split.stages}",
            "8 B each",
        ),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            f"{aligned_sum(*rings, stores)} + {split.barrier_bytes}",
            f"at most {budget.capacity} B a block (CUDA, Compute Capabilities)",
        ),
        Number(
            "threads",
            WARPGROUP * (warpgroups + 1),
            "threads",
            f"128 * ({warpgroups} + 1)",
            "a Pallas thread is a warpgroup",
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
            "PTX ISA, wgmma fragments of A: 16-bit, two a register; all of a stage's live at once",
        ),
        Number(
            "pieces",
            k // piece,
            "pieces",
            f"{k} / {piece}",
            "of a stage: as much of K as a swizzle of A's rows holds, in which Mosaic GPU slices",
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
        Number("blocks_per_sm", 1, "blocks", "1", "persistent"),
        Number(
            "grid",
            "persistent",
            "blocks",
            f"{hardware.sm_count} on an H100 or H200: one block an SM",
            "",
        ),
    )
