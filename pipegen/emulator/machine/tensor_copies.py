# SPDX-License-Identifier: Apache-2.0
"""Copies of boxes of tensors between global and shared memory (TMA).

PTX ISA, sections "Tensors" (5.5: tiled mode, bounding box, out-of-bound access, swizzling modes)
and "cp.async.bulk.tensor" (9.7.9.27). Tiled mode without interleave; what else there is is refused
by name.
"""

import ctypes
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.launch import TensorMap
from pipegen.emulator.machine.addresses import (
    OFFSET_MASK,
    PARAM_WINDOW,
    RANK_SHIFT,
    SMEM_BASE,
    WINDOW_MASK,
)
from pipegen.emulator.machine.async_copies import Operation, store_operation, writes_of
from pipegen.emulator.machine.emitting import Emitter
from pipegen.emulator.machine.global_order import note_box
from pipegen.emulator.machine.values import UINT, Array, Value, by_lane, lane_list
from pipegen.emulator.ptx.ir import Address, Instruction, PtxError, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.barriers import Mbarrier
    from pipegen.emulator.machine.state import Cta, Warp

_LOAD = frozenset(
    [
        "shared::cta",
        "shared::cluster",
        "global",
        "tile",
        "mbarrier::complete_tx::bytes",
        "multicast::cluster",
        "L2::cache_hint",
        "cta_group::1",
        "cta_group::2",
    ]
)
_STORE = frozenset(["global", "shared::cta", "tile", "bulk_group", "L2::cache_hint"])


class Tensor:
    """A tensor map with its tensor as a numpy view; dimensions are outermost first."""

    def __init__(self, tensor_map: TensorMap, name: str) -> None:
        if tensor_map.interleave != "none":
            raise PtxError(f"tensor map {name} with interleave, which the emulator does not know")
        if tensor_map.swizzle_flip or (tensor_map.swizzle and tensor_map.swizzle_atom != 16):
            raise PtxError(f"tensor map {name} with a swizzle atom that the emulator does not know")
        if any(stride != 1 for stride in tensor_map.element_strides):
            raise PtxError(f"tensor map {name} with element strides other than 1")
        if tensor_map.element_bits not in (8, 16, 32, 64):
            raise PtxError(f"tensor map {name} of {tensor_map.dtype}: only 8 to 64 bit elements")
        self.map = tensor_map
        self.item = tensor_map.element_bits // 8
        inner = tensor_map.box[0] * self.item
        if tensor_map.swizzle and inner > tensor_map.swizzle:
            raise PtxError(f"tensor map {name} with a box wider than its swizzle")
        if tensor_map.swizzle and inner != tensor_map.swizzle:
            raise PtxError(f"tensor map {name} with a box narrower than its swizzle")
        self.sizes = tensor_map.sizes[::-1]
        self.box = tensor_map.box[::-1]
        strides = (*tensor_map.strides[::-1], self.item)
        self.strides = strides
        steps = zip(self.sizes, strides, strict=True)
        self.extent = sum((n - 1) * s for n, s in steps) + self.item
        raw = (ctypes.c_uint8 * self.extent).from_address(tensor_map.address)
        kind = UINT[tensor_map.element_bits]
        flat = np.ctypeslib.as_array(raw)
        self.data: Array = np.lib.stride_tricks.as_strided(
            flat[: self.item].view(kind), self.sizes, strides
        )
        self.fill = 0
        if tensor_map.oob_nan:
            self.fill = (1 << tensor_map.element_bits) - 1

    def overlap(self, corner: tuple[int, ...]) -> tuple[Any, Any]:
        """(slices of the tensor, slices of the box) that a box at a corner covers."""
        ours, theirs = [], []
        for start, extent, size in zip(corner, self.box, self.sizes, strict=True):
            low, high = max(start, 0), min(start + extent, size)
            high = max(high, low)
            ours.append(slice(low, high))
            theirs.append(slice(low - start, high - start))
        return tuple(ours), tuple(theirs)


