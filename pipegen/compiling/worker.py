# SPDX-License-Identifier: Apache-2.0
"""Compiles one module: runs the file as it stands and reads what the compiler left behind."""

import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipegen.compiling.cubin import CUOBJDUMP_DISTRIBUTION, cubin_arch, ptx_kernels, resource_usage
from pipegen.compiling.fork_pool import ForkServers
from pipegen.compiling.installed import version_key, version_of
from pipegen.compiling.launch import Smem, cute_launches, mosaic_launches
from pipegen.compiling.module import Module
from pipegen.compiling.process import Outcome, describe_signal, run
from pipegen.compiling.ptxas import PtxasReport, parse_ptxas, plain
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.compiling.schedule import (
    VERIFIER,
    Schedule,
    read_schedules,
    remarks,
    schedule_failure,
)
from pipegen.hardware import HARDWARE, TMEM_COLUMNS_MAX

DEFAULT_TIMEOUT = 120.0
# The compilers read these; what the user's shell has set must not change a verdict.
_FOREIGN = ("CUTE_DSL_", "CUTE_EXPERIMENTAL_DSL_", "MOSAIC_GPU_", "JAX_", "XLA_", "CUDA_VISIBLE_")
_TAIL_LINES = 15


@dataclass(frozen=True)
class _Dump:
    """What the compiler wrote: the kernels, the advisories, and which architectures it served."""

    kernels: tuple[Kernel, ...]
    advisories: PtxasReport
    archs: frozenset[str]


def compile_module(
    module: Module,
    timeout: float = DEFAULT_TIMEOUT,
    cancel: threading.Event | None = None,
    servers: ForkServers | None = None,
) -> CompileResult:
    """Run `python FILE --compile-only` for the module's architecture; no GPU is used.

    In a child of one of `servers` if they can, which saves the DSL's import.
    """
    if not module.compiles_itself:
        return CompileResult("error", "offers no --compile-only, which is how it is compiled")
    with tempfile.TemporaryDirectory(prefix="pipegen-check-") as name:
        folder = Path(name)
        dump = folder / "dump"
        dump.mkdir()
        schedules = folder / "schedules.json"
        command = [str(module.path.resolve()), "--compile-only"]
        if module.schedules_tasks:
            command = [str(VERIFIER), str(schedules), str(module.path.resolve())]
        # As seen from the folder: a server's variables, read at the import, serve many folders.
        environment = compile_environment(module, Path(dump.name), folder)
        outcome = (
            servers.run(module, command, environment, folder, timeout, cancel) if servers else None
        )
        if outcome is None:
            outcome = run([sys.executable, *command], environment, folder, timeout, cancel)
        return judged(module, outcome, dump, timeout, read_schedules(schedules))


def judged(
    module: Module,
    outcome: Outcome,
    dump: Path,
    timeout: float,
    schedules: tuple[Schedule, ...] | None = None,
) -> CompileResult:
    """The verdict on a compiler's run, on what it left in `dump`, and on its schedules.

    `schedules` is None where they were not looked at, as in an export.
    """
    if (
        schedules is not None
        and module.schedules_tasks
        and (why := schedule_failure(schedules, outcome))
    ):
        return CompileResult("schedule", why, seconds=outcome.seconds, schedules=schedules)
    failure = _failure(outcome, timeout)
    if failure:
        return failure
    read = _read_cute if module.dsl == "cute" else _read_pallas
    verdict = replace(_verdict(module, read(dump, outcome.output)), seconds=outcome.seconds)
    if schedules is None or not module.schedules_tasks:
        return verdict
    advisories = (*verdict.advisories, *remarks(schedules, module.text))
    return replace(verdict, schedules=schedules, advisories=advisories)


