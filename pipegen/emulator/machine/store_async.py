# SPDX-License-Identifier: Apache-2.0
"""Stores of registers into another CTA's shared memory that complete on an mbarrier there.

PTX ISA, section "Data Movement and Conversion Instructions: st.async" (9.7.9.12).
"""

import functools
from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.emitting import Emitter, type_of
from pipegen.emulator.machine.shared_memory import granules
from pipegen.emulator.machine.values import UINT, Array, Value, by_lane
from pipegen.emulator.ptx.ir import Instruction, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.barriers import Mbarrier
    from pipegen.emulator.machine.state import Cta, Warp

_KNOWN = frozenset(["async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes", "v2", "v4"])


def emit(c: Emitter, i: Instruction) -> None:
    """`st.async`, by which each lane sends its own registers."""
    _, bits = type_of(i.parts[-1], c)
    if set(i.parts[1:-1]) - _KNOWN or "shared::cluster" not in i.parts or bits not in (32, 64):
        raise c.unknown("a form of st.async that the emulator does not know")
    a, source, barrier = i.operands
    items = source.items if isinstance(source, Vector) else (source,)
    data = "()" if c.sync_only else "".join(f"{c.value(item, bits)}, " for item in items)
    name = c.use("store_async", store)
    where = f"{c.address(a)}, {c.address(barrier)}, {bits // 8}, {len(items)}"
    c.line(f"if {name}(w, {where}, ({data}), mask, {c.at}): yield")


def store(
    w: "Warp",
    address: Value,
    barrier_at: Value,
    size: int,
    count: int,
    data: tuple[Value, ...],
    mask: int,
    at: int,
) -> bool:
    """`count` registers of `size` bytes of each lane. Whether to let others run."""
    bytes_ = size * count
    columns = [by_lane(value, mask) for value in data]
    places = zip(by_lane(address, mask), by_lane(barrier_at, mask), strict=True)
    for number, (to, signal) in enumerate(places):
        cta, offset = w.shared_place(to, at)
        barrier = w.barrier(signal, at, by_copy=True)
        if cta is None or barrier is None:
            continue
        if cta is not barrier.cta:
            w.report(
                "outside-cluster",
                f"st.async to CTA {cta.rank} signals an mbarrier of CTA {barrier.cta.rank}: it "
                "must be in the same CTA",
                at,
            )
        if offset % bytes_:
            w.report("misaligned", f"st.async of {bytes_} B", at)
        where, part = granules(offset, bytes_)
        epoch = barrier.phase + 1
        conflict = cta.shadow.write(where, barrier.agent, epoch, w.clock, at, part)
        if conflict:
            w.machine.race(w, cta, conflict, at, "writes")
        if cta is not w.cta:
            w.signals(cta, barrier.agent, epoch, at)
        words = np.array([column[number] for column in columns], np.uint64).astype(UINT[8 * size])
        w.machine.issue(
            Operation(functools.partial(_deliver, w, cta, offset, words, bytes_, barrier, at))
        )
    return w.machine.pause()


def _deliver(
    w: "Warp", cta: "Cta", offset: int, words: Array, bytes_: int, barrier: "Mbarrier", at: int
) -> None:
    if not w.machine.alive(w, cta, at, "st.async"):
        return
    if w.machine.sync_only:
        cta.leave_out(granules(offset, bytes_)[0])
    else:
        cta.smem[offset : offset + bytes_] = words.view(np.uint8)
    barrier.deliver(w.machine.program.names[at], at, w.global_id, bytes_)
