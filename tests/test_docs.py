# SPDX-License-Identifier: Apache-2.0
"""The pages in docs/: the tutorial is run, generated pages are up to date, links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipegen import classes_docs, description_docs
from pipegen.compiling.freshness import Freshness
from pipegen.compiling.installed import dsl
from pipegen.description import KernelDescription
from pipegen.description_file import parse_description

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_class_pages_are_up_to_date(tmp_path):
    assert classes_docs.main([str(DOCS / "classes"), "--check"]) == 0
    assert classes_docs.main([str(tmp_path / "new")]) == 0
    page = tmp_path / "new" / "PipelineTmaAsync.md"
    page.write_text(page.read_text() + "\n")
    (tmp_path / "new" / "Gone.md").write_text("a class that is gone\n")
    assert classes_docs.main([str(tmp_path / "new"), "--check"]) == 1
    assert classes_docs.main([str(tmp_path / "new")]) == 0
    assert classes_docs.main([str(tmp_path / "new"), "--check"]) == 0
    assert not (tmp_path / "new" / "Gone.md").exists()


def test_description_reference_is_up_to_date_and_whole():
    page = DOCS / "description.md"
    assert description_docs.main([str(page), "--check"]) == 0
    text = page.read_text(encoding="utf-8")
    for section, field in KernelDescription.model_fields.items():
        assert f"`[{section}" in text or f"`{section}`" in text
        for key in getattr(field.annotation, "model_fields", {}):
            assert f"| `{key}` |" in text, f"{section}.{key}"
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert parse_description(toml).kernel.op == "gemm"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_states_are_all_explained():
    text = (DOCS / "how_it_works.md").read_text(encoding="utf-8")
    for state in Freshness.__args__:
        assert f"| {state} |" in text


def steps() -> list[tuple[str, str | None]]:
    """The shell blocks of the tutorial, each with the output that follows it, if one does."""
    found: list[tuple[str, str | None]] = []
    for kind, text in BLOCK.findall(TUTORIAL):
        if kind == "sh":
            found.append((text, None))
        elif kind == "text":
            found[-1] = (found[-1][0], text)
    return found


def plain(text: str) -> str:
    """The output without what differs from run to run: times, and blanks that align them."""
    text = re.sub(r"\d+\.\d+ ?s\b|\bcached\b", "TIME", text)
    text = re.sub(r" \(\d+ from the cache\)", "", text)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip()


def test_tutorial_runs_and_prints_what_it_says(tmp_path):
    state = dsl("cute")
    if not state.usable:
        pytest.skip(f"the tutorial compiles: {state.reason}")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("pipegen", "pipegen"), ("pytest", "pytest -p pipegen.pytest_plugin")):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C",
    }
    work = tmp_path / "work"
    work.mkdir()
    compared = 0
    for script, expected in steps():
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eu", "-c", script],
            cwd=work, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        if expected is not None:
            assert plain(done.stdout) == plain(expected), script
            compared += 1
        if (work / "my_project").is_dir():
            work = work / "my_project"
    assert compared >= 6
    kernel = (work / "kernels/my_gemm.py").read_text()
    assert "acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))" in kernel
    assert "MAINLOOP_STAGES = 3" in kernel


def test_configurations_of_the_tutorial_name_what_exists():
    blocks = [yaml.safe_load(text) for kind, text in BLOCK.findall(TUTORIAL) if kind == "yaml"]
    pre_commit, workflow = blocks
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for repo in pre_commit["repos"] for hook in repo["hooks"]} <= hooks
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    (step,) = [s for s in workflow["jobs"]["kernels"]["steps"] if "pipegen" in s["uses"]]
    assert set(step["with"]) <= set(inputs)
