# SPDX-License-Identifier: Apache-2.0
"""`diff` and `update`: three-way merges that keep every edit, whatever happens on the way."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vendored import DESCRIPTION, LINES, PROJECT, Renders, commit_all, emitted, git

from pipegen import rendering
from pipegen.vendor import merging, transaction
from pipegen.vendor.lock import base_path, read_lock
from pipegen.vendor.merging import conflicts, merge
from pipegen.vendor.project import read_project
from pipegen.vendor.updating import Outcome, apply, decide, survey

ROOT = Path(__file__).parent.parent


@pytest.fixture
def renders(pipegen, monkeypatch):
    """A project with three modules, generated and committed; the texts are made up."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / ".cache"))
    stand_in = Renders()
    monkeypatch.setattr("pipegen.generating.generate_one", stand_in)
    monkeypatch.setattr("pipegen.compiling.freshness.render_key", lambda *_: stand_in.key(*_))
    write("pipegen.toml", PROJECT)
    for name in ("one", "three", "two"):
        write(f"kernels/{name}.toml", DESCRIPTION)
    assert pipegen("generate").exit_code == 0
    commit_all()
    return stand_in


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def body(**changed: str) -> tuple[str, ...]:
    """The lines of the made-up module, some of them changed: `body(value_3="7")`."""
    return tuple(
        (
            f"{line.split(' ')[0]} = {changed[line.split(' ')[0]]}"
            if line.split(" ")[0] in changed
            else line
        )
        for line in LINES
    )


