# SPDX-License-Identifier: Apache-2.0
"""Remembers who last wrote and read each granule of a memory, and tells conflicts.

A granule is 16 bytes of shared or global memory, or one column of 32 lanes of tensor memory. Of
each granule the shadow keeps the last write and the last read of each agent, as (epoch, bytes,
instruction). Accesses smaller than a granule carry a mask of its bytes: disjoint bytes do not
conflict, and the newer access takes the place of the older, which may then go unseen.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipegen.emulator.findings.clocks import ASYNC, GENERIC, Array

ALL_BYTES = 0xFFFF
Index = Any  # a slice or an array of granule numbers
_ROWS = 32  # agents that read, at first; numpy takes no memory for what is never touched
_all, _any = np.logical_and.reduce, np.logical_or.reduce  # without what `all()` and `any()` add


@dataclass(frozen=True)
class Conflict:
    """Two accesses that nothing orders: `agent` and `at` are of the earlier one.

    `fence` says that they are ordered, but for the missing proxy fence.
    """

    agent: int
    at: int
    granule: int
    earlier_wrote: bool
    fence: bool = False


class Shadow:
    """The last accesses of a memory of `granules` granules."""

    def __init__(self, granules: int, agents: int, generic: int) -> None:
        self.granules = granules
        self.generic = generic  # agents below this number write through the generic proxy
        self.writer = np.zeros(granules, np.int32)
        self.written = np.zeros(granules, np.int64)  # epoch; 0 is never
        self.write_bytes = np.zeros(granules, np.uint16)
        self.write_at = np.zeros(granules, np.int32)
        self._row = np.full(agents, -1, np.int32)
        self._agents = np.zeros(0, np.int64)  # of the rows
        self._read = np.zeros((_ROWS, granules), np.int64)
        self._read_bytes = np.zeros((_ROWS, granules), np.uint16)
        self._read_at = np.zeros((_ROWS, granules), np.int32)

    def read(
        self,
        where: Index,
        agent: int,
        epoch: int,
        clock: Array,
        at: int,
        asynchronous: bool = False,
        bytes_: Any = ALL_BYTES,
    ) -> Conflict | None:
        """Note a read; the conflict with an earlier write, if there is one."""
        conflict = self._against_write(where, agent, clock, asynchronous, bytes_)
        row = self._row[agent]
        if row < 0:
            row = self._new_row(agent)
        if bytes_ is not ALL_BYTES:
            same = self._read[row, where] == epoch
            bytes_ = np.where(same, self._read_bytes[row, where], 0) | bytes_
        self._read_bytes[row, where] = bytes_
        self._read[row, where] = epoch
        self._read_at[row, where] = at
        return conflict

    def write(
        self,
        where: Index,
        agent: int,
        epoch: int,
        clock: Array,
        at: int,
        bytes_: Any = ALL_BYTES,
        asynchronous: bool = False,
    ) -> Conflict | None:
        """Note a write; the conflict with an earlier read or write, if there is one.

        Asynchronous writes are not in order among themselves either, and need a proxy fence after
        generic ones. (None is asked for after generic reads: everyone refills stages without.)
        """
        conflict = self._against_write(where, agent, clock, asynchronous, bytes_, asynchronous)
        if conflict is None and len(self._agents):
            conflict = self._against_reads(where, agent, clock, bytes_)
        if bytes_ is not ALL_BYTES:
            same = (self.written[where] == epoch) & (self.writer[where] == agent)
            bytes_ = np.where(same, self.write_bytes[where], 0) | bytes_
        self.write_bytes[where] = bytes_
        self.writer[where] = agent
        self.written[where] = epoch
        self.write_at[where] = at
        return conflict

    def _new_row(self, agent: int) -> int:
        row = len(self._agents)
        self._agents = np.append(self._agents, agent)
        self._row[agent] = row
        if row == len(self._read):
            self._read = np.concatenate([self._read, np.zeros_like(self._read)])
            self._read_bytes = np.concatenate([self._read_bytes, np.zeros_like(self._read_bytes)])
            self._read_at = np.concatenate([self._read_at, np.zeros_like(self._read_at)])
        return row

    def _against_write(
        self,
        where: Index,
        agent: int,
        clock: Array,
        asynchronous: bool,
        bytes_: Any,
        own: bool = False,
    ) -> Conflict | None:
        """`own`: whether the agent's own earlier writes count."""
        writer, written = self.writer[where], self.written[where]
        seen = clock[GENERIC][writer] >= written
        if not _all(seen):
            bad = ~seen & ((self.write_bytes[where] & bytes_) != 0)
            if not own:
                bad &= writer != agent
            if bad.any():
                return self._write_conflict(where, bad, False)
        if asynchronous:
            fenced = (clock[ASYNC][writer] >= written) | (writer >= self.generic)
            if not _all(fenced):
                bad = ~fenced & ((self.write_bytes[where] & bytes_) != 0)
                if bad.any():
                    return self._write_conflict(where, bad, True)
        return None

    def _write_conflict(self, where: Index, bad: Array, fence: bool) -> Conflict:
        first = int(np.argmax(bad))
        writer, at = int(self.writer[where][first]), int(self.write_at[where][first])
        return Conflict(writer, at, self._granule(where, first), True, fence)

    def _against_reads(
        self, where: Index, agent: int, clock: Array, bytes_: Any
    ) -> Conflict | None:
        count = len(self._agents)
        known = clock[GENERIC][self._agents]
        late = self._read[:count, where] > known[:, None]
        if not _any(late, axis=None):
            return None
        late &= (self._read_bytes[:count, where] & bytes_) != 0
        own = self._row[agent]
        if own >= 0:
            late[own] = False
        if not late.any():
            return None
        row, first = np.unravel_index(int(np.argmax(late)), late.shape)
        at = int(self._read_at[row, where][first])
        return Conflict(int(self._agents[row]), at, self._granule(where, int(first)), False)

    def _granule(self, where: Index, n: int) -> int:
        if isinstance(where, slice):
            return int(where.start) + n
        return int(np.asarray(where)[n])
