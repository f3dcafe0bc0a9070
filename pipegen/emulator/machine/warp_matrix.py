# SPDX-License-Identifier: Apache-2.0
"""8x8 matrices between shared memory and the registers of a warp.

PTX ISA, sections "ldmatrix" and "stmatrix" (9.7.14.5). Each matrix has eight rows of 16 bytes; the
address of row r of matrix m comes from lane 8m + r. Lane 4r + c holds elements 2c and 2c + 1 of row
r; with .trans, of column r.
"""

from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.machine.access_runs import write_run
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.shared_memory import shared_cta
from pipegen.emulator.machine.values import FULL, WARP, Array, Value, array_of
from pipegen.emulator.ptx.ir import Instruction, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp


@emits("ldmatrix", "stmatrix")
def _matrix(c: Emitter, i: Instruction) -> None:
    parts = [p for p in i.parts[1:] if p not in ("sync", "aligned", "shared", "shared::cta")]
    trans = "trans" in parts
    parts = [p for p in parts if p != "trans"]
    if len(parts) != 3 or parts[0] != "m8n8" or parts[1] not in ("x1", "x2", "x4"):
        raise c.unknown("a form of matrix load or store that the emulator does not know")
    if parts[2] != "b16":
        raise c.unknown("a form of matrix load or store that the emulator does not know")
    count = int(parts[1][1])
    d, a = i.operands if i.opcode == "ldmatrix" else reversed(i.operands)
    items = d.items if isinstance(d, Vector) else (d,)
    if len(items) != count:
        raise c.unknown("registers that do not fit the number of matrices")
    if i.opcode == "ldmatrix":
        name = c.use("ldmatrix", load)
        if not c.wants(i):
            c.line(f"{name}(w, {c.address(a)}, {count}, {trans}, mask, {c.at})")
            return
        c.assign(Vector(items), f"{name}(w, {c.address(a)}, {count}, {trans}, mask, {c.at})")
    else:
        if c.sync_only:
            run = c.use("stmatrix_run", store_run)
            c.line_of_addresses(run, a, f"{count}, mask, {c.at}")
            return
        name = c.use("stmatrix", store)
        values = c.value(Vector(items))
        c.line(f"{name}(w, {c.address(a)}, {values}, {count}, {trans}, mask, {c.at})")


def _rows(w: "Warp", address: Value, count: int, mask: int, at: int) -> "tuple[Cta | None, Array]":
    none = np.zeros(0, np.int64)
    if mask != FULL:
        w.report("lanes-disagree", "a matrix load or store that not all lanes execute", at)
    places = array_of(address, 32)[: 8 * count]
    used = (1 << 8 * count) - 1
    cta, offset = shared_cta(w, array_of(address, 32), used, at)
    if cta is None or offset is None:
        return None, none
    if (places & 15).any():
        w.report("misaligned", "a row of a matrix that is not 16 B aligned", at)
    return cta, (offset >> 4).astype(np.int64)


def store(
    w: "Warp",
    address: Value,
    data: tuple[Value, ...],
    count: int,
    trans: bool,
    mask: int,
    at: int,
) -> None:
    """`stmatrix`."""
    cta, rows = _rows(w, address, count, mask, at)
    if cta is None:
        return
    conflict = cta.shadow.write(rows, w.agent, int(w.clock[GENERIC, w.agent]), w.clock, at)
    if conflict:
        w.machine.race(w, cta, conflict, at, "writes")
    words = np.stack([array_of(value, 32) for value in data])
    tiles = words.view(np.uint16).reshape(count, 8, 8)
    if trans:
        tiles = np.ascontiguousarray(tiles.transpose(0, 2, 1))
    cta.rows[rows] = tiles.reshape(8 * count, 8).view(np.uint8)


def store_run(
    w: "Warp", bases: list[Value], offsets: tuple[int, ...], count: int, mask: int, at: int
) -> None:
    """Note `stmatrix` one after the other whose data is left out."""
    if mask != FULL:
        w.report("lanes-disagree", "a matrix load or store that not all lanes execute", at)
    # Each of the first lanes gives the address of one row of 16 B.
    write_run(w, bases, offsets, 16, (1 << 8 * count) - 1, at)


def load(w: "Warp", address: Value, count: int, trans: bool, mask: int, at: int) -> Array:
    """`ldmatrix`: one register a matrix."""
    cta, rows = _rows(w, address, count, mask, at)
    if cta is None:
        return np.zeros((count, WARP), np.uint32)
    conflict = cta.shadow.read(rows, w.agent, int(w.clock[GENERIC, w.agent]), w.clock, at)
    if conflict:
        w.machine.race(w, cta, conflict, at, "reads")
    tiles = cta.rows[rows].view(np.uint16).reshape(count, 8, 8)
    if trans:
        tiles = tiles.transpose(0, 2, 1)
    return np.ascontiguousarray(tiles).reshape(count, 64).view(np.uint32)
