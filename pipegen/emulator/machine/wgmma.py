# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication by a warpgroup (wgmma).

PTX ISA, section "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (9.7.15):
wgmma.mma_async with A in registers or shared memory, wgmma.fence, commit_group and wait_group.

An operation starts when all four warps of the group have issued it, and reads its operands when it
completes: at the wait for it at the latest. Its results are arrays that are filled then; until
then the accumulator registers hold a poison pattern.
"""

import functools
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine import formats
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.smem_matrices import (
    DescriptorError,
    descriptor,
    product,
    read,
    rows_of,
)
from pipegen.emulator.machine.values import FULL, WARP, Array, Value, array_of, uniform
from pipegen.emulator.ptx.ir import Immediate, Instruction, PtxError, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_KINDS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
POISON = 0x7FED_DEAD  # NaN as f32, and in both halves as bf16


class Shape:
    """What an instruction's name and constants say."""

    def __init__(self, c: Emitter, i: Instruction) -> None:
        *_, shape, out, a, b = i.parts
        n, k = shape.removeprefix("m64n").split("k")
        if i.parts[-1] not in _KINDS or out not in ("f32", "f16", "s32") or a not in _KINDS:
            raise c.unknown("a form of wgmma that the emulator does not know")
        self.n, self.k, self.out, self.a, self.b = int(n), int(k), out, a, b
        self.item = formats.element(a)().itemsize
        self.registers = self.n // 2 if out != "f16" else self.n // 4
        self.a_in_registers = isinstance(i.operands[1], Vector)
        flags = [x.value for x in i.operands[4:] if isinstance(x, Immediate)]
        self.scale_a, self.scale_b = (
            _sign(flags[0]) if flags else 1,
            _sign(flags[1]) if len(flags) > 1 else 1,
        )
        transposed = flags[2:]
        self.a_k_major = self.a_in_registers or not (transposed and transposed[0])
        self.b_k_major = not (transposed and transposed[-1])


def _sign(value: int) -> int:
    return -1 if value in (-1, FULL) else 1


Operands = tuple[tuple[Shape, int | None, int], ...]


class Multiplication:
    """One wgmma.mma_async of a warpgroup: what its warps gave so far."""

    def __init__(self, shape: Shape, at: int) -> None:
        self.shape, self.at = shape, at
        self.warps: list[Warp] = []
        self.a: Any = None
        self.fragments: list[tuple[Value, ...]] = []
        self.b = 0
        self.operands: Operands = ()  # of a run without data: (shape, A or None, B) of each
        self.accumulate = False
        self.inputs: list[Any] = []
        self.outputs: list[Array] = []
        self.rows_a: Array | None = None
        self.rows_b: Array | None = None
        self.done = False


class Group:
    """The wgmma operations of a warpgroup, in order."""

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.issued = [0, 0, 0, 0]
        self.operations: deque[Multiplication] = deque()
        self.first = 0  # the number of operations[0]
        self.completed = 0


@emits("wgmma")
def _wgmma(c: Emitter, i: Instruction) -> None:
    what = i.parts[1]
    if what == "fence":
        return  # orders registers; they are not modelled to be reordered
    if what == "commit_group":
        c.line("w.wgmma_commits.append(w.wgmma_issued)")
    elif what == "wait_group":
        name = c.use("wgmma_wait", wait)
        c.line(f"while {name}(w, {c.value(i.operands[0])}): yield")
    elif what == "mma_async" and "sp" not in i.parts:
        _emit_mma(c, i)
    else:
        raise c.unknown("a form of wgmma that the emulator does not know")


def _emit_mma(c: Emitter, i: Instruction) -> None:
    shape = Shape(c, i)
    d, a, b, scale, *_ = i.operands
    if not isinstance(d, Vector) or len(d.items) != shape.registers:
        raise c.unknown("a wgmma with accumulators that do not fit its shape")
    constant = c.use(f"wgmma_shape_{c.at}", shape)
    operand = c.value(a) if shape.a_in_registers else c.value(a, 64)
    if c.sync_only:
        operand = "None" if shape.a_in_registers else operand
        item = f"({constant}, {operand}, {c.value(b, 64)})"
        c.line_of_run(c.use("wgmma_run", multiply_run), item, f"mask, {c.at}")
        return
    name = c.use("wgmma_mma", multiply)
    c.assign(
        d,
        f"{name}(w, {constant}, {c.value(d)}, {operand}, {c.value(b, 64)}, "
        f"{c.predicate(scale)}, mask, {c.at})",
    )


