# SPDX-License-Identifier: Apache-2.0
"""`pipegen emulate`, `pipegen verify` and `pipegen.emulator()`: verdicts, findings, wrong input."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import load_description
from pipegen.emulator.cases import default_case, loop_counts, verify_cases
from pipegen.emulator.finding_docs import WRONG_RESULT, code_of, finding_docs
from pipegen.emulator.findings.finding import KINDS
from pipegen.emulator.verdict import Fault, Trial, distinct_faults
from pipegen.emulator.verifying import Options, Verified
from pipegen.explanations import explain
from pipegen.planning import plan
from pipegen.rules import all_rules

ROOT = Path(__file__).parent.parent
USER = ROOT / "tests" / "emulated_add.py"
STREAM = ROOT / "generated" / "cute" / "stream_sm90_tma.py"

needs_cute = pytest.mark.skipif(
    not find_dsl("cute").versions, reason="nvidia-cutlass-dsl is not installed"
)


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the DSL reads its target when it is imported."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CUTE_")}
    return subprocess.run(
        [sys.executable, "-m", "pipegen", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
    )


# ---- Pure parts ----------------------------------------------------------------------------------


def test_every_kind_of_finding_has_a_page():
    """The machine cannot find what `pipegen explain` does not know, and no page is left over."""
    assert {each.name for each in finding_docs()} == {*KINDS, WRONG_RESULT}
    for each in finding_docs():
        (entry,) = explain(each.code)
        for heading in ("What it checks", "Why", "Example", "Use instead"):
            assert f"\n{heading}\n    " in entry.text


def test_no_code_is_used_twice():
    """A rule of descriptions and a finding of the emulator never share a code."""
    codes = [each.code for each in (*all_rules(), *finding_docs())]
    assert len(codes) == len(set(codes))
    with pytest.raises(KeyError):
        code_of("no such kind")


@pytest.mark.parametrize(
    ("stages", "counts"), [(1, (1, 2, 3)), (2, (1, 2, 3, 5)), (4, (1, 3, 4, 5, 9))]
)
def test_loops_end_around_the_ring(stages, counts):
    """1, S - 1, S, S + 1 and 2 S + 1 tiles, each once."""
    assert loop_counts(stages) == counts


def _plan(name):
    return plan(load_description(ROOT / "generated" / "cute" / f"{name}.toml"))


@pytest.mark.parametrize(
    "name", ["gemm_sm90_c2x1", "gemm_sm100_pair_c4x2", "mixed_gemm_sm90_16x64", "gemm_sm90_c2x2"]
)
def test_each_cta_of_a_gemm_computes_two_tiles(name):
    """One cluster is all that runs at once, and there are two output tiles for each CTA of it."""
    made = _plan(name)
    tile, (rows, columns) = made.description.tile, made.description.cluster.shape
    stages = made.pipeline("mainloop").stages
    cases = verify_cases(made)
    for case in cases:
        assert case.sms == rows * columns
        assert -(-case.sizes["m"] // (rows * tile.m)) == 2
        assert -(-case.sizes["n"] // (columns * tile.n)) == 1
    assert [-(-case.sizes["k"] // tile.k) for case in cases] == list(loop_counts(stages))
    assert default_case(made).label == f"{stages + 1} tiles"


def test_a_stream_walks_over_its_ring():
    """Tiles for each resident CTA, along M: two CTAs an SM for this module."""
    made = _plan("stream_sm90_tma")
    assert made.number("blocks_per_sm").value == 2
    tile, stages = made.description.tile, made.pipeline("mainloop").stages
    counts = [-(-case.sizes["m"] // tile.m) / 2 for case in verify_cases(made)]
    assert counts == list(loop_counts(stages))


@pytest.mark.parametrize("name", ["custom_sm90_multiply", "custom_sm90_multiply_twice"])
def test_a_product_walks_over_its_rings(name):
    """The ring of K wraps; those of a second product, two stages, are filled a third time."""
    made = _plan(name)
    tile = made.description.tile
    stages = max(pipeline.stages for pipeline in made.pipelines)
    cases = verify_cases(made)
    assert [-(-case.sizes["k"] // tile.k) for case in cases] == list(loop_counts(stages))
    assert {-(-case.sizes["m"] // tile.m) for case in cases} == {2}
    twice = tile.p is not None
    assert {-(-case.sizes["n"] // tile.n) for case in cases} == {3 if twice else 1}
    assert all(("p" in case.sizes) == twice for case in cases)


def _trial(*faults: Fault, passed: bool | None = True, schedule: int = 0) -> Trial:
    return Trial("x", {"m": 1}, 1, schedule, "late", 0, passed, "", faults, 1, 10, 0.1)


def test_a_fault_is_told_once():
    """Schedules repeat what is wrong; another line of the kernel is another fault."""
    first = Fault("PG320", "race", "one", ("CTA 0 warp 1 (PTX line 7)", "there"))
    again = Fault("PG320", "race", "two", ("CTA 0 warp 1 (PTX line 7)", "elsewhere"))
    other = Fault("PG320", "race", "three", ("CTA 0 warp 1 (PTX line 8)",))
    trials = [_trial(first), _trial(again, other, schedule=1)]
    assert [fault.message for fault, _ in distinct_faults(trials)] == ["one", "three"]
    assert not any(trial.ok for trial in trials)
    assert _trial().ok
    assert _trial(passed=None).ok
    assert not _trial(passed=False).ok


def test_a_verdict_survives_the_cache():
    """What is kept as JSON comes back as it was, faults and all."""
    trial = _trial(Fault("PG310", "deadlock", "it stands", ("here",)))
    verdict = Verified("finding", "", (trial,), 1.5)
    back = Verified.from_dict(json.loads(json.dumps(verdict.as_dict())))
    assert back == verdict
    assert back.failed
    (sentence,) = back.sentences()
    assert sentence == ("PG310", "deadlock: it stands [M=1, schedule 0 (late), 1 SMs]")


def test_the_first_schedule_computes():
    """The others need not: what they vary is the order, not the data."""
    assert Options().data_schedules == 1
    assert Options().schedules == 3


# ---- A user's own file ---------------------------------------------------------------------------


@needs_cute
def test_a_users_test_can_hold_the_emulator():
    """The context manager: capture, execution, findings, and no launch after its end."""
    done = subprocess.run(
        [sys.executable, USER],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("CUTE_")}
        | {"PYTHONPATH": str(ROOT), "CUTE_DSL_ARCH": "sm_90a"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all of it held" in done.stdout


@needs_cute
@pytest.mark.skipif(not find_spec("tvm_ffi"), reason="apache-tvm-ffi is not installed")
def test_a_kernel_is_called_through_tvm_ffi():
    """Numpy arrays pass as the GPU's, findings come through, and nothing stays behind."""
    done = subprocess.run(
        [sys.executable, USER.with_name("emulated_tvm_ffi.py")],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("CUTE_")}
        | {"PYTHONPATH": str(ROOT), "CUTE_DSL_ARCH": "sm_90a"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "all of it held" in done.stdout


@needs_cute
@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [
        ("check_add", 0, "PASS check_add: schedule 0 (late), 1 launch"),
        ("wrong", 1, "PG350 wrong-result: the function returned False"),
        ("beyond", 1, "after the end of out"),
        ("nothing", 2, "nothing was launched"),
        ("wants", 2, "wants takes size"),
        ("no_such", 2, "has no function 'no_such'"),
    ],
)
def test_an_entry_of_a_users_file(entry, code, said):
    """Verdicts and wrong input of `--entry`."""
    done = run("emulate", USER, "--entry", entry, "--arch", "sm_90a")
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr


