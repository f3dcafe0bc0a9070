# SPDX-License-Identifier: Apache-2.0
"""Programs of waits and arrivals for ring buffers, for groups in turn, and for roles of a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pipegen.barriers.machine import LIMIT, Barrier, Finding, Op, System, explore

# Laps after which both parities of each barrier have come twice: what goes wrong shows by then.
LAPS = 2


@dataclass(frozen=True)
class End:
    """One group at an end of a ring: its arrivals for a stage, and what it does to the bytes.

    A producer of TMA arms `armed` bytes (with its first arrival) and copies `copied`. `trips`:
    stages that it goes through; None for as many laps as show every fault. `phase`: the parity of
    its first wait, by default 1 for a producer and 0 for a consumer. `first` and `every`: of a
    ring's stages, in their order, those that a group which takes turns comes to. `also`: rings, by
    name, at which it does the same (multicast: its copies land, and its releases count, in both
    CTAs). `tails`: whether a producer waits at its end until all its stages have been released.
    """

    name: str
    arrivals: int
    armed: int = 0
    copied: int = 0
    trips: int | None = None
    phase: int | None = None
    first: int = 0
    every: int = 1
    also: tuple[str, ...] = ()
    tails: bool = True

    def place(self, count: int) -> int:
        """The stage, counted from the ring's first, that it comes to in its count-th pass."""
        return self.first + count * self.every


@dataclass(frozen=True)
class TurnsModel:
    """Groups, by their agents' names, that take turns; `depth` ordered parts of `count` arrivals.

    `arrivals`: what a group brings to the next one's barrier.
    """

    name: str
    groups: tuple[str, ...]
    count: int
    arrivals: int
    depth: int = 1


@dataclass(frozen=True)
class RingModel:
    """A ring: what its barriers were initialised with, and who comes to them."""

    name: str
    stages: int
    full_count: int
    empty_count: int
    producers: tuple[End, ...]
    consumers: tuple[End, ...]


@dataclass(frozen=True)
class Step:
    """One pass of a role: the stages it waits for, those it acquires, and what it then gives on.

    A stage may stay open over several passes, until a later one commits or releases it. `turns`:
    the orders in which it waits for its turn and gives it on, between the two.
    """

    takes: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()


@dataclass
class _Agents:
    """Programs that grow; who has gone through which stage is known at the end."""

    barriers: list[Barrier] = field(default_factory=list)
    programs: dict[str, list[Op]] = field(default_factory=dict)
    # What a wait needs, as (agent, event): resolved when all programs are written.
    needs: dict[tuple[str, int], list[tuple[str, tuple[str, int, str]]]] = field(
        default_factory=dict
    )
    done: dict[tuple[str, tuple[str, int, str]], int] = field(default_factory=dict)

    def system(self) -> System:
        names = list(self.programs)
        for (agent, place), wanted in self.needs.items():
            after = tuple(
                (names.index(other), self.done[other, event])
                for other, event in wanted
                if (other, event) in self.done
            )
            self.programs[agent][place] = replace(self.programs[agent][place], after=after)
        return System(
            tuple(self.barriers), tuple((name, tuple(ops)) for name, ops in self.programs.items())
        )


