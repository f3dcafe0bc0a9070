# SPDX-License-Identifier: Apache-2.0
"""A whole search: candidates, compiling, measuring each size, and once more around the fast ones.

Where the work is done is the executors' matter, and what a result is `halving`'s.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

from pipegen.description import KernelDescription
from pipegen.measuring.shapes import Shape
from pipegen.planning import plan
from pipegen.rendering import render
from pipegen.tuning.executors import Place
from pipegen.tuning.halving import STAGES, ShapeResult, Stage
from pipegen.tuning.jobs import GPU, Compiled, CompileJob, MeasureJob, compile_candidate, measure
from pipegen.tuning.proposing import raster_variations, variations
from pipegen.tuning.results import (
    Results,
    description_digest,
    space_digest,
    text_digest,
)
from pipegen.tuning.space import (
    Candidate,
    Dropped,
    Planner,
    Values,
    searched,
    with_values,
)

Progress = Callable[[str, int, int], None]
# What to try at each size, in this order.
Proposals = Mapping[Shape, Sequence[Values]]


@dataclass(frozen=True)
class Options:
    """How to search. `most`: candidates of a size to begin with; `near`: neighbours of its fastest
    ones, in a second round if there are any; `for_all`: and each size's fastest at all sizes;
    `limit` and `timeout`: seconds for a step on the GPU, and to compile a module."""

    peers: tuple[str, ...]
    keep: tuple[str, ...] = ()
    most: int = 48
    near: int = 20
    for_all: bool = False
    limit: float = 30.0
    timeout: float = 120.0
    stages: tuple[Stage, ...] = STAGES
    factory: str = GPU


@dataclass
class Outcome:
    """What a search found. `described`: the name of the candidate that is the description."""

    description: KernelDescription
    described: str
    candidates: dict[str, Candidate] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    left_out: int = 0
    not_compiled: dict[str, str] = field(default_factory=dict)
    shapes: list[ShapeResult] = field(default_factory=list)
    resumed: int = 0
    device: str = ""


def as_described(description: KernelDescription) -> Candidate:
    """The description as it stands: what the search is measured by, and the last resort."""
    name = f"{description.kernel.name or 'kernel'}__as_described"
    (text,) = render(plan(with_values(description, (), name)), formatted=False).values()
    return Candidate(name, tunable_values(description), text)


def tunable_values(description: KernelDescription) -> Values:
    """What the description itself says of the keys that a search sets."""
    data = description.model_dump(exclude_unset=True)
    found = []
    for key in searched(description.kernel.op):
        value: Any = data
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found.append((key, tuple(value) if isinstance(value, list) else value))
    return tuple(found)


@dataclass(frozen=True)
class FirstSpace:
    """What a search begins with: the candidates of each size, at most `options.most`, and how many
    proposals there would be beyond."""

    by_shape: Mapping[Shape, Sequence[Candidate]]
    left_out: int

    def candidates(self) -> list[Candidate]:
        """Those of all sizes, each once."""
        return list({each.name: each for own in self.by_shape.values() for each in own}.values())


def first_space(planner: Planner, proposed: Proposals, most: int) -> FirstSpace:
    """Plan what is proposed for each size, until there are enough."""
    found = {shape: planner.first(values, most) for shape, values in proposed.items()}
    return FirstSpace(
        {shape: own for shape, (own, _) in found.items()},
        sum(left for _, left in found.values()),
    )


def search(
    description: KernelDescription,
    proposed: Proposals,
    options: Options,
    results: Results,
    place: Place,
    device: str,
    save: Callable[[Results], None] = lambda _: None,
    progress: Progress = lambda *_: None,
) -> Outcome:
    """Search at the sizes that something is proposed for; each size's result goes into `results`,
    which `save` gets each time.

    The peers take part once: in the last round.
    """
    own = as_described(description)
    planner = Planner(description, options.keep)
    outcome = Outcome(description, own.name, device=device, dropped=planner.dropped)
    first = first_space(planner, proposed, options.most)
    outcome.left_out = first.left_out
    run = _Run(description, options, results, place, device, save, progress, outcome)
    begin = {shape: [own, *found] for shape, found in first.by_shape.items()}
    if not options.near:
        outcome.shapes = run.round("coarse", begin, options.peers)
        return outcome
    coarse = run.round("coarse", begin, ())
    everywhere = _for_all(coarse) if options.for_all else []
    again: dict[Shape, list[Candidate]] = {}
    for result in coarse:
        names = [own.name, *(timing.name for timing in result.ranked), *everywhere]
        known = [outcome.candidates[name] for name in dict.fromkeys(names)]
        near, _ = planner.first(_neighbours(result, outcome), options.near)
        again[result.shape] = [*known, *(each for each in near if each.name not in names)]
    fine = run.round("fine", again, options.peers)
    outcome.shapes = [_joined(*each) for each in zip(coarse, fine, strict=True)]
    return outcome


def _for_all(coarse: Sequence[ShapeResult]) -> list[str]:
    """Each size's fastest: one of them may be the best for all."""
    return list(dict.fromkeys(result.ranked[0].name for result in coarse if result.ranked))


