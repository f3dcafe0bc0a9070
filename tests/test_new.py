# SPDX-License-Identifier: Apache-2.0
"""`pipegen new`, `generate` and `schema`: what they write, refuse and leave alone."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from terminal import answer_in_a_terminal

from pipegen.cli import main
from pipegen.selection_table import kernels
from pipegen.vendor.header import is_pristine, read_header

GEMM = ("--op", "gemm", "--backend", "cute", "--arch", "sm_90a")
ISSUE = (
    *GEMM,
    *("--producer", "tma", "--consumer", "wgmma", "--stages", "auto", "--cluster", "2,1"),
    *("--tile", "128,256,64", "--dtype", "bf16"),
)


def test_new_writes_a_description_and_its_module(pipegen, tmp_path):
    result = pipegen("new", "my_gemm", *ISSUE, "-o", "kernels")
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "kernels").iterdir()) == [
        "my_gemm.py",
        "my_gemm.toml",
    ]
    text = (tmp_path / "kernels" / "my_gemm.py").read_text()
    ast.parse(text)
    assert is_pristine(text)
    header = read_header(text)
    assert header is not None
    assert header.description == (tmp_path / "kernels" / "my_gemm.toml").read_text()


def test_the_module_comes_again_from_its_header(pipegen, tmp_path):
    pipegen("new", "my_gemm", *ISSUE)
    text = Path("my_gemm.py").read_text()
    header = read_header(text)
    assert header is not None
    Path("my_gemm.py").unlink()
    Path("my_gemm.toml").write_text(header.description)
    assert pipegen("generate", ".").exit_code == 0
    assert Path("my_gemm.py").read_text() == text


def test_new_twice_changes_nothing(pipegen):
    pipegen("new", "k", *GEMM)
    again = pipegen("new", "k", *GEMM)
    assert again.exit_code == 0
    assert again.stdout.count("unchanged") == 2


def test_new_leaves_other_text_alone(pipegen, tmp_path):
    (tmp_path / "k.py").write_text("mine\n")
    result = pipegen("new", "k", *GEMM)
    assert result.exit_code == 2
    assert "k.py: exists with other text" in result.stderr
    assert (tmp_path / "k.py").read_text() == "mine\n"
    assert not (tmp_path / "k.toml").exists()


def test_new_into_a_folder_that_cannot_be_written(pipegen):
    result = pipegen("new", "k", *GEMM, "-o", "/proc/pipegen")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "nothing can be written here" in result.stderr


def test_dry_run_and_diff_write_nothing(pipegen, tmp_path):
    dry = pipegen("new", "k", *GEMM, "--dry-run")
    assert dry.exit_code == 0
    assert "# ---- k.toml" in dry.stdout
    assert "PipelineTmaAsync" in dry.stdout
    diff = pipegen("new", "k", *GEMM, "--diff")
    assert diff.exit_code == 0
    assert "+[kernel]" in diff.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tile", "128,300,64"), ("--tile: tile.n = 300", "Nearest valid choice: 256")),
        (("--tile", "128,256"), ("--tile", "needs 3 whole numbers", "got '128,256'")),
        (("--tile", "a,b,c"), ("--tile", "needs 3 whole numbers")),
        (("--cluster", "2,3"), ("--cluster: cluster.shape = [2, 3]", "[2, 2]")),
        (("--cluster", "3"), ("--cluster", "needs 2 whole numbers")),
        (("--stages", "0"), ("--stages", "at least 2 stages")),
        (("--stages", "many"), ("--stages", '"auto"')),
        (("--stages", "²"), ("--stages", '"auto"')),
        (("--stages", "9" * 5000), ("--stages", '"auto"')),
        (("--tile", "9" * 5000 + ",1,1"), ("--tile", "whole numbers")),
        (("--epilogue-stages", "99"), ("--epilogue-stages", "Nearest valid choice: 8")),
        (("--epilogue-stages", "-3"), ("--epilogue-stages", "Nearest valid choice: 2")),
        (("--dtype", "bf61"), ("--dtype: dtype.a", '"bf16"')),
        (("--dtype", "e4m3", "--layout", "k,n"), ("--layout: layout.b", "K-major only")),
        (("--cta-group", "2"), ("--cta-group", "Hopper")),
        (("--consumer", "umma"), ("--consumer", "wgmma")),
        (("--arch", "sm_70"), ("--arch", "sm_90a")),
        (("--backend", "cutlass"), ("--backend", '"cute"')),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_errors_name_the_option(pipegen, tmp_path, options, words):
    result = pipegen("new", "k", *GEMM, *options)
    assert result.exit_code == 2
    for word in words:
        assert word in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arch", "setting", "toml"),
    [
        ("sm_100a", "scheduler.tiles=clc", '[scheduler]\ntiles = "clc"\n'),
        ("sm_100a", "cluster.cta_group=2", "[cluster]\ncta_group = 2\n"),
        ("sm_90a", "scheduler.consumers = ping-pong", '[scheduler]\nconsumers = "ping-pong"\n'),
        ("sm_90a", "layout.gather=true", "[layout]\ngather = true\n"),
        ("sm_90a", "cluster.shape=[1, 2]", "[cluster]\nshape = [1, 2]\n"),
        ("sm_90a", 'dtype.a="f16"', '[dtype]\na = "f16"\n'),
    ],
)
def test_any_key_can_be_set(pipegen, arch, setting, toml):
    kernel = ("--op", "gemm", "--backend", "cute", "--arch", arch)
    result = pipegen("new", "k", *kernel, "--set", setting)
    assert result.exit_code == 0, result.stderr
    assert toml in Path("k.toml").read_text()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("nonsense", "--set: needs a dotted key"),
        ("tiles=clc", "--set: needs a dotted key"),
        ("scheduler.tiles=", "--set: needs a dotted key"),
        ("scheduler.tiles=clc", "--set scheduler.tiles: scheduler.tiles = "),
        ("layout.gather=maybe", "Allowed: true, false. Nearest valid choice: true."),
        ("tile.q=3", "--set tile.q: tile.q = 3: unknown key"),
        ("kernel.op.x=3", "--op: kernel.op = {x = 3}: wrong type"),
        ("tile.m=[1", "tile.m = "),
    ],
)
def test_a_wrong_setting_is_named(pipegen, tmp_path, setting, complaint):
    result = pipegen("new", "k", *GEMM, "--set", setting)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["my-gemm", "class", "1st", "a b", "../x", "", "torch", "json"])
def test_names_that_are_no_identifier(pipegen, tmp_path, name):
    result = pipegen("new", name, *GEMM)
    assert result.exit_code == 2
    assert "NAME" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [("--consumer-warpgroups", "1"), ("--dtype", "e4m3", "--dtype-out", "f32")],
    ids=" ".join,
)
def test_a_tile_that_nobody_gave_fits_what_was_asked(pipegen, options):
    assert pipegen("new", "k", *GEMM, *options, "--dry-run").exit_code == 0


def test_new_without_options_in_a_pipe_says_what_is_missing(pipegen):
    result = pipegen("new", "k")
    assert result.exit_code == 2
    assert "--op" in result.stderr
    assert "--backend" in result.stderr


ASKED = {
    # The answers up to the style; everything after is Enter.
    "cute": ["asked", "", "cute", "", ""],
    "cute, explicit-state": ["asked", "", "cute", "", "explicit-state"],
    "pallas": ["asked", "", "pallas", "", ""],
    "pallas, emit-pipeline": ["asked", "", "pallas", "", "emit-pipeline"],
    "cute, fp8": ["asked", "", "cute", "", "", "tma", "wgmma", "e4m3"],
    "cute, cp.async": ["asked", "", "cute", "", "", "cp_async"],
    # Wrong answers are asked again: a name, a tile, a cluster, stages.
    "mistakes": [
        *("my-gemm", "asked", "", "cute", "", "", "clc", "tma", "", ""),
        *("128,300,64", "128,256,64", "2,3", "2,1", "99", "3"),
    ],
}


@pytest.mark.parametrize("answers", ASKED.values(), ids=ASKED)
def test_bare_in_a_terminal_it_asks(answers, tmp_path):
    """A real terminal: the answers are typed, and what it offers by itself can be written."""
    answer_in_a_terminal([], answers, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        ["--op", "gemm", "--backend", "cute", "--producer", "cp_async"],
        ["--op", "gemm_rowsum"],
        ["--op", "mixed_gemm", "--arch", "sm_100a"],
        ["--op", "gemm", "--arch", "sm_100a", "--cta-group", "2"],
        ["--op", "stream", "--set", "layout.gather=true"],
        ["--op", "custom"],
    ],
    ids=" ".join,
)
def test_what_it_proposes_goes_with_what_is_given(options, tmp_path):
    """Enter to every question writes a kernel, whatever was said beforehand."""
    answer_in_a_terminal(["asked", *options], [], tmp_path)


def test_it_shows_what_each_answer_costs(tmp_path):
    """The plan's numbers after the types, the tile, the cluster and the stages; then what next."""
    shown = answer_in_a_terminal(
        [], ["asked", "gemm", "cute", "sm_90a", "participants", "tma", "wgmma", "bf16",
             "128,128,64", "2,1", "3"], tmp_path
    )  # fmt: skip
    costs = re.findall(r"\d+ stages of [^()]* KiB \(.*", shown)
    assert len(costs) == 4
    assert costs[0].startswith("4 stages of 48 KiB (PipelineTmaAsync); SMEM 230400 of 232448 B")
    assert "1 block of 384 threads an SM" in costs[0]
    assert "of 32 KiB" in costs[1]
    assert costs[3].startswith("3 stages of 32 KiB")
    assert "(tma, cp_async)" in shown
    following = shown[shown.index("next:") :].splitlines()[1:]
    assert [line.split("  ")[1] for line in following if line.strip()] == [
        "pipegen plan asked.toml",
        "pipegen check asked.py",
        "python asked.py",
    ]


