# SPDX-License-Identifier: Apache-2.0
"""Which candidate is the best for all sizes together, and which sizes need another kernel. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipegen.measuring.statistics import geometric_mean
from pipegen.tuning.halving import ShapeResult


@dataclass(frozen=True)
class Overall:
    """A candidate over all sizes: the geometric mean of its shares (1: the fastest everywhere)."""

    name: str
    share: float
    least: float


def overall(results: Sequence[ShapeResult]) -> list[Overall]:
    """The candidates that are right at every size that could be measured, best first."""
    measured = [result for result in results if result.ranked]
    if not measured:
        return []
    names = set.intersection(*(set(result.shares) for result in measured))
    found = [
        Overall(
            name,
            geometric_mean(result.shares[name] for result in measured),
            min(result.shares[name] for result in measured),
        )
        for name in names
    ]
    return sorted(found, key=lambda each: (-each.share, each.name))


def mean_ratio(results: Sequence[ShapeResult], peer: str) -> float:
    """The geometric mean of each size's best candidate against a peer; NaN without any."""
    return geometric_mean(
        result.ranked[0].ratios[peer].ratio
        for result in results
        if result.ranked and peer in result.ranked[0].ratios
    )


def losing(
    results: Sequence[ShapeResult], peer: str, least: float
) -> list[tuple[ShapeResult, float]]:
    """The sizes whose best candidate is below `least` of the peer: another kernel may help."""
    found = [
        (result, result.ranked[0].ratios[peer].ratio)
        for result in results
        if result.ranked and peer in result.ranked[0].ratios
    ]
    return sorted((each for each in found if each[1] < least), key=lambda each: each[1])


def failures(results: Sequence[ShapeResult]) -> dict[str, tuple[str, int]]:
    """Who was wrong, crashed or hung: the first reason, and at how many sizes."""
    found: dict[str, tuple[str, int]] = {}
    for result in results:
        for name, why in result.out.items():
            first, count = found.get(name, (why, 0))
            found[name] = (first, count + 1)
    return found
