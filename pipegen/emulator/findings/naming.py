# SPDX-License-Identifier: Apache-2.0
"""What the source calls the barriers and the roles that a finding is about.

A barrier is named by the statement that initialises it (`mainloop = pipeline.….create(…)`), a
role by the banner comment (`# ---- Producer ----`) under which its warps ran. Without source lines
in the PTX, or without the source file, there are no names.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipegen.emulator.ptx.ir import Instruction

_ASSIGNED = re.compile(r"^\s*(\w+)(?:\s*,\s*\w+)*\s*=[^=]")
_BANNER = re.compile(r"^\s*#\s*-{3,}\s*(.*?)\s*-{3,}\s*$")
_SIDES = ("full", "empty")


class Names:
    """Names for one program, read from its source file when the first finding asks."""

    def __init__(self, instructions: Sequence[Instruction], files: dict[int, str]) -> None:
        self._instructions = instructions
        self._files = files
        self._runs: dict[int, tuple[str, int, int]] | None = None  # at -> (name, stage, stages)
        self._source: list[str] | None = None

    def barrier(self, at: int) -> str:
        """The barrier that instruction `at` initialises: "mainloop full, stage 1 of 4", or ""."""
        if self._runs is None:
            self._runs = self._name_runs()
        found = self._runs.get(at)
        if found is None:
            return ""
        name, stage, stages = found
        return f"{name}, stage {stage} of {stages}" if stages > 1 else name

    def role(self, executed: Iterable[tuple[int, int]]) -> str:
        """The banner under which most was executed; `executed` has (instruction, how often)."""
        seen: Counter[str] = Counter()
        for at, count in executed:
            location = self._instructions[at].location
            banner = self._banner(location.line) if location else ""
            if banner and count:
                seen[banner] += count
        return seen.most_common(1)[0][0] if seen else ""

    def _lines(self) -> list[str]:
        if self._source is None:
            self._source = []
            for path in self._files.values():
                try:
                    self._source = Path(path).read_text("utf-8").splitlines()
                    break
                except (OSError, UnicodeDecodeError):
                    continue
        return self._source

    def _banner(self, line: int) -> str:
        lines = self._lines()
        least = 1000
        for text in reversed(lines[: min(line, len(lines))]):
            indent = len(text) - len(text.lstrip())
            if match := _BANNER.match(text):
                # Code that is indented less has left the banner's block.
                return match[1] if indent <= least else ""
            if text.startswith(("def ", "@", "class ")):
                return ""
            if text.strip():
                least = min(least, indent)
        return ""

    def _name_runs(self) -> dict[int, tuple[str, int, int]]:
        """Inits that follow each other are the stages of one array of barriers."""
        runs: list[list[int]] = []
        unbroken = False
        for at, instruction in enumerate(self._instructions):
            if instruction.parts[:2] == ("mbarrier", "init"):
                if unbroken:
                    runs[-1].append(at)
                else:
                    runs.append([at])
                unbroken = True
            elif instruction.opcode != "mov":
                unbroken = False
        by_line: dict[int, list[list[int]]] = {}
        for run in runs:
            location = self._instructions[run[0]].location
            if location is not None:
                by_line.setdefault(location.line, []).append(run)
        named: dict[int, tuple[str, int, int]] = {}
        for line, group in by_line.items():
            name, pipeline = self._assigned(line)
            for number, run in enumerate(group):
                # A CuTe pipeline makes its full barriers first, then its empty ones.
                side = f" {_SIDES[number]}" if pipeline and len(group) == 2 else ""
                for stage, at in enumerate(run):
                    if name:
                        named[at] = f"{name}{side}", stage, len(run)
        return named

    def _assigned(self, line: int) -> tuple[str, bool]:
        """(the name that a line assigns, whether a pipeline is made there)."""
        lines = self._lines()
        if not 0 < line <= len(lines):
            return "", False
        text = lines[line - 1]
        match = _ASSIGNED.match(text)
        name = re.sub(r"_(producer|consumer)$", "", match[1]) if match else ""
        return name, ".create(" in text