@dataclass
class _Run:
    description: KernelDescription
    options: Options
    results: Results
    place: Place
    device: str
    save: Callable[[Results], None]
    progress: Progress
    outcome: Outcome

    def round(
        self, what: str, by_shape: Mapping[Shape, Sequence[Candidate]], peers: tuple[str, ...]
    ) -> list[ShapeResult]:
        """Compile the candidates and measure each size, but for what the results already have."""
        digest = description_digest(self.description, self.options.keep)
        prefix = f"{digest} | {self.device} | "
        spaces = {shape: space_digest(each, peers) for shape, each in by_shape.items()}
        keys = {shape: f"{prefix}{what} | {','.join(map(str, shape))}" for shape in by_shape}
        done = {shape: self.results.finished(key, spaces[shape]) for shape, key in keys.items()}
        missing = {shape: own for shape, own in by_shape.items() if done[shape] is None}
        self.outcome.candidates |= {e.name: e for own in by_shape.values() for e in own}
        self.outcome.resumed += len(by_shape) - len(missing)
        compiled = self._compile(self._able(missing, prefix))
        for measured in self._measure(what, missing, compiled, peers):
            shape = measured.shape
            done[shape] = measured
            self.results.put(keys[shape], spaces[shape], measured, self.outcome.candidates)
            self.save(self.results)
        return [result for result in done.values() if result is not None]

    def _able(
        self, by_shape: Mapping[Shape, Sequence[Candidate]], prefix: str
    ) -> dict[str, Candidate]:
        """Each candidate once, but for those that crashed or hung in an earlier run."""
        deadly = self.results.deadly(prefix)
        every = {each.name: each for own in by_shape.values() for each in own}
        able = {name: e for name, e in every.items() if text_digest(e.text) not in deadly}
        self.outcome.not_compiled |= {
            name: "crashed or hung in an earlier run, and is unchanged"
            for name in every
            if name not in able
        }
        return able

    def _compile(self, candidates: Mapping[str, Candidate]) -> tuple[Compiled, ...]:
        jobs = [CompileJob(e.name, e.text, self.options.timeout) for e in candidates.values()]
        pool = self.place.compiling
        futures: list[Future[Compiled]] = [pool.submit(compile_candidate, job) for job in jobs]
        for number, _ in enumerate(as_completed(futures)):
            self.progress("compiling", number + 1, len(jobs))
        made = [future.result() for future in futures]
        self.outcome.not_compiled |= {each.name: each.failed for each in made if each.failed}
        return tuple(each for each in made if not each.failed)

    def _measure(
        self,
        what: str,
        by_shape: Mapping[Shape, Sequence[Candidate]],
        compiled: tuple[Compiled, ...],
        peers: tuple[str, ...],
    ) -> Iterable[ShapeResult]:
        options, own = self.options, self.outcome.described
        always = (own,) if any(each.name == own for each in compiled) else ()
        jobs = [
            MeasureJob(
                shape, compiled, peers, frozenset(each.name for each in candidates), always,
                options.stages, options.limit, options.factory,
            )
            for shape, candidates in by_shape.items()
        ]  # fmt: skip
        if not jobs:
            return
        word = "measuring" if what == "coarse" else "measuring neighbours"
        self.progress(word, 0, len(jobs))
        pool = self.place.measuring
        for number, future in enumerate(as_completed([pool.submit(measure, j) for j in jobs])):
            yield future.result()
            self.progress(word, number + 1, len(jobs))


def _neighbours(coarse: ShapeResult, outcome: Outcome) -> list[Values]:
    """Variations of a size's fastest candidate, and of the second one its raster groups."""
    found: list[Values] = []
    for place, timing in enumerate(coarse.ranked[:2]):
        candidate = outcome.candidates[timing.name]
        if place == 1:
            found += raster_variations(candidate)
            continue
        made = plan(with_values(outcome.description, candidate.values, candidate.name))
        stages = {each.name: each.stages for each in made.pipelines}
        op, ring = outcome.description.kernel.op, stages.get("mainloop", 0)
        found += variations(candidate, op, ring, stages.get("epilogue", 0))
    return found


def _joined(coarse: ShapeResult, fine: ShapeResult) -> ShapeResult:
    """The second round's result, with the shares and losses of the first one's candidates."""
    if not fine.ranked:
        return coarse
    first = coarse.ranked[0].name if coarse.ranked else ""
    scale = fine.shares.get(first, 1.0)
    shares = {name: share * scale for name, share in coarse.shares.items()} | dict(fine.shares)
    return replace(fine, shares=shares, out={**coarse.out, **fine.out})
