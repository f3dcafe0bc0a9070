# SPDX-License-Identifier: Apache-2.0
"""`pipegen run` and `pipegen bench` without a GPU: verdicts, reports, pictures, faults."""

import copy
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipegen.cli import main
from pipegen.compiling.process import Outcome
from pipegen.errors import InputError
from pipegen.measuring import plotting, report
from pipegen.measuring.running import read_run

ROOT = Path(__file__).parent.parent
GEMM = ROOT / "generated" / "cute" / "gemm_sm90_c2x1.py"


def invoke(*arguments):
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.mark.parametrize(
    ("code", "output", "verdict", "why"),
    [
        (0, "PASS m=1\nPASS m=2\n", "PASS", "2 checks passed"),
        (1, "PASS m=1\nFAIL m=2: 3e-1\n", "WRONG", "1 of 2 checks failed"),
        (0, "FAIL m=2\n", "WRONG", "1 of 1 checks failed"),
        (None, "PASS m=1\n", "HANG", "no end within 5 s"),
        (-11, "PASS m=1\n", "CRASH", "SIGSEGV"),
        (1, "Traceback\nTypeError: no\n", "CRASH", "exit code 1"),
        (2, "usage: k.py\n", "CRASH", "does not take these options"),
        (0, "SKIP no GPU\n", "SKIP", "no GPU"),
        (0, "hello\n", "WRONG", "neither PASS nor FAIL"),
        (0, "", "WRONG", "neither PASS nor FAIL"),
    ],
)
def test_the_verdict_of_a_run(code, output, verdict, why):
    found = read_run(Outcome(code, output, 1.5), 5.0)
    assert found.verdict == verdict
    assert why in found.why
    assert found.usage == (code == 2)


def module(tmp_path, name, body):
    """A module whose `main` is the body."""
    path = tmp_path / f"{name}.py"
    head = '# SPDX-License-Identifier: Apache-2.0\n"""--compile-only"""\nimport sys\nif 0:\n'
    path.write_text(head + "    import cutlass\n" + body, encoding="utf-8")
    return path


def test_run_says_which_module_is_wrong(tmp_path):
    good = module(tmp_path, "good", "print('PASS', *sys.argv[1:])\n")
    bad = module(tmp_path, "bad", "print('FAIL m=3'); sys.exit(1)\n")
    hung = module(tmp_path, "hung", "import time\ntime.sleep(60)\n")
    done = invoke("run", good, bad)
    assert done.exit_code == 1
    assert f"PASS {good}" in done.output
    assert f"WRONG {bad}: 1 of 1 checks failed" in done.output
    done = invoke("run", hung, "--limit", "0.5")
    assert done.exit_code == 1
    assert f"HANG {hung}: no end within 0.5 s" in done.output
    done = invoke("run", good, "--", "--size", "1,2,3")
    assert done.exit_code == 0
    assert "PASS --size 1,2,3" in done.output


def test_run_names_the_skip_and_can_require_a_gpu(tmp_path):
    skipped = module(tmp_path, "skipped", "print('SKIP no GPU here')\n")
    done = invoke("run", skipped)
    assert (done.exit_code, "SKIP" in done.output) == (0, True)
    assert f"SKIP {skipped}: no GPU here" in done.output
    done = invoke("run", skipped, "--require-gpu")
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "Missing argument"),
        (("run", "absent.py"), "absent.py"),
        (("run", GEMM, "--limit", "0"), "limit"),
        (("run", GEMM, "--limt", "3"), "No such option"),
        (("bench",), "name the modules"),
        (("bench", GEMM, "--shape", "4"), "is no size"),
        (("bench", GEMM, "--against", "torchh"), "Nearest valid choice: torch"),
        (("bench", GEMM, "--plot", "x.pdf"), "is no picture's name"),
        (("bench", GEMM, "--from", "x.json"), "leave FILES out"),
        (("bench", "--from", "absent.json"), "cannot be read"),
        (("bench", GEMM, GEMM.with_name("stream_sm90_tma.py")), "of one op"),
        (("bench", GEMM, GEMM), "different names"),
    ],
)
def test_faults_of_the_call_are_named(arguments, message):
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.output


