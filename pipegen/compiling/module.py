# SPDX-License-Identifier: Apache-2.0
"""Which DSL and architecture a Python file is written for, read from its text alone."""

import re
from dataclasses import dataclass
from pathlib import Path

from pipegen.compiling.installed import DSL_OF_BACKEND
from pipegen.errors import Problem, listing
from pipegen.vendor.header import read_header
from pipegen.vocabulary import BACKENDS

DEFAULT_ARCH = "sm_90a"
_IMPORTS = {
    "cute": re.compile(r"^\s*(?:import|from)\s+cutlass\b", re.MULTILINE),
    "pallas": re.compile(
        r"^\s*(?:import|from)\s+jax\.experimental(?:\.pallas\b|\s+import\s+.*\bpallas\b)",
        re.MULTILINE,
    ),
}


_TASK_SCHEDULING = re.compile(
    r"^\s*(?:import|from)\s+cutlass\.experimental\.task_scheduling\b", re.MULTILINE
)


@dataclass(frozen=True)
class Module:
    """A file to compile, as it stands."""

    path: Path
    text: str
    backend: str
    arch: str
    has_header: bool

    @property
    def dsl(self) -> str:
        """The DSL that must be installed."""
        return DSL_OF_BACKEND[self.backend]

    @property
    def schedules_tasks(self) -> bool:
        """Whether it is written in Task Scheduling, whose checks then run, too."""
        return self.backend == "cute-ts"

    @property
    def compiles_itself(self) -> bool:
        """Whether the file offers `--compile-only`."""
        return "--compile-only" in self.text


def imported_backends(text: str) -> list[str]:
    """The backends ("cute", "pallas") whose DSL a file imports."""
    return [backend for backend, pattern in _IMPORTS.items() if pattern.search(text)]


def read_module(path: Path, text: str, arch: str = DEFAULT_ARCH) -> Module | Problem:
    """The file as a module. Without a header its imports tell the DSL, and `arch` is taken."""
    header = read_header(text)
    if header:
        if header.backend in DSL_OF_BACKEND:
            return Module(path, text, header.backend, header.arch, True)
        return Problem(
            f"its header names the backend {header.backend!r}, which this pipegen does not know",
            file=str(path),
            allowed=listing(BACKENDS),
        )
    backends = imported_backends(text)
    if len(backends) != 1:
        found = "both cutlass and jax's Pallas" if backends else "neither cutlass nor jax's Pallas"
        return Problem(
            f"has no pipegen header and imports {found}, so nothing says how to compile it",
            file=str(path),
        )
    backend = "cute-ts" if _TASK_SCHEDULING.search(text) else backends[0]
    module = Module(path, text, backend, arch, False)
    if not module.compiles_itself:
        return Problem(
            "has no pipegen header and does not offer --compile-only, which is how `check` compiles"
            " a module",
            file=str(path),
        )
    return module
