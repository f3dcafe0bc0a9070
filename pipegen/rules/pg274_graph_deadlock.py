# SPDX-License-Identifier: Apache-2.0
"""A custom graph must come to its end, for every number of tiles.

What it checks
    That no edges lead in a circle; and, by a small exhaustive model of the barriers (phases,
    arrivals and bytes, lap by lap), that no ring hangs or races and that the roles together do not
    hang, for panels of one tile up to more than the deepest ring holds.

Why
    In a circle every role waits for the one before it. And without one, two ways from a role to
    another may hang: where the one way needs a whole panel before it gives anything on, the other
    way's ring must hold that panel.

Example
    load -> mean, scale and mean -> scale, with mean once a panel: scale waits for the mean before
    it takes a tile, and mean needs all tiles. With 4 stages a panel of 5 tiles hangs.

Use instead
    A second load for the second way, each with a ring of its own.
"""

import re
from collections.abc import Iterator

from pipegen.barriers import Finding, find_in_ring, find_in_roles
from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.custom.graph import Graph
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.reading import read_graph

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None or min(graph.tile) < 1:
        return
    circle = graph.cycle()
    if circle:
        way = ", ".join(f"{ring.name} ({ring.edge})" for ring in circle)
        yield Problem(
            f"a circle of {len(circle)} edges, {way}: each role waits for a stage of the one "
            "before it, whatever the depths",
            f"pipeline.{circle[-1].name}.edge",
            circle[-1].edge,
            "edges that lead from loads to stores",
            f'"{circle[-1].sources[0]} -> store"',
        )
        return
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if any(numbers.stages(ring) < 1 or not ring.parts for ring in graph.rings):
        return  # rule PG273 says more about it
    for ring in graph.rings:
        found = find_in_ring(numbers.alone(ring))
        if found is not None:
            yield _hang(graph, ring.name, numbers.stages(ring), found, "")
            return
    for when, steps in numbers.cases():
        models = [numbers.together(ring) for ring in graph.rings]
        found = find_in_roles(models, steps)
        if found is not None:
            name = waiting_ring(graph, found)
            stages = numbers.stages(graph.ring(name))
            yield _hang(graph, name, stages, found, f"{when} ")
            return


def waiting_ring(graph: Graph, found: Finding) -> str:
    """The ring whose full stages nobody takes: the one that a role waits to fill."""
    for ring in graph.rings:
        for source in ring.sources:
            words = rf"\b{source} waits \(acquires stage \d+ of {ring.name}, lap"
            if re.search(words, found.message):
                return ring.name
    return graph.rings[0].name


def _hang(graph: Graph, name: str, stages: int, found: Finding, when: str) -> Problem:
    ring = graph.ring(name)
    return Problem(
        f"{ring.edge} has {stages} stages, and {when}the kernel comes to a {found.kind}: "
        f"{found.message}",
        f"pipeline.{name}.edge",
        ring.edge,
        "edges along which no role needs what another holds back",
        f'"{ring.sources[0]} -> {ring.targets[0]}", and a second load for the others',
    )
