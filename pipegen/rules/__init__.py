# SPDX-License-Identifier: Apache-2.0
"""The rules that a description must keep. One module a rule; its docstring is the documentation."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

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
    rules = []
    for info in pkgutil.iter_modules(__path__):
        if match := re.fullmatch(r"(pg\d{3})_(\w+)", info.name):
            module = importlib.import_module(f"{__name__}.{info.name}")
            rules.append(
                Rule(
                    code=match[1].upper(),
                    name=match[2].replace("_", "-"),
                    doc=str(module.__doc__),
                    check=module.check,
                    derived=getattr(module, "DERIVED", False),
                    always=getattr(module, "ALWAYS", False),
                    general=getattr(module, "GENERAL", False),
                )
            )
    return tuple(sorted(rules, key=lambda rule: rule.code))


def find_problems(
    description: KernelDescription, file: str = "", broken_keys: frozenset[str] = frozenset()
) -> list[Problem]:
    """Every problem that a rule finds in a description (defaults are filled in first).

    A problem on a key silences later rules' problems on the same key: the first one explains it.
    `broken_keys` had no valid value and stand at their defaults: nothing is said about them.
    """
    from pipegen.planning.defaults import resolve
    from pipegen.planning.families import family_of

    resolved = resolve(description)
    problems: list[Problem] = []
    seen: set[str] = set(broken_keys)
    family = family_of(resolved)
    for rule in all_rules():
        holds = family is not None and (rule.general or rule.code in family.rules)
        if not (holds or rule.always):
            continue
        if rule.derived and any(key.startswith(_COMPUTED_FROM) for key in seen):
            continue
        found = [p for p in rule.check(resolved) if p.key not in seen]
        seen |= {p.key for p in found}
        problems += [replace(p, rule=rule.code, file=file) for p in found]
    return problems
