# SPDX-License-Identifier: Apache-2.0
"""What `pipegen check` found: the counts, the wording and the exit code, and the text for people.

The formats for programs are in `report_formats`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipegen.compiling.freshness import Fresh
from pipegen.compiling.matrix import Column
from pipegen.compiling.result import CompileResult
from pipegen.emulator.finding_docs import name_of
from pipegen.emulator.verifying import Verified
from pipegen.errors import Problem

EXIT_WELL = 0
EXIT_FINDING = 1
EXIT_INPUT = 2

_TITLES = {
    "missing": "missing",
    "stale": "stale",
    "orphan": "orphan",
    "conflicted": "conflicted",
    "edited": "edited",
    "pristine": "pristine",
    "error": "does not compile",
    "crash": "crashes the compiler",
    "timeout": "hangs the compiler",
    "no-kernel": "compiles no kernel",
    "wrong-arch": "wrong architecture",
    "spills": "spills registers",
    "serialized": "wgmma is serialized",
    "smem": "does not fit in SMEM",
    "tmem": "does not fit in TMEM",
    "schedule": "has a wrong schedule",
    "remark": "remark",
    "ptxas": "ptxas",
}
# ptxas completes the protocol by itself here and loses nothing; NVIDIA's own kernels get it too.
_HARMLESS = ("warpgroup.arrive is injected",)


def title_of(code: str) -> str:
    """What a kind of finding is called; one of the emulator has its code before its name."""
    if code.startswith("PG"):
        return f"{code} {name_of(code)}"
    return _TITLES.get(code, code)


@dataclass(frozen=True)
class Finding:
    """One thing to know about one file. An error fails the run; a notice is no fault at all."""

    path: Path
    check: Literal["fresh", "compile", "verify"]
    level: Literal["error", "warning", "notice"]
    code: str
    message: str

    @property
    def title(self) -> str:
        """A few words: what is wrong."""
        return title_of(self.code)


@dataclass(frozen=True)
class Skip:
    """A check that could not run here, for how many modules, and what would enable it."""

    check: str
    count: int
    reason: str
    command: str
    required: bool = False

    def sentence(self) -> str:
        """The skip in words."""
        modules = _count(self.count, "module")
        verb = "was" if self.count == 1 else "were"
        need = " This run requires it." if self.required else ""
        return (
            f"{modules} {verb} not compiled ({self.check}): {self.reason}.{need} "
            f"To enable: {self.command}"
        )


@dataclass(frozen=True)
class ModuleReport:
    """One emitted file and what the checks said. None: the check does not apply."""

    path: Path
    backend: str = ""
    arch: str = ""
    fresh: Fresh | None = None
    compiled: CompileResult | None = None
    verified: Verified | None = None

    @property
    def checks(self) -> dict[str, Fresh | CompileResult | Verified]:
        """Name -> what a check said, of those that apply."""
        said = {"fresh": self.fresh, "compile": self.compiled, "verify": self.verified}
        return {name: result for name, result in said.items() if result is not None}

    def findings(self) -> Iterator[Finding]:
        """What there is to say about this file."""
        fresh, compiled = self.fresh, self.compiled
        if self.verified is not None and self.verified.failed:
            for code, message in self.verified.sentences():
                yield Finding(self.path, "verify", "error", code, message)
        if fresh is not None and fresh.failed:
            message = fresh.message
            if fresh.state == "edited":
                message = f"this run allows no edits (--pristine): {message}"
            yield Finding(self.path, "fresh", "error", fresh.state, message)
        elif fresh is not None and fresh.notice:
            yield Finding(self.path, "fresh", "notice", fresh.state, fresh.message)
        if compiled is None or compiled.status == "skipped":
            return
        if compiled.failed:
            yield Finding(self.path, "compile", "error", compiled.status, compiled.message)
            return
        if compiled.message:
            yield Finding(self.path, "compile", "warning", "remark", compiled.message)
        for advisory in compiled.advisories:
            if not any(word in advisory for word in _HARMLESS):
                yield Finding(self.path, "compile", "warning", "ptxas", advisory)

    def as_dict(self) -> dict[str, Any]:
        """The file for JSON."""
        return {
            "path": str(self.path),
            "backend": self.backend,
            "arch": self.arch,
            "fresh": self.fresh.state if self.fresh else None,
            "fresh_message": self.fresh.message if self.fresh else "",
            "edited": self.fresh.edited if self.fresh else None,
            "compile": self.compiled.as_dict() if self.compiled else None,
            **({"verify": self.verified.as_dict()} if self.verified else {}),
        }


@dataclass
class Report:
    """Everything a run of `check` found."""

    modules: list[ModuleReport] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    # The compile check under other versions of the DSLs.
    columns: list[Column] = field(default_factory=list)

    def findings(self) -> list[Finding]:
        """Everything to say about files, in the order of the files, then of the versions."""
        found = [finding for module in self.modules for finding in module.findings()]
        return [
            *found,
            *(
                Finding(path, "compile", "error", r.status, f"under {column.name}: {r.message}")
                for column in self.columns
                for path, r in column.results.items()
                if r.failed
            ),
        ]

    def counts(self) -> dict[str, int]:
        """How many modules there are of each kind."""
        fresh = Counter(m.fresh.state for m in self.modules if m.fresh)
        compiled = Counter(m.compiled.status for m in self.modules if m.compiled)
        broken = self._broken()
        failed = sum(
            module.path in broken or any(f.level == "error" for f in module.findings())
            for module in self.modules
        )
        return {
            "modules": len(self.modules),
            "failed": failed,
            "fresh": fresh["fresh"],
            "pristine": fresh["pristine"],
            "edited": fresh["edited"],
            "stale": fresh["stale"],
            "missing": fresh["missing"],
            "orphan": fresh["orphan"],
            "conflicted": fresh["conflicted"],
            "compiled": compiled["ok"],
            "compile_failed": sum(m.compiled.failed for m in self.modules if m.compiled),
            "skipped": compiled["skipped"],
            "cached": sum(m.compiled.cached for m in self.modules if m.compiled),
        }

    def _broken(self) -> set[Path]:
        """The files that do not compile under one of the other versions."""
        return {p for column in self.columns for p, r in column.results.items() if r.failed}

    @property
    def exit_code(self) -> int:
        """0 all well, 1 a check found something, 2 the input is wrong."""
        if self.problems:
            return EXIT_INPUT
        errors = any(finding.level == "error" for finding in self.findings())
        return EXIT_FINDING if errors or any(s.required for s in self.skips) else EXIT_WELL

    def summary(self) -> str:
        """One line that counts everything, skips too."""
        counts = self.counts()
        parts = []
        if any(module.compiled for module in self.modules) or not self.modules:
            cached = _of_which(counts["cached"], "from the cache")
            parts.append(f"{counts['compiled']} compiled{cached}")
        parts += [
            f"{counts[key]} {word}"
            for key, word in (
                ("fresh", "fresh"),
                ("pristine", "pristine"),
                ("edited", "edited"),
                ("stale", "stale"),
                ("missing", "missing"),
                ("orphan", "orphaned"),
                ("conflicted", "conflicted"),
                ("compile_failed", "failed the compile check"),
                ("skipped", "SKIPPED"),
            )
            if counts[key]
        ]
        if verified := [m.verified for m in self.modules if m.verified]:
            cached = _of_which(sum(each.cached for each in verified), "from the cache")
            seconds = sum(each.seconds for each in verified if not each.cached)
            well = sum(each.status == "ok" for each in verified)
            parts.append(f"{well} verified{cached} in {seconds:.1f} s")
        if broken := self._broken():
            parts.append(f"{len(broken)} broken under other versions")
        if self.problems:
            parts.append(_count(len(self.problems), "problem") + " with the input")
        return f"{_count(counts['modules'], 'module')}: {', '.join(parts)}"

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        return {
            "modules": [module.as_dict() for module in self.modules],
            "counts": self.counts(),
            "skips": [
                {
                    "check": skip.check,
                    "count": skip.count,
                    "reason": skip.reason,
                    "command": skip.command,
                    "required": skip.required,
                }
                for skip in self.skips
            ],
            "problems": [problem.as_dict() for problem in self.problems],
            "versions": [
                {
                    "with": column.name,
                    "modules": [
                        {"path": str(path), "compile": result.as_dict()}
                        for path, result in column.results.items()
                    ],
                }
                for column in self.columns
            ],
            "exit_code": self.exit_code,
        }


def as_text(report: Report) -> str:
    """One line a module, then what was found, what was skipped, and the counts.

    Problems with the input are not in it: a command prints those on standard error.
    """
    rows = [_row(module) for module in report.modules]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(len(HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "".join(f"{line}\n" for line in [*lines, *closing_lines(report)])


def closing_lines(report: Report) -> Iterator[str]:
    """Versions, schedules, findings, skips and the summary: the text below the table."""
    yield from version_table(report)
    for module in report.modules:
        for schedule in module.compiled.schedules if module.compiled else ():
            if not schedule.failed:
                yield f"schedule: {module.path}: {schedule.sentence()}"
    for finding in report.findings():
        yield f"{finding.level}: {finding.path}: {finding.title}: {finding.message}"
    for skip in report.skips:
        yield f"{'error' if skip.required else 'skipped'}: {skip.sentence()}"
    if report.modules:
        yield report.summary()


HEADINGS = ("module", "backend", "arch", "fresh", "compile", "registers", "spills", "SMEM", "time")


def version_table(report: Report) -> Iterator[str]:
    """File x version, if there were other versions than the installed one."""
    if not report.columns:
        return
    rows = [("", "here", *(column.name for column in report.columns))]
    for module in report.modules:
        cells = [
            _cell(module.compiled),
            *(_cell(c.results.get(module.path)) for c in report.columns),
        ]
        rows.append((str(module.path), *cells))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(c.ljust(width) for c, width in zip(row, widths, strict=True)).rstrip()
    yield ""


def _cell(result: CompileResult | None) -> str:
    if result is None:
        return "-"
    return title_of(result.status) if result.failed else result.status


def rich_table(report: Report) -> Any:
    """The modules as a rich table, for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        numeric = heading in ("registers", "spills", "SMEM", "time")
        table.add_column(
            heading, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric
        )
    for module in report.modules:
        levels = {finding.level for finding in module.findings()}
        style = "red" if "error" in levels else "yellow" if "warning" in levels else ""
        table.add_row(*(Text(cell, style=style) for cell in _row(module, headed=True)))
    return table


