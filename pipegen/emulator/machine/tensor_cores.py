# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication by the tensor core of one CTA or of a pair (tcgen05.mma), and its commit.

PTX ISA, sections "tcgen05 Instruction Descriptor" (9.7.16.4.2), "tcgen05 Data Path Layout
Organization" (9.7.16.10.5), "tcgen05.mma" and "tcgen05.commit" (9.7.16.10, 9.7.16.11). Operations
that a CTA issued complete in their order, which is what the pipelining rules promise for mma of
one shape and for mma and commit.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
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
from pipegen.emulator.machine.values import Array, Value, uniform
from pipegen.emulator.ptx.ir import Address, Instruction, PtxError, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp

EVER = 1 << 62
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


@dataclass
class Multiplication:
    """One tcgen05.mma, ready to compute."""

    shape: Shape
    ctas: "list[Cta]"
    rows_a: Array | None
    rows_b: Array
    tmem_a: int
    target: int
    accumulate: bool


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
    rest = f"{disabled}, {c.predicate(more[0])}, {kinds[0]!r}, {pair}, mask, {c.at}"
    c.line(f"{name}(w, {what}, {rest})")


def multiply(
    w: "Warp",
    target: Value,
    a: Value,
    in_tmem: bool,
    b: Value,
    idesc: Value,
    disabled: tuple[Value, ...],
    enable: int,
    kind: str,
    pair: bool,
    mask: int,
    at: int,
) -> None:
    """Issue: check what it reads and writes, and queue it."""
    if mask.bit_count() > 1:
        w.report("lanes-disagree", f"tcgen05.mma is issued by {mask.bit_count()} lanes", at)
    if any(uniform(value, mask) for value in disabled):
        raise _refused(w, "lanes disabled in the output of tcgen05.mma", at)
    base = w.cta.rank & ~1
    ctas = w.cluster.ctas[base : base + 2] if pair else [w.cta]
    try:
        shape = shape_of(uniform(idesc, mask), kind)
        rows = shape.m // len(ctas)
        extent_b = shape.n // len(ctas)
        where = descriptor(uniform(b, mask) | _version(w), True)
        rows_b = rows_of(where, extent_b, shape.k, shape.item, shape.b_k_major)
        rows_a = None
        if not in_tmem:
            where = descriptor(uniform(a, mask) | _version(w), True)
            rows_a = rows_of(where, rows, shape.k, shape.item, shape.a_k_major)
    except DescriptorError as error:
        raise _refused(w, str(error), at) from error
    if len(ctas) != (2 if pair else 1) or rows not in (64, 128):
        raise _refused(w, f"tcgen05.mma with M {shape.m} for {len(ctas)} CTAs", at)
    tmem_a = uniform(a, mask) if in_tmem else 0
    operation = Multiplication(
        shape, ctas, rows_a, rows_b, tmem_a, uniform(target, mask), bool(enable & mask)
    )
    if _check(w, operation, at):
        _queue(w, Operation(lambda: _compute(w, operation)))


def _version(w: "Warp") -> int:
    """The fixed bit of a matrix descriptor, for a compiler that leaves it out."""
    return 1 << 46 if w.machine.launch.by_mosaic else 0


def _refused(w: "Warp", message: str, at: int) -> PtxError:
    return PtxError(message, w.machine.program.instructions[at].line)


def _check(w: "Warp", operation: Multiplication, at: int) -> bool:
    """Note the accesses. Whether all of them are possible."""
    agent = w.cluster.agents.tensor_core(w.cta.rank)
    w.cta.tensor_epoch += 1
    epoch = w.cta.tensor_epoch
    clock = w.clock.copy()
    clock[:, agent] = EVER  # its own earlier operations complete first
    columns = operation.target & 0xFFFF
    width = operation.shape.n // (2 if _folded(operation) else 1)
    for cta in operation.ctas:
        for rows in (operation.rows_a, operation.rows_b):
            if rows is None:
                continue
            where = rows.reshape(-1)
            if int(where.max()) >= len(cta.rows):
                w.report("out-of-bounds", "an operand of tcgen05.mma outside shared memory", at)
                return False
            conflict = cta.shadow.read(where, agent, epoch, clock, at, asynchronous=True)
            if conflict:
                w.machine.race(w, cta, conflict, at, "multiplies from")
        if not allocated(cta, columns, width):
            w.report(
                "tmem-allocation",
                f"TMEM columns {columns} to {columns + width - 1} of CTA {cta.rank} are not "
                "allocated",
                at,
            )
            return False
        if operation.rows_a is None:
            start = operation.tmem_a & 0xFFFF
            count = operation.shape.k * operation.shape.item // 4
            _note(w, cta, start, count, agent, epoch, clock, at, False)
        _note(w, cta, columns, width, agent, epoch, clock, at, True)
    return True


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
    where = (np.arange(4)[:, None] * TMEM_COLUMNS + np.arange(start, start + count)).reshape(-1)
    access = cta.tmem_shadow.write if writes else cta.tmem_shadow.read
    conflict = access(where, agent, epoch, clock, at)
    if conflict:
        what = "accumulates into" if writes else "multiplies from"
        w.machine.race(w, cta, conflict, at, what, tensor=True)


def _folded(operation: Multiplication) -> bool:
    """A pair with 64 rows a CTA keeps the second half of the columns in lanes 64 to 127."""
    return len(operation.ctas) == 2 and operation.shape.m == 128


def _queue(w: "Warp", operation: Operation) -> None:
    cta = w.cta
    cta.tensor_queue.append(operation)
    w.machine.issue(Operation(lambda: _advance(cta)))


def _advance(cta: "Cta") -> None:
    cta.tensor_queue.popleft().complete()


def _compute(w: "Warp", operation: Multiplication) -> None:
    if w.machine.sync_only:
        return
    shape = operation.shape
    parts = [read(cta, operation.rows_b, shape.b, shape.b_k_major) for cta in operation.ctas]
    b = np.concatenate(parts) if len(parts) > 1 else parts[0]
    start = operation.target & 0xFFFF
    for cta in operation.ctas:
        if operation.rows_a is None:
            a = _from_tmem(cta, operation.tmem_a, shape)
        else:
            a = read(cta, operation.rows_a, shape.a, shape.a_k_major)
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
    barriers = [w.barrier(target, at) for target in targets]
    agent = w.cluster.agents.tensor_core(w.cta.rank)
    clock = w.clock.copy()
    clock[GENERIC, agent] = epoch = w.cta.tensor_epoch
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

    _queue(w, Operation(complete))
    return w.machine.pause()
