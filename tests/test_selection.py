# SPDX-License-Identifier: Apache-2.0
"""The selection table against itself, against the installed DSLs, and through the CLI."""

import ast
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from pipegen import rendering, selection, selection_docs, selection_table
from pipegen.cli import main
from pipegen.errors import InputError
from pipegen.selection import (
    WORDS,
    Refusal,
    Request,
    Row,
    Selection,
    known_words,
    row_status,
    rows,
    select,
    select_all,
    table,
)
from pipegen.vocabulary import ARCHS, BACKENDS, CONSUMERS, PRODUCERS, STYLES

REFERENCES = Path(__file__).parent / "references"


# --- The table of selection.md, typed in by hand -------------------------------------------------

# (producer, consumer, arch, backend) -> class. What is not here must be refused.
EXPECTED: dict[tuple[str, str, str, str], str] = {}
for _arch in ARCHS:
    EXPECTED |= {
        ("thread", "thread", _arch, "cute"): "PipelineAsync",
        ("cp_async", "thread", _arch, "cute"): "PipelineCpAsync",
        ("tma", "thread", _arch, "cute"): "PipelineTmaAsync",
        ("thread", "tma_store", _arch, "cute"): "PipelineTmaStore",
        ("thread", "thread", _arch, "cute-ts"): "AsyncAsync",
        ("cp_async", "thread", _arch, "cute-ts"): "AsyncAsync",
        ("tma", "thread", _arch, "cute-ts"): "TmaAsync",
        ("thread", "tma_store", _arch, "cute-ts"): "AsyncAsync",
        ("tma", "thread", _arch, "pallas"): "plgpu.emit_pipeline_warp_specialized",
        ("thread", "tma_store", _arch, "pallas"): "plgpu.copy_smem_to_gmem",
    }
EXPECTED |= {
    # wgmma is accepted on sm_90a and means thread.
    ("thread", "wgmma", "sm_90a", "cute"): "PipelineAsync",
    ("cp_async", "wgmma", "sm_90a", "cute"): "PipelineCpAsync",
    ("tma", "wgmma", "sm_90a", "cute"): "PipelineTmaAsync",
    ("thread", "wgmma", "sm_90a", "cute-ts"): "AsyncAsync",
    ("cp_async", "wgmma", "sm_90a", "cute-ts"): "AsyncAsync",
    ("tma", "wgmma", "sm_90a", "cute-ts"): "TmaAsync",
    ("tma", "wgmma", "sm_90a", "pallas"): "plgpu.emit_pipeline_warp_specialized",
    ("tma", "umma", "sm_100a", "cute"): "PipelineTmaUmma",
    ("thread", "umma", "sm_100a", "cute"): "PipelineAsyncUmma",
    ("umma", "thread", "sm_100a", "cute"): "PipelineUmmaAsync",
    ("clc", "thread", "sm_100a", "cute"): "PipelineClcFetchAsync",
    ("tma", "umma+thread", "sm_100a", "cute"): "PipelineTmaMultiConsumersAsync",
    ("tma", "umma", "sm_100a", "cute-ts"): "TmaUmma",
    ("thread", "umma", "sm_100a", "cute-ts"): "AsyncUmma",
    ("cp_async", "umma", "sm_100a", "cute-ts"): "AsyncUmma",
    ("umma", "thread", "sm_100a", "cute-ts"): "UmmaAsync",
    ("umma", "umma", "sm_100a", "cute-ts"): "UmmaUmma",
    ("clc", "thread", "sm_100a", "cute-ts"): "ClcFetchAsync",
    ("tma", "umma", "sm_100a", "pallas"): "plgpu.kernel",
    ("umma", "thread", "sm_100a", "pallas"): "plgpu.kernel",
    ("clc", "thread", "sm_100a", "pallas"): "plgpu.dynamic_scheduling_loop",
}
PRODUCT = list(itertools.product(WORDS, WORDS, ARCHS, BACKENDS))


