# SPDX-License-Identifier: Apache-2.0
"""`check --with`: modules under other versions, in environments that pip really makes.

The packages are small wheels of our own, so that nothing is downloaded: a "DSL" whose version 4.7.1
lacks a module that the kernel imports.
"""

import json
import shutil
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from sample_modules import pretender
from test_report_formats import sarif_schema

from pipegen.compiling import checking, environments
from pipegen.compiling.environments import Wanted, environment, parse_wanted
from pipegen.compiling.installed import Dsl
from pipegen.errors import Problem

CUTE = pretender().replace("none.py.j2", "t") + "import cutlass.memory\n"


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    """A wheel of pure Python."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{member},,\n" for member in members) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{stem}-{version}-py3-none-any.whl", "w") as archive:
        for member, text in {**members, f"{info}/RECORD": record}.items():
            archive.writestr(member, text)


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    """A folder of wheels, and a cache that all tests of this file share."""
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "nvidia-cutlass-dsl", "4.7.1", {"cutlass/__init__.py": ""})
    both = {"cutlass/__init__.py": "", "cutlass/memory.py": ""}
    wheel(folder, "nvidia-cutlass-dsl", "4.8.1", both)
    wheel(folder, "nvidia-cuda-cuobjdump", "13.0", {})
    return folder


@pytest.fixture(autouse=True)
def elsewhere(index, tmp_path, monkeypatch):
    """pip sees our wheels only; the installed DSL is left out of the picture."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(index / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(environments.shutil, "which", without_uv)
    monkeypatch.setattr(checking, "dsl", lambda name: Dsl(name, reason="not here", command="x"))


which = shutil.which


def without_uv(name: str) -> str | None:
    return None if name == "uv" else which(name)


@pytest.fixture
def check(monkeypatch):
    from click.testing import CliRunner

    from pipegen.cli import main

    def run(*arguments: object):
        words = ["check", *map(str, arguments)]
        return CliRunner().invoke(main, words, catch_exceptions=False)

    return run


def test_table_says_what_an_upgrade_would_break(check):
    Path("new.py").write_text(CUTE)
    Path("old.py").write_text(CUTE.replace("import cutlass.memory\n", ""))
    Path("pallas.py").write_text(CUTE.replace("| cute |", "| pallas |"))
    pins = ("--with", "nvidia-cutlass-dsl==4.7.1", "--with", "nvidia-cutlass-dsl==4.8.1")
    result = check(".", *pins)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    table = lines[lines.index("") - 4 : lines.index("")]
    heads = ["here", "nvidia-cutlass-dsl==4.7.1", "nvidia-cutlass-dsl==4.8.1"]
    assert table[0].split() == heads
    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in table[1:]}
    assert cells == {
        "new.py": "skipped does not compile ok",
        "old.py": "skipped ok ok",
        "pallas.py": "skipped - -",
    }
    assert "error: new.py: does not compile: under nvidia-cutlass-dsl==4.7.1:" in result.stdout
    assert "No module named 'cutlass.memory'" in result.stdout
    # Once more: from the cache, environments too; and in the formats for programs.
    again = check(".", *pins, "--format", "json")
    columns = json.loads(again.stdout)["versions"]
    assert [column["with"] for column in columns] == heads[1:]
    compiled = {Path(m["path"]).name: m["compile"] for m in columns[1]["modules"]}
    assert set(compiled) == {"new.py", "old.py"}
    assert all(entry["cached"] for entry in compiled.values())
    junit = ET.fromstring(check(".", *pins, "--format", "junit").stdout.encode())
    (suite,) = [s for s in junit if s.get("name") == "nvidia-cutlass-dsl==4.7.1"]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    import jsonschema

    sarif = json.loads(check(".", *pins, "--format", "sarif").stdout)
    jsonschema.Draft4Validator(sarif_schema()).validate(sarif)
    assert len(sarif["runs"][0]["results"]) == 1


def test_spills_there_bring_the_advice_too(check):
    spilling = pretender(stores=8).replace("none.py.j2", "t")
    Path("one.py").write_text(spilling)
    result = check("one.py", "--with", "nvidia-cutlass-dsl==4.8.1")
    assert result.exit_code == 1
    assert result.stdout.count("What may help") == 1


