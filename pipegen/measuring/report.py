# SPDX-License-Identifier: Apache-2.0
"""What `pipegen bench` found: the JSON of a run, its table, its closing lines. No GPU needed."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipegen.errors import InputError, Problem
from pipegen.measuring.machine import machine
from pipegen.measuring.peers import version_text
from pipegen.measuring.shapes import shape_text
from pipegen.measuring.statistics import geometric_mean

FORMAT = 1


def report_of(
    op: str,
    modules: Sequence[str],
    peers: Sequence[str],
    rounds: int,
    unit: str,
    device: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything that a run found, and what it belongs to."""
    return {
        "pipegen_bench": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        "op": op,
        "unit": unit,
        "modules": list(modules),
        "peers": {peer: version_text(peer) for peer in peers},
        "rounds": rounds,
        "device": dict(device),
        "machine": machine(),
        "rows": [dict(row) for row in rows],
    }


def read_report(path: Path) -> dict[str, Any]:
    """The report in a file. Raises InputError if there is none."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None
    if not isinstance(data, dict) or data.get("pipegen_bench") != FORMAT:
        raise InputError(Problem("is no results file of `pipegen bench --json`", file=str(path)))
    return data


def shape_of(row: Mapping[str, Any]) -> str:
    """The size of a row; where there is no K, M and N."""
    sizes = [row["m"], row["n"], *([row["k"]] if row["k"] > 1 else [])]
    return shape_text(tuple(sizes))


def ratio_text(row: Mapping[str, Any]) -> str:
    """`1.043 (1.031 to 1.055)`."""
    return f"{row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"


def table(report: Mapping[str, Any]) -> Any:
    """A rich table: sizes by rows; the best module, its rate, and the ratio to each peer."""
    from rich.table import Table

    peers = list(report["peers"])
    found = Table(box=None, pad_edge=False)
    found.add_column("size")
    if len(report["modules"]) > 1:
        found.add_column("best")
    found.add_column(report["unit"], justify="right")
    for peer in peers:
        found.add_column(peer, justify="right")
        found.add_column("ratio (deciles)")
    found.add_column("clock, power")
    for row in report["rows"]:
        several = [row.get("best", "-")] if len(report["modules"]) > 1 else []
        if "best" not in row:
            reason = next(iter(row["out"].values()), "nobody could be timed")
            found.add_row(shape_of(row), *several, "-", *["-"] * (2 * len(peers)), reason[:80])
            continue
        cells = []
        for peer in peers:
            each = row["peers"].get(peer)
            cells += [f"{each['rate']:.2f}", ratio_text(each)] if each else ["-", "-"]
        found.add_row(
            shape_of(row), *several, f"{row['rate']:.2f}", *cells, gauge_text(row.get("gauge", {}))
        )
    return found


def gauge_text(gauge: Mapping[str, Mapping[str, float]]) -> str:
    """`1710 MHz, 652 W`: the medians while a size was timed; nothing for too short a time."""
    words = []
    for name, unit in (("sm_clock (MHz)", "MHz"), ("power (W)", "W")):
        if name in gauge:
            words.append(f"{gauge[name]['median']:.0f} {unit}")
    return ", ".join(words)


def closing_lines(report: Mapping[str, Any]) -> list[str]:
    """The geometric means, the versions, and who was out at which size."""
    rows = [row for row in report["rows"] if "best" in row]
    lines = []
    for peer, versions in report["peers"].items():
        ratios = [row["peers"][peer]["ratio"] for row in rows if peer in row["peers"]]
        if ratios:
            sizes = "1 size" if len(ratios) == 1 else f"{len(ratios)} sizes"
            lines.append(
                f"{peer}: geometric mean {geometric_mean(ratios):.3f} over {sizes}, least "
                f"{min(ratios):.3f}{f' ({versions})' if versions else ''}"
            )
    clocks = sorted({row["clock"] for row in rows})
    copies = [row["copies"] for row in rows]
    if rows:
        lines.append(
            f"{report['device'].get('gpu') or 'no GPU'}; clock: {', '.join(clocks)}; "
            f"{report['rounds']} rounds; {min(copies)} to {max(copies)} sets of operands"
        )
    for row in report["rows"]:
        lines += [f"OUT {name} at {shape_of(row)}: {why}" for name, why in row["out"].items()]
    return lines