@pytest.mark.parametrize(("producer", "consumer", "arch", "backend"), PRODUCT)
def test_every_pair_gives_the_expected_class_or_a_reason(
    producer: str, consumer: str, arch: str, backend: str
) -> None:
    found = select(producer, consumer, arch, backend)
    expected = EXPECTED.get((producer, consumer, arch, backend))
    if expected:
        assert isinstance(found, Selection)
        assert (found.cls, found.arch, found.backend) == (expected, arch, backend)
        assert (found.producer, found.consumer) == (producer, consumer)
    else:
        assert isinstance(found, Refusal)
        assert len(found.reason) > 20
        assert found.nearest


words = st.sampled_from(WORDS)


@given(
    words,
    words,
    st.none() | st.sampled_from(ARCHS),
    st.none() | st.sampled_from(BACKENDS),
    st.none() | st.sampled_from(sum(STYLES.values(), ())),
    st.sampled_from([1, 2]),
)
def test_whatever_is_left_out_there_is_a_row_or_a_reason(
    producer: str,
    consumer: str,
    arch: str | None,
    backend: str | None,
    style: str | None,
    cta_group: int,
) -> None:
    if backend and style and style not in STYLES[backend]:
        with pytest.raises(InputError, match=style):
            select(producer, consumer, arch, backend, style, cta_group)
        return
    found = select_all(producer, consumer, arch, backend, style, cta_group)
    if isinstance(found, Refusal):
        assert found.reason
        for near in found.nearest:  # what is suggested must itself be accepted
            again = select(
                near.producer, near.consumer, near.arch, near.backend, near.style, near.cta_group
            )
            assert isinstance(again, Selection)
            assert again.cls == near.cls
    else:
        assert found[0] == select(producer, consumer, arch, backend, style, cta_group)
        assert len(set(found)) == len(found)
        for one in found:
            assert arch in (None, one.arch)
            assert backend in (None, one.backend)
            assert style in (None, one.style)
            assert one.style in one.row.styles


def test_every_row_of_selection_md_is_there() -> None:
    by_backend = {backend: [row.cls for row in rows(backend)] for backend in BACKENDS}
    assert len(by_backend["cute"]) == 10
    assert set(by_backend["cute-ts"]) == {
        *("AsyncAsync", "TmaAsync", "TmaUmma", "AsyncUmma", "UmmaAsync", "UmmaUmma"),
        "ClcFetchAsync",
    }
    assert {"plgpu.emit_pipeline", "plgpu.kernel", "pl.pallas_call"} <= set(by_backend["pallas"])


# --- The words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_words", "expected"),
    [
        (("TMA", "tcgen05", "b200", "cute"), "PipelineTmaUmma"),
        (("cp.async", "wgmma", "hopper", "cute"), "PipelineCpAsync"),
        (("tma", "thread+tcgen05", "sm_100", "CuTe"), "PipelineTmaMultiConsumersAsync"),
        (("tcgen05", "thread", "blackwell", "cute_ts"), "UmmaAsync"),
        (("thread", "tma-store", "h200", "cute"), "PipelineTmaStore"),
    ],
)
def test_aliases(given_words: tuple[str, str, str, str], expected: str) -> None:
    found = select(*given_words)
    assert isinstance(found, Selection)
    assert found.cls == expected


def test_all_unknown_words_are_reported_at_once_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        select("tmaa", "wgma", "sm_91a", "cutee")
    problems = {problem.key: problem for problem in caught.value.problems}
    assert {key: problem.nearest for key, problem in problems.items()} == {
        "producer": "tma",
        "consumer": "wgmma",
        "arch": "sm_90a",
        "backend": "cute",
    }
    assert all(problem.allowed for problem in problems.values())
    assert "emit-pipeline" not in problems["backend"].allowed


def test_a_style_of_another_backend_is_an_error_that_names_the_backends_own() -> None:
    with pytest.raises(InputError) as caught:
        known_words(Request("tma", "wgmma", "sm_90a", "cute", "emit-pipeline"))
    assert caught.value.problems[0].allowed == "participants, explicit-state"


# --- Styles, CTA groups, nearest pairs -----------------------------------------------------------


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("warp-specialized", "plgpu.emit_pipeline_warp_specialized"),
        ("emit-pipeline", "plgpu.emit_pipeline"),
        ("pallas-call", "pl.pallas_call"),
    ],
)
def test_pallas_styles_select_the_construct(style: str, expected: str) -> None:
    found = select("tma", "wgmma", "sm_90a", "pallas", style)
    assert isinstance(found, Selection)
    assert found.cls == expected


