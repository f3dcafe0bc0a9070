# SPDX-License-Identifier: Apache-2.0
"""The bodies of a custom kernel that multiplies: wgmma, the identity, or the description's."""

import textwrap

from pipegen.planning.custom.bodies import Body
from pipegen.planning.custom.code import arguments_of, field_of, upper
from pipegen.planning.custom.graph import UMMA, Graph, Part, Ring, RoleNode
from pipegen.planning.custom.product_code import block_shape
from pipegen.planning.custom.product_numbers import ProductNumbers
from pipegen.planning.custom.products import SHAPES, Operand, Product, product_of
from pipegen.planning.custom.umma_bodies import reader_body

SLABBED = tuple(dims for dims in SHAPES.values() if len(dims) == 2)


def product_bodies_of(numbers: ProductNumbers) -> list[Body]:
    """The functions of all roles that compute; one that multiplies ends each tile in another."""
    found = []
    for role in numbers.graph.roles:
        product = product_of(role)
        if product is not None:
            found.append(_multiply(role, product))
            found += [] if role.kind == UMMA else [_finish(role, product)]
        elif role.sums:
            found.append(reader_body(role, _given(role.body)))
        elif role.kind == "thread":
            found.append(_body(numbers, role))
    return found


def _given(text: str | None) -> list[str]:
    return textwrap.dedent(text).strip().splitlines() if text else []


def _multiply(role: RoleNode, product: Product) -> Body:
    a, b = field_of(product.a.ring, product.a.part), field_of(product.b.ring, product.b.part)
    umma = role.kind == UMMA
    by, field = ("tcgen05", "tcgen05") if umma else ("wgmma", "warpgroup")
    what = "Yours" if role.body else f"Yours; as written, sums += {a} @ {b}.T by {by}"
    lines = _given(role.body) or [
        f"for k in cutlass.range_constexpr(cute.size({a}, mode=[2])):",
        f"    cute.gemm(tiled_mma, sums, {a}[None, None, k], {b}[None, None, k], sums)",
        f"    tiled_mma.set({field}.Field.ACCUMULATE, True)",
    ]
    return Body(
        role.name,
        f"{a}: cute.Tensor, {b}: cute.Tensor, sums: cute.Tensor, tiled_mma: cute.TiledMma",
        [
            f"{what}. {'One warp' if umma else f'{upper(role.name)}_WARPS warps'}.",
            "",
            _operand(product.a, f"{by}'s A: (MMA, M, K)"),
            _operand(product.b, f"{by}'s B: (MMA, N, K)"),
            (
                f"sums: the accumulator of (TILE_M, TILE_{product.columns}) f32 in TMEM"
                if umma
                else f"sums: this thread's f32 accumulators of (TILE_M, TILE_{product.columns})"
            ),
            f"tiled_mma: given back; a tile's first {'MMA' if umma else by} overwrites the sums, "
            "all others add",
        ],
        [*lines, "return tiled_mma"],
    )


def _operand(operand: Operand, side: str) -> str:
    return f"{_said(operand.part, operand.ring)}, as {side}"


def _finish(role: RoleNode, product: Product) -> Body:
    what = "Yours" if role.finish else "Yours; as written it does, and costs, nothing"
    return Body(
        f"{role.name}_finish",
        "sums: cute.Tensor, coord: cute.Tensor",
        [
            f"{what}.",
            "",
            "Ends a tile: what is in sums then is given on. sums[i] belongs to the row and column",
            "coord[i] of the whole product, which may lie outside at an edge.",
        ],
        _given(role.finish),
    )


def _body(numbers: ProductNumbers, role: RoleNode) -> Body:
    names = [f"{name}: cute.Tensor" for name in arguments_of(role)]
    words = [
        *(_said(part, ring) for ring in role.inputs for part in ring.parts),
        *(f"{part.name}: this thread's part of the tile in GMEM" for part in role.reads),
        *(f"{part.name}: the stage to fill" for ring in role.outputs for part in ring.parts),
        *(f"{part.name}: this thread's part, which is stored" for part in role.writes),
    ]
    what = "Yours" if role.body else "Yours; as written, the identity"
    return Body(
        role.name,
        ", ".join([*names, "thread: cutlass.Int32"]),
        [f"{what}. {upper(role.name)}_WARPS warps; this is thread `thread` of them.", "", *words],
        _given(role.body) or _identity(role, numbers.slabs(role)),
    )


