# SPDX-License-Identifier: Apache-2.0
"""Of rule PG278: what a role of kind umma gives on, and who may take it."""

from collections.abc import Iterator

from pipegen.errors import Problem
from pipegen.planning.custom.graph import UMMA, Graph, Ring, RoleNode


def umma_problems(graph: Graph, role: RoleNode) -> Iterator[Problem]:
    """What is wrong with the ends of a role that multiplies with tcgen05, or takes its sums."""
    if role.kind == UMMA:
        yield from _gives(graph, role)
        yield from _shared(graph, role)
    elif role.sums:
        yield from _places(role)


def _gives(graph: Graph, role: RoleNode) -> Iterator[Problem]:
    """A role of kind umma has one ring of f32 sums, which threads take."""
    if role.finish is not None:
        yield Problem(
            f"{role.name}'s sums are in TMEM, and no thread of it has any",
            f"role.{role.name}.finish",
            role.finish,
            "no value: the body of the role that takes the sums ends a tile",
            "role.epilogue.body",
        )
        return
    if role.writes:
        out = role.writes[0].name
        yield Problem(
            f"{role.name}'s sums are in TMEM; a role of threads takes them from there",
            f"tensor.{out}.write",
            role.name,
            f"a role of threads, and a ring of sums to it from {role.name}",
            f'"epilogue", and pipeline.acc.edge = "{role.name} -> epilogue"',
        )
        return
    if len(role.outputs) > 1:
        names = [ring.name for ring in role.outputs]
        yield Problem(
            f"{role.name} has one product and would give it to {' and '.join(names)}",
            f"pipeline.{names[1]}.edge",
            role.outputs[1].edge,
            "one ring, which several roles may take from",
            f'pipeline.{names[0]}.edge = "{_fanned(role.outputs)}"',
        )
        return
    for ring in role.outputs:
        yield from _ring(graph, role, ring)


def _fanned(rings: tuple[Ring, ...]) -> str:
    targets = dict.fromkeys(target for ring in rings for target in ring.targets)
    return f"{rings[0].sources[0]} -> {', '.join(targets)}"


def _ring(graph: Graph, role: RoleNode, ring: Ring) -> Iterator[Problem]:
    if ring.parts and ring.parts[0].dtype != "f32":
        yield Problem(
            f"{role.name}'s accumulators are f32; who takes them rounds",
            f"pipeline.{ring.name}.dtype",
            ring.parts[0].dtype,
            '"f32"',
            "leave the key out, and give the type to the ring behind",
        )
        return
    for target in ring.targets:
        kind = graph.role(target).kind
        if kind != "thread":
            does = "multiplies" if kind == UMMA else "stores by TMA"
            yield Problem(
                f"{target} {does} from SMEM, and {role.name}'s sums are in TMEM",
                f"pipeline.{ring.name}.edge",
                ring.edge,
                "a role of threads that takes the sums, and a ring from it",
                f'"{role.name} -> round", and a ring "round -> {target}" of dtype "bf16"',
            )
            return


def _shared(graph: Graph, role: RoleNode) -> Iterator[Problem]:
    """A stage that tcgen05 and threads both read would be released in two ways."""
    for ring in role.inputs:
        others = [name for name in ring.targets if graph.role(name).kind != UMMA]
        if others:
            yield Problem(
                f"{role.name} releases a stage of {ring.name} by tcgen05.commit, "
                f"{others[0]} by its threads",
                f"pipeline.{ring.name}.edge",
                ring.edge,
                "a ring for each of them",
                f'"{", ".join(ring.sources)} -> {role.name}"',
            )
            return


def _places(role: RoleNode) -> Iterator[Problem]:
    """GMEM that a thread with a row of the accumulator can find its place in."""
    symbols = role.sums[0].parts[0].dims
    for key, parts in (("read", role.reads), ("write", role.writes)):
        for part in parts:
            if not {*part.dims} <= {*symbols}:
                yield Problem(
                    f"a thread of {role.name} has a row of {', '.join(symbols)}, and "
                    f"{part.name} is ({', '.join(part.dims)})",
                    f"tensor.{part.name}.{key}",
                    role.name,
                    f"a role of kind tma, or another shape: {', '.join(symbols)} or one of them",
                    '"load"' if key == "read" else f'tensor.{part.name}.shape = "M, N"',
                )
                return
