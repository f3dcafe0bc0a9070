# SPDX-License-Identifier: Apache-2.0
"""Stream kernels that threads or cp.async feed: defaults, and how the warps split a tile."""

from dataclasses import dataclass
from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import CP_ASYNC_BYTES, VECTOR_BYTES, WARP
from pipegen.planning.stream.defaults import TILE_M, fill_stream, rows_for
from pipegen.planning.stream.sizes import (
    StreamSizes,
    fits,
    loading_warps,
    producer_warps_of,
    stream_sizes,
)
from pipegen.vocabulary import DTYPE

# Producers that wait for GMEM, for loads or for the index of a row, leave gaps that another block
# can fill: TMA stores of gathered rows reach 0.80 of a copy on an H200 with one block, and 0.96
# with two.
WAITING_BLOCKS_PER_SM = 2
# Narrow copies and loads go through L1, which is what the rings leave. Three blocks, whose four
# stages leave 30 KiB of an SM, reach 0.87 to 0.91 of a copy; two with as much as fits 0.80 to 0.84.
NARROW_BLOCKS_PER_SM = 3


@dataclass(frozen=True)
class ThreadSizes:
    """A `StreamSizes`, and what of a tile falls to a warp and to a lane.

    `producer_m` rows belong to each of `producer_warps`. A lane loads and stores `vector` elements
    at once, and has `pieces` such vectors of a row, each of which lies beside those of the other
    lanes.
    """

    stream: StreamSizes
    producer_warps: int
    producer_m: int
    vector: int
    pieces: int

    @property
    def lane_n(self) -> int:
        """Columns from a lane's first element to its last."""
        return WARP * self.vector * self.pieces - (WARP - 1) * self.vector


def loaded_types(data: dict[str, Any]) -> list[str]:
    """The element types of what is loaded."""
    dtype = data["dtype"]
    return [dtype["a"], *([] if data["stream"]["y"] == "none" else [dtype["b"] or dtype["a"]])]


def fill_stream_threads(data: dict[str, Any]) -> None:
    """Types, tile, cluster and roles of a stream kernel that TMA does not feed."""
    tile, alignment = data["tile"], data["layout"]["alignment"]
    producer = str(data["pipeline"]["mainloop"]["producer"])
    if tile["n"] is None:
        # A lane's part of a row is 16 bytes of the widest type, in vectors as wide as rows are
        # aligned. One such vector would be a tile with a quarter of the columns and four times the
        # rows: each row two addresses more, and a sector of 32 bytes more, as none is aligned.
        out = data["dtype"]["out"] or data["dtype"]["a"]
        widest = max(DTYPE[word].bits for word in (*loaded_types(data), out))
        tile["n"] = WARP * VECTOR_BYTES * 8 // widest
    if tile["m"] is None:
        layout, warpgroups = data["layout"], data["role"]["consumer"]["warpgroups"]
        warps = loading_warps(producer, alignment, layout["gather"])
        tile["m"] = rows_for(TILE_M, warpgroups, warps)
    stream = data["stream"]
    narrow = stream["blocks_per_sm"] == "auto" and alignment < VECTOR_BYTES
    if stream["blocks_per_sm"] == "auto" and (producer == "thread" or data["layout"]["gather"]):
        stream["blocks_per_sm"] = WAITING_BLOCKS_PER_SM
    fill_stream(data)
    if narrow:
        stream["blocks_per_sm"] = narrow_blocks(KernelDescription.model_validate(data))


def narrow_blocks(description: KernelDescription) -> int:
    """The blocks on an SM for rows that are not aligned to 16 bytes: fewer where they do not fit,
    for two inputs, many warps or a ring of given depth."""

    def fit(blocks: int) -> bool:
        stream = description.stream.model_copy(update={"blocks_per_sm": blocks})
        return fits(description.model_copy(update={"stream": stream}))

    return next(filter(fit, range(NARROW_BLOCKS_PER_SM, 1, -1)), 1)


def thread_sizes(description: KernelDescription) -> ThreadSizes | None:
    """The sizes of a description with its defaults filled in; None where it has none to use."""
    stream, warps = stream_sizes(description), producer_warps_of(description)
    rows, columns = description.tile.m or 0, description.tile.n or 0
    vector = lane_vector(description, columns)
    if stream is None or vector is None or rows % warps:
        return None
    return ThreadSizes(stream, warps, rows // warps, vector, columns // (WARP * vector))


def lane_vector(description: KernelDescription, columns: int) -> int | None:
    """The most elements that a lane can access at once where a tile has so many columns.

    As many bytes of each input as rows are aligned to, at most 16 of the widest type; with cp.async
    4, 8 or 16 of each input. None where no number is right.
    """
    sizes = [DTYPE[word].bytes for word in loaded_types(description.model_dump())]
    widest = max(*sizes, DTYPE[str(description.dtype.out)].bytes)
    copies = description.pipeline["mainloop"].producer == "cp_async"
    right = (
        vector
        for vector in (8, 4, 2, 1)
        if columns % (WARP * vector) == 0
        and vector * max(sizes) <= description.layout.alignment
        and vector * widest <= VECTOR_BYTES
        and (not copies or all(vector * size in CP_ASYNC_BYTES for size in sizes))
    )
    return next(right, None)


def copy_bytes(description: KernelDescription) -> dict[str, int]:
    """Bytes of a lane's vector, for each type that is loaded: what one cp.async carries."""
    vector = lane_vector(description, description.tile.n or 0) or 0
    words = loaded_types(description.model_dump())
    return {word: vector * DTYPE[word].bytes for word in words}