def test_two_descriptions_of_one_file_are_refused(pipegen, tmp_path):
    text = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\nname = "x"\n'
    (tmp_path / "a.toml").write_text(text)
    (tmp_path / "b.toml").write_text(text)
    result = pipegen("generate", ".")
    assert result.exit_code == 2
    assert "b.toml: writes x.py, and so does a.toml" in result.stderr
    assert not (tmp_path / "x.py").exists()


def test_generate_reports_every_broken_file_and_writes_none(pipegen, tmp_path):
    good = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
    (tmp_path / "good.toml").write_text(good)
    (tmp_path / "bad.toml").write_text(good + "[tile]\nn = 300\n")
    (tmp_path / "worse.toml").write_text(good + "[tile\n")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    result = pipegen("generate", ".")
    assert result.exit_code == 2
    assert "bad.toml: tile.n" in result.stderr
    assert "worse.toml: is not TOML" in result.stderr
    assert "pyproject" not in result.stderr
    assert not (tmp_path / "good.py").exists()
    (tmp_path / "bad.toml").unlink()
    (tmp_path / "worse.toml").unlink()
    assert pipegen("generate", ".", "--dry-run").stdout.startswith("would be created")
    assert not (tmp_path / "good.py").exists()
    assert pipegen("generate", ".").exit_code == 0
    assert (tmp_path / "good.py").exists()


