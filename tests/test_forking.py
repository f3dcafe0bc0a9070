# SPDX-License-Identifier: Apache-2.0
"""Children of a process that has imported a DSL: they end as processes of their own would."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sample_modules import CUTE, PALLAS, header, pretender

from pipegen.compiling import fork_pool, forking, pool
from pipegen.compiling.cache import CompileCache
from pipegen.compiling.early_imports import IMPORTS, imports_first
from pipegen.compiling.fork_pool import ForkServers
from pipegen.compiling.forking import ForkServer, ServerLost, can_fork
from pipegen.compiling.installed import Dsl, dsl
from pipegen.compiling.module import Module, read_module
from pipegen.compiling.process import Cancelled, Outcome, run

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(not can_fork(), reason="no fork with pidfd_open here")


@pytest.fixture(scope="module")
def server():
    """A server that has imported one small module of the standard library."""
    made = ForkServer(["colorsys"], {**os.environ, "PYTHONFAULTHANDLER": "1"}, 60)
    yield made
    made.close()


@pytest.fixture
def lone_server():
    """A server that a test may hurt."""
    made = ForkServer([], os.environ, 60)
    yield made
    made.close()


def gone(pid: int) -> bool:
    """Whether a process ends within two seconds (a zombie has)."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


SCRIPTS = {
    "ends": "print('well')",
    "sees its place": (
        "import os, sys\n"
        "print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), sys.stdin.read())\n"
        "print(sys.modules['__main__'].__dict__ is globals(), __doc__, __package__, __spec__)"
    ),
    "sees its variables": (
        "import os, tempfile\n"
        "print(tempfile.gettempdir(), sorted(os.environ.items()))\n"
        "os.system('echo $GIVEN $TMPDIR $OPENBLAS_NUM_THREADS')"
    ),
    "leads its session": "import os\nprint(os.getsid(0) == os.getpgrp() == os.getpid())",
    "raises": (
        "def f(deep):\n    return f(deep - 1) if deep else 1 / deep\n"
        "try:\n    f(3)\nexcept ZeroDivisionError as error:\n    raise ValueError('so') from error"
    ),
    "has a wrong syntax": "print('no'\nimport os\n",
    "exits with a number": "import sys\nsys.exit(7)",
    "exits with a large number": "import sys\nsys.exit(256 + 3)",
    "exits with a truth": "raise SystemExit(True)",
    "exits with words": "import sys\nsys.exit('no kernel')",
    "exits with nothing": "raise SystemExit",
    "has its own hook": (
        "import sys\nsys.excepthook = lambda kind, *_: print('hook', kind)\nraise KeyError"
    ),
    "is written to the end": "import sys\nsys.stdout.write('x' * 100_000 + 'end')",
    "writes by C": "import ctypes\nctypes.CDLL(None).printf(b'from C')",
    "runs its exit functions": "import atexit\natexit.register(print, 'at the end')\n1 / 0",
    "waits for its threads": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()"
    ),
    "leaves a daemon": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('well')"
    ),
    "leaves by itself": "import os\nos._exit(9)",
    "crashes": "import ctypes, os\nos.environ['X'] = 'y'\nctypes.string_at(0)",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "shows its source": (
        "import inspect\nclass C:\n    '''of C'''\ndef f():\n    return 1\n"
        "print(inspect.getsource(C), inspect.getsource(f))"
    ),
    "can be pickled": (
        "import pickle\nclass C:\n    pass\n"
        "print(type(pickle.loads(pickle.dumps(C()))) is C, C.__module__)"
    ),
}


