# SPDX-License-Identifier: Apache-2.0
"""Arrive counts: arrivals that complete one phase of a full or an empty barrier.

A count that is too large hangs: a full barrier's at once, an empty one's at the second lap of the
ring. One that is too small is a race. The full barriers of the TMA classes count the warps that
acquire; their bytes are in `pipegen.arithmetic.sizes`.
"""

from pipegen.hardware import WARP


def multicast_partners(
    cluster_mn: tuple[int, int], cta_group: int = 1, mcast_mode_mn: tuple[int, int] = (1, 1)
) -> int:
    """CTAs (in CTA pairs: pairs; this one included) that a stage's release must be signalled to.

    A is shared along the cluster's N mode, B along its M mode; a CTA lies on both lines and counts
    once (DSL, `PipelineTmaAsync.create`: mcast_m_size + mcast_n_size - overlap).
    `mcast_mode_mn` is (1, 0) for a stage that holds A only, (0, 1) for B only.
    """
    m, n = cluster_mn[0] // cta_group, cluster_mn[1]
    a_shared, b_shared = mcast_mode_mn
    return n * a_shared + m * b_shared - a_shared * b_shared


def tma_consumer_arrive_count(
    consumer_warps: int, cluster_mn: tuple[int, int], mcast_mode_mn: tuple[int, int] = (1, 1)
) -> int:
    """Arrivals that empty one stage of a `PipelineTmaAsync`.

    One lane of each consumer warp arrives at each partner's barrier
    (DSL, `PipelineTmaAsync.init_empty_barrier_arrive_signal` and `consumer_release`).
    """
    return consumer_warps * multicast_partners(cluster_mn, 1, mcast_mode_mn)


def umma_consumer_arrive_count(
    cluster_mn: tuple[int, int], cta_group: int = 1, mcast_mode_mn: tuple[int, int] = (1, 1)
) -> int:
    """Arrivals that empty one stage of a `PipelineTmaUmma`.

    One tcgen05.commit of the MMA warp of each CTA (in pairs: of each pair's leader) that receives
    what this one loads. It arrives once at each CTA of its mask, in pairs at both
    (DSL, `PipelineTmaUmma.consumer_release`; PTX, "tcgen05.commit").
    """
    return multicast_partners(cluster_mn, cta_group, mcast_mode_mn)


def multi_consumer_arrive_count(thread_warps: int, cluster_mn: tuple[int, int]) -> int:
    """Arrivals that empty one stage of a `PipelineTmaMultiConsumersAsync`: both kinds of reader
    (DSL, `create`: the sizes of both groups together)."""
    umma = umma_consumer_arrive_count(cluster_mn)
    return umma + tma_consumer_arrive_count(thread_warps, cluster_mn)


def thread_producer_arrive_count(producer_warps: int, cta_group: int = 1) -> int:
    """Arrivals that fill one stage of a `PipelineAsync` or `PipelineAsyncUmma`: every thread's.

    `producer_commit` arrives in each thread that calls it (DSL, `MbarrierArray.arrive_mbarrier`:
    no lane is chosen), and an arrive publishes what the calling thread has written (PTX,
    "mbarrier.arrive": release). In a pair the threads of both CTAs arrive at the leader's barrier
    (DSL, `PipelineAsyncUmma._compute_leading_cta_rank`).
    """
    return WARP * producer_warps * cta_group


def cp_async_producer_arrive_count(producer_warps: int) -> int:
    """Arrivals that fill one stage of a `PipelineCpAsync`: one of every producer thread.

    `producer_commit` issues cp.async.mbarrier.arrive.noinc in each thread that calls it (DSL,
    `MbarrierArray.arrive_cp_async_mbarrier`). It arrives when that thread's own earlier copies have
    landed, and knows no other thread's; noinc leaves the count to the barrier's init (PTX,
    "cp.async.mbarrier.arrive").
    """
    return WARP * producer_warps


def elected_consumer_arrive_count(consumer_warps: int, cta_group: int = 1) -> int:
    """Arrivals that empty one stage of a `PipelineAsync`, `PipelineCpAsync` or `PipelineUmmaAsync`.

    `consumer_release` arrives in each thread that calls it (DSL, `PipelineAsync.consumer_release`).
    The templates let one lane call it, after its warp has met; if all lanes called it, the count
    would be 32 times as large. In a pair the warps of both CTAs arrive at the leader's barrier
    (DSL, `PipelineUmmaAsync._compute_peer_cta_rank`).
    """
    return consumer_warps * cta_group


def clc_consumer_arrive_count(
    cluster_mn: tuple[int, int], cta_group: int, warps_of_cta: int, warps_of_mma: int
) -> int:
    """Arrivals at the cluster's first CTA that free one answer of a `PipelineClcFetchAsync`.

    Each thread that reads arrives: `warps_of_cta` in each CTA, `warps_of_mma` for each MMA (one in
    a pair), and the cluster's one scheduler warp
    (DSL, `PipelineClcFetchAsync.consumer_release`, and `create`: consumer_mask = 0).
    """
    ctas = cluster_mn[0] * cluster_mn[1]
    return WARP * (ctas * warps_of_cta + ctas // cta_group * warps_of_mma + 1)


def order_arrive_count(group_warps: int) -> int:
    """Arrivals that give the turn to the next group of a `PipelineOrder`: every thread's of the
    group before (DSL, `PipelineOrder.arrive`: no lane is chosen)."""
    return WARP * group_warps