class _Ring:
    """A ring within a system: writes the operations of its ends into their programs."""

    def __init__(
        self, agents: _Agents, model: RingModel, rings: "dict[str, _Ring] | None" = None
    ) -> None:
        self.agents, self.model, self.first = agents, model, len(agents.barriers)
        self.rings = {} if rings is None else rings
        for stage in range(model.stages):
            agents.barriers += [
                Barrier(f"{model.name}'s full barrier {stage}", model.full_count),
                Barrier(f"{model.name}'s empty barrier {stage}", model.empty_count),
            ]

    def wait(self, end: End, index: int, fills: bool, tail: bool = False) -> None:
        """The acquire of a producer, or the wait of a consumer, of the index-th stage.

        In the tail a producer only waits until the last stage that it filled has been released.
        """
        stage, lap = index % self.model.stages, index // self.model.stages
        start = (1 if fills else 0) if end.phase is None else end.phase
        program = self.agents.programs.setdefault(end.name, [])
        others = self.model.consumers if fills else self.model.producers
        before = index - self.model.stages if fills else index
        event = (self.model.name, before, "release" if fills else "commit")
        self.agents.needs[end.name, len(program)] = [(other.name, event) for other in others]
        word = "acquires" if fills else "waits for"
        says = f"{word} stage {stage} of {self.model.name}, lap {lap}"
        barrier = self.first + 2 * stage + (1 if fills else 0)
        program.append(Op("wait", barrier, (start + lap) % 2, says))
        if fills and (end.armed or end.copied) and not tail:
            says = f"arms stage {stage} of {self.model.name} with {end.armed} B"
            program.append(Op("arm", self.first + 2 * stage, end.armed, says))
            if end.arrivals > 1:
                says = "arrives for its other copies and threads"
                program.append(Op("arrive", self.first + 2 * stage, end.arrivals - 1, says))
            for ring in (self, *(self.rings[name] for name in end.also)):
                barrier = ring.first + 2 * stage
                program.append(Op("copy", barrier, end.copied, "starts its copy"))
                self.agents.done[end.name, (ring.model.name, index, "commit")] = len(program)

    def leave(self, end: End, index: int, fills: bool) -> None:
        """The commit of a producer, or the release of a consumer, of the index-th stage."""
        stage = index % self.model.stages
        program = self.agents.programs[end.name]
        copies = fills and bool(end.armed or end.copied)
        if end.arrivals and not copies:
            word = "commits" if fills else "releases"
            barrier = self.first + 2 * stage + (0 if fills else 1)
            says = f"{word} stage {stage} of {self.model.name}"
            program.append(Op("arrive", barrier, end.arrivals, says))
        if not copies:
            event = (self.model.name, index, "commit" if fills else "release")
            # Who does not say that it is through is so with its next step.
            self.agents.done[end.name, event] = len(program) + (0 if end.arrivals else 1)
        for ring in () if copies else (self.rings[name] for name in end.also):
            ring.leave(replace(end, also=()), index, fills)


def ring_system(ring: RingModel) -> System:
    """A ring on its own: each end goes through its stages as fast as it can."""
    agents = _Agents()
    inside = _Ring(agents, ring)
    laps = LAPS * 2 * ring.stages
    for ends, fills in ((ring.producers, True), (ring.consumers, False)):
        for end in ends:
            agents.programs.setdefault(end.name, [])
            trips = laps if end.trips is None else end.trips
            for index in range(end.first, trips, end.every):
                inside.wait(end, index, fills)
                inside.leave(end, index, fills)
            if fills and trips and end.every == 1:
                inside.wait(end, trips - 1 + ring.stages, fills, tail=True)
    return agents.system()


@lru_cache(maxsize=1024)
def find_in_ring(ring: RingModel, limit: int = LIMIT) -> Finding | None:
    """The fault of a ring on its own, in any order of events."""
    return explore(ring_system(ring), limit)


def find_in_turns(counts: Sequence[int], arrivals: Sequence[int], phase: int = 1) -> Finding | None:
    """The fault of groups that take turns: one barrier each, with its count (PipelineOrder).

    `arrivals[i]`: what group i brings to the next group's barrier. `phase`: the parity of the first
    group's first wait, which passes at once; the others' is 0.
    """
    barriers = tuple(Barrier(f"turn {index}", count) for index, count in enumerate(counts))
    # One thread of each group may lag behind the others.
    parts = [(1, brought - 1) if brought > 1 else (brought,) for brought in arrivals]
    first = [sum(len(part) for part in parts[:index]) for index in range(len(parts))]
    agents = []
    for index, amounts in enumerate(parts):
        before = index - 1 if index else len(counts) - 1
        following = (index + 1) % len(counts)
        for place, brought in enumerate(amounts):
            ops: list[Op] = []
            for lap in range(2 * LAPS):
                parity = ((phase if index == 0 else 0) + lap) % 2
                # Two operations a turn: group i's turn comes when the one before has had it.
                turns = lap + 1 if index else lap
                after = tuple((first[before] + k, 2 * turns) for k in range(len(parts[before])))
                ops.append(
                    Op("wait", index, parity, f"waits for turn {lap}", after if turns else ())
                )
                ops.append(Op("arrive", following, brought, f"gives turn {lap} on"))
            name = f"group {index}" if place or len(amounts) == 1 else f"one of group {index}"
            agents.append((name, tuple(ops)))
    return explore(System(barriers, tuple(agents)))


