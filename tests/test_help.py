# SPDX-License-Identifier: Apache-2.0
"""The examples in each command's `--help` run, and shells complete what there is."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from vendored import commit_all

from pipegen.cli import COMMANDS, main
from pipegen.compiling import checking, pool
from pipegen.compiling.installed import Dsl, dsl
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.emulator import trying, verifying
from pipegen.emulator.verdict import Trial
from pipegen.emulator.verifying import Verified

ROOT = Path(__file__).parent.parent
DESCRIPTION = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
# What the command line of an example is called with besides, or in place of an environment.
NEEDS_A_TERMINAL = {"pipegen new"}


def examples(name: str | None) -> list[str]:
    """The command lines in the help of a command (None: of pipegen itself)."""
    found = main if name is None else main.get_command(click.Context(main), name)
    assert found is not None
    lines = (found.epilog or "").splitlines()
    return [re.split(r"\s{2,}", line.strip())[0] for line in lines if line.startswith("  pipegen ")]


ALL = [(name, line) for name in (None, *COMMANDS) for line in examples(name)]


def test_every_command_has_an_example():
    without = [name for name in COMMANDS if not examples(name)]
    assert without == []
    for name, line in ALL:
        assert name is None or shlex.split(line)[1] == name


@pytest.fixture
def project(pipegen, monkeypatch):
    """A committed project with kernels/gemm.toml, its module, and what else examples name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd().parent / "cache"))
    monkeypatch.setenv("HOME", str(Path.cwd()))

    def compiled(*_: object) -> CompileResult:
        return CompileResult("ok", "", (Kernel("k_0", "sm_90a", 168, 0, 0, 0, 1024),))

    monkeypatch.setattr(pool, "compile_module", compiled)
    monkeypatch.setattr(checking, "dsl", Dsl)
    # The emulator itself: tests/test_emulator.py.
    trial = Trial("", {"m": 1}, 1, 0, "late", 0, True, "PASS", (), 1, 1, 0.1)
    monkeypatch.setattr(verifying, "dsl", Dsl)
    monkeypatch.setattr(verifying, "_verify", lambda *_: Verified("ok", "", (trial,)))
    monkeypatch.setattr(trying, "try_module", lambda *_: (trial,))
    monkeypatch.setattr(trying, "try_entry", lambda *_: (trial,))
    Path("my_add.py").write_text("")
    Path("kernels").mkdir()
    Path("pipegen.toml").write_text('descriptions = ["kernels"]\n')
    Path("kernels/gemm.toml").write_text(DESCRIPTION)
    assert pipegen("generate").exit_code == 0
    commit_all()
    for folder in (
        ".local/share/bash-completion/completions",
        ".zfunc",
        ".config/fish/completions",
    ):
        Path(folder).mkdir(parents=True)
    return pipegen


@pytest.mark.parametrize(("name", "line"), ALL, ids=[line for _, line in ALL])
def test_example_runs(project, name, line, monkeypatch):
    words = shlex.split(line)[1:]
    if line in NEEDS_A_TERMINAL:
        result = project(*words)
        assert result.exit_code == 2
        assert "NAME is missing" in result.stderr
        return
    if ">" in words:
        *words, _, file = words
        assert Path(file.replace("~", os.environ["HOME"])).parent.is_dir()
    if name == "init":
        Path("pipegen.toml").unlink()
    if name == "export" and not dsl("cute").usable:
        pytest.skip("the CuTe DSL is not installed")
    if "--with" in words:
        # The environments themselves: tests/test_versions.py.
        from pipegen.compiling.matrix import Column

        monkeypatch.setattr(checking, "compile_under", lambda wanted, *_: Column(wanted.name, {}))
    result = project(*words)
    assert result.exit_code == 0, result.output
    assert result.output or name == "diff"


# Shell completion.


def complete(*words: str) -> list[str]:
    """What bash would offer for the last word."""
    done = subprocess.run(
        [sys.executable, "-c", "from pipegen.cli import main; main(prog_name='pipegen')"],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "_PIPEGEN_COMPLETE": "bash_complete",
            "COMP_WORDS": shlex.join(["pipegen", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ch",), ["check"]),
        (("check", "--form"), ["--format"]),
        (("check", "--format", "s"), ["sarif"]),
        (("new", "--op", "mix"), ["mixed_gemm"]),
        (("new", "k", "--backend", "p"), ["pallas"]),
        (("new", "k", "--arch", "sm_9"), ["sm_90a"]),
        (("new", "k", "--style", "exp"), ["explicit-state"]),
        (("select", "cp"), ["cp_async"]),
        (("select", "tma", "wg"), ["wgmma"]),
        (("explain", "PipelineTmaU"), ["PipelineTmaUmma"]),
        (("explain", "PG20"), ["PG201", "PG203", "PG204", "PG205", "PG206"]),
        (("completion", "z"), ["zsh"]),
    ],
)
def test_completion_offers_what_there_is(words, expected):
    assert complete(*words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_one(pipegen, shell):
    script = pipegen("completion", shell).stdout
    assert f"_PIPEGEN_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=script, text=True, check=False)
        assert done.returncode == 0


def test_script_completes_in_a_real_bash(pipegen, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(pipegen("completion", "bash").stdout)
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "pipegen"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pipegen "$@"\n')
    command.chmod(0o755)
    code = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=(pipegen upd); COMP_CWORD=1; "
        '_pipegen_completion pipegen; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", code],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "update", done.stderr
