# SPDX-License-Identifier: Apache-2.0
"""The release distance of a plan's operands: how it is asked for, stated and proven.

Any family whose pipeline feeds wgmma from SMEM can use it: its keys are `RELEASE_KEYS`, its
defaults come from `fill_release`, its `PipelinePlan.releases` from `releases`, and its numbers
from `release_numbers`. Rule PG301 refuses what a description asks for in vain, and
`pipegen.planning.plan` refuses every plan with a fault, whoever made it.
"""

from collections.abc import Iterator
from typing import Any

from pipegen.arithmetic import OperandRelease
from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.model import Number, Plan

RELEASE_KEYS = frozenset(("pipeline.mainloop.in_flight", "pipeline.mainloop.delay_release"))


def fill_release(data: dict[str, Any], usual: int) -> None:
    """Fills the mainloop's distance in, in place. A stage is kept as long as it is read; what is
    kept a step or longer is read one wgmma longer.

    `usual`: wgmma that the template leaves in flight where nothing is asked for.
    """
    mainloop = data["pipeline"]["mainloop"]
    if mainloop["in_flight"] is None:
        kept = mainloop["delay_release"]
        mainloop["in_flight"] = usual if kept is None else max(0, min(kept, 1))
    if mainloop["delay_release"] is None:
        mainloop["delay_release"] = mainloop["in_flight"]


def release_of(description: KernelDescription) -> tuple[int, int]:
    """wgmma in flight and steps that a stage is kept, of a description with its defaults."""
    mainloop = description.pipeline["mainloop"]
    return mainloop.in_flight or 0, mainloop.delay_release or 0


def releases(description: KernelDescription, stages: int) -> tuple[OperandRelease, ...]:
    """A and B of a GEMM whose wgmma read both in SMEM: one wgmma a step, on each of them."""
    in_flight, kept = release_of(description)
    return tuple(OperandRelease(operand, in_flight, kept, stages) for operand in ("a", "b"))


def release_numbers(proven: tuple[OperandRelease, ...]) -> tuple[Number, ...]:
    """The distance of each operand, as a plan and an emitted file state it."""
    return tuple(
        Number(
            f"{each.operand}_release_distance",
            each.distance,
            "steps",
            "in flight <= delay_release < stages",
            "a stage is filled again only when no wgmma reads it (jax, mosaic_gpu/pipeline.py)",
        )
        for each in proven
    )


def release_problems(made: Plan) -> Iterator[Problem]:
    """What no plan may contain, found in the plan itself: the proof for every operand of it."""
    for pipeline in made.pipelines:
        for each in pipeline.releases:
            if each.fault:
                yield Problem(
                    each.fault,
                    f"pipeline.{pipeline.name}.delay_release",
                    each.delay_release,
                    f"{each.in_flight} to {each.stages - 1}",
                    str(max(0, each.in_flight)),
                    rule="PG301",
                )
                break  # the operands of a pipeline share these numbers
