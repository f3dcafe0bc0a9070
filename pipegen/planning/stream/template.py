# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/stream_tma.py.j2 puts into its text, beyond the plan's numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import VECTOR_BYTES
from pipegen.planning.blocks import tiles_asked
from pipegen.planning.stream.sizes import StreamSizes
from pipegen.vocabulary import DTYPE

ARCHITECTURE = {"sm_90a": ("Hopper", "an H100 or H200", 9), "sm_100a": ("Blackwell", "a B200", 10)}
PART_OF_Y = {2: "half", 4: "a quarter", 8: "an eighth"}
BANNER_END = 91
# What `max_blocks` of a persistent kernel returns, and that of one with short blocks.
AT_MOST = "CTAs that run at once. More would wait for a first one to end: a second, short wave."
AT_LEAST = "The least CTAs that the GPU runs at once: with fewer, SMs would be without one."


def template_values(description: KernelDescription, sizes: StreamSizes) -> dict[str, Any]:
    """The template's fields for a description with its defaults filled in."""
    kernel, y, mainloop = description.kernel, description.stream.y, description.pipeline["mainloop"]
    x_type, y_type, out_type = (
        DTYPE[str(word)]
        for word in (description.dtype.a, description.dtype.b, description.dtype.out)
    )
    architecture, gpus, capability_major = ARCHITECTURE[kernel.arch]
    cluster_m, _ = description.cluster.shape or (1, 1)
    producers = description.role["producer"].warps
    stores = sizes.buffers > 0
    participants = kernel.style == "participants"
    token = mainloop.try_ahead
    full = f"1 arrive + {sizes.stage_bytes} B"
    if producers == 2:
        full = f"2 arrives + 2 * {sizes.x_bytes} B"
    out_align = VECTOR_BYTES // out_type.bytes
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": capability_major,
        "x": x_type,
        "y": y_type,
        "out": out_type,
        "loaded_types": x_type.name if y == "none" else f"{x_type.name}, {y_type.name}",
        "x_align": VECTOR_BYTES // x_type.bytes,
        "y_align": VECTOR_BYTES // y_type.bytes,
        "out_align": out_align,
        "tolerance": "1e-5" if out_type.name == "f32" else "1e-2",
        "cluster_m": cluster_m,
        "part_of_y": PART_OF_Y.get(cluster_m, ""),
        "consumer_warps": sizes.warps,
        "last_consumer_warp": sizes.warps - 1,
        "first_producer_warp": sizes.warps,
        "last_producer_warp": sizes.warps + producers - 1,
        "warp_rows": "1 row" if sizes.warp_m == 1 else f"{sizes.warp_m} rows",
        "tx_word": tx_word(y, producers),
        "arming_lanes": "one lane" if producers == 1 else "one lane of each",
        "smem_limit": smem_limit(sizes),
        "compiled_only": kernel.arch == "sm_100a",
        "full_barrier": full,
        "full_title": "full barrier".ljust(len(full)),
        "full_none": "none".ljust(len(full)),
        "producers": producers_of(y, producers, cluster_m, participants),
        "prefetched": [t["name"] for t in tensors_of(y)[:-1]] if mainloop.defer_sync else [],
        "prefetch_warp": "PRODUCER_WARP" if producers == 1 else "X_WARP",
        "empty_token": "empty" if token else "",
        "full_token": "full" if token else "",
        "acquire_arguments": "stage, empty" if token else "stage",
        "wait_arguments": "stage, full" if token else "stage",
        "tensors": tensors_of(y),
        "numbers_packed": 3 + 2 * len(tensors_of(y)),
        "kernel_arguments": ", ".join(
            [
                "tma_x",
                *(["tma_y"] if y != "none" else []),
                "tma_out" if stores else "out",
            ]
        ),
        # TMA stores whole 16 bytes; threads store any N.
        "check_sizes": (
            f"(TILE_M, TILE_N), (1, {out_align}), (1001, 1000), (333, 4104), (8192, 8192)"
            if stores
            else "(TILE_M, TILE_N), (1, 1), (1001, 1001), (333, 4099), (8192, 8192)"
        ),
        **grid_words(description, sizes.stages),
        "participants": participants,
        "explicit_state": not participants,
        "plain_store": not stores,
        "tma_store": stores,
        "alignment": VECTOR_BYTES,
        "stride_bytes": f" ({VECTOR_BYTES} bytes)",
        "narrow_loads": False,
        "gather": False,
        "alone": y == "none",
        "y_matrix": y == "matrix",
        "y_row": y == "row",
        "has_y": y != "none",
        "clustered": cluster_m > 1,
        "unclustered": cluster_m == 1,
        "cloned": producers == 2,
        "single": producers == 1,
        "tried": token,
        "deferred": mainloop.defer_sync,
    }


