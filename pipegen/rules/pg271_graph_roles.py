# SPDX-License-Identifier: Apache-2.0
"""Each role of a custom graph must be able to do what its edges ask of it.

What it checks
    Movers have nothing to compute: tma and cp_async only fill rings from GMEM, tma_store only
    empties one into GMEM. A role has something to take and something to give, no ring to itself,
    and a body's arguments have names of their own. Several sources of a ring move by one kind.

Why
    A stage is full when one number of arrivals and bytes has come. A mover that also waited for a
    ring, or a barrier that heard threads and TMA, would need counts that no class has (C14).

Example
    edge = "compute -> compute": the role would wait for a stage that only it could fill.

Use instead
    Another role between, or the kind that the message names.
"""

import math
from collections import Counter
from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.planning.custom.code import arguments_of
from pipegen.planning.custom.graph import UMMA, WGMMA, Graph, Ring, RoleNode
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.reading import MOVERS, read_graph
from pipegen.selection import Refusal, select


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    for ring in graph.rings:
        yield from _ring(description, graph, ring)
    for role in graph.roles:
        yield from _role(graph, role)


def _ring(description: KernelDescription, graph: Graph, ring: Ring) -> Iterator[Problem]:
    key = f"pipeline.{ring.name}.edge"
    itself = set(ring.sources) & set(ring.targets)
    if itself:
        name = sorted(itself)[0]
        yield Problem(
            f"{name} would wait for a stage that only {name} fills",
            key,
            ring.edge,
            "two different roles",
            f'"{name} -> other"',
        )
        return
    kinds = {source: graph.role(source).kind for source in ring.sources}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{source} by {kind}" for source, kind in kinds.items())
        yield Problem(
            f"one full barrier cannot hear {said}",
            key,
            ring.edge,
            "sources of one kind, or a ring for each",
            f'"{ring.sources[0]} -> {", ".join(ring.targets)}"',
        )
        return
    kind = kinds[ring.sources[0]]
    if len(graph.at_a_time(ring.sources)) > 1 and kind in ("thread", WGMMA, UMMA):
        yield Problem(
            "two bodies would write the same tile",
            key,
            ring.edge,
            "a ring for each source, or an order in which they take turns",
            f'"{ring.sources[0]} -> {", ".join(ring.targets)}"',
        )
        return
    wanted = kind if kind in (*MOVERS, UMMA) else "thread"
    if ring.producer != wanted:
        yield _wrong_kind(description, ring, "producer", ring.producer, wanted)
    elif ring.consumer not in (reads := _consumers(graph, ring)):
        yield _wrong_kind(description, ring, "consumer", ring.consumer, reads[0])
    if kind == "tma" and len(ring.sources) > 1:
        numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
        sizes = {
            source: sum(numbers.copied_bytes(part) for part in numbers.own_parts(ring, source))
            for source in ring.sources
        }
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{source} {size} B" for source, size in sizes.items())
            yield Problem(
                f"each of its TMA warps arms the same tx_count, and they load {said}",
                key,
                ring.edge,
                "tiles of the same bytes, or a ring for each source",
                f'"{ring.sources[0]} -> {", ".join(ring.targets)}"',
            )


def _consumers(graph: Graph, ring: Ring) -> tuple[str, ...]:
    """What the consumer of a ring may be called; threads are those that issue wgmma."""
    umma = any(graph.role(target).kind == UMMA for target in ring.targets)
    return (UMMA,) if umma else ("thread", WGMMA)


def _wrong_kind(
    description: KernelDescription, ring: Ring, end: str, value: str, wanted: str
) -> Problem:
    """Why an end cannot be of a kind: no row has the pair, or no role here is of it."""
    kernel = description.kernel
    found = select(ring.producer, ring.consumer, arch=kernel.arch, backend=kernel.backend)
    if isinstance(found, Refusal):
        why = f"no pipeline connects {ring.producer} to {ring.consumer}: {found.reason}"
    else:
        why = f"{ring.edge} has no role of that kind, which {found.cls} would need"
    return Problem(why, f"pipeline.{ring.name}.{end}", value, f'"{wanted}"', f'"{wanted}"')


