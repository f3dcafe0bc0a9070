# SPDX-License-Identifier: Apache-2.0
"""A model of the Blackwell GEMM's protocol: mbarriers, copies, MMAs, commits and answers of one
cluster, in any order that the hardware may choose.

It takes the plan's counts, and knows nothing of the DSL. It fails where a count is too high (nobody
can go on), too low (a stage is overwritten while it is read, or read before it is whole), where a
wait has no signal, and where a signal finds a CTA that has left.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

CLC_BYTES = 16
Role = Generator[Callable[[], bool], None, None]


@dataclass
class Mbarrier:
    """PTX ISA, "mbarrier": a phase ends when no arrival and no byte is pending."""

    count: int
    owner: "Cta"
    arrivals: int = 0
    bytes: int = 0
    phase: int = 0

    def arrive(self, expect: int = 0) -> None:
        assert not self.owner.left, "a signal for a CTA that has left"
        self.bytes += expect
        self.arrivals += 1
        assert self.arrivals <= self.count, "more arrivals than the phase counts"
        self._end()

    def complete(self, size: int) -> None:
        assert not self.owner.left, "bytes for a CTA that has left"
        self.bytes -= size
        self._end()

    def _end(self) -> None:
        if self.arrivals == self.count and self.bytes == 0:
            self.arrivals, self.phase = 0, self.phase + 1

    def passed(self, parity: int) -> bool:
        """mbarrier.try_wait.parity: whether the phase of this parity has ended."""
        return self.phase % 2 != parity


@dataclass
class Place:
    """A pipeline state: an index and a parity bit."""

    stages: int
    parity: int
    index: int = 0

    def advance(self) -> None:
        self.index += 1
        if self.index == self.stages:
            self.index, self.parity = 0, self.parity ^ 1


@dataclass
class Cta:
    m: int
    n: int
    rank: int
    left: bool = False
    full: list[Mbarrier] = field(default_factory=list)
    empty: list[Mbarrier] = field(default_factory=list)
    acc_full: list[Mbarrier] = field(default_factory=list)
    acc_empty: list[Mbarrier] = field(default_factory=list)
    answer_full: list[Mbarrier] = field(default_factory=list)
    answer_empty: list[Mbarrier] = field(default_factory=list)
    smem: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)
    tmem: dict[int, int] = field(default_factory=dict)
    answers: dict[int, int | None] = field(default_factory=dict)
    stored: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Counts:
    """What the plan says. `tx` in bytes, `a` and `b` the bytes that one CTA holds in a stage."""

    cluster: tuple[int, int]
    group: int
    stages: int
    accumulators: int
    answers: int  # 0: a static grid
    a: int
    b: int
    tx: int
    empty: int
    acc_empty: int
    answer_empty: int = 0
    half_b: int = 0  # bytes that are not loaded in the tiles that `narrow` names


class Cluster:
    """One cluster, and what is under way in it."""

    def __init__(self, counts: Counts, tiles: int, k_tiles: int, narrow: set[int], seed: int):
        self.c, self.tiles, self.k_tiles, self.narrow = counts, tiles, k_tiles, narrow
        self.random = random.Random(seed)
        self.under_way: list[Callable[[], None]] = []
        self.left_to_cancel = list(range(1, tiles))
        m, n = counts.cluster
        self.ctas = [Cta(rank % m, rank // m, rank) for rank in range(m * n)]
        for cta in self.ctas:
            for name, number, count in (
                ("full", counts.stages, 1),
                ("empty", counts.stages, counts.empty),
                ("acc_full", counts.accumulators, 1),
                ("acc_empty", counts.accumulators, counts.acc_empty),
                ("answer_full", counts.answers, 1),
                ("answer_empty", counts.answers, counts.answer_empty),
            ):
                setattr(cta, name, [Mbarrier(count, cta) for _ in range(number)])

    # ---- who shares what: a pair's CTAs differ in m % group --------------------------------------
    def leader(self, cta: Cta) -> Cta:
        return self.ctas[cta.rank - cta.m % self.c.group]

    def pair(self, cta: Cta) -> list[Cta]:
        return [other for other in self.ctas if self.leader(other) is self.leader(cta)]

    def sharing_a(self, cta: Cta) -> list[Cta]:
        return [other for other in self.ctas if other.m == cta.m]

    def sharing_b(self, cta: Cta) -> list[Cta]:
        group = self.c.group
        return [o for o in self.ctas if o.n == cta.n and o.m % group == cta.m % group]

    def signalled(self, leader: Cta) -> list[Cta]:
        """The CTAs whose copies this leader's MMA has read."""
        return [
            cta
            for cta in self.ctas
            if any(self.leader(to) is leader for to in self.sharing_a(cta) + self.sharing_b(cta))
        ]

    # ---- roles -----------------------------------------------------------------------------------
    def tiles_of(self, cta: Cta, readers: int, place: Place) -> Generator:
        """A role's tiles: yields what to wait for, or a tile. `readers` threads read an answer."""
        tile: int | None = 0
        number = 0
        while tile is not None:
            yield tile
            number += 1
            if not self.c.answers:
                tile = number if number < self.tiles else None
                continue
            barrier, index, parity = cta.answer_full[place.index], place.index, place.parity
            yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
            tile = cta.answers[index]
            # Static numbers again: the n-th answer is the n-th tile, or no.
            assert tile == (number if number < self.tiles else None), "a wrong answer was read"
            for _ in range(readers):
                self.ctas[0].answer_empty[index].arrive()
            place.advance()

    def tma(self, cta: Cta) -> Role:
        c, stage, answer = self.c, Place(self.c.stages, 1), Place(self.c.answers, 0)
        for tile in self.tiles_of(cta, 32, answer):
            if callable(tile):
                yield tile
                continue
            for k in range(self.k_tiles):
                barrier, parity = cta.empty[stage.index], stage.parity
                yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
                if self.leader(cta) is cta:
                    cta.full[stage.index].arrive(c.tx - (c.half_b if tile in self.narrow else 0))
                self.copy("a", cta, self.sharing_a(cta), stage.index, (tile, k), c.a)
                b = c.b
                if tile in self.narrow and c.half_b:
                    b = c.b - c.half_b if c.group == 1 else c.b * (cta.m % 2 == 0)
                self.copy("b", cta, self.sharing_b(cta), stage.index, (tile, k), b)
                stage.advance()
        for _ in range(c.stages):
            barrier, parity = cta.empty[stage.index], stage.parity
            yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
            stage.advance()

    def copy(
        self, operand: str, cta: Cta, to: list[Cta], stage: int, content: tuple[int, int], size: int
    ) -> None:
        """A part of a tile, to every CTA that shares it; each lands by itself."""
        if not size:
            return
        for other in to:

            def land(other=other):
                other.smem[operand, stage, cta.rank] = content
                self.leader(other).full[stage].complete(size // len(to))

            self.under_way.append(land)

    def mma(self, cta: Cta) -> Role:
        c, stage, answer = self.c, Place(self.c.stages, 0), Place(self.c.answers, 0)
        buffer = Place(c.accumulators, 1)
        for tile in self.tiles_of(cta, 32, answer):
            if callable(tile):
                yield tile
                continue
            barrier, parity = cta.acc_empty[buffer.index], buffer.parity
            yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
            for k in range(self.k_tiles):
                barrier, parity = cta.full[stage.index], stage.parity
                yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
                self.in_order(
                    lambda s=stage.index, b=buffer.index, t=tile, k=k: self.read(cta, s, b, t, k)
                )
                stage.advance()
            self.in_order(lambda b=buffer.index: [o.acc_full[b].arrive() for o in self.pair(cta)])
            buffer.advance()
        if c.group == 2:  # the tail of PipelineUmmaAsync: the last buffer used
            for _ in range(c.accumulators - 1):
                buffer.advance()
            barrier, parity = cta.acc_empty[buffer.index], buffer.parity
            yield lambda: barrier.passed(parity)

    def in_order(self, event: Callable[[], object]) -> None:
        """tcgen05 operations of one CTA are done in the order in which they were issued."""
        self.mma_queue.append(event)

    def read(self, cta: Cta, stage: int, buffer: int, tile: int, k: int) -> None:
        """An MMA is done: what it read must still be there. Its commit signals all who loaded."""
        for each in self.pair(cta):
            for operand, to in (("a", self.sharing_a(each)), ("b", self.sharing_b(each))):
                if (
                    operand == "b"
                    and self.c.half_b
                    and tile in self.narrow
                    and each.m % self.c.group
                ):
                    continue  # nobody loaded it, nobody stores what it makes
                for source in to:
                    content = each.smem.get((operand, stage, source.rank))
                    assert content == (tile, k), "a race on a stage"
            each.tmem[buffer] = tile
        for other in self.signalled(cta):
            other.empty[stage].arrive()

    def epilogue_warp(self, cta: Cta, warp: int) -> Role:
        _c, answer, buffer = self.c, Place(self.c.answers, 0), Place(self.c.accumulators, 0)
        for tile in self.tiles_of(cta, 32, answer):
            if callable(tile):
                yield tile
                continue
            barrier, parity = cta.acc_full[buffer.index], buffer.parity
            yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
            assert cta.tmem.get(buffer.index) == tile, "a race on an accumulator"
            yield lambda: True
            assert cta.tmem.get(buffer.index) == tile, "a race on an accumulator"
            self.leader(cta).acc_empty[buffer.index].arrive()
            cta.stored.append(tile)
            buffer.advance()

    def scheduler(self) -> Role:
        c, first = self.c, self.ctas[0]
        query, answer = Place(c.answers, 1), Place(c.answers, 0)
        for tile in self.tiles_of(first, 32, answer):
            if callable(tile):
                yield tile
                continue
            barrier, parity, index = first.answer_empty[query.index], query.parity, query.index
            yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
            for cta in self.ctas:
                cta.answer_full[index].arrive(CLC_BYTES)
            found = self.left_to_cancel.pop(0) if self.left_to_cancel else None
            for cta in self.ctas:

                def come(cta=cta, index=index, found=found):
                    cta.answers[index] = found
                    cta.answer_full[index].complete(CLC_BYTES)

                self.under_way.append(come)
            query.advance()
        for _ in range(c.answers):
            barrier, parity = first.answer_empty[query.index], query.parity
            yield lambda barrier=barrier, parity=parity: barrier.passed(parity)
            query.advance()

    # ---- the run ---------------------------------------------------------------------------------
    def run(self) -> None:
        """Every role to its end, in a random order. Raises AssertionError where that fails."""
        queues: dict[int, list[Callable[[], object]]] = {cta.rank: [] for cta in self.ctas}
        roles: list[tuple[Cta, bool, Role]] = []
        for cta in self.ctas:
            roles.append((cta, False, self.tma(cta)))
            roles += [(cta, False, self.epilogue_warp(cta, warp)) for warp in range(4)]
            if self.leader(cta) is cta:
                roles.append((cta, True, self.mma(cta)))
        if self.c.answers:
            roles.append((self.ctas[0], False, self.scheduler()))
        waiting: dict[int, Callable[[], bool]] = {i: (lambda: True) for i in range(len(roles))}
        while waiting:
            choices: list[tuple[str, int]] = [("role", i) for i, w in waiting.items() if w()]
            choices += [("event", i) for i in range(len(self.under_way))]
            choices += [("mma", rank) for rank, queue in queues.items() if queue]
            assert choices, "a deadlock"
            kind, i = self.random.choice(choices)
            if kind == "event":
                self.under_way.pop(i)()
            elif kind == "mma":
                queues[i].pop(0)()
            else:
                cta, _, role = roles[i]
                self.mma_queue = queues[cta.rank]
                try:
                    waiting[i] = next(role)
                except StopIteration:
                    del waiting[i]
                    cta.left = not any(roles[j][0] is cta for j in waiting)
        assert not self.under_way, "copies after the end"
        assert not any(queues.values()), "commits after the end"
        for cta in self.ctas:
            assert sorted(cta.stored) == sorted(4 * list(range(self.tiles)))
