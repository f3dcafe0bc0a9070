# SPDX-License-Identifier: Apache-2.0
"""Tells a deadlock: who waits for what, what is missing, and who signalled last."""

from typing import TYPE_CHECKING

from pipegen.emulator.findings.finding import Finding, Place

if TYPE_CHECKING:
    from pipegen.emulator.machine.barriers import Mbarrier
    from pipegen.emulator.machine.running import Machine
    from pipegen.emulator.machine.state import Cta, Warp


def deadlock(machine: "Machine") -> Finding:
    """The finding for a machine in which nothing can go on."""
    sentences: list[str] = []
    places: list[Place] = []
    for cluster in machine.active:
        groups: dict[tuple[object, ...], list[Warp]] = {}
        for warp in cluster.warps:
            if not warp.done:
                groups.setdefault((warp.cta.rank, *_reason(warp)), []).append(warp)
        for warps in groups.values():
            sentence, at = _sentence(machine, warps)
            sentences.append(sentence)
            places.append(machine.place(warps[0].cta, warps[0].global_id, at))
    return Finding("deadlock", "no warp can go on. " + " ".join(sentences), tuple(places))


def _reason(warp: "Warp") -> tuple[object, ...]:
    if warp.waiting is not None:
        barrier, _, parity, at = warp.waiting
        return id(barrier), parity, at
    return warp.blocked or ("nothing", -1)


def _sentence(machine: "Machine", warps: "list[Warp]") -> tuple[str, int]:
    first = warps[0]
    numbers = [warp.number for warp in warps]
    who = f"CTA {first.cta.rank} warp{'s' if len(warps) > 1 else ''} {ranges(numbers)}"
    role = machine.role(first)
    who = f"{role} ({who})" if role else who
    if first.waiting is not None:
        barrier, _, parity, at = first.waiting
        line = _line(machine, at)
        return (
            f"{who} (at {line}) wait{'' if len(warps) > 1 else 's'} for parity {parity} of "
            f"{_barrier(machine, barrier)}.",
            at,
        )
    what, at = first.blocked or ("nothing that is known", -1)
    return f"{who} (at {_line(machine, at)}) wait{'' if len(warps) > 1 else 's'} for {what}.", at


def _barrier(machine: "Machine", barrier: "Mbarrier") -> str:
    arrived = barrier.expected - barrier.pending
    text = (
        f"{barrier.describe()}, in phase {barrier.phase} with {arrived} of {barrier.expected} "
        f"arrivals"
    )
    if barrier.tx:
        text += f" ({tx_text(barrier.tx)})"
    if not barrier.arrivals:
        return f"{text}; nobody ever signalled it"
    what, at, warp, _ = barrier.arrivals[-1]
    cta = barrier.cta.cluster.warps[warp]
    return f"{text}; last signalled by {what} of {_named(machine, cta)} at " f"{_line(machine, at)}"


def _named(machine: "Machine", warp: "Warp") -> str:
    role = machine.role(warp)
    who = f"CTA {warp.cta.rank} warp {warp.number}"
    return f"{role} ({who})" if role else who


def tx_text(tx: int) -> str:
    """A tx-count that is not 0, in words."""
    if tx > 0:
        return f"{tx} B that were announced have not come"
    return f"{-tx} B came that nobody announced"


def signallers(barrier: "Mbarrier") -> "list[tuple[Cta, int, int]]":
    """Where the last arrivals came from, one for each instruction."""
    last = {at: (barrier.cta, warp, at) for _, at, warp, _ in barrier.arrivals}
    return list(last.values())


def _line(machine: "Machine", at: int) -> str:
    if at < 0:
        return "an unknown place"
    instruction = machine.program.instructions[at]
    source = instruction.location.line if instruction.location else 0
    return (
        f"source line {source}, PTX line {instruction.line}"
        if source
        else (f"PTX line {instruction.line}")
    )


def ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] as "0-2, 5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else f"{p[0]}" for p in parts)
