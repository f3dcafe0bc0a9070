# SPDX-License-Identifier: Apache-2.0
"""Which tcgen05 operations of the tensor core are in order, and the queue in which they complete.

PTX ISA, section "Memory Consistency Model for 5th generation of TensorCore operations" (9.7.16.6):
mma after mma and mma after cp are pipelined, also from different threads, where the later thread
knows that the earlier one has issued; nothing else is in order before a commit was waited for.
"""

from typing import TYPE_CHECKING

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.values import Array

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp

_EVER = 1 << 62


def issue(w: "Warp") -> int:
    """Note that a warp issues an operation; the epoch of what it accesses."""
    if not w.tensor_issued.last:
        w.cluster.tensor_issuers.append(w)
    return w.tensor_issued.add(int(w.clock[GENERIC, w.agent]))


def pipelined(w: "Warp") -> Array:
    """What an mma of a warp comes after: what the warp knows, and what it is pipelined with."""
    agents, clock = w.cluster.agents, w.clock.copy()
    for other in w.cluster.tensor_issuers:
        known = other.tensor_issued.until(int(w.clock[GENERIC, other.agent]))
        for agent in (agents.tensor_core(other.global_id), agents.tensor_copies(other.global_id)):
            if other is w:
                clock[:, agent] = _EVER
            else:
                clock[:, agent] = max(int(clock[GENERIC, agent]), known)
    return clock


def committed(w: "Warp") -> Array:
    """What is known to whoever sees a commit of a warp: all operations that it has issued."""
    agents, clock = w.cluster.agents, w.clock.copy()
    clock[GENERIC, agents.tensor_core(w.global_id)] = w.tensor_issued.last
    clock[GENERIC, agents.tensor_copies(w.global_id)] = w.tensor_issued.last
    return clock


def queue(w: "Warp", operation: Operation) -> None:
    """Let an operation complete some time, after those that its CTA has issued before."""
    cta = w.cta
    cta.tensor_queue.append(operation)
    w.machine.issue(Operation(lambda: _advance(cta)))


def _advance(cta: "Cta") -> None:
    cta.tensor_queue.popleft().complete()
