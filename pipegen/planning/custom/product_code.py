# SPDX-License-Identifier: Apache-2.0
"""The lines of each role of a custom kernel that multiplies, loops included.

Names of the emitted file, beside those of `code`: m, n, k and p are a tile's places, NAME_mma is a
role's tiled MMA, NAME_parts are stages as wgmma's operand, `sums` are a thread's accumulators.
"""

from collections.abc import Callable

from pipegen.planning.custom.code import (
    commit,
    field_of,
    give_back,
    release,
    setup_of,
    stage_of,
    tails_of,
    upper,
)
from pipegen.planning.custom.graph import UMMA, WGMMA, Part, Ring, RoleNode
from pipegen.planning.custom.product_numbers import ProductNumbers
from pipegen.planning.custom.products import Product, product_of, results

INDENT = "    "


def block_shape(part: Part) -> str:
    """The shape of a tile in the emitted file: a vector of M is a column, others are rows."""
    if len(part.dims) == 2:
        return f"(TILE_{part.dims[0]}, TILE_{part.dims[1]})"
    return "(TILE_M, 1)" if part.dims == ("M",) else f"(1, TILE_{part.dims[0]})"


def block_place(part: Part) -> str:
    """The place of a tile among those of its tensor."""
    if len(part.dims) == 2:
        return f"{part.dims[0].lower()}, {part.dims[1].lower()}"
    return "m, 0" if part.dims == ("M",) else f"0, {part.dims[0].lower()}"


def part_shape(part: Part, role: RoleNode) -> str:
    """The shape of a thread's part of a GMEM tile."""
    rows, columns = (word.strip("() ") for word in block_shape(part).split(","))
    return (
        f"({rows if rows == '1' else f'{rows} // {upper(role.name)}_WARPS'}, "
        f"{columns if columns == '1' else f'{columns} // 32'})"
    )


def part_place(part: Part, role: RoleNode) -> str:
    """The place of a thread's part of a GMEM tile, in units of such parts."""
    rows, columns = block_place(part).split(", ")
    return (
        f"{rows if rows == '0' else f'{rows} * {upper(role.name)}_WARPS + thread // 32'}, "
        f"{columns if columns == '0' else f'{columns} * 32 + thread % 32'}"
    )


def role_lines(numbers: ProductNumbers, role: RoleNode) -> list[str]:
    """All lines of a role's branch."""
    build: dict[str, Callable[[ProductNumbers, RoleNode], list[str]]] = {
        "tma": _tma,
        "tma_store": _tma_store,
        WGMMA: _wgmma,
    }
    return build.get(role.kind, _thread)(numbers, role) + tails_of(role)


def nested(
    numbers: ProductNumbers,
    role: RoleNode,
    step: list[str],
    before: Callable[[int], list[str]],
    behind: Callable[[int], list[str]],
    inner: int | None = None,
) -> list[str]:
    """A role's loops: `step` in the innermost, around it what comes less often."""
    last = numbers.depth(role) if inner is None else inner

    def loop(depth: int) -> list[str]:
        if depth == last:
            return step
        symbol = numbers.nest[depth].lower()
        head = f"for {symbol} in cutlass.range(tiles_{symbol}, unroll=1):"
        return [*before(depth), head, *indented(loop(depth + 1)), *behind(depth)]

    rows, columns = (symbol.lower() for symbol in results(numbers.graph))
    lines = loop(0)
    if role.kind not in ("thread", UMMA) or role.reads or role.writes:
        lines = [f"{rows}, {columns} = tile_coord(index, tiles_{rows}, tiles_{columns})", *lines]
    return ["for index in cutlass.range(first, tiles, step, unroll=1):", *indented(lines)]


def indented(lines: list[str]) -> list[str]:
    """Lines of a loop's body."""
    return [f"{INDENT}{line}" for line in lines]


def at_depth(numbers: ProductNumbers, rings: tuple[Ring, ...], depth: int) -> tuple[Ring, ...]:
    """The rings whose stages are filled in the loop of that depth."""
    return tuple(ring for ring in rings if numbers.depth(ring) == depth)


def _nothing(depth: int) -> list[str]:
    return []


