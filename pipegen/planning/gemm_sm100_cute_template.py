# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/gemm_sm100.py.j2 puts into its text, beyond the plan's numbers."""

from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import MMA_K_BYTES
from pipegen.planning.gemm_sm90_cute_template import (
    TMA_ALIGNMENT,
    operand_words,
    swizzle,
    tolerance,
)
from pipegen.planning.smem_budget import SmemBudget
from pipegen.vocabulary import DTYPE

# Modes of (MMA, M or N, K, STAGE) in the order in which they are laid out, and for what major.
SMEM_ORDER = {True: "(1, 2, 3)", False: "(2, 1, 3)"}


def template_values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The template's fields for a description with its defaults filled in."""
    tile, dtype = description.tile, description.dtype
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    a_k, b_k = description.layout.a == "k", description.layout.b == "k"
    epi_m, epi_n = budget.epi_tile_mn
    return {
        "a": a,
        "b": b,
        "out": out,
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        "mma_k": MMA_K_BYTES // a.bytes,
        "full_barrier": f"1 arrive + {budget.stage_bytes} B",
        "ahead": f"at most {budget.split.stages} stages ahead",
        "capability_major": 10,
        "tolerance": tolerance(description),
        "epi_tile_m": epi_m,
        "epi_tile_n": epi_n,
        "epi_subtiles": budget.subtiles,
        "a_align": TMA_ALIGNMENT // a.bytes,
        "b_align": TMA_ALIGNMENT // b.bytes,
        "out_align": TMA_ALIGNMENT // out.bytes,
        "a_swizzle": swizzle("K", k * a.bytes) if a_k else swizzle("MN", m * a.bytes),
        "b_swizzle": swizzle("K", k * b.bytes) if b_k else swizzle("MN", n * b.bytes),
        "out_swizzle": swizzle("K", epi_n * out.bytes),
        **operand_words("a", "m", a_k),
        **operand_words("b", "n", b_k),
        "a_order": SMEM_ORDER[a_k],
        "b_order": SMEM_ORDER[b_k],
        "a_k_index": 2 if a_k else 1,
        "a_multicast": cluster_n > 1,
        "b_multicast": cluster_m > 1,
        "clustered": cluster_m * cluster_n > 1,
        "plain_load": cluster_m == 1 or cluster_n == 1,
        "fp8": a.bits == 8,
        "a_as_mk": "a.double()" if a_k else "a.double().mT",
        "b_as_kn": "b.double().mT" if b_k else "b.double()",
    }
