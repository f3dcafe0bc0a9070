# SPDX-License-Identifier: Apache-2.0
"""The checked-in kernels compile without a GPU, and the compiler agrees with the plan."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import load_description
from pipegen.planning import plan
from pipegen.vendor.header import read_header

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
MODULES = sorted((ROOT / "generated").rglob("*.py"))
CUTE = [path for path in MODULES if path.parent.name in ("cute", "cute_ts")]


def check(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipegen", "check", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def report():
    """What `pipegen check generated` says of every module."""
    done = check("generated", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    return {Path(entry["path"]).name: entry for entry in json.loads(done.stdout)["modules"]}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_compiles_as_planned(report, path):
    """Fresh, a cubin for its architecture, no spills, and the SMEM that the plan computed."""
    entry = report[path.name]
    assert entry["fresh"] == "fresh"
    compiled = entry["compile"]
    if compiled["status"] == "skip":
        pytest.skip(compiled["message"])
    assert compiled["status"] == "ok", compiled["message"]
    assert compiled["spill_bytes"] == 0
    made = plan(load_description(path.with_suffix(".toml")))
    assert compiled["smem_bytes"] == made.number("smem_bytes").value
    planned_tmem = [each.value for each in made.numbers if each.name == "tmem_columns"]
    assert [compiled["tmem_columns"]] == (planned_tmem or [0])
    roles = {role.name: role for role in made.roles}
    if path.parent.name == "cute" and {"producer", "consumer"} == roles.keys() and gives(made):
        # The pool that setmaxnreg divides: were less allocated at launch, it would wait for ever.
        asked = sum(role.threads * role.registers for role in roles.values())
        assert asked <= compiled["registers"] * sum(role.threads for role in roles.values())


def gives(made):
    """Whether registers change hands in the kernel."""
    return any(number.name == "consumer_registers" for number in made.numbers)


def planned_mbarriers(made):
    """Each arrive count with the number of barriers that have it, as planned."""
    counts = Counter()
    for pipeline in made.pipelines:
        for count in (pipeline.full_arrive_count, pipeline.empty_arrive_count):
            if count is not None:
                counts[count] += pipeline.stages * pipeline.groups
    for number in made.numbers:
        if number.name == "tmem_free_arrive_count":
            counts[number.value] += 1
    return counts


@pytest.mark.parametrize("path", CUTE, ids=lambda path: path.stem)
def test_the_compiler_initialises_the_planned_barriers(report, path):
    """Arrive counts in the compiled PTX, and the bytes that arm a stage, are those of the plan."""
    compiled = report[path.name]["compile"]
    if compiled["status"] == "skip":
        pytest.skip(compiled["message"])
    (kernel,) = compiled["kernels"]
    made = plan(load_description(path.with_suffix(".toml")))
    assert Counter(kernel["mbarrier_counts"]) == planned_mbarriers(made)
    armed = {pipeline.tx_count for pipeline in made.pipelines if pipeline.tx_count}
    assert set(kernel["expected_bytes"]) <= armed


def test_a_wrong_count_would_be_seen(report):
    """The comparison above fails for another cluster's plan."""
    compiled = report["gemm_sm90_c2x1.py"]["compile"]
    if compiled["status"] == "skip":
        pytest.skip(compiled["message"])
    other = plan(load_description(ROOT / "generated" / "cute" / "gemm_sm90_c1x1.toml"))
    assert Counter(compiled["kernels"][0]["mbarrier_counts"]) != planned_mbarriers(other)


def test_a_second_run_is_quick(report):
    """Everything comes from the cache: under 10 ms of processor time a module."""
    before = os.times()
    done = check("generated")
    after = os.times()
    assert done.returncode == 0, done.stdout
    spent = after.children_user + after.children_system
    assert spent - before.children_user - before.children_system < 0.01 * len(MODULES)


@pytest.mark.parametrize("dsl", ["cute", "pallas"])
def test_a_module_runs_by_itself(dsl, tmp_path):
    """Copied to another folder, without pipegen on the path: compile, or say why it cannot."""
    found = find_dsl(dsl)
    if found.reason:
        pytest.skip(found.reason)
    source = next(path for path in MODULES if path.parent.name == dsl)
    (tmp_path / "vendored.py").write_bytes(source.read_bytes())
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "vendored.py", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    compiled = run("--compile-only")
    assert compiled.returncode == 0, compiled.stderr
    assert compiled.stdout.startswith("PASS")
    bare = run()
    assert bare.returncode == 0, bare.stderr
    assert bare.stdout.startswith("SKIP") or "PASS" in bare.stdout
    for size in ("1", "a,b,c"):
        wrong = run("--size", size)
        assert wrong.returncode == 2
        assert "Traceback" not in wrong.stderr


