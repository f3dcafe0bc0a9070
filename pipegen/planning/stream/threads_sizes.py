# SPDX-License-Identifier: Apache-2.0
"""Stream kernels that threads or cp.async feed: defaults, and how the warps split a tile."""

from dataclasses import dataclass
from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import VECTOR_BYTES, WARP
from pipegen.planning.stream.defaults import TILE_M, fill_stream, rows_for
from pipegen.planning.stream.sizes import (
    StreamSizes,
    loading_warps,
    producer_warps_of,
    stream_sizes,
)
from pipegen.vocabulary import DTYPE

# Producers that wait for GMEM, for loads or for the index of a row, leave gaps that another block
# can fill. TMA stores of gathered rows reached 0.75 of a copy on an H200 with one block. With two,
# only a variant with fewer producers and other index code has been timed (0.94): time it again.
WAITING_BLOCKS_PER_SM = 2


@dataclass(frozen=True)
class ThreadSizes:
    """A `StreamSizes`, and the producers' part in it: `producer_m` rows of a tile for each of
    `producer_warps`, which load `vector` elements of a row for each lane."""

    stream: StreamSizes
    producer_warps: int
    producer_m: int


def loaded_types(data: dict[str, Any]) -> list[str]:
    """The element types of what is loaded."""
    dtype = data["dtype"]
    return [dtype["a"], *([] if data["stream"]["y"] == "none" else [dtype["b"] or dtype["a"]])]


def fill_stream_threads(data: dict[str, Any]) -> None:
    """Types, tile, cluster and roles of a stream kernel that TMA does not feed."""
    tile, alignment = data["tile"], data["layout"]["alignment"]
    producer = str(data["pipeline"]["mainloop"]["producer"])
    if tile["n"] is None:
        # A lane loads one vector of a row: as wide as the rows are aligned, for the widest input.
        loaded = max(DTYPE[word].bits for word in loaded_types(data))
        widest = max(loaded, DTYPE[data["dtype"]["out"] or data["dtype"]["a"]].bits)
        tile["n"] = WARP * max(1, min(alignment * 8 // loaded, VECTOR_BYTES * 8 // widest))
    if tile["m"] is None:
        layout, warpgroups = data["layout"], data["role"]["consumer"]["warpgroups"]
        warps = loading_warps(producer, layout["alignment"], layout["gather"])
        # Narrower rows, the same bytes.
        tile["m"] = rows_for(TILE_M * VECTOR_BYTES // alignment, warpgroups, warps)
    loads = producer == "thread"
    stream = data["stream"]
    if stream["blocks_per_sm"] == "auto" and (loads or data["layout"]["gather"]):
        stream["blocks_per_sm"] = WAITING_BLOCKS_PER_SM
    fill_stream(data)


def thread_sizes(description: KernelDescription) -> ThreadSizes | None:
    """The sizes of a description with its defaults filled in; None where it has none to use."""
    stream, warps = stream_sizes(description), producer_warps_of(description)
    rows = description.tile.m or 0
    return ThreadSizes(stream, warps, rows // warps) if stream and rows % warps == 0 else None


def copy_bytes(description: KernelDescription) -> dict[str, int]:
    """Bytes of a lane's vector, for each type that is loaded: what one cp.async carries."""
    vector = (description.tile.n or 0) // WARP
    words = loaded_types(description.model_dump())
    return {word: vector * DTYPE[word].bytes for word in words}
