# SPDX-License-Identifier: Apache-2.0
"""Remembers who wrote each byte of global memory, to tell two writers that nothing orders.

Clusters have no clock in common, so any two of them that write one byte are a race, unless the
kernel has atomic operations, by which it may order them. Reads are not watched.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipegen.emulator.findings.clocks import Array


@dataclass(frozen=True)
class Write:
    """One write: the cluster's number, the warp in it, its epoch, and the instruction."""

    cluster: int
    agent: int
    epoch: int
    at: int


class GlobalWrites:
    """The last write of each byte of one buffer."""

    def __init__(self, bytes_: int) -> None:
        self._last = np.zeros(bytes_, np.int32)  # number of the write + 1
        self._writes: list[Write] = []

    def at(self, index: Any) -> Array:
        """The entries of bytes; writing to them notes a write."""
        found: Array = self._last[index]
        return found

    def box(self, start: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """The entries of the first bytes of a tensor's elements, as a view of its shape."""
        steps = tuple(4 * stride for stride in strides)
        return np.lib.stride_tricks.as_strided(self._last[start:], sizes, steps)

    def note(self, view: Array, where: Any, write: Write) -> list[Write]:
        """Note a write; the earlier ones that it overwrites."""
        before = view[where]
        earlier: list[Write] = []
        if before.any():
            earlier = [self._writes[n - 1] for n in np.unique(before) if n]
        if not self._writes or self._writes[-1] != write:
            self._writes.append(write)
        view[where] = len(self._writes)
        return earlier

    @property
    def entries(self) -> Array:
        """All entries, one a byte."""
        return self._last
