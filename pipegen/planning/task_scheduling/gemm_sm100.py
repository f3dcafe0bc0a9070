# SPDX-License-Identifier: Apache-2.0
"""Plan of the Blackwell GEMM in Task Scheduling: TMA -> tcgen05 -> TMEM -> a store warp.

The tile, the stages and TMEM are those of the CuTe DSL's GEMM (plan_gemm_sm100_cute); what differs
is who stores, who arrives, and where SMEM's parts lie.
"""

from dataclasses import replace

from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP
from pipegen.planning.gemm_sm90_cute_template import KIB
from pipegen.planning.gemm_sm100_cute import plan_gemm_sm100_cute
from pipegen.planning.gemm_sm100_cute_numbers import EPILOGUE_WARPS
from pipegen.planning.model import Number, Plan, RolePlan
from pipegen.planning.smem import smem_of
from pipegen.planning.smem_sm100 import cta_group_of
from pipegen.planning.task_scheduling.gemm_layout import gemm_layout
from pipegen.planning.task_scheduling.gemm_sm90 import epilogue_numbers
from pipegen.planning.task_scheduling.layout import layout_numbers, restated
from pipegen.planning.task_scheduling.words import (
    arrives_word,
    dependency_words,
    import_words,
    option_words,
    queue_words,
)

CLASS = {
    "mainloop": "TmaUmma",
    "accumulator": "UmmaAsync",
    "scheduler": "ClcFetchAsync",
    "epilogue": "AsyncAsync",
}


def plan_ts_gemm_sm100(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    base = plan_gemm_sm100_cute(given, description, name, template)
    budget = smem_of(description)
    assert budget is not None  # the plan above has it
    hardware = HARDWARE[description.kernel.arch]
    group, clc = cta_group_of(description), description.scheduler.tiles == "clc"
    ctas = (description.cluster.shape or (1, 1))[0] * (description.cluster.shape or (1, 1))[1]
    warps = EPILOGUE_WARPS + 3 + clc
    counts = {
        "accumulator": (1, WARP * EPILOGUE_WARPS * group),
        "epilogue": (WARP * EPILOGUE_WARPS, WARP),
        "scheduler": (1, WARP * warps * ctas),
    }
    pipelines = []
    for each in base.pipelines:
        full, empty = counts.get(each.name, (each.full_arrive_count, each.empty_arrive_count))
        stated = replace(each, construct=CLASS[each.name])
        pipelines.append(replace(stated, full_arrive_count=full, empty_arrive_count=empty))
    epilogue = next(each for each in pipelines if each.name == "epilogue")
    most = hardware.max_registers_per_thread
    loads = RolePlan("load", 0, WARP, most, "one warp issues all TMA loads")
    stores = RolePlan("store", 0, WARP, most, "one warp issues all TMA stores")
    roles = {role.name: role for role in base.roles}
    epilogue_role = replace(roles["epilogue"], does="reads TMEM, rounds, and leaves it in SMEM")
    scheduler = [roles["scheduler"]] if clc else []
    why = "task_scheduling: every thread of a task arrives"
    of_both = " * 2" if group == 2 else ""
    threads = f"{WARP} * ({EPILOGUE_WARPS} + 1 + 1 + 1{' + 1' if clc else ''})"
    numbers = [
        Number(
            "accumulator_empty_arrive_count",
            WARP * EPILOGUE_WARPS * group,
            "arrivals",
            f"{WARP} * {EPILOGUE_WARPS}{of_both}",
            why,
        ),
        Number("threads", WARP * warps, "threads", threads, "one for each task's warps"),
    ]
    if clc:
        formula = f"{WARP} * {warps}" + (f" * {ctas}" if ctas > 1 else "")
        numbers.append(
            Number("scheduler_empty_arrive_count", WARP * warps * ctas, "arrivals", formula, why)
        )
    return replace(
        base,
        pipelines=tuple(pipelines),
        roles=(epilogue_role, roles["mma"], loads, stores, *scheduler),
        numbers=restated(
            base.numbers,
            *numbers,
            *epilogue_numbers(epilogue, EPILOGUE_WARPS),
            *layout_numbers(gemm_layout(description, budget), budget.capacity, hardware.arch),
            without=("multicast_partners", "tmem_free_arrive_count"),
        ),
        values={
            **base.values,
            **_words(description),
            "epi_full": arrives_word(epilogue.full_arrive_count),
            "smem_limit": f"{budget.capacity} B of SMEM a block: {budget.capacity // KIB} KiB",
        },
    )


def _words(description: KernelDescription) -> dict[str, object]:
    """The template's fields beside those of the CuTe DSL's GEMM."""
    clc = description.scheduler.tiles == "clc"
    clustered = (description.cluster.shape or (1, 1)) != (1, 1)
    edges = {
        "mainloop": ["tiles"],
        "accumulator": ["mainloop", "tiles"],
        "epilogue": ["accumulator", "tiles"],
        **({"tiles": ["tiles"]} if clc else {}),
    }
    counts = ("clusters_m", "clusters_n")
    what = "Which output tile a CTA computes next: the CTAs of the grid take them in turn."
    if clc:
        what = "Which output tile a CTA computes next: the hardware hands them out."
    return {
        "two_cta": str(cta_group_of(description) == 2),
        "dependencies": dependency_words(edges, False),
        "swizzled": True,
        "smem_align": "assumed_align=1024",
        "first_index": "_, _, index",
        "next_index": "_, _, step",
        "block_index": "block // CLUSTER_M" if clustered else "block",
        "multicast_query": str(clustered),
        "tiles_parameters": ", ".join(
            [*([] if clc else ["tiles"]), *counts, *(["pipeline_config"] if clc else [])]
        ),
        **queue_words(
            what,
            (("m", "row of tiles"), ("n", "column of tiles"), ("batch", "matrix of the batch")),
            counts,
        ),
        **option_words(description),
        **import_words(description, auxiliary=True, queue=True, tmem=True),
    }
