# SPDX-License-Identifier: Apache-2.0
"""Notes who accesses global memory, and tells accesses that nothing orders.

PTX ISA, chapter "Memory Consistency Model": causality order, and section "Async Operations". An
access is by an agent in an epoch (`by`), which others know of as of those of shared memory.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.clocks import GENERIC
from pipegen.emulator.findings.global_accesses import Access, Box, GlobalAccesses

if TYPE_CHECKING:
    from pipegen.emulator.machine.global_memory import Region
    from pipegen.emulator.machine.state import Warp
    from pipegen.emulator.machine.tensor_copies import Tensor

By = tuple[int, int]


def by_threads(w: "Warp") -> By:
    """What the warp's own loads and stores are noted by."""
    return w.agent, int(w.clock[GENERIC, w.agent])


def note_write(
    w: "Warp",
    region: "Region",
    address: Any,
    bytes_: int,
    by: By,
    at: int,
    repeats: Callable[[], bool] = lambda: False,
) -> None:
    """Note a write of `bytes_` bytes at each address. `repeats`: whether it changes nothing."""
    _note(w, region, None, _bytes_at(region, address, bytes_), by, at, True, repeats)


def note_read(w: "Warp", region: "Region", address: Any, bytes_: int, by: By, at: int) -> None:
    """Note a read of `bytes_` bytes at each address."""
    where = functools.partial(_bytes_at, region, address, bytes_)  # most buffers are only read
    _note(w, region, None, where, by, at, False)


def note_box(w: "Warp", tensor: "Tensor", where: Any, by: By, at: int, writes: bool) -> None:
    """Note an access to a box of a tensor."""
    start = tensor.map.address
    region = w.machine.memory.find(start, start + tensor.extent)
    if region is not None:
        box = Box(start - region.start, tensor.sizes, tensor.strides)
        _note(w, region, box, where, by, at, writes)


def _bytes_at(region: "Region", address: Any, bytes_: int) -> Any:
    return np.asarray(address - region.start, np.int64).reshape(-1, 1) + np.arange(bytes_)


def _note(
    w: "Warp",
    region: "Region",
    box: Box | None,
    where: Any,
    by: By,
    at: int,
    writes: bool,
    repeats: Callable[[], bool] = lambda: False,
) -> None:
    accesses = w.machine.accesses.get(region.start)
    if accesses is None:
        accesses = w.machine.accesses[region.start] = GlobalAccesses(region.end - region.start)
    access = Access(w.cluster.number, *by, at)
    if not writes:
        _tell(w, accesses.read(box, where, access), at, "reads", "written")
        return
    written, read = accesses.write(box, where, access)
    others = [each for each in written if not _is_repeated(w, each, at)]
    if len(others) < len(written) and not repeats():
        others = written
    _tell(w, others, at, "writes", "written")
    _tell(w, read, at, "writes", "read")


def _is_repeated(w: "Warp", earlier: Access, at: int) -> bool:
    return earlier.cluster == w.cluster.number and w.repeats(earlier.agent, at, earlier.at)


def _tell(w: "Warp", earlier: list[Access], at: int, does: str, did: str) -> None:
    for each in earlier:
        inside = each.cluster == w.cluster.number
        if inside and w.clock[GENERIC, each.agent] >= each.epoch:
            continue
        # A flag may order what is read, and whatever different clusters do.
        both_write = (does, did) == ("writes", "written")
        if not w.machine.program.has_flags or (inside and both_write):
            w.machine.race_in_global(w, each, at, does, did)
