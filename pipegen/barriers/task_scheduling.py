# SPDX-License-Identifier: Apache-2.0
"""Who comes to the barriers of a Task Scheduling kernel, from its tasks' threads."""

from pipegen.barriers.rings import End
from pipegen.hardware import WARP
from pipegen.planning.model import PipelinePlan, Plan


def task_ends(plan: Plan, pipeline: PipelinePlan) -> tuple[list[End], list[End]]:
    """Those who fill a stage of the pipeline, and those who empty it."""
    threads = {role.name: role.threads for role in plan.roles}
    description = plan.description
    group, (m, n) = description.cluster.cta_group, description.cluster.shape or (1, 1)
    lanes = description.pipeline["mainloop"].lanes
    if lanes > 1:
        threads["compute"] = WARP  # a stage is one warp's
    worker = "compute" if "compute" in threads else "epilogue"
    if pipeline.construct == "ClcFetchAsync":
        readers = [End(name, count * m * n) for name, count in threads.items()]
        return [End("query", 1, pipeline.tx_count or 0, pipeline.tx_count or 0)], readers
    if pipeline.construct == "UmmaAsync":
        return [End("tcgen05.commit", 1)], [End("epilogue", threads["epilogue"] * group)]
    if pipeline.construct == "AsyncAsync":
        return [End(worker, threads[worker])], [End("store", threads["store"])]
    loads = [End("load", 1, pipeline.tx_count or 0, pipeline.tx_count or 0)]
    if pipeline.construct == "TmaUmma":
        return loads, [End("tcgen05.commit", 1)]
    return loads, [End(worker, threads[worker] // WARP)]
