# SPDX-License-Identifier: Apache-2.0
"""Runs one command with a time limit, and leaves nothing of it running."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# A compiler that prints for ever must not fill the memory: this much of the end is kept.
OUTPUT_LIMIT = 4 * 2**20
_CHUNK = 65536
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `returncode` is negative for a signal, None if it ran out of time."""

    returncode: int | None
    output: str
    seconds: float


class Cancelled(Exception):
    """The run was given up (Ctrl-C); nothing is known about this command."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    timeout: float,
    cancel: threading.Event | None = None,
) -> Outcome:
    """Run `command` in `folder`, standard output and error together.

    The command gets its own process group, and the whole group is killed at the end: compilers
    start children of their own, and a child that survives would hold the machine.
    """
    start = time.monotonic()
    with subprocess.Popen(
        command,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        tail = Tail(process.stdout)
        reader = threading.Thread(target=tail.read, daemon=True)
        reader.start()
        ended = False
        try:
            ended = _wait(process, start + timeout, cancel)
        finally:
            returncode = _kill_group(process)
        # After the kill nobody writes any more, except a child that left the group.
        reader.join(timeout=1)
        seconds = time.monotonic() - start
        return Outcome(returncode if ended else None, tail.text(), seconds)


def describe_signal(returncode: int) -> str:
    """A negative return code in words: `SIGSEGV (signal 11)`."""
    try:
        return f"{signal.Signals(-returncode).name} (signal {-returncode})"
    except ValueError:
        return f"signal {-returncode}"


def _wait(
    process: subprocess.Popen[bytes], deadline: float, cancel: threading.Event | None
) -> bool:
    """Whether the process ended before the deadline. It is not reaped yet.

    As long as it is a zombie its number, which is also the group's, belongs to nobody else.
    """
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> int:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


class Tail:
    """Reads a stream to its end and keeps the last part."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = bytearray()

    def read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._stream.fileno(), _CHUNK):
                self._kept += chunk
                if len(self._kept) > 2 * OUTPUT_LIMIT:
                    del self._kept[:-OUTPUT_LIMIT]

    def text(self) -> str:
        return bytes(self._kept[-OUTPUT_LIMIT:]).decode("utf-8", "replace")
