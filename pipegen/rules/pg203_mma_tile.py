# SPDX-License-Identifier: Apache-2.0
"""The tile must be made of shapes that the tensor core has.

What it checks
    tile.m: on sm_90a, 64 rows for each consumer warpgroup, once or twice; in ping-pong, where one
    warpgroup has the tile to itself, 64 or 128; on sm_100a, 128 rows of each CTA, also in a pair,
    whose MMA has 256. tile.n: a multiple of 16, from 16 to 256. In Pallas, with
    role.consumer.split = "n": tile.m 64 to 256, and such an N for each consumer warpgroup; in a
    Pallas pair tile.n is a multiple of 32, with i8 of 64. tile.k: rows of one swizzle, 32, 64 or
    128 bytes, or of two of 128.

Why
    One wgmma computes 64 x N x 32 bytes for one warpgroup, N a multiple of 8 up to 256 (PTX ISA,
    "wgmma.mma_async", shapes). One tcgen05.mma of one CTA computes 64 or 128 rows x N x 32 bytes, N
    for 128 rows a multiple of 16 from 16 to 256 (PTX ISA, "tcgen05.mma", shapes of kind::f16 and
    kind::f8f6f4 with cta_group::1); the template has 128 rows, which fill all lanes of TMEM. The
    epilogue stores 16 or more columns at a time, which makes the step 16. A row of a stage is the
    swizzle's width, 32, 64 or 128 bytes, or two of 128.

Example
    n = 300: wgmma ends at 256. m = 96: not a multiple of 64.

Use instead
    The nearest size in the message. Good first choices: 128 x 256 x 64 for 16-bit operands,
    128 x 256 x 128 for fp8.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.planning.turns import takes_turns, tile_warpgroups
from pipegen.vocabulary import DTYPE

K_ROW_BYTES = (32, 64, 128, 256)
SPLIT_N_ROWS = (64, 128, 192, 256)
MAX_N = 256
TMEM_LANES = 128
IN_TURN = "in ping-pong one warpgroup computes a tile: 64 rows of wgmma, once or twice"


def check(description: KernelDescription) -> Iterator[Problem]:
    tile = description.tile
    if description.kernel.arch == "sm_100a":
        yield from _tcgen05(description)
        return
    warpgroups = description.role["consumer"].warpgroups if "consumer" in description.role else None
    m, n, k = tile.m, tile.n, tile.k
    counts = (1, 2, 3) if description.kernel.backend == "pallas" else (1, 2)
    if m is None or n is None or k is None or warpgroups is None or warpgroups not in counts:
        return
    if description.kernel.backend == "pallas":
        yield from _pallas(description, tile_warpgroups(description, warpgroups))
        yield from _depth(k, description)
        return
    warpgroups = tile_warpgroups(description, warpgroups)
    rows = sizes_m(warpgroups)
    if takes_turns(description) and m not in rows:
        yield Problem(
            IN_TURN,
            "tile.m",
            m,
            listing(rows),
            nearest_number(m, rows),
        )
    elif m not in {size for count in (1, 2) for size in sizes_m(count)}:
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
    yield from _columns(n, _why_not(n))
    yield from _depth(k, description)


def _pallas(description: KernelDescription, warpgroups: int) -> Iterator[Problem]:
    """Rows and columns of each consumer warpgroup; three share a tile by its rows or columns."""
    m, n = description.tile.m or 0, description.tile.n or 0
    split = description.role["consumer"].split
    turns = takes_turns(description)
    if split is not None and turns:
        yield Problem(
            "in ping-pong each consumer warpgroup has a tile to itself",
            "role.consumer.split",
            split,
            'no value, or consumers = "cooperative"',
            "leave the key out",
        )
        split = None
    if split is not None and warpgroups == 1:
        yield Problem(
            "one consumer warpgroup has the tile to itself",
            "role.consumer.split",
            split,
            (
                "no value"
                if description.kernel.style == "emit-pipeline"
                else "no value, or warpgroups = 2 or 3"
            ),
            "leave the key out",
        )
        return
    each = f"{warpgroups} consumer warpgroup{'s' if warpgroups > 1 else ''}"
    rows = SPLIT_N_ROWS if split == "n" else sizes_m(warpgroups)
    if m not in rows:
        why = f"wgmma computes 64 rows for each of {each}, once or twice"
        if turns:
            why = IN_TURN
        if split == "n":
            why = f"wgmma computes 64 rows at a time, and {each} share the tile by its columns"
        yield Problem(why, "tile.m", m, listing(rows), nearest_number(m, rows))
    if split != "n":
        yield from _columns(n, _why_not(n))
        return
    step = 16 * warpgroups
    columns = tuple(range(step, MAX_N * warpgroups + 1, step))
    if n not in columns:
        yield Problem(
            f"{each} share the tile by its columns: multiples of 16 for each, up to {MAX_N}",
            "tile.n",
            n,
            f"multiples of {step} from {step} to {columns[-1]}",
            nearest_number(n, columns),
        )


def _why_not(n: int) -> str:
    """Why wgmma or the epilogue does not take N, where they do not."""
    if n % 8 or not 8 <= n <= MAX_N:
        return "wgmma has no such N"
    return "the epilogue stores 16 columns or more at a time"


def _tcgen05(description: KernelDescription) -> Iterator[Problem]:
    """The shapes of one tcgen05.mma of one CTA."""
    m, n, k = description.tile.m, description.tile.n, description.tile.k
    if m is None or n is None or k is None:
        return
    if m != TMEM_LANES:
        one = (
            "one CTA's tcgen05.mma computes 64 or 128 rows, and the template fills all "
            f"{TMEM_LANES} lanes of TMEM"
        )
        pair = (
            f"this is each CTA's part, {TMEM_LANES} lanes of TMEM; a pair's MMA has twice as many"
        )
        yield Problem(
            pair if description.cluster.cta_group == 2 else one,
            "tile.m",
            m,
            str(TMEM_LANES),
            str(TMEM_LANES),
        )
    yield from _columns(n, *_tcgen05_step(description))
    yield from _depth(k, description)


def _tcgen05_step(description: KernelDescription) -> tuple[str, int]:
    """Why the columns of a tile are what they are, and their step."""
    if description.kernel.backend != "pallas" or description.cluster.cta_group != 2:
        return f"tcgen05.mma has no such N for {TMEM_LANES} rows", 16
    half = 32 if description.dtype.a == "i8" else 16
    why = f"Mosaic GPU gives each CTA of a pair half of B, a multiple of {half} columns"
    return why, 2 * half


def _columns(n: int, why: str, step: int = 16) -> Iterator[Problem]:
    columns = tuple(range(step, MAX_N + 1, step))
    if n not in columns:
        yield Problem(
            why,
            "tile.n",
            n,
            f"multiples of {step} from {step} to {MAX_N}",
            nearest_number(n, columns),
        )


def _depth(k: int, description: KernelDescription) -> Iterator[Problem]:
    depths = sizes_k(DTYPE[description.dtype.a].bits)
    if k not in depths:
        yield Problem(
            f"a stage's row of K must be {listing(K_ROW_BYTES)} bytes: one swizzle, or two of 128",
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
