# SPDX-License-Identifier: Apache-2.0
"""Compiles several modules at once, each in its own process, and none that is known already.

The processes of one DSL and architecture are forked from one that has imported the DSL, where that
is safe.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pipegen.compiling.cache import CompileCache
from pipegen.compiling.fork_pool import ForkServers
from pipegen.compiling.installed import Dsl, dsl
from pipegen.compiling.module import Module
from pipegen.compiling.process import Cancelled
from pipegen.compiling.result import CompileResult
from pipegen.compiling.worker import DEFAULT_TIMEOUT, compile_module


def default_jobs() -> int:
    """One process for each core that this one may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compile_all(
    modules: Sequence[Module],
    cache: CompileCache,
    jobs: int,
    timeout: float = DEFAULT_TIMEOUT,
    on_done: Callable[[Module, CompileResult], None] | None = None,
    state: Callable[[str], Dsl] = dsl,
) -> list[CompileResult]:
    """The results, in the order of the modules. A module whose DSL is missing is skipped."""
    results: dict[int, CompileResult] = {}
    work: list[int] = []
    states = {name: state(name) for name in {module.dsl for module in modules}}
    for index, module in enumerate(modules):
        known = _without_compiling(module, states[module.dsl], cache)
        if known is None:
            work.append(index)
            continue
        results[index] = known
        if on_done:
            on_done(module, known)

    # A thread only waits for its process, so threads are enough.
    cancel = threading.Event()
    with (
        ForkServers([modules[i] for i in work]) as servers,
        ThreadPoolExecutor(max_workers=max(1, jobs)) as pool,
    ):
        try:
            futures = {pool.submit(_compile, modules[i], timeout, cancel, servers): i for i in work}
            pending: set[Future[CompileResult]] = set(futures)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    index = futures[future]
                    results[index] = future.result()
                    cache.put(modules[index], results[index])
                    if on_done:
                        on_done(modules[index], results[index])
        except BaseException:
            cancel.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[index] for index in range(len(modules))]


def _without_compiling(module: Module, state: Dsl, cache: CompileCache) -> CompileResult | None:
    if not state.usable:
        return CompileResult("skipped", state.reason)
    return cache.get(module)


def _compile(
    module: Module, timeout: float, cancel: threading.Event, servers: ForkServers
) -> CompileResult:
    try:
        return compile_module(module, timeout, cancel, servers)
    except Cancelled:
        return CompileResult("error", "was given up")
    except OSError as error:
        # No process, no disk.
        return CompileResult("error", f"could not be compiled here: {error}")
    except Exception as error:
        # A compiler's output that we cannot read is a finding about this module, not the end.
        what = f"{type(error).__name__}: {error}"
        return CompileResult("error", f"pipegen cannot read its result: {what}")