def _row(module: ModuleReport, headed: bool = False) -> tuple[str, ...]:
    """The cells of a module; below a heading the numbers need not name what they count."""
    compiled = module.compiled
    numbers = ("", "", "")
    if compiled is not None and compiled.kernels:
        numbers = (
            _number(compiled.registers, "" if headed else " registers"),
            _number(compiled.spill_bytes, " B" if headed else " B spilled"),
            _number(compiled.smem_bytes, " B" if headed else " B SMEM") + _tmem(compiled),
        )
    return (
        str(module.path),
        module.backend,
        module.arch,
        module.fresh.state if module.fresh else "-",
        compiled.status if compiled else "-",
        *numbers,
        _time(compiled),
    )


def _tmem(compiled: CompileResult) -> str:
    """What a kernel allocates of TMEM, behind its SMEM; nothing where there is none."""
    columns = compiled.tmem_columns
    return f" + {columns} columns of TMEM" if columns else ""


def _time(compiled: CompileResult | None) -> str:
    if compiled is None or compiled.status == "skipped":
        return ""
    return "cached" if compiled.cached else f"{compiled.seconds:.1f} s"


def _number(value: int | None, unit: str) -> str:
    return f"{'?' if value is None else value}{unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _of_which(number: int, what: str) -> str:
    return f" ({number} {what})" if number else ""
