# SPDX-License-Identifier: Apache-2.0
"""The measuring process itself, with NumPy in torch's place: it checks, times, and dies."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipegen.cli import main
from pipegen.measuring.bench import bench
from pipegen.measuring.process import GpuMeasurer, WorkerRefused
from pipegen.measuring.protocol import Entrant
from pipegen.tuning.halving import Stage, tune_shape

pytest.importorskip("numpy")
HERE = Path(__file__).parent
COMMAND = (sys.executable, str(HERE / "fake_torch.py"))
SHAPE = (96, 64, 128)

# A module as the operator of a gemm wants it, and how it goes wrong.
MODULE = '''# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | cute | sm_90a
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "cute"
#   arch = "sm_90a"
"""A GEMM."""
import os, sys, time
import numpy, torch

TILE_M = TILE_N = TILE_K = 16
MAINLOOP_STAGES = 2

def compile_gemm():
    pass

def gemm(a, b, out):
    {body}
'''
RIGHT = "torch.launch(lambda: numpy.matmul(a, b.mT, out=out))"
WRONG = "torch.launch(lambda: numpy.multiply(numpy.matmul(a, b.mT), 1.1, out=out))"
LOST = "torch.launch(lambda: numpy.matmul(a[..., :-8, :], b.mT, out=out[..., :-8, :]))"
SLOW = "torch.launch(lambda: (time.sleep(0.002), numpy.matmul(a, b.mT, out=out)))"


@pytest.fixture
def modules(tmp_path):
    def write(**bodies):
        found = []
        for name, body in bodies.items():
            path = tmp_path / f"{name}.py"
            path.write_text(MODULE.format(body=body), encoding="utf-8")
            found.append(Entrant(name, path))
        return found

    return write


@pytest.fixture
def measurer():
    with GpuMeasurer(limit=6.0, command=COMMAND) as found:
        yield found


def test_a_right_module_is_timed_beside_its_peer(modules, measurer):
    entrants = modules(fast=RIGHT, slow=SLOW)
    (row,) = bench(measurer, entrants, [SHAPE], ["cublas"], rounds=3, seconds=0.002)
    assert row["out"] == {}
    assert row["best"] == "fast"
    assert row["rates"]["fast"] > 2 * row["rates"]["slow"]
    assert row["peers"]["cublas"]["ratio"] > 0
    assert row["clock"] == "graph"
    assert row["copies"] > 1  # of operands: together beyond L2
    assert measurer.device()["gpu"] == "NumPy"
    assert measurer.loaded["fast"]["unit"] == "TFLOP/s"


def test_what_is_wrong_is_never_timed(modules, measurer):
    entrants = modules(
        right=RIGHT, wrong=WRONG, lost=LOST, raises="raise ValueError('N=64: no')",
        dies="os._exit(7)", hangs="time.sleep(60)",
    )  # fmt: skip
    stages = (Stage(2, 0.001, 2),)
    found = tune_shape(measurer, SHAPE, entrants, ["cublas"], stages)
    assert [timing.name for timing in found.ranked] == ["right"]
    assert found.out["wrong"].startswith("wrong: relative error 1.0e-01")
    assert found.out["lost"].startswith("wrong: relative error nan")
    assert found.out["raises"] == "ValueError: N=64: no"
    assert "exit code 7" in found.out["dies"]
    assert "hang" in found.out["hangs"]


def test_peers_that_are_missing_or_wrong_are_named(modules, measurer, tmp_path, monkeypatch):
    own = tmp_path / "own_gemm.py"
    own.write_text(
        "def right(a, b):\n    return a @ b.mT\n\n\ndef wrong(a, b):\n    return a @ b.mT * 2\n"
        "\n\nright.clock = 'host'\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peers = ["quack", "own_gemm:right", "own_gemm:wrong", "own_gemm:absent"]
    (row,) = bench(measurer, modules(k=RIGHT), [SHAPE], peers, rounds=2, seconds=0.001)
    assert list(row["peers"]) == ["own_gemm:right"]
    assert row["clock"] == "host"
    assert "quack" in row["out"]["quack"]
    assert row["out"]["own_gemm:wrong"].startswith("wrong")
    assert "absent" in row["out"]["own_gemm:absent"]


def test_a_pallas_module_is_not_compiled_without_its_sizes(modules, measurer):
    """Its `compile_only` wants M, N and K: jax compiles for a size, when that is prepared."""
    (entrant,) = modules(k=RIGHT)
    text = entrant.path.read_text("utf-8")
    text = text.replace("def compile_gemm():", "def compile_only(m, n, k):")
    entrant.path.write_text(text.replace('"cute"', '"pallas"'), encoding="utf-8")
    assert measurer._live().ask("load", name="k", path=str(entrant.path), object=None)["unit"]
    # One for the CuTe DSL with such a function is at fault itself, and says so.
    entrant.path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkerRefused, match="compile_only"):
        measurer._live().ask("load", name="k", path=str(entrant.path), object=None)


@pytest.mark.parametrize("folder", ["cute", "pallas"])
def test_what_is_compiled_ahead_takes_no_arguments(folder):
    """Of every emitted module: what `compile_ahead` calls in those of the CuTe DSL only."""
    import ast

    paths = sorted((HERE.parent / "generated" / folder).glob("*.py"))
    assert paths
    for path in paths:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("compile_"):
                assert (folder == "pallas") or not node.args.args, path


def test_nothing_is_timed_before_it_was_prepared(measurer):
    assert measurer.time(["k"], 2, 0.001) == {}
    assert "nothing was prepared" in measurer.lost["k"]


def test_a_module_without_a_description_is_refused(measurer, tmp_path):
    path = tmp_path / "k.py"
    path.write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(WorkerRefused, match="ValueError"):
        measurer.verify(path, 20.0)
    found = measurer.prepare(SHAPE, [Entrant("k", path)], [])
    assert (found.modules, list(found.out)) == ((), ["k"])


@pytest.fixture
def numpy_gpu(monkeypatch):
    """The commands, with the process above and a GPU that nvidia-smi finds."""
    from pipegen.measuring import machine, process

    monkeypatch.setattr(machine, "no_gpu", lambda: "")
    monkeypatch.setattr(process.GpuMeasurer.__init__, "__defaults__", (6.0, COMMAND))


def test_bench_from_end_to_end(modules, numpy_gpu, tmp_path):
    paths = [str(entrant.path) for entrant in modules(fast=RIGHT, wrong=WRONG)]
    for path in map(Path, paths):
        lines = path.read_text().replace(
            "# description:", f"# template: x {'0' * 12}\n# text: {'0' * 12}\n# description:"
        )
        path.write_text(lines + "# --compile-only\n", encoding="utf-8")
    target = tmp_path / "report.json"
    words = ["bench", *paths, "--shape", "96,64,128", "--rounds", "3", "--json", str(target)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1, done.output
    assert "96x64x128" in done.output
    assert "OUT wrong at 96x64x128: wrong: relative error 1.0e-01" in done.output
    report = json.loads(target.read_text())
    assert report["device"]["gpu"] == "NumPy"
    assert report["rows"][0]["best"] == "fast"


def test_tune_from_end_to_end(numpy_gpu, tmp_path, monkeypatch):
    """Real candidates, whose module is the one above, and a real results file and description."""
    from pipegen.tuning import jobs, search

    def compiled(job):
        body = WRONG if "_n48_" in job.name else SLOW if "as_described" in job.name else RIGHT
        return jobs.Compiled(job.name, MODULE.format(body=body) + f"# {job.name}\n")

    monkeypatch.setattr(search, "compile_candidate", compiled)
    path = tmp_path / "k.toml"
    kernel = 'op = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
    path.write_text(f"pipegen = 1\n# mine\n[kernel]\n{kernel}", encoding="utf-8")
    words = ["tune", str(path), "--shape", "96,64,128", "--most", "6", "--near", "0", "--write"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "timed at every size" in done.output
    assert "updated" in done.output
    text = path.read_text()
    assert "# mine" in text
    results = json.loads((tmp_path / "k.tune.json").read_text())
    (entry,) = results["entries"].values()
    best = entry["ranked"][0]["values"]
    assert f"m = {best['tile.m']}" in text
    again = CliRunner().invoke(main, [*words[:-1], "--format", "json"])
    assert again.exit_code == 0, again.output


TOGETHER = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import fake_torch
sys.modules["torch"] = fake_torch.fake()
from pipegen.measuring import worker

both = threading.Barrier(2, timeout=30)  # passes only if two compile at one time

class Kernel:
    pallas = True
    def compile_for(self, operands):
        both.wait()

class Refused(Kernel):
    def compile_for(self, operands):
        both.wait()
        raise ValueError("ptxas says no")

class Compiled(Kernel):
    pallas = False
    def compile_for(self, operands):
        raise AssertionError("a CuTe module was compiled before")

worker._compile_together([Kernel(), Refused(), Compiled()], [])
print("both")
"""


