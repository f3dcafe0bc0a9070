# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies that take no tensor map: cp.async and cp.async.bulk, and their groups.

PTX ISA, section "Data Movement and Conversion Instructions: Asynchronous copy" (9.7.9.25):
non-bulk copies with their completion by groups or mbarriers, bulk copies, bulk groups.

A copy reads its source and writes its destination when it completes: at the wait for it at the
latest, and at its issue at the earliest. Groups of bulk stores belong to a thread; here they belong
to the warp, whose lanes are taken as one.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine.access_runs import copy_run
from pipegen.emulator.machine.addresses import SMEM_BASE
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.global_memory import outside
from pipegen.emulator.machine.global_order import note_read, note_write
from pipegen.emulator.machine.shared_memory import granules, shared_cta
from pipegen.emulator.machine.values import (
    FULL,
    Value,
    array_of,
    by_lane,
    lane_list,
    lanes,
    uniform,
)
from pipegen.emulator.ptx.ir import Instruction

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp


class Operation:
    """Something that completes on its own, once."""

    __slots__ = ("action", "done")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.done = False

    def complete(self) -> None:
        """Do it, if it is not done yet."""
        if not self.done:
            self.done = True
            self.action()


class Group:
    """Operations that are waited for together. `epoch` is their agent's when they are done."""

    __slots__ = ("epoch", "operations")

    def __init__(self, operations: list[Operation], epoch: int) -> None:
        self.operations = operations
        self.epoch = epoch

    def complete(self) -> None:
        """Complete all."""
        for operation in self.operations:
            operation.complete()


@emits("cp")
def _copy(c: Emitter, i: Instruction) -> None:
    from pipegen.emulator.machine import tensor_copies

    parts = i.parts
    if parts[:2] == ("cp", "reduce") or parts[1] != "async":
        raise c.unknown("a copy that the emulator does not know")
    if parts[2:4] == ("bulk", "tensor"):
        tensor_copies.emit(c, i)
    elif parts[2:4] == ("bulk", "prefetch"):
        return  # a hint
    elif parts[2] == "bulk":
        _bulk(c, i)
    elif parts[2] == "commit_group":
        c.line(f"{c.use('copies_commit', commit_copies)}(w)")
    elif parts[2] in ("wait_group", "wait_all"):
        n = c.value(i.operands[0]) if i.operands else "0"
        if parts[2] == "wait_all":
            c.line(f"{c.use('copies_commit', commit_copies)}(w)")
        c.line(f"{c.use('copies_wait', wait_copies)}(w, {n})")
    elif parts[2:4] == ("mbarrier", "arrive"):
        name = c.use("copies_arrive", arrive_after_copies)
        noinc = i.has("noinc")
        c.line(f"{name}(w, {c.address(i.operands[0])}, mask, {c.at}, {noinc})")
    elif parts[2] in ("ca", "cg"):
        d, s, size, *more = i.operands
        if len(more) > 1 or set(parts[3:]) - {
            "shared", "shared::cta", "global", "L2::128B", "L2::64B", "L2::256B", "L2::cache_hint"
        }:  # fmt: skip
            raise c.unknown("a form of cp.async that the emulator does not know")
        if c.sync_only:
            where = f"{c.value(size)}, mask, {c.at}"
            c.line_of_addresses(c.use("copy_run", copy_run), d, where)
            return
        source_size = c.value(more[0]) if more and not i.has("L2::cache_hint") else c.value(size)
        name = c.use("copy_async", copy_async)
        where = f"{c.address(d)}, {c.address(s, 64)}, {c.value(size)}, {source_size}"
        c.line(f"{name}(w, {where}, mask, {c.at})")
    else:
        raise c.unknown("a copy that the emulator does not know")


def copy_async(
    w: "Warp", target: Value, source: Value, size: int, given: Value, mask: int, at: int
) -> None:
    """cp.async: `size` bytes a lane, of which `given` come from global memory, the rest is 0."""
    cta, offset = shared_cta(w, target, mask, at)
    if cta is None:
        return
    agent = w.cluster.agents.copies(w.global_id)
    epoch = w.copy_epoch + 1
    where, part = granules(offset, size)
    conflict = cta.shadow.write(where, agent, epoch, w.clock, at, part)
    if conflict:
        w.machine.race(w, cta, conflict, at, "copies into")
    target_cta, offsets = cta, offset
    if not w.machine.sync_only:
        _note_copy(w, source, given, (agent, epoch), mask, at)
    operation = Operation(
        lambda: _copy_lanes(w, target_cta, offsets, source, size, given, mask, at)
    )
    w.copies_open.append(operation)
    if w.machine.eager():
        operation.complete()


def _note_copy(
    w: "Warp", source: Value, given: Value, by: tuple[int, int], mask: int, at: int
) -> None:
    """Note what a cp.async reads. What lies outside the buffers is told when it completes."""
    starts = array_of(source, 64)
    starts = (starts if mask == FULL else starts[lanes(mask)]).astype(np.int64)
    counts: Any = given
    if type(given) is not int:
        counts = given[lanes(mask)]
        lowest = int(counts.min())
        counts = lowest if lowest == int(counts.max()) else counts
    for count in {counts} - {0} if type(counts) is int else set(counts.tolist()) - {0}:
        first = starts if type(counts) is int else starts[counts == count]
        region = w.machine.memory.find(int(first.min()), int(first.max()) + count)
        if region is not None:
            note_read(w, region, first, count, by, at)


