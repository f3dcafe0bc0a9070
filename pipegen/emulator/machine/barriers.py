# SPDX-License-Identifier: Apache-2.0
"""mbarrier objects and what warps do with them.

PTX ISA, section "Parallel Synchronization and Communication Instructions: mbarrier" (9.7.13.15):
contents of the object (phase, pending count, expected count, tx-count), phase completion,
expect-tx and complete-tx operations, and the instructions init, inval, arrive, arrive_drop,
expect_tx, complete_tx, test_wait and try_wait.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine.addresses import SMEM_BASE
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.values import (
    FULL,
    Array,
    Value,
    by_lane,
    lane_list,
    uniform,
)
from pipegen.emulator.ptx.ir import Instruction, Symbol

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp

COUNT_MAX = (1 << 20) - 1  # of arrivals, and of pending bytes
HISTORY = 8


class Mbarrier:
    """One mbarrier object.

    `expected` arrivals complete a phase, `pending` are still missing, `tx` bytes were announced
    and not delivered yet (negative: delivered before they were announced). `phase` counts
    completed phases. `seen` is the clock at the last completion, which waiters take over.
    """

    __slots__ = (
        "agent",
        "arrivals",
        "clock",
        "cta",
        "expected",
        "init_at",
        "init_by",
        "init_epoch",
        "offset",
        "pending",
        "phase",
        "seen",
        "tx",
        "waiters",
    )

    def __init__(self, cta: "Cta", offset: int, expected: int, at: int) -> None:
        self.cta = cta
        self.offset = offset
        self.expected = self.pending = expected
        self.phase = 0
        self.tx = 0
        self.agent = cta.cluster.agents.barrier()
        self.clock: Array = cta.cluster.agents.clock()
        self.seen: Array = self.clock.copy()
        self.waiters: list[Warp] = []
        self.arrivals: list[tuple[str, int, int, int]] = []  # (what, at, warp, count)
        self.init_at = at
        self.init_by = self.init_epoch = 0

    def done(self, parity: int) -> bool:
        """Whether the phase of this parity has completed (the `.parity` forms of the waits)."""
        return (self.phase ^ parity) & 1 == 1

    def arrive(self, what: str, at: int, warp: int, count: int, expect: int, clock: Array) -> None:
        """`expect` bytes announced, then `count` arrivals, with what the signaller knew."""
        np.maximum(self.clock, clock, out=self.clock)
        self.arrivals.append((what, at, warp, count))
        if len(self.arrivals) > HISTORY:
            del self.arrivals[0]
        self.tx += expect
        if count > self.pending:
            self.cta.machine.report(
                "arrive-count",
                f"{self.describe()} got {count} arrivals where {self.pending} were missing: it was "
                f"initialised for {self.expected}",
                [(self.cta, warp, at), (self.cta, 0, self.init_at)],
            )
            self.pending = 0
        else:
            self.pending -= count
        self._check(at, warp)

    def deliver(self, what: str, at: int, warp: int, count: int) -> None:
        """The complete-tx operation: `count` bytes have arrived."""
        self.tx -= count
        self.arrivals.append((what, at, warp, 0))
        self._check(at, warp)

    def _check(self, at: int, warp: int) -> None:
        if abs(self.tx) > COUNT_MAX:
            self.cta.machine.report(
                "tx-count",
                f"the tx-count of {self.describe()} reached {self.tx}: it holds -(2**20 - 1) to "
                "2**20 - 1",
                [(self.cta, warp, at)],
            )
            self.tx = 0
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.expected
            self.clock[:, self.agent] = self.phase
            self.seen = self.clock.copy()
            for waiter in self.waiters:
                self.cta.machine.wake(waiter)
            self.waiters.clear()

    def describe(self) -> str:
        """The barrier for a message."""
        name = self._name_by_offset() or self.cta.machine.source_names.barrier(self.init_at)
        where = f"SMEM offset {self.offset - SMEM_BASE:#x} of CTA {self.cta.rank}"
        return f"the mbarrier at {where} ({name})" if name else f"the mbarrier at {where}"

    def _name_by_offset(self) -> str:
        """The name that the launch has for this place, if it has one for each of the CTA's."""
        names = dict(self.cta.machine.launch.barriers)
        if any(offset - SMEM_BASE not in names for offset in self.cta.barriers):
            return ""
        return names.get(self.offset - SMEM_BASE, "")


