# SPDX-License-Identifier: Apache-2.0
"""What must be in order when a CTA, a cluster or the whole run ends."""

from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.findings.deadlock import signallers, tx_text

if TYPE_CHECKING:
    from pipegen.emulator.machine.barriers import Mbarrier
    from pipegen.emulator.machine.running import Machine
    from pipegen.emulator.machine.state import Cluster, Cta


def cta_ended(machine: "Machine", cta: "Cta") -> None:
    """What a CTA must have put in order before it ends."""
    cta.exited = True
    cta.exit_clock = np.maximum.reduce([warp.clock for warp in cta.warps])
    cta.exit_ended = np.maximum.reduce([warp.ended for warp in cta.warps])
    last = cta.warps[-1]
    for warp in cta.bulk_pending:
        machine.report(
            "store-pending-at-exit",
            f"CTA {cta.rank} ends, and nothing has waited for bulk stores of warp {warp.number} to "
            "read its shared memory (cp.async.bulk.wait_group)",
            [(cta, warp.global_id, -1)],
        )
        for group in warp.bulk:
            group.complete()
        for operation in warp.bulk_open:
            operation.complete()  # a commit is for waiting only: the store is under way without
    for barrier in cta.barriers.values():
        _ended_within_phase(machine, cta, barrier)
    if cta.tmem_taken:
        taken = ", ".join(f"{n} columns at {at}" for at, n in cta.tmem_taken.items())
        machine.report(
            "tmem-not-freed",
            f"CTA {cta.rank} ends with tensor memory allocated: {taken}",
            [(cta, last.global_id, -1)],
        )


def _ended_within_phase(machine: "Machine", cta: "Cta", barrier: "Mbarrier") -> None:
    """Arrivals or bytes that complete no phase: somewhere a count is wrong."""
    arrived = barrier.expected - barrier.pending
    if arrived and barrier.phase:
        machine.report(
            "arrive-count",
            f"CTA {cta.rank} ends with {arrived} of {barrier.expected} arrivals in phase "
            f"{barrier.phase} of {barrier.describe()}",
            [(cta, barrier.init_by, barrier.init_at), *signallers(barrier)],
        )
    elif barrier.tx:
        machine.report(
            "tx-count",
            f"CTA {cta.rank} ends, and of {barrier.describe()} {tx_text(barrier.tx)}",
            [(cta, barrier.init_by, barrier.init_at), *signallers(barrier)],
        )


def cluster_ended(machine: "Machine", cluster: "Cluster") -> None:
    """What reached a CTA must be known to it before its end: else only luck kept it alive."""
    for cta in cluster.ctas:
        assert cta.exit_clock is not None
        assert cta.exit_ended is not None
        known = cta.exit_clock[GENERIC]
        ended = np.maximum(known, cta.exit_ended)
        reaching = [(known, *each) for each in cta.remote.items()]
        reaching += [(ended, *each) for each in cta.remote_reads.items()]
        for seen, agent, (epoch, at, warp) in reaching:
            if seen[agent] < epoch:
                sender = cluster.warps[warp]
                machine.report(
                    "cta-gone",
                    f"nothing keeps CTA {cta.rank} from ending before warp {sender.number} of "
                    f"CTA {sender.cta.rank} signals it or writes to its shared memory",
                    [(sender.cta, warp, at)],
                )


def unbalanced(machine: "Machine") -> None:
    """Barriers that wait for bytes that will not come, or got bytes that nobody announced."""
    for warp in (warp for cluster in machine.active for warp in cluster.warps):
        if warp.waiting is None:
            continue
        barrier, _, _, at = warp.waiting
        if barrier.pending == 0 and barrier.tx:
            machine.report(
                "tx-count",
                f"{barrier.describe()} has all its arrivals, and {tx_text(barrier.tx)}",
                [(warp.cta, warp.global_id, at), *signallers(barrier)],
            )
