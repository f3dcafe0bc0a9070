# SPDX-License-Identifier: Apache-2.0
"""Both ends of a ring must go through as many stages.

What it checks
    That tensors which share a dimension are cut into tiles of one size along it: a role takes and
    gives a tile of each in every step.

Why
    A producer that fills one stage more than its consumer empties waits for ever in its tail; one
    that fills fewer leaves its consumer waiting for a stage (C06).

Example
    x in tiles of 32 x 256 and y in tiles of 32 x 128, both taken by one role: for N = 1024 the one
    ring has 4 stages a panel, the other 8.

Use instead
    The same tile, or two kernels.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.custom.graph import Graph
from pipegen.planning.custom.reading import read_graph

DERIVED = False


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    sizes = dict(zip("MN", graph.tile, strict=True))
    for part in graph.tensors:
        given = description.tensor[part.name].tile
        usual = [sizes[symbol] for symbol in part.dims]
        if given is None or list(given) == usual:
            continue
        key = f"tensor.{part.name}.tile"
        if len(given) != len(part.dims):
            why = f"{part.name} has {len(part.dims)} dimensions, its tile {len(given)}"
        else:
            trips = [
                " * ".join(f"ceil({s} / {size})" for s, size in zip(part.dims, tile, strict=True))
                for tile in (given, usual)
            ]
            why = (
                f"{_edge(graph, part.name)}: one end would go through {trips[0]} stages, the other "
                f"through {trips[1]}, that of [tile]"
            )
        yield Problem(why, key, list(given), str(usual), str(usual))


def _edge(graph: Graph, tensor: str) -> str:
    """The edge on which a tensor's tiles travel."""
    for role in graph.roles:
        if any(part.name == tensor for part in role.reads):
            return next((f"{ring.name}, {ring.edge}" for ring in role.outputs), role.name)
        if any(part.name == tensor for part in role.writes):
            return next((f"{ring.name}, {ring.edge}" for ring in role.inputs), role.name)
    return tensor
