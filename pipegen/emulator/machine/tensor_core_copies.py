# SPDX-License-Identifier: Apache-2.0
"""Copies from shared to tensor memory by the tensor core (tcgen05.cp).

PTX ISA, section "tcgen05.cp" (9.7.16.9): a matrix descriptor says where the 128 rows of 128 or 256
bits lie in shared memory; row n goes to lane n, its 32-bit words to columns one after the other.
"""

from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.machine.addresses import TMEM_LANES
from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.emitting import Emitter
from pipegen.emulator.machine.smem_matrices import DescriptorError
from pipegen.emulator.machine.tensor_cores import descriptor_bits, granules, one_lane, rows_at
from pipegen.emulator.machine.tensor_memory import allocated
from pipegen.emulator.machine.tensor_order import issue, queue
from pipegen.emulator.machine.values import Value, uniform
from pipegen.emulator.ptx.ir import Instruction, PtxError

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_SHAPES = {"128x128b": 1, "128x256b": 2}  # 16-byte chunks of a row


def emit(c: Emitter, i: Instruction) -> None:
    """`tcgen05.cp` of one CTA."""
    shapes = [part for part in i.parts[2:] if part in _SHAPES]
    if len(shapes) != 1 or set(i.parts[2:]) != {"cta_group::1", *shapes}:
        raise c.unknown("a form of tcgen05.cp that the emulator does not know")
    d, source = i.operands
    name = c.use("tcgen05_cp", copy)
    where = f"{c.address(d)}, {c.value(source, 64)}, {_SHAPES[shapes[0]]}"
    c.line(f"{name}(w, {where}, mask, {c.at})")


def copy(w: "Warp", target: Value, source: Value, chunks: int, mask: int, at: int) -> None:
    """Issue: check what it reads and writes, and queue it."""
    one_lane(w, "tcgen05.cp", mask, at)
    place = descriptor_bits(w, source, mask), TMEM_LANES, 16 * chunks, 1, True
    try:
        rows = rows_at(place)
    except DescriptorError as error:
        raise PtxError(str(error), w.machine.program.instructions[at].line) from error
    cta, agent, epoch = w.cta, w.cluster.agents.tensor_copies(w.global_id), issue(w)
    where = np.unique(rows)
    if int(where[-1]) >= len(cta.rows):
        w.report("out-of-bounds", "the source of tcgen05.cp lies outside shared memory", at)
        return
    conflict = cta.shadow.read(where, agent, epoch, w.clock, at, asynchronous=True)
    if conflict:
        w.machine.race(w, cta, conflict, at, "copies from")
    start, count = uniform(target, mask) & 0xFFFF, 4 * chunks
    if not allocated(cta, start, count):
        end = start + count - 1
        w.report("tmem-allocation", f"TMEM columns {start} to {end} are not allocated", at)
        return
    conflict = cta.tmem_shadow.write(
        granules(start, count), agent, epoch, w.clock, at, asynchronous=True
    )
    if conflict:
        w.machine.race(w, cta, conflict, at, "copies into", tensor=True)

    def complete() -> None:
        if not w.machine.sync_only:
            words = np.ascontiguousarray(cta.rows[rows]).reshape(TMEM_LANES, -1).view(np.uint32)
            cta.tmem[:, start : start + count] = words

    queue(w, Operation(complete))
