# SPDX-License-Identifier: Apache-2.0
"""Accesses to shared memory that stand together in a run without data: noted as one.

Nothing that orders lies between them, so all of them meet the same others; what is found is told at
the line of the last one. Where the addresses come again, in the next round of a ring, what they
cover is known already.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.cells import Footprint
from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine.addresses import OFFSET_MASK, RANK_SHIFT, SMEM_BASE
from pipegen.emulator.machine.emitting import moved
from pipegen.emulator.machine.shared_memory import granules, shared_cta, touch_shared
from pipegen.emulator.machine.values import FULL, Value, lanes

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp

Offsets = tuple[int, ...]


def write_run(
    w: "Warp", bases: list[Value], offsets: Offsets, bytes_: int, mask: int, at: int
) -> None:
    """Note stores of `bytes_` bytes a lane, at each base and offset, whose data is left out."""
    place = _own_place(w, bases, offsets, bytes_, mask)
    if place is None:
        for base, offset in zip(bases, offsets, strict=True):
            touch_shared(w, moved(32, base, offset), bytes_, True, mask, at)
        return
    cta = w.cta
    conflict = cta.shadow.write(place, w.agent, int(w.clock[GENERIC, w.agent]), w.clock, at)
    # As in `touch_shared`.
    scalar = w.machine.launch.by_mosaic and all(type(base) is int for base in bases)
    if conflict and not (scalar and w.repeats(conflict.agent, at, conflict.at)):
        w.machine.race(w, cta, conflict, at, "writes")
    cta.leave_out(place)


def copy_run(
    w: "Warp", bases: list[Value], offsets: Offsets, size: int, mask: int, at: int
) -> None:
    """Note cp.async of `size` bytes a lane to each base and offset, whose data is left out.

    Data counts as left out from the issue on: what completes later writes nothing here.
    """
    place = _own_place(w, bases, offsets, size, mask)
    if place is not None:
        _copies_into(w, w.cta, place, at)
        return
    for base, offset in zip(bases, offsets, strict=True):
        address = moved(32, base, offset)
        cta, within = shared_cta(w, address, mask, at)
        if cta is not None:
            _copies_into(w, cta, cta.footprint(*granules(within, size)), at)


def _copies_into(w: "Warp", cta: "Cta", place: Footprint, at: int) -> None:
    agent = w.cluster.agents.copies(w.global_id)
    conflict = cta.shadow.write(place, agent, w.copy_epoch + 1, w.clock, at)
    if conflict:
        w.machine.race(w, cta, conflict, at, "copies into")
    cta.leave_out(place)


def _own_place(
    w: "Warp", bases: list[Value], offsets: Offsets, bytes_: int, mask: int
) -> Footprint | None:
    """What a run covers of its CTA's memory. None if an access is not aligned, or not in there."""
    key: list[Any] = [w.cta.rank, offsets, bytes_, mask]
    before = None
    for base in bases:
        if base is before:
            key.append(None)
        else:
            key.append(base if isinstance(base, int) else base.tobytes())
            before = base
    cells = w.cta.cells
    whole = tuple(key)
    place: Footprint | None = cells.repeated.get(whole)
    if place is None:
        place = _found_place(w, bases, offsets, bytes_, mask)
        if place is not None and not cells.crumbled:
            cells.repeated[whole] = place
    return place


def _found_place(
    w: "Warp", bases: list[Value], offsets: Offsets, bytes_: int, mask: int
) -> Footprint | None:
    chosen = lanes(mask)
    every = [
        np.asarray([base] if isinstance(base, int) else base[chosen], np.int64) + offset
        for base, offset in zip(bases, offsets, strict=True)
    ]
    addresses = np.concatenate(every) & FULL
    within = addresses & OFFSET_MASK
    inside = int(within.min()) >= SMEM_BASE and int(within.max()) + bytes_ <= w.cta.smem_end
    if not inside or (addresses >> RANK_SHIFT != w.cta.rank).any() or (within % bytes_).any():
        return None
    return w.cta.footprint(*granules(within, bytes_))
