# SPDX-License-Identifier: Apache-2.0
"""Which files `generate` and `check` find: the same ones, whatever else lies in the folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sample_modules import header

from pipegen.compiling.discovery import discover, load_module
from pipegen.errors import InputError, Problem
from pipegen.generating import find_descriptions
from pipegen.searching import search

DESCRIPTION = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
OURS = {
    "plain": DESCRIPTION.encode(),
    "bom": b"\xef\xbb\xbf" + DESCRIPTION.encode(),
    "crlf": DESCRIPTION.replace("\n", "\r\n").encode(),
    "broken": b"pipegen = 1\n[kernel\n",
    "broken_bom": b"\xef\xbb\xbfpipegen=1\n[kernel\n",
    "utf16": DESCRIPTION.encode("utf-16"),
    "latin": DESCRIPTION.encode() + b"# \xff\n",
    "wrong_type": b'pipegen = "1"\n',
    "quoted": b'"pipegen" = 1\n',
    "many_digits": b"pipegen = 1\nx = " + b"9" * 5000 + b"\n",
    "deep": b"pipegen = 1\nx = " + b"[" * 5000,
    "huge": DESCRIPTION.encode() + b"#" * 1_100_000,
}
NOT_OURS = {
    "empty": b"",
    "other": b"[tool.black]\nline-length = 100\n",
    "script": b'[project.scripts]\npipegen = "pipegen.cli:main"\n',
    "broken_script": b'[project.scripts]\npipegen = "pipegen.cli:main"\n[x\n',
    "comment": b"# pipegen = 1\n[\n",
    "zeros": bytes(100),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k").mkdir()
    Path("k/good.toml").write_text(DESCRIPTION)


def found() -> list[str]:
    """What both commands find in k/, beside what is always there."""
    mine = find_descriptions([Path("k")])
    assert tuple(mine) == discover([Path("k")]).descriptions
    return [path.stem for path in mine if path.stem != "good"]


@pytest.mark.parametrize("name", OURS)
def test_description_is_found_by_both(name: str) -> None:
    Path("k", f"{name}.toml").write_bytes(OURS[name])
    assert found() == [name]


@pytest.mark.parametrize("name", NOT_OURS)
def test_other_toml_file_is_found_by_neither(name: str) -> None:
    Path("k", f"{name}.toml").write_bytes(NOT_OURS[name])
    assert found() == []


@pytest.mark.parametrize("suffix", ["toml", "py"])
def test_what_is_no_regular_file_is_passed_over(suffix: str) -> None:
    Path(f"k/folder.{suffix}").mkdir()
    Path(f"k/loop.{suffix}").symlink_to(f"loop.{suffix}")
    Path(f"k/nowhere.{suffix}").symlink_to("missing")
    os.mkfifo(f"k/pipe.{suffix}")
    assert found() == []
    assert discover([Path("k")]).problems == ()


def test_link_to_a_description_counts() -> None:
    Path("other").write_text(DESCRIPTION)
    Path("k/link.toml").symlink_to("../other")
    assert found() == ["link"]


@pytest.mark.parametrize("name", ["k/x.toml", "k/x.py"])
def test_unreadable_file_is_a_problem(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can read everything, so the refusal is made up."""
    Path(name).write_text(DESCRIPTION)
    normal = Path.open

    def refuse(path: Path, *args: object, **kwargs: object) -> object:
        if path.name == Path(name).name:
            raise PermissionError(13, "Permission denied", str(path))
        return normal(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    (problem,) = search(Path("k")).problems
    assert problem.paragraph() == f"{name}: cannot be read: Permission denied."
    assert discover([Path("k")]).problems == (problem,)
    if name.endswith(".toml"):
        with pytest.raises(InputError) as caught:
            find_descriptions([Path("k")])
        assert caught.value.problems == (problem,)


@pytest.mark.parametrize("name", [".venv/a.toml", "env/lib/a.toml", "__pycache__/a.toml"])
def test_hidden_folders_and_environments_are_left_out(name: str) -> None:
    path = Path("k", name)
    path.parent.mkdir(parents=True)
    path.write_text(DESCRIPTION)
    Path("k/env").mkdir(exist_ok=True)
    Path("k/env/pyvenv.cfg").write_text("")
    assert found() == []


@pytest.mark.parametrize(
    "pattern", ["bad", "bad/", "b*", "k/bad", "./k/bad", "one.*", "bad/*", "k/*/one.toml"]
)
def test_exclude_matches_names_and_paths(pattern: str) -> None:
    Path("k/bad").mkdir()
    Path("k/bad/one.toml").write_text(DESCRIPTION)
    Path("k/bad/one.py").write_text(header())
    excluded = discover([Path("k")], [pattern])
    assert [str(path) for path in excluded.descriptions] == ["k/good.toml"]
    named = discover([Path("k/bad/one.toml")], [pattern])
    assert [str(path) for path in named.descriptions] == ["k/bad/one.toml"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.toml", "does not exist"),
        ("good.toml/x", "does not exist"),
        ("nowhere.toml", "is a link to nowhere"),
        ("loop.toml", "cannot be read"),
        ("pipe.toml", "is neither a regular file nor a folder"),
        ("pipe.py", "is neither a regular file nor a folder"),
    ],
)
def test_named_path_that_is_no_file_is_one_problem(name: str, words: str) -> None:
    Path("k/nowhere.toml").symlink_to("missing")
    Path("k/loop.toml").symlink_to("loop.toml")
    os.mkfifo("k/pipe.toml")
    os.mkfifo("k/pipe.py")
    path = Path("k", name)
    with pytest.raises(InputError) as caught:
        find_descriptions([path])
    (problem,) = discover([path]).problems
    assert caught.value.problems == (problem,)
    assert words in problem.paragraph()
    assert problem.paragraph().count(str(path)) == 1


