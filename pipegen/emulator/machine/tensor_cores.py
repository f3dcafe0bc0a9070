# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication by the tensor core of one CTA or of a pair (tcgen05.mma), and its commit.

PTX ISA, sections "tcgen05 Instruction Descriptor" (9.7.16.4.2), "tcgen05 Data Path Layout
Organization" (9.7.16.10.5), "tcgen05.mma" and "tcgen05.commit" (9.7.16.10, 9.7.16.11). Operations
that a CTA issued complete in their order, which is what the pipelining rules promise for mma of
one shape and for mma and commit.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.machine import formats
from pipegen.emulator.machine.addresses import OFFSET_MASK, RANK_SHIFT, TMEM_COLUMNS
from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.emitting import Emitter
from pipegen.emulator.machine.smem_matrices import (
    DescriptorError,
    descriptor,
    product,
    read,
    rows_of,
)
from pipegen.emulator.machine.tensor_memory import allocated
from pipegen.emulator.machine.tensor_order import committed, issue, pipelined, queue
from pipegen.emulator.machine.values import Array, Value, uniform
from pipegen.emulator.ptx.ir import Address, Instruction, PtxError, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp

_TYPES = {
    "kind::f16": {0: "f16", 1: "bf16"},
    "kind::tf32": {2: "tf32"},
    "kind::f8f6f4": {0: "e4m3", 1: "e5m2"},
    "kind::i8": {0: "u8", 1: "s8"},
}


@dataclass(frozen=True)
class Shape:
    """A decoded instruction descriptor."""

    m: int
    n: int
    a: str
    b: str
    a_k_major: bool
    b_k_major: bool
    negative: bool
    out: str

    @property
    def item(self) -> int:
        """Bytes of an element of A and B."""
        return int(formats.element(self.a)().itemsize)

    @property
    def k(self) -> int:
        """Elements along K: 32 bytes."""
        return 32 // self.item


