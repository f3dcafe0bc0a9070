# SPDX-License-Identifier: Apache-2.0
"""How a stream kernel that TMA feeds uses its SMEM, and how a tile is split. Sizes in bytes."""

from dataclasses import dataclass

from pipegen.arithmetic import align_up, ring_barrier_bytes, tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, TMA_SMEM_ALIGNMENT, WARP
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 2  # one is read while the next is loaded
STORE_BUFFERS = 3  # one is written while others are stored


@dataclass(frozen=True)
class StreamSizes:
    """A tile's parts and what fits in a block's SMEM.

    `warp_m` rows of a tile belong to each consumer warp, `vector` elements of a row to each lane.
    `y_bytes` is 0 where there is no y, `buffers` where the threads store to GMEM themselves;
    `tile_out_bytes` are the store buffers of all warps together, one each.
    """

    warps: int
    warp_m: int
    vector: int
    blocks: int
    capacity: int
    x_bytes: int
    y_bytes: int
    tile_out_bytes: int
    stages: int
    buffers: int

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of the ring."""
        return self.x_bytes + self.y_bytes

    @property
    def barrier_bytes(self) -> int:
        """What the barriers take before the ring, which begins where TMA can write."""
        return align_up(ring_barrier_bytes(self.stages), TMA_SMEM_ALIGNMENT)

    @property
    def total_bytes(self) -> int:
        """Bytes of a block's SMEM."""
        ring = self.stages * self.stage_bytes
        return self.barrier_bytes + ring + self.buffers * self.tile_out_bytes


def stream_sizes(description: KernelDescription) -> StreamSizes | None:
    """The sizes of a description with its defaults filled in; None where it has none to use."""
    tile, dtype = description.tile, description.dtype
    m, n = tile.m or 0, tile.n or 0
    warps = 4 * (description.role["consumer"].warpgroups or 0)
    blocks = description.stream.blocks_per_sm
    if min(m, n, warps) < 1 or blocks == "auto" or blocks < 1 or m % warps or n % WARP:
        return None
    hardware = HARDWARE[description.kernel.arch]
    capacity = hardware.smem_per_sm // blocks - hardware.smem_reserved_per_block
    y_rows = {"none": 0, "matrix": m, "row": 1}[description.stream.y]
    x_bytes = tile_bytes(m, n, DTYPE[dtype.a].bits)
    y_bytes = tile_bytes(y_rows, n, DTYPE[str(dtype.b)].bits)
    out_bytes = tile_bytes(m, n, DTYPE[str(dtype.out)].bits)
    epilogue = description.pipeline.get("epilogue")
    buffers = 0
    if epilogue:
        buffers = STORE_BUFFERS if epilogue.stages == "auto" else epilogue.stages
    stages = description.pipeline["mainloop"].stages
    if stages == "auto":
        stages = most_stages(capacity - buffers * out_bytes, x_bytes + y_bytes)
    return StreamSizes(
        warps, m // warps, n // WARP, blocks, capacity, x_bytes, y_bytes, out_bytes, stages, buffers
    )


def most_stages(room: int, stage_bytes: int) -> int:
    """How many stages fit in `room` with their barriers."""
    stages = max(0, room // stage_bytes)
    while stages and align_up(ring_barrier_bytes(stages), TMA_SMEM_ALIGNMENT) > (
        room - stages * stage_bytes
    ):
        stages -= 1
    return stages
