# SPDX-License-Identifier: Apache-2.0
"""benchmarks/emulate_jax_races.py, on tests of our own in the form of JAX's; and its figures."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipegen.compiling.installed import dsl

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "emulate_jax_races.py"
FIGURES = ROOT / "benchmarks" / "emulated_jax_races.json"
needs_pallas = pytest.mark.skipif(not dsl("pallas").usable, reason=dsl("pallas").reason)

TESTS = """
import functools

import jax
import jax.numpy as jnp
from jax._src import test_util as jtu
from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call as mosaic_interpret
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams as InterpretParams
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


class OurTest(jtu.JaxTestCase):
    def setUp(self):
        super().setUp()
        mosaic_interpret.gpu_callbacks.reset_gpu_interpret_mode_state()

    def kernel(self, published, waited):
        scratch = dict(
            smem=plgpu.SMEM((), jnp.int32), gmem=plgpu.GMEM((), jnp.int32), done=plgpu.Barrier()
        )

        @functools.partial(
            plgpu.kernel,
            out_type=jax.ShapeDtypeStruct((), jnp.int32),
            scratch_types=scratch,
            interpret=InterpretParams(detect_races=True),
        )
        def run(x, out, smem, gmem, done):
            smem[...] = x[...] + 1
            if published:
                plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(smem, gmem)
            if waited:
                plgpu.wait_smem_to_gmem(0)
            else:
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            out[...] = gmem[...]

        return run

    @jtu.parameterized.product(published=[False, True], waited=[False, True])
    def test_labelled(self, published, waited):
        out = self.kernel(published, waited)(jnp.int32(41))
        if published and waited:
            self.assertEqual(out, 42)
        races = mosaic_interpret.get_races().races_found
        self.assertEqual(races, not (published and waited))

    @jtu.parameterized.product(
        what=["called clean", "called racy", "wrong", "stopped", "not compiled", "skipped"]
    )
    def test_odd(self, what):
        if what == "skipped":
            self.skipTest("nothing to do")
        if what == "stopped":
            with self.assertRaisesRegex(Exception, "what the interpreter says"):
                self.kernel(True, False)(jnp.int32(41))
            return
        if what == "not compiled":
            unknown = lambda x, out: plgpu.barrier_wait(x)
            plgpu.kernel(unknown, out_type=jax.ShapeDtypeStruct((), jnp.int32))(jnp.int32(1))
        out = self.kernel(what != "called clean", True)(jnp.int32(41))
        if what == "wrong":
            self.assertEqual(out, 43)
        elif what == "called racy":
            self.assertTrue(mosaic_interpret.get_races().races_found)
        else:
            self.assertFalse(mosaic_interpret.get_races().races_found)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, object]:
    """What the script says of our tests, under the name of one of JAX's files."""
    folder = tmp_path_factory.mktemp("jax")
    tests = folder / "tests" / "pallas"
    tests.mkdir(parents=True)
    names = [
        f"gpu_pallas_interpret_{name}_test.py"
        for name in ("race_detection", "cluster_barrier", "tcgen05_race_detection")
    ]
    names.append("gpu_pallas_interpret_test.py")
    empty = "import jax\n"
    for name, text in zip(names, (TESTS, empty, empty, empty), strict=True):
        (tests / name).write_text(text, "utf-8")
    written = folder / "told.json"
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPT), "--jax", str(folder), "--commit", "ours"),
            *("--schedules", "2", "--json", str(written)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(written.read_text("utf-8"))


@needs_pallas
def test_labels_are_taken_from_what_tests_assert(told):
    found = {
        case: (each["status"], each["race"], each["findings"])
        for each in told["results"]
        if each["test"] == "test_labelled"
        for case in each["cases"]
    }
    assert found == {
        "published=False, waited=False": (
            "agrees",
            True,
            ["PG320 race", "PG321 missing-proxy-fence"],
        ),
        "published=False, waited=True": ("agrees", True, ["PG321 missing-proxy-fence"]),
        "published=True, waited=False": ("agrees", True, ["PG320 race"]),
        "published=True, waited=True": ("agrees", False, []),
    }
    assert told["tests of jax"] == "ours"


@needs_pallas
@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("called clean", "false alarm"),
        ("called racy", "missed"),
        ("wrong", "wrong numbers"),
        ("stopped", "agrees"),
        ("not compiled", "not compiled"),
    ],
)
def test_each_status(told, what, status):
    (entry,) = (each for each in told["results"] if f"what={what!r}" in each["cases"])
    assert entry["status"] == status, entry
    assert entry.get("why") == ("not looked at" if status in ("false alarm", "missed") else None)


@needs_pallas
def test_skipped_tests_are_counted_and_not_listed(told):
    assert told["counts"]["skipped"] == 1
    assert not any("what='skipped'" in each["cases"] for each in told["results"])


def test_what_agrees(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    compare = importlib.import_module("emulate_jax_races").compare
    assert compare(False, []) == "agrees"
    assert compare(True, []) == "missed"
    assert compare(False, ["PG310 deadlock"]) == "false alarm"
    assert compare(True, ["PG310 deadlock"]) == "other finding"
    assert compare(True, ["PG310 deadlock", "PG320 race"]) == "agrees"


def test_a_folder_without_the_tests_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--jax", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "race_detection_test.py: no such file; --jax must name a clone of JAX" in done.stderr


def test_each_disagreement_of_the_figures_has_been_looked_at():
    figures = json.loads(FIGURES.read_text("utf-8"))
    counts: dict[str, int] = {}
    for each in figures["results"]:
        counts[each["status"]] = counts.get(each["status"], 0) + len(each["cases"])
        if each["status"] in ("missed", "false alarm", "other finding"):
            assert len(each["why"]) > 40, each
            assert each["why"] != "not looked at", each
    counts["skipped"] = figures["counts"]["skipped"]
    assert counts == figures["counts"]
    assert len(figures["tests of jax"]) == 40


def test_the_page_has_the_figures():
    figures = json.loads(FIGURES.read_text("utf-8"))
    page = (ROOT / "docs" / "emulator.md").read_text("utf-8")
    rows = {
        f"| `{name}`, ": f"gpu_pallas_interpret_{name}_test.py"
        for name in ("race_detection", "cluster_barrier", "tcgen05_race_detection")
    }
    rows["| all others that have labels, "] = "gpu_pallas_interpret_test.py"
    for start, file in rows.items():
        cells = [0, 0, 0, 0]
        for each in figures["results"]:
            if each["file"] == file and each["status"] != "no label":
                agrees = each["status"] == "agrees"
                column = (0 if each["race"] else 1) if agrees else 2
                column = 3 if each["status"] == "not compiled" else column
                cells[column] += len(each["cases"])
        (row,) = (line for line in page.splitlines() if line.startswith(start))
        assert row.split(" | ", 1)[1] == " | ".join(map(str, cells)) + " |"
    assert figures["tests of jax"][:7] in page