def compile_environment(module: Module, dump: Path, folder: Path) -> dict[str, str]:
    """The variables to compile the module with: its architecture, its dumps, and no GPU.

    `folder` is where the process runs and keeps what is temporary.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    common = {
        **kept,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
        "NO_COLOR": "1",
        "TMPDIR": str(folder),
        # Compiling must not depend on a GPU, so it does not see one.
        "CUDA_VISIBLE_DEVICES": "",
    }
    if module.dsl == "cute":
        return common | _cute_environment(module.arch, dump)
    return common | _pallas_environment(dump)


def _cute_environment(arch: str, dump: Path) -> dict[str, str]:
    wanted = {
        "CUTE_DSL_ARCH": arch,
        "CUTE_DSL_KEEP": "ir,ptx,cubin",
        "CUTE_DSL_DUMP_DIR": str(dump),
        "CUTE_DSL_CACHE_DIR": "cache",
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
    }
    if version_key(version_of("nvidia-cutlass-dsl")) >= (4, 8):
        # Prints what ptxas says; 4.7 accepts the words without effect, 4.6 refuses them.
        wanted["CUTE_DSL_COMPILER_OPT"] = "remarks{ptx}"
    return wanted


def _pallas_environment(dump: Path) -> dict[str, str]:
    return {
        # The description of the GPU comes from the module; jax itself only needs a CPU.
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "MOSAIC_GPU_DUMP_PTX": "1",
        "MOSAIC_GPU_DUMP_PTXAS": "1",
        "MOSAIC_GPU_DUMP_TO": str(dump),
    }


def _failure(outcome: Outcome, timeout: float) -> CompileResult | None:
    """The result for a run that did not end with exit code 0."""
    last = last_lines(outcome.output)
    if outcome.returncode is None:
        message = f"did not finish in {timeout:g} s and was stopped. {last}"
        return CompileResult("timeout", message, seconds=outcome.seconds)
    if outcome.returncode < 0:
        message = f"the compiler died of {describe_signal(outcome.returncode)}. {last}"
        return CompileResult("crash", message, seconds=outcome.seconds)
    if outcome.returncode > 0:
        message = f"exit code {outcome.returncode}. {last}"
        return CompileResult("error", message, seconds=outcome.seconds)
    return None


def last_lines(output: str) -> str:
    """The end of a process' output, for a message."""
    lines = [line.rstrip() for line in plain(output).splitlines() if line.strip()]
    if not lines:
        return "It printed nothing."
    return "Its last output:\n" + "\n".join(lines[-_TAIL_LINES:])


def _read_cute(dump: Path, output: str) -> _Dump:
    """PTX, cubin and IR are files; ptxas' report is in what the DSL printed."""
    report = parse_ptxas(output)
    reported = {kernel.name: kernel for kernel in report.kernels}
    launches: dict[str, Smem] = {}
    for path in sorted(dump.glob("**/*.mlir")):
        launches |= cute_launches(path.read_text("utf-8", "replace"))
    entries: dict[str, Kernel] = {}
    for path in sorted(dump.glob("**/*.ptx")):
        entries |= {kernel.name: kernel for kernel in ptx_kernels(_text(path))}
    archs: set[str] = set()
    kernels: list[Kernel] = []
    for path in sorted(dump.glob("**/*.cubin")):
        archs.add(cubin_arch(path.read_bytes()) or "unknown")
        # Without the DSL's report, registers and stack are read from the cubin.
        measured = {} if report.kernels else {k.name: k for k in resource_usage(path)}
        reported |= measured
    if archs:
        kernels = [_join(entry, reported, launches) for entry in entries.values()]
    archs |= {kernel.arch for kernel in entries.values()}
    return _Dump(tuple(kernels), report, frozenset(archs))


def _read_pallas(dump: Path, output: str) -> _Dump:
    """Each kernel has its PTX, its ptxas report, and a pass log that names the launch's SMEM."""
    kernels: list[Kernel] = []
    advisories: list[str] = []
    for path in sorted(dump.glob("**/*.ptxas")):
        report = parse_ptxas(_text(path))
        advisories += report.advisories
        reported = {kernel.name: kernel for kernel in report.kernels if kernel.registers}
        ptx = path.with_suffix(".ptx")
        entries = {k.name: k for k in ptx_kernels(_text(ptx))} if ptx.exists() else {}
        log = path.with_suffix(".mlir-passes.log")
        launches: dict[str, Smem] = {}
        if log.exists():
            with log.open(encoding="utf-8", errors="replace") as lines:
                launches = mosaic_launches(lines)
            log.unlink()
        kernels += [_join(entries.get(n, k), reported, launches) for n, k in reported.items()]
    archs = frozenset(kernel.arch for kernel in kernels)
    return _Dump(tuple(kernels), PtxasReport(advisories=tuple(advisories)), archs)


