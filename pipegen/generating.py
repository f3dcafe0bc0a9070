# SPDX-License-Identifier: Apache-2.0
"""From description files to the texts that belong beside them."""

from collections.abc import Iterable
from pathlib import Path

from pipegen.description_file import load_description
from pipegen.errors import InputError, Problem
from pipegen.planning import plan
from pipegen.rendering import render
from pipegen.searching import search, wrong_path


def generate_one(path: Path) -> dict[Path, str]:
    """The files that the description at `path` stands for, beside it, and their text.

    Raises InputError with every problem of the description.
    """
    made = plan(load_description(path))
    return {path.parent / name: text for name, text in render(made).items()}


def find_descriptions(paths: Iterable[Path]) -> list[Path]:
    """The description files among and below `paths`, each once, in the order of `paths`.

    A file is taken as given; a folder is searched as `check` does (see `search`). Raises
    InputError for a path that does not exist, and where nothing is found or can be read.
    """
    found: dict[Path, None] = {}
    problems: list[Problem] = []
    for path in paths:
        wrong = wrong_path(path)
        if wrong is not None:
            problems.append(wrong)
        elif path.is_dir():
            inside = search(path, modules=False)
            found.update(dict.fromkeys(inside.descriptions))
            problems += inside.problems
            if not inside.descriptions and not inside.problems:
                problems.append(
                    Problem(
                        'holds no description: a TOML file with a line "pipegen = 1"',
                        file=str(path),
                    )
                )
        elif path.suffix == ".py":
            name = path.with_suffix(".toml").name
            problems.append(
                Problem(f"is a module; its description is a TOML file: {name}", file=str(path))
            )
        else:
            found[path] = None
    if problems:
        raise InputError(problems)
    return list(found)
