# SPDX-License-Identifier: Apache-2.0
"""The CTAs that share a tile's K must fit in a cluster.

What it checks
    scheduler.split_k: 1 to 8; and split_k times the CTAs of cluster.shape, at most 8.

Why
    The CTAs that split K read each other's sums from SMEM, which only the CTAs of a cluster can,
    and a cluster has at most 8 CTAs portably (CUDA C++ Programming Guide, "Thread Block Clusters").
    The tiles of cluster.shape, which share loads, each have their own split_k CTAs in it.

Example
    split_k = 16; split_k = 8 with cluster.shape = [2, 1].

Use instead
    As many clusters as run at once, for one wave: a cluster lies within a GPC, so that an H200,
    with 132 SMs, runs 66 clusters of 2 CTAs, 39 of 3, 30 of 4, 22 of 5, 17 of 6, 15 of 7 or 8
    (HardwareInfo.get_max_active_clusters). One cluster more takes twice the time.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.hardware import HARDWARE


def check(description: KernelDescription) -> Iterator[Problem]:
    split_k = description.scheduler.split_k
    most = HARDWARE[description.kernel.arch].max_cluster
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    if not 1 <= split_k <= most:
        yield Problem(
            f"the CTAs that share a tile are a cluster, which has at most {most}",
            "scheduler.split_k",
            split_k,
            f"1 to {most}",
            str(min(most, max(1, split_k))),
        )
    elif 1 < cluster_m * cluster_n <= most < cluster_m * cluster_n * split_k:
        fitting = most // (cluster_m * cluster_n)
        yield Problem(
            f"{cluster_m} * {cluster_n} tiles of {split_k} CTAs each, and a portable cluster has "
            f"at most {most}",
            "scheduler.split_k",
            split_k,
            f"1 to {fitting} with this cluster.shape",
            str(fitting),
        )