def _join(entry: Kernel, reported: Mapping[str, Kernel], launches: Mapping[str, Smem]) -> Kernel:
    """One kernel from its PTX, ptxas' report on it, and its launch."""
    kernel = entry
    if entry.name in reported:
        said = reported[entry.name]
        kernel = replace(
            kernel,
            arch=said.arch or entry.arch,
            registers=said.registers,
            barriers=said.barriers,
            stack_bytes=said.stack_bytes,
            spill_stores=said.spill_stores,
            spill_loads=said.spill_loads,
        )
        if said.spill_stores is None and said.stack_bytes == 0:
            # Spills live in the stack frame: no frame, no spill.
            kernel = replace(kernel, spill_stores=0, spill_loads=0)
    launch = launches.get(entry.name)
    if launch:
        kernel = replace(kernel, smem_bytes=launch.given, smem_needed=launch.needed)
    return kernel


def _verdict(module: Module, dump: _Dump) -> CompileResult:
    def result(status: str, message: str) -> CompileResult:
        return CompileResult(status, message, dump.kernels, advisories)  # type: ignore[arg-type]

    advisories = dump.advisories.advisories
    if not dump.kernels:
        return result(
            "no-kernel",
            "ended with exit code 0, but the compiler made no kernel: --compile-only must compile "
            "one",
        )
    wrong = sorted(arch for arch in dump.archs if arch != module.arch)
    if wrong:
        return result(
            "wrong-arch", f"is for {module.arch}, but was compiled for {', '.join(wrong)}"
        )
    for kernel in dump.kernels:
        if problem := _smem_problem(kernel, module.arch):
            return result("smem", problem)
        if (kernel.tmem_columns or 0) > TMEM_COLUMNS_MAX:
            return result(
                "tmem",
                f"allocates {kernel.tmem_columns} columns of TMEM, and an SM has "
                f"{TMEM_COLUMNS_MAX}: the allocation would wait for ever",
            )
    if dump.advisories.serialized:
        return result(
            "serialized",
            f"ptxas took the asynchrony out of the mainloop: {dump.advisories.serialized}",
        )
    spilled = [kernel for kernel in dump.kernels if kernel.spill_bytes]
    if spilled:
        sentences = "; ".join(map(_spill_sentence, spilled))
        return result("spills", f"{sentences}{_advice(module.text)}")
    return result("ok", _remark(dump.kernels))


def _advice(text: str) -> str:
    """What may help against spills. Empty in an environment of `--with`, which has no pydantic to
    read the description with: `compiling.matrix` adds it."""
    if importlib.util.find_spec("pydantic") is None:
        return ""
    from pipegen.compiling.advice import spill_advice

    return f". {spill_advice(text)}"


def _smem_problem(kernel: Kernel, arch: str) -> str:
    given, needed = kernel.smem_bytes, kernel.smem_needed
    if given is None:
        return ""
    if needed is not None and given < needed:
        return f"the launch gives {given} B of SMEM, but the kernel's storage takes {needed} B"
    limit = HARDWARE[arch].smem_per_block if arch in HARDWARE else given
    if given > limit:
        return f"the launch asks for {given} B of SMEM; a block on {arch} has at most {limit} B"
    return ""


def _spill_sentence(kernel: Kernel) -> str:
    return (
        f"{kernel.registers} registers a thread do not suffice: {kernel.spill_stores} B of spill "
        f"stores, {kernel.spill_loads} B of spill loads"
    )


def _remark(kernels: Iterable[Kernel]) -> str:
    """What is worth saying about kernels that passed."""
    kernels = tuple(kernels)
    if any(kernel.registers is None for kernel in kernels):
        return (
            "registers and spills are unknown: this version of the DSL does not print them; "
            f"pip install {CUOBJDUMP_DISTRIBUTION} to read them from the cubin"
        )
    frames = [kernel for kernel in kernels if kernel.stack_bytes]
    if not frames:
        return ""
    size = max(kernel.stack_bytes or 0 for kernel in frames)
    if any(kernel.spill_bytes is None for kernel in frames):
        return f"{size} B of stack a thread: spills or an array in local memory (not told apart)"
    return f"{size} B of stack a thread: an array in local memory"


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")
