# SPDX-License-Identifier: Apache-2.0
"""The whole of `pipegen check`: find, compare with the descriptions, compile, report."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pipegen.compiling.cache import CompileCache
from pipegen.compiling.discovery import discover, load_module
from pipegen.compiling.environments import Wanted
from pipegen.compiling.freshness import Fresh, Renderer, judge_alone
from pipegen.compiling.installed import DSLS, dsl
from pipegen.compiling.matrix import Column, compile_under
from pipegen.compiling.module import DEFAULT_ARCH, Module
from pipegen.compiling.pool import compile_all, default_jobs
from pipegen.compiling.project_check import Checked, freshness, whole_project
from pipegen.compiling.result import CompileResult
from pipegen.compiling.worker import DEFAULT_TIMEOUT
from pipegen.emulator.verifying import Verified, applies_to, verify_all
from pipegen.errors import Problem
from pipegen.report import ModuleReport, Report, Skip
from pipegen.searching import Found
from pipegen.vendor.project import Project

# What is being done, how many are done, of how many.
Progress = Callable[[str, int, int], None]
Level = Literal["fresh", "compile", "verify"]


def _silent(_what: str, _done: int, _total: int) -> None:
    """For a caller that does not show progress."""


def check(
    paths: Iterable[Path],
    cache_folder: Path | None,
    jobs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    require: frozenset[str] = frozenset(),
    arch: str = DEFAULT_ARCH,
    progress: Progress = _silent,
    exclude: Sequence[str] = (),
    project: Project | None = None,
    level: Level = "compile",
    pristine: bool = False,
    versions: Sequence[Wanted] = (),
) -> Report:
    """Run the checks on everything among and below `paths`; wrong input is part of the report.

    Without paths it is the whole `project`, or else the current folder. Below folders, what one of
    the patterns in `exclude` matches is left out. `level` says how far to go; `pristine` makes an
    edited file a finding. Under each of `versions` everything is compiled once more.
    """
    given = tuple(paths)
    checked = Checked(project)
    if project is not None and not given:
        found = whole_project(checked, exclude)
    else:
        found = checked.with_descriptions(discover(given or (Path("."),), exclude))
    problems = list(found.problems)
    fresh = freshness(
        found.descriptions,
        Renderer(cache_folder),
        checked,
        problems,
        lambda name, done: progress(f"rendering {name}", done, len(found.descriptions)),
    )
    if project is not None and not given:
        fresh |= checked.orphans(found, fresh, problems)
    modules = _modules(found, fresh, arch, problems)
    reports = _judged(found, modules, fresh, pristine)
    compiled: dict[Path, CompileResult] = {}
    columns: list[Column] = []
    verified: dict[Path, Verified] = {}
    if level != "fresh":
        # Text with the marks of a conflict is no Python: its state says all there is to say.
        torn = {r.path for r in reports if r.fresh and r.fresh.state == "conflicted"}
        work = [module for path, module in modules.items() if path not in torn]
        compiled = _compile(work, cache_folder, jobs, timeout, progress)
        columns = _matrix(versions, work, problems, cache_folder, jobs, timeout, progress)
        if level == "verify":
            # What does not compile has nothing to run.
            sound = [module for module in work if compiled[module.path].status == "ok"]
            verified = _verify(sound, cache_folder, jobs, progress)
    return Report(
        [replace(r, compiled=compiled.get(r.path), verified=verified.get(r.path)) for r in reports],
        _skips(modules, compiled, require),
        problems,
        columns,
    )


def _modules(
    found: Found, fresh: dict[Path, Fresh], arch: str, problems: list[Problem]
) -> dict[Path, Module]:
    """The files to compile, one for each place."""
    modules: dict[Path, Module] = {}
    for path in _unique([*found.modules, *fresh]):
        if path.suffix == ".py" and path.exists():
            loaded = load_module(path, arch)
            if isinstance(loaded, Module):
                modules[path] = loaded
            elif path in found.modules:
                problems.append(loaded)
    return modules


def _judged(
    found: Found, modules: dict[Path, Module], fresh: dict[Path, Fresh], pristine: bool
) -> list[ModuleReport]:
    """A report on each file, without what the compiler says."""
    by_place = {path.resolve(): state for path, state in fresh.items()}
    reports = []
    for path in sorted(_unique([*modules, *fresh])):
        module = modules.get(path)
        known = by_place.get(path.resolve())
        # Where the description beside it is wrong, that is what there is to say.
        if known is None and module and path.with_suffix(".toml") not in found.descriptions:
            known = judge_alone(module.text)
        if known is not None and known.edited and pristine:
            known = replace(known, forbidden=True)
        reports.append(
            ModuleReport(
                path,
                backend=module.backend if module else "",
                arch=module.arch if module else "",
                fresh=known,
            )
        )
    return reports


def _compile(
    modules: Sequence[Module],
    cache_folder: Path | None,
    jobs: int | None,
    timeout: float,
    progress: Progress,
) -> dict[Path, CompileResult]:
    done = itertools.count(1)
    progress("compiling", 0, len(modules))
    results = compile_all(
        modules,
        CompileCache(cache_folder),
        jobs or default_jobs(),
        timeout,
        lambda module, _: progress(f"compiled {module.path.name}", next(done), len(modules)),
        state=dsl,
    )
    return {module.path: result for module, result in zip(modules, results, strict=True)}


def _verify(
    modules: Sequence[Module], cache_folder: Path | None, jobs: int | None, progress: Progress
) -> dict[Path, Verified]:
    """What the emulator says of the modules that it can run.

    It takes seconds to minutes a module where compiling takes one second, so that it is asked for
    and is no part of a check by default. Its price is kept down: each size computes once, the other
    schedules run the protocol alone, and a verdict is kept until the module, the compiler or
    pipegen changes.
    """
    work = [module for module in modules if applies_to(module)]
    done = itertools.count(1)
    progress("verifying", 0, len(work))
    verdicts = verify_all(
        work,
        cache_folder,
        jobs or default_jobs(),
        on_done=lambda module, _: progress(f"verified {module.path.name}", next(done), len(work)),
    )
    return {module.path: verdict for module, verdict in zip(work, verdicts, strict=True)}


def _matrix(
    versions: Sequence[Wanted],
    modules: Sequence[Module],
    problems: list[Problem],
    cache_folder: Path | None,
    jobs: int | None,
    timeout: float,
    progress: Progress,
) -> list[Column]:
    columns: list[Column] = []
    for wanted in versions:
        column = compile_under(
            wanted, modules, cache_folder, jobs or default_jobs(), timeout, progress
        )
        if isinstance(column, Problem):
            problems.append(column)
        else:
            columns.append(column)
    return columns


def _skips(
    modules: dict[Path, Module], compiled: dict[Path, CompileResult], require: frozenset[str]
) -> list[Skip]:
    """The skipped modules, by DSL."""
    skipped = [modules[path].dsl for path, r in compiled.items() if r.status == "skipped"]
    return [
        Skip(name, skipped.count(name), dsl(name).reason, dsl(name).command, name in require)
        for name in DSLS
        if name in skipped
    ]


def _unique(paths: Iterable[Path]) -> list[Path]:
    """The paths in their order, one for each place."""
    places: dict[Path, Path] = {}
    for path in paths:
        places.setdefault(path.resolve(), path)
    return list(places.values())
