# SPDX-License-Identifier: Apache-2.0
"""`pipegen explain`: everything named is explained, with an example that at least parses."""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from pipegen import explanations
from pipegen.cli import main
from pipegen.errors import InputError
from pipegen.explanations import (
    GROUPS,
    ClassEntry,
    Term,
    classes,
    emitted_examples,
    explain,
    terms,
)
from pipegen.protocols import protocols
from pipegen.rules import all_rules
from pipegen.selection import WORDS, Row, rows

ROOT = Path(__file__).parent.parent

# The vocabulary of the house (style.md), and what the articles about these pipelines speak of.
FIELD_TERMS = """
producer, consumer, stage, phase, full barrier, empty barrier, acquire, commit, wait, release,
arrive count, tx_count, cluster, multicast, mainloop, accumulator, epilogue, scheduler, tile,
ring buffer, mbarrier, CooperativeGroup, handle, tail, clone, try_acquire, try_wait, defer_sync,
make_participants, PipelineState, cta_layout_vmnk, mcast_mode_mn, enable_multicast_signaling,
leader CTA, TMEM, SMEM, wgmma, tcgen05, UMMA, CLC, cp.async, TMA, TMA store, TmaStoreFence,
setmaxnreg, memory_registers, delay_release, max_concurrent_steps, compute_context, wgmma_wait,
num_stages, barrier_storage, producer_group, warp specialization, warpgroup, ping-pong,
Task Scheduling, advance_on_wait, swizzle, tensor map, named barrier, elect_one, proxy fence,
persistent, occupancy, K-major, CTA pair, expect_tx, explicit-state, participants
"""
FIELD = [" ".join(term.split()) for term in FIELD_TERMS.split(",")]


@pytest.mark.parametrize("name", FIELD)
def test_the_fields_terms_are_explained(name: str) -> None:
    assert explain(name)


@pytest.mark.parametrize("word", [*WORDS, "cute-ts"])
def test_the_descriptions_words_are_explained(word: str) -> None:
    for part in word.split("+"):
        assert any(isinstance(entry, Term) for entry in explain(part))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.backend} {row.cls} {row.pair}")
def test_every_class_is_explained_from_the_table(row: Row) -> None:
    for name in (row.cls, row.cls.split(".")[-1].upper(), row.call.split(".")[-1]):
        if name.lower() == "create":
            continue
        found = [entry for entry in explain(name) if isinstance(entry, ClassEntry)]
        assert row in [r for entry in found for r in entry.rows]


@pytest.mark.parametrize("term", terms(), ids=lambda term: term.name)
def test_terms_are_complete(term: Term) -> None:
    assert term.group in GROUPS
    assert term.see
    assert 10 < len(term.short) < 100
    assert 60 < len(term.text) < 800
    assert term.text.rstrip().endswith((".", ":"))
    assert "\n" not in term.text
    assert max(map(len, term.example.splitlines())) <= 100
    if term.lang == "python":
        ast.parse(term.example)
    elif term.lang == "toml":
        assert tomllib.loads(term.example)
    else:
        assert term.lang == "text"
    for name in term.see:
        assert explain(name), name


def test_no_name_has_two_terms() -> None:
    seen: dict[str, str] = {}
    for term in terms():
        for word in (term.name, *term.also):
            key = explanations._key(word)
            assert seen.setdefault(key, term.name) == term.name, word
    assert len({term.name for term in terms()}) == len(terms())


def test_sums_in_the_glossary_are_right() -> None:
    """Each `a * b = c`, `a + b = c` or `a // b = c` in a text example, worked out again."""
    checked = 0
    for term in terms():
        if term.lang != "text":
            continue
        plain = re.sub(r"\s(B|KiB|bytes|columns|threads|SM|block|reserved)\b", "", term.example)
        for left, right in re.findall(r"((?:\d+ (?:[*+/%-]|//) )+\d+) = (\d+)", plain):
            assert eval(left) == int(right), (term.name, left, right)
            checked += 1
    assert checked >= 8


def test_a_wrong_sum_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Term("x", (), "ring", "", "", "3 * 4 = 13", "text", ())
    monkeypatch.setattr(sys.modules[__name__], "terms", lambda: (wrong,))
    with pytest.raises(AssertionError, match="13"):
        test_sums_in_the_glossary_are_right()


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("TX_COUNT", "tx_count"), ("tx count", "tx_count"), ("Ping Pong", "ping-pong")],
)
def test_spelling_does_not_matter(spelling: str, name: str) -> None:
    [entry] = explain(spelling)
    assert isinstance(entry, Term)
    assert entry.name == name


