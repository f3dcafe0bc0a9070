# SPDX-License-Identifier: Apache-2.0
"""The cluster must be one that the hardware launches and the template multicasts across.

What it checks
    cluster.shape, CTAs along M and along N; with cta_group = 2 an even number along M. In Pallas on
    sm_100a a pair is [2, 1], and with cluster launch control one CTA is [1, 1].

Why
    A cluster has at most 8 CTAs portably (CUDA C++ Programming Guide, "Thread Block Clusters"),
    and each operand tile is cut into equal parts, one for each CTA that shares it, so a side is
    1 or 2 here, for a cute gemm or gemm_rowsum on sm_100a also 4
    along M. Larger clusters leave SMs idle: an
    H200's 132 SMs come in GPCs of 16 or 18. A CTA pair is two CTAs of a cluster side by side
    along M. In Pallas, jax's copies for a pair are for clusters of two CTAs (jax 0.10.2 and 0.11.2,
    mosaic_gpu/primitives.py, "Partitioned loads").

Example
    shape = [2, 3], shape = [16, 1].

Use instead
    [2, 1] shares B between two tiles of rows, or holds a pair; [1, 2] shares A; [2, 2] both.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, toml_literal
from pipegen.hardware import HARDWARE
from pipegen.planning.gemm_pallas_defaults import PRODUCER_OF_THREE

CLUSTERS = ((1, 1), (2, 1), (1, 2), (2, 2))
PALLAS_MIXED = ((1, 1), (1, 2))
BLACKWELL = (*CLUSTERS, (4, 1), (4, 2))


def check(description: KernelDescription) -> Iterator[Problem]:
    shape = description.cluster.shape
    kernel = description.kernel
    clusters, why_not = _clusters(description)
    if shape is None or shape in clusters:
        return
    size = shape[0] * shape[1]
    most = HARDWARE[kernel.arch].max_cluster
    if size > most:
        reason = f"{size} CTAs, and a portable cluster has at most {most}"
    elif why_not and (shape in clusters_of(description) or len(clusters) == 1):
        reason = why_not
    elif (4, 2) in clusters:
        reason = "the template shares tiles between 1, 2 or 4 CTAs along M and 1 or 2 along N"
    else:
        reason = "the template shares tiles between 1 or 2 CTAs on a side"
    wanted = (min(max(shape[0], 1), max(m for m, _ in clusters)), min(max(shape[1], 1), 2))
    nearest = min(clusters, key=lambda c: (abs(c[0] - wanted[0]) + abs(c[1] - wanted[1]), -c[0]))
    yield Problem(
        reason,
        "cluster.shape",
        shape,
        listing(toml_literal(choice) for choice in clusters),
        toml_literal(nearest),
    )


def clusters_of(description: KernelDescription) -> tuple[tuple[int, int], ...]:
    """The clusters that some template of the op has for its backend and architecture."""
    kernel = description.kernel
    wide = kernel.op in ("gemm", "gemm_rowsum") and kernel.backend == "cute"
    return BLACKWELL if wide and kernel.arch == "sm_100a" else CLUSTERS


def _clusters(description: KernelDescription) -> tuple[tuple[tuple[int, int], ...], str]:
    """The clusters that a template is written for, and why it has no other of CLUSTERS."""
    backend, style = description.kernel.backend, description.kernel.style
    every = clusters_of(description)
    if description.cluster.cta_group == 2 and every == BLACKWELL:
        return tuple(c for c in every if c[0] % 2 == 0), "a pair is two CTAs side by side along M"
    if backend == "cute-ts":
        why = "in Task Scheduling a kernel shares no tiles in a cluster: one CTA, or a pair"
        return (((2, 1),) if description.cluster.cta_group == 2 else CLUSTERS[:1]), why
    if style == "emit-pipeline":
        return CLUSTERS[:1], "emit-pipeline kernels share an SM by twos, and no tiles in a cluster"
    if style == "pallas-call":
        return CLUSTERS[:1], "pl.pallas_call has no clusters"
    if backend == "pallas" and description.kernel.arch == "sm_100a":
        if description.cluster.cta_group == 2:
            return CLUSTERS[1:2], (
                "jax's copies for a pair are for clusters of two CTAs, side by side along M"
            )
        if description.scheduler.tiles == "clc":
            return CLUSTERS[:1], "with cluster launch control a Pallas kernel shares no tiles"
        return CLUSTERS, ""
    if backend == "pallas" and description.kernel.op == "mixed_gemm":
        consumer = description.role.get("consumer")
        if consumer and consumer.warpgroups == 1:
            return CLUSTERS[:1], (
                "JAX's interpreter hangs in a cluster whose CTAs have one consumer warpgroup, and "
                "nothing is emitted here that it cannot check"
            )
        return PALLAS_MIXED, "in Pallas a mixed GEMM that shares weights spills registers"
    if backend == "pallas" and _few_load_registers(description):
        return CLUSTERS[:1], (
            f"with {PRODUCER_OF_THREE} registers, which is what 128 accumulators leave of three "
            "consumer warpgroups, a thread that loads spills in a cluster (jax 0.10.2 to 0.12.0.1)"
        )
    consumer = description.role.get("consumer")
    if backend == "pallas" and consumer and consumer.warpgroups == 3 and consumer.split == "n":
        return ((1, 1), (1, 2)), (
            "three consumer warpgroups that share columns spill where B is multicast (jax 0.12.0.1)"
        )
    if backend == "pallas":
        return CLUSTERS[:3], "in Pallas a [2, 2] cluster spills registers with jax 0.10.2"
    if description.kernel.op == "mixed_gemm":
        return CLUSTERS, "a mixed GEMM shares tiles between 1 or 2 CTAs on a side"
    return every, ""


def _few_load_registers(description: KernelDescription) -> bool:
    """Whether three consumer warpgroups leave the one that loads too few for a cluster."""
    producer, consumer = description.role.get("producer"), description.role.get("consumer")
    if producer is None or consumer is None or consumer.warpgroups != 3:
        return False
    return (producer.registers or 0) <= PRODUCER_OF_THREE
