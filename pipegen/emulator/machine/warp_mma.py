# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication by one warp (mma.sync).

PTX ISA, section "Warp Level Matrix Multiply-Accumulate Instructions" (9.7.14.5), shapes m16n8k16
and m16n8k8 with f16, bf16 or tf32 operands and f32 accumulators. Lane 4g + q holds of A rows g and
g + 8, of B column g, of C and D rows g and g + 8, columns 2q and 2q + 1.
"""

from typing import TYPE_CHECKING

import numpy as np

from pipegen.emulator.machine import formats
from pipegen.emulator.machine.emitting import Emitter, emits
from pipegen.emulator.machine.values import FULL, WARP, Array, Value, array_of
from pipegen.emulator.ptx.ir import Instruction, Vector

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Warp

_SHAPES = {
    ("m16n8k16", "f16"): 2,
    ("m16n8k16", "bf16"): 2,
    ("m16n8k8", "f16"): 1,
    ("m16n8k8", "bf16"): 1,
    ("m16n8k8", "tf32"): 2,
    ("m16n8k4", "tf32"): 1,
}


@emits("mma")
def _mma(c: Emitter, i: Instruction) -> None:
    parts = i.parts
    known = len(parts) == 10 and parts[1:3] == ("sync", "aligned") and parts[4:6] == ("row", "col")
    if not known or parts[6] != "f32" or parts[9] != "f32" or parts[7] != parts[8]:
        raise c.unknown("a form of mma that the emulator does not know")
    shape, kind = parts[3], parts[7]
    halves = _SHAPES.get((shape, kind))
    d, a, b, old = i.operands
    if halves is None or not isinstance(d, Vector):
        raise c.unknown("a form of mma that the emulator does not know")
    name = c.use("warp_mma", multiply)
    operands = f"{c.value(a)}, {c.value(b)}, {c.value(old)}"
    c.assign(d, f"{name}(w, {kind!r}, {halves}, {operands}, mask, {c.at})")


def multiply(
    w: "Warp",
    kind: str,
    halves: int,
    a: tuple[Value, ...],
    b: tuple[Value, ...],
    old: tuple[Value, ...],
    mask: int,
    at: int,
) -> Array:
    """D = A * B + C, as four registers."""
    if mask != FULL:
        w.report("lanes-disagree", "an mma that not all lanes execute", at)
    item = formats.element(kind)
    each = 4 // item().itemsize
    # Register 2j + h of A: row 8h + g, the q-th 32 bits of the j-th half of K.
    words = np.stack([array_of(value, 32) for value in a]).view(item)
    rows = words.reshape(halves, 2, 8, 4, each).transpose(1, 2, 0, 3, 4).reshape(16, -1)
    words = np.stack([array_of(value, 32) for value in b]).view(item)
    columns = words.reshape(halves, 8, 4, each).transpose(1, 0, 2, 3).reshape(8, -1)
    with np.errstate(all="ignore"):
        left = formats.decode(np.ascontiguousarray(rows), kind)
        product = left @ formats.decode(np.ascontiguousarray(columns), kind).T
    # Register 2h + e of D: row 8h + g, column 2q + e.
    tile = product.reshape(2, 8, 4, 2).transpose(0, 3, 1, 2).reshape(4, WARP)
    before = np.stack([array_of(value, 32) for value in old]).view(np.float32)
    return np.ascontiguousarray(tile + before, np.float32).view(np.uint32)