class _Turns:
    """An order within a system: a barrier for each group and part (PipelineOrder)."""

    def __init__(self, agents: _Agents, model: TurnsModel) -> None:
        self.agents, self.model, self.first = agents, model, len(agents.barriers)
        for part in range(model.depth):
            agents.barriers += [
                Barrier(f"{model.name}'s turn of {group} in part {part}", model.count)
                for group in model.groups
            ]

    def take(self, agent: str, lap: int) -> None:
        """A group's waits for its lap-th turn, and what it gives on, part by part."""
        groups = self.model.groups
        group, program = groups.index(agent), self.agents.programs[agent]
        for part in range(self.model.depth):
            barrier = self.first + part * len(groups)
            before = groups[group - 1]
            event = (self.model.name, (lap if group else lap - 1) * self.model.depth + part, "turn")
            self.agents.needs[agent, len(program)] = [(before, event)]
            parity = ((0 if group else 1) + lap) % 2
            says = f"waits for turn {lap} of {self.model.name}"
            program.append(Op("wait", barrier + group, parity, says))
            following = barrier + (group + 1) % len(groups)
            says = f"gives turn {lap} of {self.model.name} on"
            program.append(Op("arrive", following, self.model.arrivals, says))
            done = (self.model.name, lap * self.model.depth + part, "turn")
            self.agents.done[agent, done] = len(program)


def roles_system(
    rings: Sequence[RingModel],
    steps: Mapping[str, Sequence[Step]],
    turns: Sequence[TurnsModel] = (),
) -> System:
    """All rings of a graph together: each role takes, then fills, then gives back, step by step."""
    agents = _Agents()
    inside: dict[str, _Ring] = {}
    for ring in rings:
        inside[ring.name] = _Ring(agents, ring, inside)
    orders = {order.name: _Turns(agents, order) for order in turns}
    ends = {
        (ring.name, fills, end.name): end
        for ring in rings
        for group, fills in ((ring.producers, True), (ring.consumers, False))
        for end in group
    }
    for role, passes in steps.items():
        agents.programs.setdefault(role, [])
        # How many stages of each ring it has waited for, and left: some may stay open.
        taken: dict[str, int] = {}
        left: dict[str, int] = {}
        for step in passes:
            for names, fills in ((step.takes, False), (step.fills, True)):
                for name in names:
                    end, count = ends[name, fills, role], taken.setdefault(name, 0)
                    inside[name].wait(end, end.place(count), fills)
                    taken[name] += 1
            for name in step.turns:
                orders[name].take(role, taken.setdefault(name, 0))
                taken[name] += 1
            for names, fills in ((step.commits, True), (step.releases, False)):
                for name in names:
                    end, count = ends[name, fills, role], left.setdefault(name, 0)
                    inside[name].leave(end, end.place(count), fills)
                    left[name] += 1
        for name, trips in left.items():
            filled = ends.get((name, True, role))
            if filled and filled.tails and filled.every == 1:
                last = trips - 1 + inside[name].model.stages
                inside[name].wait(filled, last, True, tail=True)
    return agents.system()


def find_in_roles(
    rings: Sequence[RingModel],
    steps: Mapping[str, Sequence[Step]],
    every_order: bool = False,
    turns: Sequence[TurnsModel] = (),
) -> Finding | None:
    """The fault of a graph, whose rings have none on their own.

    One order of events decides it (`machine.explore`); `every_order` tries all, for small graphs.
    """
    return explore(roles_system(rings, steps, turns), every_order=every_order)
