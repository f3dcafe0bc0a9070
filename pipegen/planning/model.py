# SPDX-License-Identifier: Apache-2.0
"""What a plan holds: every name and number that a template or a person needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipegen.arithmetic import OperandRelease
from pipegen.description import KernelDescription


@dataclass(frozen=True)
class Number:
    """One derived number, with its unit, the formula with the values put in, and its source."""

    name: str
    value: int | str
    unit: str
    formula: str
    source: str = ""


@dataclass(frozen=True)
class PipelinePlan:
    """One pipeline of the op's graph.

    `construct` is the class (CuTe DSL) or emitter (Pallas). Arrive counts are arrivals per phase,
    as set on the mbarrier; None where the construct has no such barrier. `stage_bytes` and
    `tx_count` are in bytes. `groups` that take turns have a barrier each (PipelineOrder).
    `releases`: of each operand that wgmma reads in a stage of a Pallas pipeline, which has no
    barrier that a wgmma itself arrives on.
    """

    name: str
    producer: str
    consumer: str
    construct: str
    stages: int
    stage_bytes: int
    tx_count: int | None
    full_arrive_count: int | None
    empty_arrive_count: int | None
    filled_by: str
    emptied_by: str
    groups: int = 1
    releases: tuple[OperandRelease, ...] = ()


@dataclass(frozen=True)
class RolePlan:
    """A group of warps with one job. `registers` is what a thread holds after setmaxnreg."""

    name: str
    warpgroups: int
    threads: int
    registers: int
    does: str


@dataclass(frozen=True)
class Plan:
    """A description with every decision made.

    `description` has all defaults filled in; `given` is what the user wrote. `template` is the
    path below templates/. `values` are the template's own fields (plain data, no functions).
    """

    name: str
    given: KernelDescription
    description: KernelDescription
    template: str
    pipelines: tuple[PipelinePlan, ...]
    roles: tuple[RolePlan, ...]
    numbers: tuple[Number, ...]
    stage_limit: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def pipeline(self, name: str) -> PipelinePlan:
        """The pipeline of that name; KeyError if the op has none."""
        return {pipeline.name: pipeline for pipeline in self.pipelines}[name]

    def number(self, name: str) -> Number:
        """The number of that name; KeyError if there is none."""
        return {number.name: number for number in self.numbers}[name]
