# SPDX-License-Identifier: Apache-2.0
"""What a search found, for people and programs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipegen.measuring.shapes import shape_text
from pipegen.tuning.halving import ShapeResult
from pipegen.tuning.ranking import failures, losing, mean_ratio, overall
from pipegen.tuning.search import Outcome
from pipegen.tuning.space import reasons

# Below this of a peer a size is named: another kernel (split-K, stream-K, swapped operands) may
# be what it needs.
NAMED_BELOW = 0.97
_SHOWN = 8  # failures that are listed one by one


def short(outcome: Outcome, name: str) -> str:
    """A candidate's name without the description's."""
    return name.removeprefix(f"{outcome.description.kernel.name or 'kernel'}__")


def own_share(outcome: Outcome, result: ShapeResult) -> str:
    """How much faster the best is than the description as it stands; nothing if that is out."""
    share = result.shares.get(outcome.described)
    return f"{1 / share:.3f}" if share else "-"


def table(outcome: Outcome, peers: Sequence[str]) -> Any:
    """A rich table: sizes by rows; the best candidate, and its ratios."""
    from rich.table import Table

    found = Table(box=None, pad_edge=False)
    found.add_column("size")
    found.add_column("best")
    found.add_column("10^12/s", justify="right")
    for peer in peers:
        found.add_column(f"to {peer} (deciles)")
    found.add_column("to the description")
    for result in outcome.shapes:
        if not result.ranked:
            why = next(iter(result.out.values()), "nobody could be measured")
            found.add_row(shape_text(result.shape), why[:80], "-", *["-"] * len(peers), "-")
            continue
        best = result.ranked[0]
        cells = []
        for peer in peers:
            ratio = best.ratios.get(peer)
            cells.append(
                f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})" if ratio else "-"
            )
        rate = result.work / best.seconds / 1e12
        found.add_row(
            shape_text(result.shape), short(outcome, best.name), f"{rate:.2f}", *cells,
            own_share(outcome, result),
        )  # fmt: skip
    return found


def closing_lines(outcome: Outcome, peers: Sequence[str]) -> list[str]:
    """The means, the best for all sizes, what was dropped, and who failed."""
    lines = []
    for peer in peers:
        if any(r.ranked and peer in r.ranked[0].ratios for r in outcome.shapes):
            lines.append(
                f"{peer}: geometric mean {mean_ratio(outcome.shapes, peer):.3f} of each size's best"
            )
        for result, ratio in losing(outcome.shapes, peer, NAMED_BELOW):
            lines.append(f"below {NAMED_BELOW} of {peer}: {shape_text(result.shape)} ({ratio:.3f})")
    ranking = overall(outcome.shapes)
    if ranking:
        best = ranking[0]
        lines.append(
            f"best of the {len(ranking)} timed at every size: {short(outcome, best.name)}, "
            f"{best.share:.3f} of each size's fastest, least {best.least:.3f}"
        )
        own = next((each for each in ranking if each.name == outcome.described), None)
        if own is not None:
            lines.append(f"the description as it stands: {own.share:.3f}, least {own.least:.3f}")
    lines.append(
        f"{len(outcome.candidates)} candidates, {outcome.left_out} more beyond --most, "
        f"{len(outcome.dropped)} dropped by the rules, {len(outcome.not_compiled)} not compiled; "
        f"{outcome.resumed} sizes taken from the results file"
    )
    lines += [
        f"dropped by {code}: {count}, the first because {why}"
        for code, (count, why) in reasons(outcome.dropped).items()
    ]
    bad = {name: (why, 0) for name, why in outcome.not_compiled.items()} | failures(outcome.shapes)
    for name, (why, sizes) in list(bad.items())[:_SHOWN]:
        at = f" at {sizes} sizes" if sizes > 1 else ""
        lines.append(f"OUT {short(outcome, name)}{at}: {' '.join(why.split())[:200]}")
    if len(bad) > _SHOWN:
        lines.append(f"and {len(bad) - _SHOWN} more, in the results file")
    return lines


def as_data(outcome: Outcome, peers: Sequence[str]) -> dict[str, Any]:
    """The same for `--format json`."""
    return {
        "device": outcome.device,
        "shapes": [
            {
                "shape": list(result.shape),
                "ranked": [
                    {
                        "name": timing.name,
                        "values": outcome.candidates[timing.name].as_dict(),
                        "seconds": timing.seconds,
                        "rate": result.work / timing.seconds / 1e12,
                        "ratios": {peer: each.as_row() for peer, each in timing.ratios.items()},
                    }
                    for timing in result.ranked
                ],
                "described": result.shares.get(outcome.described),
                "out": dict(result.out),
            }
            for result in outcome.shapes
        ],
        "overall": [
            {
                "name": each.name,
                "values": outcome.candidates[each.name].as_dict(),
                "share": each.share,
                "least": each.least,
            }
            for each in overall(outcome.shapes)[:10]
        ],
        "geometric_mean": {peer: mean_ratio(outcome.shapes, peer) for peer in peers},
        "candidates": len(outcome.candidates),
        "left_out": outcome.left_out,
        "dropped": dict(Counter(each.code for each in outcome.dropped)),
        "not_compiled": outcome.not_compiled,
    }
