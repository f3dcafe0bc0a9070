# SPDX-License-Identifier: Apache-2.0
"""docs/custom.md: its listings are read, drawn and rendered, its commands are run.

What users ask for is more than drawn: those kernels are compiled, and run in the emulator.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from emulating import emulate

from pipegen import custom_docs, rendering
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import parse_description
from pipegen.planning import plan
from pipegen.rendering import render

ROOT = Path(__file__).parent.parent
PATH = ROOT / "docs" / "custom.md"
PAGE = PATH.read_text(encoding="utf-8")
LISTINGS = [toml for toml, _ in custom_docs.LISTING.findall(PAGE)]
WORKING = [toml for toml in LISTINGS if not custom_docs.shown(toml).startswith("error: ")]
# What people ask for in forums and trackers, by what only its listing says.
ASKED_FOR = {
    "an epilogue that feeds communication warps": 'edge = "epilogue -> store, send"',
    "one tile read by three consumers": 'edge = "load -> add, peak, halve"',
    "two loaders with different tiles": 'edge = "load_w -> multiply"',
    "a conversion between TMA and MMA": 'edge = "convert -> multiply"',
    "two roles that take turns": 'roles = "by_exp, by_tanh"',
}

needs_cute = pytest.mark.skipif(
    not find_dsl("cute").versions, reason="nvidia-cutlass-dsl is not installed"
)


@pytest.fixture(autouse=True)
def _unformatted(monkeypatch):
    """Formatting takes as long as all the rest."""
    monkeypatch.setattr(rendering, "format_text", lambda text: text)


def listing(words: str) -> str:
    """The only listing that has these words."""
    (found,) = [toml for toml in LISTINGS if words in toml]
    return found


def test_drawings_errors_and_the_picture_are_up_to_date(tmp_path, capsys):
    assert custom_docs.main([str(PATH), "--check"]) == 0
    page = tmp_path / "custom.md"
    page.write_text(PAGE.replace("-> convert [thread, 4 warps]", "-> convert [thread, 5 warps]"))
    assert custom_docs.main([str(page), "--check"]) == 1
    said = capsys.readouterr().out
    assert "custom.md: not up to date" in said
    assert "custom.svg: not up to date" in said
    assert custom_docs.main([str(page)]) == 0
    assert page.read_text() == PAGE
    assert (tmp_path / "custom.svg").read_text() == (PATH.parent / "custom.svg").read_text()


def test_every_listing_is_written_or_refused_where_the_page_says_so():
    assert len(WORKING) >= 12
    assert len(LISTINGS) - len(WORKING) == PAGE.count("```text\nerror: ") == 2
    for toml in WORKING:
        (text,) = render(plan(parse_description(toml))).values()
        ast.parse(text)


def test_the_first_listing_has_ten_lines_and_is_that_of_readme():
    assert len(LISTINGS[0].splitlines()) <= 10
    assert LISTINGS[0] in (ROOT / "README.md").read_text(encoding="utf-8")


@needs_cute
def test_what_users_ask_for_runs(tmp_path):
    modules = {}
    for name, words in ASKED_FOR.items():
        (text,) = render(plan(parse_description(listing(words)))).values()
        modules[name.replace(" ", "_")] = text
    for name, said in emulate(tmp_path, modules).items():
        assert said["ok"], (name, said)
        assert said["passed"], name


def plain(text: str) -> str:
    """What does not change with times, with lines that move, and with another compiler."""
    text = re.sub(r"\d+ instructions in \d+\.\d+ s", "SO MANY in TIME", text)
    return re.sub(r"^@@.*@@$", "@@", text, flags=re.MULTILINE).strip()


@needs_cute
def test_the_commands_run_and_print_what_the_page_says(tmp_path):
    blocks = re.findall(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", PAGE, re.DOTALL)
    assert len(blocks) == 5
    command = tmp_path / "bin" / "pipegen"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pipegen "$@"\n')
    command.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }
    for script, expected in blocks:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eu", "-c", script],
            cwd=work, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        if expected:
            assert plain(done.stdout) == plain(expected), script
