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

Check = Callable[[KernelDescription], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """A rule: its code, its name, its text for `pipegen explain`, and its check."""

    code: str
    name: str
    doc: str
    check: Check


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ordered by code. A rule is a module `pgNNN_name` with a docstring and `check`."""
    rules = []
    for info in pkgutil.iter_modules(__path__):
        if match := re.fullmatch(r"(pg\d{3})_(\w+)", info.name):
            module = importlib.import_module(f"{__name__}.{info.name}")
            rules.append(
                Rule(
                    match[1].upper(), match[2].replace("_", "-"), str(module.__doc__), module.check
                )
            )
    return tuple(sorted(rules, key=lambda rule: rule.code))


def find_problems(description: KernelDescription, file: str = "") -> list[Problem]:
    """Every problem that a rule finds in a description (defaults are filled in first).

    A problem on a key silences later rules' problems on the same key: the first one explains it.
    """
    from pipegen.planning.defaults import resolve

    resolved = resolve(description)
    problems: list[Problem] = []
    seen: set[str] = set()
    for rule in all_rules():
        found = [p for p in rule.check(resolved) if p.key not in seen]
        seen |= {p.key for p in found}
        problems += [replace(p, rule=rule.code, file=file) for p in found]
    return problems
