# SPDX-License-Identifier: Apache-2.0
"""Runs scripts in children of a process that has imported a DSL already.

An import takes a second of processor time, and so does the rest of a compilation. A run ends as one
of a process of its own: same variables, same output, same limits, and a crash is one script's.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipegen.compiling.process import Cancelled, Outcome, Tail

SERVER = Path(__file__).with_name("fork_server.py")
_POLL_SECONDS = 0.02
_KILL_SECONDS = 10.0


class ServerLost(Exception):
    """The server ended, or does not answer: nothing is known about the run."""


def can_fork() -> bool:
    """Whether this platform has what a server needs. On macOS, to fork is unsafe by itself."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class ForkServer:
    """One server process. `run` may be called from several threads."""

    def __init__(
        self,
        imports: Sequence[str],
        environment: Mapping[str, str],
        timeout: float,
        cancel: threading.Event | None = None,
    ) -> None:
        """Start it and wait for its imports. Raises ServerLost if it cannot serve."""
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="pipegen-fork-")
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), *imports],
                # numpy's OpenBLAS would start threads.
                env={
                    **environment,
                    "TMPDIR": self._folder.name,
                    "OPENBLAS_NUM_THREADS": "1",
                },
                cwd=self._folder.name,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            answer = _Lines(self._control).next(time.monotonic() + timeout, cancel)
            if not answer:
                raise ServerLost("does not start")
        except BaseException:
            self.kill()
            raise
        self.loaded = frozenset(json.loads(answer))

    def hides(self, folder: Path) -> bool:
        """Whether a file of a script's folder would be imported instead of one that is loaded."""
        return any(path.stem in self.loaded for path in folder.iterdir())

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float,
        cancel: threading.Event | None = None,
    ) -> Outcome:
        """As `process.run` with this Python in front. Raises ServerLost."""
        start = time.monotonic()
        asked = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder),
        }
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        with ours, os.fdopen(reading, "rb") as output, tempfile.TemporaryFile() as request:
            try:
                request.write(json.dumps(asked).encode())
                request.seek(0)
                with self._lock:
                    files = [request.fileno(), writing, theirs.fileno()]
                    socket.send_fds(self._control, [b"r"], files)
            except OSError as error:
                raise ServerLost from error
            finally:
                theirs.close()
                os.close(writing)
            tail = Tail(output)
            reader = threading.Thread(target=tail.read, daemon=True)
            reader.start()
            returncode = _end(ours, start + timeout, cancel)
            reader.join(timeout=1)
            return Outcome(returncode, tail.text(), time.monotonic() - start)

    def close(self) -> None:
        """End the server, and all that it runs."""
        self._control.close()
        try:
            self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()

    def kill(self) -> None:
        """End a server that does not answer. What it runs is for those who wait for it to kill."""
        self._process.kill()
        self._process.wait()
        self._control.close()
        self._folder.cleanup()


def _end(life: socket.socket, deadline: float, cancel: threading.Event | None) -> int | None:
    """The return code of a run; None if it was stopped at the deadline. Raises ServerLost."""
    lines = _Lines(life)
    pid = lines.next(deadline, cancel)
    code = lines.next(deadline, cancel) if pid else pid
    if code:
        return int(code)
    if code is None:
        with contextlib.suppress(OSError):
            life.shutdown(socket.SHUT_WR)  # the server kills it
        until = time.monotonic() + _KILL_SECONDS
        pid = pid or lines.next(until, None)
        if pid and lines.next(until, None):
            return None
    if pid:
        # Nobody waits for its group any more.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(pid), signal.SIGKILL)
    raise ServerLost("ended before its child")


class _Lines:
    """The lines that come from a socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._rest = b""

    def next(self, deadline: float, cancel: threading.Event | None) -> str | None:
        """The next line; None at the deadline, "" if the stream ends first. Raises Cancelled."""
        while b"\n" not in self._rest:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if select.select([self._stream], [], [], min(left, _POLL_SECONDS))[0]:
                try:
                    got = self._stream.recv(65536)
                except OSError:
                    got = b""
                if not got:
                    return ""
                self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()
