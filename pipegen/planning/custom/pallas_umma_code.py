# SPDX-License-Identifier: Apache-2.0
"""The lines and bodies of roles that multiply with tcgen05 in Pallas, and of those that take sums.

Names of the emitted file beside those of `pallas_product_code`: NAME_tmem is a ring of
accumulators, one beside the other; PIECE are columns of one that a body as written has at a time.
"""

from pipegen.planning.custom.bodies import Body
from pipegen.planning.custom.code import field_of, upper
from pipegen.planning.custom.graph import Part, Ring, RoleNode
from pipegen.planning.custom.product_bodies import made_parts
from pipegen.planning.custom.products import Product


def accumulator_of(ring: Ring) -> str:
    """One accumulator of a ring."""
    tile = f"TILE_{ring.parts[0].dims[-1]}"
    return f"{ring.name}_tmem.at[:, pl.ds({ring.name}_stage * {tile}, {tile})]"


def commits(rings: tuple[Ring, ...]) -> list[str]:
    """The arrives that say that stages have been read."""
    return [
        f"plgpu.tcgen05_commit_arrive({ring.name}_empty.at[{ring.name}_stage])" for ring in rings
    ]


def read_sums(role: RoleNode) -> list[str]:
    """The wait before accumulators go back."""
    if not role.sums:
        return []
    return ["# The sums have left TMEM, which may be written again.", "plgpu.wait_load_tmem()"]


def multiply_body(role: RoleNode, product: Product, given: list[str], said: list[str]) -> Body:
    """The function of a role that multiplies; `said`: words about its two operands."""
    a, b = (field_of(each.ring, each.part) for each in (product.a, product.b))
    what = "Yours" if role.body else f"Yours; as written, sums += {a} @ {b}.T by tcgen05"
    return Body(
        role.name,
        f"{a}, {b}, sums, accumulate",
        [
            f"{what}.",
            "",
            *said,
            f"sums: an accumulator in TMEM, (TILE_M, TILE_{product.columns}) f32",
            "accumulate: False for a tile's first stage, which overwrites the sums",
        ],
        given or [f"plgpu.tcgen05_mma(sums, {a}, {b}.T, accumulate=accumulate)"],
    )


def reader_identity(role: RoleNode) -> list[str]:
    """The sum of what a role takes, given on, piece by piece; a vector is repeated."""
    made = made_parts(role)
    columns = role.sums[0].parts[0].dims[-1]
    shape = "(TILE_M, PIECE)"

    def word(name: str, part: Part, in_tmem: bool) -> str:
        if in_tmem:
            return f"plgpu.async_load_tmem({name}.at[:, columns])"
        if len(part.dims) == 2:
            return f"{name}[:, columns].astype(jnp.float32)"
        if part.dims[0] == made[0].dims[0]:
            return f"across_columns({name}, {shape}).astype(jnp.float32)"
        return f"across_rows({name}.at[columns], {shape}).astype(jnp.float32)"

    taken = [
        word(field_of(ring, part), part, ring.in_tmem)
        for ring in role.inputs
        for part in ring.parts
    ]
    taken += [word(part.name, part, False) for part in role.reads]
    names = [field_of(ring, part) for ring in role.outputs for part in ring.parts]
    names += [part.name for part in role.writes]
    return [
        f"for piece in range(TILE_{columns} // PIECE):  # registers hold a part of a tile",
        "    columns = pl.ds(piece * PIECE, PIECE)",
        f"    values = {taken[0]}",
        *(f"    values += {each}" for each in taken[1:]),
        *(f"    {name}[:, columns] = values.astype({name}.dtype)" for name in names),
    ]


def scratch_of(ring: Ring) -> str:
    """A ring of accumulators as the kernel asks for it."""
    tile = f"TILE_{ring.parts[0].dims[-1]}"
    return f"plgpu.TMEM((TILE_M, {upper(ring.name)}_STAGES * {tile}), jnp.float32)"
