# SPDX-License-Identifier: Apache-2.0
"""How Mosaic GPU lays out the SMEM of our Pallas GEMMs. All sizes in bytes.

Read in jax 0.10.2 to 0.12.0.1 and checked against the compiled kernels' sizes: operands and store
buffers are allocated one behind the other, each at a multiple of 1024; barriers follow, 8 B each.
`emit_pipeline` frees its operands' buffers when it ends, so that the epilogue's use the same bytes.
"""

from pipegen.arithmetic import (
    SmemSplit,
    align_up,
    operand_stage_bytes,
    order_barrier_bytes,
    tile_bytes,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MBARRIER_BYTES, SWIZZLE_128B_ALIGNMENT
from pipegen.planning.release import release_of
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.turns import TURN_STAGES, TURN_WARPGROUPS, takes_turns, tile_warpgroups
from pipegen.vocabulary import DTYPE

# Blocks of `emit_pipeline` that share an SM: one's epilogue overlaps the other's mainloop.
EMIT_PIPELINE_BLOCKS = 2
MOST_BUFFERS = 8
# A ring's barriers are one group of Mosaic GPU's, which raises "Only up to 32 barriers per group
# supported" (jax 0.10.2 to 0.12.0.1, jax/experimental/mosaic/gpu/utils.py, BarrierRef).
MOST_STAGES = 32


def consumer_warpgroups(description: KernelDescription) -> int:
    """Warpgroups that compute."""
    return description.role["consumer"].warpgroups or 1


def split_of(description: KernelDescription) -> str:
    """What several consumer warpgroups share: the tile's rows, m, or its columns, n; else none."""
    role = description.role["consumer"]
    together = tile_warpgroups(description, consumer_warpgroups(description))
    return str(role.split) if together > 1 else ""


def warpgroup_tile(description: KernelDescription) -> tuple[int, int]:
    """Rows and columns of the tile that one warpgroup computes."""
    m, n = description.tile.m or 0, description.tile.n or 0
    warpgroups = tile_warpgroups(description, consumer_warpgroups(description))
    return (m, n // warpgroups) if split_of(description) == "n" else (m // warpgroups, n)


def store_tile(description: KernelDescription) -> tuple[int, int]:
    """Rows and columns of one store: the widest swizzle that divides a warpgroup's columns."""
    rows, columns = warpgroup_tile(description)
    size = DTYPE[str(description.dtype.out)].bytes
    width = next((w // size for w in (128, 64, 32) if columns % (w // size) == 0), columns)
    return (rows if is_emit_pipeline(description) else min(64, rows)), width


def is_emit_pipeline(description: KernelDescription) -> bool:
    """Whether one warpgroup loads and computes."""
    return description.kernel.style == "emit-pipeline"


def most_stages(description: KernelDescription) -> int:
    """Stages whose barriers are one group; in ping-pong the full ones are two a stage."""
    return MOST_STAGES // (TURN_WARPGROUPS if takes_turns(description) else 1)


def pallas_budget(description: KernelDescription) -> SmemBudget:
    """The SMEM budget of a Pallas GEMM with its defaults filled in."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a_bits, b_bits = DTYPE[description.dtype.a].bits, DTYPE[str(description.dtype.b)].bits
    a_bytes, b_bytes = operand_stage_bytes((m, n, k), a_bits, b_bits)
    rows, columns = store_tile(description)
    wg_rows, wg_columns = warpgroup_tile(description)
    subtiles = -(-wg_rows // rows) * -(-wg_columns // columns)
    buffer = tile_bytes(rows, columns, DTYPE[str(description.dtype.out)].bits)
    hardware = HARDWARE[description.kernel.arch]
    stages, buffers = (description.pipeline[name].stages for name in ("mainloop", "epilogue"))
    emit = is_emit_pipeline(description)
    if emit:
        blocks = EMIT_PIPELINE_BLOCKS
        capacity = hardware.smem_per_sm // blocks - hardware.smem_reserved_per_block
        held = subtiles if buffers == "auto" else buffers
    else:
        capacity = hardware.smem_per_block
        held = buffers_of_persistent(subtiles)[0] if buffers == "auto" else buffers
    _, kept = release_of(description)
    turns = takes_turns(description)
    extra = MBARRIER_BYTES if kept and not emit else 0
    extra += order_barrier_bytes(TURN_STAGES, TURN_WARPGROUPS) if turns else 0
    # In ping-pong a stage has a full barrier for each of the two, and one that says it is empty.
    barriers_a_stage = 1 + TURN_WARPGROUPS if turns else 1 if emit else 2

    def total(stages: int, buffers: int) -> int:
        ring = sum(align_up(stages * size, SWIZZLE_128B_ALIGNMENT) for size in (a_bytes, b_bytes))
        rings = 1 if emit else consumer_warpgroups(description)
        stores = align_up(rings * buffers * buffer, SWIZZLE_128B_ALIGNMENT)
        barriers = barriers_a_stage * stages * MBARRIER_BYTES + extra
        return (max(ring, stores) if emit else ring + stores) + barriers

    most = min(most_stages(description), capacity // (a_bytes + b_bytes))
    fitting = [s for s in range(1, most + 1) if total(s, held) <= capacity]
    chosen = (max(fitting, default=0)) if stages == "auto" else stages
    barrier_bytes = barriers_a_stage * chosen * MBARRIER_BYTES + extra
    most_buffers = min(subtiles, capacity // max(1, buffer))
    possible = range(1, most_buffers + 1) if emit else sorted(buffers_of_persistent(subtiles))
    return SmemBudget(
        capacity=capacity,
        a_bytes=a_bytes,
        b_bytes=b_bytes,
        buffer_bytes=buffer,
        epi_tile_mn=(rows, columns),
        subtiles=subtiles,
        split=SmemSplit(chosen, held, barrier_bytes, total(chosen, held)),
        buffer_choices=tuple(b for b in possible if total(chosen, b) <= capacity),
    )


def buffers_of_persistent(subtiles: int) -> tuple[int, ...]:
    """Numbers of store buffers for a kernel that computes tile after tile, the best one first.

    They divide the tile's stores, so that every tile begins with the buffer after the last one's:
    else the first store of a tile overwrites what the last store of the tile before still reads.
    """
    divisors = [d for d in range(2, MOST_BUFFERS + 1) if subtiles % d == 0]
    return (*divisors, 1)
