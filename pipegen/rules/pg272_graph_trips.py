# SPDX-License-Identifier: Apache-2.0
"""Both ends of a ring must go through as many stages.

What it checks
    That tensors which share a dimension are cut into tiles of one size along it: a role takes and
    gives a tile of each in every step. In a graph that multiplies, that what a role of threads
    gives on changes as often as the role takes a step, and that a product's ring has its shape.

Why
    A producer that fills one stage more than its consumer empties waits for ever in its tail; one
    that fills fewer leaves its consumer waiting for a stage (C06).

Example
    x in tiles of 32 x 256 and y in tiles of 32 x 128, both taken by one role: for N = 1024 the one
    ring has 4 stages a panel, the other 8. Or convert takes w (N, K) at each step of K, and its
    ring is of shape (M, N), which its reader expects once a tile.

Use instead
    The same tile, or two kernels.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.custom.graph import Graph
from pipegen.planning.custom.product_bodies import made_parts
from pipegen.planning.custom.product_numbers import ProductNumbers, numbers_for
from pipegen.planning.custom.products import depth_of, result_dims, words_of_depth
from pipegen.planning.custom.reading import read_graph

DERIVED = False


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    sizes = graph.extents
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if isinstance(numbers, ProductNumbers):
        yield from _loops(description, numbers)
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


def _loops(description: KernelDescription, numbers: ProductNumbers) -> Iterator[Problem]:
    """What is given on in another loop than the one in which its role takes its steps."""
    graph = numbers.graph
    for role in graph.roles:
        if role.multiplies:
            dims = result_dims([part for ring in role.inputs for part in ring.parts])
            for ring in role.outputs if dims else ():
                asked = description.pipeline[ring.name].shape
                if asked is not None and asked.replace(" ", "") != ",".join(dims or ()):
                    yield _other_shape(f"pipeline.{ring.name}.shape", role.name, asked, dims or ())
            for part in role.writes if dims else ():
                if part.dims != dims:
                    asked = ", ".join(part.dims)
                    yield _other_shape(f"tensor.{part.name}.shape", role.name, asked, dims or ())
        if role.kind != "thread":
            continue
        steps = words_of_depth(numbers.depth(role), numbers.nest)
        for part in made_parts(role):
            depth = depth_of(part.dims, numbers.nest)
            if depth != numbers.depth(role):
                section = "tensor" if part.name in graph.written else "pipeline"
                shape = ", ".join(part.dims)
                yield Problem(
                    f"{role.name} works {steps}, and {part.name} ({shape}) changes "
                    f"{words_of_depth(depth, numbers.nest)}: its two ends would go through "
                    "unequal numbers of stages",
                    f"{section}.{part.name}.shape",
                    shape,
                    f"a shape that changes {steps}",
                    f"{section}.{part.name} of a role that multiplies, which sums over the steps",
                )


def _other_shape(key: str, role: str, asked: str, dims: tuple[str, ...]) -> Problem:
    shape = ", ".join(dims)
    return Problem(
        f"{role} has a product ({shape}) to give on, once it has summed over its stages",
        key,
        asked,
        f'"{shape}"',
        f'"{shape}"',
    )


def _edge(graph: Graph, tensor: str) -> str:
    """The edge on which a tensor's tiles travel."""
    for role in graph.roles:
        if any(part.name == tensor for part in role.reads):
            return next((f"{ring.name}, {ring.edge}" for ring in role.outputs), role.name)
        if any(part.name == tensor for part in role.writes):
            return next((f"{ring.name}, {ring.edge}" for ring in role.inputs), role.name)
    return tensor
