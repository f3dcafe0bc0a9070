# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios and their spread, from rounds in which all took turns. Pure functions."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How much faster one is than another: the median of the rounds' ratios, and the deciles."""

    ratio: float
    low: float
    high: float

    def as_row(self) -> dict[str, float]:
        """The three as a results file spells them."""
        return {"ratio": self.ratio, "ratio_low": self.low, "ratio_high": self.high}


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Their seconds over ours, round by round: what heated the chip heated it for both."""
    ratios = sorted(their / our for our, their in zip(ours, theirs, strict=True))
    tenth = len(ratios) // 10
    return Ratio(statistics.median(ratios), ratios[tenth], ratios[-1 - tenth])


def geometric_mean(values: Iterable[float]) -> float:
    """The mean for ratios: twice as fast and half as fast cancel out. NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def medians(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Each name's median."""
    return {name: statistics.median(each) for name, each in figures.items()}


def fastest(figures: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """The name of the smallest median; of equals the first."""
    middle = medians(figures)
    return min(names, key=lambda name: middle[name])