def test_a_pair_that_exists_in_another_style_says_which() -> None:
    found = select("tma", "umma", "sm_100a", "pallas", "pallas-call")
    assert isinstance(found, Refusal)
    assert "warp-specialized" in found.reason


def test_no_style_given_lists_every_class() -> None:
    found = select_all("tma", "wgmma", "sm_90a", "pallas")
    assert not isinstance(found, Refusal)
    assert [one.style for one in found] == list(STYLES["pallas"])


@pytest.mark.parametrize(
    ("pair", "arch", "reason"),
    [
        (("tma", "wgmma"), "sm_90a", "CTA pairs belong to tcgen05"),
        (("cp_async", "thread"), "sm_100a", "cannot feed a pair"),
    ],
)
def test_cta_pairs_are_refused(pair: tuple[str, str], arch: str, reason: str) -> None:
    assert isinstance(select(*pair, arch, "cute"), Selection)
    found = select(*pair, arch, "cute", cta_group=2)
    assert isinstance(found, Refusal)
    assert reason in found.reason
    # The same pair without a CTA pair is among the nearest.
    assert any((n.producer, n.consumer, n.cta_group) == (*pair, 1) for n in found.nearest)


def test_cta_pairs_are_accepted_where_tcgen05_is() -> None:
    found = select("tma", "umma", "sm_100a", "cute", cta_group=2)
    assert isinstance(found, Selection)
    assert found.cta_group == 2


def test_nearest_varies_both_ends_and_stays_close() -> None:
    found = select("tma", "umma", "sm_90a", "cute")
    assert isinstance(found, Refusal)
    first = found.nearest[0]
    assert (first.producer, first.consumer, first.arch, first.backend) == (
        *("tma", "wgmma"),
        *("sm_90a", "cute"),
    )
    assert any(n.producer == "tma" and n.consumer != "umma" for n in found.nearest)
    assert any(n.producer != "tma" and n.consumer == "umma" for n in found.nearest)
    assert any(
        (n.producer, n.consumer, n.arch) == ("tma", "umma", "sm_100a") for n in found.nearest
    )


def test_swapped_ends_are_found() -> None:
    found = select("tma_store", "thread", "sm_90a", "cute")
    assert isinstance(found, Refusal)
    assert (found.nearest[0].producer, found.nearest[0].consumer) == ("thread", "tma_store")


def test_reasons_that_differ_by_place_are_all_told() -> None:
    found = select("clc", "wgmma")
    assert isinstance(found, Refusal)
    assert "sm_90a: cluster launch control" in found.reason
    assert "sm_100a: wgmma exists on sm_90a only" in found.reason


# --- The file itself -----------------------------------------------------------------------------


def test_rows_use_only_words_of_the_vocabulary() -> None:
    for row in rows():
        assert row.backend in BACKENDS
        assert set(row.archs) <= set(ARCHS)
        assert set(row.styles) <= set(STYLES[row.backend])
        if row.producer:
            assert row.producer in PRODUCERS
            assert {row.consumer, *row.also_consumer} <= set(CONSUMERS)
        else:
            assert row.pair == "ordered groups"
        assert len({argument.name for argument in row.arguments}) == len(row.arguments)


def test_no_two_rows_answer_the_same_question() -> None:
    seen = set()
    for row in rows():
        for key in itertools.product(row.archs, row.styles, (row.consumer, *row.also_consumer)):
            question = (row.backend, row.pair.split(" -> ")[0], *key)
            assert question not in seen, question
            seen.add(question)


def test_every_caution_is_used_and_every_reason_is_reached() -> None:
    used = {key for row in rows() for key in row.caution_keys}
    assert used == set(selection_table.cautions())
    reasons = {
        selection._one_reason(Request(p, c, a, b, None, g), a, b)
        for (p, c, a, b), g in itertools.product(PRODUCT, (1, 2))
        if isinstance(select(p, c, a, b, None, g), Refusal)
    }
    assert {entry.reason for entry in selection_table.impossible()} == reasons


