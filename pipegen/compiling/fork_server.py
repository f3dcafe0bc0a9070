# SPDX-License-Identifier: Apache-2.0
"""A process that imports a DSL once, and forks a child for each script that is to be run.

    python fork_server.py IMPORT... < one end of a socket pair

Each byte on the socket asks for a run and brings three files: the request (JSON: the script with
its arguments, the variables, the folder), where its output goes, and a socket for its life. On that
the server writes the child's number, and at its end the return code; when the other end is closed
for writing the child is killed. A child has a process group of its own, which is killed whole while
the child is still a zombie: until then nobody else can get the number.

To fork is safe only where no other thread runs, since a child has but the thread that forked: a
server that finds more than one after its imports ends, and so does one that cannot import. Else it
writes the names of all modules that it has loaded. `multiprocessing.forkserver` has no such test,
serves one set of variables a process, and reaps a child before its group can be killed.

Imports no pipegen: it runs in environments that have none, and its scripts must not find it.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import types
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

CONTROL = 0  # standard input
_FILES = 3  # request, output, life
_STARTED_WITH = dict(os.environ)


@dataclass(frozen=True)
class Run:
    """A child, where to tell of it, and a file that is readable once it has ended."""

    pid: int
    life: socket.socket
    ended: int


def serve(control: socket.socket) -> None:
    """Fork for each request until the other end is closed; then kill what still runs."""
    runs: dict[int, Run] = {}  # by both files that are waited for
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for number, _ in poll.poll():
            if number == control.fileno():
                asked, files, _, _ = socket.recv_fds(control, 1, _FILES)
                if not asked:
                    for run in set(runs.values()):
                        end(run)
                    return
                run = begin(files, [control, *(each.life for each in runs.values())])
                for waited in (run.life.fileno(), run.ended):
                    runs[waited] = run
                    poll.register(waited, select.POLLIN)
            elif number in runs:  # not one that ended in this turn
                run = runs[number]
                for waited in (run.life.fileno(), run.ended):
                    poll.unregister(waited)
                    del runs[waited]
                end(run)


def begin(files: list[int], others: list[socket.socket]) -> Run:
    """Fork a child for the request. `others`: the server's sockets, which it must not hold."""
    request, output, life = files
    pid = os.fork()
    if pid == 0:
        try:
            for other in others:
                other.close()
            os.close(life)
            run_script(request, output)
        finally:
            os._exit(1)
    os.close(request)
    os.close(output)
    told = socket.socket(fileno=life)
    with suppress(OSError):
        told.sendall(f"{pid}\n".encode())
    return Run(pid, told, os.pidfd_open(pid))


def end(run: Run) -> None:
    """Kill what is left of a child and of its group, and tell its return code."""
    for kill in (os.killpg, os.kill):  # the group may not be there yet
        with suppress(ProcessLookupError, PermissionError):
            kill(run.pid, signal.SIGKILL)
    _, status = os.waitpid(run.pid, 0)
    with suppress(OSError):
        run.life.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    run.life.close()
    os.close(run.ended)


def run_script(request: int, output: int) -> NoReturn:
    """In the child: become what `python SCRIPT ARGUMENTS` would be, and end as it would."""
    os.setsid()
    for standard, opened in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(opened, standard)
    os.close(output)
    with os.fdopen(request, encoding="utf-8") as file:
        asked: dict[str, Any] = json.load(file)
    set_variables(asked["environment"])
    tempfile.tempdir = None  # the variables say where
    os.chdir(asked["folder"])
    sys.argv = asked["arguments"]
    path = sys.argv[0]
    sys.path.insert(0, os.path.dirname(path))
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    code = 0
    try:
        with open(path, "rb") as source:
            compiled = compile(source.read(), path, "exec")
        exec(compiled, main.__dict__)
    except SystemExit as exit_:
        code = exit_code(exit_)
    except BaseException as error:
        # Without this function's frame.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    leave(code)


def set_variables(wanted: dict[str, str]) -> None:
    """The variables of a run; what the imports have set stays, as after imports of its own."""
    for name in _STARTED_WITH.keys() - wanted.keys():
        os.environ.pop(name, None)
    for name, value in wanted.items():
        if _STARTED_WITH.get(name) != value:
            os.environ[name] = value


def exit_code(error: SystemExit) -> int:
    """What the interpreter makes of `sys.exit(…)`: words are printed and count as a failure."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def leave(code: int) -> NoReturn:
    """End as the interpreter does, but do not take apart each object: that takes 0.3 s."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    # With what the C and C++ libraries do at their end. Keeps the GIL: no thread goes on meanwhile.
    ctypes.PyDLL(None).exit(code & 0xFF)
    os._exit(code & 0xFF)


def loaded(imports: list[str]) -> list[str]:
    """Import these; the top names of all that is loaded then."""
    for name in imports:
        importlib.import_module(name)
    return sorted({name.partition(".")[0] for name in sys.modules} - {"__main__"})


def main() -> int:
    """Import, see that it is safe to fork, and serve."""
    control = socket.socket(fileno=os.dup(CONTROL))
    del sys.path[0]  # pipegen/compiling
    names = loaded(sys.argv[1:])
    if len(os.listdir("/proc/self/task")) != 1:
        return 3
    os.close(os.pidfd_open(os.getpid()))  # a kernel without it raises here
    gc.collect()
    gc.freeze()  # what is there stays, and the children's collections need not look at it
    control.sendall(json.dumps(names).encode() + b"\n")
    serve(control)
    return 0


if __name__ == "__main__":
    sys.exit(main())
