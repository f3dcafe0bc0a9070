# SPDX-License-Identifier: Apache-2.0
"""Puts the best values into a description file: the keys that were searched, and nothing else.

Comments, order and all other keys of the file stay; so does every value that was to be kept. The
module beside it is written anew only if it is as pipegen wrote it (`pipegen.files`); an edited one
is left for `pipegen update`, which merges.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipegen.description_file import parse_description
from pipegen.errors import InputError, Problem
from pipegen.files import Outcome, outcome_for, replace_file, write_files
from pipegen.generating import generate_one
from pipegen.tuning.space import Candidate, searched
from pipegen.vendor.project import find_project


def updated_text(text: str, candidate: Candidate, keep: Sequence[str] = (), file: str = "") -> str:
    """The description's text with the candidate's values. Raises InputError if it would not say
    what was measured."""
    import tomlkit

    document: Any = tomlkit.parse(text)
    values = dict(candidate.values)
    op = str(document["kernel"]["op"])
    for key in searched(op, keep):
        *sections, leaf = key.split(".")
        table = document
        path: list[str] = []
        for section in sections:
            if section not in table and key not in values:
                table = None
                break
            if section not in table:
                table[section] = tomlkit.table(is_super_table=len(sections) > len(path) + 1)
            table = table[section]
            path.append(section)
        if table is None:
            continue
        if key in values:
            value = values[key]
            table[leaf] = list(value) if isinstance(value, tuple) else value
        elif leaf in table:
            del table[leaf]
    changed = tomlkit.dumps(document)
    parse_description(changed, file)  # the rules have the last word
    return changed


def write_best(
    path: Path, candidate: Candidate, keep: Sequence[str] = ()
) -> list[tuple[Path, str]]:
    """Write the description and, if nobody edited it, its module: what was done to which file.

    Raises InputError, before anything is written, if the description cannot be.
    """
    before = path.read_text("utf-8")
    text = updated_text(before, candidate, keep, str(path))
    done = [(path, "unchanged" if text == before else "updated")]
    if text != before:
        replace_file(path, text)
    if find_project(path.parent) is not None:
        return [*done, (path.with_suffix(".py"), "left for `pipegen update`")]
    for module, rendered in generate_one(path).items():
        outcome = outcome_for(module, rendered)
        if isinstance(outcome, Problem):
            done.append((module, "was edited, and left alone"))
        elif outcome is Outcome.CREATED:
            done.append((module, "not there, and not written: `pipegen generate`"))
        else:
            try:
                write_files(module.parent, {module.name: rendered})
                done.append((module, outcome.value))
            except InputError as error:
                done.append((module, error.problems[0].paragraph()))
    return done
