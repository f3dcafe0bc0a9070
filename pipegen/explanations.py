# SPDX-License-Identifier: Apache-2.0
"""What `pipegen explain` knows: terms (`glossary.toml`), classes (`selection.toml`) and rules."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipegen.errors import InputError, Problem, listing, nearest_word
from pipegen.protocols import Protocol, protocols
from pipegen.selection import Row, rows
from pipegen.selection_table import templates

GROUPS = {
    "protocol": "The protocol between producer and consumer",
    "ring": "The ring buffer",
    "barriers": "Barriers and counts",
    "data": "Moving data",
    "mma": "Matrix multiply",
    "machine": "Clusters, scheduling, registers",
    "dsl": "The DSLs and pipegen",
}


@dataclass(frozen=True)
class Term:
    """One term of the field, in our own words."""

    name: str
    also: tuple[str, ...]
    group: str
    short: str
    text: str
    example: str
    lang: str
    see: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For `--format json`."""
        return {
            "kind": "term",
            "name": self.name,
            "also": list(self.also),
            "short": self.short,
            "text": self.text,
            "example": self.example,
            "see": list(self.see),
        }


@dataclass(frozen=True)
class ClassEntry:
    """A class or construct of the selection table, with every pair that selects it."""

    name: str
    rows: tuple[Row, ...]

    @property
    def short(self) -> str:
        """The pairs, for the list."""
        return listing(dict.fromkeys(row.pair for row in self.rows))

    @property
    def other_names(self) -> tuple[str, ...]:
        """The name without its module's prefix, and the function that makes it."""
        return tuple({self.name.split(".")[-1]} | {row.call.split(".")[-1] for row in self.rows})

    @property
    def protocol(self) -> Protocol | None:
        """The states of a stage; None for what is made of other classes (Pallas, cute-ts)."""
        return protocols().get(self.name)

    def as_dict(self) -> dict[str, object]:
        """For `--format json`."""
        protocol = self.protocol
        return {
            "kind": "class",
            "name": self.name,
            "short": self.short,
            "arrivals": {"full": protocol.full, "empty": protocol.empty} if protocol else None,
            "states": [asdict(state) for state in protocol.states] if protocol else None,
            "pairs": [
                {
                    "pair": row.pair,
                    "backend": row.backend,
                    "archs": list(row.archs),
                    "reason": row.why,
                    "operator": row.operator,
                    "module": row.module,
                    "call": row.call,
                    "arguments": {argument.name: argument.rule for argument in row.arguments},
                    "cautions": list(row.cautions),
                    "example": row.example,
                    "modules": list(emitted_examples(row)),
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True)
class RuleEntry:
    """A rule of `pipegen.rules`, or a finding of the emulator, with its explanation."""

    code: str
    name: str
    text: str

    @property
    def short(self) -> str:
        """The rule's name, for the list."""
        return self.name

    def as_dict(self) -> dict[str, object]:
        """For `--format json`."""
        return {"kind": "rule", "name": self.code, "short": self.name, "text": self.text}


Entry = Term | ClassEntry | RuleEntry


@cache
def terms() -> tuple[Term, ...]:
    """Every term, in the order of `glossary.toml`."""
    path = Path(__file__).with_name("glossary.toml")
    return tuple(_term(entry) for entry in tomllib.loads(path.read_text("utf-8"))["term"])


@cache
def classes() -> tuple[ClassEntry, ...]:
    """Every class of the selection table, in its order."""
    names = dict.fromkeys(row.cls for row in rows())
    return tuple(ClassEntry(name, tuple(r for r in rows() if r.cls == name)) for name in names)


@cache
def rules() -> tuple[RuleEntry, ...]:
    """Every rule of descriptions, and every finding of the emulator, ordered by code.

    The rules need the description's model, so they are loaded late.
    """
    from pipegen.emulator.finding_docs import finding_docs
    from pipegen.rules import all_rules

    of_rules = [RuleEntry(rule.code, rule.name, rule.doc.strip()) for rule in all_rules()]
    of_findings = [RuleEntry(each.code, each.name, each.doc.strip()) for each in finding_docs()]
    return tuple(sorted([*of_rules, *of_findings], key=lambda entry: entry.code))


def emitted_examples(row: Row) -> tuple[str, ...]:
    """Paths (in the repository) of emitted modules that use the row's class, one a template."""
    found = [
        template.example
        for template in templates()
        if template.exists
        and template.example
        and template.backend == row.backend
        and set(template.styles) & set(row.styles)
        and any(row.emitted_by(template, arch) for arch in template.archs)
    ]
    return tuple(dict.fromkeys(found))


def explain(name: str) -> tuple[Entry, ...]:
    """Everything known under a name; `InputError` with the nearest one if there is nothing."""
    key = _key(name)
    found: list[Entry] = [entry for word, entry in _named() if word == key]
    if not found:
        found += [rule for rule in rules() if key in (_key(rule.code), _key(rule.name))]
    if found:
        return tuple(dict.fromkeys(found))
    known: dict[str, Entry] = {_key(w): rule for rule in rules() for w in (rule.code, rule.name)}
    known |= _named()  # a term is what most mean by a name that is also a rule's
    near = nearest_word(key, list(known))
    raise InputError(
        Problem(
            f"nothing is known under the name {name!r}; `pipegen explain` lists what there is",
            nearest=_title(known[near]) if near else "",
        )
    )


def _term(entry: dict[str, Any]) -> Term:
    return Term(
        name=entry["name"],
        also=tuple(entry.get("also", ())),
        group=entry["group"],
        short=entry["short"],
        text=entry["text"].strip(),
        example=entry["example"].strip("\n"),
        lang=entry.get("lang", "python"),
        see=tuple(entry["see"]),
    )


def _key(name: str) -> str:
    """Spelling that does not matter: case, and blanks, hyphens or underscores between words."""
    return re.sub(r"[\s_-]+", " ", name.strip().lower())


def _named() -> Iterator[tuple[str, Term | ClassEntry]]:
    for term in terms():
        for word in (term.name, *term.also):
            yield _key(word), term
    for entry in classes():
        for word in (entry.name, *entry.other_names):
            yield _key(word), entry


def _title(entry: Entry) -> str:
    return entry.code if isinstance(entry, RuleEntry) else entry.name
