# SPDX-License-Identifier: Apache-2.0
"""How a block's SMEM is divided."""

from dataclasses import dataclass

from pipegen.arithmetic.sizes import align_up, ring_barrier_bytes
from pipegen.hardware import SWIZZLE_128B_ALIGNMENT


@dataclass(frozen=True)
class SmemSplit:
    """How a block's SMEM is divided between the ring, the store buffers and the barriers."""

    stages: int
    store_buffers: int
    barrier_bytes: int
    total_bytes: int


def smem_bytes(
    operand_bytes: tuple[int, ...],
    buffer_bytes: int,
    stages: int,
    store_buffers: int,
    other_bytes: int = 0,
    rings: int = 1,
) -> int:
    """Bytes of a block's SMEM: barriers, the A ring, the B ring and the store buffers, each from a
    multiple of 1024 on (where a tile with the 128-byte swizzle may start: PTX, "wgmma", matrix
    descriptor). `other_bytes` stand right after the barriers of the `rings` with so many stages."""
    parts = [rings * ring_barrier_bytes(stages) + other_bytes, store_buffers * buffer_bytes]
    parts += [stages * size for size in operand_bytes]
    return sum(align_up(part, SWIZZLE_128B_ALIGNMENT) for part in parts)


def split_smem(
    capacity: int,
    operand_bytes: tuple[int, ...],
    buffer_bytes: int,
    subtiles: int,
    max_store_buffers: int,
    stages: int | None = None,
    store_buffers: int | None = None,
    other_bytes: int = 0,
    rings: int = 1,
) -> SmemSplit:
    """As many stages as fit, then as many store buffers as fit beside them.

    `operand_bytes` are those of A and of B in one stage. `stages` or `store_buffers` fix one of the
    two; None lets it grow. Stages are counted with two store buffers (the fewest that let a store
    fly while the next subtile is written; one where a tile has one subtile); what is left goes to
    further buffers, up to `max_store_buffers` and the number of subtiles of a tile. `other_bytes`
    are what the kernel keeps beside the ring's barriers, `rings` the rings that have such barriers:
    2 where the operands arrive on their own.
    The result may exceed `capacity`, or have 0 stages: the caller decides what that means.
    """
    fewest = fewest_store_buffers(subtiles) if store_buffers is None else store_buffers

    def total(stages: int, buffers: int) -> int:
        return smem_bytes(operand_bytes, buffer_bytes, stages, buffers, other_bytes, rings)

    if stages is None:
        stages = max(0, (capacity - fewest * buffer_bytes) // sum(operand_bytes))
        while stages and total(stages, fewest) > capacity:
            stages -= 1
    if store_buffers is None:
        store_buffers = min(max_store_buffers, subtiles)
        while store_buffers > fewest and total(stages, store_buffers) > capacity:
            store_buffers -= 1
    barriers = rings * ring_barrier_bytes(stages) + other_bytes
    return SmemSplit(stages, store_buffers, barriers, total(stages, store_buffers))


def fewest_store_buffers(subtiles: int) -> int:
    """Store buffers that let one be read by TMA while another is written."""
    return min(2, subtiles)
