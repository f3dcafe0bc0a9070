# SPDX-License-Identifier: Apache-2.0
"""Finds descriptions and emitted modules below a folder; `generate` and `check` both ask here.

Only regular files are opened, so that no pipe makes the search wait. What cannot be read is a
problem and not skipped: it may be a description, and then its kernel would go unchecked.
"""

import codecs
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pipegen.description_file import MAX_BYTES
from pipegen.errors import Problem
from pipegen.vendor.header import read_header

_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_MARK = re.compile(r"""^[ \t]*["']?pipegen["']?[ \t]*=""", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """Descriptions, modules, and what cannot be read or used."""

    descriptions: tuple[Path, ...]
    modules: tuple[Path, ...]
    problems: tuple[Problem, ...]


def search(folder: Path, exclude: Sequence[str] = (), modules: bool = True) -> Found:
    """What lies below `folder`, sorted by folder and name.

    A description is a TOML file with a top-level `pipegen` key, or with `op`, `backend` and `arch`
    in its table `kernel`; a module is a Python file with pipegen's header. Hidden folders, virtual
    environments and what `exclude` matches are left out, and links to folders are not followed.
    """
    descriptions: list[Path] = []
    emitted: list[Path] = []
    problems: list[Problem] = []
    suffixes = (".toml", ".py") if modules else (".toml",)
    for path in _files(folder, suffixes, exclude, problems):
        try:
            if path.suffix == ".py":
                if is_module(path):
                    emitted.append(path)
            elif is_description(path):
                descriptions.append(path)
        except OSError as error:
            problems.append(unreadable(path, error))
    return Found(tuple(descriptions), tuple(emitted), tuple(problems))


def is_description(path: Path) -> bool:
    """Whether a regular file says that it is a description, be it right or broken.

    Raises OSError if it cannot be read.
    """
    text = _text(path)
    try:
        data = tomllib.loads(text)
        kernel = data.get("kernel")
        # `pipegen = 1` has a default, and may be left out; these three keys together are ours.
        return "pipegen" in data or (
            isinstance(kernel, dict) and {"op", "backend", "arch"} <= kernel.keys()
        )
    except (ValueError, RecursionError):
        # A broken file that says what it is must be reported, not skipped.
        table = _TABLE.search(text)
        return _MARK.search(text, 0, table.start() if table else len(text)) is not None


def is_module(path: Path) -> bool:
    """Whether a regular file has pipegen's header. Raises OSError if it cannot be read."""
    return read_header(_text(path)) is not None


def wrong_path(path: Path) -> Problem | None:
    """Why a path that was named is neither a folder nor a file that can be opened."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        missing = "is a link to nowhere" if path.is_symlink() else "does not exist"
        return Problem(missing, file=str(path))
    except (OSError, ValueError) as error:
        return unreadable(path, error)
    if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
        return None
    return Problem("is neither a regular file nor a folder", file=str(path))


def unreadable(path: Path, error: OSError | ValueError) -> Problem:
    """The problem for a file that the system does not let us read."""
    reason = error.strerror if isinstance(error, OSError) else None
    return Problem(f"cannot be read: {reason or error}", file=str(path))


def _files(
    folder: Path, suffixes: Sequence[str], exclude: Sequence[str], problems: list[Problem]
) -> Iterator[Path]:
    def unsearchable(error: OSError) -> None:
        problems.append(unreadable(Path(error.filename), error))

    for root, folders, names in os.walk(folder, onerror=unsearchable):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not excluded(Path(root, name), folder, exclude)
        )
        for name in sorted(names):
            path = Path(root, name)
            if (
                path.suffix in suffixes
                and _is_regular(path)
                and not excluded(path, folder, exclude)
            ):
                yield path


def excluded(path: Path, folder: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the name, the path below the searched folder, or the path."""
    names = (path.name, path.relative_to(folder).as_posix(), path.as_posix())
    return any(
        fnmatchcase(name, Path(pattern).as_posix()) for pattern in patterns for name in names
    )


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False  # a link to nowhere or to itself


def _text(path: Path) -> str:
    """The text as far as a description may be long; a wrong byte becomes a mark."""
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return raw.decode("utf-16" if utf16 else "utf-8-sig", "replace")
