# SPDX-License-Identifier: Apache-2.0
"""Writes the page of rules from the rules' own docstrings: `python -m pipegen.rules_docs FILE`."""

import sys
from pathlib import Path

from pipegen.emulator.finding_docs import FindingDoc, finding_docs
from pipegen.rules import Rule, all_rules

INTRODUCTION = """\
<!-- Written from pipegen/rules by `make docs`: edit there. -->

# Rules

A description that breaks a rule gets one paragraph with the rule's code; `pipegen explain CODE`
prints what stands here.
"""
FINDINGS = """\
# Findings of the emulator

`pipegen emulate` and `pipegen verify` run the compiled kernel on the CPU (docs/emulator.md). What
goes wrong there has a code, too.
"""


def rules_markdown() -> str:
    """The whole page."""
    rules = map(rule_markdown, all_rules())
    return "\n".join([INTRODUCTION, *rules, FINDINGS, *map(rule_markdown, finding_docs())])


def rule_markdown(rule: Rule | FindingDoc) -> str:
    """One rule or finding: its first sentence, then each heading of its docstring with its text."""
    lines = [f"## {rule.code} {rule.name}", ""]
    for line in rule.doc.strip().splitlines():
        if line.startswith("    "):
            lines.append(line[4:])
        elif line.strip() and not line.endswith("."):
            lines += [f"**{line}**", ""]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(rules_markdown(), encoding="utf-8")
