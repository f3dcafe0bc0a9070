# SPDX-License-Identifier: Apache-2.0
"""The bodies of a custom kernel: those of the description, else the identity; and what comes of it.

The identity hands on what it takes. Of several inputs it makes the sum, of a row vector or column
vector the matrix that repeats it, and where the result has rows only, the sums of rows.
"""

import textwrap
from dataclasses import dataclass

from pipegen.planning.custom.code import arguments_of, field_of, upper
from pipegen.planning.custom.graph import Graph, Part, Ring, RoleNode


@dataclass(frozen=True)
class Body:
    """A function of the emitted file: its arguments with types, docstring and lines."""

    name: str
    arguments: str
    docstring: list[str]
    lines: list[str]

    @property
    def summary(self) -> str:
        """The docstring's first line."""
        return self.docstring[0]

    @property
    def details(self) -> list[str]:
        """Its other lines, as they stand in the function."""
        return [f"    {line}" if line else "" for line in self.docstring[1:]]


def bodies_of(graph: Graph) -> list[Body]:
    """The functions of all roles that compute, each with its finish where it keeps something."""
    found = []
    for role in graph.roles:
        if role.kind == "thread":
            found.append(_body(role))
            if role.turn:
                found.append(_turn(role))
            if role.kept:
                found.append(_finish(role))
    return found


def _body(role: RoleNode) -> Body:
    names = [f"{name}: cute.Tensor" for name in arguments_of(role)]
    if role.every == "tile":
        names.append("columns: cutlass.Int32")
    names.append("thread: cutlass.Int32")
    held = [_said(part, ring) for ring in role.inputs for part in ring.parts]
    peers = [p.name for ring in role.outputs if ring.peer for p in ring.parts if p not in role.kept]
    made = [part for ring in role.outputs for part in ring.parts if part not in role.kept]
    words = [
        *held,
        *(f"{part.name}: this thread's part of the tile in GMEM" for part in role.reads),
        *(f"{part.name}: the stage to fill" for part in made if part.name not in peers),
        *(f"{name}: the stage to fill, in the other CTA: by store_part only" for name in peers),
        *(
            f"{part.name}: this thread's part, which is stored"
            for part in role.writes
            if part not in role.kept
        ),
        *(f"{part.name}: ROWS f32 that this thread keeps over a panel" for part in role.kept),
    ]
    if role.every == "tile":
        words.append("columns: of the matrix, from this tile's first on")
    what = "Yours" if role.body else "Yours; as written, the identity"
    return Body(
        role.name,
        ", ".join(names),
        [f"{what}. {upper(role.name)}_WARPS warps; this is thread `thread` of them.", "", *words],
        textwrap.dedent(role.body).strip().splitlines() if role.body else identity(role),
    )


def _turn(role: RoleNode) -> Body:
    """The ordered part of a role that takes turns."""
    assert role.order is not None
    assert role.turn is not None
    names = arguments_of(role)
    inputs = len([part for ring in role.inputs for part in ring.parts])
    words = ["Ordered: the tile before has been through here, in another group. Its arguments are"]
    words.append(f"those of {role.name}.")
    if role.order.state:
        names.insert(inputs, role.order.name)
        words[1] = f"those of {role.name}, and what the turns hand on:"
        words.append(
            f"{role.order.name}: ROWS f32; what lane 0 of a warp leaves, the next turn has"
        )
    typed = [*(f"{name}: cute.Tensor" for name in names), "columns: cutlass.Int32"]
    return Body(
        f"{role.name}_turn",
        ", ".join([*typed, "thread: cutlass.Int32"]),
        ["Yours.", "", *words],
        textwrap.dedent(role.turn).strip().splitlines(),
    )


def _said(part: Part, ring: Ring) -> str:
    rows = "TILE_M" if "M" in part.dims else "1"
    columns = "TILE_N" if "N" in part.dims else "1"
    held = f"{part.name}, " if part.name != ring.name else ""
    return f"{field_of(ring, part)}: a stage, {held}({rows}, {columns}) {part.dtype} in SMEM"


