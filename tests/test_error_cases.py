# SPDX-License-Identifier: Apache-2.0
"""Each folder of cases/ is a faulty description and the paragraphs it must get.

`make golden` rewrites the paragraphs; the diff is for a reviewer to read.
"""

from pathlib import Path

import pytest

from pipegen.description_file import load_description
from pipegen.errors import InputError
from pipegen.planning import plan

CASES = sorted(path.parent for path in Path(__file__).parent.glob("cases/*/kernel.toml"))


def paragraphs(case: Path) -> str:
    """What the command prints for the case, with the file's name alone."""
    with pytest.raises(InputError) as caught:
        plan(load_description(case / "kernel.toml"))
    return str(caught.value).replace(f"{case}/", "") + "\n"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_paragraphs(case: Path) -> None:
    assert paragraphs(case) == (case / "errors.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_command_exits_with_2(case: Path, pipegen, tmp_path) -> None:
    for command in ("plan", "generate"):
        result = pipegen(command, case / "kernel.toml")
        assert result.exit_code == 2
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        lines = result.stderr.splitlines()
        assert all(line.startswith("error: ") for line in lines)
        assert len(lines) == len((case / "errors.txt").read_text(encoding="utf-8").splitlines())
    assert list(tmp_path.iterdir()) == []
    assert not (case / "kernel.py").exists()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_paragraph_helps(case: Path) -> None:
    """File, key, value, what is allowed, and the nearest valid choice where a value has one."""
    with pytest.raises(InputError) as caught:
        plan(load_description(case / "kernel.toml"))
    for problem in caught.value.problems:
        assert problem.file
        if problem.message.startswith("is not TOML"):
            assert "(at line " in problem.message
            continue
        assert problem.key
        assert problem.allowed
        missing = "is missing" in problem.message
        names_a_table = problem.key.count(".") == 1 and problem.value is None
        assert problem.value is not None or missing or names_a_table
        unlike_anything = problem.message in ("unknown key", "wrong type")
        assert problem.nearest or missing or unlike_anything, problem
