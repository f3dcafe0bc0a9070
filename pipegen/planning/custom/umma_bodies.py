# SPDX-License-Identifier: Apache-2.0
"""The bodies of roles that take tcgen05's sums from TMEM: the identity, or the description's."""

from pipegen.planning.custom.bodies import Body
from pipegen.planning.custom.code import arguments_of, field_of, upper
from pipegen.planning.custom.graph import Part, Ring, RoleNode
from pipegen.planning.custom.product_code import block_shape


def reader_body(role: RoleNode, given: list[str]) -> Body:
    """The function of a role of threads that takes accumulators; `given`: the user's lines."""
    names = [f"{name}: cute.Tensor" for name in arguments_of(role)]
    words = [
        *(_taken(ring, part) for ring in role.inputs for part in ring.parts),
        *(f"{p.name}: ({', '.join(p.dims)}) in GMEM, by load_row" for p in role.reads),
        *(
            f"{field_of(r, part)}: the stage to fill, by store_piece"
            for r in role.outputs
            for part in r.parts
        ),
        *(f"{p.name}: ({', '.join(p.dims)}) in GMEM, by store_row" for p in role.writes),
    ]
    if role.reads or role.writes:
        names += ["row: cutlass.Int32", "column: cutlass.Int32"]
        words.append("row, column: of the matrix, this thread's row and the tile's first column")
    what = "Yours" if role.body else "Yours; as written, the identity"
    return Body(
        role.name,
        ", ".join([*names, "thread: cutlass.Int32"]),
        [
            f"{what}. {upper(role.name)}_WARPS warps; this is thread `thread` of them.",
            "",
            "A thread has the row `thread` of the tile, PIECE columns at a time.",
            *words,
        ],
        given or identity(role),
    )


def _taken(ring: Ring, part: Part) -> str:
    held = f"{part.name}, " if part.name != ring.name else ""
    where = "TMEM, by load_sums" if ring.in_tmem else "SMEM, by load_piece"
    return f"{field_of(ring, part)}: a stage, {held}{block_shape(part)} {part.dtype} in {where}"


def identity(role: RoleNode) -> list[str]:
    """The sum of what a role takes, given on, piece by piece of a row."""
    columns = role.sums[0].parts[0].dims[-1]
    inputs = [
        f"load_{'sums' if ring.in_tmem else 'piece'}({field_of(ring, part)}, piece, thread)"
        for ring in role.inputs
        for part in ring.parts
    ]
    inputs += [f"load_row({part.name}, row, column + piece * PIECE)" for part in role.reads]
    return [
        f"for piece in cutlass.range_constexpr(TILE_{columns} // PIECE):",
        f"    values = {' + '.join(inputs)}",
        *(
            f"    store_piece(values, {field_of(ring, part)}, piece, thread)"
            for ring in role.outputs
            for part in ring.parts
        ),
        *(
            f"    store_row(values, {part.name}, row, column + piece * PIECE)"
            for part in role.writes
        ),
    ]
