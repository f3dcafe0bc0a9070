# SPDX-License-Identifier: Apache-2.0
"""A project: which descriptions it vendors, and where their modules go.

`pipegen.toml`, or the table `[tool.pipegen]` of `pyproject.toml`, in the folder where pipegen is
called or above it, up to the root of the repository.
"""

import glob
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipegen.errors import InputError, Problem, listing, nearest_word
from pipegen.vocabulary import ARCH_ALIASES, ARCHS

OWN_FILE = "pipegen.toml"
SHARED_FILE = "pyproject.toml"
LOCK_NAME = "pipegen.lock"
_GLOB = set("*?[")


@dataclass(frozen=True)
class Project:
    """What the project file says. Paths and patterns are relative to the file's folder."""

    file: Path
    descriptions: tuple[str, ...]
    output: str = ""
    archs: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the project file: what the lock's paths start from."""
        return self.file.parent

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.folder / LOCK_NAME

    def target(self, description: Path, name: str) -> Path:
        """Where the module called `name` of a description goes."""
        return (self.folder / self.output if self.output else description.parent) / name

    def key(self, path: Path) -> str:
        """A path as the lock spells it."""
        return Path(os.path.relpath(path.absolute(), self.folder.absolute())).as_posix()


def find_project(start: Path = Path(".")) -> Project | None:
    """The project that `start` belongs to, or None. Raises InputError if its file is wrong."""
    here = start.absolute()
    for folder in (here, *here.parents):
        shown = start if folder == here else Path(os.path.relpath(folder))
        for name in (OWN_FILE, SHARED_FILE):
            file = shown / name
            if file.is_file():
                project = read_project(file)
                if project is not None:
                    return project
        if (folder / ".git").exists():
            return None  # a project above the repository is another one's
    return None


def read_project(file: Path) -> Project | None:
    """The project in `file`; None if it is a pyproject.toml without our table."""
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if file.name == SHARED_FILE:
            return None  # other tools will say so, and it need not be ours
        raise InputError(Problem(f"cannot be read: {error}", file=str(file))) from None
    prefix = ""
    if file.name == SHARED_FILE:
        tool = data.get("tool")
        table = tool.get("pipegen") if isinstance(tool, dict) else None
        prefix = "tool.pipegen"
        if table is None:
            return None
        if not isinstance(table, dict):
            raise InputError(Problem("is no table", key=prefix, file=str(file)))
        data = table
    return project_from(file, data, prefix)


def project_from(file: Path, data: Mapping[str, Any], prefix: str = "") -> Project:
    """The project that the data of `file` describes. Raises InputError with every problem."""
    problems: list[Problem] = []

    def problem(key: str, message: str, **more: Any) -> None:
        dotted = f"{prefix}.{key}" if prefix else key
        problems.append(Problem(message, key=dotted, file=str(file), **more))

    known = ("descriptions", "output", "archs", "versions", "exclude")
    for key in data:
        if key not in known:
            problem(
                key, "no such key", allowed=listing(known), nearest=nearest_word(key, list(known))
            )
    words = {key: _words(data, key, problem) for key in known if key != "output"}
    if "descriptions" not in data:
        problem("descriptions", "is missing: the files, folders or patterns of the descriptions")
    archs = tuple(ARCH_ALIASES.get(word, word) for word in words["archs"])
    for word in archs:
        if word not in ARCHS:
            problem(
                "archs", "no such architecture", value=word, allowed=listing(ARCHS),
                nearest=nearest_word(word, list(ARCHS)),
            )  # fmt: skip
    output = data.get("output", "")
    if not isinstance(output, str):
        problem("output", "must be a folder's name", value=output)
        output = ""
    for key, paths in (("descriptions", words["descriptions"]), ("output", (output,))):
        for path in paths:
            if os.path.isabs(path) or ".." in Path(path).parts:
                problem(key, "must lie below the project file's folder", value=path)
    if problems:
        raise InputError(problems)
    return Project(file, words["descriptions"], output, archs, words["versions"], words["exclude"])


def _words(data: Mapping[str, Any], key: str, problem: Callable[..., None]) -> tuple[str, ...]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        problem(key, "must be a list of words", value=value)
        return ()
    return tuple(value)


def members(project: Project) -> tuple[list[Path], list[Problem]]:
    """The descriptions of the project, sorted, and what is wrong with the entries.

    An entry that stands for nothing is a problem: a typing error must not hide a kernel.
    """
    from pipegen.searching import is_description, search, unreadable

    found: dict[str, Path] = {}
    problems: list[Problem] = []
    for entry in project.descriptions:
        paths: list[Path] = []
        place = project.folder / entry
        if _GLOB & set(entry):
            for match in sorted(glob.glob(entry, root_dir=project.folder, recursive=True)):
                path = project.folder / match
                try:
                    if path.is_file() and path.suffix == ".toml" and is_description(path):
                        paths.append(path)
                except OSError as error:
                    problems.append(unreadable(path, error))
        elif place.is_dir():
            inside = search(place, project.exclude, modules=False)
            paths += inside.descriptions
            problems += inside.problems
        elif place.is_file():
            paths.append(place)
        if not paths:
            problems.append(
                Problem(
                    "stands for no description: a TOML file with a line `pipegen = 1`",
                    key="descriptions", value=entry, file=str(project.file),
                )
            )  # fmt: skip
        found.update((project.key(path), path) for path in paths)
    return [found[key] for key in sorted(found)], problems


def wrong_arch(project: Project, description: Path, arch: str) -> Problem | None:
    """A description for an architecture that the project does not list."""
    if not project.archs or arch in project.archs:
        return None
    return Problem(
        f"the project ships for {listing(project.archs)} only; add it to archs in "
        f"{project.file}, or take the description out",
        key="kernel.arch", value=arch, allowed=listing(project.archs), file=str(description),
    )  # fmt: skip


def rendered_files(
    project: Project, descriptions: Iterable[Path], render: Callable[[Path], Mapping[Path, str]]
) -> tuple[dict[Path, tuple[Path, str]], list[Problem]]:
    """Module -> its description and the text it has today, at the project's places.

    `render` gives the texts of a description, beside it; what it refuses is among the problems.
    """
    from pipegen.vendor.header import read_header

    texts: dict[Path, tuple[Path, str]] = {}
    problems: list[Problem] = []
    for description in descriptions:
        try:
            files = render(description)
        except InputError as error:
            problems += error.problems
            continue
        for beside, text in files.items():
            header = read_header(text)
            wrong = wrong_arch(project, description, header.arch) if header else None
            path = project.target(description, beside.name)
            if path in texts:
                wrong = Problem(
                    f"stands for {path}, and so does {texts[path][0]}: give one of them another "
                    "kernel.name",
                    file=str(description),
                )
            if wrong is not None:
                problems.append(wrong)
            else:
                texts[path] = (description, text)
    return texts, problems
