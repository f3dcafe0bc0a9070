# SPDX-License-Identifier: Apache-2.0
"""Tensor memory: allocation, and loads and stores by warps.

PTX ISA, sections "Tensor Memory" (9.7.16.1), "tcgen05.alloc, dealloc, relinquish_alloc_permit"
(9.7.16.7), "tcgen05.ld", "tcgen05.st" and "tcgen05.wait" (9.7.16.8) and "tcgen05.fence". An address
is (lane << 16) + column. Stores complete at the wait for them at the latest.
"""

from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.findings.shadow import ALL_BYTES
from pipegen.emulator.machine import shared_memory
from pipegen.emulator.machine.addresses import TMEM_COLUMNS
from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.values import LANE_IDS, WARP, Array, Value, array_of, uniform
from pipegen.emulator.ptx.ir import Instruction, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp

POISON = 0x7FED_DEAD
# Shape -> registers for each repetition, columns for each repetition
_SHAPES = {"32x32b": (1, 1), "16x128b": (2, 4), "16x256b": (4, 8)}


@emits("tcgen05")
def _tensor(c: Emitter, i: Instruction) -> None:
    from pipegen.emulator.machine import tensor_core_copies, tensor_cores

    what = i.parts[1]
    if what == "alloc":
        a, columns = i.operands
        pair = i.has("cta_group::2")
        name = c.use("tmem_alloc_pair", alloc_pair) if pair else c.use("tmem_alloc", alloc)
        c.line(f"while {name}(w, {c.address(a)}, {c.value(columns)}, mask, {c.at}): yield")
    elif what == "dealloc":
        a, columns = i.operands
        name = c.use("tmem_dealloc", dealloc)
        c.line(f"{name}(w, {c.value(a)}, {c.value(columns)}, mask, {c.at})")
    elif what == "relinquish_alloc_permit":
        c.line("w.cta.tmem_closed = True")
    elif what in ("ld", "st"):
        _access(c, i, what)
    elif what == "wait::ld":
        c.line(f"{c.use('tmem_wait_loads', wait_loads)}(w)")
    elif what == "wait::st":
        c.line(f"{c.use('tmem_wait_stores', wait_stores)}(w)")
    elif what.startswith("fence::"):
        return  # the mbarriers that order tcgen05 operations are modelled; this fence is not
    elif what in ("mma", "commit"):
        tensor_cores.emit(c, i)
    elif what == "cp":
        tensor_core_copies.emit(c, i)
    else:
        raise c.unknown("a form of tcgen05 that the emulator does not know")


def _access(c: Emitter, i: Instruction, what: str) -> None:
    parts = [part for part in i.parts[2:] if part not in ("sync", "aligned", "b32")]
    if len(parts) != 2 or parts[0] not in _SHAPES or not parts[1].startswith("x"):
        raise c.unknown(f"a shape of tcgen05.{what} that the emulator does not know")
    shape, count = parts[0], int(parts[1][1:])
    registers = _SHAPES[shape][0] * count
    d, a = i.operands if what == "ld" else reversed(i.operands)
    items = d.items if isinstance(d, Vector) else (d,)
    if len(items) != registers:
        raise c.unknown(f"{len(items)} registers where the shape has {registers}")
    if what == "ld":
        what_for = f"(w, {c.address(a)}, {shape!r}, {count}, mask, {c.at})"
        if c.wants(i):
            c.assign(Vector(items), c.use("tmem_load", load) + what_for)
        else:
            c.line(c.use("tmem_touch", touch) + what_for)
    else:
        name = c.use("tmem_store", store)
        values = "()" if c.sync_only else c.value(Vector(items))
        c.line(f"{name}(w, {c.address(a)}, {shape!r}, {count}, {values}, mask, {c.at})")


def alloc(w: "Warp", address: Value, columns: Value, mask: int, at: int) -> bool:
    """Take columns and write their address to shared memory. Whether the warp must wait."""
    cta, count = w.cta, uniform(columns, mask)
    if count not in (32, 64, 128, 256, 512):
        w.report("tmem-allocation", f"{count} columns: must be a power of 2 from 32 to 512", at)
        return False
    if cta.tmem_closed:
        w.report("tmem-allocation", "tcgen05.alloc after tcgen05.relinquish_alloc_permit", at)
    free = [c for c in range(0, TMEM_COLUMNS, 32) if _is_free(cta, c, count)]
    if not free:
        w.blocked = ("tcgen05.alloc", at)
        cta.tmem_waiting.append(w)
        w.park()
        return True
    w.blocked = None
    cta.tmem_taken[free[0]] = count
    shared_memory.store_shared(w, uniform(address, mask), 4, (free[0],), mask, at)
    return False


