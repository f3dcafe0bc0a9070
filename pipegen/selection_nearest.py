# SPDX-License-Identifier: Apache-2.0
"""Which valid selections are near to an impossible one. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipegen.selection import Request, Selection

# How far apart two ends are: 1 for words that do the same job, 2 for any other two.
_KIN = (
    {"tma", "cp_async"},
    {"thread", "cp_async"},
    {"umma", "wgmma"},
    {"umma", "umma+thread"},
    {"thread", "wgmma"},
    {"thread", "umma+thread"},
)


def nearest(
    request: Request, candidates: Iterable[Selection], limit: int = 5
) -> tuple[Selection, ...]:
    """Valid pairs near to an impossible one: other consumers, other producers, other places."""

    def cost(near: Selection) -> int:
        ends = _distance(request.producer, near.producer)
        ends += _distance(request.consumer, near.consumer)
        if (near.producer, near.consumer) == (request.consumer, request.producer):
            ends = 1  # the ends were only swapped
        return (
            2 * ends
            + (5 if request.arch not in (None, near.arch) else 0)
            + (6 if request.backend not in (None, near.backend) else 0)
            + (1 if request.style not in (None, near.style) else 0)
            + (3 if request.cta_group != near.cta_group else 0)
        )

    ranked = sorted(candidates, key=cost)  # stable: the table breaks ties
    # The two best of each end first, so that both ends are varied, then whatever is near.
    chosen = [
        *[near for near in ranked if near.producer == request.producer][:2],
        *[near for near in ranked if near.consumer == request.consumer][:2],
        *ranked,
    ]
    return tuple(sorted(_distinct(chosen, bool(request.backend))[:limit], key=cost))


def _distance(a: str, b: str) -> int:
    return 0 if a == b else 1 if {a, b} in _KIN else 2


def _distinct(selections: Iterable[Selection], by_backend: bool) -> list[Selection]:
    """Without repeats of a row or of a pair (elsewhere, or in another spelling)."""
    found: list[Selection] = []
    seen: set[object] = set()
    for selection in selections:
        pair = (selection.producer, selection.consumer, selection.backend if by_backend else "")
        row = (selection.row.cls, selection.row.pair)
        if pair not in seen and row not in seen:
            found.append(selection)
        seen |= {pair, row}
    return found
