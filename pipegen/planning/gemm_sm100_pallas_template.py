# SPDX-License-Identifier: Apache-2.0
"""The words that the Blackwell Pallas GEMM templates put into their text, beyond the numbers."""

from typing import Any

from pipegen.arithmetic import multicast_partners
from pipegen.description import KernelDescription
from pipegen.planning.gemm_sm90_pallas_template import operand_words, widest_swizzle
from pipegen.planning.pallas_check_words import poison_words, random_words, tolerance_words
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_sm100 import cta_group_of
from pipegen.planning.smem_sm100_pallas import shared_cluster, takes_answers
from pipegen.vocabulary import DTYPE

# What a CTA of a persistent grid is launched for, and a pair.
GRIDS = {1: "grid=(sm_count,),", 2: "grid=(sm_count // 2,),"}


def template_values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The templates' fields for a description with its defaults filled in."""
    tile, dtype = description.tile, description.dtype
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    acc = DTYPE[str(dtype.acc)]
    a_k, b_k = description.layout.a == "k", description.layout.b == "k"
    pair, clc = cta_group_of(description) == 2, takes_answers(description)
    b_rows = n // 2 if pair else n  # that a CTA holds
    swizzle = widest_swizzle((k if a_k else m) * a.bytes, (k if b_k else b_rows) * b.bytes)
    columns = budget.epi_tile_mn[1]
    out_swizzle = widest_swizzle(columns * out.bytes)
    rows_of_a = "m * MMA_TILE_M, MMA_TILE_M" if pair else "m * TILE_M, TILE_M"
    return {
        "a": a,
        "b": b,
        "out": out,
        "acc": acc,
        "acc_zero": "0" if acc.integer else "0.0",
        **poison_words(out),
        "a_random": random_words(a, "batches, m, k" if a_k else "batches, k, m"),
        "b_random": random_words(b, "batches, n, k" if b_k else "batches, k, n"),
        "epi_tile_n": columns,
        "epi_subtiles": budget.subtiles,
        "half_n": b_rows,
        "tolerance": tolerance_words(a, b, out),
        "mma_swizzle": swizzle,
        "mma_swizzle_columns": swizzle // a.bytes,
        "out_swizzle": out_swizzle,
        "out_swizzle_columns": out_swizzle // out.bytes,
        **operand_words("a", "m", a_k),
        **operand_words("b", "n", b_k),
        "a_slices": _slices(rows_of_a, a_k),
        "b_slices": _slices("n * TILE_N, TILE_N", b_k),
        "a_smem_block": _block("TILE_M", a_k),
        "b_smem_block": _block("HALF_N" if pair else "TILE_N", b_k),
        "a_partition": 0 if a_k else 1,  # the dimension that a pair's CTAs share out
        "b_partition": 0 if b_k else 1,
        "a_operand": "a_smem.at[stage]" if a_k else "a_smem.at[stage].T",
        "b_operand": "b_smem.at[stage].T" if b_k else "b_smem.at[stage]",
        "a_reference": "a" if a_k else "a.swapaxes(-1, -2)",
        "b_reference": "b.swapaxes(-1, -2)" if b_k else "b",
        "mma_tile_m": "MMA_TILE_M" if pair else "TILE_M",
        "mma_tile_n": "TILE_N",
        "out_sizes": "_, m_size, n_size" if clc else "batches, m_size, n_size",
        "out_row": "(2 * m + rank)" if pair else "m",
        **_barrier_words(budget, pair, clc),
        **_launch_words(pair, clc),
        "which_tile": "the output tile that comes index-th.",
        # A tail in M and N, two batches, and three K tiles: small enough for an interpreter.
        "interpret_size": f"{m + 8}, {n + 64}, {3 * k}, 2",
        "pair": pair,
        "one_cta": not pair,
        "clc": clc,
        "static": not clc,
        "interpreted": not pair,
        **_cluster_words(description),
    }


def _slices(rows: str, k_major: bool) -> str:
    """What is copied of an operand for K tile k, as it is stored."""
    both = (f"pl.ds({rows})", "pl.ds(k * TILE_K, TILE_K)")
    return ", ".join(both if k_major else both[::-1])


def _block(rows: str, k_major: bool) -> str:
    """The shape of an operand's stage."""
    return f"{rows}, TILE_K" if k_major else f"TILE_K, {rows}"


