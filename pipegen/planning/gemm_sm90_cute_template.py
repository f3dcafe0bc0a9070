# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/gemm_sm90.py.j2 puts into its text, beyond the plan's numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import MMA_K_BYTES
from pipegen.planning.smem_budget import SmemBudget
from pipegen.vocabulary import DTYPE

KIB = 1024  # bytes
FULL_BARRIER_WIDTH = 18  # of a column of the pipelines table
TMA_ALIGNMENT = 16  # bytes; addresses and strides (CUDA driver API, cuTensorMapEncodeTiled)


def swizzle(major: str, row_bytes: int) -> str:
    """The widest swizzle that divides a row of the contiguous dimension.

    `major` is K or MN. PTX ISA, "wgmma", matrix descriptors: 128, 64 and 32 byte swizzles, or none.
    """
    width = next(w for w in (128, 64, 32, 16) if row_bytes % w == 0)
    return f"{major}_INTER" if width == 16 else f"{major}_SW{width}"


def tolerance(description: KernelDescription) -> str:
    """The relative error that the module's own check allows: the output's, or short fp8 sums'."""
    dtype = description.dtype
    short_sums = DTYPE[dtype.a].bits == 8 and not dtype.promote_every
    return "1e-3" if dtype.out == "f32" and not short_sums else "1e-2"


def template_values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The template's fields for a description with its defaults filled in."""
    tile, dtype = description.tile, description.dtype
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    a_k, b_k = description.layout.a == "k", description.layout.b == "k"
    epi_m, epi_n = budget.epi_tile_mn
    warpgroups = description.role["consumer"].warpgroups or 1
    producers, mainloop = description.role["producer"].warps, description.pipeline["mainloop"]
    clustered = cluster_m * cluster_n > 1
    full = f"1 arrive + {budget.stage_bytes} B"
    if producers == 2:
        full = f"2 arrives + 2 * {budget.stage_bytes // 2} B"
    full = full.ljust(FULL_BARRIER_WIDTH)
    return {
        "a": a,
        "b": b,
        "out": out,
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        "mma_k": MMA_K_BYTES // a.bytes,
        "last_consumer_warp": 4 * (1 + warpgroups) - 1,
        "own_rows": own_rows(m, warpgroups),
        "full_barrier": full,
        "full_title": "full barrier".ljust(len(full)),
        "full_none": "none".ljust(len(full)),
        "counts": "clusters_m, clusters_n" if clustered else "tiles_m, tiles_n",
        "most": "max_clusters" if clustered else "max_ctas",
        "smem_limit": f"{budget.capacity} B of SMEM a block: {budget.capacity // KIB} KiB",
        "ahead": f"at most {budget.split.stages} stages ahead",
        "capability_major": 9,
        "static": True,
        "tolerance": tolerance(description),
        "epi_tile_m": epi_m,
        "epi_tile_n": epi_n,
        "epi_subtiles": budget.subtiles,
        "epi_subtiles_n": n // epi_n,
        "a_align": TMA_ALIGNMENT // a.bytes,
        "b_align": TMA_ALIGNMENT // b.bytes,
        "out_align": TMA_ALIGNMENT // out.bytes,
        "a_swizzle": swizzle("K", k * a.bytes) if a_k else swizzle("MN", m * a.bytes),
        "b_swizzle": swizzle("K", k * b.bytes) if b_k else swizzle("MN", n * b.bytes),
        "out_swizzle": swizzle("K", epi_n * out.bytes),
        **operand_words("a", "m", a_k),
        **operand_words("b", "n", b_k),
        "a_k_index": 2 if a_k else 1,
        "b_n_index": 1 if b_k else 2,
        "one_producer": producers == 1,
        "two_producers": producers == 2,
        "try_ahead": mainloop.try_ahead,
        "not_ahead": not mainloop.try_ahead,
        "defer_sync": mainloop.defer_sync,
        "participants": description.kernel.style == "participants",
        "explicit_state": description.kernel.style == "explicit-state",
        "a_multicast": cluster_n > 1,
        "b_multicast": cluster_m > 1,
        "clustered": clustered,
        "plain_load": cluster_m == 1 or cluster_n == 1,
        "fp8": a.bits == 8,
        "promoted": bool(dtype.promote_every),
        "direct": not dtype.promote_every,
        "promote_every": dtype.promote_every,
        "stmatrix": out.bits == 16,
        "a_as_mk": "a.double()" if a_k else "a.double().mT",
        "b_as_kn": "b.double().mT" if b_k else "b.double()",
    }


def own_rows(tile_m: int, warpgroups: int) -> str:
    """Which rows of a tile the wgmmas of a consumer warpgroup make."""
    if warpgroups == 1:
        return f"all four on the tile's {tile_m} rows"
    return f"each warpgroup on its {tile_m // warpgroups} rows"


def operand_words(operand: str, mode: str, k_major: bool) -> dict[str, str]:
    """How an operand is stored; `mode` is its other dimension, m or n."""
    rows, columns = (mode, "k") if k_major else ("k", mode)
    return {
        f"{operand}_rows": rows,
        f"{operand}_columns": columns,
        f"{operand}_shape": f"{rows.upper()}, {columns.upper()}",
        f"{operand}_stride": f"{operand}_row, 1" if k_major else f"1, {operand}_row",
        f"{operand}_order": "(0, 1, 2)" if k_major else "(1, 0, 2)",
        f"{operand}_major": "K" if k_major else "MN",
    }
