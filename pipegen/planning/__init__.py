# SPDX-License-Identifier: Apache-2.0
"""Turns a description into a plan: every name and number of the kernel. Pure functions."""

from pipegen.description import KernelDescription
from pipegen.errors import InputError
from pipegen.planning.defaults import resolve
from pipegen.planning.families import FAMILIES
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.release import release_problems
from pipegen.planning.variants import template_of
from pipegen.rules import find_problems

__all__ = ["Number", "PipelinePlan", "Plan", "RolePlan", "plan"]


def plan(description: KernelDescription) -> Plan:
    """Derive every number of the kernel that `description` asks for.

    Raises InputError with one problem for each rule that the description breaks, and for each
    operand of the plan whose stages would be filled again while wgmma read them.
    """
    problems = find_problems(description)
    if problems:
        raise InputError(problems)
    resolved = resolve(description)
    template = template_of(resolved)
    if template is None:
        raise AssertionError("rule PG101 lets no description without a template pass")
    name, planner = resolved.kernel.name, FAMILIES[template.family].plan
    made = planner(description, resolved, name or "", template.file)
    if unproven := list(release_problems(made)):
        raise InputError(unproven)
    return made if name else planner(description, resolved, default_name(made), template.file)


def default_name(made: Plan) -> str:
    """A name that tells what the kernel is: arch, op, producer, consumer, stages, cluster."""
    kernel, mainloop = made.description.kernel, made.pipelines[0]
    m, n = made.description.cluster.shape or (1, 1)
    arch = kernel.arch.replace("_", "").rstrip("a")
    pair = f"{mainloop.producer}_{mainloop.consumer}".replace("+", "_")
    return f"{arch}_{kernel.op}_{pair}_s{mainloop.stages}_c{m}x{n}"
