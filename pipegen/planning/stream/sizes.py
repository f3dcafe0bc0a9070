# SPDX-License-Identifier: Apache-2.0
"""How a stream kernel uses its SMEM, and how a tile is split. Sizes in bytes.

Functions take a description with its defaults filled in.
"""

from dataclasses import dataclass
from typing import Literal

from pipegen.arithmetic import align_up, ring_barrier_bytes, tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, TMA_SMEM_ALIGNMENT, VECTOR_BYTES, WARP
from pipegen.planning.blocks import tiles_asked
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 2  # one is read while the next is loaded
STORE_BUFFERS = 3  # of a warp: one is written while others are stored
# Producer warps without TMA, chosen among a hundred variants on an H200 (32768 x 8192 bf16). The
# leading ones lay within 2 % of each other.
THREAD_PRODUCER_WARPS = 8  # threads have in flight only what their registers hold
COPY_PRODUCER_WARPS = 2  # the copies of two warps fill the ring
GATHER_PRODUCER_WARPS = 4  # a row's index must be there before its copies
NARROW_PRODUCER_WARPS = 4  # copies of 8 or 4 bytes, two or four times as many


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
        return barrier_room(self.stages)

    @property
    def total_bytes(self) -> int:
        """Bytes of a block's SMEM."""
        ring = self.stages * self.stage_bytes
        return self.barrier_bytes + ring + self.buffers * self.tile_out_bytes


def barrier_room(stages: int) -> int:
    """Bytes of the ring's barriers, up to where TMA can write."""
    return align_up(ring_barrier_bytes(stages), TMA_SMEM_ALIGNMENT)


def most_stages(room: int, stage_bytes: int) -> int:
    """How many stages fit in `room` with their barriers."""
    stages = max(0, room // stage_bytes)
    while stages and barrier_room(stages) + stages * stage_bytes > room:
        stages -= 1
    return stages


def filled_stages(description: KernelDescription) -> int | None:
    """How many stages a block with `tiles_per_block` can fill, or the fewest that a ring has; None
    without that key."""
    tiles = tiles_asked(description)
    return None if tiles is None else max(FEWEST_STAGES, tiles)


def derived_stages(description: KernelDescription, room: int, stage_bytes: int) -> int:
    """As many stages as fit in `room` bytes and are filled."""
    most, filled = most_stages(room, stage_bytes), filled_stages(description)
    return most if filled is None else min(most, filled)


def stream_sizes(description: KernelDescription) -> StreamSizes | None:
    """The sizes of a description; None where it has none to compute with.

    As many stages as fit beside the store buffers and are filled, and as many buffers, up to
    STORE_BUFFERS, as fit beside the ring: beside the fewest stages where both are "auto".
    """
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
    stage_bytes = x_bytes + y_bytes
    stages = description.pipeline["mainloop"].stages
    epilogue = description.pipeline.get("epilogue")
    buffers = 0
    if epilogue and epilogue.stages == "auto":
        ring = FEWEST_STAGES if stages == "auto" else stages
        left = capacity - barrier_room(ring) - ring * stage_bytes
        buffers = max(1, min(STORE_BUFFERS, left // out_bytes))
    elif epilogue and epilogue.stages != "auto":
        buffers = epilogue.stages
    if stages == "auto":
        stages = derived_stages(description, capacity - buffers * out_bytes, stage_bytes)
    return StreamSizes(
        warps, m // warps, n // WARP, blocks, capacity, x_bytes, y_bytes, out_bytes, stages, buffers
    )


def producer_warps_of(description: KernelDescription) -> int:
    """Warps that load: those of the description with TMA, else a number that suits the loads."""
    producer, layout = description.pipeline["mainloop"].producer, description.layout
    if producer == "tma":
        return description.role["producer"].warps
    return loading_warps(str(producer), layout.alignment, layout.gather)


def loading_warps(producer: str, alignment: int, gather: bool) -> int:
    """Warps that load without TMA."""
    if producer == "thread":
        return THREAD_PRODUCER_WARPS
    if alignment < VECTOR_BYTES:
        return NARROW_PRODUCER_WARPS
    return GATHER_PRODUCER_WARPS if gather else COPY_PRODUCER_WARPS


def rows_shared_by(description: KernelDescription) -> int:
    """Producer warps that share a tile's rows: one where TMA loads whole tiles."""
    tma = description.pipeline["mainloop"].producer == "tma"
    return 1 if tma else producer_warps_of(description)


def fits(description: KernelDescription) -> bool:
    """Whether as many such blocks as described run on one SM, each with a ring that overlaps."""
    sizes = stream_sizes(description)
    if sizes is None:
        return False
    threads = WARP * (sizes.warps + producer_warps_of(description))
    return (
        sizes.stages >= FEWEST_STAGES
        and sizes.total_bytes <= sizes.capacity
        and sizes.blocks * threads <= HARDWARE[description.kernel.arch].max_threads_per_sm
    )


def with_stages(
    description: KernelDescription,
    mainloop: int | Literal["auto"] = "auto",
    epilogue: int | Literal["auto"] = "auto",
    blocks: int | None = None,
) -> KernelDescription:
    """The same description with other stages and store buffers, and perhaps other blocks."""
    stages = {"mainloop": mainloop, "epilogue": epilogue}
    pipelines = {
        name: pipeline.model_copy(update={"stages": stages[name]})
        for name, pipeline in description.pipeline.items()
    }
    update: dict[str, object] = {"pipeline": pipelines}
    if blocks is not None:
        update["stream"] = description.stream.model_copy(update={"blocks_per_sm": blocks})
    return description.model_copy(update=update)
