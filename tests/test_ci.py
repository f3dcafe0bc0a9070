# SPDX-License-Identifier: Apache-2.0
"""The pre-commit hook, the GitHub Action and the pytest plugin, each as a project would use it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from sample_modules import header
from vendored import commit_all

from pipegen.generating import generate_one

ROOT = Path(__file__).parent.parent
DESCRIPTION = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A repository with one real vendored kernel."""
    folder = tmp_path / "project"
    (folder / "kernels").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("pipegen.toml").write_text('descriptions = ["kernels"]\n')
    Path("kernels/one.toml").write_text(DESCRIPTION)
    for path, text in generate_one(Path("kernels/one.toml")).items():
        path.write_text(text)
    return folder


def make_stale() -> None:
    path = Path("kernels/one.toml")
    path.write_text(path.read_text() + "[pipeline.mainloop]\nstages = 2\n")


def run(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


# pre-commit.


def test_pre_commit_hooks_run_what_they_say(project):
    """The hooks' own command lines, in a project that is well, and in one that is stale."""
    hooks = {hook["id"]: hook for hook in yaml.safe_load(read(".pre-commit-hooks.yaml"))}
    assert set(hooks) == {"pipegen-check", "pipegen-generate"}
    for hook in hooks.values():
        assert hook["pass_filenames"] is False
        pattern = re.compile(hook["files"])
        for name in ("k/a.py", "k/a.toml", "pipegen.lock", "k/.base/a.py.txt"):
            assert pattern.search(name), name
        assert not pattern.search("README.md")

    def hook(name: str) -> subprocess.CompletedProcess[str]:
        command, *arguments = hooks[name]["entry"].split()
        assert command == "pipegen"
        return run(sys.executable, "-m", "pipegen", *arguments)

    assert hook("pipegen-check").returncode == 0
    make_stale()
    assert hook("pipegen-check").returncode == 1
    assert hook("pipegen-generate").returncode == 0
    assert hook("pipegen-check").returncode == 0


def test_pre_commit_installs_and_runs_the_hook(project, tmp_path):
    """pre-commit itself: it installs pipegen from a copy of this repository into its own place."""
    source = tmp_path / "pipegen"
    ignore = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".venv", "generated")
    shutil.copytree(ROOT, source, ignore=ignore)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(source)
        commit_all()
    Path(".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {source}\n  rev: HEAD\n  hooks: [{{id: pipegen-check}}]\n"
    )
    commit_all()
    own = {"PRE_COMMIT_HOME": str(tmp_path / "pre-commit"), "PYTHONPATH": ""}
    rev = run("git", "-C", source, "rev-parse", "HEAD").stdout.strip()
    config = Path(".pre-commit-config.yaml")
    config.write_text(config.read_text().replace("HEAD", rev))
    well = run(sys.executable, "-m", "pre_commit", "run", "--all-files", **own)
    assert well.returncode == 0, well.stdout + well.stderr
    assert re.search(r"pipegen check\.+Passed", well.stdout)
    make_stale()
    stale = run(sys.executable, "-m", "pre_commit", "run", "--all-files", **own)
    assert stale.returncode == 1
    assert "kernels/one.py: stale: its description changed" in stale.stdout


