# SPDX-License-Identifier: Apache-2.0
"""Each rule is documented, has a description that breaks it, and passes for what is checked in."""

from pathlib import Path

import pytest

from pipegen import rules
from pipegen.description import KernelDescription
from pipegen.description_file import load_description
from pipegen.rules import all_rules, find_problems, rules_of
from pipegen.rules_docs import rules_markdown

ROOT = Path(__file__).parent.parent
ERRORS = [path.read_text() for path in (ROOT / "tests" / "cases").glob("*/errors.txt")]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_is_explained(rule):
    for heading in ("What it checks\n", "Why\n", "Example\n", "Use instead\n"):
        assert heading in rule.doc
    assert rule.doc.splitlines()[0].endswith(".")


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_has_a_case_that_breaks_it(rule):
    assert any(f"[{rule.code}]" in text for text in ERRORS)


def test_what_is_checked_in_breaks_no_rule():
    for path in (ROOT / "generated").rglob("*.toml"):
        assert find_problems(load_description(path)) == []


def test_a_description_is_judged_once(monkeypatch):
    """What was found is remembered: by every key that was given, and by no file's name."""
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_90a"}
    valid = KernelDescription.model_validate
    description, again = valid({"kernel": kernel}), valid({"kernel": kernel})
    other = valid({"kernel": {**kernel, "name": "other"}})
    wrong = valid({"kernel": kernel, "pipeline": {"mainloop": {"stages": 99}}})
    asked = []

    def found(description, broken_keys):
        asked.append(description)
        return iter(original(description, broken_keys))

    original = rules._find_problems
    monkeypatch.setattr(rules, "_find_problems", found)
    monkeypatch.setattr(rules, "_FOUND", {})
    assert find_problems(description) == find_problems(again, "a.toml") == []
    assert find_problems(other) == []
    assert [(problem.file, problem.rule) for problem in find_problems(wrong, "b.toml")]
    assert {problem.file for problem in find_problems(wrong, "c.toml")} == {"c.toml"}
    assert find_problems(wrong, "", frozenset({"pipeline.mainloop.stages"})) == []
    assert len(asked) == 4
    monkeypatch.setattr(rules, "_REMEMBERED", 1)
    find_problems(valid({"kernel": {**kernel, "name": "third"}}))
    assert len(rules._FOUND) == 1


def test_the_page_of_rules_is_up_to_date():
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == rules_markdown()


def test_no_two_rules_share_a_code():
    codes = [rule.code for rule in all_rules()]
    assert sorted(set(codes)) == codes


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_a_rule_is_asked_where_its_flags_say(rule):
    """`rules_of` reads the flags from the text, so that it need not import every rule."""
    asked = {each.code for each in rules_of(frozenset())}
    assert (rule.code in asked) == (rule.general or rule.always)
    assert (rule.code in {each.code for each in rules_of(None)}) == rule.always
    assert rule.code in {each.code for each in rules_of(frozenset({rule.code}))}
