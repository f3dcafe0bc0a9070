# SPDX-License-Identifier: Apache-2.0
"""Where the work of a search is done: here, in processes, or on a dask.distributed cluster."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipegen.errors import InputError, Problem

CHOICES = ("local", "processes", "dask://HOST:PORT")


@dataclass(frozen=True)
class Place:
    """Executors for compiling and for measuring, and how many sizes may be measured at once."""

    compiling: Executor
    measuring: Executor
    at_once: int


def check_executor(word: str) -> str:
    """The word, if it names an executor. Raises InputError."""
    if word in ("local", "processes") or (word.startswith("dask://") and len(word) > 7):
        return word
    raise InputError(Problem("no such executor", "--executor", word, ", ".join(CHOICES), "local"))


@contextmanager
def place(word: str, jobs: int) -> Iterator[Place]:
    """The executors that `word` names. Here one size has the GPU at a time; on a cluster each
    worker has its own: give it one thread. Raises InputError if a cluster cannot be reached."""
    if check_executor(word).startswith("dask://"):
        yield from _dask("tcp://" + word.removeprefix("dask://"))
        return
    pool = ThreadPoolExecutor if word == "local" else ProcessPoolExecutor
    # A thread only waits for its compiler, which is a process of its own.
    with pool(jobs) as compiling, ThreadPoolExecutor(1) as measuring:
        try:
            yield Place(compiling, measuring, 1)
        except BaseException:
            compiling.shutdown(wait=False, cancel_futures=True)
            raise


def _dask(address: str) -> Iterator[Place]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "--executor dask://… needs a package that is not installed: pip install "
            "'dask[distributed]'"
        ) from None
    try:
        client: Any = Client(address, timeout=5)
    except (OSError, ValueError) as error:
        raise InputError(
            Problem(f"no dask scheduler answers: {error}", "--executor", address)
        ) from None
    with client:
        workers = len(client.scheduler_info()["workers"])
        if not workers:
            raise InputError(Problem("the cluster has no workers", "--executor", address))
        executor = client.get_executor(pure=False)
        yield Place(executor, executor, workers)