def _tma(numbers: ProductNumbers, role: RoleNode) -> list[str]:
    setup = setup_of(numbers, role, False)
    for ring in role.outputs:
        for part in numbers.own_parts(ring, role.name):
            field = field_of(ring, part)
            setup.append(
                f"{field}_to, {field}_from = partition_tma(tma_{part.name}, {field}_smem, "
                f"{block_shape(part)})"
            )

    def loads(depth: int) -> list[str]:
        lines = []
        for ring in at_depth(numbers, role.outputs, depth):
            lines.append(f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()")
            for part in numbers.own_parts(ring, role.name):
                field = field_of(ring, part)
                lines.append(f"{field}_tile = {field}_from[None, {block_place(part)}]")
                lines.append(
                    f"cute.copy(tma_{part.name}.atom, {field}_tile, "
                    f"{field}_to[None, {ring.name}_stage.index], "
                    f"tma_bar_ptr={ring.name}_stage.barrier)"
                )
            lines += _loaded(ring)
        return lines

    return setup + nested(numbers, role, loads(numbers.depth(role)), loads, _nothing)


def _loaded(ring: Ring) -> list[str]:
    """The commit of what TMA loads, whose bytes complete the full barrier by themselves."""
    if ring.consumer == UMMA:
        return [
            "# The bytes complete the barrier; PipelineTmaUmma's commit does not compile",
            "# (nvidia-cutlass-dsl 4.8.1).",
        ]
    return [f"{ring.name}_stage.commit()"]


def _tma_store(numbers: ProductNumbers, role: RoleNode) -> list[str]:
    ring, out = role.inputs[0], role.writes[0]
    field = field_of(ring, ring.parts[0])
    setup = [
        *setup_of(numbers, role, False),
        f"{out.name}_from, {out.name}_to = partition_tma(tma_{out.name}, {field}_smem, "
        f"{block_shape(out)})",
        "# One group of stores at a time: the next begins when this one has read its stage.",
        "group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)",
        "stores = pipeline.PipelineTmaStore.create(num_stages=1, producer_group=group)",
    ]
    step = [
        f"{ring.name}_stage = {ring.name}_consumer.wait_and_advance()",
        f"cute.copy(tma_{out.name}.atom, {out.name}_from[None, {ring.name}_stage.index], "
        f"{out.name}_to[None, {block_place(out)}])",
        "stores.producer_commit()",
        "stores.producer_acquire()",
        "cute.arch.sync_warp()",
        *release(ring),
    ]
    return [*setup, *nested(numbers, role, step, _nothing, _nothing), "stores.producer_tail()"]


def _thread(numbers: ProductNumbers, role: RoleNode) -> list[str]:
    setup = setup_of(numbers, role, True)
    for part in (*role.reads, *role.writes):
        setup.append(
            f"{part.name}_part = make_part({part_shape(part, role)}, {upper(part.name)}_DTYPE)"
        )

    def waits(depth: int) -> list[str]:
        rings = at_depth(numbers, role.inputs, depth)
        return [f"{ring.name}_stage = {ring.name}_consumer.wait_and_advance()" for ring in rings]

    def returns(depth: int) -> list[str]:
        return give_back(at_depth(numbers, role.inputs, depth))

    depth = numbers.depth(role)
    arguments = [stage_of(ring, part) for ring in role.inputs for part in ring.parts]
    arguments += [f"{part.name}_part" for part in role.reads]
    arguments += [stage_of(ring, part) for ring in role.outputs for part in ring.parts]
    arguments += [f"{part.name}_part" for part in role.writes]
    step = [
        *waits(depth),
        *(f"{r.name}_stage = {r.name}_producer.acquire_and_advance()" for r in role.outputs),
        *(
            f"load_global({part.name}_gmem, {part.name}_part, {part_place(part, role)})"
            for part in role.reads
        ),
        f"{role.name}({', '.join(arguments)}, thread)",
        *(line for ring in role.outputs for line in commit(numbers.graph, ring)),
        *(
            f"store_global({part.name}_part, {part.name}_gmem, {part_place(part, role)})"
            for part in role.writes
        ),
        *returns(depth),
    ]
    return setup + nested(numbers, role, step, waits, returns)


def _wgmma(numbers: ProductNumbers, role: RoleNode) -> list[str]:
    product = product_of(role)
    if product is None:
        raise ValueError(f"rule PG278 lets no such role pass: {role}")
    mma = f"{role.name}_mma"
    a, b = (field_of(each.ring, each.part) for each in (product.a, product.b))
    tile = f"(TILE_M, TILE_{product.columns})"
    setup = [
        *setup_of(numbers, role, True),
        "# A warpgroup's threads hold one and the same SMEM descriptor.",
        f"whole = {mma}.get_slice(cute.arch.make_warp_uniform(thread // 128) * 128)",
        "# (MMA, M, K, STAGE) and (MMA, N, K, STAGE)",
        f"{a}_parts = {mma}.make_fragment_A(whole.partition_A({a}_smem))",
        f"{b}_parts = {mma}.make_fragment_B(whole.partition_B({b}_smem))",
        f"own = {mma}.get_slice(thread)",
        f"# ((2 columns, 2 rows 8 apart, TILE_{product.columns} / 8), M, 1): "
        f"{numbers.accumulators(role)} registers",
        f"sums = cute.make_rmem_tensor(own.partition_shape_C({tile}), cutlass.Float32)",
    ]
    step = [*_mainloop(numbers, role, product), *_hand_over(numbers, role, product)]
    return setup + nested(numbers, role, step, _nothing, _nothing, numbers.depth(role) - 1)


def _mainloop(numbers: ProductNumbers, role: RoleNode, product: Product) -> list[str]:
    """sums = the sum over all stages of a tile; at least one."""
    mma, count = f"{role.name}_mma", f"tiles_{product.over.lower()}"
    rings = role.inputs

    def multiply(stage: str) -> list[str]:
        parts = [
            f"{field_of(each.ring, each.part)}_parts[None, None, None, "
            f"{each.ring.name}_{stage}.index]"
            for each in (product.a, product.b)
        ]
        return [
            *(f"{ring.name}_{stage} = {ring.name}_consumer.wait_and_advance()" for ring in rings),
            "warpgroup.fence()",
            f"{mma} = {role.name}({', '.join(parts)}, sums, {mma})",
            "warpgroup.commit_group()",
        ]

    releases = [line for ring in rings for line in release(ring)]
    first = [
        "# The first wgmma overwrites the sums, the others add.",
        f"{mma}.set(warpgroup.Field.ACCUMULATE, False)",
    ]
    if not numbers.release_distance(role):
        return [
            *first,
            f"for _ in cutlass.range({count}, unroll=1):",
            *indented(
                [
                    *multiply("stage"),
                    "# A ring of one stage: the next comes when this one has been read.",
                    "warpgroup.wait_group(0)",
                    *releases,
                ]
            ),
        ]
    stages = ", ".join(f"{ring.name}_stage" for ring in rings)
    newest = ", ".join(f"{ring.name}_next" for ring in rings)
    return [
        *first,
        *multiply("stage"),
        f"for _ in cutlass.range({count} - 1, unroll=1):",
        *indented(
            [
                *multiply("next"),
                "# The newest group stays in flight: only the stages before it have been read.",
                "warpgroup.wait_group(1)",
                *releases,
                f"{stages} = {newest}",
            ]
        ),
        "warpgroup.wait_group(0)",
        *releases,
    ]


def _hand_over(numbers: ProductNumbers, role: RoleNode, product: Product) -> list[str]:
    """What becomes of the sums: its own end, then each ring's stage and each tensor."""
    columns = product.columns
    lines = [
        f"block = cute.make_identity_tensor((TILE_M, TILE_{columns}))",
        f"block = cute.domain_offset((m * TILE_M, {columns.lower()} * TILE_{columns}), block)",
        f"{role.name}_finish(sums, own.partition_C(block))",
    ]
    for ring in role.outputs:
        lines += [
            f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()",
            f"store_sums(sums, {stage_of(ring, ring.parts[0])}, {role.name}_mma, thread)",
            *commit(numbers.graph, ring),
        ]
    lines += [
        f"store_sums_global(sums, own.partition_C(block), {part.name}_gmem)" for part in role.writes
    ]
    return lines
