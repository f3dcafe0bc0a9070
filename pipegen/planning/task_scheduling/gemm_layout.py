# SPDX-License-Identifier: Apache-2.0
"""Where the SMEM of a Task Scheduling GEMM's parts lies."""

from pipegen.description import KernelDescription
from pipegen.hardware import SWIZZLE_128B_ALIGNMENT
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_sm100 import (
    ANSWER_BYTES,
    TMEM_ADDRESS_BYTES,
    accumulators_of,
    answers_of,
)
from pipegen.planning.task_scheduling.layout import Region, SmemLayout, lay_out


def gemm_layout(description: KernelDescription, budget: SmemBudget) -> SmemLayout:
    """The rings, what Blackwell needs beside them, and the barriers of all pipelines."""
    stages, buffers = budget.split.stages, budget.split.store_buffers
    regions = [
        Region("a", stages * budget.a_bytes, SWIZZLE_128B_ALIGNMENT),
        Region("b", stages * budget.b_bytes, SWIZZLE_128B_ALIGNMENT),
        Region("out", buffers * budget.buffer_bytes, SWIZZLE_128B_ALIGNMENT),
    ]
    pipelines = [stages, buffers]
    if description.kernel.arch == "sm_100a":
        answers = answers_of(description)
        if answers:
            regions.append(Region("answers", ANSWER_BYTES * answers, ANSWER_BYTES))
        regions.append(Region("tmem_address", TMEM_ADDRESS_BYTES, TMEM_ADDRESS_BYTES))
        pipelines += [accumulators_of(description), answers]
    layout = lay_out(regions, pipelines)
    # The budget keeps 1024 B for barriers, and the ring of store buffers has some, too: of all
    # sizes that the rules let through none exceeds the SMEM for it.
    assert layout.total_bytes <= budget.capacity, layout
    return layout