def _said(part: Part, ring: Ring) -> str:
    held = f"{part.name}, " if part.name != ring.name else ""
    return f"{field_of(ring, part)}: a stage, {held}{block_shape(part)} {part.dtype} in SMEM"


def made_parts(role: RoleNode) -> list[Part]:
    """What a role gives on: to its rings, then to GMEM."""
    return [*(part for ring in role.outputs for part in ring.parts), *role.writes]


def taken_parts(role: RoleNode) -> list[Part]:
    """What a role takes in: of its rings, then of GMEM."""
    return [*(part for ring in role.inputs for part in ring.parts), *role.reads]


def hands_on(taken: Part, made: Part) -> bool:
    """Whether the identity can add what is taken to what is made: as it is, or repeated."""
    if len(taken.dims) == 2 or len(made.dims) == 1:
        return taken.dims == made.dims
    # A vector of M is a column, others are rows.
    return taken.dims[0] == (made.dims[0] if taken.dims == ("M",) else made.dims[1])


def _identity(role: RoleNode, slabs: int) -> list[str]:
    """The sum of what a role takes, given on; in slabs of rows, which vectors of rows have too."""
    warps = f"{upper(role.name)}_WARPS, thread"

    def tile(ring: Ring, part: Part) -> str:
        field, whole = field_of(ring, part), slabs == 1 or part.dims not in (*SLABBED, ("M",))
        return field if whole else f"slab_of({field}, {slabs}, slab)"

    inputs = [
        (part.dims, f"load_part({tile(ring, part)}, {warps})")
        for ring in role.inputs
        for part in ring.parts
    ]
    inputs += [(part.dims, f"{part.name}.load().to(cutlass.Float32)") for part in role.reads]
    lines = [f"values = {' + '.join(word for _, word in inputs)}"]
    made = made_parts(role)[0]
    if not any(dims == made.dims for dims, _ in inputs):
        rows, columns = (f"TILE_{symbol}" for symbol in made.dims)
        shared = (
            f"{upper(role.name)}_WARPS" if slabs == 1 else f"{upper(role.name)}_WARPS // {slabs}"
        )
        lines.append(f"values = values.broadcast_to(({rows} // {shared}, {columns} // 32))")
    lines += [
        f"store_part(values, {tile(ring, part)}, {warps})"
        for ring in role.outputs
        for part in ring.parts
    ]
    lines += [f"{part.name}.store(values.to({part.name}.element_type))" for part in role.writes]
    if slabs == 1:
        return lines
    return [
        f"for slab in cutlass.range({slabs}, unroll=1):",
        *(f"    {line}" for line in lines),
    ]


def product_expected(graph: Graph) -> dict[str, str]:
    """What each written tensor holds with bodies as written: a torch expression of what is read."""

    def of_role(role: RoleNode, made: Part) -> str:
        product = product_of(role)
        if product is not None:
            a, b = of_operand(product.a), of_operand(product.b)
            return f"({a} @ {b}.T)"
        words = [
            f"{word}[:, None]" if part.dims == ("M",) and len(made.dims) == 2 else word
            for part, word in [
                *((part, of_part(ring, part)) for ring in role.inputs for part in ring.parts),
                *((part, part.name) for part in role.reads),
            ]
        ]
        text = " + ".join(words)
        return f"({text})" if len(words) > 1 else text

    def of_operand(operand: Operand) -> str:
        return of_part(operand.ring, operand.part)

    def of_part(ring: Ring, part: Part) -> str:
        source = graph.role(ring.sources[0])
        return of_role(source, part) if source.kind == "thread" or source.multiplies else part.name

    return {
        part.name: (
            of_part(role.inputs[0], role.inputs[0].parts[0])
            if role.kind == "tma_store"
            else of_role(role, part)
        )
        for role in graph.roles
        for part in role.writes
    }
