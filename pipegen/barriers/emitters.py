# SPDX-License-Identifier: Apache-2.0
"""The barriers that Mosaic GPU sets up for a Pallas kernel, for the model.

Two kinds. In a warp-specialized pipeline a warpgroup loads and others compute: a ring, whose stages
the others may keep some steps (delay_release). In emit_pipeline and pallas_call one warpgroup does
both: it waits for a stage's copies, computes, and starts the copies of a later step. A copy brings
as many arrivals as a warpgroup has threads; so does a warpgroup, but to a barrier of a cluster one
(jax, mosaic_gpu: pipeline.py, launch_context.py). What a plan says is the barriers' counts; who
arrives is worked out here from the description.
"""

from dataclasses import replace

from pipegen.barriers.machine import Barrier, Finding, Op, System, explore
from pipegen.barriers.rings import End, RingModel, Step, find_in_roles
from pipegen.hardware import WARPGROUP
from pipegen.planning.model import PipelinePlan, Plan

LAPS = 2
SPECIALIZED = "plgpu.emit_pipeline_warp_specialized"
ONE_STREAM = ("plgpu.emit_pipeline", "pl.pallas_call")
# Mosaic GPU hands the tiles out itself: its barriers follow from its own loop.
UNKNOWN = ("plgpu.dynamic_scheduling_loop",)


def copies(plan: Plan) -> int:
    """Copies that fill a stage: one for each operand that a step loads."""
    description = plan.description
    return {
        "gemm": 2,
        "mixed_gemm": 3 if description.dtype.scale_group else 2,
        "stream": 1 if description.stream.y == "none" else 2,
        "reduce": 1,
    }[description.kernel.op]


def kept_steps(pipeline: PipelinePlan) -> int:
    """Steps that a stage is kept after its own."""
    return max((each.delay_release for each in pipeline.releases), default=0)


def find_specialized(plan: Plan, pipeline: PipelinePlan, partners: int) -> Finding | None:
    """The fault of a warp-specialized pipeline; `partners`: CTAs that share what one loads."""
    kept, stages = kept_steps(pipeline), pipeline.stages
    groups = max(1, next(r.threads for r in plan.roles if r.name == "consumer") // WARPGROUP)
    arrivals = WARPGROUP if partners == 1 else 1
    size = pipeline.tx_count or 0
    # One of them may lag behind the others.
    ends = lagging(End("consumer", arrivals * groups * partners))
    stages = min(stages, kept + 2) if stages > kept else stages
    model = RingModel(
        pipeline.name,
        stages,
        pipeline.full_arrive_count or 0,
        pipeline.empty_arrive_count or 0,
        (End("producer", WARPGROUP * copies(plan), size, size, tails=False),),
        tuple(ends),
    )
    steps = LAPS * (stages + 1)
    ring = (pipeline.name,)
    mine = [Step(ring, releases=ring if step >= kept else ()) for step in range(steps)]
    passes = {end.name: mine for end in ends}
    return find_in_roles(
        [model], {"producer": [Step((), ring, ring)] * steps, **passes}, every_order=True
    )


def lagging(end: End) -> list[End]:
    """A group's first arrival as an agent of its own."""
    if end.arrivals == 1:
        return [end]
    first = replace(end, name=f"one of {end.name}", arrivals=1)
    return [first, replace(end, arrivals=end.arrivals - 1)]


def find_in_one_stream(plan: Plan, pipeline: PipelinePlan) -> Finding | None:
    """The fault of a pipeline in which one warpgroup loads and computes."""
    return explore(one_stream(pipeline, WARPGROUP * copies(plan)))


def one_stream(pipeline: PipelinePlan, arrivals: int) -> System:
    """Its program: the first stages' copies, then each step's wait and a later step's copies."""
    stages, kept = pipeline.stages, kept_steps(pipeline)
    steps = LAPS * stages
    program: list[Op] = []
    started: dict[int, int] = {}

    def start(step: int) -> None:
        stage, size = step % stages, pipeline.tx_count or 0
        program.append(Op("arm", stage, size, f"arms stage {stage} for step {step}"))
        if arrivals > 1:
            program.append(Op("arrive", stage, arrivals - 1, "arrives for the other copies"))
        program.append(Op("copy", stage, size, "starts its copies"))
        started[step] = len(program)

    for step in range(max(0, min(stages - kept, steps))):
        start(step)
    for step in range(steps):
        after = ((0, started[step]),) if step in started else ()
        says = f"waits for stage {step % stages}, step {step}"
        program.append(Op("wait", step % stages, step // stages % 2, says, after))
        if step + stages - kept < steps and step + stages - kept > step:
            start(step + stages - kept)
    barriers = tuple(
        Barrier(f"full barrier {stage}", pipeline.full_arrive_count or 0) for stage in range(stages)
    )
    return System(barriers, (("warpgroup", tuple(program)),))