# --- Rules ---------------------------------------------------------------------------------------


@pytest.fixture
def two_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stands in for pipegen.rules, so that these tests do not depend on which rules there are."""
    found = [
        SimpleNamespace(code="PG901", name="first-rule", doc="What it checks\n\nOne.\n"),
        SimpleNamespace(code="PG902", name="second-rule", doc="What it checks\n\nTwo.\n"),
    ]
    module = ModuleType("pipegen.rules")
    module.all_rules = lambda: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pipegen.rules", module)
    explanations.rules.cache_clear()
    yield
    explanations.rules.cache_clear()


@pytest.mark.usefixtures("two_rules")
@pytest.mark.parametrize("name", ["PG902", "pg902", "second-rule", "second rule"])
def test_rules_are_found_by_code_and_name(name: str) -> None:
    result = run(*name.split())
    assert result.exit_code == 0
    assert result.stdout == "PG902 second-rule\nWhat it checks\n\nTwo.\n"


@pytest.mark.usefixtures("two_rules")
def test_rules_are_listed_and_nearest() -> None:
    assert "PG901: first-rule" in run().stdout
    result = run("PG903")
    assert result.exit_code == 2
    assert "Nearest valid choice: PG90" in result.stderr


def test_all_rules_that_exist_are_explained() -> None:
    found = all_rules()
    assert found
    for rule in found:
        assert explain(rule.code)
        assert explain(rule.name)
        for heading in ("What it checks", "Why", "Example", "Use instead"):
            assert heading in run(rule.code).stdout, (rule.code, heading)


# --- The command ---------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def test_bare_explain_lists_everything() -> None:
    result = run()
    assert result.exit_code == 0
    for title in GROUPS.values():
        assert title in result.stdout
    for term in terms():
        assert f"  {term.name}: " in result.stdout
    for entry in classes():
        assert f"  {entry.name}: " in result.stdout


def test_a_term_has_text_example_and_links() -> None:
    result = run("setmaxnreg")
    assert result.exit_code == 0
    for part in ("register split", "Multiples of 8 from 24 to 256", "Example", "See also"):
        assert part in result.stdout
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


def test_a_class_has_arguments_cautions_and_an_example() -> None:
    result = run("PipelineTmaAsync")
    assert result.exit_code == 0
    for part in ("Arguments of", "tx_count:", "Take care", "Example", ".make_participants()"):
        assert part in result.stdout


@pytest.mark.parametrize("row", rows("cute"), ids=lambda row: row.cls)
def test_a_class_shows_its_states_counts_and_where_it_is_emitted(row: Row) -> None:
    text = run(row.cls).stdout
    assert "Arrive counts\n  full barrier: " in text
    assert text.count(" until ") >= len(protocols()[row.cls].states) >= 2
    assert "Take care" in text
    for path in emitted_examples(row):
        assert f"  {path}\n" in text
        assert row.cls in (ROOT / path).read_text("utf-8")


def test_a_stage_goes_round() -> None:
    """A commit completes the full barrier and a release the empty one; nothing else does."""
    for protocol in protocols().values():
        if len(protocol.states) == 4:
            assert [state.full for state in protocol.states] == ["open", "open", *["complete"] * 2]
            assert [state.empty for state in protocol.states] == ["complete", *["open"] * 3]


def test_a_class_of_several_pairs_shows_each() -> None:
    text = run("emit_pipeline").stdout
    assert "tma -> wgmma (sm_90a, pallas)" in text
    assert "tma -> thread (sm_90a, sm_100a, pallas)" in text


def test_names_of_several_words_need_no_quotes() -> None:
    assert run("arrive", "count").stdout == run("arrive count").stdout


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("tx_cout", "tx_count"), ("PipelineTmaSync", "PipelineTmaAsync")]
)
def test_an_unknown_name_gives_the_nearest(wrong: str, nearest: str) -> None:
    result = run(wrong)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert wrong in result.stderr
    assert f"Nearest valid choice: {nearest}." in result.stderr
    with pytest.raises(InputError):
        explain(wrong)


def test_json() -> None:
    [term] = json.loads(run("phase", "--format", "json").stdout)
    assert term["kind"] == "term"
    assert term["example"]
    [entry] = json.loads(run("PipelineTmaUmma", "--format", "json").stdout)
    assert entry["kind"] == "class"
    assert entry["pairs"][0]["pair"] == "tma -> umma"
    listed = json.loads(run("--format", "json").stdout)
    assert {"kind", "name", "short"} == set(listed[0])
    assert len(listed) >= len(terms()) + len(classes())
