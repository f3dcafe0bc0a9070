# SPDX-License-Identifier: Apache-2.0
"""How Mosaic GPU lays out the SMEM of our Blackwell Pallas GEMMs. All sizes in bytes.

Read in jax 0.10.2 to 0.12.0.1 and checked against the compiled kernels' sizes: operands, store
buffers and the answers of cluster launch control are allocated one behind the other, each at a
multiple of 1024; barriers follow, 8 B each, and the address of TMEM, 4 B.
"""

from pipegen.arithmetic import SmemSplit, align_up, operand_stage_bytes, tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MBARRIER_BYTES, SWIZZLE_128B_ALIGNMENT
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import MOST_STAGES, buffers_of_persistent
from pipegen.planning.smem_sm100 import accumulators_of, cta_group_of
from pipegen.vocabulary import DTYPE

TMEM_ADDRESS_BYTES = 4
ANSWERS = 2  # plgpu.dynamic_scheduling_loop has two slots (jax, mosaic_gpu/helpers.py)
ANSWER_BYTES = 16


def store_columns(description: KernelDescription) -> int:
    """Columns of one store: the widest swizzle that divides the tile's."""
    size = DTYPE[str(description.dtype.out)].bytes
    columns = description.tile.n or 0
    return next((w // size for w in (128, 64, 32) if columns % (w // size) == 0), columns)


def takes_answers(description: KernelDescription) -> bool:
    """Whether tiles come by cluster launch control."""
    return description.scheduler.tiles == "clc"


def shared_cluster(description: KernelDescription) -> tuple[int, int]:
    """The cluster whose CTAs share tiles; (1, 1) for one CTA and for a pair alone."""
    return (1, 1) if cta_group_of(description) == 2 else description.cluster.shape or (1, 1)


def pallas_sm100_budget(description: KernelDescription) -> SmemBudget:
    """The SMEM budget of a Blackwell Pallas GEMM with its defaults filled in."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a_bits, b_bits = DTYPE[description.dtype.a].bits, DTYPE[str(description.dtype.b)].bits
    # In a pair each CTA holds half of the B tile.
    rows = n // cta_group_of(description)
    a_bytes, b_bytes = operand_stage_bytes((m, rows, k), a_bits, b_bits)
    columns = store_columns(description)
    subtiles = -(-n // columns)
    buffer = tile_bytes(m, columns, DTYPE[str(description.dtype.out)].bits)
    capacity = HARDWARE[description.kernel.arch].smem_per_block
    stages, buffers = (description.pipeline[name].stages for name in ("mainloop", "epilogue"))
    held = buffers_of_persistent(subtiles)[0] if buffers == "auto" else buffers
    answers = ANSWERS if takes_answers(description) else 0

    def barriers(stages: int) -> int:
        pairs = stages + max(0, accumulators_of(description)) + answers
        released = stages if shared_cluster(description) != (1, 1) else 0
        return MBARRIER_BYTES * (2 * pairs + released) + TMEM_ADDRESS_BYTES

    def total(stages: int, buffers: int) -> int:
        parts = (stages * a_bytes, stages * b_bytes, buffers * buffer, answers * ANSWER_BYTES)
        return sum(align_up(part, SWIZZLE_128B_ALIGNMENT) for part in parts) + barriers(stages)

    most = min(MOST_STAGES, capacity // max(1, a_bytes + b_bytes))
    fitting = [s for s in range(1, most + 1) if total(s, held) <= capacity]
    chosen = (max(fitting, default=0)) if stages == "auto" else stages
    most_buffers = min(subtiles, capacity // max(1, buffer))
    possible = [b for b in sorted(buffers_of_persistent(subtiles)) if b <= most_buffers]
    return SmemBudget(
        capacity=capacity,
        a_bytes=a_bytes,
        b_bytes=b_bytes,
        buffer_bytes=buffer,
        epi_tile_mn=(m, columns),
        subtiles=subtiles,
        split=SmemSplit(chosen, held, barriers(chosen), total(chosen, held)),
        buffer_choices=tuple(b for b in possible if total(chosen, b) <= capacity),
    )
