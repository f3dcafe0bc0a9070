# SPDX-License-Identifier: Apache-2.0
"""`pipegen doctor`: versions that fit, that are missing, that are known to be bad."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipegen.cli import main
from pipegen.compiling import cubin, diagnosis, installed
from pipegen.compiling.diagnosis import Ability, one_command, parse_gpus
from pipegen.compiling.installed import dsl, version_key

CUTE = {"nvidia-cutlass-dsl": "4.8.1", "nvidia-cutlass-dsl-libs-cu12": "4.8.1"}
PALLAS = {
    "jax": "0.12.0.1",
    "jaxlib": "0.12.0.1",
    "jax-cuda12-plugin": "0.12.0.1",
    "jax-cuda12-pjrt": "0.12.0.1",
}
H200 = "NVIDIA H200, 9.0, 570.1, 143771 MiB\n"


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The packages that are installed, as far as pipegen can see; all of them import well."""
    found = CUTE | PALLAS
    monkeypatch.setattr(installed, "version_of", lambda name: found.get(name, ""))
    monkeypatch.setattr(diagnosis, "version_of", lambda name: found.get(name, ""))
    monkeypatch.setattr(diagnosis, "_import_fault", lambda name: "")
    monkeypatch.setattr(diagnosis, "_gpus", lambda: [])
    origins = {"cutlass": "/site/nvidia_cutlass_dsl/cutlass/__init__.py"}
    monkeypatch.setattr(installed, "_origin", lambda module: origins.get(module, ""))
    return found


def doctor(*args: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *args], catch_exceptions=False)


def data() -> dict[str, object]:
    result = doctor("--format", "json")
    found: dict[str, object] = json.loads(result.stdout)
    assert found["exit_code"] == result.exit_code
    return found


def states() -> dict[str, str]:
    abilities = data()["abilities"]
    assert isinstance(abilities, list)
    return {ability["name"]: ability["state"] for ability in abilities}


def test_all_is_well(packages: dict[str, str]) -> None:
    assert dsl("cute").usable
    assert dsl("pallas").usable
    found = data()
    assert (found["exit_code"], found["command"]) == (0, "")
    assert found["cutlass_flavour"] == "cu12"
    assert states() == {
        "select, plan, generate, freshness": "yes",
        "compile cute modules (no GPU needed)": "yes",
        "compile pallas modules (no GPU needed)": "yes",
        "check the schedules of cute-ts modules (no GPU needed)": "yes",
        "run cute modules": "no",
        "run pallas modules": "no",
    }


def test_nothing_installed_is_no_fault_and_one_command_adds_all(packages: dict[str, str]) -> None:
    packages.clear()
    found = data()
    assert found["exit_code"] == 0
    assert found["command"] == "pip install 'pipegen[cute,pallas]'"
    assert found["packages"] == {}
    text = doctor()
    assert text.exit_code == 0
    assert "no      compile cute modules" in text.stdout
    assert "nvidia-cutlass-dsl is not installed" in text.stdout
    assert "pip install 'pipegen[cute,pallas]'" in text.stdout


@pytest.mark.parametrize(
    ("name", "change", "words", "command", "broken"),
    [
        ("cute", {"nvidia-cutlass-dsl": "4.5.2"}, "4.5.2 is older than 4.8", ">=4.8'", True),
        ("pallas", {"jax": "0.9.2"}, "jax 0.9.2 is older than 0.10.2", "jax>=0.10.2", True),
        ("pallas", {"jax-cuda12-plugin": "0.12.0"}, "jax will not use it", "==0.12.0.1", True),
        ("pallas", {"jaxlib": ""}, "jaxlib is missing", "jaxlib==0.12.0.1", True),
        ("pallas", {"jax-cuda12-pjrt": ""}, "the CUDA plug-in of jax", "pipegen[pallas]", False),
        (
            "pallas",
            dict.fromkeys(PALLAS, "0.10.2"),
            "jax 0.10.2 imports absl",
            "pip install absl-py",
            False,
        ),
    ],
)
def test_bad_versions_are_named(
    packages: dict[str, str],
    name: str,
    change: dict[str, str],
    words: str,
    command: str,
    broken: bool,
) -> None:
    packages.update(change)
    for key in [key for key, version in packages.items() if not version]:
        del packages[key]
    state = dsl(name)
    assert not state.usable
    assert words in state.reason
    assert command in state.command
    assert state.broken == broken
    assert data()["exit_code"] == (1 if broken else 0)