@functools.lru_cache(maxsize=4096)
def swizzled_rows(offset: int, bytes_: int, swizzle: int) -> Array:
    """Which 16-byte row of shared memory each 16 bytes of a box go to, in the box's order.

    The pattern is that of the address: bits 4 to 6 are changed by bits 7 to 9, as many as the
    swizzle's span has.
    """
    address = np.arange(offset, offset + bytes_, 16, dtype=np.int64)
    mask = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    return (address ^ (address >> 7 & mask) << 4) >> 4


def emit(c: Emitter, i: Instruction) -> None:
    """`cp.async.bulk.tensor`."""
    rank = i.parts[4]
    modifiers = set(i.parts[5:])
    if "im2col" in modifiers or any(part.startswith("tile::") for part in modifiers):
        raise c.unknown("a mode of tensor copies that the emulator does not know")
    first, second, *more = i.operands
    to_global = i.parts[5] == "global"
    if modifiers - (_STORE if to_global else _LOAD):
        raise c.unknown("a form of cp.async.bulk.tensor that the emulator does not know")
    tensor, memory = (first, second) if to_global else (second, first)
    if not isinstance(tensor, Address) or len(tensor.rest) != 1:
        raise c.unknown("a tensor without coordinates")
    coordinates = tensor.rest[0]
    if not isinstance(coordinates, Vector) or len(coordinates.items) != int(rank[0]):
        raise c.unknown("coordinates that do not fit the tensor's rank")
    where = f"{c.value(tensor.base, 64)}, {c.value(coordinates)}, {c.address(memory)}"
    if to_global:
        c.line(f"{c.use('tensor_store', store)}(w, {where}, mask, {c.at})")
        return
    barrier = c.address(more[0])
    multicast = c.value(more[1], 16) if "multicast::cluster" in modifiers else "None"
    pair = "cta_group::2" in modifiers
    name = c.use("tensor_load", load)
    c.line(f"if {name}(w, {where}, {barrier}, {multicast}, {pair}, mask, {c.at}): yield")


def tensor_of(w: "Warp", address: Value, mask: int) -> Tensor:
    """The tensor behind a tensor map's generic address."""
    where = address if type(address) is int else by_lane(address, mask)[0]
    low = where & ~WINDOW_MASK if where & WINDOW_MASK == PARAM_WINDOW else where
    return w.machine.tensor(low, where & WINDOW_MASK == PARAM_WINDOW)


def _signed(value: int) -> int:
    return (value ^ 0x8000_0000) - 0x8000_0000


def load(
    w: "Warp",
    map_address: Value,
    coordinates: tuple[Value, ...],
    target: Value,
    barrier_at: Value,
    multicast: Value,
    pair: bool,
    mask: int,
    at: int,
) -> bool:
    """A box from global memory to one CTA or several. Each active lane issues one."""
    tensor = tensor_of(w, map_address, mask)
    for lane in lane_list(mask):
        pick = [v if type(v) is int else int(v[lane]) for v in (*coordinates, target, barrier_at)]
        corner = tuple(_signed(v) for v in pick[-3::-1])
        to, barrier_address = pick[-2], pick[-1]
        ranks = [to >> RANK_SHIFT]
        if multicast is not None:
            chosen = multicast if type(multicast) is int else int(multicast[lane])
            ranks = [rank for rank in range(16) if chosen >> rank & 1]
        for rank in ranks:
            where = rank << RANK_SHIFT | to & OFFSET_MASK
            signal = barrier_address
            if multicast is not None:
                signal_rank = rank
                if pair:
                    signal_rank = rank & ~1 | barrier_address >> RANK_SHIFT & 1
                signal = signal_rank << RANK_SHIFT | barrier_address & OFFSET_MASK
            elif not _may_signal(where, signal, pair):
                w.report(
                    "outside-cluster",
                    f"a copy into CTA {rank} signals an mbarrier of CTA {signal >> RANK_SHIFT}: it "
                    "must be in the same CTA"
                    + (", or in the other one of its pair" if pair else ""),
                    at,
                )
            _load_one(w, tensor, corner, where, signal, at)
    return w.machine.pause()


