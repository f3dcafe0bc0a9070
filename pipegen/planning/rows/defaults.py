# SPDX-License-Identifier: Apache-2.0
"""Defaults of the Pallas kernels `stream` and `reduce`, in place on a description's data."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import TMA_BOX_MAX, VECTOR_BYTES, WARP
from pipegen.planning.rows.sizes import fits
from pipegen.vocabulary import DTYPE

# The best of those tried on an H200, 32768 x 8192 bf16.
STREAM_ROWS = 32  # of a warpgroup: 64 elements a thread
EMIT_BLOCKS_PER_SM = 2  # one computes while another waits
WARPGROUPS = 2
MOST_WARPGROUPS = 3  # of consumers: a block has four, and one loads
LONGEST_ROW = 8192
# Elements of a tile for each warpgroup of a reduction: 64 a thread, all in registers at once.
REDUCE_ELEMENTS = 8192


def fill_common(data: dict[str, Any], blocks: dict[str, Any]) -> None:
    """Types, cluster, roles and blocks, which both ops have."""
    dtype, role, specialized = data["dtype"], data["role"], is_specialized(data)
    dtype["b"] = dtype["b"] or dtype["a"]
    dtype["out"] = dtype["out"] or dtype["a"]
    if dtype["promote_every"] == "auto":
        dtype["promote_every"] = 0
    if data["cluster"]["shape"] is None:
        data["cluster"]["shape"] = (1, 1)
    if role["consumer"]["warpgroups"] is None:
        alone = not specialized or data["pipeline"]["epilogue"]["out_specs"]
        role["consumer"]["warpgroups"] = 1 if alone else WARPGROUPS
    if blocks["blocks_per_sm"] == "auto":
        # A block with a memory warpgroup is given all registers of an SM.
        blocks["blocks_per_sm"] = 1 if specialized else EMIT_BLOCKS_PER_SM


def is_specialized(data: dict[str, Any]) -> bool:
    """Whether a warpgroup of its own loads."""
    return bool(data["kernel"]["style"] == "warp-specialized")


def fill_stream_pallas(data: dict[str, Any]) -> None:
    """A stream kernel: tiles of 64 elements a thread, 16 bytes of a row for each lane."""
    dtype, tile, stream = data["dtype"], data["tile"], data["stream"]
    fill_common(data, stream)
    if tile["m"] is None:
        tile["m"] = STREAM_ROWS * possible_warpgroups(data)
    if tile["n"] is None:
        types = [dtype["a"], dtype["out"], *([] if stream["y"] == "none" else [dtype["b"]])]
        widest = max(DTYPE[word].bits for word in types)
        tile["n"] = min(TMA_BOX_MAX, WARP * VECTOR_BYTES * 8 // widest)


def fill_reduce_pallas(data: dict[str, Any]) -> None:
    """A reduction: rows of up to LONGEST_ROW columns, as many as fill the registers well."""
    tile, reduce, role = data["tile"], data["reduce"], data["role"]
    specialized = is_specialized(data)
    if tile["n"] is None:
        tile["n"] = LONGEST_ROW
    rows = rows_for(tile["n"])
    if specialized and (rows == 1 or (rows < 4 and reduce["body"] == "rmsnorm")):
        rows = rows_for(tile["n"] // 2)  # two rows at once hide the latency of their sums
    if role["consumer"]["warpgroups"] is None and specialized and rows < 4:
        role["consumer"]["warpgroups"] = 1  # the warps of a row reduce through one scratch (PG282)
    given = reduce["blocks_per_sm"] != "auto"
    fill_common(data, reduce)
    if tile["m"] is None:
        tile["m"] = rows * possible_warpgroups(data)
    # Of types that have no whole bytes PG210 speaks.
    whole = all(DTYPE[data["dtype"][name]].bytes for name in ("a", "b", "out"))
    if not (given or specialized or not whole) and not fits(KernelDescription.model_validate(data)):
        reduce["blocks_per_sm"] = 1


def possible_warpgroups(data: dict[str, Any]) -> int:
    """The consumer warpgroups, or as many as a block can have: PG281 refuses others."""
    given: int = data["role"]["consumer"]["warpgroups"]
    return min(max(1, given), MOST_WARPGROUPS)


def rows_for(columns: int) -> int:
    """Rows of a warpgroup: 1, 2, or the same number for each of its warps."""
    rows = max(1, REDUCE_ELEMENTS // max(1, columns))
    return min(rows, 2) if rows < 4 else rows // 4 * 4
