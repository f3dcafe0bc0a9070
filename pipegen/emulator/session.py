# SPDX-License-Identifier: Apache-2.0
"""`with pipegen.emulator():` launches of CuTe DSL and Pallas kernels run on the CPU."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from pipegen.emulator.capture.capture import Capture
from pipegen.emulator.capture.device import Device, make_device
from pipegen.emulator.capture.hooks import hooked, session_arch
from pipegen.emulator.finding_docs import code_of
from pipegen.emulator.findings import Finding
from pipegen.emulator.launch import Launch
from pipegen.emulator.machine import Limits, Policy, Result, run
from pipegen.emulator.mosaic.capture import MosaicCapture
from pipegen.errors import InputError

Dsl = Literal["cute", "pallas"]

# The launch library has one listener.
_running = threading.Lock()
_ordinals = itertools.count()


class Session:
    """What an emulator offers while it runs. `launches`: all so far, in order."""

    def __init__(self, capture: Capture | MosaicCapture) -> None:
        self._capture = capture

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(self._capture.launches)

    @property
    def device(self) -> Device:
        """The GPU that the host code sees."""
        return self._capture.device

    def register(self, name: str, array: object) -> None:
        """Let kernels touch an array that they get as a bare address.

        The arrays among a call's arguments are known; one whose address travels inside another
        argument is not, and touching it is a fault. InputError for Pallas: its kernels get arrays.
        """
        self._capture.lend({name: array})

    @contextmanager
    def lending(self, arrays: Mapping[str, object]) -> Iterator[None]:
        """As `register`, for all launches of the block."""
        with self._capture.lending(arrays):
            yield


@contextmanager
def capturing(
    execute: Callable[[Launch], None],
    arch: str | None = None,
    sms: int | None = None,
    source: str = "",
    dsl: Dsl = "cute",
) -> Iterator[Session]:
    """Kernels compiled in the block are linked to the emulator; `execute` gets each launch.

    `arch`: "sm_90a" or "sm_100a", None for CUTE_DSL_ARCH. `sms`: how many SMs the GPU claims; few
    make a persistent kernel loop over many tiles. InputError if it cannot start.
    """
    if dsl == "pallas":
        with _capturing_pallas(execute, arch, sms, source) as session:
            yield session
        return
    chosen = session_arch(arch)
    if not _running.acquire(blocking=False):
        raise InputError("an emulator is running in this process already: one at a time")
    try:
        device = make_device(chosen, sms, next(_ordinals))
        capture = Capture(device, execute, source)
        with hooked(capture):
            yield Session(capture)
    finally:
        _running.release()


@contextmanager
def _capturing_pallas(
    execute: Callable[[Launch], None], arch: str | None, sms: int | None, source: str
) -> Iterator[Session]:
    if arch is None:
        raise InputError(
            "the emulator must know the architecture of Pallas kernels: say "
            '`pipegen.emulator(arch=..., dsl="pallas")`, for example "sm_90a"'
        )
    if not _running.acquire(blocking=False):
        raise InputError("an emulator is running in this process already: one at a time")
    # Late: the hooks of one DSL need nothing of the other's.
    from pipegen.emulator.mosaic import hooks

    try:
        capture = MosaicCapture(make_device(arch, sms, next(_ordinals)), execute, source)
        with hooks.hooked(capture):
            yield Session(capture)
    finally:
        _running.release()


@contextmanager
def captured_launches(
    arch: str | None = None, sms: int | None = None, source: str = "", dsl: Dsl = "cute"
) -> Iterator[Session]:
    """Launches are recorded and not executed: outputs keep what was in them."""
    with capturing(lambda launch: None, arch, sms, source, dsl) as session:
        yield session


class EmulationError(Exception):
    """A kernel was run and something is wrong with it. `findings`: all that the machine found."""

    def __init__(self, launch: Launch, findings: Sequence[Finding]) -> None:
        self.launch = launch
        self.findings = tuple(findings)
        told = []
        for finding in self.findings:
            told.append(f"{code_of(finding.kind)} {finding.kind}: {finding.message}")
            told += [f"    at {place}" for place in finding.places]
        super().__init__("\n".join([f"kernel {launch.kernel}", *told]))


class Emulation(Session):
    """A session that executes. `results`: what the machine said of each launch, in order."""

    def __init__(self, capture: Capture | MosaicCapture, results: Sequence[Result]) -> None:
        super().__init__(capture)
        self._results = results

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(self._results)


@contextmanager
def emulator(
    arch: str | None = None,
    *,
    sms: int | None = None,
    seed: int = 0,
    policy: Policy = "random",
    sync_only: bool = False,
    limits: Limits | None = None,
    dsl: Dsl = "cute",
) -> Iterator[Emulation]:
    """Launches of CuTe DSL kernels compiled in the block run on the CPU, on the CPU's arrays.

    `dsl`: "cute", or "pallas" for Pallas kernels of Mosaic GPU, called on jax arrays of the CPU.
    `arch`: "sm_90a" or "sm_100a", None for CUTE_DSL_ARCH (`cute`). `sms`: how many SMs the GPU
    claims, None for the real one's. `seed` picks the order of warps, `policy` when asynchronous
    operations complete ("late", "early" or "random"); what is right is right under all of them.
    `sync_only` runs the protocol without the data: several times faster, and outputs are undefined.

    A launch during which anything is found raises EmulationError, which has every finding with its
    code (`pipegen explain CODE`) and lines. InputError if the emulator cannot start, PtxError for
    an instruction that it does not know.
    """
    results: list[Result] = []

    def execute(launch: Launch) -> None:
        result = run(launch, seed=seed, late=policy, sync_only=sync_only, limits=limits)
        results.append(result)
        if result.findings:
            raise EmulationError(launch, result.findings)

    with capturing(execute, arch, sms, dsl=dsl) as session:
        yield Emulation(session._capture, results)
