# SPDX-License-Identifier: Apache-2.0
"""Plan of the Pallas (Mosaic GPU) Hopper GEMM in ping-pong: two warpgroups take turns, each with an
output tile of its own; one ring with barriers of its own feeds both."""

from typing import Any

from pipegen.arithmetic import OperandRelease
from pipegen.description import KernelDescription
from pipegen.hardware import SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import (
    aligned_sum,
    product,
    quotient,
    registers_or_given,
    stages_or_given,
)
from pipegen.planning.gemm_sm90_pallas import FULL_ARRIVALS
from pipegen.planning.gemm_sm90_pallas_template import template_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import most_stages, pallas_budget
from pipegen.planning.turns import TURN_STAGES, TURN_WARPGROUPS
from pipegen.vocabulary import DTYPE

# The newest wgmma of a step stays in flight, and its stage is kept one step longer.
IN_FLIGHT, KEPT = 1, 1
BARRIERS_A_STAGE = TURN_WARPGROUPS + 1  # a full one for each warpgroup, and an empty one


def plan_gemm_sm90_pallas_pingpong(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = pallas_budget(description)
    stages, buffers = budget.split.stages, budget.split.store_buffers
    pipelines = (
        PipelinePlan(
            name="mainloop",
            producer="tma",
            consumer="wgmma",
            construct="plgpu.Barrier",
            stages=stages,
            stage_bytes=budget.stage_bytes,
            tx_count=budget.stage_bytes,
            full_arrive_count=FULL_ARRIVALS,
            empty_arrive_count=WARPGROUP,
            filled_by="TMA loads of one A and one B tile, in the order of the output tiles",
            emptied_by="all threads of the warpgroup whose tile it is, one step later",
            releases=tuple(
                OperandRelease(operand, IN_FLIGHT, KEPT, stages) for operand in ("a", "b")
            ),
        ),
        PipelinePlan(
            name="turns",
            producer="thread",
            consumer="thread",
            construct="plgpu.Barrier",
            stages=TURN_STAGES,
            stage_bytes=0,
            tx_count=None,
            full_arrive_count=WARPGROUP,
            empty_arrive_count=None,
            filled_by="all threads of a warpgroup, once they have issued their tile's last wgmma",
            emptied_by="nobody: the next warpgroup waits for its own barrier",
            groups=TURN_WARPGROUPS,
        ),
        PipelinePlan(
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
        ),
    )
    producer, consumer = description.role["producer"], description.role["consumer"]
    roles = (
        RolePlan(
            "producer", 1, WARPGROUP, producer.registers or 0, "one thread issues all TMA loads"
        ),
        RolePlan(
            "consumer",
            TURN_WARPGROUPS,
            WARPGROUP * TURN_WARPGROUPS,
            consumer.registers or 0,
            "wgmma mainloop, then the epilogue, of every second tile",
        ),
    )
    return Plan(
        name=name,
        given=given,
        description=description,
        template=template,
        pipelines=pipelines,
        roles=roles,
        numbers=_numbers(given, description, budget),
        stage_limit=_limit(description, budget),
        values={**template_values(description, budget), **_places(description)},
    )


def _limit(description: KernelDescription, budget: SmemBudget) -> str:
    """What keeps the ring from having more stages."""
    stages, most = budget.split.stages, most_stages(description)
    if description.pipeline["mainloop"].stages != "auto":
        return f"the description ({stages}); {stage_range(description)[1]} would fit"
    if stages == most:
        return f"jax: at most {2 * most} barriers in a group, two for each stage"
    return f"SMEM: {stages + 1} stages of {budget.stage_bytes} B would exceed {budget.capacity} B"


def _places(description: KernelDescription) -> dict[str, Any]:
    """What a stage holds of each operand, and how wgmma takes it, as (M, K) and (K, N)."""
    a_k, b_k = description.layout.a == "k", description.layout.b == "k"
    row, column, depth = (
        f"pl.ds({each} * TILE_{each.upper()}, TILE_{each.upper()})" for each in "mnk"
    )
    return {
        "a_place": f"{row}, {depth}" if a_k else f"{depth}, {row}",
        "b_place": f"{column}, {depth}" if b_k else f"{depth}, {column}",
        "a_part": "a_smem.at[stage]" + ("" if a_k else ".T"),
        "b_part": "b_smem.at[stage]" + (".T" if b_k else ""),
    }


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    return (*_ring(given, description, budget), *_machine(given, description))


def _ring(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    """The pipelines: bytes, arrive counts, stages, SMEM."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    dtype, split = description.dtype, budget.split
    a, b, out = (DTYPE[str(word)] for word in (dtype.a, dtype.b, dtype.out))
    epi_m, epi_n = budget.epi_tile_mn
    rings = [product(split.stages, size) for size in (budget.a_bytes, budget.b_bytes)]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    held = TURN_WARPGROUPS * split.store_buffers
    taken = held * budget.buffer_bytes + 8 * TURN_WARPGROUPS
    stage_formula = quotient(
        budget.capacity,
        budget.stage_bytes + 8 * BARRIERS_A_STAGE,
        split.stages,
        (str(taken), taken),
    )
    if split.stages == most_stages(description):
        stage_formula = str(split.stages)
    stores = aligned_sum(product(held, budget.buffer_bytes))
    return (
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
            "mainloop_empty_arrive_count",
            WARPGROUP,
            "arrivals",
            "128",
            "threads of the warpgroup whose tile it is (read in the PTX)",
        ),
        Number(
            "turn_arrive_count",
            WARPGROUP,
            "arrivals",
            "128",
            "threads of the warpgroup whose turn ends (read in the PTX)",
        ),
        Number(
            "mainloop_barriers",
            BARRIERS_A_STAGE * split.stages,
            "mbarriers",
            f"{BARRIERS_A_STAGE} * {split.stages}",
            "two full ones a stage: the parity of a plgpu.Barrier counts a warpgroup's waits",
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
            f"({m} // {epi_m}) * ({n} // {epi_n})",
            "of a tile",
        ),
        Number(
            "mainloop_stages",
            split.stages,
            "stages",
            stages_or_given(given, "mainloop", stage_formula),
            "as many as fit",
        ),
        Number(
            "epilogue_buffers",
            split.store_buffers,
            "buffers a warpgroup",
            stages_or_given(given, "epilogue", "the smallest of 2 to 8 that divides the stores"),
            "one is written while another is read",
        ),
        Number(
            "barrier_bytes",
            split.barrier_bytes,
            "B",
            f"8 * ({BARRIERS_A_STAGE} * {split.stages} + {TURN_WARPGROUPS})",
            "8 B each",
        ),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            f"{aligned_sum(*rings)} + {stores} + {split.barrier_bytes}",
            f"at most {budget.capacity} B a block (CUDA, Compute Capabilities)",
        ),
    )


def _machine(given: KernelDescription, description: KernelDescription) -> tuple[Number, ...]:
    """Threads, registers and the grid."""
    m, n = description.tile.m or 0, description.tile.n or 0
    producer = description.role["producer"].registers or 0
    consumer = description.role["consumer"].registers or 0
    return (
        Number(
            "threads",
            WARPGROUP * (TURN_WARPGROUPS + 1),
            "threads",
            f"128 * ({TURN_WARPGROUPS} + 1)",
            "a Pallas thread is a warpgroup",
        ),
        Number(
            "accumulator_registers",
            m * n // WARPGROUP,
            "registers a thread",
            f"{m} * {n} / 128",
            "PTX ISA, wgmma accumulator fragments: a whole tile in one warpgroup",
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
            f"min(256, (512 - {producer}) // {TURN_WARPGROUPS} // 8 * 8)",
            "setmaxnreg: the rest of 512 for each lane of a warpgroup",
        ),
        Number("blocks_per_sm", 1, "blocks", "1", "persistent"),
        Number("grid", "persistent", "blocks", "132 on an H100 or H200: one block an SM", ""),
    )
