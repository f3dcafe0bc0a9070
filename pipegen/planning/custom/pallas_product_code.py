# SPDX-License-Identifier: Apache-2.0
"""The lines of each role of a custom Pallas kernel that multiplies, loops included.

Names of the emitted file: m, n, k and p are a tile's places; `trip` counts a CTA's tiles of the
result, n_step and k_step the steps of its loops, over all tiles; NAME_stage is a ring's stage;
`rows` are those of a tile that a warpgroup has, where a role has several; `sums` are accumulators.
"""

import re
from collections.abc import Callable

from pipegen.planning.custom.code import field_of, upper
from pipegen.planning.custom.graph import UMMA, WGMMA, Part, Ring, RoleNode
from pipegen.planning.custom.pallas_numbers import PallasProductNumbers
from pipegen.planning.custom.pallas_umma_code import accumulator_of, commits, read_sums
from pipegen.planning.custom.product_code import at_depth, indented
from pipegen.planning.custom.products import Product, product_of, results


def publish(numbers: PallasProductNumbers) -> str:
    """Why what a role has written is committed."""
    core = "tcgen05" if any(role.kind == UMMA for role in numbers.graph.roles) else "wgmma"
    return f"# Publishes to the async proxy too, by which TMA and {core} read."


def count_of(numbers: PallasProductNumbers, depth: int) -> str:
    """Steps of a CTA at that depth of its loops."""
    return " * ".join(["trips", *(f"tiles_{symbol.lower()}" for symbol in numbers.nest[:depth])])


def step_at(numbers: PallasProductNumbers, depth: int) -> str:
    """The name of the step at that depth."""
    return f"{numbers.nest[depth - 1].lower()}_step" if depth else "trip"


