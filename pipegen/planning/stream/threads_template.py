# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/stream_cp_async.py.j2 and stream_thread.py.j2 put into their text,
beyond the plan's numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import VECTOR_BYTES, WARP
from pipegen.planning.stream.template import ARCHITECTURE, grid_words, smem_limit
from pipegen.planning.stream.threads_sizes import ThreadSizes, copy_bytes
from pipegen.vocabulary import DTYPE


def template_values(description: KernelDescription, sizes: ThreadSizes) -> dict[str, Any]:
    """The templates' fields for a description with its defaults filled in."""
    kernel, layout, stream = description.kernel, description.layout, sizes.stream
    x_type, y_type, out_type = (
        DTYPE[str(word)]
        for word in (description.dtype.a, description.dtype.b, description.dtype.out)
    )
    architecture, gpus, capability_major = ARCHITECTURE[kernel.arch]
    has_y, gather, stores = description.stream.y == "matrix", layout.gather, stream.buffers > 0
    participants = kernel.style == "participants"
    full = f"{WARP * sizes.producer_warps} arrives".ljust(len("full barrier"))
    copies = sorted(set(copy_bytes(description).values()))
    width = " or ".join(map(str, copies))
    # TMA stores from and to multiples of 16 bytes, whatever the loads need.
    narrow = stores and layout.alignment < VECTOR_BYTES
    out_alignment = VECTOR_BYTES if stores else layout.alignment
    out_align = out_alignment // out_type.bytes
    tensors = tensors_of(has_y, gather, layout.alignment, out_alignment)
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": capability_major,
        "x": x_type,
        "y": y_type,
        "out": out_type,
        "loaded_types": f"{x_type.name}, {y_type.name}" if has_y else x_type.name,
        "alignment": layout.alignment,
        "but_out": f", of out {VECTOR_BYTES}" if narrow else "",
        "stride_bytes": "" if narrow else f" ({layout.alignment} bytes)",
        "x_align": layout.alignment // x_type.bytes,
        "y_align": layout.alignment // y_type.bytes,
        "out_align": out_align,
        "tolerance": "1e-5" if out_type.name == "f32" else "1e-2",
        "consumer_warps": stream.warps,
        "last_consumer_warp": stream.warps - 1,
        "producer_warps": sizes.producer_warps,
        "first_producer_warp": stream.warps,
        "last_producer_warp": stream.warps + sizes.producer_warps - 1,
        "warp_rows": rows(stream.warp_m),
        "producer_rows": rows(sizes.producer_m),
        "smem_limit": smem_limit(stream),
        "compiled_only": kernel.arch == "sm_100a",
        "full_barrier": full,
        "full_title": "full barrier",
        "full_none": "none".ljust(len(full)),
        "copies": f"{width} B",
        "loads": f"{width} B",
        # .cg goes past L1 and takes 16 bytes only; .ca takes 4, 8 and 16 (PTX, "cp.async").
        "cache_modifier": "cg" if copies == [VECTOR_BYTES] else "ca",
        "tensors": tensors,
        "numbers_packed": 9 if gather else 3 + 2 * len(tensors),
        "kernel_arguments": ", ".join(
            [
                "x",
                *(["y"] if has_y else []),
                *(["index"] if gather else []),
                "tma_out" if stores else "out",
            ]
        ),
        # TMA stores whole 16 bytes; threads store any N.
        "check_sizes": (
            f"(TILE_M, TILE_N), (1, {out_align}), (1001, 1000), (333, 4104), (8192, 8192)"
            if stores
            else "(TILE_M, TILE_N), (1, 1), (1001, 1001), (333, 4099), (8192, 8192)"
        ),
        **grid_words(description, stream.stages),
        "participants": participants,
        "explicit_state": not participants,
        "plain_store": not stores,
        "tma_store": stores,
        "gather": gather,
        "alone": not has_y and not gather,
        "y_matrix": has_y,
        "y_row": False,
        "has_y": has_y,
        "clustered": False,
        "narrow_loads": narrow,
    }


def rows(count: int) -> str:
    """A number of rows."""
    return "1 row" if count == 1 else f"{count} rows"


def tensors_of(
    has_y: bool, gather: bool, alignment: int, out_alignment: int
) -> list[dict[str, Any]]:
    """The matrices of a launch, with the places of their numbers in what `stream` packs.

    rows, columns and the most blocks come first, then all addresses, the index's last; then the row
    strides, and the rows of x where an index names them.
    """
    names = ["x", "y", "out"] if has_y else ["x", "out"]
    addresses = len(names) + gather
    return [
        {
            "name": name,
            "upper": name.upper(),
            "rows": "cutlass.Int32(numbers[8])" if gather and name == "x" else "rows",
            "alignment": out_alignment if name == "out" else alignment,
            "address": 3 + index,
            "row": 3 + addresses + index,
        }
        for index, name in enumerate(names)
    ]
