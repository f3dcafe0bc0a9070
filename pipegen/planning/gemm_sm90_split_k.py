# SPDX-License-Identifier: Apache-2.0
"""Plan of the CuTe DSL Hopper GEMM with split K: the CTAs of a cluster share an output tile's K."""

from dataclasses import replace

from pipegen.arithmetic import exchange_bytes
from pipegen.description import KernelDescription
from pipegen.planning.gemm_sm90_cute import plan_gemm_sm90_cute
from pipegen.planning.model import Number, Plan
from pipegen.planning.smem import smem_of

F32_BYTES = 4
QUAD = 4  # f32 sums that a thread copies at once: 16 bytes


def plan_gemm_sm90_split_k(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """The plan of the persistent GEMM, for one output tile a cluster, and what is exchanged."""
    plan = plan_gemm_sm90_cute(given, description, name, template)
    budget = smem_of(description)
    if budget is None:
        raise ValueError(f"no sizes to plan with: {description.tile}")
    m, n = description.tile.m or 0, description.tile.n or 0
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    split_k = description.scheduler.split_k
    epi_m, epi_n = budget.epi_tile_mn
    subtiles = (m // epi_m) * (n // epi_n)
    ctas = cluster_m * cluster_n * split_k
    changed = {
        "epi_subtiles": Number(
            "epi_subtiles",
            subtiles,
            "subtiles",
            f"({m} / {epi_m}) * ({n} / {epi_n})",
            "subtiles of a tile; subtile i is added up and stored by CTA i % split_k",
        ),
        "grid": Number(
            "grid",
            "not persistent",
            "blocks",
            f"{cluster_m} * {cluster_n} * {split_k} * tiles in clusters",
            "a cluster for each tile, or for those that share loads: split K is for few tiles",
        ),
    }
    added = (
        Number(
            "own_subtiles",
            budget.subtiles,
            "subtiles",
            f"ceil({subtiles} / {split_k})",
            "the most that one CTA adds up and stores",
        ),
        Number(
            "cluster_ctas",
            ctas,
            "CTAs",
            f"{cluster_m} * {cluster_n} * {split_k}",
            "a portable cluster has at most 8 (CUDA C++ Programming Guide, Thread Block Clusters)",
        ),
        Number(
            "exchange_bytes",
            exchange_bytes(m, n),
            "B",
            f"{m} * {n} * {F32_BYTES}",
            "a CTA's f32 sums, written over the mainloop's stages",
        ),
    )
    values = {
        **plan.values,
        "split_k": split_k,
        "static": False,  # no persistent loop: the grid is as large as the output
        "epi_subtiles": subtiles,
        "exchange_quads": epi_n // 2 // QUAD,
    }
    numbers = (*(changed.get(number.name, number) for number in plan.numbers), *added)
    return replace(plan, numbers=numbers, values=values)