RELU = {
    # The line that the hook's docstring proposes.
    "cute/gemm_sm90_c1x1": "acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))",
    "cute/gemm_sm90_gather": "acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))",
    "cute/gemm_sm90_pingpong_c1x1": "acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))",
    "cute/gemm_sm90_split_k4": "acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))",
    "cute/gemm_sm100_c1x1": "acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))",
    "cute/stream_sm90_tma": "return cute.where(x > 0.0, x, 0.0)",
    "cute/stream_sm100_tma_row_c2x1": "return cute.where(x > 0.0, y, 0.0)",
    "pallas/pallas_gemm_sm90_ws": "return jnp.maximum(acc, 0.0)",
    "pallas/pallas_gemm_sm90_emit_pipeline": "return jnp.maximum(acc, 0.0)",
}


def with_relu(text: str, line: str) -> str:
    """The module with a ReLU in its hook, put in as a user would."""
    hook = "def stream_op" if "def stream_op" in text else "def epilogue_op"
    opening = text.index('"""', text.index(hook))
    end = text.index('"""', opening + 3) + 4
    assert line in text[opening:end]
    return f"{text[:end]}    {line}\n{text[end:]}"


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """What `pipegen check` says of the edited modules, by name."""
    folder = tmp_path_factory.mktemp("edited")
    for name, line in RELU.items():
        source = ROOT / "generated" / f"{name}.py"
        target = folder / source.name
        target.with_suffix(".toml").write_bytes(source.with_suffix(".toml").read_bytes())
        target.write_text(with_relu(source.read_text(), line))
    done = check(folder, "--format", "json")
    return {Path(entry["path"]).stem: entry for entry in json.loads(done.stdout)["modules"]}


@pytest.mark.parametrize("name", RELU)
def test_an_edit_is_reported_and_compiled_as_it_stands(name, edited):
    """The hook's own example goes in; the file counts as edited, and still compiles."""
    entry = edited[Path(name).name]
    assert entry["fresh"] == "edited"
    if entry["compile"]["status"] == "skip":
        pytest.skip(entry["compile"]["message"])
    assert entry["compile"]["status"] == "ok"


@pytest.mark.parametrize("name", ["cute/gemm_sm90_c1x1", "pallas/pallas_gemm_sm90_ws"])
def test_an_edit_that_breaks_the_kernel_is_found(name, tmp_path):
    """One stage more than fits: the compiler or the SMEM limit says so, exit code 1."""
    source = ROOT / "generated" / f"{name}.py"
    target = tmp_path / source.name
    target.with_suffix(".toml").write_bytes(source.with_suffix(".toml").read_bytes())
    text = source.read_text()
    assert "MAINLOOP_STAGES = 4" in text
    target.write_text(text.replace("MAINLOOP_STAGES = 4", "MAINLOOP_STAGES = 5"))
    done = check(tmp_path, "--format", "json")
    entry = json.loads(done.stdout)["modules"][0]
    if entry["compile"]["status"] == "skip":
        pytest.skip(entry["compile"]["message"])
    assert done.returncode == 1
    assert entry["compile"]["status"] != "ok"


def test_committed_h200_results_cover_every_module():
    """A GPU test cannot run in CI: the results of runs on an H200 are checked in instead.

    What had to change after the last run, and could not run again yet, is named with its reason
    there, and so in README.md.
    """
    runs = [json.loads(path.read_text()) for path in BENCHMARKS.glob("hopper_verify*.json")]
    passed = {
        result["module"]
        for run in runs
        for result in run["results"]
        if result["rows"] and all(row["passed"] for row in result["rows"])
    }
    not_run = {name: reason for run in runs for name, reason in run.get("not_run", {}).items()}
    hopper = {path.name for path in MODULES if read_header(path.read_text()).arch == "sm_90a"}
    assert hopper
    assert hopper - passed == set(not_run)
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{name}`: {reason}." in readme for name, reason in not_run.items())
