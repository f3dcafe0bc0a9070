# SPDX-License-Identifier: Apache-2.0
"""Credits are for a ring that leads back, and are stages that it has.

What it checks
    That credits are not negative, and that a ring with credits closes a circle, is filled and taken
    by a body each, and has a stage a tile.

Why
    A credit is a stage that is full of zeros before a panel's first tile: its source fills it
    before it takes anything, and its target takes it out behind the last tile. A ring that leads
    forward would hand on tiles of zeros that nobody asked for. Whether the credits are enough, and
    have room, is for the model of the barriers (rule PG274).

Example
    credits = 1 on "load -> work": TMA loads its stages, and no body fills one with zeros.

Use instead
    credits on the ring that leads back to a role that feeds it.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.custom.graph import Graph, Ring
from pipegen.planning.custom.reading import read_graph

MOST_CREDITS = 32


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    for ring in graph.rings:
        key = f"pipeline.{ring.name}.credits"
        if not 0 <= ring.credits <= MOST_CREDITS:
            yield Problem(
                f"{ring.edge} is a ring of stages, some of them full at first",
                key,
                ring.credits,
                f"0 to {MOST_CREDITS}",
                "1",
            )
        elif ring.credits:
            why = _why_not(graph, ring)
            if why:
                yield Problem(why, key, ring.credits, "0", "0")


def _why_not(graph: Graph, ring: Ring) -> str:
    """Why a ring can have no credits; empty if it can."""
    for name in (*ring.sources, *ring.targets):
        if graph.role(name).kind != "thread":
            return f"{name} is of kind {graph.role(name).kind}: no body fills or takes a stage"
    if len(ring.sources) > 1 or len(ring.targets) > 1:
        return f"{ring.edge} has several roles at an end, and a circle has one"
    if ring.every == "panel":
        return f"{ring.name} has a stage for a panel: what it leads back would be another panel's"
    if not leads(graph, ring.targets[0], ring.sources[0]):
        return f"{ring.edge} leads back to no role that feeds it"
    return ""


def leads(graph: Graph, start: str, end: str) -> bool:
    """Whether rings lead from a role to another, or it is the same one."""
    reached, open_roles = {start}, [start]
    while open_roles:
        role = open_roles.pop()
        for ring in graph.rings:
            if role in ring.sources:
                open_roles += [name for name in ring.targets if name not in reached]
                reached |= set(ring.targets)
    return end in reached