def test_a_pair_without_a_reason_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "impossible", lambda: ())
    with pytest.raises(AssertionError, match="no reason"):
        select("tma", "tma", "sm_90a", "cute")


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.backend} {row.pair} {row.cls}")
def test_examples_parse_and_pass_what_must_be_passed(row: Row) -> None:
    tree = ast.parse(row.example)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    passed = {keyword.arg for call in calls for keyword in call.keywords}
    assert len(row.example.splitlines()) <= 30
    if row.backend != "pallas":  # there some arguments are positional, or the kernel's business
        required = {argument.name for argument in row.arguments if argument.required}
        assert required <= passed
        names = {argument.name for argument in row.arguments}
        [create] = [call for call in calls if _dotted(call.func).endswith(row.call)]
        assert {keyword.arg for keyword in create.keywords} <= names


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# --- Status follows the templates that exist -----------------------------------------------------


def test_status_follows_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_table, "template_folder", lambda: tmp_path)
    mainloop = select("tma", "wgmma", "sm_90a", "cute")
    epilogue = select("thread", "tma_store", "sm_90a", "cute")
    blackwell = select("thread", "tma_store", "sm_100a", "cute")
    assert isinstance(mainloop, Selection)
    assert isinstance(epilogue, Selection)
    assert isinstance(blackwell, Selection)
    assert mainloop.status == epilogue.status == "planned"
    assert "no template emits it yet" in mainloop.status_text

    (tmp_path / "cute").mkdir()
    (tmp_path / "cute/gemm_sm90.py.j2").touch()
    assert mainloop.status == epilogue.status == "ready"
    assert "gemm_sm90.py.j2" in mainloop.status_text
    assert blackwell.status == "planned"
    assert row_status(epilogue.row, "sm_90a") == "ready"
    assert row_status(epilogue.row, "sm_100a") == "planned"
    assert "ready on sm_90a" in selection_docs.table_markdown("cute")
    other = select("tma", "wgmma", "sm_90a", "pallas", "emit-pipeline")
    assert isinstance(other, Selection)
    assert other.status == "planned"


def test_templates_name_valid_pairs() -> None:
    for template in selection_table.templates():
        for style, arch in itertools.product(template.styles, template.archs):
            for _, producer, consumer in template.pipelines:
                found = select(producer, consumer, arch, template.backend, style)
                assert isinstance(found, Selection), (template.file, producer, consumer)


def test_templates_that_exist_contain_the_classes_they_are_listed_for() -> None:
    for template in selection_table.templates():
        if not template.exists:
            continue
        text = "\n".join(rendering._sources(template.file))  # with the parts that it includes
        assert template.turns in text
        for style, arch in itertools.product(template.styles, template.archs):
            for name, producer, consumer in template.pipelines:
                found = select(producer, consumer, arch, template.backend, style)
                assert isinstance(found, Selection)
                known = "plgpu.Barrier" if name in template.own_barriers else found.cls
                assert known.split(".")[-1] in text, (template.file, name)


# --- The installed DSLs --------------------------------------------------------------------------


@cache
def ask(script: str, request: str, *environment: str) -> subprocess.CompletedProcess[str]:
    """Run a reference script once for each question, in a process of its own."""
    return subprocess.run(
        [sys.executable, str(REFERENCES / script)],
        input=request,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **dict(pair.split("=") for pair in environment)},
        check=False,
    )


def run_reference(script: str, extra: str, request: object, *environment: str) -> dict[str, Any]:
    """What an installed DSL answers; skip, aloud, if it is not installed."""
    done = ask(script, json.dumps(request), *environment)
    if done.returncode == 77:
        pytest.skip(f"{done.stdout.strip()}; pip install 'pipegen[{extra}]' enables this check")
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# Faults of the installed DSL that the table warns of, and a part of what it says then. One that
# compiles has been repaired: the caution must then name the versions it is still true for.
KNOWN_FAULTS = {
    "umma-commit": (
        "sm_100a",
        "unexpected keyword argum",
        """
producer, consumer = pipeline.PipelineTmaUmma.create(
    num_stages=2,
    producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
    consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
    tx_count=1024,
    barrier_storage=barriers,
).make_participants()
producer.acquire_and_advance().commit()
""",
    ),
    "store-no-barrier": (
        "sm_90a",
        "has no attribute 'cg'",
        """
store = pipeline.PipelineTmaStore.create(
    num_stages=2, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 128)
)
store.make_participants()
""",
    ),
}


