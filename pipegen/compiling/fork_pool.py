# SPDX-License-Identifier: Apache-2.0
"""Which modules are compiled in children of which server, and when a server starts and ends.

Where it is not certain that the result is that of a process of its own, there is no run here, and
the caller starts a process.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipegen.compiling.early_imports import IMPORTS, imports_first
from pipegen.compiling.forking import ForkServer, ServerLost, can_fork
from pipegen.compiling.module import Module
from pipegen.compiling.process import Outcome


class ForkServers:
    """The servers for some modules: one for each DSL and architecture that several have.

    A server lives until the last of its modules is compiled.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._left = Counter(_key(module) for module in modules)
        shared = [key for key, count in self._left.items() if count > 1]
        self._locks = {key: threading.Lock() for key in shared if can_fork()}
        self._servers: dict[tuple[str, str], ForkServer | None] = {}

    def __enter__(self) -> "ForkServers":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            if server:
                server.close()

    def run(
        self,
        module: Module,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        timeout: float,
        cancel: threading.Event | None = None,
    ) -> Outcome | None:
        """How `python ARGUMENTS` ends for a module; None if it needs a process of its own."""
        key = _key(module)
        try:
            if key not in self._locks or not imports_first(
                module.text, module.backend, environment.keys()
            ):
                return None
            with self._locks[key]:
                if key not in self._servers:
                    self._servers[key] = _started(module.backend, environment, timeout, cancel)
                server = self._servers[key]
            if server is None or server.hides(Path(arguments[0]).parent):
                return None
            try:
                return server.run(arguments, environment, folder, timeout, cancel)
            except ServerLost:
                with self._locks[key]:
                    self._servers[key] = None
                server.kill()
                return None
        finally:
            self._done(key)

    def _done(self, key: tuple[str, str]) -> None:
        if key not in self._locks:
            return
        with self._locks[key]:
            self._left[key] -= 1
            if self._left[key] <= 0 and (server := self._servers.get(key)):
                self._servers[key] = None
                server.close()


def _key(module: Module) -> tuple[str, str]:
    return module.backend, module.arch


def _started(
    backend: str, environment: Mapping[str, str], timeout: float, cancel: threading.Event | None
) -> ForkServer | None:
    """A server, or None: what keeps it from serving is told by the modules' own processes."""
    try:
        return ForkServer(IMPORTS[backend], environment, timeout, cancel)
    except (ServerLost, OSError):
        return None
