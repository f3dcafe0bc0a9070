# SPDX-License-Identifier: Apache-2.0
"""Interleaved rounds: in each, everything that is compared takes its turn once. Pure.

What is timed is a `sample`: a function that runs a name's kernel so many times and says the
seconds of one run. Each round has an order of its own: what ran before a kernel decides how hot
the chip is.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence

Sample = Callable[[str, int], float]


def interleave(
    sample: Sample, repeats: Mapping[str, int], rounds: int, seed: int = 0
) -> dict[str, list[float]]:
    """Seconds of one run, for each name one figure a round."""
    order = random.Random(seed)
    figures: dict[str, list[float]] = {name: [] for name in repeats}
    for _ in range(rounds):
        for name in order.sample(list(repeats), len(repeats)):
            figures[name].append(sample(name, repeats[name]))
    return figures


def repeats_for(
    sample: Sample, names: Sequence[str], seconds: float, least: int = 1
) -> dict[str, int]:
    """How often each must run for a turn of about `seconds`, from a first short turn of each."""
    return {
        name: max(least, math.ceil(seconds / max(sample(name, max(least, 2)), 1e-7)))
        for name in names
    }
