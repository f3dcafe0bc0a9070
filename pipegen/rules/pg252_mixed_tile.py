# SPDX-License-Identifier: Apache-2.0
"""The tile of a mixed GEMM must be made of shapes that the tensor core and the conversion have.

What it checks
    tile.m, the tokens: a multiple of 16 from 16 to 256. tile.n, the channels: on sm_90a 64 for each
    consumer warpgroup, once or twice; on sm_100a 128. tile.k: rows of weights of 32, 64 or 128
    bytes, so 32, 64 or 128 of i8, 64, 128 or 256 of i4; in Pallas also of 256 or 512 bytes.

Why
    The weights are the tensor core's first operand, so its M counts channels and its N tokens: 64
    channels for one wgmma (PTX ISA, "wgmma.mma_async", shapes), the 128 lanes of TMEM for one
    tcgen05.mma. The epilogue stores 16 tokens or more. In CuTe a row of weights is one swizzle
    wide, so that threads find their part of it with one XOR.

Example
    n = 96: wgmma computes 64 channels for a warpgroup.

Use instead
    128 x 128 x 128. On sm_90a 16 x 64 x 128 or 64 x 64 x 128 for so few tokens, because narrow
    tiles give every SM a share of the weights, and 256 x 128 x 64 for thousands.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.planning.smem_mixed import ROW_BYTES, depths
from pipegen.vocabulary import DTYPE

TOKENS = tuple(range(16, 257, 16))
TMEM_LANES = 128


def check(description: KernelDescription) -> Iterator[Problem]:
    m, n, k = description.tile.m, description.tile.n, description.tile.k
    if m is None or n is None or k is None:
        return
    if m not in TOKENS:
        yield Problem(
            "the tensor core's N counts tokens, and the epilogue stores 16 or more at a time",
            "tile.m",
            m,
            "multiples of 16 from 16 to 256",
            nearest_number(m, TOKENS),
        )
    channels, why = _channels(description)
    if n not in channels:
        yield Problem(why, "tile.n", n, listing(channels), nearest_number(n, channels))
    weights = str(description.dtype.b)
    backend = description.kernel.backend
    allowed = depths(backend, DTYPE[weights].bits)
    if k not in allowed:
        rows = listing(ROW_BYTES[backend])
        yield Problem(
            f"a channel's {weights} weights in a stage must be {rows} bytes",
            "tile.k",
            k,
            listing(allowed),
            nearest_number(k, allowed),
        )


def _channels(description: KernelDescription) -> tuple[tuple[int, ...], str]:
    """Channels of a tile that the kernel can have, and why no others."""
    if description.kernel.arch == "sm_100a":
        return (TMEM_LANES,), f"the channels are the {TMEM_LANES} lanes of TMEM"
    warpgroups = description.role["consumer"].warpgroups
    counts = (warpgroups,) if warpgroups in (1, 2) else (1, 2)
    channels = sorted({64 * count * atoms for count in counts for atoms in (1, 2)})
    return tuple(channels), (
        f"wgmma computes 64 channels for each of {listing(counts)} consumer warpgroup(s), once or "
        "twice"
    )
