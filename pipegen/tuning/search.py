# SPDX-License-Identifier: Apache-2.0
"""A whole search: candidates, compiling, measuring each size, and once more around the fast ones.

Where the work is done is the executors' matter, and what a result is `halving`'s.
"""

from collections.abc import Callable, Iterable, Sequence
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
from pipegen.tuning.results import (
    Results,
    description_digest,
    space_digest,
    text_digest,
)
from pipegen.tuning.space import (
    Candidate,
    Dropped,
    Space,
    Values,
    searched,
    space_of,
    variations,
    with_values,
)

# Candidates of a size whose neighbours are tried, and how many of them over all sizes.
FAST_PER_SHAPE, FAST_IN_ALL = 2, 8

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """How to search. `most`: candidates to compile at first; `refine`: try the neighbours of the
    fast ones; `limit` and `timeout`: seconds for a step on the GPU, and to compile a module."""

    peers: tuple[str, ...]
    keep: tuple[str, ...] = ()
    most: int = 120
    refine: bool = True
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


def first_space(
    description: KernelDescription, proposals: Iterable[Values], options: Options
) -> tuple[Space, int]:
    """The candidates to begin with, at most `options.most`, and how many more there would be."""
    found = space_of(description, proposals, options.keep)
    kept = found.candidates[: options.most]
    return replace(found, candidates=kept), len(found.candidates) - len(kept)


def search(
    description: KernelDescription,
    shapes: Sequence[Shape],
    proposals: Iterable[Values],
    options: Options,
    results: Results,
    place: Place,
    device: str,
    save: Callable[[Results], None] = lambda _: None,
    progress: Progress = lambda *_: None,
) -> Outcome:
    """Search; each size's result goes into `results`, which `save` gets each time."""
    own = as_described(description)
    outcome = Outcome(description, own.name, device=device)
    found, outcome.left_out = first_space(description, proposals, options)
    outcome.dropped += found.dropped
    run = _Run(description, options, results, place, device, save, progress, outcome)
    coarse = run.round("coarse", shapes, [own, *found.candidates])
    if not options.refine:
        outcome.shapes = coarse
        return outcome
    neighbours = space_of(description, _neighbours(coarse, outcome), options.keep)
    outcome.dropped += neighbours.dropped
    known = set(outcome.candidates)
    fresh = [each for each in neighbours.candidates if each.name not in known]
    winners = {timing.name for result in coarse for timing in result.ranked}
    again = [outcome.candidates[name] for name in sorted(winners | {own.name}) if name in known]
    fine = run.round("fine", shapes, [*again, *fresh])
    outcome.shapes = [_joined(*each) for each in zip(coarse, fine, strict=True)]
    return outcome


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
        self, what: str, shapes: Sequence[Shape], candidates: Sequence[Candidate]
    ) -> list[ShapeResult]:
        """Compile the candidates and measure each size, but for what the results already have."""
        digest = description_digest(self.description, self.options.keep)
        prefix = f"{digest} | {self.device} | "
        deadly = self.results.deadly(prefix)
        able = [each for each in candidates if text_digest(each.text) not in deadly]
        self.outcome.candidates |= {each.name: each for each in candidates}
        self.outcome.not_compiled |= {
            each.name: "crashed or hung in an earlier run, and is unchanged"
            for each in candidates
            if each not in able
        }
        space = space_digest(candidates, self.options.peers)
        keys = {shape: f"{prefix}{what} | {','.join(map(str, shape))}" for shape in shapes}
        done = {shape: self.results.finished(key, space) for shape, key in keys.items()}
        missing = [shape for shape in shapes if done[shape] is None]
        self.outcome.resumed += len(shapes) - len(missing)
        if missing:
            compiled = self._compile(able)
            for measured in self._measure(what, missing, compiled):
                done[measured.shape] = measured
                self.results.put(keys[measured.shape], space, measured, self.outcome.candidates)
                self.save(self.results)
        return [result for shape in shapes if (result := done[shape]) is not None]

    def _compile(self, candidates: Sequence[Candidate]) -> tuple[Compiled, ...]:
        jobs = [CompileJob(each.name, each.text, self.options.timeout) for each in candidates]
        pool = self.place.compiling
        futures: list[Future[Compiled]] = [pool.submit(compile_candidate, job) for job in jobs]
        for number, _ in enumerate(as_completed(futures)):
            self.progress("compiling", number + 1, len(jobs))
        made = [future.result() for future in futures]
        self.outcome.not_compiled |= {each.name: each.failed for each in made if each.failed}
        return tuple(each for each in made if not each.failed)

    def _measure(
        self, what: str, shapes: Sequence[Shape], compiled: tuple[Compiled, ...]
    ) -> Iterable[ShapeResult]:
        options, own = self.options, self.outcome.described
        always = (own,) if any(each.name == own for each in compiled) else ()
        jobs = [
            MeasureJob(
                shape, compiled, options.peers, always, options.stages, options.limit,
                options.factory,
            )
            for shape in shapes
        ]  # fmt: skip
        word = "measuring" if what == "coarse" else "measuring neighbours"
        self.progress(word, 0, len(jobs))
        pool = self.place.measuring
        for number, future in enumerate(as_completed([pool.submit(measure, j) for j in jobs])):
            yield future.result()
            self.progress(word, number + 1, len(jobs))


def _neighbours(coarse: Sequence[ShapeResult], outcome: Outcome) -> list[Values]:
    """Variations of the candidates that were fast at most sizes."""
    counts: dict[str, int] = {}
    for result in coarse:
        for place, timing in enumerate(result.ranked[:FAST_PER_SHAPE]):
            counts[timing.name] = counts.get(timing.name, 0) + FAST_PER_SHAPE - place
    names = sorted(counts, key=lambda name: (-counts[name], name))[:FAST_IN_ALL]
    found: list[Values] = []
    for name in names:
        candidate = outcome.candidates[name]
        made = plan(with_values(outcome.description, candidate.values, name))
        stages = {each.name: each.stages for each in made.pipelines}
        found += variations(candidate, stages.get("mainloop", 0), stages.get("epilogue", 0))
    return found


def _joined(coarse: ShapeResult, fine: ShapeResult) -> ShapeResult:
    """The second round's result, with the shares and losses of the first one's candidates."""
    if not fine.ranked:
        return coarse
    first = coarse.ranked[0].name if coarse.ranked else ""
    scale = fine.shares.get(first, 1.0)
    shares = {name: share * scale for name, share in coarse.shares.items()} | dict(fine.shares)
    return replace(fine, shares=shares, out={**coarse.out, **fine.out})
