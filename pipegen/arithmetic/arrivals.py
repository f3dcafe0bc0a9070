# SPDX-License-Identifier: Apache-2.0
"""Arrive counts: arrivals that complete one phase of a full or an empty barrier."""

from pipegen.hardware import WARP


def multicast_partners(cluster_mn: tuple[int, int]) -> int:
    """CTAs (this one included) that a stage's release must be signalled to.

    A is shared along the cluster's N mode, B along its M mode; this CTA lies on both lines and
    counts once (DSL, `PipelineTmaAsync.create`: mcast_m_size + mcast_n_size - 1).
    """
    m, n = cluster_mn
    return m + n - 1


def tma_consumer_arrive_count(consumer_warps: int, cluster_mn: tuple[int, int]) -> int:
    """Arrivals that empty one stage of a `PipelineTmaAsync`.

    One lane of each consumer warp arrives at each partner's barrier
    (DSL, `PipelineTmaAsync.init_empty_barrier_arrive_signal` and `consumer_release`).
    A larger count hangs at the second lap of the ring; a smaller one is a race.
    """
    return consumer_warps * multicast_partners(cluster_mn)


def umma_consumer_arrive_count(cluster_mn: tuple[int, int]) -> int:
    """Arrivals that empty one stage of a `PipelineTmaUmma`, in a cluster of `cluster_mn` MMAs:
    of CTAs, or of CTA pairs, which lie along M.

    One tcgen05.commit of the MMA warp of each CTA (of each pair's leader) that reads what this CTA
    loads: it arrives once at each CTA of its mask, in a pair at both
    (DSL, `PipelineTmaUmma.consumer_release`; PTX, "tcgen05.commit").
    """
    return multicast_partners(cluster_mn)


def cp_async_producer_arrive_count(producer_warps: int) -> int:
    """Arrivals that fill one stage of a `PipelineCpAsync`: one of every producer thread.

    `producer_commit` issues cp.async.mbarrier.arrive.noinc in each thread that calls it (DSL,
    `MbarrierArray.arrive_cp_async_mbarrier`). It arrives when that thread's own earlier copies have
    landed, and knows no other thread's; noinc leaves the count to the barrier's init (PTX,
    "cp.async.mbarrier.arrive"). A larger count hangs at once; a smaller one is a race.
    """
    return WARP * producer_warps


def thread_producer_arrive_count(producer_warps: int) -> int:
    """Arrivals that fill one stage of a `PipelineAsync`: one of every producer thread.

    `producer_commit` arrives in each thread that calls it (DSL, `MbarrierArray.arrive_mbarrier`:
    no lane is chosen), and an arrive publishes what the calling thread has written (PTX,
    "mbarrier.arrive": release). A larger count hangs at once; a smaller one is a race.
    """
    return WARP * producer_warps


def elected_consumer_arrive_count(consumer_warps: int) -> int:
    """Arrivals that empty one stage of a `PipelineAsync` or `PipelineCpAsync`: one of each warp.

    `consumer_release` arrives in each thread that calls it (DSL, `PipelineAsync.consumer_release`).
    The templates let one lane call it, after its warp has met; if all lanes called it, the count
    would be 32 times as large. A larger count hangs at the second lap of the ring.
    """
    return consumer_warps