def test_a_description_without_its_module_is_named(tmp_path):
    path = tmp_path / "k.toml"
    path.write_bytes(GEMM.with_suffix(".toml").read_bytes())
    done = invoke("run", path)
    assert done.exit_code == 2
    assert "pipegen generate" in done.output


def row(m, n, k, **peers):
    each = {
        name: {
            "configuration": "",
            "rate": 600.0,
            "ratio": ratio,
            "ratio_low": ratio - 0.01,
            "ratio_high": ratio + 0.02,
            "rates": {"": 600.0},
        }
        for name, ratio in peers.items()
    }
    gauge = {"sm_clock (MHz)": {"median": 1710.0}, "power (W)": {"median": 652.0}}
    found = {"m": m, "n": n, "k": k, "l": 1, "best": "b", "rate": 630.0, "rates": {"b": 630.0}}
    return {**found, "peers": each, "clock": "graph", "copies": 4, "gauge": gauge, "out": {}}


REPORT = {
    "pipegen_bench": 1,
    "date": "2026-11-30",
    "op": "gemm",
    "unit": "TFLOP/s",
    "modules": ["a", "b"],
    "peers": {"cublas": "torch 2.11.0", "quack": "quack-kernels 0.6.5"},
    "rounds": 30,
    "device": {"gpu": "NVIDIA H200"},
    "machine": {},
    "rows": [
        row(4096, 4096, 4096, cublas=1.05, quack=0.99),
        row(128, 576, 7168, cublas=0.95),
        {"m": 1, "n": 1, "k": 1, "l": 1, "out": {"a": "wrong: relative error 1.0e+00"}},
    ],
}


def shown(arguments):
    done = invoke("bench", "--from", *arguments)
    return done.exit_code, done.output


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "gemm.json"
    path.write_text(json.dumps(REPORT), encoding="utf-8")
    return path


def test_the_table_of_a_report(saved):
    code, output = shown([saved])
    assert code == 1  # `a` was wrong
    assert "4096x4096x4096" in output
    assert "1.050 (1.040 to 1.070)" in output
    assert "1710 MHz, 652 W" in output
    assert "cublas: geometric mean 0.999 over 2 sizes, least 0.950 (torch 2.11.0)" in output
    assert "quack: geometric mean 0.990 over 1 size, least 0.990 (quack-kernels 0.6.5)" in output
    assert "OUT a at 1x1: wrong: relative error 1.0e+00" in output
    assert "4 to 4 sets of operands" in output


def test_where_the_roof_is():
    assert plotting.intensity({"m": 4096, "n": 4096, "k": 4096}) == pytest.approx(4096 / 3)
    roof = plotting.roof_of("NVIDIA H200")
    assert plotting.roof_at(roof, 10.0) == 48.0  # memory
    assert plotting.roof_at(roof, 1e4) == 989.0  # tensor cores
    assert plotting.roof_of("NVIDIA A100") is None


def test_what_is_drawn():
    data = plotting.plot_data(REPORT)
    assert data.sizes == ("4096x4096x4096", "128x576x7168")
    assert [line.name for line in data.rates] == ["best module", "cublas", "quack"]
    assert data.ratios[0].ys == (1.05, 0.95)
    assert data.ratios[1].xs == (0.0,)  # quack has no second size
    assert data.spreads["cublas"][0] == pytest.approx((1.04, 1.07))
    assert data.roof == (989.0, 4.8)
    moving = copy.deepcopy(REPORT) | {"unit": "TB/s"}
    assert plotting.plot_data(moving).roof is None
    with pytest.raises(InputError, match="nothing was timed"):
        plotting.plot_data(REPORT | {"rows": REPORT["rows"][2:]})


def test_without_matplotlib_the_package_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="pip install"):
        plotting.check_target(Path("x.svg"))


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_is_the_same_each_time(saved, suffix, tmp_path):
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / f"{number}{suffix}" for number in range(2)]
    for picture in pictures:
        _, output = shown([saved, "--plot", picture])
        assert f"wrote {picture}" in output
    first, second = (picture.read_bytes() for picture in pictures)
    assert first == second
    assert len(first) > 10_000
    if suffix == ".svg":
        assert b"roofline" in first or b"<svg" in first


def test_a_file_of_another_kind_is_no_report(tmp_path):
    path = tmp_path / "k.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="no results file"):
        report.read_report(path)
