# SPDX-License-Identifier: Apache-2.0
"""The products of a custom kernel for Blackwell must be ones that tcgen05 and TMEM can take.

What it checks
    tile.m against the 128 lanes of TMEM, the columns of a product against tcgen05's N, what is
    summed over against a swizzled row, and the accumulators of all rings against TMEM's columns.

Why
    One CTA's tcgen05.mma has 64 or 128 rows, and with 128 an N of 16 to 256 in steps of 16; a row
    of an operand is 32 bytes of K or whole swizzles of it (PTX ISA, "tcgen05.mma", shapes and
    matrix descriptors). With 128 rows each of a role's 128 threads has a row of its own; with 64 a
    half of them would have none. TMEM has 512 columns, which tcgen05.alloc gives out by powers of
    two: who asks for more waits for ever.

Example
    Two rings of two accumulators of 256 columns: 1024.

Use instead
    The nearest that the message names.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import TMEM_COLUMNS_MAX
from pipegen.planning.custom.graph import UMMA, RoleNode
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.products import Product, product_of
from pipegen.planning.custom.reading import read_graph
from pipegen.planning.custom.umma_numbers import UmmaNumbers
from pipegen.vocabulary import DTYPE

DERIVED = True
ROWS = 128  # TMEM's lanes
COLUMNS = range(16, 257, 16)
ROW_BYTES = (32, 64, 128, 256)  # one swizzle, or two of 128


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None or not graph.multiplies:
        return
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if not isinstance(numbers, UmmaNumbers):
        return
    seen: set[str] = set()
    for role in graph.roles:
        product = product_of(role)
        # Of elements that tcgen05 does not multiply, rule PG278 speaks.
        whole = product is not None and DTYPE[product.a.part.dtype].bytes
        if role.kind == UMMA and product is not None and whole and not role.from_tmem:
            for problem in _tile(numbers, role, product):
                if problem.key not in seen:
                    yield problem
                seen.add(problem.key)
    if not seen:
        yield from _columns(numbers)


def _tile(numbers: UmmaNumbers, role: RoleNode, product: Product) -> Iterator[Problem]:
    extents = numbers.graph.extents
    m, columns, over = extents["M"], extents[product.columns], extents[product.over]
    if m != ROWS:
        yield Problem(
            f"one CTA's tcgen05.mma computes 64 or 128 rows, and {role.name}'s sums fill all "
            f"{ROWS} lanes of TMEM, one for each thread that takes them",
            "tile.m",
            m,
            f"{ROWS}",
            f"{ROWS}",
        )
    if columns not in COLUMNS:
        yield Problem(
            f"the columns of {role.name}'s product are those of one tcgen05.mma of {ROWS} rows",
            f"tile.{product.columns.lower()}",
            columns,
            f"multiples of 16 from {COLUMNS[0]} to {COLUMNS[-1]}",
            nearest_number(columns, COLUMNS),
        )
    fitting = [size // DTYPE[product.a.part.dtype].bytes for size in ROW_BYTES]
    if over not in fitting:
        yield Problem(
            f"a row of what {role.name} sums over is {listing(ROW_BYTES)} bytes, as swizzles are",
            f"tile.{product.over.lower()}",
            over,
            listing(fitting),
            nearest_number(over, fitting),
        )


def _columns(numbers: UmmaNumbers) -> Iterator[Problem]:
    used = numbers.used_columns
    if used <= TMEM_COLUMNS_MAX:
        return
    said = " + ".join(
        f"{r.name} {numbers.stages(r)} * {numbers.columns(r)}" for r in numbers.accumulator_rings
    )
    widest = max(
        numbers.accumulator_rings, key=lambda r: (r.stages is not None, numbers.columns(r))
    )
    stages, columns = numbers.stages(widest), numbers.columns(widest)
    left = (TMEM_COLUMNS_MAX - used + stages * columns) // columns
    key, value, nearest = f"pipeline.{widest.name}.stages", stages, str(left)
    if left < 1:
        symbol = widest.parts[0].dims[-1].lower()
        key, value, nearest = f"tile.{symbol}", columns, str(columns // 2)
    yield Problem(
        f"the accumulators take {said} = {used} columns of TMEM, and an SM has {TMEM_COLUMNS_MAX}",
        key,
        value,
        f"{TMEM_COLUMNS_MAX} columns together",
        nearest,
    )
