# SPDX-License-Identifier: Apache-2.0
"""Modules against peers, size by size: what `pipegen bench` and `benchmarks/hopper.py` run.

Nothing here touches a GPU: a `Measurer` does (see `protocol`), and a test has a fake one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipegen.measuring.protocol import Entrant, Measurer
from pipegen.measuring.rows import COPY, Timed, row_of
from pipegen.measuring.shapes import Shape, size_of

ROUNDS, TURN_SECONDS = 30, 0.012


def bench(
    measurer: Measurer,
    entrants: Sequence[Entrant],
    shapes: Sequence[Shape],
    peers: Sequence[str],
    rounds: int = ROUNDS,
    seconds: float = TURN_SECONDS,
    progress: Callable[[Shape], None] = lambda _: None,
    ready: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """A row for each size: `row_of`'s, and `out`, those that could not take part and why.

    `ready` is called each time when all is checked, and timing begins. A size at which no module
    could take part has only its letters and `out`.
    """
    rows = []
    for shape in shapes:
        progress(shape)
        rows.append(bench_shape(measurer, entrants, shape, peers, rounds, seconds, ready))
    return rows


def bench_shape(
    measurer: Measurer,
    entrants: Sequence[Entrant],
    shape: Shape,
    peers: Sequence[str],
    rounds: int,
    seconds: float,
    ready: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """The row of one size."""
    prepared = measurer.prepare(shape, entrants, peers)
    out = dict(prepared.out)
    others = list(prepared.notes.get("others", ()))
    names = [*prepared.modules, *(n for each in prepared.peers.values() for n in each.values())]
    names += [*others, *([COPY] if prepared.copy_work else [])]
    if not prepared.modules:
        return {**size_of(shape), "out": out}
    measurer.lost.clear()
    ready()
    figures = measurer.time(names, rounds, seconds)
    out |= measurer.lost
    modules = [name for name in prepared.modules if name in figures]
    if not modules:
        return {**size_of(shape), "out": out}
    timed = Timed(
        size_of(shape),
        prepared.work,
        figures,
        modules,
        _present(prepared.peers, figures),
        prepared.clock,
        prepared.copies,
        prepared.copy_work,
    )
    row = row_of(timed)
    work = prepared.work / 1e12
    row["others"] = {
        name: work / sorted(figures[name])[len(figures[name]) // 2]
        for name in others
        if name in figures
    }
    return {**row, "out": out}


def _present(
    peers: Mapping[str, Mapping[str, str]], figures: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, str]]:
    """The configurations of each peer that were timed; no peer without any."""
    found = {
        peer: {word: name for word, name in each.items() if name in figures}
        for peer, each in peers.items()
    }
    return {peer: each for peer, each in found.items() if each}