def edit(name: str, old: str, new: str) -> None:
    path = Path(name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def outcomes(result) -> dict[str, str]:
    return {line.split()[1]: line.split()[0] for line in result.stdout.splitlines()}


# The command.


def test_update_without_news_changes_nothing(pipegen, renders):
    before = {path: path.read_bytes() for path in Path(".").rglob("*.*") if path.is_file()}
    result = pipegen("update")
    assert result.exit_code == 0
    assert set(outcomes(result).values()) == {"unchanged"}
    assert {p: p.read_bytes() for p in Path(".").rglob("*.*") if p.is_file()} == before
    assert git("status", "--porcelain") == ""


def test_update_merges_lists_and_keeps(pipegen, renders):
    edit("kernels/one.py", "value_3 = 3\n", "value_3 = 33  # mine\n")
    edit("kernels/two.py", "value_9 = 9\n", "value_9 = 99  # mine\n")
    commit_all()
    renders.texts |= {name: emitted(body(value_9="8"), "b") for name in ("one", "two", "three")}
    shown = pipegen("diff")
    assert shown.exit_code == 1
    assert "-value_9 = 9\n+value_9 = 8\n" in shown.stdout
    assert "would be conflicted kernels/two.py" in shown.stdout
    assert git("status", "--porcelain") == ""
    result = pipegen("update")
    assert result.exit_code == 1
    assert outcomes(result) == {
        "kernels/one.py": "merged",
        "kernels/three.py": "updated",
        "kernels/two.py": "conflicted",
    }
    one = Path("kernels/one.py").read_text()
    assert "value_3 = 33  # mine\n" in one
    assert "value_9 = 8\n" in one
    assert "# template: cute/t.py.j2 bbbbbbbbbbbb\n" in one
    two = Path("kernels/two.py").read_text()
    assert (
        "<<<<<<< yours\nvalue_9 = 99  # mine\n||||||| what pipegen wrote before\nvalue_9 = 9\n"
        "=======\nvalue_9 = 8\n>>>>>>> what pipegen writes now\n"
    ) in two
    data = json.loads(pipegen("check", "--level", "fresh", "--format", "json").stdout)
    found = {module["path"]: module["fresh"] for module in data["modules"]}
    assert found == {
        "kernels/one.py": "edited",
        "kernels/three.py": "fresh",
        "kernels/two.py": "conflicted",
    }
    # A file with marks is left alone until they are gone; then all is well.
    commit_all()
    again = pipegen("update")
    assert again.exit_code == 1
    assert outcomes(again)["kernels/two.py"] == "unresolved"
    assert Path("kernels/two.py").read_text() == two
    start, end = two.index("<<<<<<< "), two.index(">>>>>>> ")
    settled = two[:start] + "value_9 = 99 + 8\n" + two[two.index("\n", end) + 1 :]
    write("kernels/two.py", settled)
    commit_all()
    last = pipegen("update")
    assert last.exit_code == 0
    assert outcomes(last)["kernels/two.py"] == "edited"
    assert Path("kernels/two.py").read_text() == settled


def test_deleted_stays_deleted_until_generate(pipegen, renders):
    Path("kernels/one.py").unlink()
    commit_all()
    renders.texts["one"] = emitted(template="b")
    result = pipegen("update")
    assert result.exit_code == 0
    assert outcomes(result)["kernels/one.py"] == "deleted"
    assert not Path("kernels/one.py").exists()
    assert "created   kernels/one.py" in pipegen("generate").stdout


def test_orphan_is_listed_and_left_and_leaves_the_lock_with_its_file(pipegen, renders):
    Path("kernels/one.toml").unlink()
    commit_all()
    assert outcomes(pipegen("update"))["kernels/one.py"] == "orphan"
    assert "kernels/one.py" in read_lock(Path("pipegen.lock")).entries
    Path("kernels/one.py").unlink()
    commit_all()
    assert pipegen("update").exit_code == 0
    assert "kernels/one.py" not in read_lock(Path("pipegen.lock")).entries
    assert not base_path(Path("kernels/one.py")).exists()


def test_dirty_tree_is_refused_unless_forced(pipegen, renders):
    renders.texts["one"] = emitted(template="b")
    edit("kernels/two.py", "value_3 = 3\n", "value_3 = 33\n")
    refused = pipegen("update")
    assert refused.exit_code == 2
    assert "kernels/two.py is not committed: commit first" in refused.stderr
    assert Path("kernels/one.py").read_text() == emitted()
    assert pipegen("update", "--dry-run").exit_code == 0
    assert pipegen("update", "--force").exit_code == 0
    assert Path("kernels/one.py").read_text() == emitted(template="b")
    assert "value_3 = 33\n" in Path("kernels/two.py").read_text()


def test_changed_description_and_new_files_are_no_dirt(pipegen, renders):
    renders.texts["one"] = emitted(template="b")
    write("kernels/one.toml", DESCRIPTION + "\n")
    write("notes.txt", "mine\n")
    assert pipegen("update").exit_code == 0


def test_ignored_or_unknown_to_git_is_dirt_if_it_would_change(pipegen, renders):
    git("rm", "-q", "--cached", "kernels/one.py")
    git("commit", "-q", "-m", "out of git")
    renders.texts["one"] = emitted(template="b")
    assert "kernels/one.py is not committed" in pipegen("update").stderr
    write(".gitignore", "kernels/one.py\n")
    git("add", ".gitignore")
    git("commit", "-q", "-m", "ignored")
    assert "one.py is ignored by git" in pipegen("update").stderr


def test_no_repository_is_refused_unless_forced(pipegen, renders):
    shutil.rmtree(".git")
    renders.texts["one"] = emitted(template="b")
    refused = pipegen("update")
    assert refused.exit_code == 2
    assert "is in no git repository" in refused.stderr
    assert pipegen("update", "--force").exit_code == 0


def test_edited_file_whose_base_is_lost_is_refused(pipegen, renders):
    edit("kernels/one.py", "value_3 = 3\n", "value_3 = 33\n")
    base_path(Path("kernels/one.py")).write_text("something else\n")
    commit_all()
    renders.texts["one"] = emitted(template="b")
    text = Path("kernels/one.py").read_text()
    result = pipegen("update")
    assert result.exit_code == 1
    assert outcomes(result)["kernels/one.py"] == "refused"
    assert Path("kernels/one.py").read_text() == text


def test_file_that_was_taken_back_from_git_is_no_edit(pipegen, renders):
    renders.texts["one"] = emitted(body(value_9="8"), "b")
    pipegen("update")
    commit_all()
    write("kernels/one.py", emitted())  # the old file, with the new base
    commit_all()
    assert outcomes(pipegen("update"))["kernels/one.py"] == "updated"


def test_only_what_was_named_is_updated(pipegen, renders):
    renders.texts |= {name: emitted(template="b") for name in ("one", "two", "three")}
    assert set(outcomes(pipegen("update", "kernels/one.py", "kernels/two.toml"))) == {
        "kernels/one.py",
        "kernels/two.py",
    }
    assert Path("kernels/three.py").read_text() == emitted()
    stranger = pipegen("update", "elsewhere")
    assert stranger.exit_code == 2
    assert "elsewhere: holds nothing of the project" in stranger.stderr


def test_json_lists_every_module(pipegen, renders):
    renders.texts["one"] = emitted(template="b")
    data = json.loads(pipegen("update", "--format", "json").stdout)
    assert {entry["path"]: entry["outcome"] for entry in data} == {
        "kernels/one.py": "updated",
        "kernels/three.py": "unchanged",
        "kernels/two.py": "unchanged",
    }


def test_diff_mine_shows_the_owners_edits(pipegen, renders):
    assert pipegen("diff").exit_code == pipegen("diff", "--mine").exit_code == 0
    edit("kernels/one.py", "value_3 = 3\n", "value_3 = 33\n")
    result = pipegen("diff", "--mine")
    assert result.exit_code == 1
    assert "-value_3 = 3\n+value_3 = 33\n" in result.stdout
    assert pipegen("diff").exit_code == 0


def test_wrong_description_updates_nothing(pipegen, renders):
    renders.texts["one"] = emitted(template="b")
    renders.wrong.add("two")
    result = pipegen("update")
    assert result.exit_code == 2
    assert "kernels/two.toml: is wrong" in result.stderr
    assert Path("kernels/one.py").read_text() == emitted()


def test_two_at_once_do_not_mix(pipegen, renders):
    with transaction.exclusive(Path(".")):
        result = pipegen("update")
    assert result.exit_code == 2
    assert "another pipegen is writing here" in result.stderr


def test_line_ends_of_an_editor_are_kept(pipegen, renders):
    path = Path("kernels/one.py")
    path.write_bytes(
        emitted().replace("value_3 = 3", "value_3 = 33").replace("\n", "\r\n").encode()
    )
    commit_all()
    renders.texts["one"] = emitted(body(value_9="8"), "b")
    assert outcomes(pipegen("update"))["kernels/one.py"] == "merged"
    text = path.read_bytes()
    assert b"value_3 = 33\r\n" in text
    assert b"value_9 = 8\r\n" in text
    assert text.count(b"\n") == text.count(b"\r\n")


def test_base_that_git_gave_other_line_ends_is_a_base(pipegen, renders):
    edit("kernels/one.py", "value_3 = 3\n", "value_3 = 33\n")
    base = base_path(Path("kernels/one.py"))
    base.write_bytes(base.read_bytes().replace(b"\n", b"\r\n"))
    commit_all()
    renders.texts["one"] = emitted(body(value_9="8"), "b")
    assert outcomes(pipegen("update"))["kernels/one.py"] == "merged"


def test_linked_module_stays_a_link(pipegen, renders):
    Path("kernels/one.py").rename("elsewhere.py")
    Path("kernels/one.py").symlink_to("../elsewhere.py")
    commit_all()
    renders.texts["one"] = emitted(template="b")
    assert outcomes(pipegen("update"))["kernels/one.py"] == "updated"
    assert Path("kernels/one.py").is_symlink()
    assert Path("elsewhere.py").read_text() == emitted(template="b")


def test_without_git_a_merge_is_an_error_and_a_plain_update_is_not(monkeypatch):
    monkeypatch.setattr(merging.shutil, "which", lambda _: None)
    assert merge("a\n", "a\n", "b\n").text == "b\n"
    with pytest.raises(ValueError, match="merging needs git"):
        merge("a\n", "b\n", "c\n")


# A real kernel, whose description or template changes (a stage count, a tile, a cluster).


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("[pipeline.mainloop]\nstages = 3\n", "[pipeline.mainloop]\nstages = 2\n", "STAGES = 2"),
        ("[tile]\nm = 128\nn = 256\n", "[tile]\nm = 128\nn = 192\n", "192"),
        (
            "[cluster]\nshape = [1, 1]\n",
            "[cluster]\nshape = [2, 1]\n",
            "CLUSTER_M, CLUSTER_N = 2, 1",
        ),
    ],
    ids=["stages", "tile", "cluster"],
)
def test_changed_description_flows_into_an_edited_kernel(pipegen, before, after, expected):
    write("pipegen.toml", PROJECT)
    description = write("kernels/one.toml", DESCRIPTION + before)
    assert pipegen("generate").exit_code == 0
    module = Path("kernels/one.py")
    old = module.read_text()
    marked = next(n for n, line in enumerate(old.splitlines()) if "Yours" in line and n > 20)
    lines = old.splitlines(keepends=True)
    lines.insert(marked + 1, "    # my own activation stands here\n")
    module.write_text("".join(lines))
    commit_all()
    description.write_text(DESCRIPTION + after)
    result = pipegen("update")
    assert result.exit_code == 0, result.output
    assert outcomes(result) == {"kernels/one.py": "merged"}
    text = module.read_text()
    assert "    # my own activation stands here\n" in text
    assert expected in text
    # Without the edit it is what a fresh copy would be.
    fresh = base_path(module).read_text()
    assert text.replace("    # my own activation stands here\n", "") == fresh != old
    compile(text, "one.py", "exec")


