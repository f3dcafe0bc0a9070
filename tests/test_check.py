# SPDX-License-Identifier: Apache-2.0
"""`pipegen check` as it is called: what it finds, freshness, exit codes, formats, cache."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sample_modules import header, pretender

from pipegen.cli import main
from pipegen.compiling import checking, freshness, pool
from pipegen.compiling.discovery import discover
from pipegen.compiling.freshness import Renderer, judge
from pipegen.compiling.installed import Dsl
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.errors import InputError
from pipegen.vendor.header import header_lines, read_header, sign

DESCRIPTION = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
CALLS: list[str] = []


def text_of(body: str = "x = 1\n", description: str = DESCRIPTION, template: str = "a") -> str:
    """An emitted file."""
    head = header_lines(
        "gemm", "cute", "sm_90a", "cute/t.py.j2", template * 12, "a DSL", description
    )
    return sign(head + "# --compile-only\n" + body)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, a cache of its own, and both DSLs as if they were here."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(checking, "dsl", Dsl)
    CALLS.clear()


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes no time and finds what the module's text tells it to find."""

    def compile_module(module: object, *_: object) -> CompileResult:
        CALLS.append(module.path.name)  # type: ignore[attr-defined]
        status = "spills" if "SPILLS" in module.text else "ok"  # type: ignore[attr-defined]
        kernel = Kernel("k_0", "sm_90a", 168, 8, 8, 0, 1024)
        return CompileResult(status, "8 B" if status == "spills" else "", (kernel,))

    monkeypatch.setattr(pool, "compile_module", compile_module)


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the descriptions stand for: file name -> text; rendering is counted in CALLS."""
    files: dict[str, str] = {}

    def generate_one(path: Path) -> dict[Path, str]:
        CALLS.append(path.name)
        if "wrong" in path.name:
            raise InputError(f"{path}: is wrong")
        name = f"{path.stem}.py"
        return {path.parent / name: files.get(name, text_of())}

    monkeypatch.setattr("pipegen.generating.generate_one", generate_one)
    return files


def check(*args: object) -> Result:
    """`pipegen check ARGS`."""
    return CliRunner().invoke(main, ["check", *map(str, args)], catch_exceptions=False)


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# What is found.


def test_path_that_does_not_exist_is_exit_code_2() -> None:
    result = check("nowhere", "--format", "text")
    assert result.exit_code == 2
    assert result.stderr == "error: nowhere: does not exist.\n"
    assert result.stdout == ""


def test_nothing_found_is_exit_code_2_with_a_paragraph() -> None:
    write("pyproject.toml", '[project.scripts]\npipegen = "pipegen.cli:main"\n')
    write("other.py", "print('not ours')\n")
    result = check(".")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: nothing to check in .: no TOML file with a line")
    data = json.loads(check(".", "--format", "json").stdout)
    assert (data["exit_code"], len(data["problems"]), data["modules"]) == (2, 1, [])


def test_wrong_kind_of_file_is_exit_code_2() -> None:
    write("notes.md", "# notes\n")
    assert "neither a description nor a module" in check("notes.md").stderr


def test_file_without_header_needs_a_dsl_and_compile_only(instant: None) -> None:
    write("plain.py", "import numpy\n")
    result = check("plain.py")
    assert result.exit_code == 2
    assert "imports neither cutlass nor jax's Pallas" in result.stderr
    write("own.py", "import cutlass\n# --compile-only\n")
    result = check("own.py", "--arch", "b200", "--format", "json")
    assert result.exit_code == 0
    (module,) = json.loads(result.stdout)["modules"]
    assert (module["backend"], module["arch"], module["fresh"]) == ("cute", "sm_100a", None)


def test_file_that_is_no_text_is_exit_code_2() -> None:
    Path("bytes.py").write_bytes(b"\xff\xfe# --compile-only\n")
    assert "is not UTF-8" in check("bytes.py").stderr


def test_folders_are_searched_and_environments_are_not() -> None:
    write("a/one.toml", DESCRIPTION)
    write("a/one.py", text_of())
    write("a/broken.toml", "pipegen = 1\n[kernel\n")
    write("a/wrong_type.toml", 'pipegen = "1"\n')
    write("a/notes.py", "print(1)\n")
    write(".hidden/two.py", text_of())
    write("a/__pycache__/three.py", text_of())
    write("env/pyvenv.cfg", "")
    write("env/lib/four.py", text_of())
    found = discover([Path(".")])
    names = ["a/broken.toml", "a/one.toml", "a/wrong_type.toml"]
    assert [str(path) for path in found.descriptions] == names
    assert [str(path) for path in found.modules] == ["a/one.py"]


def test_named_module_brings_its_description(instant: None, rendered: dict[str, str]) -> None:
    write("one.toml", DESCRIPTION)
    write("one.py", text_of("x = 2\n"))
    assert "stale" in check("one.py").stdout


def test_module_named_twice_is_checked_once(instant: None) -> None:
    write("k/one.py", text_of())
    data = json.loads(check("k", "k/one.py", Path("k").resolve(), "--format", "json").stdout)
    assert [module["path"] for module in data["modules"]] == ["k/one.py"]
    assert CALLS == ["one.py"]


def test_current_folder_is_the_default(instant: None) -> None:
    write("one.py", text_of())
    assert check().exit_code == 0


# Freshness.

TODAY = text_of("x = 2\n", template="b")


@pytest.mark.parametrize(
    ("current", "state", "words"),
    [
        (TODAY, "fresh", ""),
        (None, "missing", "run `pipegen generate`"),
        (text_of("x = 1\n", template="a"), "stale", "its template changed; nobody edited it"),
        (
            text_of("x = 2\n", DESCRIPTION.replace("gemm", "stream"), "b"),
            "stale",
            "its description changed; nobody edited it",
        ),
        (text_of("x = 1\n", template="b"), "stale", "pipegen writes it differently"),
        (TODAY + "mine = 1\n", "edited", "description and template are current"),
        (text_of("x = 2\n", template="a") + "mine = 1\n", "stale", "and the file was edited"),
        (
            text_of("x = 2\n", DESCRIPTION.replace("gemm", "stream"), "b") + "mine = 1\n",
            "stale",
            "its description changed, and the file was edited",
        ),
        ("x = 1\n", "stale", "has no pipegen header"),
    ],
)
def test_freshness(current: str | None, state: str, words: str) -> None:
    fresh = judge(current, TODAY)
    assert fresh.state == state
    assert words in fresh.message
    assert fresh.failed == (state in ("stale", "missing"))


@pytest.mark.parametrize(
    ("text", "state", "code"),
    [
        (text_of(), "fresh", 0),
        (text_of() + "mine = 1\n", "edited", 0),
        (text_of("x = 0\n"), "stale", 1),
        (None, "missing", 1),
    ],
)
def test_freshness_decides_the_exit_code(
    text: str | None, state: str, code: int, instant: None, rendered: dict[str, str]
) -> None:
    write("k/one.toml", DESCRIPTION)
    if text is not None:
        write("k/one.py", text)
    result = check("k", "--format", "json")
    data = json.loads(result.stdout)
    assert result.exit_code == data["exit_code"] == code
    (module,) = data["modules"]
    assert (module["path"], module["fresh"]) == ("k/one.py", state)
    assert data["counts"][state] == 1
    assert (module["compile"] is None) == (text is None)


def test_wrong_description_does_not_hide_the_others(
    instant: None, rendered: dict[str, str]
) -> None:
    write("k/wrong.toml", DESCRIPTION)
    write("k/one.toml", DESCRIPTION)
    write("k/one.py", text_of())
    result = check("k")
    assert result.exit_code == 2
    assert result.stderr == "error: k/wrong.toml: is wrong.\n"
    assert "k/one.py" in result.stdout


def test_rendering_is_remembered(instant: None, rendered: dict[str, str]) -> None:
    write("one.toml", DESCRIPTION)
    write("one.py", text_of())
    for _ in range(2):
        assert check().exit_code == 0
    assert CALLS == ["one.toml", "one.py"]
    write("one.toml", DESCRIPTION + "\n")
    assert check().exit_code == 0
    assert CALLS[2:] == ["one.toml"]


def test_remembered_rendering_depends_on_the_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = write("one.toml", DESCRIPTION)
    renders: list[Path] = []

    def render(path: Path) -> dict[Path, str]:
        renders.append(path)
        return {path.with_suffix(".py"): "text"}

    renderer = Renderer(tmp_path / "cache", render)
    assert renderer.files(description) == renderer.files(description) == {Path("one.py"): "text"}
    assert len(renders) == 1
    monkeypatch.setattr(freshness, "render_key", lambda *_: "ff" * 32)
    renderer.files(description)
    assert len(renders) == 2
    # An entry that is no rendering is not believed.
    (entry,) = (tmp_path / "cache").glob(f"**/{'ff' * 32}.json")
    entry.write_text(json.dumps({"key": "ff" * 32, "value": {"one.py": 3}}))
    assert renderer.files(description) == {Path("one.py"): "text"}
    assert len(renders) == 3


def test_real_description_is_fresh_after_generate(instant: None) -> None:
    write("k/one.toml", DESCRIPTION)
    generated = CliRunner().invoke(main, ["generate", "k"], catch_exceptions=False)
    assert generated.exit_code == 0, generated.output
    result = check("k", "--format", "json")
    assert result.exit_code == 0, result.output
    (module,) = json.loads(result.stdout)["modules"]
    assert (module["fresh"], module["compile"]["status"]) == ("fresh", "ok")
    # The same from the cache of rendered texts, and after an edit.
    assert check("k").exit_code == 0
    with Path("k/one.py").open("a") as file:
        file.write("\nMINE = 1\n")
    assert json.loads(check("k", "--format", "json").stdout)["counts"]["edited"] == 1


def vendored(edit: str = "", template: str = "", description: str = "") -> dict[str, str]:
    """A real module without its description, changed as told: its freshness in JSON."""
    write("k/one.toml", DESCRIPTION)
    generated = CliRunner().invoke(main, ["generate", "k"], catch_exceptions=False)
    assert generated.exit_code == 0, generated.output
    text = Path("k/one.py").read_text()
    Path("k/one.toml").unlink()
    header_now = read_header(text)
    assert header_now is not None
    if template:
        text = text.replace(header_now.template_digest, template)
    if description:
        text = text.replace('#   op = "gemm"', f"#   {description}")
    if template or description:  # as an older pipegen would have signed it
        text = sign(text.replace(f"# text: {header_now.text_digest}", "# text: " + "0" * 12))
    write("k/one.py", text + edit)
    result = check("k", "--format", "json")
    assert result.exit_code == 0, result.output
    (module,) = json.loads(result.stdout)["modules"]
    assert isinstance(module, dict)
    return module


@pytest.mark.parametrize(("edit", "state"), [("", "pristine"), ("\nMINE = 1\n", "edited")])
def test_module_without_its_description_is_judged_by_its_header(
    edit: str, state: str, instant: None
) -> None:
    module = vendored(edit)
    assert module["fresh"] == state
    assert module["fresh_message"].endswith("no description beside it")
    text = check("k").stdout
    assert text.splitlines()[0].split()[3] == state
    assert text.splitlines()[1] == f"1 module: 1 compiled (1 from the cache), 1 {state}"


@pytest.mark.parametrize(("edit", "state"), [("", "pristine"), ("\nMINE = 1\n", "edited")])
def test_newer_template_is_a_notice_for_a_module_without_its_description(
    edit: str, state: str, instant: None
) -> None:
    module = vendored(edit, template="0123456789ab")
    assert module["fresh"] == state
    result = check("k")
    assert result.exit_code == 0
    assert f"notice: k/one.py: {state}: a newer template exists" in result.stdout


def test_header_that_this_pipegen_refuses_is_a_notice(instant: None) -> None:
    assert vendored(description='op = "unheard of"')["fresh"] == "pristine"
    assert "does not accept the description in its header any more" in check("k").stdout


def test_wrong_description_leaves_its_module_unjudged(
    instant: None, rendered: dict[str, str]
) -> None:
    write("k/wrong.toml", DESCRIPTION)
    write("k/wrong.py", text_of())
    result = check("k", "--format", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["modules"][0]["fresh"] is None


def test_two_descriptions_of_one_module_are_exit_code_2(
    instant: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pipegen.generating.generate_one", lambda path: {path.parent / "same.py": text_of()}
    )
    write("k/one.toml", DESCRIPTION)
    write("k/two.toml", DESCRIPTION)
    write("k/same.py", text_of())
    result = check("k", "k/one.toml", Path("k").resolve())
    assert result.exit_code == 2
    assert "k/two.toml: stands for same.py, and so does one.toml" in result.stderr


def test_exclude_leaves_out_what_would_fail(instant: None) -> None:
    write("k/one.py", text_of())
    write("k/old/bad.py", text_of("# SPILLS\n"))
    assert check("k").exit_code == 1
    assert check("k", "--exclude", "none", "--exclude", "old").exit_code == 0
    nothing = check("k", "--exclude", "*")
    assert nothing.exit_code == 2
    assert "nothing to check" in nothing.stderr


def test_help_explains_the_words() -> None:
    text = check("--help").stdout
    for word in ("fresh ", "stale ", "missing ", "edited ", "pristine ", "~/.cache/pipegen"):
        assert word in text


# Compiling.


def test_finding_is_exit_code_1_in_each_format(instant: None) -> None:
    write("one.py", text_of("# SPILLS\n"))
    text = check()
    assert text.exit_code == 1
    assert "error: one.py: spills registers: 8 B" in text.stdout
    github = check("--format", "github")
    assert github.exit_code == 1
    assert "::error file=one.py,line=1,title=spills registers::8 B" in github.stdout
    data = json.loads(check("--format", "json").stdout)
    assert data["modules"][0]["compile"]["status"] == "spills"
    assert data["modules"][0]["compile"]["spill_bytes"] == 8


def test_missing_dsl_is_said_aloud_and_fails_only_where_required(
    instant: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Dsl("cute", reason="it is not installed", command="pip install 'pipegen[cute]'")
    monkeypatch.setattr(checking, "dsl", lambda name: missing if name == "cute" else Dsl(name))
    write("one.py", text_of())
    write("two.py", text_of().replace("| cute |", "| pallas |"))
    result = check()
    assert result.exit_code == 0
    assert (
        "skipped: 1 module was not compiled (cute): it is not installed. "
        "To enable: pip install 'pipegen[cute]'" in result.stdout
    )
    assert result.stdout.endswith("2 modules: 1 compiled, 1 pristine, 1 edited, 1 SKIPPED\n")
    assert check("--require", "pallas").exit_code == 0
    required = check("--require", "pallas,cute")
    assert required.exit_code == 1
    assert "This run requires it." in required.stdout


@pytest.mark.parametrize(
    "option",
    [
        ("--require", "tilelang"),
        ("--arch", "sm_12"),
        ("--jobs", "0"),
        ("--timeout", "0"),
        ("--timeout", "nan"),
        ("--timeout", "inf"),
        ("--timeout", "1e300"),
    ],
)
def test_wrong_option_is_exit_code_2(option: tuple[str, str]) -> None:
    write("one.py", text_of())
    result = check(*option)
    assert result.exit_code == 2
    assert option[0] in result.stderr


def test_second_run_of_thirty_modules_compiles_nothing(
    instant: None, rendered: dict[str, str]
) -> None:
    for number in range(30):
        write(f"k/m{number}.toml", DESCRIPTION)
        write(f"k/m{number}.py", text_of())
    assert check("k").exit_code == 0
    # The modules are equal: the first ones compiled serve the others of a later run only.
    assert len(CALLS) == 60
    result = check("k", "--format", "json")
    assert len(CALLS) == 60
    assert json.loads(result.stdout)["counts"]["cached"] == 30
    assert check("k", "--no-cache").exit_code == 0
    assert len(CALLS) == 120


def test_as_a_process(tmp_path: Path) -> None:
    """Without stand-ins: a module that is well, one that hangs, and plain text in a pipe."""
    write("well.py", pretender().replace("none.py.j2", "t"))
    write("hang.py", header() + "print('so far', flush=True)\nwhile True:\n    pass\n")
    code = (
        "from pipegen.compiling import checking\n"
        "from pipegen.compiling.installed import Dsl\n"
        "checking.dsl = Dsl\n"
        "from pipegen.cli import main\n"
        "main(['check', '.', '--timeout', '2.5'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split()[:5] == ["hang.py", "cute", "sm_90a", "edited", "timeout"]
    assert lines[1].split()[:5] == ["well.py", "cute", "sm_90a", "edited", "ok"]
    assert lines[2] == (
        "error: hang.py: hangs the compiler: did not finish in 2.5 s and was stopped. "
        "Its last output:"
    )
    assert lines[3:] == ["so far", "2 modules: 1 compiled, 2 edited, 1 failed the compile check"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_check_stops_the_compilers(number: signal.Signals) -> None:
    write("hang.py", header() + "import os, time\nopen(os.environ['NOTE'], 'w').write("
          "str(os.getpid()))\ntime.sleep(60)\n")  # fmt: skip
    note = Path("note").resolve()
    code = (
        # A shell's background job is started with SIGINT ignored, and so are its children.
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pipegen.compiling import checking\n"
        "from pipegen.compiling.installed import Dsl\n"
        "checking.dsl = Dsl\n"
        "from pipegen.cli import main\n"
        "main(['check', '.'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"NOTE": str(note)}, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert b"Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