# The GitHub Action.


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def run_action(tmp_path: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The steps of action.yml, as a runner would run them; the last one's outcome."""
    action = yaml.safe_load(read("action.yml"))
    assert action["runs"]["using"] == "composite"
    unknown = set(inputs) - set(action["inputs"])
    assert not unknown
    values = {f"inputs.{key}": entry["default"] for key, entry in action["inputs"].items()}
    values |= {f"inputs.{key}": value for key, value in inputs.items()}
    values["github.action_path"] = str(ROOT)

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", lambda match: values[match[1]], text)

    done = None
    for step in action["runs"]["steps"]:
        # What a caller says must reach the shell as data, not as a part of the script.
        assert "${{" not in step["run"]
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=filled(step.get("working-directory", ".")),
            env=os.environ
            | {key: filled(value) for key, value in step["env"].items()}
            | {"RUNNER_TEMP": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            break
    assert done is not None
    return done


def test_action_installs_checks_and_annotates(project, tmp_path):
    """Without a DSL (no extras), so that it takes seconds; the level is compile all the same."""
    python = {"python": sys.executable, "extras": ""}
    well = run_action(tmp_path, level="fresh", **python)
    assert well.returncode == 0, well.stdout + well.stderr
    assert well.stdout == "1 module: 1 fresh\n"
    skipped = run_action(tmp_path, require="cute", **python)
    assert skipped.returncode == 1
    assert "::error title=skipped::1 module was not compiled (cute)" in skipped.stdout
    make_stale()
    Path("with space").mkdir()
    shutil.copy("kernels/one.toml", "with space/two.toml")
    paths = "kernels\n\nwith space\n"
    stale = run_action(tmp_path, level="fresh", paths=paths, sarif="report.sarif", **python)
    assert stale.returncode == 1
    assert "::error file=kernels/one.py,line=1,title=stale::" in stale.stdout
    assert "::error file=with space/two.py,line=1,title=missing::" in stale.stdout
    assert '"ruleId": "stale"' in Path("report.sarif").read_text()
    Path("kernels/one.toml").write_text(DESCRIPTION)
    with Path("kernels/one.py").open("a") as file:
        file.write("mine = 1\n")
    assert run_action(tmp_path, level="fresh", **python).returncode == 0
    assert run_action(tmp_path, level="fresh", pristine="true", **python).returncode == 1


# The pytest plugin.


def run_pytest(*arguments: str, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    named = ("-p", "pipegen.pytest_plugin") if plugin else ()
    return run(
        sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *named, *arguments,
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="",
    )  # fmt: skip


def test_plugin_is_quiet_unless_asked(project):
    Path("test_other.py").write_text("def test_other():\n    pass\n")
    assert "1 passed" in run_pytest().stdout
    assert "3 passed" in run_pytest("--pipegen-level=fresh").stdout


def test_each_kernel_is_a_test(project):
    listed = run_pytest("--pipegen", "--collect-only").stdout
    assert "kernels/one.toml::fresh" in listed
    assert "kernels/one.py::compile" in listed
    assert "pipegen.toml::orphans" in listed
    make_stale()
    done = run_pytest("--pipegen-level=fresh")
    assert done.returncode == 1
    assert "kernels/one.py: stale: its description changed" in done.stdout
    assert "Traceback" not in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_level_from_the_ini_file(project):
    Path("pytest.ini").write_text("[pytest]\npipegen = fresh\n")
    assert "2 passed" in run_pytest().stdout
    Path("pytest.ini").write_text("[pytest]\npipegen = all\n")
    wrong = run_pytest()
    assert wrong.returncode == 4
    assert "no such level. Allowed: fresh, compile" in wrong.stdout + wrong.stderr


def test_compile_items_compile_the_file_as_it_stands(project):
    Path("kernels/bad.py").write_text(header() + "raise SystemExit('does not work')\n")
    done = run_pytest("--pipegen", "kernels/bad.py")
    if "was not compiled (cute)" in done.stdout:
        pytest.skip("the CuTe DSL is not installed")
    assert done.returncode == 1
    assert "kernels/bad.py: does not compile: exit code 1" in done.stdout


def test_what_cannot_be_compiled_here_is_skipped_with_its_reason(project):
    code = (
        "import sys, pytest\n"
        "from pipegen.compiling import checking\n"
        "from pipegen.compiling.installed import Dsl\n"
        "checking.dsl = lambda name: Dsl(name, reason='not here', command='pip install it')\n"
        "sys.exit(pytest.main(['-q', '-rs', '-p', 'pipegen.pytest_plugin', '--pipegen']))\n"
    )
    done = run(sys.executable, "-c", code, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout
    assert "2 passed, 1 skipped" in done.stdout
    assert "was not compiled (cute): not here. To enable: pip install it" in done.stdout


def test_orphan_fails_at_the_project_file(project):
    run(sys.executable, "-m", "pipegen", "generate")
    Path("kernels/two.toml").write_text(DESCRIPTION)
    Path("kernels/one.toml").unlink()
    run(sys.executable, "-m", "pipegen", "generate")
    done = run_pytest("--pipegen-level=fresh")
    assert done.returncode == 1
    assert "kernels/one.py: orphan: no description" in done.stdout


def test_plugin_is_announced_to_pytest():
    points = tomllib.loads(read("pyproject.toml"))["project"]["entry-points"]["pytest11"]
    assert points == {"pipegen": "pipegen.pytest_plugin"}
