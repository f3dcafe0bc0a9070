# SPDX-License-Identifier: Apache-2.0
"""The house's own rules: linters, types, module sizes, start-up time, and the wheel."""

import resource
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from pipegen.selection_table import kernels

ROOT = Path(__file__).parent.parent
OURS = ("pipegen", "tests", "benchmarks")


def run(*args: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(arg) for arg in args], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", *OURS),
        ("black", "--check", "--quiet", *OURS),
        ("mypy",),
    ],
    ids=lambda command: command[0],
)
def test_linter(command):
    done = run(sys.executable, "-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_emitted_files_pass_ruff_with_its_default_rules():
    done = run(sys.executable, "-m", "ruff", "check", "--isolated", "generated")
    assert done.returncode == 0, done.stdout


def test_no_module_is_crowded():
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "pipegen").rglob("*.py")
    }
    assert {str(path): n for path, n in lengths.items() if n > 400} == {}


def test_every_file_has_a_licence_line():
    paths = [path for top in OURS for path in (ROOT / top).rglob("*.py")]
    paths += (ROOT / "generated").rglob("*.py")
    assert len(paths) > 50
    for path in paths:
        assert path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: Apache-2.0")


@pytest.mark.parametrize("arguments", [("--help",), ("table",)], ids=" ".join)
def test_start_up_is_quick_and_imports_no_dsl(arguments):
    """Under 0.25 s, and never a GPU DSL."""
    bare = min(cpu_seconds("-c", "import click") for _ in range(3))
    taken = min(cpu_seconds("-m", "pipegen", *arguments) for _ in range(5))
    assert taken < max(0.25, 3.5 * bare)
    code = (
        "import sys; from pipegen.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'cutlass', 'jax', 'torch', 'numpy', 'black', 'jinja2', 'pydantic'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = run(sys.executable, "-c", code)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def cpu_seconds(*arguments: str, cwd: Path = ROOT) -> float:
    """Processor time of one Python process.

    Unlike wall time it hardly depends on what else runs; where two processes share a core's units,
    it grows for all alike, so that a limit may follow what the bare libraries take.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(sys.executable, *arguments, cwd=cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imported(*arguments: str, cwd: Path = ROOT) -> set[str]:
    """Every module that one call of pipegen imports."""
    code = (
        "import sys; from pipegen.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "except SystemExit as end: assert not end.code\n"
        "print('IMPORTED', *sys.modules)"
    )
    done = run(sys.executable, "-c", code, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


NEW = ("new", "k", "--op", "gemm", "--backend", "cute", "--arch", "sm_90a", "--dry-run")


# What a call may import of ours: a few more than it does today. Seconds depend on who else runs;
# what is imported does not, and is what makes a call slow.
@pytest.mark.parametrize(
    ("arguments", "most"),
    [(("--help",), 3), (("table",), 12), (NEW, 75)],
    ids=["help", "table", "new"],
)
def test_a_call_imports_few_modules(arguments, most, tmp_path):
    ours = {name for name in imported(*arguments, cwd=tmp_path) if name.startswith("pipegen")}
    assert len(ours) <= most, sorted(ours)


def test_new_imports_no_other_family(tmp_path):
    """Planners and rules of other ops stay where they are: they cost more than all the rest."""
    names = imported(*NEW, cwd=tmp_path)
    assert "pipegen.planning.gemm_sm90_cute" in names
    others = ("custom", "stream", "rows", "mixed_sm90_cute", "gemm_sm100_cute", "gemm_sm90_pallas")
    assert not {f"pipegen.planning.{other}" for other in others} & names
    assert not {"pipegen.barriers", "pipegen.rules.pg270_graph_words", "rich.console"} & names
    assert not {"cutlass", "jax", "torch", "numpy", "matplotlib", "dask"} & names


def test_every_family_finds_what_it_imports_late():
    import importlib

    from pipegen.planning.families import FAMILIES

    assert len(FAMILIES) > 10
    for family in FAMILIES.values():
        for late in (family.fill, family.plan):
            found = getattr(importlib.import_module(late.__module__), late.__name__)
            assert callable(found)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The `pipegen` of a fresh environment that has the built wheel, not this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "dist", ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    done = run(folder / "env" / "bin" / "pip", "install", "--quiet", wheel)
    assert done.returncode == 0, done.stderr
    return folder / "env" / "bin" / "pipegen"


def test_the_wheel_writes_the_same_kernels_from_another_folder(installed, tmp_path):
    """The example of each template; that the templates write all the others is a test of theirs."""
    examples = {each.example for variants in kernels().values() for each in variants}
    for module in examples:
        description = (ROOT / module).with_suffix(".toml")
        (tmp_path / description.name).write_bytes(description.read_bytes())
    done = run(installed, "generate", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = sorted(tmp_path.glob("*.py"))
    assert len(written) == len(examples) > 20
    for path in written:
        (golden,) = (ROOT / "generated").glob(f"*/{path.name}")
        assert path.read_text() == golden.read_text()


def test_the_wheel_has_its_types_and_its_table(installed, tmp_path):
    done = run(installed, "table", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    site = next((installed.parent.parent / "lib").glob("python*/site-packages/pipegen"))
    assert (site / "py.typed").exists()
    assert list((site / "templates").rglob("*.j2"))