def test_changed_template_flows_into_an_edited_kernel(pipegen, tmp_path, monkeypatch):
    write("pipegen.toml", PROJECT)
    write("kernels/one.toml", DESCRIPTION)
    assert pipegen("generate").exit_code == 0
    module = Path("kernels/one.py")
    module.write_text(module.read_text() + "\n# mine, at the end\n")
    commit_all()
    assert outcomes(pipegen("update")) == {"kernels/one.py": "edited"}
    newer = tmp_path / "templates"
    shutil.copytree(ROOT / "templates", newer)
    template = newer / "cute" / "gemm_sm90.py.j2"
    source = template.read_text()
    assert "import argparse\n" in source
    template.write_text(source.replace("import argparse\n", "import argparse\nimport bisect\n"))
    monkeypatch.setattr(rendering, "template_folder", lambda: newer)
    rendering._environment.cache_clear()
    try:
        assert pipegen("check", "--level", "fresh", "--no-cache").exit_code == 1
        assert outcomes(pipegen("update")) == {"kernels/one.py": "merged"}
    finally:
        rendering._environment.cache_clear()
    text = module.read_text()
    assert "import bisect\n" in text
    assert text.endswith("\n# mine, at the end\n")


# Killed at any moment.


def kill_at(step: int, action) -> bool:
    """Run `action` in a child that dies at its `step`-th call of the system; whether it died.

    Each file that is opened, renamed, removed, made or synchronised counts as a step.
    """
    child = os.fork()
    if child == 0:
        count = 0

        def die_in_time(*_: object) -> None:
            nonlocal count
            count += 1
            if count == step:
                os._exit(77)

        def hook(event: str, _: object) -> None:
            if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.scandir"):
                die_in_time()

        synchronise = os.fsync

        def dying_fsync(descriptor: int) -> None:
            die_in_time()
            synchronise(descriptor)

        os.fsync = dying_fsync
        sys.addaudithook(hook)
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 77), f"the child ended with {code} at step {step}"
    return code == 77


