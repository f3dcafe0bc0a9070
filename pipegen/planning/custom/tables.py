# SPDX-License-Identifier: Apache-2.0
"""The table of pipelines in the docstring of a custom kernel. Pure functions."""

from pipegen.planning.custom.graph import Ring
from pipegen.planning.custom.numbers import Numbers

HEADS = ("ring", "edge", "class", "stages", "full barrier", "empty barrier")
WIDEST = 98  # of a line of the docstring, behind its indentation
EDGE = 1  # the column that stands below the table if it makes the table too wide


def ring_table(numbers: Numbers, classes: dict[str, str]) -> list[str]:
    """A line for each ring and order: with its edge in it, or below if the edges are long."""
    rows = [ring_row(numbers, ring, classes[ring.name]) for ring in numbers.graph.rings]
    rows += [
        (
            order.name,
            " -> ".join(order.roles) if len(order.roles) > 1 else f"groups of {order.roles[0]}",
            "PipelineOrder",
            f"{order.depth}",
            f"{numbers.turn_count(order)} arrives",
            "none",
        )
        for order in numbers.graph.orders
    ]
    lines = aligned([HEADS, *rows])
    if max(len(line) for line in lines) <= WIDEST:
        return lines
    short = aligned([(*row[:EDGE], *row[EDGE + 1 :]) for row in (HEADS, *rows)])
    return [*short, "", *aligned([row[: EDGE + 1] for row in rows])]


def ring_row(numbers: Numbers, ring: Ring, cls: str) -> tuple[str, ...]:
    """One ring: name, edge, class, stages, what fills a stage and what empties it."""
    place = " of both CTAs" if ring.multicast else " of the other CTA" if ring.peer else ""
    tx_count, full = numbers.tx_count(ring), numbers.full_count(ring)
    return (
        ring.name,
        ring.edge,
        cls,
        f"{numbers.stages(ring)}",
        f"{full} x {tx_count} B" if tx_count else f"{full} arrives",
        f"{numbers.empty_count(ring)} arrives{place}",
    )


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines with columns of one width each, two spaces apart."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
