# SPDX-License-Identifier: Apache-2.0
"""What Task Scheduling's checks said about a module's schedules, and the verdict on it.

`ts_verifier` writes the report in the process that compiles the module; this reads it.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipegen.compiling.installed import version_key, version_of
from pipegen.compiling.process import Outcome

VERIFIER = Path(__file__).with_name("ts_verifier.py")
_DSL = "nvidia-cutlass-dsl"
_TESTED = re.compile(rf"^# Checked with {_DSL} (\d+(?:\.\d+)*)", re.MULTILINE)
# What the checks are called for people; the others keep their names.
_NAMES = {
    "print_task_schedules": "the schedule table",
    "exhaustive_aliasing_races": "the search through all orders",
    "bytes_of_a_stage": "the bytes of a stage",
}


@dataclass(frozen=True)
class Schedule:
    """One TaskManager of a module: what was searched, what was found, and its layout.

    `states` is the sum over the searches (tiles that are skipped are searched apart). `stopped`: a
    search came to its limit, so that nothing is proved. `searched_stages` are the stages that each
    ring was searched with, `bytes` what the TMA copies of a stage bring (None: not counted), `smem`
    and `tmem` the allocations with their offsets.
    """

    states: int = 0
    deadlocks: int = 0
    races: int = 0
    launch_orders: int = 0
    stopped: bool = False
    steps: int = 1
    searched_stages: dict[str, int] = field(default_factory=dict)
    pipelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    bytes: dict[str, int | None] = field(default_factory=dict)
    smem: tuple[dict[str, Any], ...] = ()
    smem_bytes: int = 0
    barrier_bytes: int = 0
    tmem: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    failed: str = ""
    message: str = ""
    table: str = ""

    def sentence(self) -> str:
        """The verdict in words."""
        if self.stopped:
            return (
                f"not proved: the search through all orders stopped at its limit, after "
                f"{self.states} states, with nothing found"
            )
        rings = ", ".join(f"{name} {n}" for name, n in self.searched_stages.items())
        return (
            f"{self.states} states of {self.steps} steps (stages: {rings}): no deadlock, no race; "
            f"SMEM {self.smem_bytes} B"
            + "".join(f", TMEM {each['columns']} columns" for each in self.tmem)
        )

    def as_dict(self) -> dict[str, Any]:
        """The schedule for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Schedule":
        """The schedule that `as_dict` described. Raises KeyError or TypeError if it did not."""
        fields = dict(data)
        for name in ("smem", "tmem", "warnings"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


def read_schedules(path: Path) -> tuple[Schedule, ...]:
    """The verifier's report; empty if there is none (the module failed before its schedules)."""
    try:
        entries = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(_schedule(entry) for entry in entries)


def _schedule(entry: dict[str, Any]) -> Schedule:
    searches = entry["searches"]
    kept = ("steps", "searched_stages", "pipelines", "bytes", "smem", "smem_bytes", "barrier_bytes")
    said = ("tmem", "warnings", "failed", "message", "table")
    return Schedule.from_dict(
        {
            "states": sum(search["states"] for search in searches),
            "deadlocks": sum(search["deadlocks"] for search in searches),
            "races": sum(len(search["races"]) for search in searches),
            "launch_orders": sum(search["launch_orders"] for search in searches),
            "stopped": any(search["stopped"] for search in searches),
            **{key: entry[key] for key in (*kept, *said)},
        }
    )


def schedule_failure(schedules: tuple[Schedule, ...], outcome: Outcome) -> str:
    """Why the schedules of a module are wrong; empty if the checks let them pass."""
    failed = next((each for each in schedules if each.failed), None)
    if failed is not None:
        name = _NAMES.get(failed.failed, failed.failed.replace("_", " "))
        return f"{name}: {failed.message.strip()}"
    if outcome.returncode == 0 and not schedules:
        return "it made no TaskManager, so there was nothing to check"
    return ""


def remarks(schedules: tuple[Schedule, ...], text: str, installed: str = "") -> tuple[str, ...]:
    """What is worth a warning: not proved, said by the checks, or another version than checked."""
    said = [each.sentence() for each in schedules if each.stopped]
    said += [warning for each in schedules for warning in each.warnings]
    for each in schedules:
        said += [
            f"{name}: the bytes of a stage were not counted (its copies are not cute.copy, or are "
            f"multicast): num_bytes is the author's word"
            for name, brought in each.bytes.items()
            if brought is None
        ]
    return (*said, *version_remark(text, installed or version_of(_DSL)))


def version_remark(text: str, installed: str) -> tuple[str, ...]:
    """Task Scheduling is experimental: a version other than the header's may differ."""
    tested = _TESTED.search(text)
    if tested is None or not installed or version_key(installed) == version_key(tested[1]):
        return ()
    how = "newer" if version_key(installed) > version_key(tested[1]) else "older"
    return (
        f"Task Scheduling is experimental: the templates were checked with {_DSL} "
        f"{tested[1]}, and {installed}, which is {how}, is installed",
    )
