# SPDX-License-Identifier: Apache-2.0
"""How a stream kernel in Task Scheduling uses its SMEM, and its defaults. Sizes in bytes."""

from dataclasses import dataclass
from typing import Any, Literal

from pipegen.arithmetic import tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, TMA_BOX_MAX, TMA_SMEM_ALIGNMENT, VECTOR_BYTES, WARP
from pipegen.planning.smem_sm100 import ANSWER_BYTES, ANSWERS
from pipegen.planning.stream.defaults import CONSUMER_WARPGROUPS, TILE_M, rows_for
from pipegen.planning.task_scheduling.layout import Region, SmemLayout, lay_out
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 2  # one is read while the next is loaded
OUTPUT_STAGES = 3  # one is written while others are stored
LANE_OUTPUT_STAGES = 2  # of each lane
LANE_TILE_M = 8  # rows of a tile that one warp has to itself


@dataclass(frozen=True)
class TsStreamSizes:
    """A tile's parts and what fits in a block's SMEM.

    `warp_m` rows of a tile belong to each compute warp, `vector` elements of a row to each of its
    lanes. With `lanes` other than 1 each warp has whole tiles, and the stages are shared out.
    """

    warps: int
    lanes: int
    warp_m: int
    vector: int
    blocks: int
    capacity: int
    in_bytes: int
    out_bytes: int
    inputs: int
    outputs: int
    answers: int

    @property
    def layout(self) -> SmemLayout:
        """Where the rings lie."""
        regions = [
            Region("in", self.inputs * self.in_bytes, TMA_SMEM_ALIGNMENT),
            Region("out", self.outputs * self.out_bytes, TMA_SMEM_ALIGNMENT),
        ]
        if self.answers:
            regions.append(Region("answers", self.answers * ANSWER_BYTES, TMA_SMEM_ALIGNMENT))
        return lay_out(regions, (self.inputs, self.outputs, self.answers))

    @property
    def threads(self) -> int:
        """Threads of a block: compute, load and store warps, and the scheduler's."""
        return WARP * (self.warps + 2 + bool(self.answers))

    @property
    def fits(self) -> bool:
        """Whether so many blocks run on one SM, each with rings that overlap."""
        return (
            self.inputs >= max(FEWEST_STAGES, self.lanes)
            and self.outputs >= self.lanes
            and self.layout.total_bytes <= self.capacity
        )


def fill_ts_stream(data: dict[str, Any]) -> None:
    """Types, tile, cluster, roles and blocks of a stream kernel, in place on its data."""
    dtype, tile, consumer = data["dtype"], data["tile"], data["role"]["consumer"]
    lanes = data["pipeline"]["mainloop"]["lanes"]
    dtype["b"] = dtype["b"] or dtype["a"]
    dtype["out"] = dtype["out"] or dtype["a"]
    if dtype["promote_every"] == "auto":
        dtype["promote_every"] = 0
    if consumer["warpgroups"] is None:
        consumer["warpgroups"] = max(1, lanes // 4) if lanes > 1 else CONSUMER_WARPGROUPS
    if tile["m"] is None:
        tile["m"] = LANE_TILE_M if lanes > 1 else rows_for(TILE_M, consumer["warpgroups"])
    if tile["n"] is None:
        widest = max(DTYPE[word].bits for word in (dtype["a"], dtype["b"], dtype["out"]))
        tile["n"] = min(TMA_BOX_MAX, WARP * VECTOR_BYTES * 8 // widest)
    if data["stream"]["blocks_per_sm"] == "auto":
        data["stream"]["blocks_per_sm"] = 1
    if data["cluster"]["shape"] is None:
        data["cluster"]["shape"] = (1, 1)


def ts_stream_sizes(
    description: KernelDescription,
    inputs: int | Literal["auto"] | None = None,
    outputs: int | Literal["auto"] | None = None,
) -> TsStreamSizes | None:
    """The sizes of a description with its defaults filled in; None where it has none.

    `inputs` and `outputs` take the place of the description's stages. As many inputs as fit beside
    the outputs, in whole lanes.
    """
    tile, dtype = description.tile, description.dtype
    m, n = tile.m or 0, tile.n or 0
    warps = 4 * (description.role["consumer"].warpgroups or 0)
    mainloop = description.pipeline["mainloop"]
    lanes, blocks = mainloop.lanes, description.stream.blocks_per_sm
    parts = 1 if lanes > 1 else warps
    if min(m, n, warps, lanes) < 1 or blocks == "auto" or blocks < 1 or m % parts or n % WARP:
        return None
    hardware = HARDWARE[description.kernel.arch]
    inputs = mainloop.stages if inputs is None else inputs
    outputs = description.pipeline["epilogue"].stages if outputs is None else outputs
    if outputs == "auto":
        outputs = LANE_OUTPUT_STAGES * lanes if lanes > 1 else OUTPUT_STAGES
    sizes = TsStreamSizes(
        warps=warps,
        lanes=lanes,
        warp_m=m // parts,
        vector=n // WARP,
        blocks=blocks,
        capacity=hardware.smem_per_sm // blocks - hardware.smem_reserved_per_block,
        in_bytes=tile_bytes(m, n, DTYPE[dtype.a].bits),
        out_bytes=tile_bytes(m, n, DTYPE[str(dtype.out)].bits),
        inputs=0,
        outputs=outputs,
        answers=answers_of(description),
    )
    if inputs == "auto":
        return _most(sizes)
    return _with_inputs(sizes, inputs)


def answers_of(description: KernelDescription) -> int:
    """Answers of cluster launch control that can be on their way."""
    scheduler = description.pipeline.get("scheduler")
    if scheduler is None or description.scheduler.tiles != "clc":
        return 0
    return ANSWERS if scheduler.stages == "auto" else scheduler.stages


def _with_inputs(sizes: TsStreamSizes, inputs: int) -> TsStreamSizes:
    return TsStreamSizes(**{**sizes.__dict__, "inputs": inputs})


def _most(sizes: TsStreamSizes) -> TsStreamSizes:
    """The deepest ring that fits, in whole lanes; one without stages where none does."""
    inputs = max(0, sizes.capacity // sizes.in_bytes) // sizes.lanes * sizes.lanes
    while inputs and _with_inputs(sizes, inputs).layout.total_bytes > sizes.capacity:
        inputs -= sizes.lanes
    return _with_inputs(sizes, inputs)
