# SPDX-License-Identifier: Apache-2.0
"""The measurer with a GPU: it starts the worker, watches it, and begins anew when it must.

A worker that says nothing for as long as a step may take is ended, and so is one that dies; the one
whom its last words name is out, and the rest goes on in a fresh process. Nothing here needs torch.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipegen.compiling.process import describe_signal
from pipegen.measuring.protocol import Entrant, Prepared

WORKER = (sys.executable, "-m", "pipegen.measuring.worker")
# Starting takes the imports of torch and of a DSL; a peer may tune itself first.
START_SECONDS, PEER_SECONDS = 120.0, 180.0
_TAIL = 12  # lines of a worker's last words that a report keeps


class WorkerDied(Exception):
    """The worker ended, or was ended; `name` is whom its last words name, `why` in words."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name, self.why = name, why


class WorkerRefused(Exception):
    """The worker lives, and the command failed: its message."""


class Worker:
    """One process that takes commands."""

    def __init__(self, command: Sequence[str], limit: float) -> None:
        self.limit = limit
        # The worker imports this pipegen, from wherever it is called.
        home = str(Path(__file__).parent.parent.parent)
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "NO_COLOR": "1"},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._tail: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def ask(self, do: str, limit: float | None = None, **words: Any) -> dict[str, Any]:
        """The answer to a command. Raises WorkerDied, and WorkerRefused.

        `limit`: seconds for the whole command; without it each step has its own.
        """
        at, name, start = "start", "", time.monotonic()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **words}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._death(name) from None
        while True:
            allowed = {"start": START_SECONDS, "peer": PEER_SECONDS}.get(at, self.limit)
            if limit is not None:
                allowed = max(0.0, start + limit - time.monotonic())
            line = self._next(allowed, at, name)
            if not line.startswith("@ "):
                self._tail = [*self._tail, line][-_TAIL:]
                continue
            said = json.loads(line[2:])
            if "done" in said:
                answer: dict[str, Any] = said["done"]
                if "error" in answer:
                    raise WorkerRefused(answer["error"])
                return answer
            if "error" in said:
                if self._ends():
                    self.close()
                    raise WorkerDied(name, said["error"])
                raise WorkerRefused(said["error"])
            at, name = said["at"], said["name"]

    def _next(self, allowed: float, at: str, name: str) -> str:
        try:
            line = self._lines.get(timeout=allowed)
        except queue.Empty:
            self.close()
            raise WorkerDied(name, f"said nothing for {allowed:.0f} s ({at}): a hang?") from None
        if line is None:
            raise self._death(name)
        return line

    def _ends(self) -> bool:
        """Whether the process ends by itself now: a GPU fault leaves it useless."""
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _death(self, name: str) -> WorkerDied:
        self.close()
        code = self._process.returncode
        how = describe_signal(code) if code < 0 else f"exit code {code}"
        last = " | ".join(line for line in self._tail if line.strip())
        return WorkerDied(name, f"the process ended: {how}. {last[-600:]}".rstrip())

    def close(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class GpuMeasurer:
    """A `Measurer` (see `protocol`) on this machine's GPU; `limit`: seconds for a step."""

    def __init__(self, limit: float = 30.0, command: Sequence[str] = WORKER) -> None:
        self.lost: dict[str, str] = {}
        self.loaded: dict[str, dict[str, Any]] = {}
        self._limit, self._command = limit, command
        self._worker: Worker | None = None
        self._last: tuple[tuple[int, ...], list[Entrant], list[str]] | None = None

    def __enter__(self) -> "GpuMeasurer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker, self.loaded = None, {}

    def device(self) -> dict[str, Any]:
        return self._live().ask("device")

    def verify(self, path: Path, limit: float) -> dict[str, Any]:
        """Every size of one module, in a process that ends with it."""
        worker = Worker(self._command, limit)
        try:
            return worker.ask("verify", limit, path=str(path))
        finally:
            worker.close()

    def load(self, entrants: Sequence[Entrant]) -> None:
        """Load and compile ahead; who cannot be loaded is found out again by `prepare`."""
        with contextlib.suppress(WorkerDied, WorkerRefused):
            for entrant in entrants:
                self._load(self._live(), entrant)

    def _load(self, worker: Worker, entrant: Entrant) -> None:
        if entrant.name not in self.loaded:
            compiled = str(entrant.object) if entrant.object else None
            self.loaded[entrant.name] = worker.ask(
                "load", name=entrant.name, path=str(entrant.path), object=compiled
            )

    def _live(self) -> Worker:
        if self._worker is None:
            self._worker, self.loaded = Worker(self._command, self._limit), {}
        return self._worker

    def prepare(
        self, shape: tuple[int, ...], entrants: Sequence[Entrant], peers: Sequence[str]
    ) -> Prepared:
        out: dict[str, str] = {}
        while True:
            left = [entrant for entrant in entrants if entrant.name not in out]
            able = [peer for peer in peers if peer not in out]
            if not left:
                return Prepared((), {}, out, 0, "host", 1)
            try:
                answer = self._prepare(shape, left, able, out)
            except WorkerDied as death:
                self.close()
                if death.name in out or death.name not in {*able, *(e.name for e in left)}:
                    # Nobody to blame: at these sizes nothing can be prepared.
                    out |= {entrant.name: death.why for entrant in left}
                    continue
                out[death.name] = death.why
                continue
            except WorkerRefused as error:
                out |= {entrant.name: str(error) for entrant in left}
                continue
            if answer is not None:
                self._last = (shape, left, able)
                return Prepared(
                    tuple(answer.pop("modules")), out={**out, **answer.pop("out")}, **answer
                )

    def _prepare(
        self, shape: tuple[int, ...], left: list[Entrant], peers: list[str], out: dict[str, str]
    ) -> dict[str, Any] | None:
        """The worker's answer; None if somebody could not be loaded, and is out now."""
        worker = self._live()
        for entrant in left:
            try:
                self._load(worker, entrant)
            except WorkerRefused as error:
                out[entrant.name] = str(error)
        names = [entrant.name for entrant in left if entrant.name not in out]
        if len(names) < len(left):
            return None
        return worker.ask("prepare", shape=list(shape), names=names, peers=peers)

    def time(self, names: Sequence[str], rounds: int, seconds: float) -> dict[str, list[float]]:
        left = list(names)
        while left:
            try:
                answer = self._live().ask("time", names=left, rounds=rounds, seconds=seconds)
                return dict(answer["figures"])
            except (WorkerDied, WorkerRefused) as trouble:
                why = str(trouble)
                blamed = trouble.name if isinstance(trouble, WorkerDied) else ""
                self.close()
                if self._last is None or blamed not in left:
                    self.lost |= {name: why for name in left}
                    return {}
                self.lost[blamed] = why
                shape, entrants, peers = self._last
                entrants = [each for each in entrants if each.name not in self.lost]
                prepared = self.prepare(shape, entrants, peers)
                self.lost |= prepared.out
                ready = {
                    *prepared.modules,
                    *(n for p in prepared.peers.values() for n in p.values()),
                }
                left = [name for name in left if name in ready]
        return {}
