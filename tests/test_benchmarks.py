# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' arithmetic and command lines, without a GPU and without torch."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SIZE = {"m": 4, "n": 8, "k": 1, "l": 1}


class Torch(ModuleType):
    """As much of torch as importing the benchmarks needs: any name, and nothing behind it."""

    cuda = SimpleNamespace(synchronize=None)

    def __getattr__(self, name):
        return f"torch.{name}"


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a module of benchmarks/ anew, with the torch above."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setitem(sys.modules, "torch", Torch("torch"))
    before = set(sys.modules)

    def load(name):
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        sys.modules.pop(name, None)


def test_the_command_that_repeats_a_run(benchmark, monkeypatch, tmp_path):
    hopper, seen = benchmark("hopper"), []

    def speed(modules, shapes, peers, rounds, limit, turn):
        seen.append((modules, shapes, peers, rounds))
        return {"module": modules[0].name, "failed": "", "unit": "", "peer": "", "rows": []}

    module = tmp_path / "stream.py"
    module.write_text("# pipegen: stream | cute | sm_90a\n", encoding="utf-8")
    words = ["hopper.py", "speed", str(module), "--shape", "4,8", "--rounds", "3"]
    report = tmp_path / "hopper_speed.json"
    monkeypatch.setattr(hopper, "speed", speed)
    monkeypatch.setattr(hopper, "machine", dict)
    monkeypatch.setattr(sys, "argv", [*words, "--together", "2", "--json", str(report)])
    assert hopper.main() == 0
    assert seen == [([module], ["4,8"], ["cublas"], 3)]  # no whole header: as a gemm
    assert "--rounds 3 --together 2 --json benchmarks/hopper_speed.json" in report.read_text()


def test_one_process_times_at_once(benchmark, tmp_path):
    """The lock is held while the work is done, and given back after."""
    import fcntl

    hopper, turn = benchmark("hopper"), tmp_path / "turn"
    with hopper.one_at_a_time(turn), turn.open("w") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with turn.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_kernel_that_fails_at_a_size_has_no_rows(benchmark, monkeypatch, tmp_path):
    hopper = benchmark("hopper")

    class Broken:
        def __init__(self, limit):
            self.lost, self.loaded = {}, {}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def load(self, entrants):
            pass

        def prepare(self, shape, entrants, peers):
            from pipegen.measuring.protocol import Prepared

            return Prepared((), {}, {entrants[0].name: "wrong: relative error 1.0e+00"}, 1, "", 1)

    monkeypatch.setattr(hopper, "GpuMeasurer", Broken)
    result = hopper.speed([tmp_path / "k.py"], ["4,8"], ["torch"], 3, 1.0, tmp_path / "turn")
    assert "4,8" in result["failed"]
    assert "wrong: relative error" in result["failed"]
    assert not hopper.show("speed", result)


def test_the_table_says_both_ratios(benchmark):
    tables = benchmark("tables")
    row = {**SIZE, "rate": 3.0, "ratio": 1.5, "rates": {"tile": 3.0}}
    result = {"module": "stream.py", "unit": "TB/s", "peer": "torch", "rows": [row]}
    assert tables.speed_table([result])[0] == (
        "TB/s, the ratio to torch in the same interleaved rounds:"
    )
    assert tables.speed_table([result])[-1] == "| `stream.py` | 3 (1.500) |"
    row["copy_ratio"] = 0.75
    assert tables.speed_table([result])[0] == (
        "TB/s, the ratio to torch in the same interleaved rounds, and to a copy of contiguous "
        "memory:"
    )
    assert tables.speed_table([result])[-1] == "| `stream.py` | 3 (1.500, 0.750) |"


def test_a_lost_fragment_is_a_large_error_of_an_element(benchmark):
    numpy = pytest.importorskip("numpy")
    operators = benchmark("pipegen.measuring.operators")
    wanted = numpy.random.default_rng(0).standard_normal((512, 512)) * 100.0
    wanted[7] *= 1e-6  # a row of another scale
    assert operators.worst_error(wanted * (1 + 2**-8), wanted) <= 2**-8 * 1.001
    assert operators.worst_error(wanted * (1 + 2**-8), wanted, by_row=True) <= 2**-8 * 1.001
    lost = wanted.copy()
    lost[8:16, 64:128] = 0.0
    assert operators.worst_error(lost, wanted) > 0.9
    small = wanted.copy()
    small[7, 64:128] = 0.0
    assert operators.worst_error(small, wanted) < 1e-5  # next to other rows it is nothing
    assert operators.worst_error(small, wanted, by_row=True) > 0.9
    lost[0, 0] = numpy.nan
    assert not operators.worst_error(lost, wanted) < operators.WORST["bf16"]


def test_what_the_emulator_said(benchmark):
    """Only a trial that is right, without a fault, and exit code 0."""
    told = benchmark("emulated").told
    trial = {"sizes": {"m": 504}, "policy": "late", "instructions": 12617, "seconds": 0.3012}
    trial |= {"passed": True, "ok": True, "said": "PASS", "faults": []}
    assert told(json.dumps([trial]), 0) == {
        "passed": True,
        "sizes": {"m": 504},
        "policy": "late",
        "instructions": 12617,
        "seconds": 0.3,
    }
    assert not told(json.dumps([trial]), 1)["passed"]
    assert not told(json.dumps([{**trial, "passed": False}]), 0)["passed"]
    assert not told(json.dumps([{**trial, "ok": False}]), 0)["passed"]
    assert not told("", 2)["passed"]


