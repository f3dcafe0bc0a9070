# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Blackwell GEMM that also adds up the rows of A: the plan of the plain GEMM,
with a second reader of each stage."""

from dataclasses import replace

from pipegen.arithmetic import (
    multi_consumer_arrive_count,
    multicast_partners,
    tma_consumer_arrive_count,
    umma_consumer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP
from pipegen.planning.formulas import of_each
from pipegen.planning.gemm_sm100_cute import plan_gemm_sm100_cute
from pipegen.planning.gemm_sm100_cute_template import commits_text
from pipegen.planning.model import Number, Plan, RolePlan
from pipegen.vocabulary import DTYPE

EPILOGUE_WARPS = 4  # as in the plain GEMM
STATISTIC_WARPS = 4  # a thread for each of the tile's 128 rows (rule PG203)
READ_BYTES = 16  # the widest load of a thread from SMEM, and what a swizzle leaves together


def plan_gemm_rowsum_sm100(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    plain = plan_gemm_sm100_cute(given, description, name, template)
    added = {number.name: number for number in _numbers(description)}
    mainloop = replace(
        plain.pipeline("mainloop"),
        consumer="umma+thread",
        construct="PipelineTmaMultiConsumersAsync",
        empty_arrive_count=int(added["mainloop_empty_arrive_count"].value),
        emptied_by="a tcgen05 commit, and one lane of each statistic warp, in any order",
    )
    most = HARDWARE[description.kernel.arch].max_registers_per_thread
    does = "adds up the rows of A from SMEM, one row a thread, where n = 0"
    statistic = RolePlan("statistic", 1, WARP * STATISTIC_WARPS, most, does)
    return replace(
        plain,
        pipelines=(mainloop, *plain.pipelines[1:]),
        roles=(*plain.roles, statistic),
        values={
            **plain.values,
            "mainloop_empty": commits_text(int(added["umma_arrive_count"].value)),
        },
        numbers=(
            *(added.pop(number.name, number) for number in plain.numbers),
            *added.values(),
        ),
    )


def _numbers(description: KernelDescription) -> tuple[Number, ...]:
    """What differs from the plain GEMM, and what it does not have."""
    cluster = description.cluster.shape or (1, 1)
    partners = multicast_partners(cluster)
    commits = umma_consumer_arrive_count(cluster)
    arrives = tma_consumer_arrive_count(STATISTIC_WARPS, cluster)
    element = DTYPE[description.dtype.a].bytes
    chunk, k = READ_BYTES // element, description.tile.k or 0
    return (
        Number(
            "umma_arrive_count",
            commits,
            "arrivals",
            of_each("1 commit of the MMA warp", partners, "multicast partners"),
            "cutlass.pipeline.PipelineTmaMultiConsumersAsync.consumer_release, TCGen05Mma",
        ),
        Number(
            "statistic_arrive_count",
            arrives,
            "arrivals",
            of_each(f"{STATISTIC_WARPS} statistic warps", partners, "multicast partners"),
            "cutlass.pipeline.PipelineTmaMultiConsumersAsync.consumer_release, AsyncThread: one "
            "lane a warp and partner",
        ),
        Number(
            "mainloop_empty_arrive_count",
            multi_consumer_arrive_count(STATISTIC_WARPS, cluster),
            "arrivals",
            f"{commits} + {arrives}",
            "cutlass.pipeline.PipelineTmaMultiConsumersAsync.create: both groups together",
        ),
        Number(
            "mainloop_full_arrive_count",
            1,
            "arrivals",
            "1 elected lane of the TMA warp arms the barrier with tx_count",
            "cutlass.pipeline.PipelineTmaMultiConsumersAsync.producer_acquire",
        ),
        Number(
            "threads",
            WARP * (EPILOGUE_WARPS + STATISTIC_WARPS + 1 + 1),
            "threads",
            f"{WARP} * ({EPILOGUE_WARPS} + {STATISTIC_WARPS} + 1 + 1)",
            "epilogue, statistic, MMA and TMA warps",
        ),
        Number(
            "chunk", chunk, "elements", f"{READ_BYTES} / {element}", "a thread reads 16 B at once"
        ),
        Number("chunks", k // chunk, "loads", f"{k} / {chunk}", "a thread's row of a stage"),
    )
