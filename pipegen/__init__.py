# SPDX-License-Identifier: Apache-2.0
"""pipegen: readable, standalone GPU kernels from a short description.

    description = pipegen.KernelDescription(
        kernel=pipegen.Kernel(op="gemm", backend="cute", arch="sm_90a")
    )
    files = pipegen.render(pipegen.plan(description))    # {path: text}

The names below are imported on first use, so that `import pipegen` costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipegen.description import (
        Cluster,
        Dtypes,
        Integration,
        Kernel,
        KernelDescription,
        Layout,
        Pipeline,
        Role,
        Scheduler,
        Stream,
        Tile,
    )
    from pipegen.description_file import dump_description, load_description, parse_description
    from pipegen.emulator.session import EmulationError, emulator
    from pipegen.errors import InputError, Problem
    from pipegen.planning import Plan, plan
    from pipegen.rendering import render
    from pipegen.schema import json_schema
    from pipegen.selection import select

_HOMES = {
    "Cluster": "description",
    "Dtypes": "description",
    "Integration": "description",
    "Kernel": "description",
    "KernelDescription": "description",
    "Layout": "description",
    "Pipeline": "description",
    "Role": "description",
    "Scheduler": "description",
    "Stream": "description",
    "Tile": "description",
    "json_schema": "schema",
    "dump_description": "description_file",
    "load_description": "description_file",
    "parse_description": "description_file",
    "EmulationError": "emulator.session",
    "InputError": "errors",
    "Problem": "errors",
    "Plan": "planning",
    "plan": "planning",
    "render": "rendering",
    "select": "selection",
}

__all__ = [
    "Cluster",
    "Dtypes",
    "EmulationError",
    "InputError",
    "Integration",
    "Kernel",
    "KernelDescription",
    "Layout",
    "Pipeline",
    "Plan",
    "Problem",
    "Role",
    "Scheduler",
    "Stream",
    "Tile",
    "dump_description",
    "emulator",
    "json_schema",
    "load_description",
    "parse_description",
    "plan",
    "render",
    "select",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pipegen")
    if name == "emulator":  # the package, which can be called
        import importlib

        return importlib.import_module("pipegen.emulator")
    if name not in _HOMES:
        raise AttributeError(f"module 'pipegen' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"pipegen.{_HOMES[name]}"), name)
