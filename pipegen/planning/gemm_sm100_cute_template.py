# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/gemm_sm100*.py.j2 put into their text, beyond numbers."""

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
from pipegen.planning.smem_sm100 import answers_of, cta_group_of
from pipegen.vocabulary import DTYPE

# Modes of (MMA, M or N, K, STAGE) in the order in which they are laid out, and for what major.
SMEM_ORDER = {True: "(1, 2, 3)", False: "(2, 1, 3)"}


def template_values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The template's fields for a description with its defaults filled in."""
    tile, dtype = description.tile, description.dtype
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    a_k, b_k = description.layout.a == "k", description.layout.b == "k"
    epi_m, epi_n = budget.epi_tile_mn
    group = cta_group_of(description)
    return {
        "a": a,
        "b": b,
        "out": out,
        "mma_k": MMA_K_BYTES // a.bytes,
        "full_barrier": f"1 arrive + {group * budget.stage_bytes} B",
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
        "b_swizzle": swizzle("K", k * b.bytes) if b_k else swizzle("MN", n // group * b.bytes),
        "out_swizzle": swizzle("K", epi_n * out.bytes),
        **operand_words("a", "m", a_k),
        **operand_words("b", "n", b_k),
        "a_order": SMEM_ORDER[a_k],
        "b_order": SMEM_ORDER[b_k],
        "a_k_index": 2 if a_k else 1,
        "b_n_index": 1 if b_k else 2,
        "fp8": a.bits == 8,
        "a_as_mk": "a.double()" if a_k else "a.double().mT",
        "b_as_kn": "b.double().mT" if b_k else "b.double()",
        **_cluster_words(description),
        **_option_words(description),
    }


def commits_text(count: int | None) -> str:
    """So many arrivals of tcgen05 commits, for the table of pipelines."""
    return f"{count} commit" if count == 1 else f"{count} commits"


def _cluster_words(description: KernelDescription) -> dict[str, Any]:
    """What depends on the cluster, on pairs, and on who hands out tiles."""
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    group = cta_group_of(description)
    pair, clc = group == 2, description.scheduler.tiles == "clc"
    a_multicast, b_multicast = cluster_n > 1, cluster_m > group
    ctas = cluster_m * cluster_n
    clustered = ctas > 1
    epilogue_warps = "the epilogue warps of both CTAs" if pair else "the epilogue warps"
    return {
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        "pair": pair,
        "one_cta": not pair,
        "static": not clc,
        "clc": clc,
        "a_multicast": a_multicast,
        "b_multicast": b_multicast,
        "multicast": a_multicast or b_multicast,
        "plain_load": not (a_multicast and b_multicast),
        "clustered": clustered,
        "mma_m_name": "MMA_M" if pair else "TILE_M",
        "m_tile": "m // 2" if pair else "m",
        "v": "v" if pair else "0",
        "place": "v, cta_m // 2, cta_n, 0" if pair else "0, cta_m, cta_n, 0",
        "b_part": "cta_m // 2" if pair else "cta_m",
        "b_parts": "CLUSTER_M // 2" if pair else "CLUSTER_M",
        "b_smem_rows": "TILE_N // 2" if pair else "TILE_N",
        "group_name": "two" if pair else "one",
        "group_word": "TWO" if pair else "ONE",
        "cta_shape": "2, CLUSTER_M // 2, CLUSTER_N, 1" if pair else "1, CLUSTER_M, CLUSTER_N, 1",
        "mainloop_empty": commits_text(cluster_m // group + cluster_n - 1),
        "tx_words": "the A and the B tile of both CTAs" if pair else "the A and the B tile",
        "acc_empty_words": epilogue_warps,
        "scheduler_condition": (
            "warp_idx == SCHEDULER_WARP and cute.arch.block_idx_in_cluster() == 0"
            if clustered
            else "warp_idx == SCHEDULER_WARP"
        ),
        "query_arguments": (
            "answers + query.index" if clustered else "answers + query.index, multicast=False"
        ),
        "scheduler_tail": (
            "# Nobody asks again after a no. The last releases must find this CTA's barriers."
            if clustered
            else "# Nobody asks again after a no. Leaves no arrive pending: waits for all releases."
        ),
        "scheduler_readers": _readers(ctas, pair),
        "scheduler_next": answers_of(description) + 1,
    }


def _readers(ctas: int, pair: bool) -> str:
    """Who reads an answer: those whose loops it steers."""
    if ctas == 1:
        return "TMA, MMA, epilogue and scheduler warps"
    mma = "the leaders' MMA warps" if pair else "MMA"
    if pair:
        return f"TMA and epilogue warps of all CTAs, {mma}, the scheduler warp"
    return f"TMA, {mma} and epilogue warps of all CTAs, the scheduler warp"


def _option_words(description: KernelDescription) -> dict[str, Any]:
    """What depends on the style and on the mainloop's options."""
    mainloop = description.pipeline["mainloop"]
    participants = description.kernel.style == "participants"
    pair = cta_group_of(description) == 2
    ahead, edge = bool(mainloop.try_ahead), bool(mainloop.expected_tx)
    clc = description.scheduler.tiles == "clc"
    halves = edge and not pair
    arguments = [*(["token"] if ahead else []), *(["expected_tx=expected"] if edge else [])]
    common = "tiled_mma, tCtAcc, tCrA, tCrB, k_tiles"
    if participants:
        ring, multiply = "mainloop_producer", "mainloop_consumer, accumulator_producer"
        try_acquire, try_wait = f"{ring}.try_acquire()", "mainloop_consumer.try_wait()"
    else:
        multiply = "mainloop, stage, accumulator, buffer"
        try_acquire = "mainloop.producer_try_acquire(stage)"
        try_wait = "mainloop.consumer_try_wait(stage)"
    kernel = ["tma_a", "tma_b", "tma_out", "tiled_mma", *(["b_smem"] if halves else [])]
    kernel += ["k_tiles", "clusters_m", "clusters_n"]
    kernel += [] if clc else ["tiles"]
    return {
        "participants": participants,
        "explicit_state": not participants,
        "defer_sync": bool(mainloop.defer_sync),
        "at_once": not mainloop.defer_sync,
        "try_ahead": ahead,
        "edge": edge,
        "edge_halves": halves,
        "edge_pair": edge and pair,
        "whole_b": not halves,
        "plain_b": not edge,
        "acquire_arguments": ", ".join(arguments),
        "state_arguments": "".join(f", {argument}" for argument in arguments),
        "token": "token" if ahead else "",
        "state_token": ", token" if ahead else "",
        "try_acquire": try_acquire,
        "try_wait": try_wait,
        "multiply_parameters": f"{multiply}, {common}",
        "multiply_arguments": f"{multiply}, {common}",
        "kernel_parameters": ", ".join([*kernel, *(["n_size"] if edge else [])]),
        "kernel_arguments": ", ".join([*kernel, *(["n"] if edge else [])]),
    }
