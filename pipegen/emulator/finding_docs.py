# SPDX-License-Identifier: Apache-2.0
"""The codes and explanations of what the emulator finds (`findings.toml`)."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

WRONG_RESULT = "wrong-result"


@dataclass(frozen=True)
class FindingDoc:
    """A kind of finding: its code, the machine's word for it, and its text for `explain`."""

    code: str
    name: str
    doc: str

    @property
    def short(self) -> str:
        """Its first sentence."""
        return self.doc.strip().splitlines()[0]


@cache
def finding_docs() -> tuple[FindingDoc, ...]:
    """Every kind, ordered by code."""
    text = Path(__file__).with_name("findings.toml").read_text("utf-8")
    entries = tomllib.loads(text)["finding"]
    found = [FindingDoc(entry["code"], entry["kind"], entry["doc"]) for entry in entries]
    return tuple(sorted(found, key=lambda each: each.code))


def name_of(code: str) -> str:
    """The name of a finding's code, or nothing if there is no such code."""
    return {each.code: each.name for each in finding_docs()}.get(code, "")


def code_of(kind: str) -> str:
    """The code of the machine's word for a finding; KeyError for one without a page."""
    return {each.name: each.code for each in finding_docs()}[kind]