def test_generate_shows_a_diff(pipegen, tmp_path):
    pipegen("new", "k", *GEMM)
    (tmp_path / "k.toml").write_text(
        (tmp_path / "k.toml").read_text() + "\n[pipeline.mainloop]\nstages = 3\n"
    )
    before = (tmp_path / "k.py").read_text()
    result = pipegen("generate", "k.toml", "--diff")
    assert "+MAINLOOP_STAGES = 3" in result.stdout
    assert (tmp_path / "k.py").read_text() == before


@pytest.mark.parametrize("command", [("plan", "k.toml"), ("explain",), ("schema",)], ids=" ".join)
def test_a_full_disk_or_a_closed_pipe_is_no_traceback(pipegen, tmp_path, command):
    pipegen("new", "k", *GEMM)
    for redirection in ("> /dev/full", "| true"):
        words = " ".join(("-m", "pipegen", *command, redirection))
        done = subprocess.run(
            f"{sys.executable} {words}",
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            check=False,
        )
        assert "Traceback" not in done.stderr
    assert done.returncode == 0  # the shell's: that of `true`


def test_generate_updates_a_pristine_file_and_keeps_an_edited_one(pipegen, tmp_path):
    pipegen("new", "k", *GEMM)
    toml = (tmp_path / "k.toml").read_text()
    (tmp_path / "k.toml").write_text(toml + "\n[pipeline.mainloop]\nstages = 3\n")
    result = pipegen("generate", "k.toml")
    assert result.stdout.startswith("updated")
    edited = (tmp_path / "k.py").read_text() + "# mine\n"
    (tmp_path / "k.py").write_text(edited)
    (tmp_path / "k.toml").write_text(toml)
    result = pipegen("generate", "k.toml")
    assert result.exit_code == 2
    assert "left alone" in result.stderr
    assert (tmp_path / "k.py").read_text() == edited


@pytest.mark.parametrize("path", ["nothing.toml", "empty"])
def test_generate_of_nothing(pipegen, tmp_path, path):
    (tmp_path / "empty").mkdir()
    result = pipegen("generate", path)
    assert result.exit_code == 2
    assert path in result.stderr


def test_schema(pipegen):
    result = pipegen("schema")
    assert json.loads(result.stdout)["title"] == "pipegen kernel description"


def test_an_unknown_command_gets_the_nearest(pipegen):
    result = pipegen("generat")
    assert result.exit_code == 2
    assert "Nearest: generate" in result.stderr


@pytest.mark.parametrize("chosen", sorted({key[:2] for key in kernels()}), ids="-".join)
def test_the_proposed_answers_make_a_kernel_of_every_op(chosen, tmp_path, monkeypatch):
    """Return at each question: what is proposed is accepted, and written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipegen.cli.new._interactive", lambda: True)
    command = ["new", "mine", "--op", chosen[0], "--backend", chosen[1]]
    done = CliRunner().invoke(main, command, input="\n" * 20, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mine.py").is_file()