def _finish(role: RoleNode) -> Body:
    names = [f"{part.name}: cute.Tensor" for part in role.kept]
    lines = textwrap.dedent(role.finish).strip().splitlines() if role.finish else []
    if not lines:
        lines = [f"for i in cutlass.range_constexpr({upper(role.name)}_ROWS):"]
        lines += [
            f"    {part.name}[i] = cute.arch.warp_reduction_sum({part.name}[i])"
            for part in role.kept
        ]
    what = "Yours" if role.finish else "Yours; as written, the sum over a warp's lanes"
    return Body(
        f"{role.name}_finish",
        ", ".join([*names, "thread: cutlass.Int32"]),
        [f"{what}.", "", "Ends a panel: lane 0 of each warp stores what it has then."],
        lines,
    )


def identity(role: RoleNode) -> list[str]:
    """The lines that hand on what a role takes."""
    inputs = [
        (part.dims, f"load_part({field_of(ring, part)}, {upper(role.name)}_WARPS, thread)")
        for ring in role.inputs
        for part in ring.parts
    ]
    inputs += [(part.dims, f"{part.name}.load().to(cutlass.Float32)") for part in role.reads]
    lines = []
    made = [part for ring in role.outputs for part in ring.parts]
    # A panel's vector has no columns that could lie outside: it is no part of a row's sum.
    summed = [word for dims, word in inputs if "N" in dims]
    wide = [part for part in (*made, *role.writes) if part not in role.kept]
    if wide:
        lines.append(f"values = {' + '.join(word for _, word in inputs)}")
        needed = {symbol for part in wide for symbol in part.dims}
        if not any(needed <= set(dims) for dims, _ in inputs):
            rows = f"{upper(role.name)}_ROWS" if "M" in needed else "1"
            lines.append(f"values = values.broadcast_to(({rows}, VECTOR))")
    for part in made:
        if part not in role.kept:
            lines.append(f"store_part(values, {part.name}, {upper(role.name)}_WARPS, thread)")
    for part in role.writes:
        if part not in role.kept:
            lines.append(f"{part.name}.store(values.to({part.name}.element_type))")
    if role.kept:
        lines.append(f"row_values = {' + '.join(summed)}")
        if not any({"M", "N"} <= set(dims) for dims, _ in inputs):
            # Every row has the same sum.
            shape = f"({upper(role.name)}_ROWS, VECTOR)"
            lines.append(f"row_values = row_values.broadcast_to({shape})")
        lines += [f"add_rows(row_values, {part.name}, columns, thread)" for part in role.kept]
    return lines


def expected(graph: Graph) -> dict[str, str]:
    """What identity bodies write to each tensor, as a torch expression of what is read.

    A ring of the peer hands on what the other CTA has: `of_peer(x)` in place of each x that the two
    CTAs of a cluster have different tiles of.
    """
    made: dict[tuple[str, str, bool], str] = {}
    along = {(2, 1): "M", (1, 2): "N"}.get(graph.cluster)

    def of_part(part: Part, other: bool) -> str:
        """A part that is read, by this CTA or by the other one."""
        return f"of_peer({part.name})" if other and along in part.dims else part.name

    def of_held(ring: Ring, held: Part, other: bool) -> str:
        """What a ring's stage holds."""
        source, other = graph.role(ring.sources[0]), other != ring.peer
        if source.kind != "thread":
            return of_part(held, other)
        key = (source.name, ring.name, other)
        if key not in made:
            made[key] = of_role(source, held, other)
        return made[key]

    def of_role(role: RoleNode, part: Part, other: bool = False) -> str:
        """What a role makes for `part`."""
        if role.kind == "tma_store":
            return of_held(role.inputs[0], role.inputs[0].parts[0], other)
        inputs = [
            (of_held(ring, held, other), held.dims) for ring in role.inputs for held in ring.parts
        ]
        inputs += [(of_part(read, other), read.dims) for read in role.reads]
        if part in role.kept:
            inputs = [each for each in inputs if "N" in each[1]] or inputs
        wide = "N" in part.dims or part in role.kept
        words = [f"{word}[:, None]" if wide and dims == ("M",) else word for word, dims in inputs]
        text = " + ".join(words)
        if wide and not any(set(dims) == {"M", "N"} for _, dims in inputs):
            text = f"({text}).expand(m, n)"
        elif len(words) > 1:
            text = f"({text})"
        return f"{text}.sum(1)" if part in role.kept else text

    return {part.name: of_role(role, part) for role in graph.roles for part in role.writes}