REFUSED = -1  # what a pair's second CTA is granted where the first one's request was reported


def alloc_pair(w: "Warp", address: Value, columns: Value, mask: int, at: int) -> bool:
    """As `alloc`, in both CTAs of a pair at once. Whether the warp must wait.

    Two warps, one of each CTA, perform it together (PTX ISA, "Issue Granularity" of tcgen05): the
    first one waits for the other, so that neither CTA's MMA finds the other without its columns.
    """
    cta = w.cta
    if cta.rank ^ 1 >= len(w.cluster.ctas):
        w.report("tmem-allocation", "tcgen05.alloc.cta_group::2 in a cluster without pairs", at)
        return False
    if cta.tmem_granted is None:
        peer, cta.tmem_asked = w.cluster.ctas[cta.rank ^ 1], w
        if peer.tmem_asked is None:
            w.blocked = ("tcgen05.alloc by the pair's other CTA", at)
            w.park()
            return True
        w.blocked = None
        taken = len(cta.tmem_taken)
        if alloc(w, address, columns, mask, at):
            return True
        # The same columns in both: the MMA addresses them by one number.
        cta.tmem_asked, waiter, peer.tmem_asked = None, peer.tmem_asked, None
        peer.tmem_granted = REFUSED
        if len(cta.tmem_taken) > taken:
            start, count = next(reversed(cta.tmem_taken.items()))
            peer.tmem_taken[start] = count
            peer.tmem_granted = start
        w.machine.wake(waiter)
        return False
    start, cta.tmem_granted = cta.tmem_granted, None
    if start == REFUSED:
        return False
    shared_memory.store_shared(w, uniform(address, mask), 4, (start,), mask, at)
    return False


def _is_free(cta: "Cta", start: int, count: int) -> bool:
    end = start + count
    return end <= TMEM_COLUMNS and all(
        end <= taken or taken + size <= start for taken, size in cta.tmem_taken.items()
    )


def dealloc(w: "Warp", address: Value, columns: Value, mask: int, at: int) -> None:
    """Give columns back; whoever still uses them is in a race."""
    start, count = uniform(address, mask) & 0xFFFF, uniform(columns, mask)
    if w.cta.tmem_taken.get(start) != count:
        w.report("tmem-allocation", f"{count} columns at {start} are freed, not allocated so", at)
        return
    del w.cta.tmem_taken[start]
    for quarter in range(4):
        span = slice(quarter * TMEM_COLUMNS + start, quarter * TMEM_COLUMNS + start + count)
        agent = w.cluster.agents.tensor_stores(w.global_id)
        conflict = w.cta.tmem_shadow.write(span, agent, w.stored_epoch + 1, w.clock, at)
        if conflict:
            w.machine.race(w, w.cta, conflict, at, "frees", tensor=True)
    for waiter in w.cta.tmem_waiting:
        waiter.machine.wake(waiter)
    w.cta.tmem_waiting.clear()


def allocated(cta: "Cta", start: int, count: int) -> bool:
    """Whether columns are of one allocation."""
    return any(t <= start and start + count <= t + n for t, n in cta.tmem_taken.items())


def _first(w: "Warp", address: Value, mask: int) -> tuple[int, int]:
    """(lane, column) of an address."""
    where = uniform(address, mask)
    lane = where >> 16
    if w.machine.launch.by_mosaic and lane < 32:
        lane += 32 * (w.number % 4)  # the hardware takes the warp's own quarter
    return lane, where & 0xFFFF


def columns_of(
    w: "Warp", address: Value, shape: str, count: int, mask: int, at: int
) -> slice | None:
    """The columns that an access touches, or None after a finding."""
    lane, column = _first(w, address, mask)
    quarter = w.number % 4
    width = _SHAPES[shape][1] * count
    if lane // 32 != quarter:
        w.report(
            "tmem-allocation",
            f"warp {w.number} accesses TMEM lane {lane}: it may only access lanes {32 * quarter} "
            f"to {32 * quarter + 31}",
            at,
        )
        return None
    if not allocated(w.cta, column, width):
        w.report(
            "tmem-allocation",
            f"TMEM columns {column} to {column + width - 1} are not allocated",
            at,
        )
        return None
    return slice(column, column + width)


