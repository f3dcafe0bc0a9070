# SPDX-License-Identifier: Apache-2.0
"""Clusters: addresses of other CTAs, the cluster's barrier, and cluster launch control.

PTX ISA, sections "mapa", "getctarank" (9.7.9), "barrier.cluster" (9.7.13.4) and
"clusterlaunchcontrol" (9.7.13.17).
"""

import functools
from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.machine.addresses import OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW
from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.values import FULL, Value, uniform
from pipegen.emulator.ptx.ir import Instruction

if TYPE_CHECKING:
    from pipegen.emulator.machine.barriers import Mbarrier
    from pipegen.emulator.machine.state import Cta, Warp

RESPONSE_BYTES = 16


@emits("mapa", "getctarank")
def _map(c: Emitter, i: Instruction) -> None:
    shared = len(i.parts) > 1 and i.parts[1] == "shared::cluster"
    if i.opcode == "mapa":
        d, a, rank = i.operands
        bits = 32 if shared else 64
        name = c.use("mapa" if shared else "mapa_generic", mapa if shared else mapa_generic)
        c.assign(d, f"{name}({c.value(a, bits)}, {c.value(rank)})")
    elif shared:
        d, a = i.operands
        c.assign(d, f"({c.value(a)} >> {RANK_SHIFT})")
    else:
        raise c.unknown("a form of getctarank that the emulator does not know")


def mapa(address: Value, rank: Value) -> Value:
    """The same place in the shared memory of another CTA of the cluster."""
    if type(address) is int and type(rank) is int:
        return rank << RANK_SHIFT & FULL | address & OFFSET_MASK
    place = np.uint32(address) if type(address) is int else address
    other = np.uint32(rank) if type(rank) is int else rank
    return (other << np.uint32(RANK_SHIFT)) | (place & np.uint32(OFFSET_MASK))


def mapa_generic(address: Value, rank: Value) -> Value:
    """By generic address."""
    if type(address) is int and type(rank) is int:
        return SHARED_WINDOW | mapa(address & FULL, rank)
    low = address & FULL if type(address) is int else (address & np.uint64(FULL)).astype(np.uint32)
    return np.uint64(SHARED_WINDOW) | mapa(low, rank).astype(np.uint64)


def emit_barrier(c: Emitter, i: Instruction) -> None:
    """`barrier.cluster.arrive` and `.wait`."""
    if i.parts[2] == "arrive":
        relaxed = i.has("relaxed")
        c.line(f"{c.use('cluster_arrive', arrive)}(w, {relaxed}, {c.at})")
    elif i.parts[2] == "wait":
        c.line(f"while {c.use('cluster_wait', wait)}(w, {c.at}): yield")
    else:
        raise c.unknown("a form of barrier.cluster that the emulator does not know")


def arrive(w: "Warp", relaxed: bool, at: int) -> None:
    """This warp's threads arrive; relaxed publishes what was fenced before.

    A read that has ended needs no publishing: whoever leaves after the barrier leaves after it.
    """
    cluster = w.cluster
    w.cluster_phase = cluster.barrier_phase
    w.cluster_arrived = True
    cluster.arrived.add(w.global_id)
    known = w.released if relaxed else w.clock
    if known is not None:
        np.maximum(cluster.barrier_clock, known, out=cluster.barrier_clock)
    np.maximum(cluster.barrier_ended, w.ended, out=cluster.barrier_ended)
    w.tick()
    complete_if_all(w)


def complete_if_all(w: "Warp") -> None:
    """The barrier's phase ends when all warps that still run have arrived."""
    cluster = w.cluster
    if not cluster.arrived:
        return
    if any(not o.done and o.global_id not in cluster.arrived for o in cluster.warps):
        return
    cluster.barrier_phase += 1
    cluster.barrier_seen = cluster.barrier_clock.copy()
    cluster.barrier_ended_seen = cluster.barrier_ended.copy()
    cluster.arrived.clear()
    for other in cluster.waiting:
        other.machine.wake(other)
    cluster.waiting.clear()


