# SPDX-License-Identifier: Apache-2.0
"""The graph of a custom kernel as text; as a picture: `picture`. Pure functions."""

from pipegen.planning.custom.graph import Graph, Order, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers


def draw_text(numbers: Numbers) -> str:
    """The graph as a tree from the roles that nobody feeds; a role that was drawn is named only."""
    graph = numbers.graph
    lines: list[str] = []
    drawn: set[str] = set()

    def draw(role: RoleNode, depth: int, way: str) -> None:
        again = role.name in drawn
        drawn.add(role.name)
        reads = f"{', '.join(part.name for part in role.reads)} -> " if role.reads else ""
        writes = f" -> {', '.join(part.name for part in role.writes)}" if role.writes else ""
        said = " (drawn above)" if again else f" [{said_of(role)}]{writes}"
        lines.append(f"{'    ' * depth}{way}{'' if again else reads}{role.name}{said}")
        if again:
            return
        for ring in role.outputs:
            for target in ring.targets:
                draw(graph.role(target), depth + 1, f"{ring.name} ({size_of(numbers, ring)}) -> ")

    for role in graph.roles:
        if not role.inputs:
            draw(role, 0, "")
    lines += [order_text(graph, order) for order in graph.orders]
    lines += [said] if (said := cluster_text(graph)) else []
    return "\n".join(lines) + "\n"


def said_of(role: RoleNode) -> str:
    """`tma, 1 warp`"""
    groups = f"{role.groups} x " if role.groups > 1 else ""
    return f"{role.kind}, {groups}{role.warps} warp{'s' if role.block_warps > 1 else ''}"


def order_text(graph: Graph, order: Order) -> str:
    """`halo: unit, polynomial in turn; hands on f32 for each of 32 rows`"""
    roles = ", ".join(order.roles)
    groups = f"{order.groups} groups of {roles}" if len(order.roles) == 1 else roles
    parts = ", two ordered parts: the body and the turn" if order.depth > 1 else ""
    hands = f"; hands on f32 for each of {graph.tile[0]} rows" if order.state else ""
    return f"{order.name}: {groups} in turn{parts}{hands}"


def cluster_text(graph: Graph) -> str:
    """What a cluster's CTAs share; nothing for a CTA alone."""
    if not graph.clustered:
        return ""
    what = "panels side by side" if graph.cluster == (2, 1) else "the tiles of one panel"
    return f"cluster of {graph.cluster[0]} x {graph.cluster[1]} CTAs: {what}"


def size_of(numbers: Numbers, ring: Ring) -> str:
    """`4 x 16384 B a tile`"""
    size = f"{numbers.stages(ring)} x {numbers.stage_bytes(ring)} B, {numbers.every(ring)}"
    return f"{size}{special(ring)}"


def special(ring: Ring) -> str:
    """What sets a ring apart: `, of the other CTA`."""
    words = [
        (ring.peer, ", of the other CTA"),
        (ring.multicast, ", for both CTAs"),
        (ring.credits > 0, f", {ring.credits} full at first"),
    ]
    return "".join(word for holds, word in words if holds)


def depths(graph: Graph) -> dict[str, int]:
    """How many rings lie at most between a load and each role."""
    found: dict[str, int] = {}

    def depth(role: RoleNode) -> int:
        if role.name not in found:
            forward = [ring for ring in role.inputs if not ring.credits]
            before = [depth(graph.role(s)) + 1 for ring in forward for s in ring.sources]
            found[role.name] = max(before, default=0)
        return found[role.name]

    for role in graph.roles:
        depth(role)
    return found
