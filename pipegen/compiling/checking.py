# SPDX-License-Identifier: Apache-2.0
"""The whole of `pipegen check`: find, compare with the descriptions, compile, report."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pipegen.compiling.cache import CompileCache
from pipegen.compiling.discovery import discover, load_module, read_source
from pipegen.compiling.freshness import Fresh, Renderer, judge, judge_alone
from pipegen.compiling.installed import DSLS, dsl
from pipegen.compiling.module import DEFAULT_ARCH, Module
from pipegen.compiling.pool import compile_all, default_jobs
from pipegen.compiling.result import CompileResult
from pipegen.compiling.worker import DEFAULT_TIMEOUT
from pipegen.errors import InputError, Problem
from pipegen.report import ModuleReport, Report, Skip

# What is being done, how many are done, of how many.
Progress = Callable[[str, int, int], None]


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
) -> Report:
    """Run the checks on everything among and below `paths`; wrong input is part of the report.

    Below folders, what one of the patterns in `exclude` matches is left out.
    """
    found = discover(paths, exclude)
    problems = list(found.problems)
    fresh = _freshness(found.descriptions, cache_folder, problems, progress)
    modules: dict[Path, Module] = {}
    for path in _unique([*found.modules, *fresh]):
        if path.suffix == ".py" and path.exists():
            loaded = load_module(path, arch)
            if isinstance(loaded, Module):
                modules[path] = loaded
            elif path in found.modules:
                problems.append(loaded)
    done = itertools.count(1)
    progress("compiling", 0, len(modules))
    results = compile_all(
        list(modules.values()),
        CompileCache(cache_folder),
        jobs or default_jobs(),
        timeout,
        lambda module, _: progress(f"compiled {module.path.name}", next(done), len(modules)),
        state=dsl,
    )
    compiled = dict(zip(modules, results, strict=True))
    by_place = {path.resolve(): state for path, state in fresh.items()}
    reports = []
    for path in sorted(_unique([*modules, *fresh])):
        module = modules.get(path)
        known = by_place.get(path.resolve())
        # Where the description beside it is wrong, that is what there is to say.
        if known is None and module and path.with_suffix(".toml") not in found.descriptions:
            known = judge_alone(module.text)
        reports.append(
            ModuleReport(
                path,
                backend=module.backend if module else "",
                arch=module.arch if module else "",
                fresh=known,
                compiled=compiled.get(path),
            )
        )
    return Report(reports, _skips(modules.values(), results, require), problems)


def _freshness(
    descriptions: Sequence[Path],
    cache_folder: Path | None,
    problems: list[Problem],
    progress: Progress,
) -> dict[Path, Fresh]:
    """The freshness of every file that the descriptions stand for."""
    renderer = Renderer(cache_folder)
    fresh: dict[Path, Fresh] = {}
    owners: dict[Path, Path] = {}
    for index, description in enumerate(descriptions):
        progress(f"rendering {description.name}", index, len(descriptions))
        try:
            rendered = renderer.files(description)
        except InputError as error:
            problems += error.problems
            continue
        for path, text in rendered.items():
            owner = owners.setdefault(path.parent.resolve() / path.name, description)
            if owner.resolve() != description.resolve():
                problems.append(
                    Problem(
                        f"stands for {path.name}, and so does {owner.name}: give one of them "
                        "another kernel.name",
                        file=str(description),
                    )
                )
                continue
            current = read_source(path) if path.exists() else None
            if isinstance(current, Problem):
                problems.append(current)
            else:
                fresh[path] = judge(current, text)
    return fresh


def _skips(
    modules: Iterable[Module], results: Iterable[CompileResult], require: frozenset[str]
) -> list[Skip]:
    """The skipped modules, by DSL."""
    skipped = [m.dsl for m, r in zip(modules, results, strict=True) if r.status == "skipped"]
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
