# SPDX-License-Identifier: Apache-2.0
"""The shadow of runs without data tells what the one by granules tells, under random accesses."""

import random

import numpy as np
import pytest

from pipegen.emulator.findings import cells
from pipegen.emulator.findings.cells import Cells, CellShadow
from pipegen.emulator.findings.clocks import ASYNC, GENERIC
from pipegen.emulator.findings.shadow import ALL_BYTES, Shadow
from pipegen.emulator.machine.shared_memory import granules

GRANULES, AGENTS, WRITERS = 96, 7, 4


def an_access(chance: random.Random):
    """(granules, bytes): a slice, scattered rows, or bytes of scattered granules."""
    kind = chance.randrange(4)
    if kind == 0:
        start = chance.randrange(GRANULES - 1)
        return slice(start, chance.randrange(start + 1, GRANULES + 4)), ALL_BYTES
    if kind == 1:
        return slice(n := chance.randrange(GRANULES), n + 1), 0xF << 4 * chance.randrange(4)
    size = 16 if kind == 2 else 4
    count = chance.randrange(1, 33)
    places = [size * chance.randrange(16 * GRANULES // size) for _ in range(count)]
    return granules(np.array(places, np.uint32), size)


def a_clock(chance: random.Random, epochs: list[int]):
    """What someone knows: of each agent all, or less than all, and less still is fenced."""
    clock = np.zeros((2, AGENTS), np.int64)
    for agent, epoch in enumerate(epochs):
        clock[GENERIC, agent] = epoch - (chance.random() < 0.1) * chance.randrange(3)
        clock[ASYNC, agent] = clock[GENERIC, agent] - (chance.random() < 0.1)
    return clock


def told(conflict):
    """A conflict without what may differ: which of several granules is told."""
    return None if conflict is None else (conflict.earlier_wrote, conflict.fence)


def play(seed: int, steps: int, shared: Cells, repeated: int = 12) -> int:
    """The same random accesses of both shadows; how many conflicts there were."""
    chance = random.Random(seed)
    plain = Shadow(GRANULES, AGENTS, WRITERS)
    cut = CellShadow(shared, AGENTS, WRITERS)
    places = [an_access(chance) for _ in range(repeated)]
    epochs = [1] * AGENTS
    conflicts = 0
    for at in range(1, steps):
        where, bytes_ = chance.choice(places)
        agent = chance.randrange(AGENTS)
        clock = a_clock(chance, epochs)
        epochs[agent] += chance.random() < 0.5
        arguments = (where, agent, epochs[agent], clock, at)
        asynchronous = chance.random() < 0.3
        if chance.random() < 0.5:
            found = [s.read(*arguments, asynchronous, bytes_) for s in (plain, cut)]
        else:
            found = [s.write(*arguments, bytes_, asynchronous) for s in (plain, cut)]
        assert told(found[0]) == told(found[1]), (seed, at)
        for conflict in filter(None, found):
            assert conflict.granule in np.arange(GRANULES)[where]
        conflicts += found[0] is not None
    return conflicts


@pytest.mark.parametrize("seed", range(12))
def test_cells_tell_what_granules_tell(seed):
    assert play(seed, 400, Cells(GRANULES)) > 20


def test_ctas_share_how_memory_is_cut_and_not_what_was_accessed():
    shared = Cells(GRANULES)
    play(1, 200, shared)
    count = len(shared.parents)
    play(1, 200, shared)
    assert len(shared.parents) == count > 10
    assert sorted(np.concatenate(shared.granules).tolist()) == list(range(GRANULES))
    # Another CTA that cuts memory further while the first one goes on.
    first, second = (CellShadow(shared, AGENTS, WRITERS) for _ in range(2))
    knows = np.full((2, AGENTS), 9, np.int64)
    nothing = np.zeros((2, AGENTS), np.int64)
    assert first.write(slice(0, GRANULES), 0, 3, knows, 1) is None
    for n in range(GRANULES):
        assert second.write(slice(n, n + 1), 1, 1, nothing, 2) is None
    conflict = first.read(slice(40, 41), 1, 1, nothing, 3)
    assert (conflict.agent, conflict.granule, conflict.earlier_wrote) == (0, 40, True)


@pytest.mark.parametrize("limit", ["_CRUMBS", "_FOOTPRINTS"])
def test_crumbs_are_left_to_granules(monkeypatch, limit):
    monkeypatch.setattr(cells, limit, 8)
    shared = Cells(GRANULES)
    assert play(3, 400, shared, repeated=40) > 20
    assert shared.crumbled
    assert play(4, 400, shared, repeated=40) > 20  # one that begins with crumbs