# ---- Emitted modules -----------------------------------------------------------------------------


@needs_cute
def test_an_emitted_module_is_right_under_schedules():
    """JSON of the trials: each computes, and all pass."""
    done = run("emulate", STREAM, "--shape", "70,300", "--schedules", "3", "--sms", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    trials = json.loads(done.stdout)
    assert [trial["policy"] for trial in trials] == ["late", "early", "random"]
    assert all(trial["passed"] and trial["ok"] and trial["instructions"] for trial in trials)


@needs_cute
def test_a_pair_allocates_tensor_memory_together():
    """The leader's MMA writes the other CTA's TMEM: whichever CTA comes first must wait."""
    pair = STREAM.with_name("gemm_sm100_clc_pair_c2x1.py")
    done = run("emulate", pair, "--shape", "512,256,64", "--schedules", "6", "--sync-only")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASS") == 6


@needs_cute
@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("    return x\n", "    return x + 1.0\n", "PG350"),
        ("EMPTY_ARRIVES = 8 ", "EMPTY_ARRIVES = 9 ", "PG310"),
    ],
    ids=["arithmetic", "arrive count"],
)
def test_verify_finds_what_is_broken(tmp_path, old, new, code):
    """One place of a module changed: its code is named, and the next run knows it already."""
    text = STREAM.read_text()
    assert text.count(old) == 1
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(old, new))
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run("verify", broken, "--schedules", "2", **cache)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\n  {code} " in done.stdout
    again = run("verify", broken, "--schedules", "2", "--json", **cache)
    assert again.returncode == 1
    (entry,) = json.loads(again.stdout)
    assert entry["cached"]
    assert code in {fault["code"] for trial in entry["trials"] for fault in trial["faults"]}