@emits("mbarrier")
def _mbarrier(c: Emitter, i: Instruction) -> None:
    handler = {
        "init": _emit_init,
        "inval": _emit_inval,
        "arrive": _emit_arrive,
        "arrive_drop": _emit_arrive,
        "expect_tx": _emit_expect,
        "complete_tx": _emit_complete,
        "try_wait": _emit_wait,
        "test_wait": _emit_wait,
    }.get(i.parts[1])
    known = {"shared", "shared::cta", "shared::cluster", "b64", "parity", "expect_tx", "noComplete"}
    known |= {"acquire", "release", "relaxed", "cta", "cluster"}
    if handler is None or set(i.parts[2:]) - known:
        raise c.unknown("a form of mbarrier that the emulator does not know")
    if not any(part.startswith("shared") for part in i.parts):
        raise c.unknown("an mbarrier by generic address, which the emulator does not know")
    handler(c, i)


def _emit_init(c: Emitter, i: Instruction) -> None:
    a, count = i.operands
    name = c.use("mbarrier_init", init)
    c.line(f"{name}(w, {c.address(a)}, {c.value(count)}, mask, {c.at})")


def _emit_inval(c: Emitter, i: Instruction) -> None:
    c.line(f"{c.use('mbarrier_inval', inval)}(w, {c.address(i.operands[0])}, mask, {c.at})")


def _emit_arrive(c: Emitter, i: Instruction) -> None:
    state, a, *more = i.operands
    expects = i.has("expect_tx")
    count = c.value(more[0]) if more else "1"
    if expects:
        count, expect = "1", c.value(more[0])
    else:
        expect = "0"
    if not isinstance(state, Symbol) and state_is_used(c, state):
        raise c.unknown("an arrival whose state is used: waits by state are not known")
    drop = i.parts[1] == "arrive_drop"
    relaxed = i.has("relaxed")
    name = c.use("mbarrier_arrive", arrive)
    c.line(
        f"if {name}(w, {c.address(a)}, {count}, {expect}, mask, {c.at}, {drop}, {relaxed}): yield"
    )


def state_is_used(c: Emitter, state: Any) -> bool:
    """Whether another instruction reads the state that an arrival returned."""
    for other in c.kernel.instructions:
        if other is not c.current and other.opcode == "mbarrier" and state in other.operands[1:]:
            return True
    return False


def _emit_expect(c: Emitter, i: Instruction) -> None:
    a, bytes_ = i.operands
    name = c.use("mbarrier_expect", expect)
    c.line(f"{name}(w, {c.address(a)}, {c.value(bytes_)}, mask, {c.at})")


def _emit_complete(c: Emitter, i: Instruction) -> None:
    raise c.unknown("mbarrier.complete_tx, which the emulator does not know")


def _emit_wait(c: Emitter, i: Instruction) -> None:
    d, a, parity, *_ = i.operands
    if not i.has("parity"):
        raise c.unknown("a wait by state: only .parity is known")
    spin = c.spins
    t = c.temporary()
    blocking = i.parts[1] == "try_wait"
    if spin and not c.guarded:
        c.line("if stack and stack[-1][2] and (other := turn(stack, pc, mask)):")
        c.line("    pc, mask = other; full = mask == FULL; continue")
    c.line(f"{t}_a = {c.address(a)}; {t}_p = {c.value(parity)}")
    wait = c.use("mbarrier_wait", wait_parity)
    # 2: parked, to be tried again; else the lanes whose phase has completed.
    if spin:
        c.line("w.waiting_forever = True")
        c.line(f"while ({t} := {wait}(w, {t}_a, {t}_p, mask, {c.at}, True)) is None: yield")
        c.line("w.waiting_forever = False")
    else:
        c.line(f"{t} = {wait}(w, {t}_a, {t}_p, mask, {c.at}, {blocking})")
        c.line(f"if {t} is None:")
        c.line("    yield")
        c.line(f"    {t} = {wait}(w, {t}_a, {t}_p, mask, {c.at}, False)")
    c.assign(d, t)


