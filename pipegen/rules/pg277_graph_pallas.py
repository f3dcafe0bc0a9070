# SPDX-License-Identifier: Apache-2.0
"""What a custom graph can have in Pallas: one warpgroup a role, matrices, TMA at both ends.

What it checks
    That each role has 4 warps and there are at most 8; that all tensors and stages are (M, N), of
    bf16, f16 or f32; that TMA loads (kind tma); and that no key asks for what Mosaic GPU does not
    give a role (cp.async, registers, results kept over a panel), or the template does not write:
    clusters, credits, orders.

Why
    Mosaic GPU's barriers count warpgroups, its copies are TMA's, and its layouts are inferred for
    whole tiles (jax, mosaic_gpu: Barrier, copy_gmem_to_smem).

Example
    kind = "cp_async": the copy has no counterpart that a warpgroup could wait for by a barrier.

Use instead
    What the message names, or backend = "cute".
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.planning.custom.graph import Graph, RoleNode
from pipegen.planning.custom.reading import read_graph

MOST_ROLES = 8
DTYPES = ("bf16", "f16", "f32")


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    if len(graph.roles) > MOST_ROLES:
        yield Problem(
            f"{len(graph.roles)} roles of a warpgroup each are more than a block's 1024 threads",
            f"role.{graph.roles[-1].name}",
            allowed=f"{MOST_ROLES} roles",
            nearest=f"an edge less than those of {graph.roles[-1].name}",
        )
    for role in graph.roles:
        yield from _role(role)
    yield from _between(description, graph)
    yield from _parts(description, graph)


def _role(role: RoleNode) -> Iterator[Problem]:
    if role.warps != 4:
        yield Problem(
            "a role is one warpgroup", f"role.{role.name}.warpgroups", role.warps // 4, "1", "1"
        )
    if role.kind == "cp_async":
        yield Problem(
            "Mosaic GPU's copies into SMEM that a barrier hears of are TMA's",
            f"role.{role.name}.kind",
            role.kind,
            '"tma", "thread", "tma_store"',
            '"tma"',
        )
    if role.kind == "thread" and role.reads:
        yield Problem(
            f"a body reads stages, and {role.name} reads {role.reads[0].name} from GMEM",
            f"tensor.{role.reads[0].name}.read",
            role.name,
            "a role of kind tma",
            '"load"',
        )
    for key in ("registers", "start", "finish"):
        if getattr(role, key):
            yield Problem(
                "a Pallas role has no such thing",
                f"role.{role.name}.{key}",
                getattr(role, key),
                "no value",
                "leave the key out",
            )


def _between(description: KernelDescription, graph: Graph) -> Iterator[Problem]:
    """Orders, clusters and credits, which the CuTe DSL's template has."""
    asked: dict[str, object] = {}
    if graph.clustered:
        asked["cluster.shape"] = list(graph.cluster)
    for name, ring in description.pipeline.items():
        for key in ("credits", "multicast", "peer"):
            if getattr(ring, key):
                asked[f"pipeline.{name}.{key}"] = getattr(ring, key)
    for order in graph.orders:
        asked[f"order.{order.name}.roles"] = ", ".join(order.roles)
    for key, value in asked.items():
        yield Problem(
            "the Pallas template writes no such thing",
            key,
            value,
            'backend = "cute"',
            "leave it out",
        )


def _parts(description: KernelDescription, graph: Graph) -> Iterator[Problem]:
    for part in graph.tensors:
        if part.dims != ("M", "N"):
            yield Problem(
                "tiles of a vector have no layout that goes with a matrix's",
                f"tensor.{part.name}.shape",
                ", ".join(part.dims),
                '"M, N"',
                '"M, N"',
            )
        if part.dtype not in DTYPES:
            yield _dtype(f"tensor.{part.name}.dtype", part.dtype)
    for name, ring in description.pipeline.items():
        if ring.shape is not None and graph.ring(name).every == "panel":
            yield Problem(
                "every stage holds a whole tile",
                f"pipeline.{name}.shape",
                ring.shape,
                '"M, N"',
                '"M, N"',
            )
        if ring.dtype is not None and ring.dtype not in DTYPES:
            yield _dtype(f"pipeline.{name}.dtype", ring.dtype)


def _dtype(key: str, value: str) -> Problem:
    return Problem(
        "a warpgroup converts no such elements to f32 here",
        key,
        value,
        listing(f'"{word}"' for word in DTYPES),
        '"bf16"',
    )