def cute_reference(arch: str) -> dict[str, Any]:
    """Everything the CuTe DSL is asked, once for each architecture."""
    both = [*rows("cute", arch), *rows("cute-ts", arch)]
    request = {
        "calls": sorted({(row.module, row.call) for row in both}),
        "snippets": {row.cls: row.example for row in rows("cute", arch)}
        | {key: body for key, (place, _, body) in KNOWN_FAULTS.items() if place == arch},
        "configs": {f"{row.cls} {row.pair}": row.example for row in rows("cute-ts", arch)},
    }
    return run_reference("cute_reference.py", "cute", request, f"CUTE_DSL_ARCH={arch}")


# In every signature, and no business of a kernel: MLIR locations, and a name for profilers.
UNLISTED = {"loc", "ip", "name"}


def signature_faults(row: Row, signature: dict[str, bool], complete: bool) -> list[str]:
    """How a row's arguments differ from a real signature (name -> required)."""
    listed = {argument.name: argument.required for argument in row.arguments}
    faults = [f"{name} is not an argument" for name in listed if name not in signature]
    faults += [
        f"{name} is required and not listed as such"
        for name, required in signature.items()
        if required and not listed.get(name)
    ]
    if complete:
        faults += [f"{n} is not listed" for n in signature if n not in listed and n not in UNLISTED]
    return faults


@pytest.mark.parametrize("arch", ARCHS)
def test_cute_signatures(arch: str) -> None:
    signatures = cute_reference(arch)["signatures"]
    for row in (*rows("cute", arch), *rows("cute-ts", arch)):
        signature = signatures[f"{row.module}:{row.call}"]
        assert signature_faults(row, signature, complete=True) == [], row.cls


def test_signature_faults_are_found() -> None:
    [row] = [row for row in rows("cute") if row.cls == "PipelineCpAsync"]
    good = {argument.name: argument.required for argument in row.arguments}
    assert signature_faults(row, good | {"loc": False}, complete=True) == []
    without = {name: needed for name, needed in good.items() if name != "producer_mask"}
    assert signature_faults(row, without, complete=True) == ["producer_mask is not an argument"]
    assert signature_faults(row, good | {"new": False}, complete=True) == ["new is not listed"]
    assert signature_faults(row, good | {"new": True}, complete=False) == [
        "new is required and not listed as such"
    ]
    lenient = replace(row, arguments=tuple(replace(a, required=False) for a in row.arguments))
    assert len(signature_faults(lenient, good, complete=True)) == 4


@pytest.mark.parametrize("arch", ARCHS)
def test_cute_examples_compile(arch: str) -> None:
    compiled = cute_reference(arch)["compiled"]
    assert {row.cls: compiled[row.cls] for row in rows("cute", arch)} == dict.fromkeys(
        (row.cls for row in rows("cute", arch)), ""
    )


@pytest.mark.parametrize("caution", KNOWN_FAULTS)
def test_known_faults_of_the_dsl_are_still_there(caution: str) -> None:
    arch, message, _ = KNOWN_FAULTS[caution]
    assert message in cute_reference(arch)["compiled"][caution], f"repaired? revise {caution}"


def test_no_class_of_the_dsl_is_missing() -> None:
    answer = cute_reference("sm_100a")
    assert set(answer["classes"]) == {row.cls for row in rows("cute")}
    assert set(answer["all_types"]) == {row.cls for row in rows("cute-ts")}


@pytest.mark.parametrize("arch", ARCHS)
def test_task_scheduling_examples_make_the_type(arch: str) -> None:
    types = cute_reference(arch)["types"]
    assert types == {f"{row.cls} {row.pair}": row.cls for row in rows("cute-ts", arch)}


def pallas_reference() -> dict[str, Any]:
    """Everything jax is asked."""
    request = [
        {
            "cls": row.cls,
            "consumer": row.consumer,
            "module": row.module,
            "call": row.call,
            "example": row.example,
            "dotted": [argument.name for argument in row.arguments if "." in argument.name],
        }
        for row in rows("pallas")
    ]
    return run_reference("pallas_reference.py", "pallas", request, "JAX_PLATFORMS=cpu")


