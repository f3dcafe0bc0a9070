# SPDX-License-Identifier: Apache-2.0
"""From the seconds of interleaved rounds to the rows of a results file. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipegen.measuring.statistics import fastest, medians, ratio_of

TERA = 1e12
COPY = "copy"  # the second yardstick of what moves bytes: a copy of contiguous memory


def timed_name(peer: str, configuration: str) -> str:
    """What a configuration of a peer is called among what is timed; a module has its own name."""
    return f"{peer}: {configuration}" if configuration else peer


@dataclass(frozen=True)
class Timed:
    """What took its turns for one size. `work`: operations or bytes of a launch."""

    size: dict[str, int]
    work: int
    figures: Mapping[str, Sequence[float]]
    modules: Sequence[str]
    # peer -> the names of its configurations among the figures
    peers: Mapping[str, Mapping[str, str]]
    clock: str = "graph"
    copies: int = 1
    copy_work: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


def row_of(timed: Timed) -> dict[str, Any]:
    """The rate of each module, the best one, and its ratio to each peer's fastest configuration."""
    middle = medians(timed.figures)
    rate = {name: timed.work / seconds / TERA for name, seconds in middle.items()}
    best = fastest(timed.figures, timed.modules)
    peers = {}
    for peer, configurations in timed.peers.items():
        first = fastest(timed.figures, configurations.values())
        peers[peer] = {
            "configuration": next(word for word, name in configurations.items() if name == first),
            "rate": rate[first],
            **ratio_of(timed.figures[best], timed.figures[first]).as_row(),
            "rates": {word: rate[name] for word, name in configurations.items()},
        }
    row = {
        **timed.size,
        "best": best,
        "rate": rate[best],
        "seconds": middle[best],
        "rates": {name: rate[name] for name in timed.modules},
        "peers": peers,
        "clock": timed.clock,
        "copies": timed.copies,
        **timed.extra,
    }
    if COPY in timed.figures:
        share = ratio_of(timed.figures[best], timed.figures[COPY])
        row["copy_rate"] = timed.copy_work / middle[COPY] / TERA
        row["copy_ratio"] = share.ratio * timed.work / timed.copy_work
    return row


def table_row(row: Mapping[str, Any], peer: str, tiles: Mapping[str, str]) -> dict[str, Any]:
    """A row as `benchmarks/*.json` spells it: `peer` first, and another one under `against`.

    `tiles`: what each module's name becomes there, its tile where several were timed.
    """
    first = row["peers"][peer]
    others = {name: each for name, each in row["peers"].items() if name != peer}
    copied = {key: row[key] for key in ("copy_rate", "copy_ratio") if key in row}
    old = {
        **{letter: row[letter] for letter in "mnkl"},
        "tile": tiles[row["best"]],
        "rate": row["rate"],
        "peer_rate": first["rate"],
        **{key: first[key] for key in ("ratio", "ratio_low", "ratio_high")},
        **copied,
        "rates": {tiles[name]: rate for name, rate in row["rates"].items()} | row.get("others", {}),
        "clock": row["clock"],
        "copies": row["copies"],
    }
    for name, each in others.items():
        old["against"] = {"peer": name, **each}
    return old
