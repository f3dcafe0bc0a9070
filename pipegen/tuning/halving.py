# SPDX-License-Identifier: Apache-2.0
"""Successive halving: all run shortly, the faster ones longer, the fastest as long as a benchmark.

Pure: a `Measurer` does the work. A candidate is timed only if `prepare` found its result right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipegen.measuring.protocol import Entrant, Measurer
from pipegen.measuring.shapes import Shape
from pipegen.measuring.statistics import Ratio, fastest, medians, ratio_of


@dataclass(frozen=True)
class Stage:
    """So many rounds of turns of so many seconds; of the candidates `keep` go on."""

    rounds: int
    seconds: float
    keep: int


# A third, then a third: clocks settle within the last stage, which alone is reported.
STAGES = (Stage(3, 0.8e-3, 12), Stage(10, 0.8e-3, 4), Stage(15, 0.012, 4))


@dataclass(frozen=True)
class Timing:
    """A candidate that reached the last stage: seconds of a launch, and its ratio to each peer."""

    name: str
    seconds: float
    ratios: Mapping[str, Ratio]


@dataclass(frozen=True)
class ShapeResult:
    """One size: the last stage's candidates, fastest first; how all others did; who is out.

    `shares`: for every candidate that was timed, the fastest's seconds over its own, in the last
    stage that both were in. `peers`: each peer's fastest configuration, with its seconds.
    """

    shape: Shape
    ranked: tuple[Timing, ...]
    shares: Mapping[str, float]
    out: Mapping[str, str]
    peers: Mapping[str, tuple[str, float]]
    work: int
    clock: str = ""
    copies: int = 1
    extra: Mapping[str, Any] = field(default_factory=dict)


def tune_shape(
    measurer: Measurer,
    shape: Shape,
    entrants: Sequence[Entrant],
    peers: Sequence[str],
    stages: Sequence[Stage] = STAGES,
    always: Sequence[str] = (),
) -> ShapeResult:
    """Time the candidates at one size. Those in `always` reach the last stage, if they are right.

    The peers take part in every stage: what heats the chip for one heats it for all.
    """
    prepared = measurer.prepare(shape, entrants, peers)
    out = dict(prepared.out)
    alive = list(prepared.modules)
    configurations = {
        name: (peer, word) for peer, each in prepared.peers.items() for word, name in each.items()
    }
    shares: dict[str, float] = {}
    figures: dict[str, list[float]] = {}
    rivals = list(configurations)
    for number, stage in enumerate(stages):
        if not alive:
            break
        measurer.lost.clear()
        figures = measurer.time([*alive, *rivals], stage.rounds, stage.seconds)
        out |= measurer.lost
        alive = [name for name in alive if name in figures]
        rivals = [name for name in rivals if name in figures]
        if not alive:
            break
        middle = medians(figures)
        best = min(middle[name] for name in alive)
        shares |= {name: best / middle[name] for name in alive}
        alive.sort(key=lambda name: middle[name])
        last = number == len(stages) - 1
        kept = alive[: stage.keep]
        alive = kept + [name for name in always if name in alive and name not in kept]
        if not last:
            # Of a peer only its fastest configuration goes on.
            each = {peer: [n for n in rivals if configurations[n][0] == peer] for peer in peers}
            rivals = [fastest(figures, names) for names in each.values() if names]
    if not figures or not alive:
        return ShapeResult(shape, (), shares, out, {}, prepared.work, prepared.clock)
    middle = medians(figures)
    against = {configurations[name][0]: name for name in rivals}
    ranked = tuple(
        Timing(
            name,
            middle[name],
            {peer: ratio_of(figures[name], figures[rival]) for peer, rival in against.items()},
        )
        for name in alive
    )
    return ShapeResult(
        shape,
        ranked,
        shares,
        out,
        {peer: (configurations[rival][1], middle[rival]) for peer, rival in against.items()},
        prepared.work,
        prepared.clock,
        prepared.copies,
    )
