# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' arithmetic and command lines, without a GPU and without torch."""

import importlib
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
    names = ("worker", "hopper", "tables", "code_digest", "operators")

    def load(name):
        return importlib.import_module(name)

    yield load
    for name in names:
        sys.modules.pop(name, None)


class Kernel:
    """An operator that moves 6e12 bytes; a contiguous copy moves 8e12."""

    def operands(self, size):
        return [size]

    def launcher(self, operands, size):
        return "kernel", "wait"

    def peer(self, operands, size):
        return "peer"

    def work(self, size):
        return 6_000_000_000_000


class Stream(Kernel):
    def contiguous_copy(self, size):
        return "copy", 8_000_000_000_000


def timed(calls, waits, rounds, seconds):
    """Three rounds: the kernel takes 2, 2 and 4 s, the peer 3 s and the copy 2 s."""
    figures = {"tile": [2.0, 2.0, 4.0], "peer": [3.0] * 3, "copy": [2.0] * 3}
    return {name: figures[name] for name in calls}


def test_the_rate_and_both_ratios(benchmark, monkeypatch):
    worker = benchmark("worker")
    monkeypatch.setattr(worker, "interleave", timed)
    (row,) = worker.speed({"tile": Stream()}, "peer", [SIZE], 3)
    assert (row["rate"], row["peer_rate"], row["copy_rate"]) == (3.0, 2.0, 4.0)
    assert (row["ratio"], row["copy_ratio"]) == (1.5, 0.75)  # 3 / 2; (6 / 2) / (8 / 2)
    assert row["rates"] == {"tile": 3.0}


def test_other_operators_have_no_copy(benchmark, monkeypatch):
    worker = benchmark("worker")
    monkeypatch.setattr(worker, "interleave", timed)
    (row,) = worker.speed({"tile": Kernel()}, "peer", [SIZE], 3)
    assert row["ratio"] == 1.5
    assert not {"copy_rate", "copy_ratio"} & set(row)


def test_one_process_times_at_once(benchmark, tmp_path):
    """The lock is held while the work is done, and given back after."""
    worker, turn = benchmark("worker"), tmp_path / "turn"

    def blocked():
        with turn.open("w") as file, pytest.raises(BlockingIOError):
            worker.fcntl.flock(file, worker.fcntl.LOCK_EX | worker.fcntl.LOCK_NB)
        return ["timed"]

    assert worker.in_turn(SimpleNamespace(turn=turn), blocked) == ["timed"]
    with turn.open("w") as file:
        worker.fcntl.flock(file, worker.fcntl.LOCK_EX | worker.fcntl.LOCK_NB)
    assert worker.in_turn(SimpleNamespace(turn=None), lambda: []) == []


def test_the_command_that_repeats_a_run(benchmark, monkeypatch, tmp_path):
    hopper, seen = benchmark("hopper"), []

    def run(arguments, module, limit):
        seen.append(arguments)
        return {"module": module.name, "failed": "", "unit": "", "peer": "", "rows": []}

    module = tmp_path / "stream.py"
    module.write_text("# pipegen: stream | cute | sm_90a\n", encoding="utf-8")
    words = ["hopper.py", "speed", str(module), "--shape", "4,8", "--rounds", "3"]
    report = tmp_path / "hopper_speed.json"
    monkeypatch.setattr(hopper, "run_worker", run)
    monkeypatch.setattr(hopper, "machine", dict)
    monkeypatch.setattr(sys, "argv", [*words, "--together", "2", "--json", str(report)])
    assert hopper.main() == 0
    (arguments,) = seen
    assert arguments[:6] == ["speed", "--sizes", "4,8", "--rounds", "3", "--turn"]
    assert arguments[7:] == [str(module)]
    assert "--rounds 3 --together 2 --json benchmarks/hopper_speed.json" in report.read_text()


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
    operators = benchmark("operators")
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