def place_of(w: "Warp", address: Value, shape: str, count: int, mask: int) -> tuple[Array, Array]:
    """(lanes, columns) of an access as (registers, 32) arrays."""
    lane, column = _first(w, address, mask)
    registers, width = _SHAPES[shape]
    if shape == "32x32b":
        steps = np.arange(count)[:, None]
        rows, columns = LANE_IDS[None, :] + 0 * steps, column + steps + 0 * LANE_IDS[None, :]
    else:
        r = np.arange(registers)[:, None]
        pair = registers // 2  # columns a lane has in a row
        rows = LANE_IDS // 4 + 8 * (r // pair)
        columns = LANE_IDS % 4 * pair + r % pair
        repeat = np.arange(count)[:, None, None] * width
        rows = np.broadcast_to(rows, (count, registers, WARP)).reshape(-1, WARP)
        columns = column + (columns + repeat).reshape(-1, WARP)
    return (lane + rows).astype(np.int64), columns.astype(np.int64)


def _half(w: "Warp", address: Value, shape: str, mask: int) -> int:
    """Which lanes of a granule an access touches, as a mask of two lanes a bit."""
    if _SHAPES[shape][1] == 1:
        return ALL_BYTES
    return 0xFF00 if _first(w, address, mask)[0] % 32 >= 16 else 0x00FF


def _span(quarter: int, columns: slice) -> slice:
    """The granules of columns in a warp's quarter of the lanes."""
    return slice(quarter * TMEM_COLUMNS + columns.start, quarter * TMEM_COLUMNS + columns.stop)


def load(w: "Warp", address: Value, shape: str, count: int, mask: int, at: int) -> Array:
    """`tcgen05.ld`.

    Compilers pack its registers before the wait, so they must hold the data from the start. That
    others know of the load only after the wait is what the clocks keep.
    """
    result = np.full((_SHAPES[shape][0] * count, WARP), POISON, np.uint32)
    if touch(w, address, shape, count, mask, at) and not w.machine.sync_only:
        result[:] = w.cta.tmem[place_of(w, address, shape, count, mask)]
    return result


def touch(w: "Warp", address: Value, shape: str, count: int, mask: int, at: int) -> bool:
    """Note a `tcgen05.ld`. Whether it is possible."""
    columns = columns_of(w, address, shape, count, mask, at)
    if columns is None:
        return False
    agent = w.cluster.agents.tensor_loads(w.global_id)
    span = _span(w.number % 4, columns)
    half = _half(w, address, shape, mask)
    conflict = w.cta.tmem_shadow.read(span, agent, w.loaded_epoch + 1, w.clock, at, bytes_=half)
    if conflict:
        w.machine.race(w, w.cta, conflict, at, "loads", tensor=True)
    w.tensor_loads[columns] = w.clock[GENERIC, w.agent]
    _flush(w)
    return True


def store(
    w: "Warp", address: Value, shape: str, count: int, data: tuple[Value, ...], mask: int, at: int
) -> None:
    """`tcgen05.st`."""
    columns = columns_of(w, address, shape, count, mask, at)
    if columns is None:
        return
    cta, agent = w.cta, w.cluster.agents.tensor_stores(w.global_id)
    span = _span(w.number % 4, columns)
    conflict = cta.tmem_shadow.write(
        span,
        agent,
        w.stored_epoch + 1,
        w.clock,
        at,
        bytes_=_half(w, address, shape, mask),
        asynchronous=True,
    )
    if conflict:
        w.machine.race(w, cta, conflict, at, "stores to", tensor=True)

    def complete() -> None:
        if not w.machine.sync_only:
            place = place_of(w, address, shape, count, mask)
            cta.tmem[place] = np.stack([array_of(value, 32) for value in data])

    _queue(w, Operation(complete))


def _queue(w: "Warp", operation: Operation) -> None:
    w.tensor_stores.append(operation)
    if w.machine.eager():
        _flush(w)


def _flush(w: "Warp") -> None:
    """Complete the warp's stores, in order."""
    for operation in w.tensor_stores:
        operation.complete()
    w.tensor_stores.clear()


def wait_loads(w: "Warp") -> None:
    """`tcgen05.wait::ld`: the warp's loads so far have been performed."""
    w.loaded_epoch += 1
    w.clock[GENERIC, w.cluster.agents.tensor_loads(w.global_id)] = w.loaded_epoch


def wait_stores(w: "Warp") -> None:
    """`tcgen05.wait::st`: the warp's stores so far have been performed."""
    _flush(w)
    w.stored_epoch += 1
    w.clock[GENERIC, w.cluster.agents.tensor_stores(w.global_id)] = w.stored_epoch