def role_lines(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    """All lines of a role's branch."""
    build: dict[str, Callable[[PallasProductNumbers, RoleNode], list[str]]] = {
        "tma": _tma,
        "tma_store": _tma_store,
        WGMMA: _wgmma,
        UMMA: _umma,
    }
    return [
        *build.get(role.kind, _thread)(numbers, role),
        *tails(numbers, role),
    ]


def tails(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    """Every arrival is waited for, and every store, before the kernel ends."""
    lines = [
        f"tail({ring.name}_empty, {upper(ring.name)}_STAGES, "
        f"{count_of(numbers, numbers.depth(ring))})"
        for ring in role.outputs
    ]
    return [*lines, *(["plgpu.wait_smem_to_gmem(0)"] if role.writes else [])]


def nested(
    numbers: PallasProductNumbers,
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
        return [
            *before(depth),
            *counted(numbers, depth + 1, loop(depth + 1)),
            *behind(depth),
        ]

    lines = loop(0)
    # Of a tile's two places those that the role needs.
    names = [symbol.lower() for symbol in results(numbers.graph)]
    used = [name if re.search(rf"\b{name}\b", "\n".join(lines)) else "_" for name in names]
    if used != ["_", "_"]:
        lines = [f"{', '.join(used)} = tile_coord(trip)", *lines]
    return ["@pl.loop(0, trips)", "def _(trip):", *indented(lines)]


def counted(numbers: PallasProductNumbers, depth: int, lines: list[str]) -> list[str]:
    """The loop of that depth, with the step in which its lines are."""
    symbol = numbers.nest[depth - 1].lower()
    outer, here = step_at(numbers, depth - 1), step_at(numbers, depth)
    counts = [] if not _uses(here, lines) else [f"{here} = {outer} * tiles_{symbol} + {symbol}"]
    return [
        f"@pl.loop(0, tiles_{symbol})",
        f"def _({symbol}):",
        *indented([*counts, *lines]),
        "",
    ]


def _uses(name: str, lines: list[str]) -> bool:
    return any(name in line for line in lines)


def gmem_place(part: Part, role_rows: str = "", rows_symbol: str = "") -> str:
    """A tile of a tensor; with `role_rows`, a warpgroup's rows of it."""
    places = []
    for symbol in part.dims:
        start = f"{symbol.lower()} * TILE_{symbol}"
        if role_rows and symbol == rows_symbol:
            places.append(f"pl.ds({start} + first_row, {role_rows})")
        else:
            places.append(f"pl.ds({start}, TILE_{symbol})")
    return f"{part.name}_gmem.at[{', '.join(places)}]"


def shares_rows(numbers: PallasProductNumbers, role: RoleNode, part: Part) -> bool:
    """Whether each warpgroup of a role has rows of its own of a tile."""
    return numbers.warpgroups(role) > 1 and part.dims[0] == numbers.rows_symbol(role)


def stage_of(numbers: PallasProductNumbers, role: RoleNode, ring: Ring, part: Part) -> str:
    """One stage of a ring's buffer; of several warpgroups each has its rows."""
    if ring.in_tmem:
        return accumulator_of(ring)
    rows = ", rows" if shares_rows(numbers, role, part) else ""
    return f"{field_of(ring, part)}_smem.at[{ring.name}_stage{rows}]"


def rows_lines(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    """Which rows of a tile are this warpgroup's, where a role has several."""
    if numbers.warpgroups(role) == 1:
        return []
    first = numbers.first_warp(role) // 4
    place = f"(warpgroup - {first})" if first else "warpgroup"
    rows = f"{upper(role.name)}_ROWS"
    return [f"first_row = {place} * {rows}", f"rows = pl.ds(first_row, {rows})"]


def wait(numbers: PallasProductNumbers, ring: Ring) -> str:
    """The wait for a full stage."""
    step = step_at(numbers, numbers.depth(ring))
    return f"{ring.name}_stage = wait({ring.name}_full, {step}, {upper(ring.name)}_STAGES)"


def acquire(numbers: PallasProductNumbers, ring: Ring) -> str:
    """The wait for an empty stage."""
    step = step_at(numbers, numbers.depth(ring))
    return f"{ring.name}_stage = acquire({ring.name}_empty, {step}, {upper(ring.name)}_STAGES)"


def commit(ring: Ring) -> str:
    """The arrive that says that a stage is full."""
    return f"plgpu.barrier_arrive({ring.name}_full.at[{ring.name}_stage])"


def release(ring: Ring) -> str:
    """The arrive that says that a stage may be filled again."""
    return f"plgpu.barrier_arrive({ring.name}_empty.at[{ring.name}_stage])"


def _nothing(depth: int) -> list[str]:
    return []


def _tma(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    def loads(depth: int) -> list[str]:
        lines = []
        for ring in at_depth(numbers, role.outputs, depth):
            lines.append(acquire(numbers, ring))
            lines += [
                f"plgpu.copy_gmem_to_smem({gmem_place(part)}, "
                f"{field_of(ring, part)}_smem.at[{ring.name}_stage], "
                f"{ring.name}_full.at[{ring.name}_stage])"
                for part in numbers.own_parts(ring, role.name)
            ]
        return lines

    return nested(numbers, role, loads(numbers.depth(role)), loads, _nothing)


def _tma_store(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    ring, out = role.inputs[0], role.writes[0]
    step = [
        wait(numbers, ring),
        f"plgpu.copy_smem_to_gmem({stage_of(numbers, role, ring, ring.parts[0])}, "
        f"{gmem_place(out)})",
        "plgpu.wait_smem_to_gmem(0, wait_read_only=True)",
        release(ring),
    ]
    return nested(numbers, role, step, _nothing, _nothing)


def _thread(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    def waits(depth: int) -> list[str]:
        return [wait(numbers, ring) for ring in at_depth(numbers, role.inputs, depth)]

    def returns(depth: int) -> list[str]:
        rings = at_depth(numbers, role.inputs, depth)
        held = read_sums(role) if any(ring.in_tmem for ring in rings) else []
        return [*held, *(release(ring) for ring in rings)]

    several = numbers.warpgroups(role) > 1
    size = f"{upper(role.name)}_ROWS" if several else ""
    symbol = numbers.rows_symbol(role)
    arguments = [
        *(stage_of(numbers, role, ring, part) for ring in role.inputs for part in ring.parts),
        *(gmem_place(part, size, symbol) for part in role.reads),
        *(stage_of(numbers, role, ring, part) for ring in role.outputs for part in ring.parts),
        *(f"{part.name}_buffer{'.at[rows]' if several else ''}" for part in role.writes),
    ]
    depth = numbers.depth(role)
    step = [
        *waits(depth),
        *(acquire(numbers, ring) for ring in role.outputs),
        *(stores_done() if role.writes else []),
        f"{role.name}({', '.join(arguments)})",
        publish(numbers),
        "plgpu.commit_smem()",
        *(commit(ring) for ring in role.outputs),
        *returns(depth),
        *stores(numbers, role),
    ]
    return rows_lines(numbers, role) + nested(numbers, role, step, waits, returns)


def stores_done() -> list[str]:
    """The wait before a buffer is written again."""
    return [
        "# The last stores have read their buffers.",
        "plgpu.wait_smem_to_gmem(0, wait_read_only=True)",
    ]


def stores(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    """The stores of what a role of threads, or one that multiplies, writes."""
    several = numbers.warpgroups(role) > 1
    size = f"{upper(role.name)}_ROWS" if several else ""
    return [
        f"plgpu.copy_smem_to_gmem({part.name}_buffer{'.at[rows]' if several else ''}, "
        f"{gmem_place(part, size, numbers.rows_symbol(role))})"
        for part in role.writes
    ]


def _wgmma(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    product = product_of(role)
    if product is None:
        raise ValueError(f"rule PG278 lets no such role pass: {role}")
    rows = f"{upper(role.name)}_ROWS"
    body = [
        "# Allocated in here, the accumulator costs the other roles no registers.",
        f"@functools.partial(pl.run_scoped, sums=plgpu.ACC(({rows}, TILE_{product.columns})))",
        "def _(sums):",
        *indented([*_mainloop(numbers, role, product), *_hand_over(numbers, role, product)]),
    ]
    lines = nested(numbers, role, body, _nothing, _nothing, numbers.depth(role) - 1)
    return rows_lines(numbers, role) + lines


def _umma(numbers: PallasProductNumbers, role: RoleNode) -> list[str]:
    product, (out,) = product_of(role), role.outputs
    if product is None:
        raise ValueError(f"rule PG278 lets no such role pass: {role}")
    parts = [stage_of(numbers, role, each.ring, each.part) for each in (product.a, product.b)]
    symbol = product.over.lower()
    step = [
        *(wait(numbers, ring) for ring in role.inputs),
        f"{role.name}({', '.join(parts)}, sums, {symbol} > 0)",
        "# Nobody waits here: a commit arrives when the MMAs so far are done.",
        *commits(role.inputs),
    ]
    body = [
        acquire(numbers, out),
        f"sums = {accumulator_of(out)}",
        "",
        *counted(numbers, numbers.depth(role), step),
        "# Arrives once all MMAs of the sum are done.",
        f"plgpu.tcgen05_commit_arrive({out.name}_full.at[{out.name}_stage])",
    ]
    return nested(numbers, role, body, _nothing, _nothing, numbers.depth(role) - 1)


def _mainloop(numbers: PallasProductNumbers, role: RoleNode, product: Product) -> list[str]:
    """sums = the sum over all stages of a tile; at least one."""
    depth, symbol = numbers.depth(role), product.over.lower()
    here, outer = step_at(numbers, depth), step_at(numbers, depth - 1)
    parts = [stage_of(numbers, role, each.ring, each.part) for each in (product.a, product.b)]

    def releases(step: str) -> list[str]:
        return [
            f"release({ring.name}_empty, {step}, {upper(ring.name)}_STAGES)" for ring in role.inputs
        ]

    step = [
        *(wait(numbers, ring) for ring in role.inputs),
        f"{role.name}({', '.join(parts)}, sums)",
    ]
    if not numbers.release_distance(role):
        return counted(
            numbers,
            depth,
            [
                *step,
                "# A ring of one stage: the next comes when this one has been read.",
                "plgpu.wgmma_wait(0)",
                *releases(here),
            ],
        )
    return [
        *counted(
            numbers,
            depth,
            [
                *step,
                "# The newest wgmma stays in flight: the stages before it have been read.",
                "plgpu.wgmma_wait(1)",
                "",
                f"@pl.when({symbol} > 0)",
                "def _():",
                *indented(releases(f"{here} - 1")),
            ],
        ),
        "plgpu.wgmma_wait(0)",
        *releases(f"({outer} + 1) * tiles_{symbol} - 1"),
    ]


def _hand_over(numbers: PallasProductNumbers, role: RoleNode, product: Product) -> list[str]:
    """What becomes of the sums: its own end, then each ring's stage and each tensor."""
    columns, several = product.columns, numbers.warpgroups(role) > 1
    row = "m * TILE_M + first_row" if several else "m * TILE_M"
    lines = [
        f"made = {role.name}_finish(sums[...], {row}, {columns.lower()} * TILE_{columns})",
    ]
    for ring in role.outputs:
        field = field_of(ring, ring.parts[0])
        lines += [
            acquire(numbers, ring),
            f"{field}_smem[{ring.name}_stage{', rows' if several else ''}] = "
            f"made.astype({field}_smem.dtype)",
        ]
    if role.writes:
        lines += stores_done()
    place = "rows" if several else "..."
    lines += [
        f"{part.name}_buffer[{place}] = made.astype({upper(part.name)}_DTYPE)"
        for part in role.writes
    ]
    return [
        *lines,
        publish(numbers),
        "plgpu.commit_smem()",
        *(commit(ring) for ring in role.outputs),
        *stores(numbers, role),
    ]