def grid_words(description: KernelDescription, stages: int) -> dict[str, Any]:
    """How the text says how many blocks there are, or clusters of them, and what one of them does
    with its tiles and `stages`."""
    each = tiles_asked(description)
    blocks = "blocks" if description.cluster.shape in (None, (1, 1)) else "clusters"
    loads = "one after the other, and loads the next ones while it computes this one"
    ahead = f"t0, t1, ...: at most {stages} stages ahead of the slowest consumer warp"
    # Threads load one tile at a time, into registers.
    if each and each <= stages and description.pipeline["mainloop"].producer != "thread":
        loads = "loads them at once, and computes them as they land" if each > 1 else "and no more"
        ahead = "t0, t1, ...: each has a stage of its own" if each > 1 else "t0"
    return {
        "few": each is not None,
        "tiles_per_block": each,
        "way": "Warp-specialized" if each else "Persistent and warp-specialized",
        "tiles_taken": tiles_word(each),
        "loads_tiles": loads,
        "loads_ahead": ahead,
        "most": f"max_{blocks}",
        "at_once": AT_LEAST if each else AT_MOST,
        "started": "blocks" if each else f"max_{blocks}",
    }


def tiles_word(each: int | None) -> str:
    """The tiles of a CTA, in words."""
    if each is None:
        return "tiles"
    return "one tile" if each == 1 else f"at most {each} tiles"


def smem_limit(sizes: StreamSizes) -> str:
    """What a block may use of an SM's 228 KiB, of which each block's first KiB is reserved."""
    parts = "227 KiB" if sizes.blocks == 1 else f"228 KiB / {sizes.blocks} blocks - 1 KiB"
    return f"{sizes.capacity} B of SMEM a block: {parts}"


def tx_word(y: str, producers: int) -> str:
    """What tx_count is the bytes of."""
    if producers == 2:
        return "the tile that one producer warp loads"
    return "a tile of x" if y == "none" else "a tile of x and one of y"


def producers_of(
    y: str, producers: int, cluster_m: int, participants: bool
) -> list[dict[str, Any]]:
    """The warps that load, each with its operands; the first one owns the tail."""
    row = y == "row"
    x_operand = {"name": "x", "upper": "X", "tile": "(TILE_M, TILE_N)", "place": "m, n"}
    y_operand = {
        "name": "y",
        "upper": "Y",
        "tile": "(1, TILE_N)" if row else "(TILE_M, TILE_N)",
        "place": "0, n" if row else "m, n",
    }

    def warp(
        keyword: str,
        name: str,
        title: str,
        handle: str,
        operands: list[dict[str, str]],
        owner: bool,
    ) -> dict[str, Any]:
        shared = [y_operand] if cluster_m > 1 else []
        tail = f"{handle}.tail()" if participants else "mainloop.producer_tail(stage)"
        return {
            "keyword": keyword,
            "warp": name,
            "banner": f"# ---- {title} ".ljust(BANNER_END, "-"),
            "handle": handle,
            "plain": [operand for operand in operands if operand not in shared],
            "multicast": [operand for operand in operands if operand in shared],
            "tails": [tail] if owner else [],
        }

    if producers == 2:
        return [
            warp("if", "X_WARP", "Producer of x", "x_producer", [x_operand], True),
            warp("elif", "Y_WARP", "Producer of y", "y_producer", [y_operand], False),
        ]
    operands = [x_operand] if y == "none" else [x_operand, y_operand]
    return [warp("if", "PRODUCER_WARP", "Producer", "mainloop_producer", operands, True)]


def tensors_of(y: str) -> list[dict[str, Any]]:
    """The tensors of a launch, with the places of their numbers in what `stream` packs.

    rows, columns and the most blocks come first, then all addresses, then all row strides.
    """
    names = ["x", "out"] if y == "none" else ["x", "y", "out"]
    return [
        {
            "name": name,
            "upper": name.upper(),
            "rows": "1" if name == "y" and y == "row" else "rows",
            "address": 3 + index,
            "row": 3 + len(names) + index,
        }
        for index, name in enumerate(names)
    ]
