# SPDX-License-Identifier: Apache-2.0
"""What trying a kernel in the emulator gave: plain data, for people and for JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The backends whose modules the emulator runs.
EMULATED = ("cute", "cute-ts", "pallas")
# Begins the line in which a worker process hands over its trials.
MARK = "pipegen-verified:"


@dataclass(frozen=True)
class Fault:
    """One finding: its code, its kind, a sentence, and where (the instruction at fault first)."""

    code: str
    kind: str
    message: str
    places: tuple[str, ...] = ()

    def paragraph(self) -> str:
        """The fault on one line; the places are for a list below it."""
        return f"{self.code} {self.kind}: {self.message}"


@dataclass(frozen=True)
class Trial:
    """One run of a kernel: the sizes, the schedule, and what came of it.

    `passed` is the self-check's verdict, None where nothing was computed (`sync_only`); `said` is
    what it printed. `instructions` are those of all warps; `seconds` is the emulation alone.
    """

    label: str
    sizes: Mapping[str, int]
    sms: int
    schedule: int
    policy: str
    seed: int
    passed: bool | None
    said: str
    faults: tuple[Fault, ...]
    launches: int
    instructions: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Nothing was found, and the numbers are right where there are any."""
        return self.passed is not False and not self.faults

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ok": self.ok}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Trial":
        """The trial that `as_dict` described. KeyError or TypeError if it is none."""
        fields = {name: given[name] for name in cls.__dataclass_fields__}
        faults = (Fault(**{**f, "places": tuple(f["places"])}) for f in fields.pop("faults"))
        return cls(faults=tuple(faults), **fields)


def distinct_faults(trials: Iterable[Trial]) -> tuple[tuple[Fault, Trial], ...]:
    """Each fault once, with the first trial that showed it: schedules repeat what is wrong."""
    seen: dict[tuple[str, tuple[str, ...]], tuple[Fault, Trial]] = {}
    for trial in trials:
        for fault in trial.faults:
            seen.setdefault((fault.code, fault.places[:1]), (fault, trial))
    return tuple(seen.values())
