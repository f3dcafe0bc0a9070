# SPDX-License-Identifier: Apache-2.0
"""A custom graph that multiplies in Pallas has whole warpgroups, and tiles of their layouts.

What it checks
    That each role has whole warpgroups; that a role of threads takes matrices from rings, gives on
    matrices, and has 64 rows a warpgroup and 8 columns (or multiples) of each, in bf16, f16, f32 or
    i8; that rows of a tile are whole swizzles; and accumulators, and what bodies as written hold,
    against the registers that a thread starts with. Who takes tcgen05's sums is one warpgroup.

Why
    Mosaic GPU's barriers count warpgroups, and a matrix that meets wgmma is in blocks of 8 rows by
    a swizzle of 32, 64 or 128 B, which registers take in wgmma's layout of 64 rows. ptxas wants the
    accumulators of one wgmma within what a thread starts with (CUDA 12.9, error C7602), and ignores
    setmaxnreg (C7504) where nvidia-nvjitlink is installed, with which jaxlib compiles code to be
    linked.

Example
    Six warpgroups start with 80 registers a thread: 128 columns of 64 rows are 64 accumulators, and
    with 32 more for the rest too many.

Use instead
    What the message names, or backend = "cute", where a role that issues TMA is one warp.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import TMA_BOX_MAX, WARP
from pipegen.planning.custom.graph import UMMA, WGMMA, Part, RoleNode
from pipegen.planning.custom.pallas_numbers import SWIZZLES, PallasProductNumbers
from pipegen.planning.custom.product_bodies import made_parts, taken_parts
from pipegen.planning.custom.product_numbers import BESIDE_ACCUMULATORS, numbers_for
from pipegen.planning.custom.products import product_of
from pipegen.planning.custom.reading import read_graph
from pipegen.vocabulary import DTYPE

DERIVED = True
ROWS, COLUMNS = 64, 8  # of wgmma's layout in a warpgroup's registers
DTYPES = ("bf16", "f16", "f32", "i8")


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None or not graph.multiplies:
        return
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if not isinstance(numbers, PallasProductNumbers) or min(graph.tile) < 1:
        return
    for role in graph.roles:
        several = role.kind not in ("tma", "tma_store", UMMA) and not role.sums
        if role.warps % 4 or (not several and role.warps != 4):
            yield Problem(
                (
                    f"{role.name} takes accumulators of 128 rows from TMEM, which one warpgroup has"
                    if role.sums
                    else "a Pallas thread is a warpgroup, of 4 warps"
                ),
                f"role.{role.name}.warps",
                role.warps,
                "4, 8, 12, 16" if several else "4",
                nearest_number(role.warps, (4, 8, 12, 16)) if several else "4",
            )
            return
        if role.registers:
            yield Problem(
                (
                    "a role keeps the registers of the launch: its sums are in TMEM, and need none"
                    if numbers.accumulator_rings
                    else "a role keeps the registers of the launch: ptxas refuses a wgmma that "
                    "needs more, and leaves setmaxnreg out of what jax 0.12 gives it"
                ),
                f"role.{role.name}.registers",
                role.registers,
                "no value",
                "leave the key out",
            )
    seen: set[str] = set()
    for problem in _all(numbers):
        if problem.key not in seen:  # of what several say of a size, the first explains it
            yield problem
        seen.add(problem.key)


def _all(numbers: PallasProductNumbers) -> Iterator[Problem]:
    for role in numbers.graph.roles:
        if role.kind == WGMMA:
            yield from _accumulators(numbers, role)
        elif role.kind == "thread":
            yield from _threads(numbers, role)
    for part in (*numbers.graph.tensors, *(p for ring in numbers.graph.rings for p in ring.parts)):
        yield from _swizzle(numbers, part)


def _accumulators(numbers: PallasProductNumbers, role: RoleNode) -> Iterator[Problem]:
    product, launch = product_of(role), numbers.launch_registers
    if product is None or numbers.accumulators(role) + BESIDE_ACCUMULATORS <= launch:
        return
    rows, columns = numbers.rows(role), numbers.graph.extents[product.columns]
    fewer = (launch - BESIDE_ACCUMULATORS) * 4 * WARP // rows // COLUMNS * COLUMNS
    widths = [width for width in (16, 32, 64, 96, 128) if width <= fewer]
    yield Problem(
        f"{role.name}'s accumulators take {numbers.accumulators(role)} registers of each thread "
        f"({rows} * {columns} / {4 * WARP}) and {BESIDE_ACCUMULATORS} more for the rest; with "
        f"{numbers.threads} threads, as every role is a warpgroup, each starts with {launch}",
        f"tile.{product.columns.lower()}",
        columns,
        f"at most {fewer}, or a role less",
        str(widths[-1]) if widths else 'backend = "cute"',
    )


def _threads(numbers: PallasProductNumbers, role: RoleNode) -> Iterator[Problem]:
    extents, matrices = numbers.graph.extents, []
    tensors = {part.name for part in numbers.graph.tensors}
    for part in (*taken_parts(role), *made_parts(role)):
        section = "tensor" if part.name in tensors else "pipeline"
        if part.dtype not in DTYPES:
            yield Problem(
                "a body takes and gives elements that are exact in f32",
                f"{section}.{part.name}.dtype",
                part.dtype,
                listing(f'"{word}"' for word in DTYPES),
                '"i8"',
            )
            return
        if len(part.dims) == 2 and part in role.reads:
            yield Problem(
                f"a body takes matrices from stages, and {role.name} reads {part.name} from GMEM",
                f"tensor.{part.name}.read",
                role.name,
                "a role of kind tma, and a ring from it; a vector may be read so",
                '"load"',
            )
            return
        if len(part.dims) == 1 and part in made_parts(role):
            yield Problem(
                f"{role.name} gives {part.name} on from wgmma's layout, which vectors do not have",
                f"{section}.{part.name}.shape",
                ", ".join(part.dims),
                "a matrix",
                '"M, N"',
            )
            return
        matrices += [part] if len(part.dims) == 2 else []
    for part in matrices:
        shared = numbers.warpgroups(role) if part.dims[0] == numbers.rows_symbol(role) else 1
        for symbol, unit in ((part.dims[0], ROWS * shared), (part.dims[1], COLUMNS)):
            if extents[symbol] % unit:
                yield Problem(
                    f"each warpgroup of {role.name}, {numbers.warpgroups(role)} in all, "
                    f"has {ROWS} rows and {COLUMNS} columns of {part.name}, or multiples, in the "
                    "tensor core's layout",
                    f"tile.{symbol.lower()}",
                    extents[symbol],
                    f"multiples of {unit}",
                    nearest_number(extents[symbol], range(unit, TMA_BOX_MAX + 1, unit)),
                )
                return
    yield from _values(numbers, role)


def _values(numbers: PallasProductNumbers, role: RoleNode) -> Iterator[Problem]:
    """What a body as written has in registers at once."""
    if role.body:
        return  # only you know
    launch, needed = numbers.launch_registers, numbers.values(role)
    if needed + BESIDE_ACCUMULATORS <= launch:
        return
    yield Problem(
        f"a thread of {role.name} has {needed} elements of tiles at once, and "
        f"{BESIDE_ACCUMULATORS} registers more for the rest; with {numbers.threads} threads each "
        f"has {launch}",
        f"role.{role.name}.warps",
        role.warps,
        f"at least {2 * role.warps}, a smaller tile, or a body that takes a part at a time",
        str(2 * role.warps),
    )


def _swizzle(numbers: PallasProductNumbers, part: Part) -> Iterator[Problem]:
    if len(part.dims) == 1 or numbers.swizzle(part):
        return
    unit = SWIZZLES[-1] // DTYPE[part.dtype].bytes
    size = numbers.graph.extents[part.dims[-1]]
    yield Problem(
        f"a row of {part.name}'s tile is {size * DTYPE[part.dtype].bytes} B, of which no swizzle "
        f"of {listing(SWIZZLES)} B is a part",
        f"tile.{part.dims[-1].lower()}",
        size,
        f"multiples of {unit}",
        nearest_number(size, range(unit, TMA_BOX_MAX + 1, unit)),
    )
