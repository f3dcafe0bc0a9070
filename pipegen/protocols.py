# SPDX-License-Identifier: Apache-2.0
"""The states of a stage, and what moves it on, for each class of `cutlass.pipeline`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StageState:
    """One state: where the current phase of both barriers stands, and when the state ends."""

    stage: str
    full: str
    empty: str
    until: str


@dataclass(frozen=True)
class Protocol:
    """Who completes the barriers of a stage (`full`, `empty`), and the stage's states in turn."""

    full: str
    empty: str
    states: tuple[StageState, ...]


@cache
def protocols() -> dict[str, Protocol]:
    """The protocol of each class, by its name (`protocols.toml`)."""
    path = Path(__file__).with_name("protocols.toml")
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: _protocol(entry) for name, entry in document.items()}


def _protocol(entry: dict[str, Any]) -> Protocol:
    if "state" in entry:
        states = tuple(StageState(**state) for state in entry["state"])
    else:
        states = ring_states(entry["filled"], entry["emptied"])
    return Protocol(entry["full"], entry["empty"], states)


def ring_states(filled: str, emptied: str) -> tuple[StageState, ...]:
    """The states of a stage with a full and an empty mbarrier.

    A producer's state starts with phase 1: the phase before the first counts as complete, so that
    the first lap's acquires pass (PTX ISA, "mbarrier.test_wait", phaseParity).
    """
    return (
        StageState("free", "open", "complete", "the producer's acquire, which passes at once"),
        StageState("being filled", "open", "open", filled),
        StageState("full", "complete", "open", "the consumer's wait, which passes at once"),
        StageState("being read", "complete", "open", f"{emptied}; both phases flip"),
    )
