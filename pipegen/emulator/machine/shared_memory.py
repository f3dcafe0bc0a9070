# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of shared memory, of the own CTA and of others of the cluster.

PTX ISA, section "Shared State Space" (5.1.7).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.findings.shadow import ALL_BYTES
from pipegen.emulator.machine.addresses import OFFSET_MASK, RANK_SHIFT
from pipegen.emulator.machine.state import Cta
from pipegen.emulator.machine.values import (
    FULL,
    UINT,
    WARP,
    Lanes,
    Value,
    array_of,
    each_lane,
    lanes,
    spread,
    unchanged,
)

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp


def shared_cta(w: "Warp", address: Value, mask: int, at: int) -> tuple[Cta | None, Value]:
    """(CTA, offsets) of shared addresses that are all of one CTA."""
    if type(address) is int:
        return w.shared_place(address, at)
    active = address[lanes(mask)]
    low, high = int(active.min()), int(active.max())
    if low >> RANK_SHIFT != high >> RANK_SHIFT:
        return None, None
    cta, _ = w.shared_place(low, at)
    if cta is None or w.shared_place(high, at)[0] is None:
        return None, 0
    return cta, active & OFFSET_MASK


def granules(offset: Value, bytes_: int) -> tuple[Any, Any]:
    """(granules, bytes in each) of accesses of up to 16 aligned bytes a lane."""
    if type(offset) is int:
        part = ALL_BYTES if bytes_ == 16 else ((1 << bytes_) - 1) << (offset & 15)
        return slice(offset >> 4, (offset >> 4) + 1), part
    which = (offset >> 4).astype(np.int64)
    if bytes_ == 16:
        return which, ALL_BYTES
    masks = (np.uint32((1 << bytes_) - 1) << (offset & 15)).astype(np.uint16)
    if len(which) == 1:
        return which, masks
    # Lanes may share a granule: each granule once, with the bytes of all its lanes.
    once, inverse = np.unique(which, return_inverse=True)
    together = np.zeros(len(once), np.uint16)
    np.bitwise_or.at(together, inverse, masks)
    return once, together


def load_shared(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    """From shared memory of this CTA, or of another one of the cluster."""
    cta, offset = shared_cta(w, address, mask, at)
    if offset is None:
        return _shared_by_cta(w, address, size, n, mask, at)
    if cta is None:
        return (0,) * n
    bytes_ = size * n
    if offset % bytes_ if type(offset) is int else (offset % bytes_).any():
        w.report("misaligned", f"a shared memory access of {bytes_} B", at)
    where, part = granules(offset, min(bytes_, 16))
    epoch = int(w.clock[GENERIC, w.agent])
    conflict = cta.shadow.read(where, w.agent, epoch, w.clock, at, bytes_=part)
    if conflict:
        w.machine.race(w, cta, conflict, at, "reads")
    if cta is not w.cta:
        w.signals(cta, w.agent, epoch, at, reads=True)
    view = cta.views[size]
    start = offset // size
    if type(start) is int:
        return tuple(int(x) for x in view[start : start + n])
    if n == 1:
        found = view[start]
        if mask == FULL:
            return (found,)
        return spread(found[:, None], mask)
    return spread(view[start.astype(np.int64)[:, None] + np.arange(n)], mask)


def _shared_by_cta(w: "Warp", address: Value, size: int, n: int, mask: int, at: int) -> Lanes:
    result = np.zeros((WARP, n), UINT[8 * size])
    for lane, where in each_lane(address, mask):
        result[lane] = load_shared(w, where, size, n, 1 << lane, at)
    return tuple(result[:, k].copy() for k in range(n))


def store_shared(w: "Warp", address: Value, size: int, data: Lanes, mask: int, at: int) -> None:
    """To shared memory of this CTA, or of another one of the cluster."""
    cta, offset = shared_cta(w, address, mask, at)
    n = len(data)
    if offset is None:
        for lane, where in each_lane(address, mask):
            one = tuple(v if type(v) is int else int(v[lane]) for v in data)
            store_shared(w, where, size, one, 1 << lane, at)
        return
    if cta is None:
        return
    bytes_ = size * n
    if offset % bytes_ if type(offset) is int else (offset % bytes_).any():
        w.report("misaligned", f"a shared memory access of {bytes_} B", at)
    where, part = granules(offset, min(bytes_, 16))
    if cta.left_out is not None:
        cta.left_out[where] = False
        cta.written_with_data += 1
    epoch = int(w.clock[GENERIC, w.agent])
    conflict = cta.shadow.write(where, w.agent, epoch, w.clock, at, part)
    view, kind = cta.views[size], UINT[8 * size]
    start = offset // size
    if conflict and not (
        conflict.earlier_wrote
        and w.repeats(conflict.agent, at, conflict.at)
        and unchanged(view, start, data, mask, kind)
    ):
        w.machine.race(w, cta, conflict, at, "writes")
    if cta is not w.cta:
        w.signals(cta, w.agent, epoch, at)
    if type(start) is int:
        last = mask.bit_length() - 1
        for k, value in enumerate(data):
            view[start + k] = (
                value & (1 << 8 * size) - 1 if type(value) is int else kind(value[last])
            )
        return
    chosen = lanes(mask)
    for k, value in enumerate(data):
        if type(value) is int:
            view[start + k] = value & ((1 << 8 * size) - 1)
        else:
            view[start + k] = array_of(value, 8 * size)[chosen].astype(kind, copy=False)


class DataNeeded(Exception):
    """The protocol depends on data that a run without data left out."""


def load_shared_of_protocol(
    w: "Warp", address: Value, size: int, n: int, mask: int, at: int
) -> Lanes:
    """As `load_shared`. Raises DataNeeded where a run without data left data out."""
    cta, offset = shared_cta(w, address, mask, at)
    left_out = None if cta is None else cta.left_out
    if left_out is not None and offset is not None:
        where, _ = granules(offset, min(size * n, 16))
        if left_out[where].any():
            raise DataNeeded
    return load_shared(w, address, size, n, mask, at)


def touch_shared(w: "Warp", address: Value, bytes_: int, writes: bool, mask: int, at: int) -> None:
    """Note an access of each lane whose data is left out."""
    cta, offset = shared_cta(w, address, mask, at)
    if offset is None:
        for lane, where in each_lane(address, mask):
            touch_shared(w, where, bytes_, writes, 1 << lane, at)
        return
    if cta is None:
        return
    if offset % bytes_ if type(offset) is int else (offset % bytes_).any():
        w.report("misaligned", f"a shared memory access of {bytes_} B", at)
    where, part = granules(offset, min(bytes_, 16))
    epoch = int(w.clock[GENERIC, w.agent])
    access = cta.shadow.write if writes else cta.shadow.read
    conflict = access(where, w.agent, epoch, w.clock, at, bytes_=part)
    # The data is left out: a scalar of Mosaic GPU is taken to be the same in a warpgroup.
    scalar = writes and type(address) is int and w.machine.launch.by_mosaic
    if conflict and not (scalar and w.repeats(conflict.agent, at, conflict.at)):
        w.machine.race(w, cta, conflict, at, "writes" if writes else "reads")
    if cta is not w.cta:
        w.signals(cta, w.agent, epoch, at, reads=not writes)
    if writes:
        cta.leave_out(where)
