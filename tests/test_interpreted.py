# SPDX-License-Identifier: Apache-2.0
"""Every emitted Pallas module on the CPU: right against float64, and no race found.

In this Python, and where another one gets a newer jax, in an environment with that too: see
environments.py. What each jax does not interpret is in interpretable.py, what its interpreter is
lent for these tests in interpreters.py.
"""

import subprocess
import sys
from pathlib import Path

import environments
import pytest
from interpretable import (
    DEPTHS,
    MODULES,
    WRAPPING,
    beyond,
    case,
    cases,
    has_out_specs,
    is_example,
)

from pipegen.compiling.installed import version_key, version_of

ROOT = Path(__file__).parent.parent
THIS, NEWEST = "this Python", "the newest jax"
UNWAITED = ROOT / "tests" / "references" / "unwaited_wgmma.py"


@pytest.fixture(scope="session")
def pythons(request):
    """The interpreter of each environment, or why there is none."""
    here = version_key(version_of("jax"))
    this = (sys.executable, "") if here else ("", "jax is not installed")
    if here >= (0, 11):
        return {THIS: this, NEWEST: ("", f"this Python has jax {version_of('jax')} already")}
    return {
        THIS: this,
        NEWEST: environments.newest_jax(request.config.cache.mkdir("newest-jax")),
    }


@pytest.fixture(params=[THIS, NEWEST])
def python(request, pythons):
    """The interpreter of one environment."""
    found, reason = pythons[request.param]
    if reason:
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def ran(tmp_path_factory):
    """What a Python says of every case, run once."""
    known = {}

    def of(python: str):
        if python not in known:
            folder = tmp_path_factory.mktemp("interpreted")
            jax = environments.jax_version(python)
            todo = cases(jax, every=jax >= (0, 11))
            known[python] = environments.interpret(python, todo, folder)
        return known[python]

    return of


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_is_right_and_has_no_race(python, ran, path):
    """With tails in every dimension, several tiles a CTA, and for some several depths of ring."""
    jax = environments.jax_version(python)
    if reason := beyond(path, jax):
        pytest.skip(reason)
    if jax < (0, 11) and not is_example(path):
        pytest.skip("jax 0.10 interprets one module of each template, the newest jax all of them")
    results = [result for result in ran(python) if result["module"] == str(path)]
    assert results
    for result in results:
        assert result["verdict"] == "pass", f"{result['set']}: {result['said']}"


def test_each_template_runs_with_several_depths(python, ran):
    """A ring of two stages wraps around at once, one of three not yet at the last K tile."""
    if environments.jax_version(python) < (0, 11):
        pytest.skip("the newest jax interprets other depths")
    depths = {}
    for result in ran(python):
        tried = [value for name, value in result["set"].items() if name not in WRAPPING]
        depths.setdefault(result["module"], []).extend(tried)
    several = [Path(module).stem for module, tried in depths.items() if tried]
    assert {"pallas_gemm_sm90_emit_pipeline", "pallas_gemm_sm90_ws"} <= set(several)
    assert all(set(tried) <= set(DEPTHS) for tried in depths.values())


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if beyond(path, (99,)) or has_out_specs(path)],
    ids=lambda path: path.stem,
)
def test_what_no_interpreter_runs_says_so(path):
    """CTA pairs and predicated stores: SKIP and the reason, instead of an error of jax's."""
    done = subprocess.run(
        [sys.executable, str(path), "--interpret"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("SKIP ")
    assert ("predicated" if has_out_specs(path) else " pair") in done.stdout


PLANTED = {
    "a wrong sum": (
        "pallas_gemm_sm90_emit_pipeline",
        "    return acc\n",
        "    return acc + 1.0\n",
        "fail",
    ),
    "two warpgroups in one store buffer": (
        "pallas_gemm_sm90_ws_128x80",
        "out_smem.at[warpgroup, subtile",
        "out_smem.at[0, subtile",
        "race",
    ),
    "an exception": (
        "pallas_gemm_sm90_emit_pipeline",
        "    m, n, batch = tile_coord(",
        "    m, n, batch = tile_cord(",
        "error",
    ),
    "no word": ("pallas_gemm_sm90_emit_pipeline", "    print(\n", "    str(\n", "silent"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(python, fault, tmp_path):
    name, old, new, verdict = PLANTED[fault]
    text = (ROOT / "generated" / "pallas" / f"{name}.py").read_text()
    assert text.count(old) == 1
    planted = tmp_path / "planted.py"
    planted.write_text(text.replace(old, new))
    (result,) = environments.interpret(python, [case(planted)], tmp_path)
    assert result["verdict"] == verdict, result["said"]


def test_a_store_buffer_written_too_early_is_found(python, tmp_path):
    """jax 0.10 stores at once: only a later one has a store under way."""
    if environments.jax_version(python) < (0, 11):
        pytest.skip("jax 0.10 interprets stores as if they ended at once")
    name = "pallas_gemm_sm90_emit_pipeline_64x128_one_buffer.py"
    text = (ROOT / "generated" / "pallas" / name).read_text()
    waits = "            plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)\n"
    assert text.count(waits) == 1
    planted = tmp_path / name
    planted.write_text(text.replace(waits, ""))
    (result,) = environments.interpret(python, [case(planted)], tmp_path)
    assert result["verdict"] == "race", result["said"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_wgmma_of_a_stage_still_loading_is_a_race(python, waits, tmp_path):
    """No jax compares wgmma's reads by itself: interpreters.py does."""
    todo = [case(UNWAITED, {"WAITS_FIRST": waits})]
    (result,) = environments.interpret(python, todo, tmp_path)
    assert result["verdict"] == ("pass" if waits else "race"), result["said"]


def test_a_process_that_dies_costs_one_case_only(tmp_path):
    """The cases after it run in another process."""
    dies, well = tmp_path / "dies.py", tmp_path / "well.py"
    dies.write_text("import os\n\n\ndef main(_):\n    os._exit(3)\n")
    well.write_text("def main(_):\n    print('SKIP nothing to do')\n    return 0\n")
    todo = [case(path) for path in (well, well, dies, well, well, well)]
    results = environments.interpret(sys.executable, todo, tmp_path)
    verdicts = {Path(result["module"]).stem: set() for result in results}
    for result in results:
        verdicts[Path(result["module"]).stem].add(result["verdict"])
    assert verdicts == {"dies": {"died"}, "well": {"skip"}}
    assert len(results) == len(todo)
