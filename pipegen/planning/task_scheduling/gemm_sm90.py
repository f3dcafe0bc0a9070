# SPDX-License-Identifier: Apache-2.0
"""Plan of the Hopper GEMM in Task Scheduling: TMA -> wgmma, a store warp, persistent.

The tile, the stages and the registers are those of the CuTe DSL's GEMM (plan_gemm_sm90_cute); what
differs is who stores, where SMEM's parts lie, and that the epilogue has barriers of its own.
"""

from dataclasses import replace

from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP
from pipegen.planning.gemm_sm90_cute import plan_gemm_sm90_cute
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem import smem_of
from pipegen.planning.task_scheduling.gemm_layout import gemm_layout
from pipegen.planning.task_scheduling.layout import layout_numbers, restated
from pipegen.planning.task_scheduling.words import (
    FULL_BARRIER_WIDTH,
    arrives_word,
    dependency_words,
    import_words,
    option_words,
    queue_words,
)


def plan_ts_gemm_sm90(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    base = plan_gemm_sm90_cute(given, description, name, template)
    budget = smem_of(description)
    assert budget is not None  # the plan above has it
    hardware = HARDWARE[description.kernel.arch]
    mainloop, stores = base.pipeline("mainloop"), base.pipeline("epilogue")
    consumer = next(role for role in base.roles if role.name == "consumer")
    registers = next(role for role in base.roles if role.name == "producer").registers
    epilogue = replace(
        stores,
        construct="AsyncAsync",
        full_arrive_count=consumer.threads,
        empty_arrive_count=WARP,
        emptied_by="the store warp, once the TMA store has read the buffer",
    )
    return replace(
        base,
        pipelines=(replace(mainloop, construct="TmaAsync"), epilogue),
        roles=(
            RolePlan("load", 0, WARP, registers, "one warp issues all TMA loads"),
            RolePlan("store", 0, WARP, registers, "one warp issues all TMA stores"),
            RolePlan("idle", 0, 2 * WARP, registers, "two warps only give their registers away"),
            replace(consumer, name="compute", does="wgmma, then the rounded pieces to SMEM"),
        ),
        numbers=restated(
            base.numbers,
            *epilogue_numbers(epilogue, consumer.threads // WARP),
            *layout_numbers(gemm_layout(description, budget), budget.capacity, hardware.arch),
            without=("multicast_partners",),
        ),
        values={**base.values, **_words(description, base, epilogue, consumer.threads)},
    )


def epilogue_numbers(epilogue: PipelinePlan, warps: int) -> tuple[Number, ...]:
    """The arrive counts of the ring between the threads that round and the warp that stores."""
    why = "task_scheduling: AsyncAsync, every thread of a task arrives"
    return (
        Number(
            "epilogue_full_arrive_count",
            epilogue.full_arrive_count or 0,
            "arrivals",
            f"{WARP} * {warps}",
            why,
        ),
        Number("epilogue_empty_arrive_count", WARP, "arrivals", f"{WARP} * 1", why),
    )


def _words(
    description: KernelDescription, base: Plan, epilogue: PipelinePlan, threads: int
) -> dict[str, object]:
    """The template's fields beside those of the CuTe DSL's GEMM."""
    values = base.values
    advances = description.pipeline["mainloop"].advance_on_wait
    elements = int(values["epi_tile_m"]) * int(values["epi_tile_n"])
    pdl = description.integration.pdl
    edges = {"mainloop": ["tiles"], "epilogue": ["mainloop", "tiles"]}
    return {
        "compute_warps": threads // WARP,
        "fragment_elements": elements // threads,
        "full_barrier": str(values["full_barrier"]).ljust(FULL_BARRIER_WIDTH),
        "epi_full": arrives_word(epilogue.full_arrive_count),
        "advances": advances,
        "holds": not advances,
        "dependencies": dependency_words(edges, pdl),
        "swizzled": True,
        "smem_align": "assumed_align=1024",
        "clc": False,
        "first_index": "index, _, _",
        "next_index": "step, _, _",
        "tiles_parameters": "tiles, tiles_m, tiles_n",
        **queue_words(
            "Which output tile a CTA computes next: the CTAs of the grid take them in turn.",
            (("m", "row of tiles"), ("n", "column of tiles"), ("batch", "matrix of the batch")),
            ("tiles_m", "tiles_n"),
        ),
        **option_words(description),
        **import_words(description, auxiliary=True, queue=True),
    }