def init(w: "Warp", address: Value, count: Value, mask: int, at: int) -> None:
    """`mbarrier.init`: a new object, in phase 0 with all arrivals missing."""
    cta, offset = w.shared_place(uniform(address, mask), at)
    if cta is None:
        return
    if offset % 8:
        w.report(
            "misaligned",
            f"an mbarrier at SMEM offset {offset - SMEM_BASE:#x}: must be 8 B aligned",
            at,
        )
    number = uniform(count, mask)
    if not 1 <= number <= COUNT_MAX:
        w.report("barrier-count", f"an mbarrier with count {number}: must be 1 to 2**20 - 1", at)
        number = min(max(number, 1), COUNT_MAX)
    old = cta.barriers.get(offset)
    if old is not None and (old.phase or old.arrivals or old.waiters):
        w.report(
            "barrier-initialised-twice",
            f"{old.describe()} is in use (phase {old.phase}) and is initialised again",
            at,
            [(cta, 0, old.init_at)],
        )
    cta.barriers[offset] = barrier = Mbarrier(cta, offset, number, at)
    # Others may use it once they know of this.
    barrier.init_by, barrier.init_epoch = w.agent, int(w.clock[GENERIC, w.agent])


def inval(w: "Warp", address: Value, mask: int, at: int) -> None:
    """`mbarrier.inval`: the bytes are free for other use."""
    barrier = w.barrier(uniform(address, mask), at)
    if barrier is not None:
        del barrier.cta.barriers[barrier.offset]


def arrive(
    w: "Warp",
    address: Value,
    count: Value,
    bytes_: Value,
    mask: int,
    at: int,
    drop: bool = False,
    relaxed: bool = False,
) -> bool:
    """Arrivals of all active lanes, with the bytes each announces. Whether to let others run."""
    clock = w.clock
    if type(address) is int and type(count) is int and type(bytes_) is int:
        lanes = mask.bit_count()
        groups = [(address, count * lanes, bytes_ * lanes)]
    else:
        groups = _grouped(address, count, bytes_, mask)
    for where, arrivals, expected in groups:
        barrier = w.barrier(where, at)
        if barrier is not None:
            if drop:
                barrier.expected -= arrivals
            what = w.machine.program.names[at]
            barrier.arrive(what, at, w.global_id, arrivals, expected, clock)
    w.tick()
    return w.machine.pause()


def _grouped(address: Value, count: Value, bytes_: Value, mask: int) -> list[tuple[int, int, int]]:
    found: dict[int, tuple[int, int]] = {}
    columns = (by_lane(value, mask) for value in (address, count, bytes_))
    for where, arrivals, expected in zip(*columns, strict=True):
        before = found.get(where, (0, 0))
        found[where] = before[0] + arrivals, before[1] + expected
    return [(where, *numbers) for where, numbers in found.items()]


def expect(w: "Warp", address: Value, bytes_: Value, mask: int, at: int) -> None:
    """`mbarrier.expect_tx`: bytes are announced, nobody arrives."""
    for where, _, expected in _grouped(address, 0, bytes_, mask):
        barrier = w.barrier(where, at)
        if barrier is not None:
            barrier.tx += expected


def wait_parity(
    w: "Warp", address: Value, parity: Value, mask: int, at: int, park: bool
) -> int | None:
    """The lanes whose phase has completed, or None: parked until the barrier's phase completes."""
    if type(address) is int and type(parity) is int:
        return _wait_one(w, address, parity, mask, at, park)
    if type(address) is not int or type(parity) is not int:
        done = 0
        places = by_lane(address, mask), by_lane(parity, mask)
        for lane, where, bit in zip(lane_list(mask), *places, strict=True):
            found = _wait_one(w, where, bit, 1 << lane, at, park)
            if found is None:
                return None
            done |= found
        return done
    return 0


def _wait_one(w: "Warp", address: int, parity: int, mask: int, at: int, park: bool) -> int | None:
    barrier = w.barrier(address, at)
    if barrier is None:
        # Reported. Going on as if it had completed shows what else is wrong.
        return FULL
    if (barrier.phase ^ parity) & 1:
        np.maximum(w.clock, barrier.seen, out=w.clock)
        w.waiting = None
        return FULL
    before = w.waiting
    w.waiting = None
    if before is not None and before[0] is barrier and barrier.phase > before[1] + 1:
        w.report(
            "phase-wrap",
            f"{barrier.describe()} completed phases {before[1]} to {barrier.phase - 1} before this "
            f"waiter, which waits for parity {parity}, saw the first",
            at,
        )
    if w.out_of_patience:
        w.out_of_patience = False
        return 0
    if not park:
        return 0
    w.waiting = barrier, barrier.phase, parity, at
    barrier.waiters.append(w)
    w.park()
    return None