def _role(graph: Graph, role: RoleNode) -> Iterator[Problem]:
    key = f"role.{role.name}.kind"
    if role.kind in MOVERS and (role.inputs or role.writes or not role.reads):
        yield Problem(
            "a mover fills rings from GMEM and does nothing else; " f"{role.name} {_ends(role)}",
            key,
            role.kind,
            '"thread"',
            '"thread"',
        )
    elif role.kind == "tma_store" and not role.from_tmem and not _stores_one(role):
        yield Problem(
            "it stores the tiles of one ring, as they are, to one matrix of their type; "
            f"{role.name} {_ends(role)}",
            key,
            role.kind,
            '"thread"',
            '"thread"',
        )
    elif not (role.inputs or role.reads) or not (role.outputs or role.writes):
        missing = "takes nothing in" if role.outputs or role.writes else "gives nothing on"
        yield Problem(
            f"{role.name} {missing}: it {_ends(role)}",
            f"role.{role.name}",
            allowed="a tensor or a ring at each side of a role",
            nearest=f'tensor.out.write = "{role.name}"',
        )
    elif role.kind not in ("thread", WGMMA, UMMA) and (
        role.body or role.finish or role.start is not None
    ):
        key = next(key for key in ("body", "finish", "start") if getattr(role, key) is not None)
        yield Problem(
            f"{role.name} is of kind {role.kind}, which moves tiles as they are",
            f"role.{role.name}.{key}",
            getattr(role, key),
            "no value",
            "leave the key out",
        )
    elif role.kind in MOVERS and not role.outputs:
        yield Problem(
            f"{role.name} gives nothing on: it {_ends(role)}",
            f"role.{role.name}",
            allowed="an edge that begins at it",
            nearest=f'pipeline.tiles.edge = "{role.name} -> store"',
        )
    elif role.kind in MOVERS:
        held = Counter(part.name for ring in role.outputs for part in ring.parts)
        lost = [part.name for part in role.reads if part.name not in held]
        if lost:
            yield Problem(
                f"{role.name} reads {listing(lost)}, and no ring of it holds it",
                f"pipeline.{role.outputs[0].name}.holds",
                listing(part.name for part in role.outputs[0].parts),
                listing(part.name for part in role.reads),
                f'"{", ".join(part.name for part in role.reads)}"',
            )
    elif not graph.multiplies:  # else rule PG278 speaks of it
        yield from _thread(role)


def _thread(role: RoleNode) -> Iterator[Problem]:
    twice = [name for name, count in Counter(arguments_of(role)).items() if count > 1]
    itself = any(ring in role.outputs for ring in role.inputs)
    if role.kind == "thread" and twice and not itself:
        yield Problem(
            f"its body would have two arguments {twice[0]}",
            f"role.{role.name}",
            allowed="tensors and pipelines of different names at a role",
            nearest=f"pipeline.{twice[0]}_tiles",
        )
    for ring in role.outputs:
        if any("M" not in part.dims for part in ring.parts) and role.kind == "thread":
            yield _no_rows(f"pipeline.{ring.name}.shape", "N")
    for part in role.writes:
        if "M" not in part.dims:
            yield _no_rows(f"tensor.{part.name}.shape", "N")
    for key in ("finish", "start"):
        if getattr(role, key) is not None and not role.kept:
            yield Problem(
                f"{role.name} keeps nothing over a panel",
                f"role.{role.name}.{key}",
                getattr(role, key),
                "no value",
                "leave the key out",
            )
    tiles = [part for ring in role.inputs for part in ring.parts] + list(role.reads)
    if role.kept and not any("N" in part.dims for part in tiles):
        yield Problem(
            f"{role.name} would keep {role.kept[0].name} over a panel's tiles, and takes none",
            f"role.{role.name}",
            allowed="a ring of tiles, or a role of its own for it",
            nearest=f'pipeline.tiles.edge = "load -> {role.name}"',
        )
    if role.start is not None and not math.isfinite(role.start):
        yield Problem(
            "the check could not compare it",
            f"role.{role.name}.start",
            str(role.start),
            "a finite number",
            "-1e30",
        )


def _no_rows(key: str, value: str) -> Problem:
    return Problem(
        "every CTA has panels of rows: all of them would write these columns",
        key,
        value,
        '"M, N", "M"',
        '"M, N"',
    )


def _stores_one(role: RoleNode) -> bool:
    """Whether a role only moves tiles of one ring to one tensor."""
    if len(role.inputs) != 1 or len(role.writes) != 1 or role.outputs or role.reads:
        return False
    parts = role.inputs[0].parts
    if len(parts) != 1:
        return False
    # TMA stores 16 bytes at a time: the end of a vector of any size would be overrun.
    whole = len(parts[0].dims) == 2
    return whole and (parts[0].dims, parts[0].dtype) == (role.writes[0].dims, role.writes[0].dtype)


def _ends(role: RoleNode) -> str:
    """What a role is connected to."""
    found = [
        ("reads", [part.name for part in role.reads]),
        ("takes", [ring.name for ring in role.inputs]),
        ("fills", [ring.name for ring in role.outputs]),
        ("writes", [part.name for part in role.writes]),
    ]
    words = [f"{verb} {listing(names)}" for verb, names in found if names]
    return "; ".join(words) or "has no edge"
