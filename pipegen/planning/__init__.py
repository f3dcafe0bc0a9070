# SPDX-License-Identifier: Apache-2.0
"""Turns a description into a plan: every name and number of the kernel. Pure functions."""

from collections.abc import Callable

from pipegen.description import KernelDescription
from pipegen.errors import InputError
from pipegen.planning.defaults import resolve
from pipegen.planning.gemm_sm90_cute import plan_gemm_sm90_cute
from pipegen.planning.gemm_sm90_pallas import plan_gemm_sm90_pallas
from pipegen.planning.gemm_sm100_cute import plan_gemm_sm100_cute
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.rules import find_problems
from pipegen.selection_table import kernels

__all__ = ["Number", "PipelinePlan", "Plan", "RolePlan", "plan"]

Planner = Callable[[KernelDescription, KernelDescription, str, str], Plan]

PLANNERS: dict[tuple[str, str, str], Planner] = {
    ("gemm", "cute", "sm_90a"): plan_gemm_sm90_cute,
    ("gemm", "cute", "sm_100a"): plan_gemm_sm100_cute,
    ("gemm", "pallas", "sm_90a"): plan_gemm_sm90_pallas,
}


def plan(description: KernelDescription) -> Plan:
    """Derive every number of the kernel that `description` asks for.

    Raises InputError with one problem for each rule that the description breaks.
    """
    problems = find_problems(description)
    if problems:
        raise InputError(problems)
    resolved = resolve(description)
    kernel = resolved.kernel
    template = kernels()[(kernel.op, kernel.backend, kernel.arch, str(kernel.style))].file
    planner = PLANNERS[(kernel.op, kernel.backend, kernel.arch)]
    made = planner(description, resolved, kernel.name or "", template)
    return made if kernel.name else planner(description, resolved, default_name(made), template)


def default_name(made: Plan) -> str:
    """A name that tells what the kernel is: arch, op, producer, consumer, stages, cluster."""
    kernel, mainloop = made.description.kernel, made.pipelines[0]
    m, n = made.description.cluster.shape or (1, 1)
    arch = kernel.arch.replace("_", "").rstrip("a")
    return f"{arch}_{kernel.op}_{mainloop.producer}_{mainloop.consumer}_s{mainloop.stages}_c{m}x{n}"
