# SPDX-License-Identifier: Apache-2.0
"""Half of a B tile can be left out only where it is a copy of its own.

What it checks
    pipeline.mainloop.expected_tx without pairs: B is K-major, a stage's row of K is one swizzle row
    (at most 128 bytes), and each CTA's part of half a tile is a multiple of 8 rows. In a pair, the
    half is the whole tile of the second CTA: nothing to check.

Why
    The stage then counts the bytes of A and of half of B. The half must be a box of whole swizzle
    atoms that follow each other in SMEM as the MMA reads them; with two swizzle rows of K, or with
    N contiguous, the halves interlace. What the other half's rows still hold is safe: row n of B
    makes only column n of the accumulator, and those columns lie outside the matrix, where the TMA
    store writes nothing. It may be NaN: epilogue_op must not mix columns.

Example
    expected_tx = true with tile.k = 128 for bf16: 256 bytes a row.

Use instead
    tile.k = 64 (128 for fp8), or cta_group = 2.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.hardware import SWIZZLE_BYTES
from pipegen.planning.smem_sm100 import cta_group_of
from pipegen.vocabulary import DTYPE

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    mainloop, tile = description.pipeline.get("mainloop"), description.tile
    n, k, shape = tile.n or 0, tile.k or 0, description.cluster.shape or (1, 1)
    if mainloop is None or not mainloop.expected_tx or cta_group_of(description) == 2:
        return
    if description.layout.b != "k":
        yield Problem(
            "expected_tx leaves half of a B tile out, which must be a box of its own in SMEM",
            "layout.b",
            description.layout.b,
            '"k", or any with cta_group = 2',
            '"k"',
        )
        return
    deepest = SWIZZLE_BYTES * 8 // DTYPE[str(description.dtype.b)].bits
    if k > deepest:
        yield Problem(
            "expected_tx leaves half of a B tile out, and with two swizzle rows of K the halves "
            "interlace in SMEM",
            "tile.k",
            k,
            f"at most {deepest}, or any with cta_group = 2",
            str(deepest),
        )
    step = 16 * shape[0]
    if n % step:
        yield Problem(
            f"expected_tx leaves half of a B tile out, and {shape[0]} CTAs load parts of a half, "
            "in atoms of 8 rows",
            "tile.n",
            n,
            f"multiples of {step} up to 256",
            str(max(step, n // step * step)),
        )