# jax 0.10.2 has no `manual_produced_barriers` yet, and the rest is for other purposes: so only
# what is listed is compared, and what is required.
@pytest.mark.parametrize("row", rows("pallas"), ids=lambda row: f"{row.cls} {row.pair}")
def test_pallas_signatures(row: Row) -> None:
    signatures = pallas_reference()["signatures"]
    own = [argument for argument in row.arguments if "." not in argument.name]
    signature = signatures[f"{row.module}:{row.call}"]
    assert signature_faults(replace(row, arguments=tuple(own)), signature, complete=False) == []
    for argument in row.arguments:
        if "." in argument.name:
            owner, name = argument.name.split(".")
            assert name in signatures[f"jax.experimental.pallas.mosaic_gpu:{owner}"], argument.name


def test_pallas_examples_lower() -> None:
    answer = pallas_reference()
    lowered = dict(answer["lowered"])
    if tuple(map(int, answer["version"].split(".")[:2])) > (0, 10):
        # The caution pl-call-jax: from 0.11 on it has no lowering through Mosaic GPU.
        assert lowered.pop("pl.pallas_call wgmma") == "AssertionError: "
    assert lowered == dict.fromkeys(lowered, "")


# --- The commands --------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_select_json_is_one_object_when_the_place_is_given() -> None:
    place = ("--arch", "sm_90a", "--backend", "cute", "--format", "json")
    result = run("select", "tma", "wgmma", *place)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["class"] == "PipelineTmaAsync"
    assert (answer["backend"], answer["arch"]) == ("cute", "sm_90a")
    assert answer["status"] in ("ready", "planned")
    assert len(answer["reason"]) > 40
    assert {"name", "required", "rule"} == set(answer["arguments"][0])
    assert answer["alternatives"] == []


def test_select_json_of_a_pair_with_several_constructs_names_the_alternatives() -> None:
    place = ("--arch", "sm_90a", "--backend", "pallas", "--format", "json")
    answer = json.loads(run("select", "tma", "wgmma", *place).stdout)
    assert answer["class"] == "plgpu.emit_pipeline_warp_specialized"
    assert [one["class"] for one in answer["alternatives"]] == [
        "plgpu.emit_pipeline",
        "pl.pallas_call",
    ]
    styled = run("select", "tma", "wgmma", *place, "--style", "emit-pipeline")
    assert json.loads(styled.stdout)["class"] == "plgpu.emit_pipeline"


def test_select_without_a_place_shows_each_that_applies() -> None:
    answer = json.loads(run("select", "thread", "tma_store", "--format", "json").stdout)
    assert [(one["arch"], one["backend"]) for one in answer] == [
        ("sm_90a", "cute"),
        ("sm_90a", "cute-ts"),
        ("sm_90a", "pallas"),
        ("sm_100a", "cute"),
        ("sm_100a", "cute-ts"),
        ("sm_100a", "pallas"),
    ]
    text = run("select", "thread", "tma_store").stdout
    assert text.count("PipelineTmaStore\n") == 2
    assert "As on sm_90a." in text


def test_select_text_tells_class_why_arguments_use_and_cautions() -> None:
    result = run("select", "tma", "wgmma", "--arch", "hopper", "--backend", "cute")
    assert result.exit_code == 0
    for part in ("PipelineTmaAsync", "Why", "What must be passed", "tx_count:", "Used for"):
        assert part in result.stdout
    assert "Take care" in result.stdout
    assert "hangs at the second lap" in " ".join(result.stdout.split())