def multiply(
    w: "Warp",
    shape: Shape,
    accumulators: tuple[Value, ...],
    a: Any,
    b: Value,
    scale: int,
    mask: int,
    at: int,
) -> Array:
    """Issue; the result is the new accumulators, which are filled when the operation completes."""
    if mask != FULL:
        w.report("lanes-disagree", "a wgmma that not all lanes execute", at)
    group = _group(w)
    number = group.issued[w.number % 4]
    group.issued[w.number % 4] += 1
    w.wgmma_issued = number + 1
    index = number - group.first
    if index == len(group.operations):
        group.operations.append(Multiplication(shape, at))
    operation = group.operations[index]
    operation.warps.append(w)
    output = np.full((shape.registers, WARP), POISON, np.uint32)
    operation.outputs.append(output)
    operation.inputs.append(_together(accumulators))
    operation.fragments.append(a if shape.a_in_registers else ())
    if len(operation.warps) == 1:
        operation.accumulate = bool(scale)
        operation.b = uniform(b, mask)
        operation.a = None if shape.a_in_registers else uniform(a, mask)
    elif operation.at != at or operation.b != uniform(b, mask):
        w.report("lanes-disagree", "the warps of a warpgroup give wgmma different operands", at)
    if len(operation.warps) == _size(w):
        _issue(w, group, operation, number, _places)
    return output


def multiply_run(
    w: "Warp", items: list[tuple[Shape, Value | None, Value]], mask: int, at: int
) -> None:
    """Issue several of which only the operands' places matter: as one operation."""
    if mask != FULL:
        w.report("lanes-disagree", "a wgmma that not all lanes execute", at)
    group = _group(w)
    number = group.issued[w.number % 4]
    group.issued[w.number % 4] += 1
    w.wgmma_issued = number + 1
    index = number - group.first
    if index == len(group.operations):
        group.operations.append(Multiplication(items[0][0], at))
    operation = group.operations[index]
    operation.warps.append(w)
    operands = tuple(
        (shape, None if a is None else uniform(a, mask), uniform(b, mask)) for shape, a, b in items
    )
    if len(operation.warps) == 1:
        operation.operands = operands
    elif operation.at != at or operation.operands != operands:
        w.report("lanes-disagree", "the warps of a warpgroup give wgmma different operands", at)
    if len(operation.warps) == _size(w):
        _issue(w, group, operation, number, _places_of_run)


def _together(accumulators: tuple[Value, ...]) -> Any:
    """The array whose rows the registers are, if there is one; else the registers."""
    base = getattr(accumulators[0], "base", None)
    if not isinstance(base, np.ndarray) or base.shape != (len(accumulators), WARP):
        return accumulators
    ordered = accumulators[-1].base is base and _same_order(base, accumulators)
    return base if ordered else accumulators


def _same_order(base: Array, accumulators: tuple[Value, ...]) -> bool:
    """Whether the registers are the rows of one array, first to last."""
    start = base.__array_interface__["data"][0]
    step = base.strides[0]
    ends = accumulators[0], accumulators[-1]
    places = [each.__array_interface__["data"][0] for each in ends]
    return places == [start, start + step * (len(accumulators) - 1)]


