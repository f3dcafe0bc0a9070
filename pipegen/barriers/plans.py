# SPDX-License-Identifier: Apache-2.0
"""A kernel's plan through the barrier model: who really comes to each barrier, from its roles.

The counts are the plan's. The arrivals are worked out again, from the roles' threads and from which
CTAs of a cluster receive what this one loads, so that a wrong count does not confirm itself.
"""

from dataclasses import dataclass, replace

from pipegen.barriers.emitters import (
    ONE_STREAM,
    SPECIALIZED,
    UNKNOWN,
    copies,
    find_in_one_stream,
    find_specialized,
)
from pipegen.barriers.machine import Finding
from pipegen.barriers.rings import End, RingModel, find_in_ring, find_in_turns
from pipegen.barriers.task_scheduling import task_ends
from pipegen.hardware import WARP, WARPGROUP
from pipegen.planning.model import PipelinePlan, Plan

# Which of a stage's tiles the CTAs along M, and along N, share: A along N, B along M.
SHARED = {
    ("mixed_gemm", "sm_100a", "mainloop"): "n",
    ("mixed_gemm", "sm_100a", "weights"): "m",
    ("stream", "sm_90a", "mainloop"): "m",
    ("stream", "sm_100a", "mainloop"): "m",
}
# The role of threads that empties, or fills, a ring where it is not consumer, or producer.
READERS = {"weights": "transform", "accumulator": "epilogue"}
WRITERS = {"transform": "transform"}
# A deep ring does no more than one of this many stages does, and takes longer to try.
MODELLED_STAGES = 2


@dataclass(frozen=True)
class Skipped:
    """A pipeline that the model has nothing to say about, and why."""

    pipeline: str
    reason: str


def find_in_plan(plan: Plan) -> tuple[list[tuple[str, Finding]], list[Skipped]]:
    """What goes wrong in a plan's pipelines, by their names, and which ones were not modelled."""
    found: list[tuple[str, Finding]] = []
    skipped: list[Skipped] = []
    for pipeline in plan.pipelines:
        if pipeline.full_arrive_count is None or pipeline.construct in UNKNOWN:
            skipped.append(Skipped(pipeline.name, f"{pipeline.construct} has no barrier of ours"))
            continue
        if pipeline.name in plan.description.order or pipeline.groups > 1:
            count = pipeline.full_arrive_count
            threads = turn_threads(plan, pipeline)
            finding = find_in_turns([count] * pipeline.groups, [threads] * pipeline.groups)
        elif pipeline.construct == SPECIALIZED:
            finding = find_specialized(plan, pipeline, receivers(plan, pipeline))
        elif pipeline.construct in ONE_STREAM:
            finding = find_in_one_stream(plan, pipeline)
        else:
            model = ring_of(plan, pipeline)
            if model is None:
                skipped.append(Skipped(pipeline.name, f"no facts about {pipeline.construct}"))
                continue
            finding = find_in_ring(replace(model, name="ring"))
        if finding is not None:
            found.append((pipeline.name, finding))
    return found, skipped


def turn_threads(plan: Plan, pipeline: PipelinePlan) -> int:
    """Threads (Pallas: warpgroups) of a group that gives its turn on, from the roles."""
    order = plan.description.order.get(pipeline.name)
    if order is None:
        return threads_of(plan, "consumer") // pipeline.groups
    roles = [name.strip() for name in order.roles.split(",")]
    unit = WARPGROUP if plan.description.kernel.backend == "pallas" else 1
    return threads_of(plan, roles[0]) // (pipeline.groups if len(roles) == 1 else 1) // unit


def threads_of(plan: Plan, role: str) -> int:
    """Threads of a role; 0 if the kernel has none of that name."""
    return next((each.threads for each in plan.roles if each.name == role), 0)


def ring_of(plan: Plan, pipeline: PipelinePlan) -> RingModel | None:
    """A pipeline for the model; None where nothing is known of its class or its roles."""
    if plan.description.kernel.op == "custom" and pipeline.name not in plan.description.order:
        return custom_ring(plan, pipeline)
    if plan.description.kernel.backend == "cute-ts":
        producers, consumers = task_ends(plan, pipeline)
    else:
        producers, consumers = producers_of(plan, pipeline), consumers_of(plan, pipeline)
    if not producers or not consumers:
        return None
    return RingModel(
        pipeline.name,
        min(pipeline.stages, MODELLED_STAGES),
        pipeline.full_arrive_count or 0,
        pipeline.empty_arrive_count or 0,
        tuple(producers),
        tuple(consumers),
    )


