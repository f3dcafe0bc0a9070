# SPDX-License-Identifier: Apache-2.0
"""The tiles of a custom kernel that multiplies must be ones that wgmma, TMA and warps can take.

What it checks
    tile.m against 64 rows a warpgroup, the columns of a product against 8 to 256 in steps of 8,
    what is summed over against 32 bytes; boxes that TMA takes; rows and columns that the warps of a
    role of threads share; element types that its registers convert; accumulators, and what a
    role of threads moves from or to GMEM, against the registers of a thread.

Why
    One wgmma is 64 rows of a warpgroup, N columns and 32 bytes of K (PTX ISA, "wgmma.mma_async",
    shapes). Its accumulators are registers: what does not fit spills to local memory between
    wgmmas, which serializes them, silently. A thread's part of a swizzled tile that crosses the
    swizzle's units is not where a layout says: 96 columns, 3 a lane, were wrong on an H200.

Example
    tile.m = 64 with two warpgroups: each would have 32 rows.

Use instead
    The nearest that the message names.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import (
    SETMAXNREG_MAX,
    SETMAXNREG_STEP,
    TMA_BOX_MAX,
    VECTOR_BYTES,
    WARP,
)
from pipegen.planning.custom.graph import UMMA, WGMMA, Part, RoleNode, elements
from pipegen.planning.custom.product_bodies import made_parts, taken_parts
from pipegen.planning.custom.product_numbers import (
    ATOM_ROWS,
    BESIDE_ACCUMULATORS,
    ProductNumbers,
    numbers_for,
    whole_rows,
)
from pipegen.planning.custom.products import Product, product_of
from pipegen.planning.custom.reading import read_graph
from pipegen.vocabulary import DTYPE

DERIVED = True
ROWS = 64  # of one wgmma, a warpgroup's
COLUMNS_STEP, MOST_COLUMNS = 8, 256
# Registers beside a thread's parts of tiles in GMEM and its values: of 112, 48 + 48 did; of 104
# they spilled, and of 80 (CuTe DSL 4.8.1).
BESIDE_PARTS = 16
WARPS = (1, 2, 4, 8, 16)
COLUMNS = (32, 64, 128, 256)  # that 32 lanes share, each with 1, 2, 4 or 8
DTYPES = ("bf16", "f16", "f32", "i8")


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None or not graph.multiplies:
        return
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if not isinstance(numbers, ProductNumbers):
        return
    seen: set[str] = set()
    for problem in _all(numbers):
        if problem.key not in seen:  # of what several say of a size, the first explains it
            yield problem
        seen.add(problem.key)


def _all(numbers: ProductNumbers) -> Iterator[Problem]:
    for role in numbers.graph.roles:
        product = product_of(role)
        if role.kind == UMMA:
            continue  # rule PG269
        # Of elements that wgmma does not multiply, rule PG278 speaks.
        if product is not None and role.warps % 4 == 0 and DTYPE[product.a.part.dtype].bytes:
            yield from _product(numbers, role, product)
        elif role.kind == "thread" and not numbers.pallas:
            yield from _threads(numbers, role)
    for part in numbers.graph.tensors:
        yield from _box(numbers, part)


def _product(numbers: ProductNumbers, role: RoleNode, product: Product) -> Iterator[Problem]:
    extents = numbers.graph.extents
    warpgroups, m, columns = role.warps // 4, extents["M"], extents[product.columns]
    if m % (ROWS * warpgroups) or m < 1:
        yield Problem(
            f"{role.name} has {warpgroups} warpgroups, each with {ROWS} rows of every wgmma",
            "tile.m",
            m,
            f"multiples of {ROWS * warpgroups}",
            nearest_number(m, range(ROWS * warpgroups, 4 * TMA_BOX_MAX, ROWS * warpgroups)),
        )
        return
    if columns % COLUMNS_STEP or not COLUMNS_STEP <= columns <= MOST_COLUMNS:
        yield Problem(
            f"the columns of {role.name}'s product are those of one wgmma",
            f"tile.{product.columns.lower()}",
            columns,
            f"multiples of {COLUMNS_STEP} from {COLUMNS_STEP} to {MOST_COLUMNS}",
            nearest_number(columns, range(COLUMNS_STEP, MOST_COLUMNS + 1, COLUMNS_STEP)),
        )
        return
    depth, over = numbers.mma_k(product), extents[product.over]
    if over % depth or over < 1:
        yield Problem(
            f"one wgmma of {role.name} sums over {depth} elements of {product.a.part.dtype}",
            f"tile.{product.over.lower()}",
            over,
            f"multiples of {depth}",
            nearest_number(over, range(depth, TMA_BOX_MAX + 1, depth)),
        )
        return
    if not numbers.pallas:  # else rule PG285 counts them
        yield from _registers(numbers, role, product)


def _registers(numbers: ProductNumbers, role: RoleNode, product: Product) -> Iterator[Problem]:
    held, needed = numbers.held_registers(role), numbers.accumulators(role)
    if needed + BESIDE_ACCUMULATORS <= held:
        return
    extents, name = numbers.graph.extents, product.columns.lower()
    wanted = -(-(needed + BESIDE_ACCUMULATORS) // SETMAXNREG_STEP) * SETMAXNREG_STEP
    room = (held - BESIDE_ACCUMULATORS) * WARP * role.warps // extents["M"]
    fewer = room // COLUMNS_STEP * COLUMNS_STEP
    said = (
        f"{role.name}'s accumulators take {needed} registers of each thread "
        f"({extents['M']} * {extents[product.columns]} / ({WARP} * {role.warps})) and "
        f"{BESIDE_ACCUMULATORS} more for the rest; a thread has {held}"
    )
    if role.registers or wanted > SETMAXNREG_MAX:
        yield Problem(
            said,
            f"role.{role.name}.registers" if role.registers else f"tile.{name}",
            role.registers or extents[product.columns],
            f"at least {wanted}" if role.registers else f"at most {fewer}",
            str(wanted) if role.registers and wanted <= SETMAXNREG_MAX else str(fewer),
        )
        return
    yield Problem(
        f"{said} at launch, as the block has {numbers.threads}",
        f"tile.{name}",
        extents[product.columns],
        f"at most {fewer}, or registers = {wanted} for {role.name} that other roles give",
        str(fewer) if fewer >= COLUMNS_STEP else f"role.{role.name}.registers = {wanted}",
    )


def _threads(numbers: ProductNumbers, role: RoleNode) -> Iterator[Problem]:
    extents = numbers.graph.extents
    for part in (*taken_parts(role), *made_parts(role)):
        tensor = part in numbers.graph.tensors
        if part.dtype not in DTYPES:
            yield Problem(
                "a body takes and gives elements that are exact in f32, by registers",
                f"{'tensor' if tensor else 'pipeline'}.{part.name}.dtype",
                part.dtype,
                listing(f'"{word}"' for word in DTYPES),
                '"i8"',
            )
            return
        if role.sums:
            continue  # a row is one thread's
        rows = extents[part.dims[0]] if part.dims[0] == "M" or len(part.dims) == 2 else 1
        columns = extents[part.dims[-1]] if part.dims != ("M",) else 1
        if rows > 1 and not whole_rows(rows, role.warps):
            fitting = [
                each for each in range(8, TMA_BOX_MAX + 1, 8) if whole_rows(each, role.warps)
            ]
            yield Problem(
                f"the {role.warps} warps of {role.name} share the rows of {part.name}, each with "
                f"1, 2, 4 or multiples of {ATOM_ROWS}, as a swizzle's rows are",
                f"tile.{part.dims[0].lower()}",
                rows,
                listing((*fitting[:8], "...")),
                nearest_number(rows, fitting),
            )
            return
        widest = WARP * VECTOR_BYTES // DTYPE[part.dtype].bytes  # a swizzle leaves 16 B together
        fitting = [each for each in COLUMNS if each <= widest]
        if columns > 1 and columns not in fitting:
            yield Problem(
                f"the 32 lanes of a warp of {role.name} share the columns of {part.name}, each "
                f"with a power of two of them up to {VECTOR_BYTES} B, as a swizzle leaves them",
                f"tile.{part.dims[-1].lower()}",
                columns,
                listing(fitting),
                nearest_number(columns, fitting),
            )
            return
    if not role.sums:
        yield from _held(numbers, role)


def _held(numbers: ProductNumbers, role: RoleNode) -> Iterator[Problem]:
    """What passes through registers on its way from or to GMEM, whole, beside the body's values."""
    moved = [*role.reads, *role.writes]
    if not moved:
        return
    most = max(_elements(numbers, part) for part in (*taken_parts(role), *made_parts(role)))
    total = sum(_elements(numbers, part) for part in moved) + most
    held = numbers.held_registers(role)
    needed = -(-total // (WARP * role.warps)) + BESIDE_PARTS
    if needed <= held:
        return
    fitting = [
        w for w in WARPS if -(-total // (WARP * w)) + BESIDE_PARTS <= held and w > role.warps
    ]
    yield Problem(
        f"a thread of {role.name} has {total // (WARP * role.warps)} elements at once, of "
        f"{listing(part.name for part in moved)} in GMEM and of its body, and {BESIDE_PARTS} "
        f"registers more; it has {held}",
        f"role.{role.name}.warps",
        role.warps,
        f"at least {fitting[0]}" if fitting else "a ring to a role of kind tma_store",
        str(fitting[0]) if fitting else f'pipeline.done.edge = "{role.name} -> store"',
    )


def _elements(numbers: ProductNumbers, part: Part) -> int:
    """Elements of a tile that the threads of a role share; a vector's do not all have an own."""
    return elements(part, numbers.graph.extents) if len(part.dims) == 2 else 0


def _box(numbers: ProductNumbers, part: Part) -> Iterator[Problem]:
    """What TMA moves at once: at most 256 elements a dimension, rows of whole 16 bytes."""
    graph = numbers.graph
    movers = [role for role in graph.roles if role.kind not in ("thread", WGMMA, UMMA)]
    if not any(part in (*role.reads, *role.writes) for role in movers):
        return
    if not DTYPE[part.dtype].bytes:
        yield Problem(
            f"a row of {part.name} has elements of less than a byte, which no role takes here",
            f"tensor.{part.name}.dtype",
            part.dtype,
            listing(f'"{word}"' for word in DTYPES),
            '"i8"',
        )
        return
    for symbol in part.dims:
        size = graph.extents[symbol]
        if not 1 <= size <= TMA_BOX_MAX:
            yield Problem(
                f"TMA moves at most {TMA_BOX_MAX} elements of {part.name} along {symbol} at once",
                f"tile.{symbol.lower()}",
                size,
                f"1 to {TMA_BOX_MAX}",
                nearest_number(size, (1, TMA_BOX_MAX)),
            )
            return
    size, unit = graph.extents[part.dims[-1]], VECTOR_BYTES // DTYPE[part.dtype].bytes
    if size % unit:
        yield Problem(
            f"TMA moves rows of whole {VECTOR_BYTES} bytes, and {part.name} is {part.dtype}",
            f"tile.{part.dims[-1].lower()}",
            size,
            f"multiples of {unit}",
            nearest_number(size, range(unit, TMA_BOX_MAX + 1, unit)),
        )