def test_killed_at_every_write_the_tree_holds_the_old_or_the_new_text(pipegen, renders):
    edit("kernels/one.py", "value_3 = 3\n", "value_3 = 33  # mine\n")
    edit("kernels/two.py", "value_9 = 9\n", "value_9 = 99  # mine\n")
    commit_all()
    renders.texts |= {name: emitted(body(value_9="8"), "b") for name in ("one", "two", "three")}
    project = read_project(Path("pipegen.toml"))
    assert project is not None

    def update() -> None:
        with transaction.exclusive(project.folder):
            seen = survey(project, renders)
            apply(project, seen.lock, seen.changes, "1")

    def contents() -> dict[str, bytes]:
        paths = sorted([*Path("kernels").rglob("*"), Path("pipegen.lock")])
        return {str(p): p.read_bytes() for p in paths if p.is_file() and p.suffix != ".toml"}

    old = contents()
    shutil.copytree(".", "../saved")
    update()
    new = contents()
    assert {path for path in new if new[path] != old[path]} == set(new)
    seen_old = seen_new = step = 0
    died = True
    while died:
        step += 1
        for path, data in old.items():
            Path(path).write_bytes(data)
        died = kill_at(step, update)
        now = {p: d for p, d in contents().items() if transaction.TEMPORARY not in p}
        assert set(now) == set(old)
        for path, data in now.items():
            assert data in (old[path], new[path]), f"step {step}: {path}"
        half_done = transaction.interrupted(project.folder)
        seen_new += all(now[path] == new[path] for path in now)
        seen_old += all(now[path] == old[path] for path in now)
        assert half_done or now in (old, new), f"step {step}: neither old nor new"
        if half_done:
            assert "was stopped half-way" in pipegen("check", "--level", "fresh").stderr
        # The next run ends where an undisturbed one does, and leaves nothing behind.
        update()
        assert contents() == new, f"step {step}"
        assert not transaction.interrupted(project.folder)
    assert step > 30
    assert seen_old > 10
    assert seen_new > 1


