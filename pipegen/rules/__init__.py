# SPDX-License-Identifier: Apache-2.0
"""The rules that a description must keep. One module a rule; its docstring is the documentation."""

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pipegen.description import KernelDescription
from pipegen.errors import Problem

# What derived rules compute from: while one of these is wrong, their sums are about nothing.
_COMPUTED_FROM = ("tile.", "dtype.", "role.", "pipeline.", "order.")

Check = Callable[[KernelDescription], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A rule: its code, its name, its text for `pipegen explain`, and its check.

    A rule is derived if it computes from several keys: while one of a file's keys has no valid
    value, what such a rule says would be about a default, not about the file. Where no template
    writes the kernel at all, only the rules that always hold are asked; where one does, the general
    rules and those that its family names (`pipegen.planning.families`).
    """

    code: str
    name: str
    doc: str
    check: Check
    derived: bool
    always: bool
    general: bool


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ordered by code.

    A rule is a module `pgNNN_name` with a docstring and `check`; `DERIVED = True` if it is derived,
    `ALWAYS = True` if it holds without a template, and `GENERAL = True` if for every family.
    """
    return tuple(map(_rule, _files()))


def rules_of(codes: frozenset[str] | None) -> list[Rule]:
    """The rules to ask, in order: those that always hold and, where a family wants `codes`, these
    and the general ones. No other rule's module is imported: most belong to other families."""
    wanted = [
        name
        for name, flags in _files().items()
        if "ALWAYS" in flags or (codes is not None and ("GENERAL" in flags or _code(name) in codes))
    ]
    return list(map(_rule, wanted))


@cache
def _files() -> dict[str, frozenset[str]]:
    """The rules' module names in the order of their codes, and the flags that each one's text has.

    Read from the text, because importing all takes longer than the rest of `pipegen new`.
    """
    flags = {}
    for path in sorted(Path(__file__).parent.glob("pg[0-9][0-9][0-9]_*.py")):
        found = re.findall(r"^(ALWAYS|GENERAL) = True$", path.read_text("utf-8"), re.MULTILINE)
        flags[path.stem] = frozenset(found)
    return flags


def _code(name: str) -> str:
    return name.partition("_")[0].upper()


@cache
def _rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    return Rule(
        code=_code(name),
        name=name.partition("_")[2].replace("_", "-"),
        doc=str(module.__doc__),
        check=module.check,
        derived=getattr(module, "DERIVED", False),
        always=getattr(module, "ALWAYS", False),
        general=getattr(module, "GENERAL", False),
    )


def find_problems(
    description: KernelDescription, file: str = "", broken_keys: frozenset[str] = frozenset()
) -> list[Problem]:
    """Every problem that a rule finds in a description (defaults are filled in first).

    A problem on a key silences later rules' problems on the same key: the first one explains it.
    `broken_keys` had no valid value and stand at their defaults: nothing is said about them.
    """
    # Reading a description and planning it both ask, and the model of a graph takes its time.
    asked = repr(description.model_dump(exclude_unset=True)), broken_keys
    if asked not in _FOUND:
        if len(_FOUND) >= _REMEMBERED:
            _FOUND.clear()
        _FOUND[asked] = tuple(_find_problems(description, broken_keys))
    return [replace(problem, file=file) for problem in _FOUND[asked]]


# The problems of descriptions that were asked about. The keys that were given say all that counts.
_FOUND: dict[tuple[str, frozenset[str]], tuple[Problem, ...]] = {}
_REMEMBERED = 1024


def _find_problems(
    description: KernelDescription, broken_keys: frozenset[str]
) -> Iterator[Problem]:
    from pipegen.planning.defaults import resolve
    from pipegen.planning.families import family_of

    resolved = resolve(description)
    seen: set[str] = set(broken_keys)
    family = family_of(resolved)
    for rule in rules_of(family.rules if family else None):
        if rule.derived and any(key.startswith(_COMPUTED_FROM) for key in seen):
            continue
        found = [p for p in rule.check(resolved) if p.key not in seen]
        seen |= {p.key for p in found}
        yield from (replace(p, rule=rule.code) for p in found)