def test_results_of_other_modules_are_kept(benchmark):
    """`--add`: a module's new result takes the place of its old one."""
    before = [{"module": "b.py", "passed": False}, {"module": "a.py", "passed": True}]
    now = [{"module": "b.py", "passed": True}]
    assert benchmark("emulated").merged(before, now) == [
        {"module": "a.py", "passed": True},
        {"module": "b.py", "passed": True},
    ]


def test_a_module_that_changed_was_not_emulated(benchmark, monkeypatch, tmp_path):
    """The result belongs to the code that ran; comments aside."""
    tables = benchmark("tables")
    module = tmp_path / "gemm.py"
    module.write_text("x = 1  # one\n", encoding="utf-8")
    result = {"module": "gemm.py", "passed": True, "code": tables.code_digest(module)}
    monkeypatch.setattr(tables, "modules", lambda: {"gemm.py": module})
    assert tables.right(result)
    assert not tables.right({**result, "passed": False})
    module.write_text("x = 1  # uno\n", encoding="utf-8")
    assert tables.right(result)
    module.write_text("x = 2  # one\n", encoding="utf-8")
    assert not tables.right(result)


def a_verdict(path, **faults):
    """As `pipegen verify --json` tells it: two sizes under two schedules each."""
    trials = [
        {"sizes": {"m": m, "n": 8}, "schedule": n, "instructions": 10, "faults": []}
        for m in (4, 12)
        for n in range(2)
    ]
    for number, codes in faults.items():
        trials[int(number[1:])]["faults"] = [
            {"code": code, "kind": "race", "message": f"{code} in {number}"} for code in codes
        ]
    status = "finding" if faults else "ok"
    said = {"path": str(path), "status": status, "message": "", "seconds": 1.26}
    return {**said, "trials": trials}


def test_what_verify_says_of_a_module(benchmark, tmp_path):
    verified = benchmark("verified")
    module = tmp_path / "gemm.py"
    module.write_text("x = 1\n", encoding="utf-8")
    result = verified.result_of(a_verdict(module, t1=["PG310", "PG320"], t3=["PG320"]))
    assert result["findings"] == [
        {"code": "PG310", "runs": 1, "first": "race: PG310 in t1"},
        {"code": "PG320", "runs": 2, "first": "race: PG320 in t1"},
    ]
    told = {key: result[key] for key in ("module", "runs", "schedules", "sizes", "instructions")}
    assert told == {
        "module": "gemm.py",
        "runs": 4,
        "schedules": 2,
        "sizes": "4,8 12,8",
        "instructions": 40,
    }


def test_verifying_goes_on_where_it_was_stopped(benchmark, monkeypatch, tmp_path):
    """A batch is kept as soon as it is done; a module is verified again once its code changed."""
    verified, asked = benchmark("verified"), []
    modules = [tmp_path / f"{name}.py" for name in "abc"]
    for module in modules:
        module.write_text("x = 1\n", encoding="utf-8")

    def verify(paths, jobs, limit):
        asked.append([path.name for path in paths])
        if paths[0].name == "c.py" and len(asked) == 2:
            raise KeyboardInterrupt
        return [verified.result_of(a_verdict(path)) for path in paths]

    monkeypatch.setattr(verified, "verify", verify)
    words = ["verified.py", *map(str, modules), "--json", str(tmp_path / "v.json"), "--batch", "2"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(KeyboardInterrupt):
        verified.main()
    assert verified.main() == 0
    modules[0].write_text("x = 2\n", encoding="utf-8")
    assert verified.main() == 0
    assert asked == [["a.py", "b.py"], ["c.py"], ["c.py"], ["a.py"]]
    monkeypatch.setattr(
        verified,
        "verify",
        lambda paths, *_: [verified.result_of(a_verdict(paths[0], t0=["PG320"]))],
    )
    modules[0].write_text("x = 3\n", encoding="utf-8")
    assert verified.main() == 1
    assert verified.main() == 1  # a finding is known, and stays one


# What verify finds, and docs/emulator.md explains ("What it means, and what it does not").
EXPLAINED = {"pallas_mixed_gemm_sm90_f16_c1x2.py": ["PG320"]}


def test_every_emitted_module_was_verified_as_it_is(benchmark):
    """benchmarks/verified.py, with generated/*/*.py, renews the figures of what changed."""
    tables = benchmark("tables")
    results = tables.read("verified.json")["results"]
    now = {name: tables.code_digest(path) for name, path in tables.modules().items()}
    assert {result["module"]: result["code"] for result in results} == now
    assert all(result["schedules"] == 3 and result["runs"] >= 12 for result in results)
    found = [result for result in results if result["status"] != "ok"]
    codes = {each["module"]: [fault["code"] for fault in each["findings"]] for each in found}
    assert codes == EXPLAINED
