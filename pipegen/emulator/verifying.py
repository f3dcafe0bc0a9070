# SPDX-License-Identifier: Apache-2.0
"""Verifies modules: each in a process of its own, several at once, none that is known already."""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pipegen.compiling.cache import Cache, verify_key
from pipegen.compiling.installed import dsl
from pipegen.compiling.module import Module
from pipegen.compiling.process import Cancelled, Outcome, describe_signal, run
from pipegen.compiling.worker import compile_environment, last_lines
from pipegen.emulator.verdict import EMULATED, MARK, Trial, distinct_faults

DEFAULT_TIMEOUT = 600.0
# The protocol does not depend on the data: one schedule computes, and the others only run the
# protocol, several times faster. Three of them are the three ways in which asynchronous operations
# may complete; more find rarer orders of warps, at the same price each.
DEFAULT_SCHEDULES = 3

Status = Literal["ok", "finding", "error", "crash", "timeout", "skipped"]


@dataclass(frozen=True)
class Verified:
    """The verdict on one module. `message` says why there is none (`error`, `skipped`, ...)."""

    status: Status
    message: str = ""
    trials: tuple[Trial, ...] = ()
    seconds: float = 0.0
    cached: bool = False

    @property
    def failed(self) -> bool:
        """Whether this is a finding."""
        return self.status not in ("ok", "skipped")

    @property
    def instructions(self) -> int:
        """Warp instructions of all trials."""
        return sum(trial.instructions for trial in self.trials)

    def sentences(self) -> list[tuple[str, str]]:
        """(code, paragraph) of each distinct fault, or of the reason that there is no verdict."""
        found = []
        for fault, trial in distinct_faults(self.trials):
            sizes = ", ".join(f"{name.upper()}={size}" for name, size in trial.sizes.items())
            where = f"{sizes}, schedule {trial.schedule} ({trial.policy}), {trial.sms} SMs"
            found.append((fault.code, f"{fault.kind}: {fault.message} [{where}]"))
        if not found and self.failed:
            found.append((self.status, self.message))
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON and the cache."""
        return {
            "status": self.status,
            "message": self.message,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "trials": [trial.as_dict() for trial in self.trials],
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Verified":
        """What `as_dict` described. KeyError or TypeError if it is none."""
        trials = tuple(Trial.from_dict(trial) for trial in given["trials"])
        return cls(given["status"], given["message"], trials, given["seconds"])


@dataclass(frozen=True)
class Options:
    """How to verify; see `pipegen.emulator.trying.How`."""

    schedules: int = DEFAULT_SCHEDULES
    data_schedules: int = 1
    seed: int = 0


def applies_to(module: Module) -> bool:
    """Whether a module can be verified: an emitted one, with a self-check."""
    return module.has_header and module.backend in EMULATED and "\ndef check(" in module.text


def verify_all(
    modules: Sequence[Module],
    cache_folder: Path | None,
    jobs: int,
    options: Options | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    on_done: Callable[[Module, Verified], None] | None = None,
) -> list[Verified]:
    """The verdicts, in the order of the modules. One whose DSL is not installed is skipped."""
    chosen = options or Options()
    cache = Cache(cache_folder / "verify" if cache_folder else None)
    states = {name: dsl(name) for name in {module.dsl for module in modules}}
    cancel = threading.Event()

    def verify(module: Module) -> Verified:
        if not states[module.dsl].usable:
            verdict = Verified("skipped", states[module.dsl].reason)
        else:
            verdict = _known(cache, module, chosen) or _verify(module, chosen, timeout, cancel)
            if verdict.status in ("ok", "finding") and not verdict.cached:
                cache.put(_key(module, chosen), verdict.as_dict())
        if on_done:
            on_done(module, verdict)
        return verdict

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        try:
            return list(pool.map(verify, modules))
        except BaseException:
            cancel.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _known(cache: Cache, module: Module, options: Options) -> Verified | None:
    value = cache.get(_key(module, options))
    if value is None:
        return None
    try:
        return replace(Verified.from_dict(value), cached=True)
    except (KeyError, TypeError, ValueError):
        return None


def _key(module: Module, options: Options) -> str:
    return verify_key(module, json.dumps(asdict(options), sort_keys=True))


def _verify(module: Module, options: Options, timeout: float, cancel: threading.Event) -> Verified:
    with tempfile.TemporaryDirectory(prefix="pipegen-verify-") as name:
        folder = Path(name)
        environment = compile_environment(module, folder, folder)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, "-m", "pipegen.emulator.worker", str(module.path.resolve())]
        try:
            outcome = run(
                [*command, json.dumps(asdict(options))], environment, folder, timeout, cancel
            )
        except Cancelled:
            return Verified("error", "was given up")
    return _read(outcome, timeout)


def _read(outcome: Outcome, timeout: float) -> Verified:
    """The verdict in what the worker printed."""
    last = last_lines(outcome.output)
    if outcome.returncode is None:
        return Verified("timeout", f"did not end in {timeout:g} s. {last}", (), outcome.seconds)
    if outcome.returncode < 0:
        died = f"the emulator died of {describe_signal(outcome.returncode)}. {last}"
        return Verified("crash", died, (), outcome.seconds)
    marked = [line for line in outcome.output.splitlines() if line.startswith(MARK)]
    if outcome.returncode != 0 or not marked:
        failed = f"exit code {outcome.returncode}. {last}"
        return Verified("error", failed, (), outcome.seconds)
    answer = json.loads(marked[-1].removeprefix(MARK))
    if "problem" in answer:
        return Verified("error", answer["problem"], (), outcome.seconds)
    trials = tuple(Trial.from_dict(trial) for trial in answer["trials"])
    status: Status = "ok" if all(trial.ok for trial in trials) else "finding"
    return Verified(status, "", trials, outcome.seconds)