def both(server: ForkServer, folder: Path, text: str) -> list[Outcome]:
    """How a script ends in a process of its own, and in the server's child."""
    script = folder / "script.py"
    script.write_text(text)
    kept = {name: value for name, value in os.environ.items() if name != "OLDPWD"}
    environment = {**kept, "GIVEN": "ä b", "TMPDIR": str(folder), "PYTHONFAULTHANDLER": "1"}
    command = [str(script), "--compile-only", "x y"]
    return [
        run([sys.executable, *command], environment, folder, 30),
        server.run(command, environment, folder, 30),
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_ends_as_in_a_process_of_its_own(server, tmp_path, name):
    """Return code and output, to the last character."""
    alone, child = both(server, tmp_path, SCRIPTS[name])
    assert child.returncode == alone.returncode
    if name != "crashes":  # there the fault handler shows the frames below the script, too
        assert child.output == alone.output
    else:
        assert "Fatal Python error: Segmentation fault" in child.output
        assert f'File "{tmp_path}/script.py", line 3 in <module>' in child.output


def test_what_an_import_sets_stays_and_what_a_run_does_does_not(tmp_path):
    """A DSL tells itself by variables where its libraries are; a script is told by nobody else."""
    (tmp_path / "dsl_like.py").write_text("import os\nos.environ['SET_BY_IMPORT'] = 'here'\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "GIVEN": "before"}
    environment.pop("OPENBLAS_NUM_THREADS", None)  # other tests of this process may have set it
    server = ForkServer(["dsl_like"], environment, 60)
    script = tmp_path / "script.py"
    script.write_text(
        "import dsl_like, os, sys\nprint(*map(os.environ.get, sys.argv[1:]))\n"
        "os.environ['LEFT'] = 'behind'\ndsl_like.os = None\n"
    )
    command = [str(script), "SET_BY_IMPORT", "GIVEN", "LEFT", "OPENBLAS_NUM_THREADS"]
    try:
        first, second = (
            server.run(command, {**environment, "GIVEN": given}, tmp_path, 30)
            for given in ("first", "second")
        )
    finally:
        server.close()
    assert first.output == "here first None None\n"
    assert second.output == "here second None None\n"


def test_a_run_out_of_time_is_stopped_with_its_children_and_hurts_no_other(server, tmp_path):
    """The others go on meanwhile, in the same server."""
    note = tmp_path / "child"
    (tmp_path / "hangs.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "print('still compiling', flush=True)\nwhile True:\n    pass\n"
    )
    (tmp_path / "crashes.py").write_text("import ctypes\nctypes.string_at(0)\n")
    (tmp_path / "well.py").write_text("import time\ntime.sleep(2.5)\nprint('well')\n")

    def end(name: str) -> Outcome:
        return server.run([str(tmp_path / name)], os.environ, tmp_path, 2 if "h" in name[0] else 30)

    with ThreadPoolExecutor(3) as threads:
        hangs, crashes, well = threads.map(end, ["hangs.py", "crashes.py", "well.py"])
    assert (hangs.returncode, hangs.output) == (None, "still compiling\n")
    assert 2 <= hangs.seconds < 10
    assert gone(int(note.read_text()))
    assert crashes.returncode == -signal.SIGSEGV
    assert (well.returncode, well.output) == (0, "well\n")


def test_a_child_left_behind_is_stopped(server, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid)\n"
    )
    outcome = server.run([str(script)], os.environ, tmp_path, 30)
    assert outcome.returncode == 0
    assert outcome.seconds < 10
    assert gone(int(outcome.output))


def hanging(folder: Path) -> tuple[Path, Path]:
    """A script that writes its number down and sleeps, and where it does."""
    note, script = folder / "pid", folder / "script.py"
    script.write_text(
        f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    return script, note


def number(note: Path) -> int:
    """The number in a file, once it is there."""
    for _ in range(500):
        if note.exists() and (text := note.read_text()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{note} was not written")


def test_a_run_that_is_given_up_is_stopped(server, tmp_path):
    script, note = hanging(tmp_path)
    cancel = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(server.run, [str(script)], os.environ, tmp_path, 60, cancel)
        pid = number(note)
        cancel.set()
        with pytest.raises(Cancelled):
            running.result(10)
    assert gone(pid)


@pytest.mark.parametrize("end", ["killed", "stopped", "closed"])
def test_a_lost_server_is_noticed_and_leaves_no_child(lone_server, tmp_path, monkeypatch, end):
    """Killed, or deaf at the time limit, or closed while it runs."""
    monkeypatch.setattr(forking, "_KILL_SECONDS", 0.5)
    script, note = hanging(tmp_path)
    with ThreadPoolExecutor(1) as threads:
        limit = 3 if end == "stopped" else 60
        running = threads.submit(lone_server.run, [str(script)], os.environ, tmp_path, limit)
        pid = number(note)
        if end == "closed":
            lone_server.close()
            assert running.result(10).returncode == -signal.SIGKILL
        else:
            process = lone_server._process
            process.send_signal(signal.SIGKILL if end == "killed" else signal.SIGSTOP)
            with pytest.raises(ServerLost):
                running.result(10)
            if end == "killed":
                with pytest.raises(ServerLost):
                    lone_server.run([str(script)], os.environ, tmp_path, 60)
            lone_server.kill()
    assert gone(pid)


@pytest.mark.parametrize(
    "text",
    [
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
        "import nothing_of_this_name\n",
        "import os\nos.abort()\n",
        "import time\ntime.sleep(60)",
    ],
    ids=["starts a thread", "is not there", "crashes", "hangs"],
)
def test_no_server_where_forking_is_unsafe_or_an_import_fails(tmp_path, text):
    (tmp_path / "dsl_like.py").write_text(text)
    start = time.monotonic()
    limit = 2 if text.endswith("sleep(60)") else 60
    with pytest.raises(ServerLost):
        ForkServer(["dsl_like"], {**os.environ, "PYTHONPATH": str(tmp_path)}, limit)
    assert time.monotonic() - start < 30


def test_a_file_that_hides_a_loaded_module_is_seen(server, tmp_path):
    """Run by itself, the script's imports would have found it first."""
    (tmp_path / "colours.py").touch()
    assert not server.hides(tmp_path)
    (tmp_path / "colorsys").mkdir()
    assert server.hides(tmp_path)


# Which modules may find their DSL imported.

FIRST = '"""Doc."""\nimport os\nimport cutlass\nfrom cutlass import (\n    cute,\n)\nx = 1\n'
SET = 'if __name__ == "__main__":\n    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")\n'


@pytest.mark.parametrize("text", [FIRST, FIRST.replace("os\n", f"os\n{SET}", 1)])
def test_a_module_that_only_imports_may(text):
    assert imports_first(text, "cute", ["CUTE_DSL_ARCH"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import cutlass", 'os.environ["CUTE_DSL_ARCH"] = "sm_100a"\nimport cutlass'),
        ("import cutlass", f"{SET}else:\n    print()\nimport cutlass"),
        ("import cutlass", SET.replace("==", "!=") + "import cutlass"),
        ("import cutlass", SET.replace("CUTE_DSL_ARCH", "CUTE_DSL_OTHER") + "import cutlass"),
        ("import cutlass", SET.replace("setdefault", "update") + "import cutlass"),
        ("import cutlass", "import helper\nimport cutlass"),
        ("import cutlass", "from . import helper\nimport cutlass"),
        ("import cutlass", "import torch, cutlass"),
        ("import cutlass", "try:\n    import helper\nfinally:\n    pass\nimport cutlass"),
        ("import cutlass\nfrom cutlass import", "from cutlas import"),
        ("x = 1", "import json"),
        ("x = 1", "import json; import helper"),
        ("import os", "import os, (")
    ],
)  # fmt: skip
def test_a_module_that_does_more_may_not(before, after):
    text = FIRST.replace(before, after, 1)
    assert text != FIRST
    if after == "import json":  # a change that does not matter
        assert imports_first(text, "cute", ["CUTE_DSL_ARCH"])
    else:
        assert not imports_first(text, "cute", ["CUTE_DSL_ARCH"])


def test_only_what_a_module_imports_is_imported_for_it():
    text = "import jax\nfrom jax.experimental import pallas\n"
    assert not imports_first(text, "pallas", [])
    assert imports_first(text + "from jax.experimental.pallas import mosaic_gpu\n", "pallas", [])
    assert not imports_first(FIRST, "cute-ts", [])


def test_every_generated_module_may():
    """Or their compile check would be slower than it need be."""
    variables = ["CUTE_DSL_ARCH", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"]
    for path in sorted((ROOT / "generated").rglob("*.py")):
        module = read_module(path, path.read_text())
        assert isinstance(module, Module)
        assert imports_first(module.text, module.backend, variables), path
        assert module.backend in IMPORTS


# Compile checks.


@pytest.fixture
def forked(monkeypatch):
    """The modules that were run in a child."""
    names = []
    original = ForkServers.run

    def noted(self, module, *arguments):
        outcome = original(self, module, *arguments)
        if outcome is not None:
            names.append(module.path.stem)
        return outcome

    monkeypatch.setattr(ForkServers, "run", noted)
    return names


def compiled(folder: Path, texts: dict[str, str], state=dsl) -> dict[str, object]:
    modules = []
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.write_text(text)
        module = read_module(path, text)
        assert isinstance(module, Module)
        modules.append(module)
    results = pool.compile_all(modules, CompileCache(None), 2, state=state)
    return dict(zip(texts, results, strict=True))


def test_real_kernels_are_compiled_in_children_with_the_same_result(tmp_path, forked, monkeypatch):
    """Both DSLs; the file that sets its architecture itself has a process of its own."""
    texts = {"first": header() + CUTE, "second": header() + CUTE + "\n# another\n"}
    texts |= {"sets": header() + 'import os\nos.environ["CUTE_DSL_ARCH"] = "sm_100a"\n' + CUTE}
    texts |= {"third": header("pallas") + PALLAS, "fourth": header("pallas") + PALLAS + "\n# 4\n"}
    for name in ("cute", "pallas"):
        if not dsl(name).usable:
            pytest.skip(f"{dsl(name).reason}: {dsl(name).command}")
    by_fork = compiled(tmp_path, texts)
    assert sorted(forked) == ["first", "fourth", "second", "third"]
    monkeypatch.setattr(fork_pool, "can_fork", lambda: False)
    alone = compiled(tmp_path, {name: texts[name] for name in ("first", "third")})
    assert len(forked) == 4
    for name, result in by_fork.items():
        assert result.status == ("wrong-arch" if name == "sets" else "ok"), result.message
    for name, result in alone.items():
        assert by_fork[name].kernels == result.kernels
        assert by_fork[name].advisories == result.advisories


@pytest.fixture
def small_dsl(monkeypatch):
    """A DSL that is imported in no time: then `pretender` modules can be forked, too."""
    monkeypatch.setitem(IMPORTS, "cute", ("colorsys",))


def import_first(text: str) -> str:
    return text.replace("import os, pathlib\n", "import colorsys, os, pathlib\n")


def test_one_module_of_its_kind_has_a_process_of_its_own(tmp_path, forked, small_dsl):
    texts = {"a90": import_first(pretender())}
    assert compiled(tmp_path, texts, Dsl)["a90"].status == "ok"
    assert forked == []
    texts["b90"] = texts["a90"]
    assert compiled(tmp_path, texts, Dsl)["b90"].status == "ok"
    assert sorted(forked) == ["a90", "b90"]


def test_a_module_that_kills_its_server_is_compiled_by_itself(tmp_path, forked, small_dsl):
    """And so are those that come after it; nobody's result is lost."""
    killer = import_first(pretender()) + (
        "import signal\n"
        'if b"fork_server.py" in open(f"/proc/{os.getppid()}/cmdline", "rb").read():\n'
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    killer = killer.replace("import signal\n", "").replace("os, pathlib", "os, pathlib, signal", 1)
    texts = {"killer": killer} | {f"m{i}": import_first(pretender()) for i in range(4)}
    results = compiled(tmp_path, texts, Dsl)
    assert {result.status for result in results.values()} == {"ok"}
    assert "killer" not in forked


def test_a_folder_that_hides_a_module_has_processes_of_its_own(tmp_path, forked, small_dsl):
    (tmp_path / "colorsys.py").touch()
    texts = {name: import_first(pretender()) for name in ("a", "b")}
    assert {result.status for result in compiled(tmp_path, texts, Dsl).values()} == {"ok"}
    assert forked == []


def test_a_server_ends_with_the_last_of_its_modules(tmp_path, small_dsl, monkeypatch):
    """Not with the run: others may take long."""
    closed, before = [], []
    original = ForkServer.close

    def close(self):
        original(self)
        closed.append(self._process.returncode)

    monkeypatch.setattr(ForkServer, "close", close)
    exit_ = ForkServers.__exit__
    monkeypatch.setattr(
        ForkServers, "__exit__", lambda *a: (before.extend(closed), exit_(*a), None)[2]
    )
    compiled(tmp_path, {name: import_first(pretender()) for name in ("a", "b")}, Dsl)
    assert closed == before == [0]
