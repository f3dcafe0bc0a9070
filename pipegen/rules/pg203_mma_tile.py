# SPDX-License-Identifier: Apache-2.0
"""The tile must be made of shapes that wgmma has.

What it checks
    tile.m: 64 rows for each consumer warpgroup, once or twice. tile.n: a multiple of 16, from 16
    to 256. tile.k: rows of 32, 64, 128 or 256 bytes.

Why
    One wgmma computes 64 x N x 32 bytes for one warpgroup, N a multiple of 8 up to 256 (PTX ISA,
    "wgmma.mma_async", shapes). The epilogue stores 16 or more columns at a time, which makes the
    step 16. A row of a stage is the swizzle's width, 32, 64 or 128 bytes, or two of 128.

Example
    n = 300: wgmma ends at 256. m = 96: not a multiple of 64.

Use instead
    The nearest size in the message. Good first choices: 128 x 256 x 64 for 16-bit operands,
    128 x 256 x 128 for fp8.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.vocabulary import DTYPE

K_ROW_BYTES = (32, 64, 128, 256)
MAX_N = 256


def check(description: KernelDescription) -> Iterator[Problem]:
    tile = description.tile
    warpgroups = description.role["consumer"].warpgroups if "consumer" in description.role else None
    m, n, k = tile.m, tile.n, tile.k
    if m is None or n is None or k is None or warpgroups not in (1, 2):
        return
    rows = sizes_m(warpgroups)
    if m not in {size for count in (1, 2) for size in sizes_m(count)}:
        every = sorted({*sizes_m(1), *sizes_m(2)})
        yield Problem(
            "wgmma computes 64 rows for each of 1 or 2 consumer warpgroups, once or twice",
            "tile.m",
            m,
            listing(every),
            nearest_number(m, every),
        )
    elif m not in rows:
        yield Problem(
            f"wgmma computes 64 rows for each of {warpgroups} consumer warpgroups, once or twice",
            "tile.m",
            m,
            listing(rows),
            nearest_number(m, rows),
        )
    columns = tuple(range(16, MAX_N + 1, 16))
    if n not in columns:
        why = "the epilogue stores 16 columns or more at a time"
        yield Problem(
            "wgmma has no such N" if n % 8 or not 8 <= n <= MAX_N else why,
            "tile.n",
            n,
            f"multiples of 16 from 16 to {MAX_N}",
            nearest_number(n, columns),
        )
    depths = sizes_k(DTYPE[description.dtype.a].bits)
    if k not in depths:
        yield Problem(
            f"a stage's row of K must be {listing(K_ROW_BYTES)} bytes",
            "tile.k",
            k,
            listing(depths),
            nearest_number(k, depths),
        )


def sizes_m(warpgroups: int) -> tuple[int, ...]:
    """Rows of a CTA tile that `warpgroups` consumer warpgroups can compute."""
    return tuple(64 * max(1, warpgroups) * atoms for atoms in (1, 2))


def sizes_k(operand_bits: int) -> tuple[int, ...]:
    """Depth of a stage in elements."""
    return tuple(row * 8 // operand_bits for row in K_ROW_BYTES)
