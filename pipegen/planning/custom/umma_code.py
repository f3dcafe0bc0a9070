# SPDX-License-Identifier: Apache-2.0
"""The lines of the roles that a custom kernel has for tcgen05: who multiplies, and who takes sums.

Names of the emitted file, beside those of `product_code`: NAME_sums are a ring's accumulators in
TMEM, NAME_tile is the one that is being summed.
"""

from pipegen.planning.custom.code import (
    commit,
    field_of,
    give_back,
    setup_of,
    stage_of,
    tails_of,
    upper,
)
from pipegen.planning.custom.graph import UMMA, Part, Ring, RoleNode
from pipegen.planning.custom.product_code import at_depth, indented, nested, role_lines
from pipegen.planning.custom.products import product_of
from pipegen.planning.custom.umma_numbers import UmmaNumbers


def umma_role_lines(numbers: UmmaNumbers, role: RoleNode) -> list[str]:
    """All lines of a role's branch."""
    if role.kind == UMMA:
        return _umma(numbers, role)
    return _reader(numbers, role) if role.sums else role_lines(numbers, role)


def sums_of(ring: Ring) -> str:
    """A ring's accumulators as a tensor: (MMA, M, N, STAGE) in TMEM."""
    start = f" + {upper(ring.name)}_COLUMN"
    return f"{ring.name}_sums = cute.make_tensor(tmem_ptr{start}, {ring.name}_layout)"


def _umma(numbers: UmmaNumbers, role: RoleNode) -> list[str]:
    product = product_of(role)
    if product is None:
        raise ValueError(f"rule PG278 lets no such role pass: {role}")
    mma, (out,) = f"{role.name}_mma", role.outputs
    a, b = (field_of(each.ring, each.part) for each in (product.a, product.b))
    setup = [
        *setup_of(numbers, role, False),
        "# (MMA, M, K, STAGE) and (MMA, N, K, STAGE): SMEM descriptors",
        f"whole = {mma}.get_slice(0)",
        f"{a}_parts = {mma}.make_fragment_A(whole.partition_A({a}_smem))",
        f"{b}_parts = {mma}.make_fragment_B(whole.partition_B({b}_smem))",
        "tmem.wait_for_alloc()",
        "tmem_ptr = tmem.retrieve_ptr(cutlass.Float32)",
        sums_of(out),
    ]
    parts = [
        f"{field_of(each.ring, each.part)}_parts[None, None, None, {each.ring.name}_stage.index]"
        for each in (product.a, product.b)
    ]
    step = [
        f"{out.name}_stage = {out.name}_producer.acquire_and_advance()",
        f"{out.name}_tile = {out.name}_sums[None, None, None, {out.name}_stage.index]",
        "# The first MMA overwrites the accumulator, the others add.",
        f"{mma}.set(tcgen05.Field.ACCUMULATE, False)",
        f"for _ in cutlass.range(tiles_{product.over.lower()}, unroll=1):",
        *indented(
            [
                *(
                    f"{ring.name}_stage = {ring.name}_consumer.wait_and_advance()"
                    for ring in role.inputs
                ),
                f"{mma} = {role.name}({', '.join(parts)}, {out.name}_tile, {mma})",
                "# Nobody waits here: the commits arrive when the MMAs so far are done.",
                *(f"{ring.name}_stage.release()" for ring in role.inputs),
            ]
        ),
        "# Arrives once all MMAs of the sum are done.",
        f"{out.name}_stage.commit()",
    ]
    return [
        *setup,
        *nested(numbers, role, step, _nothing, _nothing, numbers.depth(role) - 1),
        "# No tail: what empties an accumulator comes from this CTA's own warps.",
    ]


def _nothing(depth: int) -> list[str]:
    return []


def stage_or_sums(ring: Ring, part: Part) -> str:
    """What a body gets of a stage: a tile in SMEM, or an accumulator of TILE_M rows."""
    if ring.in_tmem:
        return f"{ring.name}_sums[(None, None), 0, 0, {ring.name}_stage.index]"
    return stage_of(ring, part)


def _reader(numbers: UmmaNumbers, role: RoleNode) -> list[str]:
    """A role of threads that takes accumulators: row by row, in its body."""
    allocates = role == numbers.readers[0]
    setup = setup_of(numbers, role, True)
    if allocates:
        setup += [
            "tmem.allocate(TMEM_COLUMNS)",
            "# The CTA allocates once; while it holds the permit, no other one on this SM can.",
            "tmem.relinquish_alloc_permit()",
        ]
    setup += [
        "tmem.wait_for_alloc()",
        "tmem_ptr = tmem.retrieve_ptr(cutlass.Float32)",
        *(sums_of(ring) for ring in role.sums),
    ]

    def waits(depth: int) -> list[str]:
        rings = at_depth(numbers, role.inputs, depth)
        return [f"{ring.name}_stage = {ring.name}_consumer.wait_and_advance()" for ring in rings]

    def returns(depth: int) -> list[str]:
        return give_back(at_depth(numbers, role.inputs, depth))

    depth = numbers.depth(role)
    arguments = [stage_or_sums(ring, part) for ring in role.inputs for part in ring.parts]
    arguments += [f"{part.name}_gmem" for part in role.reads]
    arguments += [stage_of(ring, part) for ring in role.outputs for part in ring.parts]
    arguments += [f"{part.name}_gmem" for part in role.writes]
    place = []
    if role.reads or role.writes:
        symbol = role.sums[0].parts[0].dims[-1]
        place = [f"row, column = m * TILE_M + thread, {symbol.lower()} * TILE_{symbol}"]
        arguments += ["row", "column"]
    step = [
        *waits(depth),
        *(f"{r.name}_stage = {r.name}_producer.acquire_and_advance()" for r in role.outputs),
        *place,
        f"{role.name}({', '.join(arguments)}, thread)",
        *(line for ring in role.outputs for line in commit(numbers.graph, ring)),
        *returns(depth),
    ]
    return [
        *setup,
        *nested(numbers, role, step, waits, returns),
        *_free(allocates),
        *tails_of(role),
    ]


def _free(allocates: bool) -> list[str]:
    """The meeting of all who have read TMEM, behind which one role frees it."""
    meet = "pipeline.NamedBarrier(FREE_BARRIER, READER_THREADS).arrive_and_wait()"
    if not allocates:
        return ["# TMEM is freed when all have read it.", meet]
    return [
        "# TMEM outlives a CTA that does not free it, and the next one on this SM would wait for",
        "# ever. When all have met, all have read it; every MMA into it was waited for.",
        meet,
        "tmem.free(tmem_ptr)",
    ]
