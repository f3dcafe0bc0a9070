# SPDX-License-Identifier: Apache-2.0
"""How Mosaic GPU lays out the SMEM of a GEMM behind pl.pallas_call. All sizes in bytes.

Read in jax 0.10.2 and checked against the compiled kernels' sizes: the ring's operands one behind
the other, each at a multiple of 1024, its barriers, 8 B each, and behind them the epilogue's
buffers, again at a multiple of 1024. The ring outlives the epilogue, which therefore has bytes of
its own.
"""

from pipegen.arithmetic import SmemSplit, align_up, operand_stage_bytes, tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MBARRIER_BYTES, SWIZZLE_128B_ALIGNMENT
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.vocabulary import DTYPE

# Blocks that share an SM: every wgmma is awaited in its step, so another block must fill the gap.
BLOCKS = 2


def is_pallas_call(description: KernelDescription) -> bool:
    """Whether the kernel stands behind pl.pallas_call."""
    return description.kernel.style == "pallas-call"


def pallas_call_budget(description: KernelDescription) -> SmemBudget:
    """The SMEM budget of such a GEMM with its defaults filled in."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a_bits, b_bits = DTYPE[description.dtype.a].bits, DTYPE[str(description.dtype.b)].bits
    operands = operand_stage_bytes((m, n, k), a_bits, b_bits)
    out = DTYPE[str(description.dtype.out)]
    columns = next((w // out.bytes for w in (128, 64, 32) if n % (w // out.bytes) == 0), n)
    subtiles = -(-n // columns)
    buffer = tile_bytes(m, columns, out.bits)
    hardware = HARDWARE[description.kernel.arch]
    capacity = hardware.smem_per_sm // BLOCKS - hardware.smem_reserved_per_block

    def total(stages: int, buffers: int) -> int:
        ring = sum(align_up(stages * size, SWIZZLE_128B_ALIGNMENT) for size in operands)
        barriers = stages * MBARRIER_BYTES
        return ring + align_up(buffers * buffer, SWIZZLE_128B_ALIGNMENT) + barriers

    asked, buffers = (description.pipeline[name].stages for name in ("mainloop", "epilogue"))
    # The ring first: it works for all of K, the buffers once for each tile.
    least = 1 if buffers == "auto" else buffers
    possible = range(1, min(MOST_STAGES, capacity // max(1, sum(operands))) + 1)
    fitting = [count for count in possible if total(count, least) <= capacity]
    stages = max(fitting, default=0) if asked == "auto" else asked
    choices = tuple(count for count in range(1, subtiles + 1) if total(stages, count) <= capacity)
    held = max(choices, default=1) if buffers == "auto" else buffers
    return SmemBudget(
        capacity=capacity,
        a_bytes=operands[0],
        b_bytes=operands[1],
        buffer_bytes=buffer,
        epi_tile_mn=(m, columns),
        subtiles=subtiles,
        split=SmemSplit(stages, held, stages * MBARRIER_BYTES, total(stages, held)),
        buffer_choices=choices,
    )
