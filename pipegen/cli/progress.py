# SPDX-License-Identifier: Apache-2.0
"""The progress bar of commands that make somebody wait."""

import os
import sys
import threading
from typing import Any

# A progress bar is for a run that makes somebody wait.
_PATIENCE_SECONDS = 1.0


class Progress:
    """A progress bar on standard error, in a terminal, once the run takes a second; none in CI."""

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty() and not os.environ.get("CI")
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._begin)
        self._lock = threading.Lock()
        self._state = ("", 0, 0)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._wanted:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._wanted = False
            if self._bar is not None:
                self._bar.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Say how far the run is."""
        with self._lock:
            self._state = (what, done, total)
            self._update()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with self._lock:
            if self._wanted:
                self._bar = Bar(console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task("", total=None)
                self._update()
                self._bar.start()

    def _update(self) -> None:
        if self._bar is not None:
            what, done, total = self._state
            self._bar.update(self._task, description=what, completed=done, total=total)