def test_named_file_counts_as_what_it_says() -> None:
    Path("k/k.txt").write_text(DESCRIPTION)
    Path("k/notes.txt").write_text("notes")
    assert discover([Path("k/k.txt")]).descriptions == (Path("k/k.txt"),)
    (problem,) = discover([Path("k/notes.txt")]).problems
    assert "is neither a description nor a module" in problem.message


def test_generate_of_a_module_names_its_description() -> None:
    Path("k/good.py").write_text(header())
    with pytest.raises(InputError, match=r"is a module; its description is .*: good\.toml"):
        find_descriptions([Path("k/good.py")])


def test_folder_is_no_module_and_says_its_path_once() -> None:
    Path("k/x.py").mkdir()
    problem = load_module(Path("k/x.py"))
    assert isinstance(problem, Problem)
    assert problem.paragraph() == "k/x.py: is a folder, and no Python source."


@pytest.mark.parametrize("command", [["generate", "--dry-run"], ["check", "--no-cache"]])
def test_commands_neither_crash_nor_wait(command: list[str]) -> None:
    Path("k/folder.toml").mkdir()
    Path("k/loop.toml").symlink_to("loop.toml")
    os.mkfifo("k/pipe.toml")
    done = subprocess.run(
        [sys.executable, "-m", "pipegen", *command, "k"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert "k/good.py" in done.stdout


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ('[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n', True),
        ('kernel = { op = "gemm", backend = "cute", arch = "sm_70" }\n', True),
        ('[kernel]\nop = "gemm"\narch = "x86"\n', False),
        ('kernel = "op, backend, arch"\n', False),
    ],
)
def test_a_description_need_not_say_its_format(tmp_path, text, ours):
    """`pipegen = 1` has a default: op, backend and arch together tell a description."""
    (tmp_path / "k.toml").write_text(text)
    assert ((tmp_path / "k.toml") in search(tmp_path).descriptions) == ours
