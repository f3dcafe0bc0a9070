# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a warp do together, and the barriers of a CTA.

PTX ISA, sections "bar, barrier", "bar.warp.sync", "elect.sync", "shfl.sync", "vote.sync",
"match.sync", "activemask", "redux.sync", "fence", "griddepcontrol" (9.7.13) and "setmaxnreg",
"nanosleep" (9.7.20).
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.values import (
    FULL,
    INT,
    LANE_IDS,
    WARP,
    Array,
    Value,
    array_of,
    lanes,
    pack,
    uniform,
)
from pipegen.emulator.ptx.ir import Instruction

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

NAMED_BARRIERS = 16


class NamedBarrier:
    """One of a CTA's 16 barriers: arrivals in threads, counted by whole warps."""

    def __init__(self, expected: int, clock: Array) -> None:
        self.expected = expected
        self.arrived = 0
        self.waiting: list[Warp] = []
        self.clock = clock


@emits("bar", "barrier")
def _barrier(c: Emitter, i: Instruction) -> None:
    parts = [part for part in i.parts[1:] if part not in ("cta", "aligned")]
    if parts[:1] == ["cluster"]:
        from pipegen.emulator.machine import clusters

        clusters.emit_barrier(c, i)
    elif parts[:2] == ["warp", "sync"]:
        return  # the lanes of a warp run together
    elif parts in (["sync"], ["arrive"]):
        number, *count = i.operands
        threads = c.value(count[0]) if count else "None"
        name = c.use("named_barrier", named_barrier)
        waits = parts == ["sync"]
        c.line(f"if {name}(w, {c.value(number)}, {threads}, {waits}, mask, {c.at}): yield")
    else:
        raise c.unknown("a form of barrier that the emulator does not know")


def named_barrier(
    w: "Warp", number: Value, threads: Value, waits: bool, mask: int, at: int
) -> bool:
    """`bar.sync` and `bar.arrive`. Whether the warp must wait."""
    cta = w.cta
    which = uniform(number, mask)
    expected = len(cta.warps) * WARP if threads is None else uniform(threads, mask)
    if which >= NAMED_BARRIERS or expected % WARP or expected == 0:
        w.report("named-barrier", f"barrier {which} for {expected} threads: not possible", at)
        return False
    barrier = cta.named.get(which)
    if barrier is None or barrier.arrived == 0:
        barrier = cta.named[which] = NamedBarrier(expected, cta.cluster.agents.clock())
    if barrier.expected != expected:
        w.report(
            "named-barrier",
            f"barrier {which} is used for {barrier.expected} and for {expected} threads at once",
            at,
        )
    barrier.arrived += WARP
    np.maximum(barrier.clock, w.clock, out=barrier.clock)
    if waits:
        # "Prior memory accesses requested by this thread are performed" (PTX ISA, 9.7.13.1, bar).
        w.ended[w.agent] = w.clock[GENERIC, w.agent]
    w.tick()
    if waits:
        barrier.waiting.append(w)
    if barrier.arrived < barrier.expected:
        if waits:
            w.blocked = (f"named barrier {which}", at)
            w.park()
        return waits
    for other in barrier.waiting:
        np.maximum(other.clock, barrier.clock, out=other.clock)
        if other is not w:
            other.machine.wake(other)
    barrier.arrived = 0
    barrier.waiting = []
    return False


@emits("elect")
def _elect(c: Emitter, i: Instruction) -> None:
    d, members = i.operands
    c.assign_pair(d, f"{c.use('elect', elect)}({c.value(members)}, mask)")


def elect(members: Value, mask: int) -> tuple[int, int]:
    """(leader lane, its predicate): the lowest of the member lanes."""
    chosen = (uniform(members, mask) & mask) or mask
    leader = chosen & -chosen
    return leader.bit_length() - 1, leader


