# SPDX-License-Identifier: Apache-2.0
"""What decides in `pipegen.measuring`, without a GPU: sizes, rounds, ratios, rows, the watchdog."""

import sys
import textwrap
from pathlib import Path

import pytest

from pipegen.errors import InputError
from pipegen.measuring import peers, shapes
from pipegen.measuring.bench import bench
from pipegen.measuring.machine import spread
from pipegen.measuring.process import GpuMeasurer
from pipegen.measuring.protocol import Entrant, Prepared
from pipegen.measuring.rotation import copies_for
from pipegen.measuring.rounds import interleave, repeats_for
from pipegen.measuring.rows import table_row
from pipegen.measuring.statistics import geometric_mean, ratio_of


def test_the_ratio_is_of_rounds_not_of_medians():
    ours, theirs = [1.0, 2.0, 4.0], [2.0, 2.0, 2.0]
    ratio = ratio_of(ours, theirs)
    assert (ratio.ratio, ratio.low, ratio.high) == (1.0, 0.5, 2.0)
    many = ratio_of([1.0] * 20, [float(i) for i in range(1, 21)])
    assert (many.low, many.high) == (3.0, 18.0)  # the deciles: two of twenty beyond each


def test_the_geometric_mean():
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([]) != geometric_mean([])  # NaN


def test_each_round_has_everybody_once_and_an_order_of_its_own():
    seen = []

    def sample(name, repeats):
        seen.append(name)
        return float(repeats)

    figures = interleave(sample, {"a": 1, "b": 2, "c": 3}, 20)
    assert figures == {"a": [1.0] * 20, "b": [2.0] * 20, "c": [3.0] * 20}
    orders = {tuple(seen[i : i + 3]) for i in range(0, 60, 3)}
    assert len(orders) > 1
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_turns_take_about_as_long():
    seconds = {"fast": 1e-5, "slow": 1e-2, "nothing": 0.0}
    found = repeats_for(lambda name, _: seconds[name], list(seconds), 0.02, least=4)
    assert found == {"fast": 2000, "slow": 4, "nothing": 200_000}


@pytest.mark.parametrize(
    ("moved", "copies"), [(10, 12), (61, 2), (120, 1), (1000, 1), (0, 1), (1, 64)]
)
def test_operands_rotate_beyond_l2(moved, copies):
    assert copies_for(moved << 20, 60 << 20) == copies


@pytest.mark.parametrize("word", ["4096,4096,4096", "4096x4096x4096"])
def test_a_size_is_read(word):
    assert shapes.parse_shape(word) == (4096, 4096, 4096)
    assert shapes.size_of((8, 4)) == {"m": 8, "n": 4, "k": 1, "l": 1}


@pytest.mark.parametrize("word", ["", "4096", "0,4,4", "4,4,4,4", "a,b,c", "-1,4,4", "4,,4", "²,4"])
def test_a_wrong_size_is_named(word):
    with pytest.raises(InputError, match="is no size"):
        shapes.parse_shape(word)


def test_the_lists_that_others_chose_say_who():
    assert {"bar", "deepgemm", "square", "vllm-llama-3-8b"} <= set(shapes.list_names())
    for name in shapes.list_names():
        found = shapes.load_list(name)
        assert found.source
        assert len(found.shapes) == len(set(found.shapes)) > 2
    bar = shapes.load_list("bar").shapes
    assert len(bar) == 7 * 3 + 4
    assert {(128, 576, 7168), (4096, 14336, 4096)} <= set(bar)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nk = [[8, 8]]", "belong together"),
        ("m = [8]", "belong together"),
        ("mnk = [[8, 0, 8]]", "must be an array of"),
        ("mnk = 3", "must be an array of"),
        ("m = [true]\nnk = [[1, 1]]", "numbers from 1"),
        ("shape = [[8, 8, 8]]", "unknown key"),
        ("source = 3", "must be a text"),
        ('source = "me"', "has no sizes"),
        ("mnk = [", "cannot be read"),
    ],
)
def test_a_faulty_list_is_explained(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        shapes.load_list(str(path))


def test_a_list_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"no list .*Nearest valid choice: deepgemm"):
        shapes.load_list("deepgem")


