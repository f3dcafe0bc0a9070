# SPDX-License-Identifier: Apache-2.0
"""From description files to the texts that belong beside them."""

from collections.abc import Iterable
from pathlib import Path

from pipegen.description_file import load_description, read_text
from pipegen.errors import InputError, Problem
from pipegen.planning import plan
from pipegen.rendering import render


def generate_one(path: Path) -> dict[Path, str]:
    """The files that the description at `path` stands for, beside it, and their text.

    Raises InputError with every problem of the description.
    """
    made = plan(load_description(path))
    return {path.parent / name: text for name, text in render(made).items()}


def find_descriptions(paths: Iterable[Path]) -> list[Path]:
    """The description files among and below `paths`, sorted, each once.

    A file is taken as given. In a folder, a description is a TOML file with a `pipegen` key.
    Raises InputError for a path that does not exist, or where nothing is found.
    """
    found: dict[Path, None] = {}
    problems: list[Problem] = []
    for path in paths:
        if path.is_dir():
            inside = [p for p in sorted(path.rglob("*.toml")) if _looks_like_description(p)]
            if not inside:
                problems.append(
                    Problem(
                        'holds no description: a TOML file with a line "pipegen = 1"',
                        file=str(path),
                    )
                )
            found.update(dict.fromkeys(inside))
        elif path.exists():
            found[path] = None
        else:
            problems.append(Problem("does not exist", file=str(path)))
    if problems:
        raise InputError(problems)
    return list(found)


def _looks_like_description(path: Path) -> bool:
    import tomllib

    try:
        return "pipegen" in tomllib.loads(read_text(path))
    except (InputError, tomllib.TOMLDecodeError):
        # A broken file counts if it says that it is one: it must be reported, not skipped.
        with path.open("rb") as file:
            return b"pipegen = " in file.read(4096)