def _copy_lanes(
    w: "Warp", cta: "Cta", offset: Value, source: Value, size: int, given: Value, mask: int, at: int
) -> None:
    if type(offset) is int or type(source) is int:
        for lane in lane_list(mask):
            where = offset if type(offset) is int else int(offset[lane_list(mask).index(lane)])
            start = source if type(source) is int else int(source[lane])
            count = given if type(given) is int else int(given[lane])
            _copy_one(w, cta, where, start, size, count, at)
        return
    chosen = lanes(mask)
    starts = source[chosen].astype(np.int64)
    counts = array_of(given, 32)[chosen].astype(np.int64)
    data = np.zeros((len(starts), size), np.uint8)
    needed = counts > 0
    if needed.any():
        low, high = int(starts[needed].min()), int(starts[needed].max()) + size
        region = w.machine.memory.find(low, high)
        if region is None:
            for where, start, count in zip(offset, starts, counts, strict=True):
                _copy_one(w, cta, int(where), int(start), size, int(count), at)
            return
        along = np.arange(size)
        read = starts[needed][:, None] - region.start + along
        data[needed] = np.where(along < counts[needed][:, None], region.bytes[read], 0)
    cta.smem[offset.astype(np.int64)[:, None] + np.arange(size)] = data


def _copy_one(
    w: "Warp", cta: "Cta", offset: int, source: int, size: int, count: int, at: int
) -> None:
    cta.smem[offset : offset + size] = 0
    if count == 0:
        return
    region = w.machine.memory.find(source, source + count)
    if region is None:
        outside(w, "copy", source, count, at)
        return
    start = source - region.start
    cta.smem[offset : offset + count] = region.bytes[start : start + count]


def commit_copies(w: "Warp") -> None:
    """`cp.async.commit_group`."""
    w.copy_epoch += 1
    w.copies.append(Group(w.copies_open, w.copy_epoch))
    w.copies_open = []


def wait_copies(w: "Warp", n: int) -> None:
    """`cp.async.wait_group n`: at most the newest n groups are still under way."""
    agent = w.cluster.agents.copies(w.global_id)
    while len(w.copies) > n:
        group = w.copies.popleft()
        group.complete()
        w.clock[GENERIC, agent] = group.epoch


def arrive_after_copies(w: "Warp", address: Value, mask: int, at: int, noinc: bool) -> None:
    """`cp.async.mbarrier.arrive`: the lanes arrive once their copies so far have completed."""
    barrier = w.barrier(uniform(address, mask), at)
    if barrier is None:
        return
    count = mask.bit_count()
    if not noinc:
        barrier.pending += count
    commit_copies(w)  # an epoch of its own; the copies stay in the order of their groups
    group = w.copies.pop()
    earlier = list(w.copies)
    agent = w.cluster.agents.copies(w.global_id)
    clock = w.cluster.agents.clock()
    clock[GENERIC, agent] = group.epoch
    target = barrier

    def complete() -> None:
        for each in earlier:
            each.complete()
        group.complete()
        target.arrive(w.machine.program.names[at], at, w.global_id, count, 0, clock)

    w.machine.issue(Operation(complete))


def _bulk(c: Emitter, i: Instruction) -> None:
    parts = i.parts
    if parts[3] == "commit_group":
        c.line(f"{c.use('bulk_commit', commit_bulk)}(w)")
    elif parts[3] == "wait_group":
        name = c.use("bulk_wait", wait_bulk)
        c.line(f"{name}(w, {c.value(i.operands[0])}, {i.has('read')})")
    elif parts[3] in ("shared::cluster", "shared::cta") and parts[4] in ("global", "shared::cta"):
        d, s, size, barrier, *_ = i.operands
        known = {"mbarrier::complete_tx::bytes", "L2::cache_hint"}
        if set(parts[5:]) - known:
            raise c.unknown("a form of cp.async.bulk that the emulator does not know")
        name = c.use("bulk_load", load_bulk)
        from_global = parts[4] == "global"
        source = c.address(s, 64 if from_global else 32)
        where = f"{c.address(d)}, {source}, {c.value(size)}, {c.address(barrier)}"
        c.line(f"if {name}(w, {where}, {from_global}, mask, {c.at}): yield")
    elif parts[3] == "global" and parts[4] == "shared::cta" and parts[5] == "bulk_group":
        d, s, size, *_ = i.operands
        name = c.use("bulk_store", store_bulk)
        where = f"{c.address(d, 64)}, {c.address(s)}, {c.value(size)}"
        c.line(f"{name}(w, {where}, mask, {c.at})")
    else:
        raise c.unknown("a form of cp.async.bulk that the emulator does not know")