def _size(w: "Warp") -> int:
    return min(4, w.cluster.warps_per_cta - w.number // 4 * 4)


def _group(w: "Warp") -> Group:
    number = w.number // 4
    group = w.cta.groups.get(number)
    if group is None:
        agent = w.cluster.agents.group(w.cta.rank, number)
        group = w.cta.groups[number] = Group(agent)
    found: Group = group
    return found


def _issue(
    w: "Warp",
    group: Group,
    operation: Multiplication,
    number: int,
    places: Callable[[Multiplication], Sequence[Any]],
) -> None:
    """All warps have issued it: check what it reads, and let waiters go on."""
    clock = w.clock
    if any(warp is not w for warp in operation.warps):
        clock = np.maximum.reduce([warp.clock for warp in operation.warps])
    try:
        found = places(operation)
    except DescriptorError as error:
        instruction = w.machine.program.instructions[operation.at]
        raise PtxError(str(error), instruction.line) from error
    for where in found:
        last = where.stop - 1 if isinstance(where, slice) else int(where.max())
        if last >= len(w.cta.rows):
            w.report("out-of-bounds", "a wgmma operand outside shared memory", operation.at)
            operation.rows_a = operation.rows_b = None
            operation.done = True
            break
        conflict = w.cta.shadow.read(
            where, group.agent, number + 1, clock, operation.at, asynchronous=True
        )
        if conflict:
            w.machine.race(w, w.cta, conflict, operation.at, "multiplies from")
    for warp in operation.warps:
        if warp.blocked and warp.blocked[0] == "wgmma":
            w.machine.wake(warp)
    if w.machine.eager():
        _complete(w, group, number + 1)


def _places(operation: Multiplication) -> Sequence[Any]:
    """The rows of shared memory that A and B lie in."""
    shape = operation.shape
    operation.rows_b = _rows_of_b(shape, operation.b)
    if operation.a is None:
        return [operation.rows_b.reshape(-1)]
    operation.rows_a = _rows_of_a(shape, operation.a)
    return [operation.rows_a.reshape(-1), operation.rows_b.reshape(-1)]


def _rows_of_a(shape: Shape, a: int) -> Array:
    return rows_of(descriptor(a, False), 64, shape.k, shape.item, shape.a_k_major)


def _rows_of_b(shape: Shape, b: int) -> Array:
    return rows_of(descriptor(b, False), shape.n, shape.k, shape.item, shape.b_k_major)


def _places_of_run(operation: Multiplication) -> Sequence[Any]:
    return _rows_of_run(operation.operands)


@functools.lru_cache(maxsize=4096)
def _rows_of_run(operands: Operands) -> Sequence[Any]:
    """The rows of all A, and of all B, each once; as slices, where they lie side by side."""
    found = []
    tables = [[_rows_of_a(shape, a) for shape, a, _ in operands if a is not None]]
    tables.append([_rows_of_b(shape, b) for shape, _, b in operands])
    for table in tables:
        if table:
            rows = np.unique(np.concatenate([each.reshape(-1) for each in table]))
            start, end = int(rows[0]), int(rows[-1]) + 1
            found.append(slice(start, end) if end - start == len(rows) else rows)
    return found


def wait(w: "Warp", n: int) -> bool:
    """`wgmma.wait_group n`. Whether the warp must wait for its group's other warps."""
    keep = w.wgmma_commits[-n:] if n else []
    done = w.wgmma_commits[: len(w.wgmma_commits) - len(keep)]
    if not done:
        return False
    group = _group(w)
    until = done[-1]
    first = max(until - group.first, 0)
    if any(len(op.warps) < _size(w) for op in itertools.islice(group.operations, first)):
        w.blocked = ("wgmma", -1)
        w.park()
        return True
    w.blocked = None
    del w.wgmma_commits[: len(done)]
    _complete(w, group, until)
    w.clock[GENERIC, group.agent] = max(int(w.clock[GENERIC, group.agent]), until)
    return False


def _complete(w: "Warp", group: Group, until: int) -> None:
    while group.first < until and group.operations:
        operation = group.operations[0]
        if len(operation.warps) < _size(w):
            return
        group.operations.popleft()
        group.first += 1
        if not operation.done:
            _compute(w, operation)


def _compute(w: "Warp", operation: Multiplication) -> None:
    shape = operation.shape
    if w.machine.sync_only:
        return
    order = np.argsort([warp.number for warp in operation.warps])
    if operation.rows_b is None:
        for output in operation.outputs:
            output[:] = 0
        return
    b = read(w.cta, operation.rows_b, shape.b, shape.b_k_major)
    if operation.rows_a is not None:
        a = read(w.cta, operation.rows_a, shape.a, shape.a_k_major)
    else:
        a = np.concatenate([_fragment(operation.fragments[n], shape) for n in order])
    result = product(a, b)
    if shape.scale_a * shape.scale_b < 0:
        result = -result
    for n, place in enumerate(order):
        rows = result[16 * n : 16 * n + 16]
        tile = rows.reshape(2, 8, shape.n // 8, 4, 2).transpose(2, 0, 4, 1, 3)
        values = np.ascontiguousarray(tile).reshape(shape.n // 2, WARP)
        _accumulate(operation, int(place), values)


def _accumulate(operation: Multiplication, place: int, values: Array) -> None:
    """Add to what the accumulators held. Register 4j + 2h + e of a lane is row h, column 8j + e."""
    shape, output = operation.shape, operation.outputs[place]
    before: Array | None = None
    if operation.accumulate:
        given = operation.inputs[place]
        before = (
            given if isinstance(given, np.ndarray) else np.stack([array_of(v, 32) for v in given])
        )
    if shape.out == "s32":
        total = values if before is None else values + before.view(np.int32)
        output[:] = total.astype(np.int32).view(np.uint32)
    elif shape.out == "f32":
        with np.errstate(all="ignore"):
            total = values if before is None else values + before.view(np.float32)
        output[:] = np.ascontiguousarray(total, np.float32).view(np.uint32)
    else:
        pairs = values.reshape(shape.n // 4, 2, WARP)
        if before is not None:
            old = np.ascontiguousarray(before).view(np.float16).reshape(shape.n // 4, WARP, 2)
            pairs = pairs + old.transpose(0, 2, 1)
        halves = np.ascontiguousarray(pairs.transpose(0, 2, 1)).astype(np.float16)
        output[:] = halves.view(np.uint32)[..., 0]


def _fragment(registers: tuple[Value, ...], shape: Shape) -> Array:
    """(16, k) numbers of one warp's A registers.

    Register 2j + h of lane 4g + q holds row 8h + g and the q-th 32 bits of the j-th 16 bytes.
    """
    each = 4 // shape.item
    words = np.stack([array_of(value, 32) for value in registers])
    items = words.view(formats.element(shape.a)).reshape(2, 2, 8, 4, each)
    table = items.transpose(1, 2, 0, 3, 4).reshape(16, shape.k)
    bits = np.ascontiguousarray(table)
    return (
        formats.integers(bits, shape.a)
        if shape.a in ("s8", "u8")
        else formats.decode(bits, shape.a)
    )
