# SPDX-License-Identifier: Apache-2.0
"""How Mosaic GPU lays out the SMEM of our mixed GEMM. All sizes in bytes.

As in a GEMM (`smem_pallas`): the rings of A, B and the scales, then the store buffers, each at a
multiple of 1024; the barriers follow.
"""

from pipegen.arithmetic import SmemSplit, align_up, operand_stage_bytes, tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MBARRIER_BYTES, SWIZZLE_128B_ALIGNMENT
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import MOST_STAGES, buffers_of_persistent
from pipegen.vocabulary import DTYPE

BARRIERS_A_STAGE = 2
# Channels of a store: the rows of one wgmma, which the accumulator's layout keeps together.
EPILOGUE_CHANNELS = 64
EPILOGUE_TOKENS = (64, 32, 16)


def piece_k(description: KernelDescription) -> int:
    """Of K, what is converted and multiplied at once: one swizzle of A's rows."""
    row = (description.tile.k or 0) * DTYPE[description.dtype.a].bytes
    width = next((w for w in (128, 64, 32) if row % w == 0), row)
    return max(1, width // DTYPE[description.dtype.a].bytes)


def mixed_pallas_budget(description: KernelDescription) -> SmemBudget:
    """The SMEM budget of a Pallas mixed GEMM with its defaults filled in."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    warpgroups = description.role["consumer"].warpgroups or 1
    a_bits, b_bits = DTYPE[description.dtype.a].bits, DTYPE[str(description.dtype.b)].bits
    a_bytes, b_bytes = operand_stage_bytes((m, n, k), a_bits, b_bits)
    scale_bytes = tile_bytes(n, 1, a_bits) if description.dtype.scale_group else 0
    tokens = next((tokens for tokens in EPILOGUE_TOKENS if m % tokens == 0), m)
    subtiles = -(-m // tokens) * -(-n // (warpgroups * EPILOGUE_CHANNELS))
    out_bits = DTYPE[str(description.dtype.out)].bits
    buffer = tile_bytes(tokens, EPILOGUE_CHANNELS, out_bits)
    capacity = HARDWARE[description.kernel.arch].smem_per_block
    stages, buffers = (description.pipeline[name].stages for name in ("mainloop", "epilogue"))
    possible = buffers_of_persistent(subtiles)
    held = possible[0] if buffers == "auto" else buffers

    def total(stages: int, buffers: int) -> int:
        rings = (stages * size for size in (a_bytes, b_bytes, scale_bytes))
        parts = (*rings, warpgroups * buffers * buffer)
        barriers = BARRIERS_A_STAGE * stages * MBARRIER_BYTES
        return sum(align_up(part, SWIZZLE_128B_ALIGNMENT) for part in parts) + barriers

    fitting = [s for s in range(1, MOST_STAGES + 1) if total(s, held) <= capacity]
    chosen = max(fitting, default=0) if stages == "auto" else stages
    barrier_bytes = BARRIERS_A_STAGE * chosen * MBARRIER_BYTES
    return SmemBudget(
        capacity=capacity,
        a_bytes=a_bytes,
        b_bytes=b_bytes,
        buffer_bytes=buffer,
        epi_tile_mn=(tokens, EPILOGUE_CHANNELS),
        subtiles=subtiles,
        split=SmemSplit(chosen, held, barrier_bytes, total(chosen, held)),
        buffer_choices=tuple(b for b in sorted(possible) if total(chosen, b) <= capacity),
        scale_bytes=scale_bytes,
    )
