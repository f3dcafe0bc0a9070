# SPDX-License-Identifier: Apache-2.0
"""What README.md says is what the code does today."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from pipegen.cli import COMMANDS
from pipegen.description import KernelDescription
from pipegen.description_file import parse_description

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_result_tables_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "benchmarks/tables.py", "--check", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_described_kernel_is_a_description():
    (toml,) = fenced("toml")
    assert parse_description(toml).kernel.backend == "cute"


def test_the_table_of_keys_knows_every_section():
    for section, field in KernelDescription.model_fields.items():
        if section == "pipegen":
            continue
        assert f"`[{section}" in README, section
        annotation = field.annotation
        if hasattr(annotation, "model_fields"):
            row = next(line for line in README.splitlines() if line.startswith(f"| `[{section}"))
            for key in annotation.model_fields:
                if key not in ("op", "backend", "arch", "acc", "cta_group"):
                    assert f"`{key}`" in row, f"{section}.{key}"


def test_every_command_is_listed_and_no_other():
    listed = set(re.findall(r"^\| `pipegen (\w+)", README, re.MULTILINE))
    listed |= set(re.findall(r"^\| .*, `pipegen (\w+)", README, re.MULTILINE))
    assert listed == set(COMMANDS)


def test_the_python_example_runs():
    source = next(block for block in fenced("python") if "KernelDescription" in block)
    names: dict[str, object] = {}
    exec(source, names)
    assert list(names["files"]) == ["my_gemm.py"]


def test_the_error_example_is_what_is_printed(pipegen, tmp_path):
    block = next(block for block in fenced("text") if block.startswith("error:"))
    path = tmp_path / "gemm.toml"
    path.write_text(
        'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
        "[tile]\nn = 300\n[cluster]\nshape = [2, 3]\n"
    )
    assert pipegen("plan", "gemm.toml").stderr == block


def test_the_two_commands_install_what_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for marker in ("main command", "test command"):
        block = README.split(f"<!-- {marker} -->")[1].split("```")[1]
        words = shlex.split(block.removeprefix("sh\n"))
        (requirement,) = [word for word in words if word.startswith(".[")]
        assert requirement[2:-1] in project["optional-dependencies"]