def test_what_jax_compiles_for_a_size_is_compiled_together():
    """Each that ends is a sign of life; one that fails is left to the check, which names it."""
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER, str(HERE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ['@ {"at": "compile", "name": ""}'] * 2 + ["both"]


# What moves bytes is compared with torch's copy: what would make that slow must not be there.
MOVERS = """
import sys
from types import SimpleNamespace
import fake_torch
sys.modules["torch"] = fake_torch.fake()
from pipegen.measuring.operators import custom, reduce, stream

one = SimpleNamespace(x_type="bf16", y_type="bf16", y="matrix", gather=False, alignment=16)
one.operands = lambda *given, **more: stream.Operator.operands(one, *given, **more)
def strides(found):
    return [each.strides[0] // each.itemsize for each in found]
size = {"m": 64, "n": 512}
print(
    [each.Operator.clock for each in (custom, reduce, stream)],
    strides(one.operands(size)),
    strides(stream.Operator.timed_operands(one, size)),
)
"""


def test_a_copy_is_timed_as_it_is_launched_and_has_no_gaps_to_skip():
    """A graph would make it a memcpy node, and rows with gaps are copied at half the rate; a check
    has rows with gaps all the same."""
    done = subprocess.run(
        [sys.executable, "-c", MOVERS], cwd=HERE, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": f"{HERE.parent}:{HERE}"},
    )  # fmt: skip
    assert done.stdout == "['device', 'device', 'device'] [528, 528] [512, 512]\n"
