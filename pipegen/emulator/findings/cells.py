# SPDX-License-Identifier: Apache-2.0
"""The shadow of a run without data: what is always accessed together is kept once.

A run without data notes whole stages and tiles, and the same ones again and again. So memory is cut
into cells, the coarsest parts such that every access so far covers whole cells: a stage that one
copy fills and one product reads is one cell, whatever its size. How memory is cut is the same for
all CTAs of a kernel, and is kept from run to run (`Cells`); what was accessed is a CTA's own
(`CellShadow`). The rules are those of `Shadow`, which tests compare with this. A kernel whose
accesses cut memory into crumbs is better off with `Shadow`, which then takes over.
"""

from typing import Any

import numpy as np

from pipegen.emulator.findings.clocks import Array
from pipegen.emulator.findings.shadow import ALL_BYTES, Conflict, Index, Shadow

# An access of so many cells costs as much as `Shadow` takes for any.
_CRUMBS = 48
# More footprints than this do not repeat themselves often enough.
_FOOTPRINTS = 4096
_EVER = 1 << 62


class Footprint:
    """Where an access goes: an index of granules, the bytes of each, and the cells of these."""

    __slots__ = ("bytes_", "cells", "where")

    def __init__(self, where: Index, bytes_: Any) -> None:
        self.where, self.bytes_ = where, bytes_
        self.cells: list[tuple[int, int]] = []  # (number of the cell, bytes of its granules)


class Cells:
    """How a memory of `granules` granules is cut.

    `parents` has of each cell the one that it was cut from; `repeated` is for what callers know of
    accesses that come again. `crumbled`: there are too many cells.
    """

    def __init__(self, granules: int) -> None:
        self.granules = [np.arange(granules)]
        self.parents = [0]
        self.crumbled = False
        self.repeated: dict[Any, Any] = {}
        self._cell_of = np.zeros(granules, np.int64)
        self._users: list[list[tuple[Footprint, int]]] = [[]]
        self._known: dict[Any, Footprint] = {}

    def footprint(self, where: Index, bytes_: Any = ALL_BYTES) -> Footprint:
        """The footprint of an access."""
        part = bytes_ if type(bytes_) is int else bytes_.tobytes()
        key = (where.start, where.stop, part) if type(where) is slice else (where.tobytes(), part)
        found = self._known.get(key)
        if found is None:
            found = Footprint(where, bytes_)
            if not self.crumbled:
                self._known[key] = found
                self._cut(found)
        return found

    def _cut(self, place: Footprint) -> None:
        """Find the cells of a new footprint, cutting those that it covers in part."""
        if type(place.where) is slice:
            every = np.arange(place.where.start, min(place.where.stop, len(self._cell_of)))
        else:
            every = np.unique(place.where)
        pieces = [(every, place.bytes_)]
        if type(place.bytes_) is not int:  # of different bytes: granules do not repeat
            masks = np.unique(place.bytes_).tolist()
            pieces = [(place.where[place.bytes_ == mask], mask) for mask in masks]
        for granules, part in pieces:
            numbers = self._cell_of[granules]
            for number in set(numbers.tolist()):
                inside = granules[numbers == number]
                if len(inside) < len(self.granules[number]):
                    number = self._cut_off(number, inside)
                self._users[number].append((place, part))
                place.cells.append((number, part))
        if len(place.cells) > _CRUMBS or len(self._known) > _FOOTPRINTS:
            self.crumbled = True

    def _cut_off(self, number: int, inside: Array) -> int:
        """Make some of a cell's granules a cell of their own."""
        new = len(self.parents)
        self.parents.append(number)
        users = self._users[number]
        self._users.append(list(users))
        for user, part in users:
            user.cells.append((new, part))
        self._cell_of[inside] = new
        before = self.granules[number]
        self.granules.append(inside)
        self.granules[number] = before[self._cell_of[before] == number]
        return new


