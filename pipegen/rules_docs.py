# SPDX-License-Identifier: Apache-2.0
"""Writes the page of rules from the rules' own docstrings: `python -m pipegen.rules_docs FILE`."""

import sys
from pathlib import Path

from pipegen.rules import Rule, all_rules

INTRODUCTION = """\
<!-- Written from pipegen/rules by `make docs`: edit there. -->

# Rules

A description that breaks a rule gets one paragraph with the rule's code; `pipegen explain CODE`
prints what stands here.
"""


def rules_markdown() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *map(rule_markdown, all_rules())])


def rule_markdown(rule: Rule) -> str:
    """One rule: its first sentence, then each heading of its docstring with its text."""
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
