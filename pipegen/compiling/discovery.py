# SPDX-License-Identifier: Apache-2.0
"""Finds what there is to check among and below the paths that were given."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipegen.compiling.module import DEFAULT_ARCH, Module, has_header, read_module
from pipegen.errors import Problem

_DESCRIPTION = re.compile(r"^pipegen\s*=\s*\d", re.MULTILINE)
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
# Descriptions are a few hundred bytes; a header is on the first lines.
_READ_BYTES = 65536


@dataclass(frozen=True)
class Found:
    """Descriptions, modules, and files that were given and cannot be checked."""

    descriptions: tuple[Path, ...]
    modules: tuple[Path, ...]
    problems: tuple[Problem, ...]


def discover(paths: Iterable[Path]) -> Found:
    """The descriptions and modules among `paths` (files) and below them (folders), each once.

    In a folder, a description is a TOML file with a `pipegen` key and a module is a Python file
    with pipegen's header; a file that is named counts as what its suffix says. Naming a module
    includes the description beside it. Finding nothing is a problem: a check that checks nothing
    must not pass.
    """
    descriptions: dict[Path, None] = {}
    modules: dict[Path, None] = {}
    problems: list[Problem] = []
    given = tuple(paths)
    for path in given:
        if path.is_dir():
            for inside in _files(path):
                if inside.suffix == ".toml":
                    descriptions[inside] = None
                else:
                    modules[inside] = None
        elif not path.exists():
            problems.append(Problem("does not exist", file=str(path)))
        elif path.suffix == ".toml":
            descriptions[path] = None
        elif path.suffix == ".py":
            modules[path] = None
            beside = path.with_suffix(".toml")
            if beside.is_file() and _is_ours(beside):
                descriptions[beside] = None
        else:
            problems.append(
                Problem(
                    "is neither a description nor a module",
                    file=str(path),
                    allowed="folders, .toml files, .py files",
                )
            )
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
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return Problem("is not UTF-8, and so no Python source", file=str(path))
    except OSError as error:
        return Problem(f"cannot be read: {error.strerror or error}", file=str(path))
    return read_module(path, text, arch)


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix in (".toml", ".py") and _is_ours(path):
                yield path


def _is_ours(path: Path) -> bool:
    """Whether a file says of itself that it is pipegen's."""
    try:
        with path.open("rb") as file:
            text = file.read(_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    if path.suffix == ".py":
        return has_header(text)
    try:
        return "pipegen" in tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # A broken description that says what it is must be reported, not skipped.
        return _DESCRIPTION.search(text) is not None