def custom_ring(plan: Plan, pipeline: PipelinePlan) -> RingModel:
    """A ring of the user's own graph, whose ends are the graph's."""
    from pipegen.planning.custom.models import alone
    from pipegen.planning.custom.product_numbers import numbers_for
    from pipegen.planning.custom.reading import read_graph

    graph = read_graph(plan.description)
    if graph is None:
        raise ValueError(f"no graph: {plan.name}")
    numbers = numbers_for(graph, plan.description.kernel.arch, plan.description.kernel.backend)
    return replace(
        alone(numbers, graph.ring(pipeline.name)),
        full_count=pipeline.full_arrive_count or 0,
        empty_count=pipeline.empty_arrive_count or 0,
    )


def producers_of(plan: Plan, pipeline: PipelinePlan) -> list[End]:
    """Who fills a stage of this CTA, and with what."""
    description = plan.description
    if pipeline.construct.startswith(("PipelineTma", "PipelineClc")):
        tx_count = pipeline.tx_count or 0
        entry = description.role.get("producer")
        warps = (entry.warps if entry else 1) or 1
        names = ["producer"] if warps == 1 else [f"producer {index}" for index in range(warps)]
        return [End(name, 1, tx_count, tx_count) for name in names]
    if pipeline.construct == "PipelineUmmaAsync":
        return [End("tcgen05.commit", 1)]
    if pipeline.construct in ("plgpu.kernel", "plgpu.Barrier"):
        tx_count = pipeline.tx_count or 0
        if pipeline.name == "accumulator":
            return [End("tcgen05.commit", 1)]
        return [End("tma", WARPGROUP * copies(plan), tx_count, tx_count)]
    threads = threads_of(plan, WRITERS.get(pipeline.name, "producer"))
    ctas = description.cluster.cta_group if pipeline.construct == "PipelineAsyncUmma" else 1
    return split("producer", threads * ctas) if threads else []


def consumers_of(plan: Plan, pipeline: PipelinePlan) -> list[End]:
    """Who empties a stage of this CTA, of all CTAs that receive what it loads."""
    description = plan.description
    group = description.cluster.cta_group
    if pipeline.construct == "PipelineClcFetchAsync":
        m, n = description.cluster.shape or (1, 1)
        ctas = m * n
        return [
            End("scheduler", threads_of(plan, "scheduler")),
            End("tma", threads_of(plan, "tma") * ctas),
            End("mma", threads_of(plan, "mma") * ctas // group),
            *split("epilogue", threads_of(plan, "epilogue") * ctas),
        ]
    if pipeline.construct == "plgpu.kernel":
        if pipeline.name == "accumulator":
            return split("epilogue", group * max(1, threads_of(plan, "epilogue") // WARPGROUP))
        return [End("tcgen05.commit", 1)]
    if pipeline.construct == "plgpu.Barrier":
        return split("consumer", WARPGROUP)  # ping-pong: the warpgroup whose tile it is
    partners = receivers(plan, pipeline)
    if pipeline.construct in ("PipelineTmaUmma", "PipelineAsyncUmma"):
        several = partners if pipeline.construct == "PipelineTmaUmma" else 1
        return split("tcgen05.commit", several)
    if pipeline.construct == "PipelineTmaMultiConsumersAsync":
        warps = threads_of(plan, "statistic") // WARP
        return [
            *split("tcgen05.commit", partners),
            *split("statistic", warps * partners),
        ]
    warps = threads_of(plan, READERS.get(pipeline.name, "consumer")) // WARP
    if description.scheduler.consumers == "ping-pong":
        warps //= 2  # a stage is one warpgroup's
    if pipeline.construct == "PipelineUmmaAsync":
        return split("epilogue", warps * group)
    return split("consumer", warps * partners) if warps else []


def split(name: str, arrivals: int) -> list[End]:
    """A group of single arrivals as one that may lag behind, and the others."""
    return [End(f"one of {name}", 1), End(name, arrivals - 1)] if arrivals > 1 else [End(name, 1)]


def receivers(plan: Plan, pipeline: PipelinePlan) -> int:
    """CTAs (in pairs: pairs) that get a tile from this one, or give it one, this one included."""
    kernel, cluster = plan.description.kernel, plan.description.cluster
    m, n = cluster.shape or (1, 1)
    m //= cluster.cta_group
    along = SHARED.get((kernel.op, kernel.arch, pipeline.name), "mn")
    return sum(
        (i, j) == (0, 0) or ("m" in along and j == 0) or ("n" in along and i == 0)
        for i in range(m)
        for j in range(n)
    )
