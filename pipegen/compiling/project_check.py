# SPDX-License-Identifier: Apache-2.0
"""What `check` asks a project: where modules belong, their pristine texts, and what is orphaned."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipegen.compiling.discovery import read_source
from pipegen.compiling.freshness import Fresh, Renderer, judge
from pipegen.errors import InputError, Problem
from pipegen.searching import Found, excluded, is_module, search
from pipegen.vendor.header import read_header
from pipegen.vendor.lock import Lock, read_base, read_lock
from pipegen.vendor.project import Project, members, wrong_arch
from pipegen.vendor.transaction import JOURNAL_NAME, interrupted


class Checked:
    """The project that a run is in, if any, with its lock and descriptions read."""

    def __init__(self, project: Project | None) -> None:
        self.project = project
        self.lock = Lock({})
        self.problems: list[Problem] = []
        self.descriptions: list[Path] = []
        if project is None:
            return
        try:
            self.lock = read_lock(project.lock)
        except InputError as error:
            self.problems += error.problems
        self.descriptions, wrong = members(project)
        self.problems += wrong
        if interrupted(project.folder):
            self.problems.append(
                Problem(
                    "a run of `pipegen update` or `generate` was stopped half-way: call it again, "
                    "it finishes the work first",
                    file=str(project.folder / JOURNAL_NAME),
                )
            )
        self._members = {path.resolve() for path in self.descriptions}

    def owns(self, description: Path) -> bool:
        """Whether the description is one of the project's."""
        return self.project is not None and description.resolve() in self._members

    def place(self, description: Path, beside: Path) -> Path:
        """Where a module of a description belongs: beside it, or where the project says."""
        if self.project is None or not self.owns(description):
            return beside
        return self.project.target(description, beside.name)

    def judged(self, description: Path, path: Path, current: str | None, text: str) -> Fresh:
        """The freshness of a module, with the pristine text that the project keeps of it."""
        if self.project is None or not self.owns(description):
            return judge(current, text)
        entry = self.lock.entries.get(self.project.key(path))
        return judge(current, text, read_base(path, entry), lock=True)

    def with_descriptions(self, found: Found) -> Found:
        """Adds the description that the lock names for a module that was found."""
        if self.project is None:
            return found
        more: dict[Path, None] = {}
        known = {path.resolve() for path in found.descriptions}
        for module in found.modules:
            entry = self.lock.entries.get(self.project.key(module))
            if entry is None:
                continue
            description = self.project.folder / entry.description
            if self.owns(description) and description.resolve() not in known:
                more[description] = None
        return Found((*found.descriptions, *more), found.modules, found.problems)

    def orphans(
        self, found: Found, fresh: dict[Path, Fresh], problems: list[Problem]
    ) -> dict[Path, Fresh]:
        """Modules below the project's places that none of its descriptions stands for."""
        if self.project is None:
            return {}
        known = {path.resolve() for path in fresh}
        if any(problem.file for problem in problems if problem.file.endswith(".toml")):
            return {}  # a description that cannot be read is no proof that its module is orphaned
        orphans: dict[Path, Fresh] = {}
        for path in found.modules:
            if path.resolve() not in known:
                entry = self.lock.entries.get(self.project.key(path))
                gone = f" ({entry.description})" if entry else ""
                orphans[path] = Fresh(
                    "orphan",
                    f"no description of the project stands for it{gone}: remove the module, or "
                    "bring its description back (the header holds it)",
                )
        return orphans


def whole_project(checked: Checked, exclude: Sequence[str] = ()) -> Found:
    """The project's descriptions, the modules of its lock, and those in its output folder.

    What one of the patterns in `exclude` matches is left out.
    """
    project = checked.project
    assert project is not None
    modules: dict[Path, Path] = {}
    problems = list(checked.problems)
    for key in checked.lock.entries:
        path = project.folder / key
        if path.is_file():
            modules.setdefault(path.resolve(), path)
    if project.output and (project.folder / project.output).is_dir():
        inside = search(project.folder / project.output, project.exclude)
        problems += inside.problems
        for path in inside.modules:
            modules.setdefault(path.resolve(), path)
    elif not project.output:
        for folder in {path.parent for path in checked.descriptions}:
            for path in sorted(folder.glob("*.py")):
                if path.is_file() and is_module(path):
                    modules.setdefault(path.resolve(), path)
    folder = project.folder
    descriptions = (p for p in checked.descriptions if not excluded(p, folder, exclude))
    kept = (p for p in modules.values() if not excluded(p, folder, exclude))
    return Found(tuple(descriptions), tuple(kept), tuple(problems))


def freshness(
    descriptions: Sequence[Path],
    renderer: Renderer,
    checked: Checked,
    problems: list[Problem],
    progress: Callable[[str, int], None],
) -> dict[Path, Fresh]:
    """The freshness of every file that the descriptions stand for."""
    fresh: dict[Path, Fresh] = {}
    owners: dict[Path, Path] = {}
    for index, description in enumerate(descriptions):
        progress(description.name, index)
        try:
            rendered = renderer.files(description)
        except InputError as error:
            problems += error.problems
            continue
        for beside, text in rendered.items():
            path = checked.place(description, beside)
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
            header = read_header(text)
            if checked.project and header and checked.owns(description):
                wrong = wrong_arch(checked.project, description, header.arch)
                if wrong is not None:
                    problems.append(wrong)
                    continue
            current = read_source(path) if path.exists() else None
            if isinstance(current, Problem):
                problems.append(current)
            else:
                fresh[path] = checked.judged(description, path, current, text)
    return fresh
