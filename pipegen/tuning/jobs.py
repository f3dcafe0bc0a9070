# SPDX-License-Identifier: Apache-2.0
"""The two kinds of work of a search, as functions of plain data: any executor can run them.

`compile_candidate` compiles in a process of its own, without a GPU. `measure` needs one; the
process that runs it keeps its measurer, with all modules loaded, for the next size.
"""

import atexit
import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipegen.compiling.cache import default_folder
from pipegen.compiling.exporting import compile_object
from pipegen.compiling.installed import dsl, version_of
from pipegen.compiling.module import Module, read_module
from pipegen.compiling.result import CompileResult
from pipegen.compiling.worker import compile_module
from pipegen.errors import Problem
from pipegen.measuring.protocol import Entrant, Measurer
from pipegen.measuring.shapes import Shape
from pipegen.tuning.halving import STAGES, ShapeResult, Stage, tune_shape
from pipegen.tuning.results import text_digest

GPU = "pipegen.measuring.process:GpuMeasurer"


@dataclass(frozen=True)
class CompileJob:
    """A module to compile. `cached`: whether its object may be kept, and taken, from the cache."""

    name: str
    text: str
    timeout: float
    cached: bool = True


@dataclass(frozen=True)
class Compiled:
    """A compiled module: the object, if its DSL makes one; or why it must not be measured."""

    name: str
    text: str
    object: bytes | None = None
    failed: str = ""
    seconds: float = 0.0


def compile_candidate(job: CompileJob) -> Compiled:
    """Compile one module; spills and a serialized mainloop are failures here as in `check`."""
    cached = _cache_path(job.text)
    if job.cached and cached.is_file():
        return Compiled(job.name, job.text, cached.read_bytes())
    with tempfile.TemporaryDirectory(prefix="pipegen-tune-") as place:
        path = Path(place) / f"{job.name}.py"
        path.write_text(job.text, encoding="utf-8")
        module = read_module(path, job.text)
        if isinstance(module, Problem):
            return Compiled(job.name, job.text, failed=module.message)
        state = dsl(module.dsl)
        if not state.usable:
            return Compiled(job.name, job.text, failed=f"{state.reason}; {state.command}")
        result, made = _compile(module, job.timeout)
    if result.failed:
        why = f"{result.status}: {result.message}"
        return Compiled(job.name, job.text, failed=why, seconds=result.seconds)
    if made is not None and job.cached:
        _keep(cached, made)
    return Compiled(job.name, job.text, made, seconds=result.seconds)


def _compile(module: Module, timeout: float) -> tuple[CompileResult, bytes | None]:
    if module.dsl != "cute":
        return compile_module(module, timeout), None
    result, _, contents = compile_object(module, timeout)
    return result, contents[0] if contents else None


def _cache_path(text: str) -> Path:
    version = version_of("nvidia-cutlass-dsl")
    return default_folder() / "objects" / f"{text_digest(text + str(version))}.o"


def _keep(path: Path, made: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(made)
        Path(file.name).replace(path)
    except OSError:
        return  # a cache that cannot be written only costs time


@dataclass(frozen=True)
class MeasureJob:
    """One size to measure. `modules`: all that were compiled, so that one process keeps them for
    every size; `names`: those to time at this one, None for all. `factory`: MODULE:CLASS of the
    measurer; a test has a fake one."""

    shape: Shape
    modules: tuple[Compiled, ...]
    peers: tuple[str, ...]
    names: frozenset[str] | None = None
    always: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = STAGES
    limit: float = 30.0
    factory: str = GPU


def measure(job: MeasureJob) -> ShapeResult:
    """Time the candidates at one size, on this process' GPU."""
    measurer, every = _kept(job)
    entrants = [each for each in every if job.names is None or each.name in job.names]
    return tune_shape(measurer, job.shape, entrants, job.peers, job.stages, job.always)


def device_of(factory: str, limit: float) -> dict[str, Any]:
    """What the measurer of this process measures on. Raises what it raises where it cannot."""
    home, _, name = factory.partition(":")
    measurer: Any = getattr(importlib.import_module(home), name)(limit)
    try:
        return dict(measurer.device())
    finally:
        if hasattr(measurer, "close"):
            measurer.close()


class _Bench:
    """The measurer that this process keeps, and the folder with its modules."""

    key: str = ""
    folder: tempfile.TemporaryDirectory[str] | None = None
    measurer: Any = None
    entrants: tuple[Entrant, ...] = ()


def _kept(job: MeasureJob) -> tuple[Measurer, tuple[Entrant, ...]]:
    """The measurer with these modules; a new one if the last job had others."""
    texts = "\n".join(each.text for each in job.modules)
    key = text_digest(f"{job.factory} {job.limit} {texts}")
    if _Bench.key != key:
        close()
        _Bench.folder = tempfile.TemporaryDirectory(prefix="pipegen-tune-")
        home, _, name = job.factory.partition(":")
        _Bench.measurer = getattr(importlib.import_module(home), name)(job.limit)
        _Bench.entrants = tuple(_written(Path(_Bench.folder.name), each) for each in job.modules)
        _Bench.key = key
    return _Bench.measurer, _Bench.entrants


def _written(folder: Path, module: Compiled) -> Entrant:
    path = folder / f"{module.name}.py"
    path.write_text(module.text, encoding="utf-8")
    if module.object is None:
        return Entrant(module.name, path)
    made = folder / f"{module.name}.o"
    made.write_bytes(module.object)
    return Entrant(module.name, path, made)


def close() -> None:
    """End the measurer that is kept."""
    if _Bench.measurer is not None and hasattr(_Bench.measurer, "close"):
        _Bench.measurer.close()
    if _Bench.folder is not None:
        _Bench.folder.cleanup()
    _Bench.key, _Bench.measurer, _Bench.folder = "", None, None


atexit.register(close)