@emits("shfl")
def _shuffle(c: Emitter, i: Instruction) -> None:
    if i.parts[1] != "sync" or i.parts[2] not in ("idx", "up", "down", "bfly"):
        raise c.unknown("a form of shfl that the emulator does not know")
    d, a, b, clamp, _ = i.operands
    name = c.use(f"shfl_{i.parts[2]}", functools.partial(shuffle, i.parts[2]))
    c.assign_pair(d, f"{name}({c.value(a)}, {c.value(b)}, {c.value(clamp)}, mask)")


def shuffle(mode: str, a: Value, b: Value, clamp: Value, mask: int) -> tuple[Value, int]:
    """(values of other lanes, predicate: whether that lane was in range)."""
    if type(a) is int and type(b) is int and mode == "idx":
        return a, FULL
    control = uniform(clamp, mask)
    segment, limit = control >> 8 & 31, control & 31
    lane = LANE_IDS.astype(np.int64)
    amount = array_of(b, 32).astype(np.int64) & 31
    low = lane & segment
    high = low | (limit & ~segment)
    if mode == "up":
        source = lane - amount
        valid = source >= high
    elif mode == "down":
        source = lane + amount
        valid = source <= high
    elif mode == "bfly":
        source = lane ^ amount
        valid = source <= high
    else:
        source = low | (amount & ~segment)
        valid = source <= high
    source = np.where(valid, source, lane)
    if type(a) is int:
        return a, pack(valid)
    found = array_of(a, 32)[source]
    if type(b) is int and mode == "idx" and segment == 0:
        return int(found[0]), pack(valid)
    return found, pack(valid)


@emits("vote", "activemask", "match", "redux")
def _vote(c: Emitter, i: Instruction) -> None:
    d = i.operands[0]
    if i.opcode == "activemask":
        c.assign(d, "mask")
        return
    if i.opcode == "vote" and i.parts[1] == "sync" and i.parts[2] in ("all", "any", "ballot"):
        p = c.predicate(i.operands[1])
        votes = {
            "all": f"(FULL if {p} & mask == mask else 0)",
            "any": f"(FULL if {p} & mask else 0)",
            "ballot": f"({p} & mask)",
        }
        c.assign(d, votes[i.parts[2]])
        return
    if i.opcode == "redux" and i.parts[1] == "sync" and i.parts[2] in _REDUCTIONS:
        operation, kind = i.parts[2], i.parts[3]
        function = functools.partial(reduce, _REDUCTIONS[operation], kind == "s32")
        name = c.use(f"redux_{operation}_{kind}", function)
        c.assign(d, f"{name}({c.value(i.operands[1])}, mask)")
        return
    raise c.unknown("an instruction that the emulator does not know")


_REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "add": np.sum,
    "min": np.min,
    "max": np.max,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


def reduce(operation: Callable[[Any], Any], is_signed: bool, a: Value, mask: int) -> int:
    """One value of all active lanes."""
    active = array_of(a, 32)[lanes(mask)]
    numbers = active.view(INT[32]) if is_signed else active
    return int(operation(numbers.astype(np.int64))) & FULL


@emits("fence", "membar")
def _fence(c: Emitter, i: Instruction) -> None:
    if i.parts[1] == "proxy":
        kind = i.parts[2]
        if kind not in ("async", "async::generic") and not kind.startswith("tensormap"):
            raise c.unknown("a proxy fence that the emulator does not know")
        # PTX ISA, "membar/fence": .async::generic orders one way (its release form what came
        # before, its acquire form what comes after), and is taken for the fence of both ways.
        c.line("w.fence()")
    else:
        # What a relaxed arrival may publish; mbarrier_init: of the barriers alone.
        c.line("w.released = w.clock.copy()")
        c.line("w.tick()")


@emits("setmaxnreg", "griddepcontrol", "nanosleep", "pmevent")
def _hints(c: Emitter, i: Instruction) -> None:
    """No effect on what a kernel computes; nanosleep lets other warps run."""
    if i.opcode == "nanosleep":
        c.line("yield")
