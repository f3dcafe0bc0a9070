# SPDX-License-Identifier: Apache-2.0
"""A custom graph must come to its end, for every number of tiles.

What it checks
    That each circle of edges has a ring with credits; and, by a small exhaustive model of the
    barriers (phases, arrivals and bytes, lap by lap), that no ring hangs or races and that the
    roles together do not hang, for panels of one tile up to more than the deepest ring holds.

Why
    In a circle every role waits for the one before it, unless some stages are full before the first
    tile: credits. There must be enough of them, and room for all that is under way. And without a
    circle, two ways from a role to another may hang: where the one way needs a whole panel before
    it gives anything on, the other way's ring must hold that panel.

Example
    load -> mean, scale and mean -> scale, with mean once a panel: scale waits for the mean before
    it takes a tile, and mean needs all tiles. With 4 stages a panel of 5 tiles hangs.

Use instead
    A second load for the second way, each with a ring of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from pipegen.barriers import Finding
from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.custom.graph import Graph, Ring
from pipegen.planning.custom.models import find_alone, find_together
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.product_numbers import ProductNumbers, numbers_for
from pipegen.planning.custom.reading import read_graph

DERIVED = True
MOST_TRIED = 32  # stages


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None or min(graph.tile) < 1:
        return
    circle = graph.cycle()
    if circle:
        way = ", ".join(f"{ring.name} ({ring.edge})" for ring in circle)
        yield Problem(
            f"a circle of {len(circle)} edges, {way}, without credits: each role waits for a stage "
            "of the one before it, whatever the depths",
            f"pipeline.{circle[-1].name}.edge",
            circle[-1].edge,
            "edges that lead from loads to stores, or credits on the one that leads back",
            f"pipeline.{circle[-1].name}.credits = 1",
        )
        return
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if any(numbers.stages(ring) < 1 or not ring.parts for ring in graph.rings):
        return  # rule PG273 says more about it
    lonely = find_alone(numbers)
    if lonely is not None:
        ring, found = lonely
        yield _hang(numbers, ring.name, found, "")
        return
    if isinstance(numbers, ProductNumbers) and not numbers.formed:
        return  # rule PG278 says why
    for tiles in tile_counts(numbers):
        found_together = find_together(numbers, tiles)
        if found_together is not None:
            name = waiting_ring(graph, found_together)
            yield _hang(numbers, name, found_together, f"{numbers.case(tiles)} ")
            return


def tile_counts(numbers: Numbers) -> range:
    """Tiles of a panel to try: from 1 to more than the deepest ring holds."""
    deepest = max(numbers.stages(ring) + ring.credits for ring in numbers.graph.rings)
    return range(1, deepest + 3)


def waiting_ring(graph: Graph, found: Finding) -> str:
    """The ring whose full stages nobody takes: the one that a role waits to fill."""
    for ring in graph.rings:
        for source in ring.sources:
            words = rf"\b{source}\b[ \w]* waits \(acquires stage \d+ of {ring.name}\b[ \w]*, lap"
            if re.search(words, found.message):
                return ring.name
    return graph.rings[0].name


def _hang(numbers: Numbers, name: str, found: Finding, when: str) -> Problem:
    graph = numbers.graph
    stages = numbers.stages(graph.ring(name))
    back = next((ring for ring in graph.rings if ring.credits), None)
    if back is not None:
        return _credits(numbers, back, found, when)
    ring = graph.ring(name)
    return Problem(
        f"{ring.edge} has {stages} stages, and {when}the kernel comes to a {found.kind}: "
        f"{found.message}",
        f"pipeline.{name}.edge",
        ring.edge,
        "edges along which no role needs what another holds back",
        f'"{ring.sources[0]} -> {ring.targets[0]}", and a second load for the others',
    )


def _credits(numbers: Numbers, back: Ring, found: Finding, when: str) -> Problem:
    """Why a circle hangs in spite of its credits, and with how many stages it would not."""
    stages = numbers.stages(back)
    words = [f"{r.name} ({r.edge}) {numbers.stages(r)}" for r in numbers.graph.rings]
    enough = next(
        (more for more in range(stages + 1, MOST_TRIED + 1) if _passes(numbers, back, more)), 0
    )
    return Problem(
        f"{back.credits} credits in {stages} stages of {back.edge}, and {when}the kernel comes to "
        f"a {found.kind}, the stages being {', '.join(words)}: {found.message}",
        f"pipeline.{back.name}.{'stages' if enough else 'credits'}",
        stages if enough else back.credits,
        "credits and stages with which the model of the barriers comes to its end",
        str(enough) if enough else f"1, with pipeline.{back.name}.stages = {max(stages, 1)}",
    )


def _passes(numbers: Numbers, back: Ring, stages: int) -> bool:
    """Whether the graph comes to its end if the ring that leads back has so many stages."""
    rings = {r.name: replace(r, stages=numbers.stages(r)) for r in numbers.graph.rings}
    rings[back.name] = replace(back, stages=stages)
    tried = replace(numbers, graph=numbers.graph.with_rings(rings))
    return not any(find_together(tried, tiles) for tiles in tile_counts(tried))
