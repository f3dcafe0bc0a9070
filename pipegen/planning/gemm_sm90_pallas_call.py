# SPDX-License-Identifier: Apache-2.0
"""Plan of the Hopper GEMM behind pl.pallas_call (Pallas, Mosaic GPU)."""

from typing import Any

from pipegen.arithmetic import blocks_per_sm
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import aligned_sum, product, quotient, stages_or_given
from pipegen.planning.gemm_defaults import fill_gemm
from pipegen.planning.gemm_sm90_pallas import FULL_ARRIVALS, OTHER_REGISTERS
from pipegen.planning.gemm_sm90_pallas_template import template_values
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import stage_range
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.planning.smem_pallas_call import BLOCKS, pallas_call_budget
from pipegen.vocabulary import DTYPE

# What the grid's dimensions are; rule PG224 has the reasons.
SEMANTICS = {"k": "sequential", "tile": "parallel"}


def fill_pallas_call(data: dict[str, Any]) -> None:
    """Defaults of a GEMM behind pl.pallas_call, in place on a description's data."""
    fill_gemm(data)
    asked = data["dimension_semantics"]
    for dimension, usual in SEMANTICS.items():
        asked[dimension] = asked[dimension] or usual


def plan_gemm_sm90_pallas_call(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    budget = pallas_call_budget(description)
    stages, buffers = budget.split.stages, budget.split.store_buffers
    mainloop = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="wgmma",
        construct="pl.pallas_call",
        stages=stages,
        stage_bytes=budget.stage_bytes,
        tx_count=budget.stage_bytes,
        full_arrive_count=FULL_ARRIVALS,
        empty_arrive_count=None,
        filled_by="TMA loads of one A and one B tile",
        emptied_by="the warpgroup itself, at the end of its step",
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
        filled_by="the warpgroup, one piece of the accumulator",
        emptied_by="the TMA store, once it has read the buffer",
    )
    if description.pipeline["mainloop"].stages == "auto":
        limit = (
            f"SMEM: {stages + 1} stages of {budget.stage_bytes} B would exceed "
            f"{budget.capacity} B ({BLOCKS} blocks share an SM)"
        )
        if stages == MOST_STAGES:
            limit = f"jax: at most {MOST_STAGES} barriers in a group, one for each stage"
    else:
        limit = f"the description ({stages}); {stage_range(description)[1]} would fit"
    role = RolePlan("consumer", 1, WARPGROUP, 0, "loads by TMA, wgmma, epilogue")
    semantics = description.dimension_semantics
    values = template_values(description, budget)
    values |= {
        "dimension_semantics": _quoted(semantics.k, semantics.tile),
        "a_place": f"batch, {values['a_index']}",
        "b_place": f"batch, {values['b_index']}",
    }
    return Plan(
        name=name,
        given=given,
        description=description,
        template=template,
        pipelines=(mainloop, epilogue),
        roles=(role,),
        numbers=_numbers(given, description, budget),
        stage_limit=limit,
        values=values,
    )


def _quoted(*words: str | None) -> str:
    """The words as a Python tuple of strings."""
    return "(" + ", ".join(f'"{word}"' for word in words) + ")"


def _numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a, b, out = (
        DTYPE[str(word)]
        for word in (description.dtype.a, description.dtype.b, description.dtype.out)
    )
    split, hardware = budget.split, HARDWARE[description.kernel.arch]
    _, columns = budget.epi_tile_mn
    rings = [product(split.stages, size) for size in (budget.a_bytes, budget.b_bytes)]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in rings):
        rings = [product(split.stages, budget.stage_bytes)]
    stores = aligned_sum(product(split.store_buffers, budget.buffer_bytes))
    accumulator = m * n // WARPGROUP
    blocks = blocks_per_sm(WARPGROUP, accumulator + OTHER_REGISTERS, split.total_bytes, hardware)
    stage_formula = (
        str(MOST_STAGES)
        if split.stages == MOST_STAGES
        else quotient(
            budget.capacity,
            budget.stage_bytes + 8,
            split.stages,
            (str(budget.buffer_bytes), budget.buffer_bytes),
        )
    )
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
            "delay_release",
            0,
            "steps",
            "0",
            "pallas_call drops it (jax 0.10.2): every wgmma is awaited in its step",
        ),
        Number(
            "epi_buffer_bytes",
            budget.buffer_bytes,
            "B",
            f"{m} * {columns} * {out.bytes}",
            "one store",
        ),
        Number("epi_subtiles", budget.subtiles, "stores", f"{n} // {columns}", "of the tile"),
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
            "buffers",
            stages_or_given(given, "epilogue", "as many as fit beside the ring"),
            "one is written while another is read",
        ),
        Number("barrier_bytes", split.barrier_bytes, "B", f"8 * {split.stages}", "8 B each"),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            f"{aligned_sum(*rings)} + {stores} + {split.barrier_bytes}",
            f"at most {budget.capacity} B = {hardware.smem_per_sm} // {BLOCKS} - "
            f"{hardware.smem_reserved_per_block}, so that {BLOCKS} blocks share an SM",
        ),
        Number("threads", WARPGROUP, "threads", "128", "one warpgroup"),
        Number(
            "accumulator_registers",
            accumulator,
            "registers a thread",
            f"{m} * {n} / 128",
            "PTX ISA, wgmma accumulator fragments",
        ),
        Number(
            "blocks_per_sm",
            blocks,
            "blocks",
            f"min(by SMEM, by accumulator + {OTHER_REGISTERS} registers)",
            "one computes while another waits for its wgmma",
        ),
        Number("grid", "one block a tile", "blocks", "tiles", "K tiles are its steps"),
    )