def store_operation(
    w: "Warp", where: Any, at: int, action: Callable[[], None], what: str = "stores from"
) -> None:
    """Queue a bulk store of this CTA's shared memory: part of the warp's open bulk group."""
    agent = w.cluster.agents.stores(w.global_id)
    conflict = w.cta.shadow.read(where, agent, w.bulk_epoch + 1, w.clock, at, asynchronous=True)
    if conflict:
        w.machine.race(w, w.cta, conflict, at, what)
    operation = Operation(action)
    w.bulk_open.append(operation)
    if w.machine.eager():
        operation.complete()


def writes_of(w: "Warp") -> tuple[int, int]:
    """(agent, epoch) of what the warp's open bulk group writes to global memory."""
    return w.cluster.agents.global_writes(w.global_id), w.bulk_epoch + 1


def commit_bulk(w: "Warp") -> None:
    """`cp.async.bulk.commit_group`."""
    w.bulk_epoch += 1
    w.bulk.append(Group(w.bulk_open, w.bulk_epoch))
    w.bulk_open = []


def wait_bulk(w: "Warp", n: int, read: bool) -> None:
    """`cp.async.bulk.wait_group n`; with .read nothing is known of the writes to global memory."""
    if not read:
        written = w.cluster.agents.global_writes(w.global_id)
        w.clock[GENERIC, written] = max(w.clock[GENERIC, written], w.bulk_epoch - n)
    agent = w.cluster.agents.stores(w.global_id)
    while len(w.bulk) > n:
        group = w.bulk.popleft()
        group.complete()
        w.clock[GENERIC, agent] = group.epoch


def load_bulk(
    w: "Warp",
    target: Value,
    source: Value,
    size: Value,
    barrier_at: Value,
    from_global: bool,
    mask: int,
    at: int,
) -> bool:
    """A bulk copy into shared memory, which completes on an mbarrier."""
    values = (by_lane(v, mask) for v in (target, source, size, barrier_at))
    for to, start, bytes_, where in zip(*values, strict=True):
        cta, offset = w.shared_place(to, at)
        barrier = w.barrier(where, at, by_copy=True)
        if cta is None or barrier is None:
            continue
        if bytes_ % 16 or offset % 16:
            w.report(
                "misaligned",
                f"a bulk copy of {bytes_} B to SMEM offset {offset - SMEM_BASE:#x}",
                at,
            )
        span = slice(offset >> 4, (offset + bytes_ + 15) >> 4)
        conflict = cta.shadow.write(
            span, barrier.agent, barrier.phase + 1, w.clock, at, asynchronous=True
        )
        if conflict:
            w.machine.race(w, cta, conflict, at, "copies into")
        for reached in {cta, barrier.cta} - {w.cta}:
            w.signals(reached, barrier.agent, barrier.phase + 1, at)
        region = w.machine.memory.find(start, start + bytes_) if from_global else None
        if region is not None:
            note_read(w, region, start, bytes_, (barrier.agent, barrier.phase + 1), at)
        deliver = functools.partial(
            _deliver_bulk, w, cta, offset, start, bytes_, barrier, from_global, at
        )
        w.machine.issue(Operation(deliver))
    return w.machine.pause()


def _deliver_bulk(
    w: "Warp",
    cta: "Cta",
    offset: int,
    start: int,
    bytes_: int,
    barrier: Any,
    from_global: bool,
    at: int,
) -> None:
    if not w.machine.alive(w, cta, at, "a bulk copy"):
        return
    if from_global:
        region = w.machine.memory.find(start, start + bytes_)
        if region is None:
            outside(w, "bulk copy", start, bytes_, at)
        else:
            low = start - region.start
            cta.smem[offset : offset + bytes_] = region.bytes[low : low + bytes_]
    else:
        source, low = w.shared_place(start, at)
        if source is not None:
            cta.smem[offset : offset + bytes_] = source.smem[low : low + bytes_]
    barrier.deliver(w.machine.program.names[at], at, w.global_id, bytes_)


def store_bulk(w: "Warp", target: Value, source: Value, size: Value, mask: int, at: int) -> None:
    """A bulk copy from shared to global memory, part of a bulk group."""
    targets, sources, sizes = (by_lane(v, mask) for v in (target, source, size))
    for to, start, bytes_ in dict.fromkeys(zip(targets, sources, sizes, strict=True)):
        cta, offset = w.shared_place(start, at)
        if cta is not w.cta:
            continue
        span = slice(offset >> 4, (offset + bytes_ + 15) >> 4)
        store_operation(w, span, at, functools.partial(_write_bulk, w, to, offset, bytes_, at))
        region = w.machine.memory.find(to, to + bytes_)
        if region is not None:
            note_write(w, region, to, bytes_, writes_of(w), at)


def _write_bulk(w: "Warp", to: int, offset: int, bytes_: int, at: int) -> None:
    region = w.machine.memory.find(to, to + bytes_)
    if region is None:
        outside(w, "bulk store", to, bytes_, at)
        return
    start = to - region.start
    region.bytes[start : start + bytes_] = w.cta.smem[offset : offset + bytes_]
