# SPDX-License-Identifier: Apache-2.0
"""Finds what there is to check among and below the paths that were given."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pipegen.compiling.module import DEFAULT_ARCH, Module, read_module
from pipegen.errors import Problem
from pipegen.searching import Found, is_description, search, unreadable, wrong_path


def discover(paths: Iterable[Path], exclude: Sequence[str] = ()) -> Found:
    """The descriptions and modules among `paths` (files) and below them (folders), each once.

    A file that is named counts as what its suffix says, or else as what it says of itself, and
    `exclude` does not apply to it. Naming a module includes the description beside it. Finding
    nothing is a problem: a check that checks nothing must not pass.
    """
    descriptions: dict[Path, None] = {}
    modules: dict[Path, None] = {}
    problems: list[Problem] = []
    given = tuple(paths)
    for path in given:
        wrong = wrong_path(path)
        if wrong is not None:
            problems.append(wrong)
            continue
        try:
            found = search(path, exclude) if path.is_dir() else _named(path)
        except OSError as error:
            problems.append(unreadable(Path(error.filename or path), error))
            continue
        descriptions.update(dict.fromkeys(found.descriptions))
        modules.update(dict.fromkeys(found.modules))
        problems += found.problems
    if not (descriptions or modules or problems):
        names = ", ".join(map(str, given))
        problems.append(
            Problem(
                f"nothing to check in {names}: no TOML file with a line `pipegen = 1` and no "
                "Python file with pipegen's header. `pipegen new` writes both"
            )
        )
    return Found(tuple(descriptions), tuple(modules), tuple(problems))


def load_module(path: Path, arch: str = DEFAULT_ARCH) -> Module | Problem:
    """The module at `path`, or why it is none."""
    text = read_source(path)
    return text if isinstance(text, Problem) else read_module(path, text, arch)


def read_source(path: Path) -> str | Problem:
    """The text of a Python file, or why it has none."""
    if path.is_dir():
        return Problem("is a folder, and no Python source", file=str(path))
    wrong = wrong_path(path)
    if wrong is not None:
        return wrong
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return Problem("is not UTF-8, and so no Python source", file=str(path))
    except OSError as error:
        return unreadable(path, error)


def _named(path: Path) -> Found:
    """What a file that was named stands for. Raises OSError if that cannot be read."""
    if path.suffix == ".py":
        beside = path.with_suffix(".toml")
        described = beside.is_file() and is_description(beside)
        return Found((beside,) if described else (), (path,), ())
    if path.suffix == ".toml" or is_description(path):
        return Found((path,), (), ())
    problem = Problem(
        "is neither a description nor a module",
        file=str(path),
        allowed="folders, .py files, TOML files with a line `pipegen = 1`",
    )
    return Found((), (), (problem,))
