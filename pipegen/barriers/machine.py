# SPDX-License-Identifier: Apache-2.0
"""mbarriers and the agents that wait and arrive at them; every interleaving is tried.

A barrier counts arrivals and bytes. Its phase completes when none of either is pending, and the
next begins with the same count (PTX ISA, "mbarrier": phases, tx-count). A wait names a parity and
passes while the current phase has the other one ("mbarrier.test_wait", phaseParity): so it also
passes when it should not, if a phase completes too early.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Barrier:
    """A barrier that is initialised with `count` arrivals a phase."""

    name: str
    count: int


@dataclass(frozen=True)
class Op:
    """One step of an agent, at a barrier (by its index).

    wait    passes while the current phase is not of `amount`'s parity. It must not pass before the
            agents of `after` have come as far, (agent, steps) each, and their copies have landed.
    arrive  `amount` arrivals.
    arm     one arrival that adds `amount` bytes to the phase (mbarrier.arrive.expect_tx).
    copy    starts a copy: `amount` bytes land at the barrier, at any later time.
    """

    kind: Literal["wait", "arrive", "arm", "copy"]
    barrier: int
    amount: int
    says: str
    after: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class System:
    """Barriers and the programs of the agents, by name."""

    barriers: tuple[Barrier, ...]
    agents: tuple[tuple[str, tuple[Op, ...]], ...]


@dataclass(frozen=True)
class Finding:
    """What goes wrong in some order of events: `deadlock`, `race`, or `limit` (too many states)."""

    kind: Literal["deadlock", "race", "limit"]
    message: str
    trace: tuple[str, ...] = field(default=())


# (arrivals pending, bytes pending, phases completed) of each barrier.
Phases = tuple[tuple[int, int, int], ...]
# A copy that has not landed: (agent, its step, barrier, bytes).
Copies = tuple[tuple[int, int, int, int], ...]
State = tuple[tuple[int, ...], Phases, Copies]

LIMIT = 400_000


def explore(system: System, limit: int = LIMIT, every_order: bool = True) -> Finding | None:
    """The first fault of any interleaving, or None if none has one.

    With `every_order` False, one order is run. That decides deadlock where no ring on its own has a
    fault: a wait that could pass then stays passable until its agent takes it, so that every order
    comes to the same end.
    """
    start: State = (
        (0,) * len(system.agents),
        tuple((barrier.count, 0, 0) for barrier in system.barriers),
        (),
    )
    parents: dict[State, tuple[State, str] | None] = {start: None}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        moved = False
        for word, following, early in _moves(system, state):
            moved = True
            if early:
                return Finding("race", early, _trace(parents, state, word))
            if following not in parents:
                parents[following] = (state, word)
                waiting.append(following)
            if not every_order:
                break
        if not moved and (stuck := _stuck(system, state)):
            return Finding("deadlock", stuck, _trace(parents, state, ""))
        if len(parents) > limit:
            return Finding("limit", f"more than {limit:,} states")
    return None


def _moves(system: System, state: State) -> Iterator[tuple[str, State, str]]:
    """What can happen next: its words, the state behind it, and what is wrong with it, if so."""
    places, phases, copies = state
    for index, (agent, step, barrier, amount) in enumerate(copies):
        landed = _count(system, phases, barrier, 0, -amount)
        rest = (*copies[:index], *copies[index + 1 :])
        name = system.agents[agent][0]
        word = f"{amount} B of {name}'s step {step} land at {system.barriers[barrier].name}"
        yield word, (places, landed, rest), ""
    for agent, (name, program) in enumerate(system.agents):
        place = places[agent]
        if place == len(program):
            continue
        op = program[place]
        moved = (*places[:agent], place + 1, *places[agent + 1 :])
        word = f"{name}: {op.says}"
        if op.kind == "wait":
            if phases[op.barrier][2] % 2 != op.amount:
                yield word, (moved, phases, copies), _too_early(system, state, name, op)
        elif op.kind == "copy":
            flying = tuple(sorted((*copies, (agent, place, op.barrier, op.amount))))
            yield word, (moved, phases, flying), ""
        elif op.kind == "arm":
            yield word, (moved, _count(system, phases, op.barrier, 1, op.amount), copies), ""
        else:
            yield word, (moved, _count(system, phases, op.barrier, op.amount, 0), copies), ""


def _count(system: System, phases: Phases, index: int, arrivals: int, more: int) -> Phases:
    """The phases after arrivals, one by one, and bytes, with the first, at one barrier."""
    pending, bytes_pending, completed = phases[index]
    bytes_pending += more
    count = system.barriers[index].count
    for _ in range(arrivals):
        pending -= 1
        if pending == 0 and bytes_pending == 0:
            pending, completed = count, completed + 1
    if arrivals == 0 and pending == 0 and bytes_pending == 0:
        pending, completed = count, completed + 1
    return (*phases[:index], (pending, bytes_pending, completed), *phases[index + 1 :])


def _too_early(system: System, state: State, name: str, op: Op) -> str:
    """Why a wait that passes must not have passed yet; empty if it may."""
    places, _, copies = state
    for agent, steps in op.after:
        other = system.agents[agent][0]
        if places[agent] < steps:
            return f"{name} passes ({op.says}) before {other} is through with the stage"
        if any(
            (owner, at) == (agent, op.barrier) and step < steps for owner, step, at, _ in copies
        ):
            return f"{name} passes ({op.says}) before the bytes of {other} have landed"
    return ""


def _stuck(system: System, state: State) -> str:
    """Who waits for what, where nothing can happen any more; empty if all are done."""
    places, phases, _ = state
    found = []
    for agent, (name, program) in enumerate(system.agents):
        if places[agent] < len(program):
            op = program[places[agent]]
            pending, bytes_pending, _ = phases[op.barrier]
            lacks = f"{pending} of {system.barriers[op.barrier].count} arrivals"
            lacks += f" and {bytes_pending} B" if bytes_pending else ""
            found.append(f"{name} waits ({op.says}; {lacks} are missing)")
    return "; ".join(found)


def _trace(
    parents: dict[State, tuple[State, str] | None], state: State, last: str
) -> tuple[str, ...]:
    """The events that lead to a state, and one more."""
    words = [last] if last else []
    step = parents[state]
    while step is not None:
        words.append(step[1])
        step = parents[step[0]]
    return tuple(reversed(words))