def test_select_impossible_pair() -> None:
    pair = ("select", "umma", "thread", "--arch", "sm_90a", "--backend", "cute")
    text = run(*pair)
    assert text.exit_code == 1
    assert "sm_90a has no tcgen05" in text.stdout
    assert "Nearest valid pairs" in text.stdout
    result = run(*pair, "--format", "json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["class"] is None
    assert answer["status"] == "impossible"
    assert (answer["arch"], answer["backend"]) == ("sm_90a", "cute")
    assert len(answer["nearest"]) == 5


def test_select_unknown_word() -> None:
    result = run("select", "tmaa", "wgmma", "--arch", "sm_90a")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "tmaa" in result.stderr
    assert "Allowed: thread, cp_async, tma, umma, clc" in result.stderr
    assert "Nearest valid choice: tma." in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("option", [("--arch", "sm_91a"), ("--backend", "cutee")])
def test_table_unknown_word(option: tuple[str, str]) -> None:
    result = run("table", *option)
    assert result.exit_code == 2
    assert "Nearest valid choice" in result.stderr


def test_table_json_has_the_shape_of_select() -> None:
    answer = json.loads(run("table", "--format", "json").stdout)
    assert len(answer) == sum(len(row.archs) for row in rows())
    keys = set(answer[0])
    assert {"class", "backend", "arch", "reason", "status", "producer", "consumer"} <= keys
    assert all(set(one) == keys for one in answer)
    [order] = {one["pair"] for one in answer if one["class"] == "PipelineOrder"}
    assert order == "ordered groups"


def test_table_is_filtered() -> None:
    result = run("table", "--format", "json", "--backend", "pallas", "--arch", "hopper")
    answer = json.loads(result.stdout)
    assert {(one["backend"], one["arch"]) for one in answer} == {("pallas", "sm_90a")}
    assert len(answer) == len(table("pallas", "sm_90a"))
    text = run("table", "--backend", "cute", "--arch", "sm_90a").stdout
    assert "PipelineTmaAsync" in text
    assert "PipelineTmaUmma" not in text
    assert "plgpu" not in text


def test_table_text_and_markdown_name_every_class() -> None:
    text, markdown = run("table").stdout, run("table", "--format", "markdown").stdout
    for row in rows():
        assert row.cls in text
        assert f"| `{row.cls}` |" in markdown
    for line in markdown.splitlines():
        assert not line.startswith("|") or line.count("|") == 7


HEAVY = ("rich", "pydantic", "black", "jinja2", "tomlkit", "jax", "cutlass", "numpy")


def heavy_imports(code: str) -> list[str]:
    """Slow packages that a piece of code imports, in a process of its own."""
    code += f"\nimport sys; print(sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = ast.literal_eval(done.stderr.strip())
    return found


@pytest.mark.parametrize(
    "arguments", [("--help",), ("table",), ("select", "tma", "wgmma"), ("explain", "stage")]
)
def test_quick_commands_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    call = f"main({list(arguments)!r}, standalone_mode=False)"
    assert heavy_imports(f"from pipegen.cli import main\n{call}") == []


def test_a_heavy_import_would_be_noticed() -> None:
    assert heavy_imports("import rich, jinja2") == ["jinja2", "rich"]


# --- The README's table --------------------------------------------------------------------------


def test_markers_keep_what_is_around_them() -> None:
    start, end = selection_docs.START, selection_docs.END
    before = f"# Title\n\n{start}\nold\n{end}\n\nafter\n"
    after = selection_docs.update_between_markers(before, "| new |\n")
    assert after == f"# Title\n\n{start}\n| new |\n{end}\n\nafter\n"
    assert selection_docs.update_between_markers(after, "| new |\n") == after
    with pytest.raises(InputError, match="markers are missing"):
        selection_docs.update_between_markers("no markers", "| new |")


def test_drift_is_found_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme, reference = tmp_path / "README.md", tmp_path / "docs/selection.md"
    readme.write_text(f"{selection_docs.START}\n{selection_docs.END}\n", "utf-8")
    both = [str(readme), str(reference)]
    assert selection_docs.find_drift(readme, reference) == both
    assert selection_docs.main(["--check", *both]) == 1
    assert str(reference) in capsys.readouterr().out
    assert selection_docs.main(both) == 0
    assert selection_docs.find_drift(readme, reference) == []
    assert selection_docs.main(["--check", *both]) == 0
    reference.write_text(reference.read_text("utf-8").replace("PipelineTmaAsync", "X"), "utf-8")
    assert selection_docs.find_drift(readme, reference) == [str(reference)]
    assert selection_docs.main(["one"]) == 2


def test_docs_selection_md_is_up_to_date() -> None:
    page = Path(__file__).parent.parent / "docs/selection.md"
    assert (
        page.read_text("utf-8") == selection_docs.reference_markdown()
    ), "run `make docs`, or python -m pipegen.selection_docs README.md docs/selection.md"
