# SPDX-License-Identifier: Apache-2.0
"""What a custom graph can have in Pallas: one warpgroup a role, matrices, TMA at both ends.

What it checks
    That each role has 4 warps and there are at most 8; that all tensors and stages are (M, N), of
    bf16, f16 or f32; that TMA loads (kind tma); and that no key asks for what Mosaic GPU does not
    give a role (cp.async, registers, results kept over a panel), or the template does not write:
    clusters, credits. That groups which take turns have stages of their own, and 64 rows where a
    turn hands a number of each row on.

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
from pipegen.planning.custom.graph import Graph, Order, RoleNode
from pipegen.planning.custom.reading import read_graph

MOST_ROLES = 8
DTYPES = ("bf16", "f16", "f32")
STATE_ROWS = 64
# What each key asks for that a Pallas graph has not.
LACKING = {
    "peer": "Mosaic GPU has no ref of another CTA's SMEM, so that no body can fill a stage there",
    "shape": "a Pallas graph has no cluster: without stages in another CTA's SMEM there is nothing "
    "that two CTAs would share but multicast, which it does not write",
    "multicast": "a copy for both CTAs wants a ClusterBarrier for each stage, which a Pallas graph "
    "does not have",
    "credits": "a Pallas graph fills no stage before its first tile",
}


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    warpgroups = sum(role.groups for role in graph.roles)
    if warpgroups > MOST_ROLES:
        yield Problem(
            f"{warpgroups} roles or groups of 128 threads each are more than a block's 1024",
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
    """Clusters and credits, which the CuTe DSL's template has; and what turns ask of a ring."""
    asked: dict[str, object] = {}
    if graph.clustered:
        asked["cluster.shape"] = list(graph.cluster)
    for name, ring in description.pipeline.items():
        for key in ("credits", "multicast", "peer"):
            if getattr(ring, key):
                asked[f"pipeline.{name}.{key}"] = getattr(ring, key)
    for key, value in asked.items():
        yield Problem(LACKING[key.split(".")[-1]], key, value, 'backend = "cute"', "leave it out")
    for order in graph.orders:
        yield from _turns(graph, order)


def _turns(graph: Graph, order: Order) -> Iterator[Problem]:
    """Stages that belong to one group each, and a layout for a number of each row."""
    if order.groups < 2:
        return  # rule PG265 says so
    for ring in graph.rings:
        ends = {*ring.sources, *ring.targets}
        stages = ring.stages or order.groups
        if ends & set(order.roles) and stages % order.groups:
            several = order.groups * max(1, stages // order.groups)
            yield Problem(
                f"a Pallas thread counts its waits to know a barrier's phase, so each of the "
                f"{order.groups} groups must have stages of {ring.name} of its own",
                f"pipeline.{ring.name}.stages",
                stages,
                f"multiples of {order.groups}",
                str(several),
            )
    if order.state is not None and graph.tile[0] % STATE_ROWS:
        yield Problem(
            f"a number of each row is in registers as wgmma's layout has it, of {STATE_ROWS} rows",
            "tile.m",
            graph.tile[0],
            f"multiples of {STATE_ROWS}",
            str(STATE_ROWS),
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