class CellShadow:
    """The last accesses of the memory of one CTA. Takes the place of a `Shadow`."""

    def __init__(self, cells: Cells, agents: int, generic: int) -> None:
        self.cells, self._agents, self._generic = cells, agents, generic
        count = len(cells.parents)
        # By cell; the fields are those of `Shadow`.
        self._writer, self._written = [0] * count, [0] * count
        self._write_bytes, self._write_at = [0] * count, [0] * count
        # Of each agent that reads: (epoch, bytes, instruction)
        self._reads: list[dict[int, tuple[int, int, int]]] = [{} for _ in range(count)]
        self._plain: Shadow | None = None

    def read(
        self,
        where: "Index | Footprint",
        agent: int,
        epoch: int,
        clock: Array,
        at: int,
        asynchronous: bool = False,
        bytes_: Any = ALL_BYTES,
    ) -> Conflict | None:
        """As `Shadow.read`."""
        place = self._place(where, bytes_)
        if self._plain is not None:
            arguments = agent, epoch, clock, at, asynchronous, place.bytes_
            return self._plain.read(place.where, *arguments)
        known, unknown = clock.item, False
        fenced = self._agents if asynchronous else 0  # the second row of the clock
        writer, written, reads = self._writer, self._written, self._reads
        for n, part in place.cells:
            if known(writer[n]) < written[n] or known(fenced + writer[n]) < written[n]:
                unknown = True
            if part != ALL_BYTES:
                before = reads[n].get(agent)
                if before is not None and before[0] == epoch:
                    part |= before[1]
            reads[n][agent] = epoch, part, at
        return self._against_write(place, agent, clock, asynchronous) if unknown else None

    def write(
        self,
        where: "Index | Footprint",
        agent: int,
        epoch: int,
        clock: Array,
        at: int,
        bytes_: Any = ALL_BYTES,
        asynchronous: bool = False,
    ) -> Conflict | None:
        """As `Shadow.write`."""
        place = self._place(where, bytes_)
        if self._plain is not None:
            arguments = agent, epoch, clock, at, place.bytes_, asynchronous
            return self._plain.write(place.where, *arguments)
        known, unknown, unread = clock.item, False, False
        fenced = self._agents if asynchronous else 0  # the second row of the clock
        writer, written = self._writer, self._written
        for n, _ in place.cells:
            if known(writer[n]) < written[n] or known(fenced + writer[n]) < written[n]:
                unknown = True
            for reader, (read, _, _) in self._reads[n].items():
                if known(reader) < read:
                    unread = True
        conflict = None
        if unknown:
            conflict = self._against_write(place, agent, clock, asynchronous, asynchronous)
        if conflict is None and unread:
            conflict = self._against_reads(place, agent, clock)
        for n, part in place.cells:
            if part != ALL_BYTES and written[n] == epoch and writer[n] == agent:
                part |= self._write_bytes[n]
            writer[n], written[n] = agent, epoch
            self._write_bytes[n], self._write_at[n] = part, at
        return conflict

    def _place(self, where: "Index | Footprint", bytes_: Any) -> Footprint:
        """The footprint of an access, with all its cells known here."""
        place = where if type(where) is Footprint else self.cells.footprint(where, bytes_)
        parents = self.cells.parents
        while len(self._writer) < len(parents):
            # What was cut since the last access here has the past of what it was cut from.
            n = parents[len(self._writer)]
            for column in (self._writer, self._written, self._write_bytes, self._write_at):
                column.append(column[n])
            self._reads.append(dict(self._reads[n]))
        if self.cells.crumbled and self._plain is None:
            self._plain = self._as_shadow()
        return place

    def _against_write(
        self, place: Footprint, agent: int, clock: Array, asynchronous: bool, own: bool = False
    ) -> Conflict | None:
        """`own`: whether the agent's own earlier writes count."""
        known = clock.item
        writer, written = self._writer, self._written
        overlaps = [n for n, part in place.cells if self._write_bytes[n] & part]
        overlaps.sort(key=self._first)
        for n in overlaps:
            if known(writer[n]) < written[n] and (own or writer[n] != agent):
                return Conflict(writer[n], self._write_at[n], self._first(n), True, False)
        for n in overlaps if asynchronous else ():
            if known(self._agents + writer[n]) < written[n] and writer[n] < self._generic:
                return Conflict(writer[n], self._write_at[n], self._first(n), True, True)
        return None

    def _against_reads(self, place: Footprint, agent: int, clock: Array) -> Conflict | None:
        known = clock.item
        for n, part in sorted(place.cells, key=lambda cell: self._first(cell[0])):
            for reader, (epoch, bytes_, at) in self._reads[n].items():
                if known(reader) < epoch and reader != agent and bytes_ & part:
                    return Conflict(reader, at, self._first(n), False)
        return None

    def _first(self, n: int) -> int:
        return int(self.cells.granules[n][0])

    def _as_shadow(self) -> Shadow:
        """A `Shadow` that knows what this one does, to go on instead of it."""
        plain = Shadow(sum(map(len, self.cells.granules)), self._agents, self._generic)
        knows_all = np.full((2, self._agents), _EVER, np.int64)
        for n, granules in enumerate(self.cells.granules):
            if self._written[n]:
                write = self._writer[n], self._written[n], knows_all, self._write_at[n]
                plain.write(granules, *write, self._write_bytes[n])
            for agent, (epoch, bytes_, at) in self._reads[n].items():
                plain.read(granules, agent, epoch, knows_all, at, False, bytes_)
        return plain
