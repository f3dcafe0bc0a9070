# SPDX-License-Identifier: Apache-2.0
"""A cluster of a custom kernel is two CTAs, and its rings are such as its classes allow.

What it checks
    That cluster.shape is [1, 1], [2, 1] or [1, 2]; that peer and multicast stand in a cluster; that
    a ring of the peer is filled by a body and taken by one; that what is loaded for both CTAs is
    the same for both, by TMA, in halves that begin at a multiple of 128 B; and that where two CTAs
    share a panel, nothing depends on the order of its tiles or is written once a panel.

Why
    PipelineAsync arrives at the barrier of another CTA (producer_mask, consumer_mask), and a thread
    can write that CTA's SMEM; TMA arms and signals barriers of its own CTA. A signal to a CTA
    outside the cluster, or to one that has left, is a fault: so all CTAs of a cluster go through as
    many panels and tiles, and leave together. TMA writes to multiples of 128 B (PTX ISA,
    "cp.async.bulk.tensor").

Example
    peer = true on "load -> work": TMA would have to arm a barrier of the other CTA.

Use instead
    A body between: "load -> give", "give -> work" with peer = true.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.hardware import TMA_SMEM_ALIGNMENT
from pipegen.planning.custom.graph import Graph, Ring
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.reading import read_graph

SHAPES = ((1, 1), (2, 1), (1, 2))
NAMES = {(2, 1): "M", (1, 2): "N"}


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    if graph.cluster not in SHAPES:
        yield Problem(
            "a ring of the peer has one peer: two CTAs are a cluster",
            "cluster.shape",
            list(graph.cluster),
            listing(f"[{m}, {n}]" for m, n in SHAPES),
            "[2, 1]" if graph.cluster[0] >= graph.cluster[1] else "[1, 2]",
        )
        return
    for ring in graph.rings:
        yield from _ring(description, graph, ring)
    if graph.cluster == (1, 2):
        yield from _shared_panel(graph)


def _ring(description: KernelDescription, graph: Graph, ring: Ring) -> Iterator[Problem]:
    for key in ("peer", "multicast"):
        if getattr(ring, key) and not graph.clustered:
            yield Problem(
                f"{ring.edge}: a CTA alone has no other one to signal to, and one outside its "
                "cluster cannot be reached",
                f"pipeline.{ring.name}.{key}",
                True,
                "cluster.shape = [2, 1] or [1, 2]",
                "cluster.shape = [2, 1]",
            )
            return
    if ring.peer:
        yield from _peer(graph, ring)
    if ring.multicast:
        yield from _multicast(description, graph, ring)


def _peer(graph: Graph, ring: Ring) -> Iterator[Problem]:
    key = f"pipeline.{ring.name}.peer"
    movers = [name for name in ring.sources if graph.role(name).kind != "thread"]
    stores = [name for name in ring.targets if graph.role(name).kind != "thread"]
    if movers:
        kind = graph.role(movers[0]).kind
        yield Problem(
            f"{movers[0]} moves by {kind}, which signals barriers of its own CTA only",
            key,
            True,
            "a ring that a body fills",
            f'"{movers[0]} -> between", and "between -> {ring.targets[0]}" with peer = true',
        )
    elif stores:
        yield Problem(
            f"{stores[0]} reads its stages by TMA, and the other CTA's threads cannot publish what "
            "they wrote to this CTA's async proxy",
            key,
            True,
            "a ring that a body takes",
            f'role.{stores[0]}.kind = "thread"',
        )
    elif ring.credits:
        yield Problem(
            "the first tiles' zeros would have to come from the other CTA, before it has begun",
            f"pipeline.{ring.name}.credits",
            ring.credits,
            "0",
            "0",
        )


def _multicast(description: KernelDescription, graph: Graph, ring: Ring) -> Iterator[Problem]:
    key = f"pipeline.{ring.name}.multicast"
    along = NAMES[graph.cluster]
    numbers = Numbers(graph, description.kernel.arch, description.kernel.backend)
    other = next((name for name in ring.sources if graph.role(name).kind != "tma"), None)
    if other or len(ring.sources) > 1:
        what = f"{other} is of kind {graph.role(other).kind}" if other else "two roles load"
        yield Problem(
            f"{what}, and only one TMA load goes to both CTAs",
            key,
            True,
            "a ring of one role of kind tma",
            "false",
        )
        return
    for part in ring.parts:
        if along in part.dims:
            yield Problem(
                f"the cluster's two CTAs are along {along}, and {part.name} is "
                f"({', '.join(part.dims)}): each needs a tile of its own",
                key,
                True,
                f"tensors without {along}",
                "false",
            )
        elif numbers.copied_bytes(part) % (2 * TMA_SMEM_ALIGNMENT):
            size, dim = numbers.copied_bytes(part), "n" if "N" in part.dims else "m"
            tile = graph.tile[1] if dim == "n" else graph.tile[0]
            yield Problem(
                f"each CTA loads half of {part.name}'s {size} B, and TMA writes to multiples of "
                f"{TMA_SMEM_ALIGNMENT} B",
                key,
                True,
                f"tiles of a multiple of {2 * TMA_SMEM_ALIGNMENT} B",
                f"tile.{dim} = {tile * 2 * TMA_SMEM_ALIGNMENT // size}",
            )


def _shared_panel(graph: Graph) -> Iterator[Problem]:
    """What cannot be where each CTA has every second tile of a panel."""
    for order in graph.orders:
        yield Problem(
            "the two CTAs of a cluster take the tiles of a panel in turn: the tile before is the "
            "other one's, and no order reaches there",
            f"order.{order.name}.roles",
            ", ".join(order.roles),
            "cluster.shape = [2, 1]",
            "cluster.shape = [2, 1]",
        )
    for ring in graph.rings:
        if ring.credits:
            yield Problem(
                "the two CTAs of a cluster take the tiles of a panel in turn: what a ring leads "
                "back would be of the tile before the last",
                f"pipeline.{ring.name}.credits",
                ring.credits,
                "cluster.shape = [2, 1]",
                "cluster.shape = [2, 1]",
            )
    for role in graph.roles:
        for part in role.writes:
            if part.every == "panel":
                yield Problem(
                    f"both CTAs of a cluster have the same panel, and each would write its own "
                    f"{part.name}",
                    f"tensor.{part.name}.write",
                    role.name,
                    "matrices, or cluster.shape = [2, 1]",
                    "cluster.shape = [2, 1]",
                )