@needs_cute
@pytest.mark.parametrize("state", ["stage", "fresh"])
def test_a_tail_of_a_role_that_never_produced(tmp_path, state):
    """Consumers that call it, with their own state or a new one, wait for their own arrivals."""
    text = STREAM.with_name("stream_sm90_tma_explicit_state.py").read_text()
    last = "            store_rows(rOut, out, m * CONSUMER_WARPS + warp_idx, n * 32 + lane)\n"
    assert text.count(last) == 1
    fresh = (
        "fresh = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, MAINLOOP_STAGES)"
    )
    tail = f"        {fresh}\n        mainloop.producer_tail({state})\n"
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(last, last + tail))
    done = run("emulate", broken, "--schedules", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PG310 deadlock: no warp can go on. Consumers (CTA 0 warp" in done.stdout
    assert "(mainloop empty, stage 1 of 7), in phase 1 with 0 of 8 arrivals" in done.stdout


@needs_cute
def test_check_verifies_when_asked(tmp_path):
    """`check --verify` runs the kernel, too, and says how long it took."""
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    done = run("check", STREAM, "--verify", "--format", "json", **cache)
    assert done.returncode == 0, done.stdout + done.stderr
    (module,) = json.loads(done.stdout)["modules"]
    assert module["verify"]["status"] == "ok"
    assert len(module["verify"]["trials"]) == 15
    told = run("check", STREAM, "--verify", **cache)
    assert "1 verified (1 from the cache) in 0.0 s" in told.stdout


# ---- Wrong input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["emulate", USER], "Name a function of it that takes no arguments with --entry"),
        (["emulate", USER, "--entry", "check_add"], "--arch must say for which architecture"),
        (["emulate", STREAM, "--shape", "1,x"], "is no list of sizes"),
        (["emulate", STREAM, "--shape", "0,8"], "a size is at least 1"),
        (["emulate", STREAM, "--arch", "sm_12"], "is no architecture"),
        (["verify", USER], "does not offer --compile-only"),
        (["verify", ROOT / "no_such.py"], "does not exist"),
    ],
)
def test_wrong_input_is_one_paragraph(pipegen, monkeypatch, arguments, said):
    """Exit code 2, and what would be right."""
    monkeypatch.delenv("CUTE_DSL_ARCH", raising=False)
    result = pipegen(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@needs_cute
@pytest.mark.parametrize(
    ("shape", "said"),
    [("64", "--shape has 1 sizes, and `check` wants m, n"), ("64,12", "N=12: must be a multiple")],
)
def test_a_shape_that_the_module_refuses(shape, said):
    """The module's own message, as one paragraph."""
    name = "stream_sm90_tma_store.py"
    done = run("emulate", STREAM.with_name(name), "--shape", shape)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
