# SPDX-License-Identifier: Apache-2.0
"""Tries a module in the emulator: at several sizes, under several schedules.

In this process, for one architecture: the CuTe DSL reads its target when it is imported, and Mosaic
GPU keeps the first.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipegen.compiling.module import imported_backends
from pipegen.emulator.cases import Case
from pipegen.emulator.emitted import Checked, EmittedModule, load_module
from pipegen.emulator.finding_docs import WRONG_RESULT, code_of
from pipegen.emulator.launch import Launch
from pipegen.emulator.machine import Limits, Policy, Result, run
from pipegen.emulator.mosaic.emitted import PallasModule
from pipegen.emulator.mosaic.hooks import own_errors
from pipegen.emulator.ptx.ir import PtxError
from pipegen.emulator.session import Dsl, capturing
from pipegen.emulator.verdict import Fault, Trial
from pipegen.errors import InputError
from pipegen.vendor.header import read_header

# When asynchronous operations complete, schedule by schedule: at the latest that is legal, at the
# earliest, and anywhere between. What works by luck under one of them fails under another.
POLICIES: tuple[Policy, ...] = ("late", "early", "random")


@dataclass(frozen=True)
class How:
    """How to try. `schedules`: runs of each case, each with an order of warps of its own.

    `data_schedules`: how many of them compute; the others run the protocol alone, which is several
    times faster. `seed`: of the inputs and of the first schedule. `instructions`: a run's limit.
    """

    schedules: int = 1
    data_schedules: int = 1
    seed: int = 0
    instructions: int = Limits().instructions


def try_module(path: Path, arch: str, cases: Sequence[Case], how: How) -> tuple[Trial, ...]:
    """The trials of an emitted module's self-check. InputError if it cannot be tried."""

    dsl = _dsl_of(path)

    def start(session: Any) -> Callable[[Case, int], Checked]:
        module: EmittedModule | PallasModule
        module = PallasModule(path, session) if dsl == "pallas" else EmittedModule(path, session)

        def check(case: Case, seed: int) -> Checked:
            return module.check(list(case.sizes.values()), seed)

        return check

    return _tried(path, arch, cases, how, start, dsl)


def try_entry(path: Path, entry: str, arch: str, sms: int | None, how: How) -> tuple[Trial, ...]:
    """The trials of a function of the user's file that takes no arguments.

    It builds its arrays, calls its kernels and may compare: False, or a failed assertion, is wrong.
    """

    dsl = _dsl_of(path)

    def start(session: Any) -> Callable[[Case, int], Checked]:
        function = getattr(load_module(path), entry, None)
        if not callable(function):
            raise InputError(f"{path}: has no function {entry!r}")
        required = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if required:
            raise InputError(
                f"{path}: {entry} takes {', '.join(required)}. The emulator calls it without "
                "arguments: name a function that builds its own arrays"
            )

        def call() -> object:
            with own_errors(session._capture):
                return function()

        return lambda case, seed: _called(call)

    return _tried(path, arch, (Case(entry, {}, sms or 0),), how, start, dsl)


def _dsl_of(path: Path) -> Dsl:
    """The DSL of a file by its header or imports; the CuTe DSL where they do not say."""
    text = path.read_text("utf-8", "replace")
    header = read_header(text)
    backends = [header.backend] if header else imported_backends(text)
    return "pallas" if backends == ["pallas"] else "cute"


def _called(function: Callable[[], object]) -> Checked:
    """A failed assertion is a verdict; any other exception is an error of the user's function."""
    try:
        return Checked(function() is not False, "")
    except AssertionError as error:
        return Checked(False, str(error).strip() or "an assertion failed")


def _tried(
    path: Path,
    arch: str,
    cases: Sequence[Case],
    how: How,
    start: Callable[[Any], Callable[[Case, int], Checked]],
    dsl: Dsl,
) -> tuple[Trial, ...]:
    trials: list[Trial] = []
    machine = _Machine(how)
    for sms in dict.fromkeys(case.sms for case in cases):
        with capturing(machine.execute, arch, sms or None, str(path), dsl) as session:
            check = start(session)
            for case in cases:
                if case.sms == sms:
                    trials += [_try(machine, check, case, each) for each in range(how.schedules)]
    return tuple(trials)


def _try(
    machine: "_Machine", check: Callable[[Case, int], Checked], case: Case, schedule: int
) -> Trial:
    machine.begin(schedule)
    how = machine.how
    try:
        checked = check(case, how.seed)
    except PtxError as error:
        raise InputError(f"cannot be emulated: {error}") from error
    faults = [_fault(finding) for result in machine.results for finding in result.findings]
    passed = None if machine.sync_only else checked.passed
    if not machine.results:
        raise InputError("nothing was launched: there is no kernel to try")
    if passed is False and not faults:
        said = " ".join(checked.said.split()) or "the function returned False"
        faults.append(Fault(code_of(WRONG_RESULT), WRONG_RESULT, said))
    return Trial(
        label=case.label,
        sizes=dict(case.sizes),
        sms=case.sms,
        schedule=schedule,
        policy=machine.policy,
        seed=how.seed + schedule,
        passed=passed,
        said=checked.said if passed is not None else "",
        faults=tuple(faults),
        launches=len(machine.results),
        instructions=sum(result.instructions for result in machine.results),
        seconds=sum(result.seconds for result in machine.results),
    )


class _Machine:
    """Executes the launches of one trial after the other, each under its schedule."""

    def __init__(self, how: How) -> None:
        self.how = how
        self.results: list[Result] = []
        self._schedule = 0

    @property
    def policy(self) -> Policy:
        return POLICIES[self._schedule % len(POLICIES)]

    @property
    def sync_only(self) -> bool:
        return self._schedule >= self.how.data_schedules

    def begin(self, schedule: int) -> None:
        self._schedule = schedule
        self.results = []

    def execute(self, launch: Launch) -> None:
        result = run(
            launch,
            seed=self.how.seed + self._schedule,
            late=self.policy,
            sync_only=self.sync_only,
            limits=Limits(instructions=self.how.instructions),
        )
        self.results.append(result)


def _fault(finding: Any) -> Fault:
    places = tuple(str(place) for place in finding.places)
    return Fault(code_of(finding.kind), finding.kind, finding.message, places)