def _barrier_words(budget: SmemBudget, pair: bool, clc: bool) -> dict[str, Any]:
    """What the docstring says of the barriers, and the types of those that differ."""
    stage_bytes = (2 if pair else 1) * budget.stage_bytes
    return {
        "mainloop_empty": "1 commit",
        "full_barrier": f"256 arrives + {stage_bytes} B",
        "acc_empty_barrier": "2 arrives" if pair else "1 arrive",
        "answer_full_barrier": "384 arrives + 16 B",
        "asker": "the leader" if pair else "one thread",
        "answer_readers": (
            "one thread of each warpgroup of both CTAs, in both, when it has read it"
            if pair
            else "all threads, when they have read it"
        ),
        "arrivals_text": (
            "all 128 threads of the TMA warpgroup" + ("" if pair else " arrive")
            if clc
            else ("the TMA warp's 32 threads" + ("" if pair else " arrive 4 times each"))
        ),
        "acc_empty_type": ('ClusterBarrier(collective_axes=("pair",), ' if pair else "Barrier("),
    }


def _cluster_words(description: KernelDescription) -> dict[str, Any]:
    """What differs where CTAs of a cluster share tiles; a pair is one CTA here."""
    m, n = shared_cluster(description)
    clustered = m * n > 1
    words = {
        "clustered": clustered,
        "alone": not clustered,
        "cluster_m": m,
        "cluster_n": n,
        "released_arrivals": multicast_partners((m, n)),
        "stage_free": "mainloop_released" if clustered else "mainloop_empty",
        "a_collective": ', collective_axes="cluster_n"' if n > 1 else "",
        "b_collective": ', collective_axes="cluster_m"' if m > 1 else "",
        "raster_rows": "cluster rows" if clustered else "tile rows",
        "interpret_threads": 8 * m * n,  # four roles wait in each CTA, and who started their warps
    }
    if not clustered:
        return words
    return {
        **words,
        "mma_tile_m": "TILE_M * CLUSTER_M",
        "mma_tile_n": "TILE_N * CLUSTER_N",
        "which_tile": "this CTA's output tile in the cluster of tiles that comes index-th.",
        "mainloop_empty": f"1 commit, {words['released_arrivals']} arrives",
        "launch_grid": f"grid=(sm_count // {m * n},),",
        "warpgroup_names": "MMA_WARPGROUP, EPILOGUE_WARPGROUP, RELEASE_WARPGROUP",
        "warpgroup_numbers": "0, 1, 2",
        "num_threads": 3,
        "interpret_arguments": f"sm_count={2 * m * n}, interpret=interpret",
    }


def _launch_words(pair: bool, clc: bool) -> dict[str, Any]:
    """What is launched, and how the interpreter is called."""
    loop = '("tile",), thread_axis="warpgroup", '
    loop += 'cluster_axes=("pair",), ' if pair else ""
    interpret = "" if pair else ", interpret=None"
    count = "" if clc else ", sm_count: int"
    return {
        "loop_arguments": f"{loop}init_carry=jnp.int32(0)",
        "launch_parameters": f"a, b{count}{interpret}",
        "jit": _jit(*(() if clc else ("sm_count",)), *(() if pair else ("interpret",))),
        "uses_functools": not (pair and clc),
        "launch_grid": "grid=(tiles,)," if clc else GRIDS[2 if pair else 1],
        "warpgroup_names": "MMA_WARPGROUP, EPILOGUE_WARPGROUP",
        "warpgroup_numbers": "0, 1",
        "grid_name": "tile" if clc else "grid",
        "num_threads": 3 if clc else 2,
        "tmem_collective": ", collective=True" if pair else "",
        "launch_arguments": "" if clc else ", device.core_count",
        "trace_arguments": "" if clc else ", sm_count=device.core_count",
        "interpret_parameters": "detect_races=True" + (', inline_mgpu="ignore"' if clc else ""),
        "interpret_arguments": ("" if clc else "sm_count=2, ") + "interpret=interpret",
        "interpret_help": "does not run a pair" if pair else "runs on the CPU",
    }


def _jit(*static: str) -> str:
    """The decorator of `launch`, whose parameters `static` are."""
    if not static:
        return "jax.jit"
    names = ", ".join(f'"{name}"' for name in static)
    return f"functools.partial(jax.jit, static_argnames={f'({names})' if static[1:] else names})"
