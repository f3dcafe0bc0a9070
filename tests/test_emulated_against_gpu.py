# SPDX-License-Identifier: Apache-2.0
"""benchmarks/emulated_against_gpu.py: what it keeps of a launch, and which differences it finds."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipegen.compiling.installed import dsl

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script():
    path = ROOT / "benchmarks" / "emulated_against_gpu.py"
    spec = importlib.util.spec_from_file_location("emulated_against_gpu", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_gaps_between_rows_are_kept(script):
    whole = np.arange(24, dtype=np.uint16).reshape(4, 6)
    kept = script.bytes_of(whole[1:3, 1:4])
    assert kept.view(np.uint16).tolist() == [7, 8, 9, 10, 11, 12, 13, 14, 15]


def memory(script, after, dtype="bfloat16"):
    array = np.array(after, np.uint16 if dtype == "bfloat16" else np.float32)
    stored = array.view(np.uint8)
    return script.Memory(dtype, array.shape, (1,), 0, np.zeros_like(stored), stored)


ONE, NEXT, TWO, NAN, OTHER_NAN = 0x3F80, 0x3F81, 0x4000, 0x7FC0, 0x7FFF  # as bfloat16


@pytest.mark.parametrize(
    ("found", "same_bits", "passed"),
    [
        ([ONE, TWO, NAN], True, True),
        ([NEXT, TWO, NAN], False, True),  # one unit in the last place: another order of sums
        ([ONE, TWO, OTHER_NAN], False, True),
        ([TWO, TWO, NAN], False, False),
        ([ONE, TWO, ONE], False, False),  # written where nothing should be
        ([ONE, NAN, NAN], False, False),
    ],
)
def test_differences(script, found, same_bits, passed):
    said = script.difference(
        memory(script, [ONE, TWO, NAN]), np.array(found, np.uint16).view(np.uint8)
    )
    assert (said["same_bits"], said["passed"]) == (same_bits, passed)


def test_sums_in_f32_of_another_order(script):
    wanted = memory(script, [1.0, 2.0], "float32")
    near, far = (np.array([1.0, 2.0 + off], np.float32).view(np.uint8) for off in (1e-6, 1e-3))
    assert script.difference(wanted, near)["passed"]
    assert not script.difference(wanted, far)["passed"]


def test_a_launch_is_kept_as_it_was(script, tmp_path):
    """The stream's input is what the check filled in, and its output held NaN before."""
    path = ROOT / "generated" / "cute" / "stream_sm90_tma.py"
    assert script.emulate_all(tmp_path, [path], 1, 240) == 0
    facts, kept = script.read(tmp_path / "stream_sm90_tma.npz")
    assert facts["function"] == "stream"
    x, out = kept["x"], kept["out"]
    assert script.same(x.before, x.after)
    assert not script.same(out.before, out.after)
    rows = [
        np.lib.stride_tricks.as_strided(
            part.view(np.uint16), each.shape, [2 * stride for stride in each.strides]
        )
        for each, part in ((x, x.after), (out, out.after))
    ]
    assert np.array_equal(*rows)  # a copy


def test_a_module_that_cannot_be_kept_is_counted(script, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("raise RuntimeError\n")
    assert script.emulate_all(tmp_path, [path], 1, 240) == 1


def test_what_the_tensor_core_cuts_of_fp8_sums(script):
    """A sum over 888 elements of fp8 has 28 steps, each cut at 2**-13; of bf16 nothing is cut."""
    operands = {"a": memory(script, [ONE]), "b": memory(script, [ONE])}
    assert script.sum_cut(operands, {"k": 888}) == 0.0
    short = {**operands, "a": script.Memory("float8_e4m3fn", (1,), (1,), 0, *(np.zeros(1),) * 2)}
    cut = script.sum_cut(short, {"k": 888})
    assert cut == 28 * 2**-13
    wanted = memory(script, [1.0, 2.0], "float32")
    off = np.array([1.0, 2.0 + 2e-3], np.float32).view(np.uint8)
    assert not script.difference(wanted, off)["passed"]
    assert script.difference(wanted, off, cut)["passed"]


def test_every_hopper_module_was_compared_as_it_stands(script):
    """Each sm_90a module: the same launch in the emulator and on an H200, and they agree."""
    results = json.loads((ROOT / "benchmarks" / "emulated_against_gpu.json").read_text("utf-8"))
    found = {each["module"]: each for each in results["results"]}
    modules = list((ROOT / "generated").glob("*/*_sm90*.py"))
    assert set(found) == {path.name for path in modules}
    for path in modules:
        assert found[path.name]["passed"], path.name
        assert found[path.name]["code"] == script.code_digest(path), path.name
    # What `verify` finds in it, too (docs/emulator.md); its numbers are right on both.
    told = {name: each["findings"] for name, each in found.items() if each["findings"]}
    assert told == {"pallas_mixed_gemm_sm90_f16_c1x2.py": ["PG320"]}
    same = [m for m, each in found.items() if all(o["same_bits"] for o in each["outputs"].values())]
    page = (ROOT / "docs" / "emulator.md").read_text("utf-8")
    assert f"{len(found)} modules, {len(same)} with the same bits" in page


# The emulator once more in the place of the GPU: the same bits; and with one bit of the kept result
# changed, or another code of the module, none.
AGAIN = """
import json, sys
from pathlib import Path
import numpy as np
import pipegen
root, kept, module = map(Path, sys.argv[1:])
sys.path.insert(0, str(root / "benchmarks"))
import emulated_against_gpu as script

with pipegen.emulator(arch="sm_90a", dsl="pallas"):
    told = script.compare(kept)
    with np.load(kept) as saved:
        arrays = dict(saved)
    arrays["result 0"][1] ^= 0x40  # the exponent of the first element, in bf16
    np.savez(kept, **arrays)
    print(json.dumps([told, script.compare(kept)]))
"""


@pytest.mark.skipif(not dsl("pallas").usable, reason=dsl("pallas").reason)
def test_a_call_of_a_pallas_module_is_kept_and_made_again(tmp_path):
    module = ROOT / "generated" / "pallas" / "pallas_stream_sm90_ws_row.py"
    kept = tmp_path / f"{module.stem}.npz"
    command = ["benchmarks/emulated_against_gpu.py", "emulate", tmp_path, module]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for arguments in (command, ["-c", AGAIN, ROOT, kept, module]):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    right, changed = json.loads(done.stdout.splitlines()[-1])
    assert right["passed"]
    assert right["outputs"]["result 0"]["same_bits"]
    assert not changed["passed"]