def shape_of(bits: int, kind: str) -> Shape:
    """Decode an instruction descriptor. Raises DescriptorError."""
    types = _TYPES[kind]
    a, b = types.get(bits >> 7 & 7), types.get(bits >> 10 & 7)
    out = {0: "f16", 1: "f32", 2: "s32"}.get(bits >> 4 & 3)
    if a is None or b is None or out not in ("f32", "s32"):
        raise DescriptorError(f"instruction descriptor {bits:#x} has a type that is not known")
    if bits & 0xF or bits >> 29:
        raise DescriptorError(f"instruction descriptor {bits:#x} has a mode that is not known")
    negative = bool((bits >> 13 ^ bits >> 14) & 1)
    majors = not bits >> 15 & 1, not bits >> 16 & 1
    m, n = (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3
    return Shape(m, n, a, b, *majors, negative=negative, out=out)


# (descriptor, extent, K, bytes of an element, K-major): what says where a matrix lies.
Rows = tuple[int, int, int, int, bool]


def rows_at(place: Rows) -> Array:
    """The 16-byte rows of shared memory that hold a matrix. Raises DescriptorError."""
    bits, extent, k, item, k_major = place
    return rows_of(descriptor(bits, True), extent, k, item, k_major)


@functools.lru_cache(maxsize=8192)
def _rows_of_run(places: tuple[Rows, ...]) -> Any:
    """The rows of all, each once; as a slice, where they lie side by side."""
    rows = np.unique(np.concatenate([rows_at(place).reshape(-1) for place in places]))
    start, end = int(rows[0]), int(rows[-1]) + 1
    return slice(start, end) if end - start == len(rows) else rows


@dataclass
class Multiplication:
    """One tcgen05.mma, ready to compute."""

    shape: Shape
    ctas: "list[Cta]"
    rows_a: Rows | None
    rows_b: Rows
    tmem_a: int
    target: int
    accumulate: bool = False

    @property
    def columns(self) -> tuple[int, int]:
        """(first, count) of the columns that it accumulates into."""
        return self.target & 0xFFFF, self.shape.n // (2 if _folded(self) else 1)


def emit(c: Emitter, i: Instruction) -> None:
    """`tcgen05.mma` and `tcgen05.commit`."""
    pair = i.has("cta_group::2")
    if i.parts[1] == "commit":
        a, *masks = i.operands
        multicast = c.value(masks[0], 16) if i.has("multicast::cluster") else "None"
        name = c.use("tcgen05_commit", commit)
        c.line(f"if {name}(w, {c.address(a)}, {multicast}, {pair}, mask, {c.at}): yield")
        return
    kinds = [part for part in i.parts if part in _TYPES]
    others = [
        p for p in i.parts[2:] if p not in kinds and not p.startswith(("cta_gr", "collector"))
    ]
    d, a, b, idesc, *more = i.operands
    disabled = c.value(more.pop(0)) if isinstance(more[0], Vector) else "()"
    if not kinds or others or len(more) != 1:
        raise c.unknown("a form of tcgen05.mma that the emulator does not know")
    in_tmem = isinstance(a, Address)
    operand = c.address(a) if in_tmem else c.value(a, 64)
    name = c.use("tcgen05_mma", multiply)
    what = f"{c.address(d)}, {operand}, {in_tmem}, {c.value(b, 64)}, {c.value(idesc)}"
    if c.sync_only:
        item = f"({what}, (), {kinds[0]!r}, {pair})"
        c.line_of_run(c.use("tcgen05_mma_run", multiply_run), item, f"mask, {c.at}")
        return
    rest = f"{disabled}, {kinds[0]!r}, {pair}, {c.predicate(more[0])}, mask, {c.at}"
    c.line(f"{name}(w, {what}, {rest})")


def multiply(
    w: "Warp",
    target: Value,
    a: Value,
    in_tmem: bool,
    b: Value,
    idesc: Value,
    disabled: tuple[Value, ...],
    kind: str,
    pair: bool,
    enable: int,
    mask: int,
    at: int,
) -> None:
    """Issue: check what it reads and writes, and queue it."""
    one_lane(w, "tcgen05.mma", mask, at)
    operation = _made(w, (target, a, in_tmem, b, idesc, disabled, kind, pair), mask, at)
    operation.accumulate = bool(enable & mask)
    if _check(w, [operation], at):
        queue(w, Operation(lambda: _compute(w, operation)))


def multiply_run(w: "Warp", items: list[tuple[Any, ...]], mask: int, at: int) -> None:
    """Issue several of which only the operands' places matter: noted as one."""
    one_lane(w, "tcgen05.mma", mask, at)
    if _check(w, [_made(w, item, mask, at) for item in items], at):
        queue(w, Operation(lambda: None))


def one_lane(w: "Warp", what: str, mask: int, at: int) -> None:
    """A finding if more than one lane issues an operation."""
    if mask.bit_count() > 1:
        w.report("lanes-disagree", f"{what} is issued by {mask.bit_count()} lanes", at)


def _made(w: "Warp", operands: tuple[Any, ...], mask: int, at: int) -> Multiplication:
    """What an instruction with these operands computes. PtxError for what is not known."""
    target, a, in_tmem, b, idesc, disabled, kind, pair = operands
    if any(uniform(value, mask) for value in disabled):
        raise _refused(w, "lanes disabled in the output of tcgen05.mma", at)
    base = w.cta.rank & ~1
    ctas = w.cluster.ctas[base : base + 2] if pair else [w.cta]
    try:
        shape = shape_of(uniform(idesc, mask), kind)
        rows = shape.m // len(ctas)
        extent_b = shape.n // len(ctas)
        rows_b = (descriptor_bits(w, b, mask), extent_b, shape.k, shape.item, shape.b_k_major)
        rows_a = None
        if not in_tmem:
            rows_a = (descriptor_bits(w, a, mask), rows, shape.k, shape.item, shape.a_k_major)
        for place in (rows_a, rows_b):
            if place is not None:
                rows_at(place)
    except DescriptorError as error:
        raise _refused(w, str(error), at) from error
    if len(ctas) != (2 if pair else 1) or rows not in (64, 128):
        raise _refused(w, f"tcgen05.mma with M {shape.m} for {len(ctas)} CTAs", at)
    tmem_a = uniform(a, mask) if in_tmem else 0
    return Multiplication(shape, ctas, rows_a, rows_b, tmem_a, uniform(target, mask))


def descriptor_bits(w: "Warp", value: Value, mask: int) -> int:
    """A matrix descriptor, with the fixed bit that Mosaic GPU leaves out."""
    return uniform(value, mask) | (1 << 46 if w.machine.launch.by_mosaic else 0)


def _refused(w: "Warp", message: str, at: int) -> PtxError:
    return PtxError(message, w.machine.program.instructions[at].line)


def _check(w: "Warp", operations: list[Multiplication], at: int) -> bool:
    """Note the accesses of operations that are issued together. Whether all are possible."""
    agent, epoch = w.cluster.agents.tensor_core(w.global_id), issue(w)
    clock = pipelined(w)
    in_shared = (
        tuple(op.rows_a for op in operations if op.rows_a is not None),
        tuple(op.rows_b for op in operations),
    )
    for cta in operations[0].ctas:
        for places in filter(None, in_shared):
            where = _rows_of_run(places)
            last = where.stop - 1 if isinstance(where, slice) else int(where[-1])
            if last >= len(cta.rows):
                w.report("out-of-bounds", "an operand of tcgen05.mma outside shared memory", at)
                return False
            conflict = cta.shadow.read(where, agent, epoch, clock, at, asynchronous=True)
            if conflict:
                w.machine.race(w, cta, conflict, at, "multiplies from")
        for columns, width in dict.fromkeys(op.columns for op in operations):
            if not allocated(cta, columns, width):
                w.report(
                    "tmem-allocation",
                    f"TMEM columns {columns} to {columns + width - 1} of CTA {cta.rank} are not "
                    "allocated",
                    at,
                )
                return False
        for op in operations:
            if op.rows_a is None:
                count = op.shape.k * op.shape.item // 4
                _note(w, cta, op.tmem_a & 0xFFFF, count, agent, epoch, clock, at, False)
        for columns, width in dict.fromkeys(op.columns for op in operations):
            _note(w, cta, columns, width, agent, epoch, clock, at, True)
    return True


@functools.lru_cache(maxsize=256)
def granules(start: int, count: int) -> Array:
    """The granules of tensor memory of columns, in all four quarters of the lanes."""
    return (np.arange(4)[:, None] * TMEM_COLUMNS + np.arange(start, start + count)).reshape(-1)


def _note(
    w: "Warp",
    cta: "Cta",
    start: int,
    count: int,
    agent: int,
    epoch: int,
    clock: Array,
    at: int,
    writes: bool,
) -> None:
    where = granules(start, count)
    access = cta.tmem_shadow.write if writes else cta.tmem_shadow.read
    conflict = access(where, agent, epoch, clock, at)
    if conflict:
        what = "accumulates into" if writes else "multiplies from"
        w.machine.race(w, cta, conflict, at, what, tensor=True)


def _folded(operation: Multiplication) -> bool:
    """A pair with 64 rows a CTA keeps the second half of the columns in lanes 64 to 127."""
    return len(operation.ctas) == 2 and operation.shape.m == 128


def _compute(w: "Warp", operation: Multiplication) -> None:
    shape = operation.shape
    rows_b = rows_at(operation.rows_b)
    parts = [read(cta, rows_b, shape.b, shape.b_k_major) for cta in operation.ctas]
    b = np.concatenate(parts) if len(parts) > 1 else parts[0]
    start = operation.target & 0xFFFF
    for cta in operation.ctas:
        if operation.rows_a is None:
            a = _from_tmem(cta, operation.tmem_a, shape)
        else:
            a = read(cta, rows_at(operation.rows_a), shape.a, shape.a_k_major)
        result = product(a, b)
        if shape.negative:
            result = -result
        half = shape.n // 2
        if _folded(operation):
            result = np.concatenate([result[:, :half], result[:, half:]])
            lanes: Any = slice(0, 128)
        elif len(result) == 64:
            lanes = np.arange(64) // 16 * 32 + np.arange(64) % 16 + (operation.target >> 16 & 16)
        else:
            lanes = slice(0, 128)
        columns = slice(start, start + result.shape[1])
        kind = np.float32 if shape.out == "f32" else np.int32
        if operation.accumulate:
            with np.errstate(all="ignore"):
                result = result + np.ascontiguousarray(cta.tmem[lanes, columns]).view(kind)
        cta.tmem[lanes, columns] = np.ascontiguousarray(result, kind).view(np.uint32)


def _from_tmem(cta: "Cta", address: int, shape: Shape) -> Array:
    """A of 128 rows from tensor memory: 32 bits of a row in each column."""
    start, words = address & 0xFFFF, shape.k * shape.item // 4
    raw = np.ascontiguousarray(cta.tmem[:, start : start + words])
    rows = shape.m if shape.m in (64, 128) else 128
    table = raw.view(formats.element(shape.a))
    numbers = formats.decode(np.ascontiguousarray(table), shape.a)
    return numbers if rows == 128 else numbers[np.arange(64) // 16 * 32 + np.arange(64) % 16]


def commit(w: "Warp", address: Value, multicast: Value, pair: bool, mask: int, at: int) -> bool:
    """An arrival on one mbarrier, or on one in each CTA of a mask, when all before is complete."""
    where = uniform(address, mask)
    targets = [where]
    if multicast is not None:
        chosen = uniform(multicast, mask)
        targets = [r << RANK_SHIFT | where & OFFSET_MASK for r in range(16) if chosen >> r & 1]
    barriers = [w.barrier(target, at, by_copy=True) for target in targets]
    agent, epoch = w.cluster.agents.tensor_core(w.global_id), w.tensor_issued.last
    clock = committed(w)
    for barrier in barriers:
        if barrier is not None and barrier.cta is not w.cta:
            w.signals(barrier.cta, agent, epoch, at)
    w.tick()
    count = mask.bit_count()

    def complete() -> None:
        for barrier in barriers:
            if barrier is None or not w.machine.alive(w, barrier.cta, at, "tcgen05.commit"):
                continue
            barrier.arrive(w.machine.program.names[at], at, w.global_id, count, 0, clock)

    queue(w, Operation(complete))
    return w.machine.pause()
