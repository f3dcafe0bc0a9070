# SPDX-License-Identifier: Apache-2.0
"""The words that the Pallas reduce templates put into their text, beyond the plan's numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import WARP
from pipegen.planning.pallas_check_limits import row_limits
from pipegen.planning.rows.sizes import RowSizes, element_types, has_out_specs, row_step
from pipegen.planning.rows.template import common_values, full_barrier
from pipegen.vocabulary import DTYPE

TITLE = {"rmsnorm": "RMS norm", "softmax": "Softmax"}
FORMULA = {
    "rmsnorm": "out = x / sqrt(mean(x * x) + 1e-6) * weight,",
    "softmax": "out = exp(x - max(x)) / sum(exp(x - max(x))),",
}


def reduce_values(description: KernelDescription, sizes: RowSizes) -> dict[str, Any]:
    """The fields of the reduce templates for a description with its defaults filled in."""
    body, tile, types = description.reduce.body, description.tile, element_types(description)
    out_specs, grouped, rmsnorm = (
        has_out_specs(description),
        sizes.warpgroups > 1,
        body != "softmax",
    )
    m, n = tile.m or 0, tile.n or 0
    operands = [{"name": "x", "upper": "X", "sizes": "(m, n)"}]
    if rmsnorm:
        operands.append({"name": "weight", "upper": "WEIGHT", "sizes": "(n,)"})
    names = [each["name"] for each in operands]
    held = [*([] if out_specs else ["out_smem"])]
    held += ["weight_smem", "weight_full"] if rmsnorm else []
    stored = ["out"] if out_specs else []
    return {
        **common_values(description, sizes),
        **full_barrier(1, sizes.stage_bytes),
        **layout_words(sizes),
        **row_limits(DTYPE[types["out"]]),
        "weight": DTYPE[str(description.dtype.b)],
        "loaded_types": ", ".join(DTYPE[types[key]].name for key in ("a", "b") if key in types),
        "body_title": TITLE[body],
        "body_formula": FORMULA[body],
        "operands": operands,
        "operand_names": ", ".join(names),
        "gmem_arguments": ", ".join([f"{name}_gmem" for name in (*names, "out")] + held),
        "smem_arguments": ", ".join(
            [f"{name}_smem" for name in ("x", *stored)]
            + (["carry"] if rmsnorm and description.kernel.style == "warp-specialized" else [])
        ),
        "pipeline_arguments": ", ".join(f"{name}_gmem" for name in ("x", *stored)),
        "rows_word": "a row" if m == 1 else f"{m} rows",
        "blocks_word": (
            f"{sizes.blocks} CTAs share an SM." if sizes.blocks > 1 else "One CTA has an SM."
        ),
        "consumers_word": consumers_word(sizes),
        "buffers_comment": "of a warpgroup: one is written while another is stored",
        "buffers_shape": (
            "(CONSUMER_WARPGROUPS, EPI_STAGES, WG_M, tile_columns(n))"
            if grouped
            else "(EPI_STAGES, TILE_M, tile_columns(n))"
        ),
        "buffer_index": (
            "warpgroup, lax.rem(index[0], jnp.int32(EPI_STAGES))"
            if grouped
            else "lax.rem(index[0], jnp.int32(EPI_STAGES))"
        ),
        "read": "part" if grouped else "...",
        "out_row": "m * TILE_M + warpgroup * WG_M" if grouped else "m * TILE_M",
        "out_rows": "WG_M" if grouped else "TILE_M",
        "main_function": "reduce",
        "compile_size": f"(8192, {n})",
        # Tails in M and N, several tiles for each of two blocks.
        "interpret_size": f"({4 * m + 3}, {n - row_step(description, sizes) // 4 - 3})",
        "tails": f"(1, 1), (TILE_M, {n}), (1001, {n - 1}), (333, {n * 5 // 8 + 8}), (8192, {n})",
        "rmsnorm": rmsnorm,
        "softmax": not rmsnorm,
        "scratch": bool(held),
        "weight_of_one": rmsnorm and not grouped,
        "weight_of_many": rmsnorm and grouped,
    }


def layout_words(sizes: RowSizes) -> dict[str, Any]:
    """How a warpgroup's registers hold its rows: the warps of a row side by side."""
    vector, warps = sizes.vector, sizes.row_warps
    lanes = WARP * vector
    words = {
        1: (f"((4, {lanes}), ({vector},))", "(-3,)", "a warp has every fourth row,"),
        2: (f"((2, {2 * lanes}), ({lanes},), ({vector},))", "(-4, -3)", "two warps share a row,"),
        4: (f"((1, {4 * lanes}), ({lanes},), ({vector},))", "(-3,)", "four warps share a row,"),
    }
    tiles, warp_dims, comment = words[warps]
    return {
        "layout_tiles": tiles,
        "layout_warps": warp_dims,
        "layout_comment": f"{comment} and a lane reads VECTOR elements at once, so that\n"
        "# a warp reads and writes whole stretches of SMEM without bank conflicts.",
        "row_step": warps * lanes,
        # JAX's interpreter clips such a copy, and the GPU did not: the next row's first columns
        # were overwritten. No box reaches beyond a row that is padded to whole steps.
        "one_row": sizes.wg_m == 1,
        "padded_to": "ROW_STEP" if sizes.wg_m == 1 else "PIECE",
        "row_step_formula": f"{warps} * {WARP} * {vector}",
    }


def consumers_word(sizes: RowSizes) -> str:
    """What the consumers of a warp-specialized kernel do."""
    if sizes.warpgroups == 1:
        return "warpgroup 0: reduces the rows of a tile in f32; one thread issues the TMA stores"
    return (
        f"warpgroups 0 to {sizes.warpgroups - 1}: {sizes.wg_m} rows of a tile each; reduce them in "
        "f32, store by TMA"
    )