def wait(w: "Warp", at: int) -> bool:
    """Whether the warp must still wait for the phase it arrived in."""
    cluster = w.cluster
    if not w.cluster_arrived:
        w.report("named-barrier", "barrier.cluster.wait without an arrival before", at)
        return False
    if cluster.barrier_phase > w.cluster_phase:
        w.cluster_arrived = False
        w.blocked = None
        np.maximum(w.clock, cluster.barrier_seen, out=w.clock)
        np.maximum(w.ended, cluster.barrier_ended_seen, out=w.ended)
        return False
    w.blocked = ("barrier.cluster", at)
    cluster.waiting.append(w)
    w.park()
    return True


@emits("clusterlaunchcontrol")
def _launch_control(c: Emitter, i: Instruction) -> None:
    what = i.parts[1]
    if what == "try_cancel":
        a, barrier = i.operands
        everywhere = i.has("multicast::cluster::all")
        name = c.use("clc_try_cancel", try_cancel)
        c.line(f"{name}(w, {c.address(a)}, {c.address(barrier)}, {everywhere}, mask, {c.at})")
        return
    d, handle = i.operands
    if what != "query_cancel":
        raise c.unknown("a form of clusterlaunchcontrol that the emulator does not know")
    field = i.parts[2]
    value = f"{c.use('clc_response', response)}({c.value(handle, 128)}, mask)"
    if field == "is_canceled":
        c.assign(d, f"(FULL if {value}[3] else 0)")
    elif field.startswith("get_first_ctaid"):
        _, _, axis = field.partition("::")
        if axis in ("x", "y", "z"):
            c.assign(d, f"{value}['xyz'.index({axis!r})]")
        else:
            c.assign(d, value)
    else:
        raise c.unknown("a form of clusterlaunchcontrol that the emulator does not know")


def response(handle: Value, mask: int) -> tuple[int, int, int, int]:
    """(x, y, z of the first CTA, whether a launch was cancelled) of a response."""
    if isinstance(handle, tuple):
        low, high = (uniform(part, mask) for part in handle)
        handle = low | high << 64
    word = uniform(handle, mask)
    x, y, z, cancelled = (word >> 32 * n & FULL for n in range(4))
    return x, y, z, cancelled


def try_cancel(
    w: "Warp", target: Value, barrier_at: Value, everywhere: bool, mask: int, at: int
) -> None:
    """Ask for a cluster that has not been launched; the answer comes on an mbarrier."""
    for _ in range(mask.bit_count()):
        address, signal = uniform(target, mask), uniform(barrier_at, mask)
        ranks = range(len(w.cluster.ctas)) if everywhere else (address >> RANK_SHIFT,)
        places = []
        for rank in ranks:
            cta, offset = w.shared_place(rank << RANK_SHIFT | address & OFFSET_MASK, at)
            signal_at = rank << RANK_SHIFT | signal & OFFSET_MASK
            barrier = w.barrier(signal_at, at, by_copy=True)
            if cta is None or barrier is None:
                continue
            span = slice(offset >> 4, (offset >> 4) + 1)
            conflict = cta.shadow.write(span, barrier.agent, barrier.phase + 1, w.clock, at)
            if conflict:
                w.machine.race(w, cta, conflict, at, "writes a response into")
            if cta is not w.cta:
                w.signals(cta, barrier.agent, barrier.phase + 1, at)
            places.append((cta, offset, barrier))
        w.machine.issue(Operation(functools.partial(_answer, w, tuple(places), at)))


def _answer(w: "Warp", places: "tuple[tuple[Cta, int, Mbarrier], ...]", at: int) -> None:
    cluster = w.machine.cancel_launch()
    words = np.zeros(4, np.uint32)
    if cluster is not None:
        first = [c * n for c, n in zip(cluster, w.machine.launch.cluster, strict=True)]
        words[:] = (*first, 1)
    for cta, offset, barrier in places:
        if w.machine.alive(w, cta, at, "the answer of clusterlaunchcontrol.try_cancel"):
            cta.smem[offset : offset + RESPONSE_BYTES] = words.view(np.uint8)
            name = w.machine.program.names[at]
            barrier.deliver(name, at, w.global_id, RESPONSE_BYTES)
