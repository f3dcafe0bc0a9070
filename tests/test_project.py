# SPDX-License-Identifier: Apache-2.0
"""Projects: their file, the lock, `init`, `generate`, `new`, and the states that `check` tells."""

import json
from pathlib import Path

import pytest
from vendored import DESCRIPTION, PROJECT, Renders, emitted

from pipegen.vendor.lock import base_path, dump_lock, read_lock
from pipegen.vendor.project import find_project, members, read_project


@pytest.fixture
def renders(pipegen, monkeypatch):
    """Texts that are made up; the command runs in an empty folder with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / ".cache"))
    stand_in = Renders()
    monkeypatch.setattr("pipegen.generating.generate_one", stand_in)
    monkeypatch.setattr("pipegen.compiling.freshness.render_key", lambda *_: stand_in.key(*_))
    return stand_in


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def states(pipegen, *arguments: object) -> dict[str, str]:
    data = json.loads(pipegen("check", "--level", "fresh", "--format", "json", *arguments).stdout)
    return {Path(module["path"]).as_posix(): module["fresh"] for module in data["modules"]}


# The project file.


def test_project_is_found_from_below_and_not_beyond_the_repository(pipegen, monkeypatch):
    write("pipegen.toml", PROJECT)
    below = Path("a/b")
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    found = find_project()
    assert found is not None
    assert found.file == Path("../../pipegen.toml")
    Path(".git").mkdir()
    assert find_project() is None


def test_project_in_pyproject(pipegen):
    write("pyproject.toml", '[project]\nname = "x"\n')
    assert find_project() is None
    write("pyproject.toml", '[tool.pipegen]\ndescriptions = ["k/*.toml"]\narchs = ["h100"]\n')
    found = find_project()
    assert found is not None
    assert (found.descriptions, found.archs) == (("k/*.toml",), ("sm_90a",))
    write("pyproject.toml", "[tool.pipegen\n")
    assert find_project() is None  # broken, and not by us


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "descriptions: is missing"),
        ('descriptions = "kernels"\n', 'descriptions = "kernels": must be a list of words'),
        ('descriptions = [""]\n', "must be a list of words"),
        ('descriptions = ["/etc"]\n', "must lie below the project file's folder"),
        ('descriptions = ["k"]\noutput = "../x"\n', "must lie below the project file's folder"),
        ('descriptions = ["k"]\noutput = 3\n', "output = 3: must be a folder's name"),
        ('descriptions = ["k"]\narchs = ["sm_12"]\n', 'archs = "sm_12": no such architecture'),
        ('descriptions = ["k"]\noutpt = "x"\n', "Nearest valid choice: output"),
        ("descriptions = [\n", "cannot be read"),
    ],
)
def test_wrong_project_file_is_a_paragraph_and_exit_code_2(pipegen, text, words):
    write("pipegen.toml", text)
    for command in ("check", "generate", "update", "diff"):
        result = pipegen(command)
        assert result.exit_code == 2, command
        assert result.stderr.startswith("error: pipegen.toml: ")
        assert words in result.stderr


def test_entry_that_stands_for_nothing_is_a_problem(pipegen):
    write("pipegen.toml", 'descriptions = ["kernels", "other/*.toml"]\n')
    write("kernels/one.toml", DESCRIPTION)
    project = read_project(Path("pipegen.toml"))
    assert project is not None
    found, problems = members(project)
    assert found == [Path("kernels/one.toml")]
    assert [problem.value for problem in problems] == ["other/*.toml"]
    assert pipegen("check").exit_code == 2


# init, generate, new.


def test_init_writes_a_project_once(pipegen):
    result = pipegen("init", "descriptions", "--output", "src/kernels")
    assert result.exit_code == 0, result.output
    project = find_project()
    assert project is not None
    assert (project.descriptions, project.output) == (("descriptions",), "src/kernels")
    again = pipegen("init")
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert pipegen("init", "../x").exit_code == 2


def test_without_project_or_paths_there_is_nothing_to_generate(pipegen):
    result = pipegen("generate")
    assert result.exit_code == 2
    assert "`pipegen init` makes one" in result.stderr
    for command in ("update", "diff"):
        assert "there is no project here" in pipegen(command).stderr


def test_generate_writes_modules_bases_and_lock_and_then_nothing(pipegen, renders):
    write("pipegen.toml", PROJECT + 'output = "src/k"\n')
    write("kernels/one.toml", DESCRIPTION)
    write("kernels/two.toml", DESCRIPTION)
    result = pipegen("generate")
    assert result.exit_code == 0, result.output
    assert result.stdout == "created   src/k/one.py\ncreated   src/k/two.py\n"
    assert base_path(Path("src/k/one.py")).read_text() == Path("src/k/one.py").read_text()
    lock = read_lock(Path("pipegen.lock"))
    assert set(lock.entries) == {"src/k/one.py", "src/k/two.py"}
    assert lock.entries["src/k/one.py"].description == "kernels/one.toml"
    assert dump_lock(lock) == Path("pipegen.lock").read_text()
    times = {path: path.stat().st_mtime_ns for path in Path(".").rglob("*") if path.is_file()}
    again = pipegen("generate")
    assert again.stdout == "unchanged src/k/one.py\nunchanged src/k/two.py\n"
    assert {p: p.stat().st_mtime_ns for p in Path(".").rglob("*") if p.is_file()} == times
    assert states(pipegen) == {"src/k/one.py": "fresh", "src/k/two.py": "fresh"}


def test_generate_writes_only_what_changes(pipegen, renders):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    write("kernels/two.toml", DESCRIPTION)
    pipegen("generate")
    renders.texts["two"] = emitted(template="b")
    before = Path("kernels/one.py").stat().st_mtime_ns
    assert "updated   kernels/two.py" in pipegen("generate", "--dry-run").stdout
    assert Path("kernels/two.py").read_text() == emitted()
    assert "+# template: cute/t.py.j2 bbbbbbbbbbbb" in pipegen("generate", "--diff").stdout
    assert "updated   kernels/two.py" in pipegen("generate").stdout
    assert Path("kernels/one.py").stat().st_mtime_ns == before
    assert base_path(Path("kernels/two.py")).read_text() == emitted(template="b")


def test_generate_leaves_an_edited_file_alone(pipegen, renders):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    pipegen("generate")
    edited = emitted().replace("value_3 = 3", "value_3 = 33")
    write("kernels/one.py", edited)
    result = pipegen("generate")
    assert (result.exit_code, result.stdout) == (0, "edited    kernels/one.py\n")
    renders.texts["one"] = emitted(template="b")
    result = pipegen("generate")
    assert result.exit_code == 2
    assert "`pipegen update` merges the two" in result.stderr
    assert Path("kernels/one.py").read_text() == edited


def test_description_for_an_architecture_that_is_not_listed(pipegen, renders):
    write("pipegen.toml", PROJECT + 'archs = ["sm_100a"]\n')
    write("kernels/one.toml", DESCRIPTION)
    for command in ("generate", "check"):
        result = pipegen(command)
        assert result.exit_code == 2
        assert "the project ships for sm_100a only" in result.stderr
    assert not Path("kernels/one.py").exists()


def test_two_descriptions_of_one_module(pipegen, renders):
    write("pipegen.toml", 'descriptions = ["a", "b"]\noutput = "k"\n')
    write("a/one.toml", DESCRIPTION)
    write("b/one.toml", DESCRIPTION)
    for command in ("generate", "check"):
        result = pipegen(command)
        assert result.exit_code == 2
        assert "one.toml: stands for" in result.stderr


def test_generate_of_paths_knows_what_is_of_the_project(pipegen, renders):
    write("pipegen.toml", PROJECT + 'output = "src"\n')
    write("kernels/one.toml", DESCRIPTION)
    write("elsewhere/two.toml", DESCRIPTION)
    result = pipegen("generate", "kernels", "elsewhere")
    assert result.exit_code == 0, result.output
    assert Path("src/one.py").exists()
    assert Path("elsewhere/two.py").exists()
    assert set(read_lock(Path("pipegen.lock")).entries) == {"src/one.py"}


def test_new_in_a_project_goes_into_the_lock(pipegen):
    assert pipegen("init", "--output", "src").exit_code == 0
    options = ("--op", "gemm", "--backend", "cute", "--arch", "sm_90a", "-o")
    result = pipegen("new", "one", *options, "kernels")
    assert result.exit_code == 0, result.output
    assert "created   src/one.py" in result.stdout
    assert set(read_lock(Path("pipegen.lock")).entries) == {"src/one.py"}
    outside = pipegen("new", "two", *options, "elsewhere")
    assert "is no part of the project" in outside.stdout
    # A module that is somebody's: neither file is written.
    write("src/three.py", "mine = 1\n")
    refused = pipegen("new", "three", *options, "kernels")
    assert refused.exit_code == 2
    assert not Path("kernels/three.toml").exists()
    assert Path("src/three.py").read_text() == "mine = 1\n"


# The states.


def test_check_tells_the_states_apart(pipegen, renders):
    write("pipegen.toml", PROJECT)
    names = ("fresh", "stale", "missing", "orphan", "conflicted", "edited", "both")
    for name in names:
        write(f"kernels/{name}.toml", DESCRIPTION)
    assert pipegen("generate").exit_code == 0
    renders.texts |= {name: emitted(template="b") for name in ("stale", "both")}
    Path("kernels/missing.py").unlink()
    Path("kernels/orphan.toml").unlink()
    for name in ("edited", "both"):
        write(f"kernels/{name}.py", emitted() + "mine = 1\n")
    torn = "<<<<<<< yours\nvalue_3 = 33\n=======\nvalue_3 = 4\n>>>>>>> theirs\n"
    write("kernels/conflicted.py", emitted() + torn)
    assert states(pipegen) == {
        f"kernels/{name}.py": "stale" if name == "both" else name for name in names
    }
    result = pipegen("check", "--level", "fresh")
    assert result.exit_code == 1
    for words in (
        "kernels/stale.py: stale: its template changed; nobody edited it",
        "kernels/both.py: stale: its template changed, and the file was edited: `pipegen update`",
        "kernels/orphan.py: orphan: no description of the project stands for it",
        "kernels/conflicted.py: conflicted: marks of a conflict on line",
        "7 modules: 1 fresh, 1 edited, 2 stale, 1 missing, 1 orphaned, 1 conflicted",
    ):
        assert words in result.stdout


@pytest.mark.parametrize("name", ["stale", "missing", "orphan", "conflicted"])
def test_each_kind_of_trouble_fails_alone(pipegen, renders, name):
    write("pipegen.toml", PROJECT)
    write("kernels/other.toml", DESCRIPTION)
    write(f"kernels/{name}.toml", DESCRIPTION)
    pipegen("generate")
    assert pipegen("check", "--level", "fresh").exit_code == 0
    module = Path(f"kernels/{name}.py")
    if name == "stale":
        renders.texts[name] = emitted(template="b")
    elif name == "missing":
        module.unlink()
    elif name == "orphan":
        module.with_suffix(".toml").unlink()
    else:
        module.write_text(emitted() + "<<<<<<< a\n=======\n>>>>>>> b\n")
    assert pipegen("check", "--level", "fresh").exit_code == 1
    assert states(pipegen)[module.as_posix()] == name


def test_edited_is_reported_and_fails_only_where_it_must_be_pristine(pipegen, renders):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    pipegen("generate")
    assert pipegen("check", "--level", "fresh", "--pristine").exit_code == 0
    write("kernels/one.py", emitted() + "mine = 1\n")
    assert pipegen("check", "--level", "fresh").exit_code == 0
    strict = pipegen("check", "--level", "fresh", "--pristine")
    assert strict.exit_code == 1
    assert "this run allows no edits (--pristine)" in strict.stdout


def test_edited_file_without_its_base_says_where_to_get_it(pipegen, renders):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    pipegen("generate")
    write("kernels/one.py", emitted() + "mine = 1\n")
    base_path(Path("kernels/one.py")).unlink()
    # As long as pipegen still writes the same text, the base is known without the file.
    assert states(pipegen) == {"kernels/one.py": "edited"}
    renders.texts["one"] = emitted(template="b")
    result = pipegen("check", "--level", "fresh")
    assert result.exit_code == 1
    assert "not in .base, or does not fit pipegen.lock" in result.stdout


def test_module_in_the_output_folder_that_nobody_describes_is_an_orphan(pipegen, renders):
    write("pipegen.toml", PROJECT + 'output = "src"\n')
    write("kernels/one.toml", DESCRIPTION)
    pipegen("generate")
    write("src/sub/stranger.py", emitted())
    assert states(pipegen) == {"src/one.py": "fresh", "src/sub/stranger.py": "orphan"}


def test_module_that_is_named_is_judged_by_the_projects_description(pipegen, renders):
    write("pipegen.toml", PROJECT + 'output = "src"\n')
    write("kernels/one.toml", DESCRIPTION)
    pipegen("generate")
    renders.texts["one"] = emitted(template="b")
    assert states(pipegen, "src/one.py") == {"src/one.py": "stale"}
    assert states(pipegen, "src") == {"src/one.py": "stale"}


def test_exclude_applies_to_a_project(pipegen, renders):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    write("kernels/old/two.toml", DESCRIPTION)
    pipegen("generate")
    Path("kernels/old/two.py").unlink()
    assert states(pipegen) == {"kernels/one.py": "fresh", "kernels/old/two.py": "missing"}
    assert states(pipegen, "--exclude", "kernels/old/*") == {"kernels/one.py": "fresh"}


def test_wrong_description_makes_no_orphan(pipegen, renders):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    pipegen("generate")
    renders.wrong.add("one")
    write("kernels/one.toml", DESCRIPTION + "\n")
    result = pipegen("check", "--level", "fresh", "--format", "json")
    assert result.exit_code == 2
    assert "orphan" not in {module["fresh"] for module in json.loads(result.stdout)["modules"]}


@pytest.mark.parametrize("text", ["version = 2\n", "[[file]]\n", "version = 1\nfile = 3\n", "["])
def test_broken_lock_is_a_paragraph_and_exit_code_2(pipegen, renders, text):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    write("pipegen.lock", text)
    for command in ("check", "generate", "update", "diff"):
        result = pipegen(command)
        assert result.exit_code == 2, command
        assert "pipegen.lock: is no lock of pipegen" in result.stderr


def test_existing_edited_module_is_adopted(pipegen, renders):
    write("kernels/one.toml", DESCRIPTION)
    write("kernels/one.py", emitted() + "mine = 1\n")
    pipegen("init")
    assert pipegen("generate").stdout == "edited    kernels/one.py\n"
    assert base_path(Path("kernels/one.py")).read_text() == emitted()
