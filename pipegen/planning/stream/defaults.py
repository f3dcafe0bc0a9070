# SPDX-License-Identifier: Apache-2.0
"""Defaults of the stream kernels that TMA feeds, in place on a description's data."""

import math
from typing import Any

from pipegen.hardware import TMA_BOX_MAX, VECTOR_BYTES, WARP
from pipegen.vocabulary import DTYPE

# The best of twenty choices on an H200, 32768 x 8192 bf16; they lay within 4 % of each other.
TILE_M = 32
CONSUMER_WARPGROUPS = 2
PLAIN_BLOCKS_PER_SM = 2
TMA_STORE_BLOCKS_PER_SM = 1  # the store buffers leave a half of the SMEM too few stages


def rows_for(rows: int, warpgroups: int | None, producer_warps: int = 1) -> int:
    """The rows nearest to `rows` of which each warp has the same number (the fewer of two)."""
    step = math.lcm(4 * min(max(1, warpgroups or CONSUMER_WARPGROUPS), 4), producer_warps)
    return max(1, -(-(2 * rows - step) // (2 * step))) * step


def fill_stream(data: dict[str, Any]) -> None:
    """Types, tile, cluster and roles of a stream kernel."""
    dtype, tile, stream = data["dtype"], data["tile"], data["stream"]
    dtype["b"] = dtype["b"] or dtype["a"]
    dtype["out"] = dtype["out"] or dtype["a"]
    if dtype["promote_every"] == "auto":
        dtype["promote_every"] = 0
    if tile["m"] is None:
        tile["m"] = rows_for(TILE_M, data["role"]["consumer"]["warpgroups"])
    if tile["n"] is None:
        types = [dtype["a"], dtype["out"], *([] if stream["y"] == "none" else [dtype["b"]])]
        # The widest type gets accesses of 16 bytes, and the others no more.
        widest = max(DTYPE[word].bits for word in types)
        tile["n"] = min(TMA_BOX_MAX, WARP * VECTOR_BYTES * 8 // widest)
    if stream["blocks_per_sm"] == "auto":
        stored = "epilogue" in data["pipeline"]
        stream["blocks_per_sm"] = TMA_STORE_BLOCKS_PER_SM if stored else PLAIN_BLOCKS_PER_SM
    if data["cluster"]["shape"] is None:
        data["cluster"]["shape"] = (1, 1)
    if data["role"]["consumer"]["warpgroups"] is None:
        data["role"]["consumer"]["warpgroups"] = CONSUMER_WARPGROUPS