def _may_signal(target: int, barrier: int, pair: bool) -> bool:
    ranks = target >> RANK_SHIFT, barrier >> RANK_SHIFT
    return ranks[0] == ranks[1] or (pair and ranks[0] ^ 1 == ranks[1])


def _load_one(
    w: "Warp", tensor: Tensor, corner: tuple[int, ...], target: int, signal: int, at: int
) -> None:
    cta, offset = w.shared_place(target, at)
    barrier = w.barrier(signal, at, by_copy=True)
    if cta is None or barrier is None:
        return
    bytes_ = tensor.map.box_bytes
    if offset % 128:
        w.report(
            "misaligned",
            f"a tensor copy to SMEM offset {offset - SMEM_BASE:#x}: must be 128 B aligned",
            at,
        )
    if offset + bytes_ > cta.smem_end:
        w.report("out-of-bounds", f"a box of {bytes_} B at SMEM offset {offset - SMEM_BASE:#x}", at)
        return
    span = slice(offset >> 4, (offset + bytes_) >> 4)
    conflict = cta.shadow.write(
        span, barrier.agent, barrier.phase + 1, w.clock, at, asynchronous=True
    )
    if conflict:
        w.machine.race(w, cta, conflict, at, "loads a box into")
    for reached in {cta, barrier.cta} - {w.cta}:
        w.signals(reached, barrier.agent, barrier.phase + 1, at)
    by = barrier.agent, barrier.phase + 1
    note_box(w, tensor, tensor.overlap(corner)[0], by, at, writes=False)
    w.machine.issue(Operation(lambda: _deliver(w, tensor, corner, cta, offset, barrier, at)))


def _deliver(
    w: "Warp",
    tensor: Tensor,
    corner: tuple[int, ...],
    cta: "Cta",
    offset: int,
    barrier: "Mbarrier",
    at: int,
) -> None:
    if not w.machine.alive(w, cta, at, "a tensor copy"):
        return
    if w.machine.sync_only:
        cta.leave_out(slice(offset >> 4, (offset + tensor.map.box_bytes) >> 4))
    else:
        ours, theirs = tensor.overlap(corner)
        box = np.full(tensor.box, tensor.fill, tensor.data.dtype)
        box[theirs] = tensor.data[ours]
        rows = swizzled_rows(offset, tensor.map.box_bytes, tensor.map.swizzle)
        cta.rows[rows] = box.reshape(-1).view(np.uint8).reshape(-1, 16)
    name = w.machine.program.names[at]
    barrier.deliver(name, at, w.global_id, tensor.map.box_bytes)


def store(
    w: "Warp",
    map_address: Value,
    coordinates: tuple[Value, ...],
    source: Value,
    mask: int,
    at: int,
) -> None:
    """A box from shared to global memory, part of a bulk group.

    Lanes with the same operands count as one: storing the same box again changes nothing, and
    compilers let a whole warp issue a store.
    """
    tensor = tensor_of(w, map_address, mask)
    columns = [by_lane(v, mask) for v in (*coordinates, source)]
    for pick in dict.fromkeys(zip(*columns, strict=True)):
        corner = tuple(_signed(v) for v in pick[-2::-1])
        cta, offset = w.shared_place(pick[-1], at)
        if cta is not w.cta:
            continue
        bytes_ = tensor.map.box_bytes
        if offset % 128:
            w.report("misaligned", f"a tensor copy from SMEM offset {offset - SMEM_BASE:#x}", at)
        span = slice(offset >> 4, (offset + bytes_) >> 4)
        place = tensor, corner, offset
        store_operation(w, span, at, functools.partial(_write, w, *place))
        note_box(w, tensor, tensor.overlap(corner)[0], writes_of(w), at, writes=True)


def _write(w: "Warp", tensor: Tensor, corner: tuple[int, ...], offset: int) -> None:
    ours, theirs = tensor.overlap(corner)
    if w.machine.sync_only:
        return
    rows = swizzled_rows(offset, tensor.map.box_bytes, tensor.map.swizzle)
    box = w.cta.rows[rows].reshape(-1).view(tensor.data.dtype).reshape(tensor.box)
    tensor.data[ours] = box[theirs]
