# SPDX-License-Identifier: Apache-2.0
"""The words that the Pallas stream and reduce templates put into their text, beyond the numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE
from pipegen.planning.formulas import may_read
from pipegen.planning.pallas_check_limits import stream_limits
from pipegen.planning.rows.sizes import (
    PIECE_BYTES,
    RowSizes,
    element_types,
    has_out_specs,
    is_warp_specialized,
)
from pipegen.planning.stream.template import ARCHITECTURE
from pipegen.vocabulary import DTYPE

# What XLA asks a GPU about itself, beside what both architectures have alike.
TARGETS: dict[str, dict[str, Any]] = {
    "sm_90a": {
        "name": "h200",
        "article": "an H200",
        "major": 9,
        "clock": 1.98,
        "memory_bandwidth": 4800000000000,
        "memory_bytes": 150000000000,
        "l2_bytes": 62914560,
    },
    "sm_100a": {
        "name": "b200",
        "article": "a B200",
        "major": 10,
        "clock": 1.97,
        "memory_bandwidth": 8000000000000,
        "memory_bytes": 192000000000,
        "l2_bytes": 132644864,
    },
}


def common_values(description: KernelDescription, sizes: RowSizes) -> dict[str, Any]:
    """What the templates of both ops read."""
    kernel, types = description.kernel, element_types(description)
    architecture, gpus, _ = ARCHITECTURE[kernel.arch]
    specialized, out_specs = is_warp_specialized(description), has_out_specs(description)
    warpgroups = sizes.warpgroups
    named = {"x": types["a"], "out": types["out"]}
    pieces = {f"{name}_piece": PIECE_BYTES // DTYPE[word].bytes for name, word in named.items()}
    return {
        "architecture": architecture,
        "gpus": gpus,
        "target": TARGETS[kernel.arch] | {"core_count": HARDWARE[kernel.arch].sm_count},
        "x": DTYPE[types["a"]],
        "out": DTYPE[types["out"]],
        **pieces,
        "empty_barrier": f"{128 * warpgroups} arrives",
        "interpreted": (
            "SKIP: jax's interpreter does not know the predicated stores of out_specs"
            if out_specs
            else "the same on a CPU, with race detection (needs jax 0.11)"
        ),
        "blocks_comment": (
            "the memory warpgroup's setmaxnreg needs all registers of an SM"
            if specialized
            else "they share an SM's SMEM: one computes while another waits"
        ),
        "thread_count": "CONSUMER_WARPGROUPS + 1" if warpgroups > 1 else "2",
        "consumers_argument": "CONSUMER_WARPGROUPS" if warpgroups > 1 else "1",
        "may_read": may_read(sizes.buffers, "a warpgroup has" if specialized else "there are"),
        "compiled_only": kernel.arch == "sm_100a",
        "by_hand": not out_specs,
        "out_specs": out_specs,
        "specialized": specialized,
        "grouped": warpgroups > 1,
    }


def full_barrier(copies: int, stage_bytes: int) -> dict[str, str]:
    """The columns of a docstring's table that depend on the width of its full barrier."""
    full = f"{128 * copies} arrives + {stage_bytes} B"
    return {
        "full_barrier": full,
        "full_title": "full barrier".ljust(len(full)),
        "full_none": "none".ljust(len(full)),
    }


def stream_values(description: KernelDescription, sizes: RowSizes) -> dict[str, Any]:
    """The fields of the stream templates for a description with its defaults filled in."""
    y, tile, types = description.stream.y, description.tile, element_types(description)
    specialized, out_specs = is_warp_specialized(description), has_out_specs(description)
    grouped = sizes.warpgroups > 1
    has_y, row = y != "none", y == "row"
    y_type = DTYPE[str(description.dtype.b)]
    operands = [operand("x", "part" if grouped else "...", row=False)]
    if has_y:
        operands.append(operand("y", "part" if grouped and not row else "...", row=row))
    names = [each["name"] for each in operands]
    m, n = tile.m or 0, tile.n or 0
    return {
        **common_values(description, sizes),
        **full_barrier(len(operands), sizes.stage_bytes),
        **stream_limits(types["a"], DTYPE[types["out"]], alone=not has_y),
        "y": y_type,
        "y_piece": PIECE_BYTES // y_type.bytes,
        "loaded_types": ", ".join(DTYPE[types[key]].name for key in ("a", "b") if key in types),
        "operands": operands,
        "operand_names": ", ".join(names),
        "op_arguments": ", ".join(names),
        "gmem_arguments": ", ".join(
            [f"{name}_gmem" for name in (*names, "out")] + ([] if out_specs else ["out_smem"])
        ),
        "smem_arguments": ", ".join(
            f"{name}_smem" for name in (*names, *(["out"] if out_specs else []))
        ),
        "pipeline_arguments": ", ".join(
            f"{name}_gmem" for name in (*names, *(["out"] if out_specs else []))
        ),
        "copies_word": "a tile of x and one of y" if has_y else "a tile of x",
        "consumers_word": consumers_word(sizes),
        "blocks_word": (
            f"{sizes.blocks} CTAs share an SM." if sizes.blocks > 1 else "One CTA has an SM."
        ),
        "buffers_comment": "of a warpgroup: one is written while another is stored",
        "buffers_shape": (
            "(CONSUMER_WARPGROUPS, EPI_STAGES, WG_M, TILE_N)"
            if grouped
            else "(EPI_STAGES, TILE_M, TILE_N)"
        ),
        "buffer_index": (
            "warpgroup, lax.rem(index[0], jnp.int32(EPI_STAGES))"
            if grouped
            else "lax.rem(index[0], jnp.int32(EPI_STAGES))"
        ),
        "out_row": "m * TILE_M + warpgroup * WG_M" if grouped else "m * TILE_M",
        "out_rows": "WG_M" if grouped else "TILE_M",
        "y_shape": "x.shape[1:]" if row else "x.shape",
        "y_shape_word": "(N,)" if row else "(M, N)",
        "y_sizes": "n" if row else "(m, n)",
        "main_function": "stream",
        "compile_size": "(8192, 8192)",
        # Tails in M and N, several tiles for each of two blocks.
        "interpret_size": f"({2 * m + 5}, {2 * n + PIECE_BYTES // 4 + 1})",
        "tails": "(1, 1), (TILE_M, TILE_N), (1001, 1001), (333, 4104), (8192, 8192)",
        "alone": not has_y,
        "has_y": has_y,
        "y_matrix": y == "matrix",
        "y_row": row,
        "warp_specialized": specialized,
    }


def operand(name: str, read: str, *, row: bool) -> dict[str, str]:
    """What a template writes about one input of a stream kernel."""
    return {
        "name": name,
        "upper": name.upper(),
        "read": read,
        "layout": "LAYOUT.reduce(0)" if row else "LAYOUT",
        "block": "(TILE_N,)" if row else "(TILE_M, TILE_N)",
        "index": "lambda step: tile_coord(step)[1:]" if row else "tile_coord",
        "transforms": "" if row else f", transforms={name.upper()}_SMEM",
        "sizes": "(n,)" if row else "(m, n)",
    }


def consumers_word(sizes: RowSizes) -> str:
    """What the consumers of a warp-specialized kernel do."""
    if sizes.warpgroups == 1:
        return "warpgroup 0: reads a tile, applies f in f32; one thread issues the TMA stores"
    return (
        f"warpgroups 0 to {sizes.warpgroups - 1}: {sizes.wg_m} rows of a tile each; apply f in "
        "f32, and store by TMA"
    )