def test_sizes_are_taken_once(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("mnk = [[8, 8, 8], [16, 8, 8]]", encoding="utf-8")
    assert shapes.chosen_shapes(["8,8,8"], [str(path)]) == [(8, 8, 8), (16, 8, 8)]
    assert shapes.chosen_shapes([], []) == list(shapes.load_list("square").shapes)


@pytest.mark.parametrize(
    ("name", "op", "message"),
    [
        ("cubls", "gemm", "Nearest valid choice: cublas"),
        ("quack", "stream", "nothing to compare a stream with"),
        ("jnp.dot", "reduce", "nothing to compare a reduce with"),
    ],
)
def test_a_peer_that_cannot_be_is_named(name, op, message):
    with pytest.raises(InputError, match=message):
        peers.checked_peers([name], {op})


def test_peers_name_their_version():
    assert peers.checked_peers(["cublas", "my.module:f", "cublas"], {"gemm"}) == [
        "cublas",
        "my.module:f",
    ]
    assert peers.version_text("my.module:f") == ""
    assert peers.version_text("quack").startswith("quack-kernels ")
    assert peers.usual_peer("stream") == "torch"


def test_the_spread_of_the_clock():
    found = spread([(1500.0, 600.0, 50.0), (1900.0, 700.0, 60.0), (1600.0, 650.0, 55.0)])
    assert found["sm_clock (MHz)"] == {"least": 1500.0, "median": 1600.0, "most": 1900.0}
    assert found["power (W)"]["most"] == 700.0


class Fake:
    """A measurer whose kernels take the seconds that it is told, or are out with a reason."""

    def __init__(self, seconds, out=None, lost=None, copy_work=0):
        self.seconds, self.out, self.losing, self.copy_work = (
            seconds,
            out or {},
            lost or {},
            copy_work,
        )
        self.lost = {}

    def device(self):
        return {"gpu": "a fake"}

    def prepare(self, shape, entrants, peers):
        names = tuple(e.name for e in entrants if e.name not in self.out)
        known = {p: {"": p} for p in peers if p in self.seconds}
        return Prepared(names, known, self.out, 6 * 10**12, "graph", 3, self.copy_work)

    def time(self, names, rounds, seconds):
        self.lost |= {n: why for n, why in self.losing.items() if n in names}
        return {n: [self.seconds[n]] * rounds for n in names if n not in self.losing}


ENTRANTS = [Entrant("k__a", Path("k__a.py")), Entrant("k__b", Path("k__b.py"))]


def test_a_row_has_the_best_module_and_its_ratio_to_each_peer():
    fake = Fake(
        {"k__a": 2.0, "k__b": 3.0, "cublas": 2.5, "quack": 1.0, "copy": 2.0}, copy_work=8 * 10**12
    )
    (row,) = bench(fake, ENTRANTS, [(4, 8, 16)], ["cublas", "quack", "absent"], rounds=3)
    assert (row["best"], row["rate"], row["clock"], row["copies"]) == ("k__a", 3.0, "graph", 3)
    assert row["rates"] == {"k__a": 3.0, "k__b": 2.0}
    assert row["peers"]["cublas"]["ratio"] == 1.25
    assert (row["peers"]["quack"]["ratio"], row["peers"]["quack"]["rate"]) == (0.5, 6.0)
    assert "absent" not in row["peers"]
    assert (row["copy_rate"], row["copy_ratio"]) == (4.0, 0.75)
    old = table_row(row, "cublas", {"k__a": "a", "k__b": "b"})
    assert (old["tile"], old["peer_rate"], old["ratio"]) == ("a", 2.4, 1.25)
    assert old["rates"] == {"a": 3.0, "b": 2.0}
    assert old["against"]["peer"] == "quack"


def test_who_is_wrong_or_hangs_is_out_with_the_reason():
    fake = Fake({"k__b": 3.0, "cublas": 3.0}, out={"k__a": "wrong"}, lost={"cublas": "hang"})
    (row,) = bench(fake, ENTRANTS, [(4, 8, 16)], ["cublas"])
    assert row["out"] == {"k__a": "wrong", "cublas": "hang"}
    assert row["peers"] == {}
    assert row["best"] == "k__b"
    (row,) = bench(Fake({}, out={"k__a": "x", "k__b": "y"}), ENTRANTS, [(4, 8, 16)], [])
    assert row == {"m": 4, "n": 8, "k": 16, "l": 1, "out": {"k__a": "x", "k__b": "y"}}


# A worker that does as its modules are called: some hang, some die, some are refused.
SCRIPT = """
import json, sys, time
def say(**words):
    print("@ " + json.dumps(words), flush=True)
loaded = []
for line in sys.stdin:
    command = json.loads(line)
    do = command.pop("do")
    print("noise of a compiler", flush=True)
    if do == "load":
        name = command["name"]
        say(at="load", name=name)
        if name == "refused": say(error="ValueError: no"); continue
        if name == "dies": print("a last word", flush=True); sys.exit(3)
        loaded.append(name); say(done={"unit": "TFLOP/s"})
    elif do == "prepare":
        for name in command["names"]:
            say(at="check", name=name)
            if name == "hangs": time.sleep(60)
            if name == "faults": say(error="CUDA error"); sys.exit(1)
        say(done={"modules": command["names"], "peers": {}, "out": {}, "work": 1, "clock": "graph",
                  "copies": 1, "copy_work": 0, "notes": {}})
    elif do == "time":
        for name in command["names"]:
            say(at="time", name=name)
            if name == "late": time.sleep(60)
        say(done={"figures": {name: [1.0] * command["rounds"] for name in command["names"]}})
    elif do == "verify":
        time.sleep(60)
    else:
        say(done={"gpu": "a script"})
"""


@pytest.fixture
def measurer(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    with GpuMeasurer(limit=0.5, command=[sys.executable, str(script)]) as found:
        yield found


def entrants(*names):
    return [Entrant(name, Path(f"{name}.py")) for name in names]


def test_a_hang_costs_its_limit_and_the_others_go_on(measurer):
    assert measurer.device() == {"gpu": "a script"}
    names = ("good", "hangs", "dies", "faults", "refused", "late")
    prepared = measurer.prepare((4, 8, 16), entrants(*names), [])
    assert set(prepared.modules) == {"good", "late"}
    assert "hang" in prepared.out["hangs"]
    assert "exit code 3" in prepared.out["dies"]
    assert "a last word" in prepared.out["dies"]
    assert prepared.out["faults"] == "CUDA error"
    assert prepared.out["refused"] == "ValueError: no"
    assert measurer.time(["good", "late"], 2, 0.1) == {"good": [1.0, 1.0]}
    assert "hang" in measurer.lost["late"]


def test_nobody_is_left(measurer):
    prepared = measurer.prepare((4, 8, 16), entrants("dies"), [])
    assert (prepared.modules, list(prepared.out)) == ((), ["dies"])


def test_a_whole_command_may_have_a_limit(measurer):
    from pipegen.measuring.process import WorkerDied

    with pytest.raises(WorkerDied, match="hang"):
        measurer.verify(Path("k.py"), 0.3)


def test_the_package_without_a_gpu_imports_no_torch():
    import subprocess

    code = (
        "import sys\nfrom pipegen.measuring import bench, machine, process\n"
        "print({'torch', 'jax', 'cutlass', 'numpy', 'pydantic', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