def test_cuda_13_plugin_serves_as_well(packages: dict[str, str]) -> None:
    for part in ("plugin", "pjrt"):
        packages[f"jax-cuda13-{part}"] = packages.pop(f"jax-cuda12-{part}")
    assert dsl("pallas").usable


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("", "its module cutlass is not found"),
        ("/site/cutlass/__init__.py", "another package hides the DSL"),
    ],
)
def test_cutlass_that_is_not_the_dsl_is_broken(
    packages: dict[str, str], monkeypatch: pytest.MonkeyPatch, origin: str, words: str
) -> None:
    monkeypatch.setattr(installed, "_origin", lambda _: origin)
    assert words in dsl("cute").reason
    assert states()["compile cute modules (no GPU needed)"] == "broken"


def test_dsl_that_does_not_import_is_broken(
    packages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = "`import cutlass.cute` fails: ImportError: libfoo.so"
    monkeypatch.setattr(diagnosis, "_import_fault", lambda name: fault if name == "cute" else "")
    result = doctor()
    assert result.exit_code == 1
    assert f"broken  compile cute modules (no GPU needed): {fault}" in result.stdout
    assert "--force-reinstall nvidia-cutlass-dsl==4.8.1" in result.stdout


def test_gpu_decides_what_can_run(
    packages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_gpus", lambda: parse_gpus(H200))
    found = states()
    assert (found["run cute modules"], found["run pallas modules"]) == ("yes", "no")
    assert data()["command"] == "pip install 'pipegen[pallas-run]'"
    packages["nvidia-cublas-cu12"] = "12.9"
    assert states()["run pallas modules"] == "yes"
    del packages["nvidia-cutlass-dsl"]
    assert states()["run cute modules"] == "no"
    monkeypatch.setattr(diagnosis, "_gpus", lambda: parse_gpus(H200.replace("9.0", "8.0")))
    assert states()["run pallas modules"] == "no"


def test_nvidia_smi_output() -> None:
    assert parse_gpus(H200 + "garbage\n") == [
        {
            "name": "NVIDIA H200",
            "compute_capability": "9.0",
            "driver": "570.1",
            "memory": "143771 MiB",
        }
    ]


@pytest.mark.parametrize(
    ("script", "count"),
    [(f"echo '{H200.strip()}'", 1), ("exit 9", 0), ("echo no devices", 0)],
)
def test_nvidia_smi_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, count: int
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert len(diagnosis._gpus()) == count


def test_no_nvidia_smi_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert diagnosis._gpus() == []


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("import json", ""),
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("import os; os.abort()", "exit code -6"),
    ],
)
def test_import_is_tried_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, statement: str, fault: str
) -> None:
    monkeypatch.setitem(diagnosis._IMPORTS, "cute", statement)
    found = diagnosis._import_fault("cute")
    assert found.endswith(fault)
    assert bool(found) == bool(fault)


def test_import_that_hangs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_args: object, **_kwargs: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(subprocess, "run", run)
    assert "did not finish" in diagnosis._import_fault("cute")


def test_one_command_joins_extras_and_repairs() -> None:
    abilities = [
        Ability("a", "no", "", "pip install 'pipegen[cute]'"),
        Ability("b", "broken", "", "pip install absl-py"),
        Ability("c", "no", "", "pip install 'pipegen[pallas-run]'"),
        Ability("d", "no", "", "pip install absl-py"),
        Ability("e", "yes"),
    ]
    assert one_command(abilities) == (
        "pip install absl-py && pip install 'pipegen[cute,pallas-run]'"
    )


def test_cuobjdump_is_found_in_its_package_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)

    def missing(_name: str) -> None:
        raise cubin.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(cubin.importlib.metadata, "files", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cubin.find_cuobjdump.__wrapped__() == str(tool)
    monkeypatch.setenv("PATH", "")
    assert cubin.find_cuobjdump.__wrapped__() == ""


def test_versions_compare_by_number() -> None:
    assert version_key("0.12.0.1") > version_key("0.12.0") > version_key("0.9.9")
    assert version_key("4.10.0rc1") > version_key("4.9")
    assert version_key("unknown") == ()


def test_real_doctor_runs_here() -> None:
    result = doctor("--format", "json")
    found = json.loads(result.stdout)
    assert found["python"]
    assert {ability["state"] for ability in found["abilities"]} <= {"yes", "no", "broken"}