def test_versions_of_the_project(check):
    Path("kernels").mkdir()
    Path("pipegen.toml").write_text('descriptions = ["kernels"]\n')
    Path("one.py").write_text(CUTE)
    assert "there is none: say --with" in check("one.py", "--versions").stderr
    text = 'descriptions = ["kernels"]\nversions = ["nvidia-cutlass-dsl==4.8.1"]\n'
    Path("pipegen.toml").write_text(text)
    Path("kernels/one.toml").write_text(
        'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
    )
    result = check("one.py", "--versions")
    assert "nvidia-cutlass-dsl==4.8.1" in result.stdout
    assert result.exit_code == 0, result.output


def test_what_cannot_be_installed_is_a_paragraph_and_leaves_nothing(check, index):
    Path("one.py").write_text(CUTE)
    result = check("one.py", "--with", "nvidia-cutlass-dsl==9.9.9")
    assert result.exit_code == 2
    assert "--with nvidia-cutlass-dsl==9.9.9: cannot be installed here: ERROR: " in result.stderr
    folder = index / "cache" / "pipegen" / "environments"
    key = Wanted((("nvidia-cutlass-dsl", "9.9.9"),)).key()
    assert not (folder / key).exists()


def test_half_made_environment_is_made_anew(tmp_path):
    wanted = Wanted((("nvidia-cutlass-dsl", "4.8.1"),))
    place = tmp_path / wanted.key()
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").write_text("broken")
    python = environment(wanted, tmp_path)
    assert isinstance(python, Path)
    assert environment(wanted, tmp_path) == python
    assert (place / "complete.json").exists()


def test_without_a_cache_the_environment_is_thrown_away(check, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    Path("one.py").write_text(CUTE)
    result = check("one.py", "--no-cache", "--with", "nvidia-cutlass-dsl==4.8.1")
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nvidia-cutlass-dsl", "needs a package, == and a version, got 'nvidia-cutlass-dsl'"),
        ("jax>=0.11", "needs a package, == and a version"),
        ("jax==", "needs a package, == and a version"),
        ("jax==0.11.2;rm", "needs a package, == and a version"),
        ("--index-url==x", "needs a package, == and a version"),
        ("numpy==2.0", "names no DSL"),
    ],
)
def test_wrong_version_is_exit_code_2(check, text, words):
    Path("one.py").write_text(CUTE)
    result = check("one.py", f"--with={text}")
    assert result.exit_code == 2
    assert words in result.stderr


def test_what_a_pin_brings():
    jax = parse_wanted("JAX==0.11.2", "--with")
    assert isinstance(jax, Wanted)
    assert jax.requirements() == [
        "jax==0.11.2", "jax-cuda12-plugin==0.11.2", "jax-cuda12-pjrt==0.11.2", "absl-py>=2.0",
    ]  # fmt: skip
    own = parse_wanted("jax==0.11.2, jax-cuda13-plugin==0.11.2 jax-cuda13-pjrt==0.11.2", "--with")
    assert isinstance(own, Wanted)
    assert len(own.requirements()) == 4
    other = parse_wanted("python==9.9,nvidia_cutlass_dsl==4.8.1", "--with")
    assert isinstance(other, Wanted)
    assert (other.python, other.dsls) == ("9.9", {"cute"})
    assert other.requirements()[0] == "nvidia-cutlass-dsl==4.8.1"


def test_python_that_is_not_here(tmp_path):
    wanted = Wanted((("python", "9.9"), ("nvidia-cutlass-dsl", "4.8.1")))
    found = environment(wanted, tmp_path)
    assert isinstance(found, Problem)
    assert "there is no python9.9 on the PATH" in found.message


def test_environment_needs_nothing_but_the_standard_library():
    """The code that runs there imports no package that pipegen needs here."""
    import subprocess

    request = json.dumps({"modules": [], "jobs": 1, "timeout": 1, "cache_folder": None})
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pipegen.compiling.elsewhere"],
        input=request,
        env={"PYTHONPATH": str(Path(environments.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
