# SPDX-License-Identifier: Apache-2.0
"""Remembers who accessed each byte of global memory, to tell two accesses that nothing orders.

Clusters have no clock in common: any two of them of which one writes what the other accesses are a
race, unless the kernel may order them through global memory. Of several readers of a byte the last
one is kept.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipegen.emulator.findings.clocks import Array


@dataclass(frozen=True)
class Access:
    """One access: the cluster's number, the agent in it, its epoch, and the instruction."""

    cluster: int
    agent: int
    epoch: int
    at: int


@dataclass(frozen=True)
class Box:
    """A tensor in a buffer: its first byte, and its sizes and strides in bytes."""

    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class GlobalAccesses:
    """The last write and the last read of each byte of one buffer.

    `where` is an array of byte numbers, or a function that makes it when it is needed; with a box
    it is an index of the box's elements, of which the first byte stands for all.
    """

    def __init__(self, bytes_: int) -> None:
        self._bytes = bytes_
        self._accesses: list[Access] = []
        # By byte: the number of an access + 1. Most buffers are only read, or only written.
        self._writer: Array | None = None
        self._reader: Array | None = None
        self._unplaced: list[tuple[Box | None, Any, int]] = []

    def read(self, box: Box | None, where: Any, access: Access) -> list[Access]:
        """Note a read; the writes that it reads."""
        number = self._number(access)
        if self._writer is None:
            self._unplaced.append((box, where, number))
            return []
        where = where() if callable(where) else where
        self._place(box, where, number)
        return self._at(self._writer, box, where)

    def write(self, box: Box | None, where: Any, access: Access) -> tuple[list[Access], ...]:
        """Note a write; the earlier writes and the earlier reads in its place."""
        if self._writer is None:
            self._writer = np.zeros(self._bytes, np.int32)
            for place, read, number in self._unplaced:
                self._place(place, read() if callable(read) else read, number)
            self._unplaced.clear()
        writes = self._at(self._writer, box, where)
        reads = [] if self._reader is None else self._at(self._reader, box, where)
        _view(self._writer, box)[where] = self._number(access)
        return writes, reads

    def _place(self, box: Box | None, where: Any, number: int) -> None:
        if self._reader is None:
            self._reader = np.zeros(self._bytes, np.int32)
        _view(self._reader, box)[where] = number

    def _number(self, access: Access) -> int:
        if not self._accesses or self._accesses[-1] != access:
            self._accesses.append(access)
        return len(self._accesses)

    def _at(self, numbers: Array, box: Box | None, where: Any) -> list[Access]:
        found = _view(numbers, box)[where]
        if not found.any():
            return []
        return [self._accesses[n - 1] for n in np.unique(found) if n]


def _view(numbers: Array, box: Box | None) -> Array:
    if box is None:
        return numbers
    steps = tuple(numbers.itemsize * stride for stride in box.strides)
    return np.lib.stride_tricks.as_strided(numbers[box.start :], box.sizes, steps)
