# SPDX-License-Identifier: Apache-2.0
"""The words that the Pallas GEMM templates put into their text, beyond the plan's numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.planning.formulas import may_read
from pipegen.planning.pallas_check_limits import gemm_limits
from pipegen.planning.pallas_check_words import poison_words, random_words, tolerance_words
from pipegen.planning.release import release_of
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import consumer_warpgroups, split_of, warpgroup_tile
from pipegen.vocabulary import DTYPE


def widest_swizzle(*rows_bytes: int) -> int:
    """The widest swizzle (bytes) that divides every row of the contiguous dimension.

    PTX ISA, "wgmma", matrix descriptors; `plgpu.SwizzleTransform` takes the same widths.
    """
    return next(width for width in (128, 64, 32, 16) if all(row % width == 0 for row in rows_bytes))


def template_values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The templates' fields for a description with its defaults filled in."""
    tile, dtype = description.tile, description.dtype
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    acc = DTYPE[str(dtype.acc)]
    a_k, b_k = description.layout.a == "k", description.layout.b == "k"
    rows, columns = warpgroup_tile(description)
    epi_m, epi_n = budget.epi_tile_mn
    in_flight, kept = release_of(description)
    split, warpgroups = split_of(description), consumer_warpgroups(description)
    swizzle = widest_swizzle((k if a_k else rows) * a.bytes, (k if b_k else columns) * b.bytes)
    out_swizzle = widest_swizzle(epi_n * out.bytes)
    clustered = cluster_m * cluster_n > 1
    return {
        "a": a,
        "b": b,
        "out": out,
        "acc": acc,
        "acc_zero": "0" if acc.integer else "0.0",
        "tf32": a.name == "f32",
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        # Clusters that a persistent grid launches: all that the SMs hold at once.
        "cluster_grid": "sm_count // 2",
        "wg_tile_m": rows,
        "wg_tile_n": columns,
        "epi_tile_m": epi_m,
        "epi_tile_n": epi_n,
        "epi_subtiles": budget.subtiles,
        "epi_subtiles_n": columns // epi_n,
        "in_flight": in_flight,
        "delay_release": kept,
        "release_distance": f"{in_flight} <= {kept} < {budget.split.stages}",
        "loads_of_steps": _steps(kept, ("kS", "k(S+1)", "k(S+2)")),
        "done_of_steps": _steps(in_flight, ("mma k0", "mma k1", "mma k2")),
        "consumer_steps": _consumer_steps(kept),
        "producer_warpgroup": description.role["producer"].memory_thread_idx,
        "consumers": _consumers(warpgroups, split, rows if split == "m" else columns),
        # Two copies a stage, each armed by the 128 threads of the issuing warpgroup.
        "full_barrier": f"256 arrives + {budget.stage_bytes} B",
        **gemm_limits(a, b, out, tolerance_words(a, b, out)),
        "may_read": may_read(budget.split.store_buffers, "there are"),
        **poison_words(out),
        "a_random": random_words(a, "batches, m, k" if a_k else "batches, k, m"),
        "b_random": random_words(b, "batches, n, k" if b_k else "batches, k, n"),
        "mma_swizzle": swizzle,
        "mma_swizzle_columns": swizzle // a.bytes,
        "out_swizzle": out_swizzle,
        "out_swizzle_columns": out_swizzle // out.bytes,
        **operand_words("a", "m", a_k),
        **operand_words("b", "n", b_k),
        "part": _part(split),
        "a_part": _operand_part("a_smem", split == "m", mode_first=a_k, transposed=not a_k),
        "b_part": _operand_part("b_smem", split == "n", mode_first=b_k, transposed=b_k),
        "out_m": _place("m", split == "m"),
        "out_n": _place("n", split == "n"),
        "a_reference": "a" if a_k else "a.swapaxes(-1, -2)",
        "b_reference": "b.swapaxes(-1, -2)" if b_k else "b",
        "drained_type": (
            'plgpu.ClusterBarrier(collective_axes=("cluster_m", "cluster_n"), '
            "num_arrivals=CONSUMER_WARPGROUPS)"
            if clustered
            else "plgpu.Barrier(num_arrivals=CONSUMER_WARPGROUPS)"
        ),
        # A tail in M and N, two batches, and three K tiles: small enough for an interpreter.
        "interpret_size": f"{m + 8}, {n + 64}, {3 * k}, 2",
        "interpret_sm_count": 2 * cluster_m * cluster_n,
        "interpret_threads": (warpgroups + 1) * cluster_m * cluster_n,
        "clustered": clustered,
        "a_multicast": cluster_n > 1,
        "b_multicast": cluster_m > 1,
        "split": bool(split),
        "delayed": kept > 0,
    }


def _part(split: str) -> str:
    """The slice of the tile that is a warpgroup's own."""
    if not split:
        return ""
    size, what = f"WG_TILE_{split.upper()}", "rows" if split == "m" else "columns"
    return f"pl.ds(warpgroup * {size}, {size})  # {what} of the tile"


def _operand_part(ref: str, split: bool, mode_first: bool, transposed: bool) -> str:
    """What a warpgroup multiplies of an operand's SMEM tile, as (M, K) or (K, N).

    `mode_first`: M or N is the tile's first dimension.
    """
    part = ("part" if mode_first else ":, part") if split else ""
    return ref + (f".at[{part}]" if part else "") + (".T" if transposed else "")


def _place(mode: str, split: bool) -> str:
    """Where a store begins, along one dimension of the output."""
    upper = mode.upper()
    own = f" + warpgroup * WG_TILE_{upper}" if split else ""
    return f"{mode} * TILE_{upper}{own} + sub_{mode}"


def _consumers(warpgroups: int, split: str, size: int) -> str:
    """Who the consumers are, and what they do."""
    if not split:
        return "warpgroup 0: wgmma, then the epilogue"
    who = "0 and 1" if warpgroups == 2 else f"0 to {warpgroups - 1}"
    what = "rows" if split == "m" else "columns"
    return f"warpgroups {who}: wgmma on {size} {what} of the tile each, and their epilogue"


def _steps(later: int, events: tuple[str, ...]) -> str:
    """A timeline's cells for the first three steps: the first event comes `later` steps on."""
    cells = ("",) * min(later, len(events)) + events
    return " | ".join(f"{cell:<8}" for cell in cells[: len(events)])


def _consumer_steps(kept: int) -> str:
    """A consumer's steps in a timeline: what it releases, and when."""
    if not kept:
        return "mma k0, release k0 | mma k1, release k1 | ..."
    before = "mma k0" if kept == 1 else "mma k0 | ..."
    return f"{before} | mma k{kept}, release k0 | ... | drained"


def operand_words(operand: str, mode: str, k_major: bool) -> dict[str, Any]:
    """How an operand is stored; `mode` is its other dimension, m or n."""
    modes = (mode, "k") if k_major else ("k", mode)
    return {
        f"{operand}_shape": ", ".join(modes).upper(),
        f"{operand}_sizes": ", ".join(modes),
        f"{operand}_sizes_out": f"{mode}, _" if k_major else f"_, {mode}",
        f"{operand}_block": ", ".join(f"TILE_{each.upper()}" for each in modes),
        f"{operand}_index": ", ".join(modes),
        f"{operand}_k_axis": 2 if k_major else 1,
        f"{operand}_k_axis_from_end": -1 if k_major else -2,
    }