def test_what_cannot_be_written_changes_nothing(pipegen, renders, monkeypatch):
    renders.texts |= {name: emitted(template="b") for name in ("one", "two", "three")}

    calls = 0
    synchronise = os.fsync

    def no_space(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        synchronise(descriptor)

    monkeypatch.setattr(os, "fsync", no_space)
    result = pipegen("update")
    assert result.exit_code == 2
    assert "No space left on device. Nothing was changed" in result.stderr
    assert git("status", "--porcelain") == ""


# Every edit is kept.

MINE, THEIRS = "# mine", "# theirs"


@st.composite
def two_sets_of_changes(draw):
    """Lines of a file, and for each side the lines it inserts before, replaces or removes.

    Between a line that one side touches and one that the other touches lies one at least that
    neither does.
    """
    count = draw(st.integers(3, 40))
    distinct = draw(st.booleans())
    lines = [
        f"line {n}" if distinct else draw(st.sampled_from(["", ")", "x = 1", f"line {n}"]))
        for n in range(count)
    ]
    sides: dict[str, dict[int, str]] = {MINE: {}, THEIRS: {}}
    for n in range(count):
        side = draw(st.sampled_from([None, None, None, MINE, THEIRS]))
        other = {MINE: THEIRS, THEIRS: MINE}.get(side or "", "")
        if side and not any(n + step in sides[other] for step in (-2, -1, 0, 1, 2)):
            sides[side][n] = draw(st.sampled_from(["insert", "replace", "remove"]))
    return lines, sides[MINE], sides[THEIRS]


def changed(lines: list[str], *sides: tuple[str, dict[int, str]]) -> str:
    """The text after each side's changes."""
    out: list[str] = []
    for n, line in enumerate(lines):
        does = next(((mark, side[n]) for mark, side in sides if n in side), None)
        if does is None:
            out.append(line)
            continue
        mark, action = does
        if action != "remove":
            out.append(f"{mark} {n}")
        if action == "insert":
            out.append(line)
    return "".join(f"{line}\n" for line in out)


@settings(max_examples=150, deadline=None)
@given(two_sets_of_changes())
@example((["a", "b", "c"], {0: "replace"}, {2: "replace"}))
def test_every_edit_and_every_template_change_is_kept(changes):
    lines, mine, theirs = changes
    base = changed(lines)
    ours = changed(lines, (MINE, mine))
    new = changed(lines, (THEIRS, theirs))
    merged = merge(base, ours, new)
    for mark, side in ((MINE, mine), (THEIRS, theirs)):
        for n, action in side.items():
            if action != "remove":
                assert f"{mark} {n}\n" in merged.text
    if len(set(lines)) == len(lines):
        assert merged.conflicts == 0
        assert merged.text == changed(lines, (MINE, mine), (THEIRS, theirs))
    elif merged.conflicts == 0:
        # Equal lines may be told apart in another way; no line is lost or made up.
        expected = changed(lines, (MINE, mine), (THEIRS, theirs))
        assert sorted(merged.text.splitlines()) == sorted(expected.splitlines())
    else:
        assert len(conflicts(merged.text)) == merged.conflicts


REAL = (ROOT / "generated" / "cute" / "gemm_sm90_c1x1.py").read_text()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_edit_of_a_real_kernel_survives_an_update(data):
    lines = REAL.splitlines()
    places = st.sets(st.integers(30, len(lines) - 1), max_size=12)
    theirs = {n: data.draw(st.sampled_from(["insert", "replace"])) for n in data.draw(places)}
    near = {n + step for n in theirs for step in (-2, -1, 0, 1, 2)}
    mine = {n: data.draw(st.sampled_from(["insert", "replace"])) for n in data.draw(places)}
    mine = {n: action for n, action in mine.items() if n not in near}
    ours = changed(lines, (MINE, mine))
    new = changed(lines, (THEIRS, theirs))
    change = decide(Path("k.py"), ours, REAL, new, known=True, create=False)
    expected = changed(lines, (MINE, mine), (THEIRS, theirs))
    if not theirs or not mine:
        expected = new if not mine else ours
        assert change.outcome in (Outcome.UPDATED, Outcome.EDITED, Outcome.UNCHANGED)
    assert change.after == expected
    assert change.outcome is not Outcome.CONFLICTED
