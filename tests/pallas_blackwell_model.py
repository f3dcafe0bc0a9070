# SPDX-License-Identifier: Apache-2.0
"""A model of the Pallas Blackwell GEMM's protocol: the mbarriers of one CTA, of a pair, or of a
cluster that shares tiles, in any order that the hardware may choose.

It takes the plan's counts and follows the emitted kernel's waits and arrivals. No interpreter of
jax runs a pair, and to it a multicast is a copy of one CTA: this is where both are tried. It fails
where a count is too high or too low, where a stage or an accumulator is overwritten or read early,
and where a signal finds a CTA that has left.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from blackwell_model import Cta, Mbarrier

THREADS = 128
COPIES = 2  # of a stage: A and B
SLOTS = 2  # answers that plgpu.dynamic_scheduling_loop keeps
Role = Generator[Callable[[], bool], None, None]


@dataclass(frozen=True)
class Counts:
    """What the plan says. `a` and `b` are the bytes that one CTA holds of a stage."""

    group: int
    stages: int
    accumulators: int
    clc: bool
    a: int
    b: int
    full: int
    empty: int
    acc_empty: int
    answer_full: int = 0
    answer_empty: int = 0
    cluster: tuple[int, int] = (1, 1)  # CTAs that share tiles
    released: int = 0
    # What the emitted text does, to be left out by a control.
    tail: bool = True
    acquire: bool = True
    follower_waits: bool = True
    relay: bool = True


@dataclass
class Waiter:
    """Mosaic GPU keeps a parity bit for each barrier and thread, which flips at each wait."""

    seen: dict[int, int] = field(default_factory=dict)

    def on(self, barrier: Mbarrier) -> Callable[[], bool]:
        parity = self.seen.get(id(barrier), 0)
        self.seen[id(barrier)] = parity ^ 1
        return lambda: barrier.passed(parity)


class Cluster:
    """One CTA, a pair that shares MMAs, or CTAs that share tiles, and what is under way in them."""

    def __init__(self, counts: Counts, tiles: int, k_tiles: int, seed: int):
        self.c, self.tiles, self.k_tiles = counts, tiles, k_tiles
        self.random = random.Random(seed)
        self.under_way: list[Callable[[], None]] = []
        self.to_cancel = list(range(1, tiles))
        rows, columns = counts.cluster if counts.group == 1 else (2, 1)
        self.ctas = [Cta(m, n, m * columns + n) for m in range(rows) for n in range(columns)]
        # MMAs that one CTA issues are done in that order.
        self.mmas: list[list[Callable[[], None]]] = [[] for _ in self.ctas]
        self.released = {
            cta.rank: [Mbarrier(counts.released, cta) for _ in range(counts.stages)]
            for cta in self.ctas
        }
        for cta in self.ctas:
            for name, number, count in (
                ("full", counts.stages, counts.full),
                ("empty", counts.stages, counts.empty),
                ("acc_full", counts.accumulators, 1),
                ("acc_empty", counts.accumulators, counts.acc_empty),
                ("answer_full", SLOTS, counts.answer_full),
                ("answer_empty", SLOTS, counts.answer_empty),
            ):
                setattr(cta, name, [Mbarrier(count, cta) for _ in range(number)])

    # ---- who shares what -------------------------------------------------------------------------
    def leader(self, cta: Cta) -> Cta:
        return self.ctas[0] if self.c.group == 2 else cta

    def led(self, cta: Cta) -> list[Cta]:
        return [other for other in self.ctas if self.leader(other) is cta]

    def sharing(self, operand: str, cta: Cta) -> list[Cta]:
        """CTAs that use one tile of an operand: A along N, B along M. A pair's have halves."""
        if self.c.group == 2:
            return [cta]
        return [o for o in self.ctas if (o.m == cta.m if operand == "a" else o.n == cta.n)]

    def stage_free(self, cta: Cta) -> list[Mbarrier]:
        return self.released[cta.rank] if self.c.released else cta.empty

    # ---- which tile comes when -------------------------------------------------------------------
    def each_tile(self, cta: Cta, warpgroup: int, role: Callable[[int, int], Role]) -> Role:
        """A role over its CTA's tiles; returns how many there were."""
        if not self.c.clc:
            for tile in range(self.tiles):
                yield from role(tile, tile)
            return self.tiles
        waiter, count, tile = Waiter(), 0, 0
        while tile is not None:
            slot = count % SLOTS
            if count >= SLOTS:
                yield waiter.on(cta.answer_empty[slot])
            if warpgroup == 0:
                cta.answer_full[slot].arrive(16)
            for _ in range(THREADS - (warpgroup == 0)):
                cta.answer_full[slot].arrive()
            if warpgroup == 0 and cta.rank == 0:
                self.query(slot)
            yield from role(count, tile)
            yield waiter.on(cta.answer_full[slot])
            tile = cta.answers[slot]
            count += 1
            assert tile == (count if count < self.tiles else None), "a wrong answer was read"
            for other in self.ctas:
                for _ in range(THREADS if self.c.group == 1 else 1):
                    other.answer_empty[slot].arrive()
        for slot in range(min(count, SLOTS)):
            yield waiter.on(cta.answer_empty[slot])
        return count

    def query(self, slot: int) -> None:
        found = self.to_cancel.pop(0) if self.to_cancel else None
        for cta in self.ctas:

            def come(cta=cta):
                cta.answers[slot] = found
                cta.answer_full[slot].complete(16)

            self.under_way.append(come)

    # ---- roles -----------------------------------------------------------------------------------
    def tma(self, cta: Cta) -> Role:
        c, waiter = self.c, Waiter()

        def load_tile(count: int, tile: int) -> Role:
            for k in range(self.k_tiles):
                step = count * self.k_tiles + k
                stage = step % c.stages
                if step >= c.stages and c.acquire:
                    yield waiter.on(self.stage_free(cta)[stage])
                for operand, size in (("a", c.a), ("b", c.b)):
                    if self.leader(cta) is cta:
                        for _ in range(THREADS):
                            cta.full[stage].arrive(c.group * size // THREADS)
                    self.copy(cta, operand, stage, (tile, k), size)
                yield lambda: True

        tiles = yield from self.each_tile(cta, 0, load_tile)
        for stage in range(min(tiles * self.k_tiles, c.stages) if c.tail else 0):
            yield waiter.on(self.stage_free(cta)[stage])

    def copy(self, cta: Cta, operand: str, stage: int, content: object, size: int) -> None:
        """A part of a tile to each CTA that shares it; each lands by itself."""
        sharing = self.sharing(operand, cta)
        for other in sharing:

            def land(other=other):
                other.smem[operand, stage, cta.rank] = content
                self.leader(other).full[stage].complete(size // len(sharing))

            self.under_way.append(land)

    def mma(self, cta: Cta) -> Role:
        c, waiter = self.c, Waiter()
        leads = self.leader(cta) is cta
        waits = leads or c.follower_waits

        def multiply_tile(count: int, tile: int) -> Role:
            buffer = count % c.accumulators
            if count >= c.accumulators and waits:
                yield waiter.on(cta.acc_empty[buffer])
            if not leads:
                return
            for k in range(self.k_tiles):
                stage = (count * self.k_tiles + k) % c.stages
                yield waiter.on(cta.full[stage])
                self.mmas[cta.rank].append(lambda s=stage, k=k: self.read(cta, s, buffer, tile, k))
            self.mmas[cta.rank].append(
                lambda: [each.acc_full[buffer].arrive() for each in self.led(cta)]
            )

        tiles = yield from self.each_tile(cta, 1, multiply_tile)
        for buffer in range(min(tiles, c.accumulators) if c.tail and waits else 0):
            yield waiter.on(cta.acc_empty[buffer])

    def read(self, leader: Cta, stage: int, buffer: int, tile: int, k: int) -> None:
        for cta in self.led(leader):
            for operand in "ab":
                for source in self.sharing(operand, cta):
                    content = cta.smem.get((operand, stage, source.rank))
                    assert content == (tile, k), "a race on a stage"
            cta.tmem[buffer] = tile
            cta.empty[stage].arrive()

    def release(self, cta: Cta) -> Role:
        waiter = Waiter()

        def release_tile(count: int, _: int) -> Role:
            for k in range(self.k_tiles):
                stage = (count * self.k_tiles + k) % self.c.stages
                if self.c.relay:
                    yield waiter.on(cta.empty[stage])
                for other in self.ctas:
                    if other.m == cta.m or other.n == cta.n:
                        self.released[other.rank][stage].arrive()
                yield lambda: True

        yield from self.each_tile(cta, 3, release_tile)

    def epilogue(self, cta: Cta) -> Role:
        waiter = Waiter()

        def store_tile(count: int, tile: int) -> Role:
            buffer = count % self.c.accumulators
            yield waiter.on(cta.acc_full[buffer])
            assert cta.tmem.get(buffer) == tile, "a race on an accumulator"
            yield lambda: True
            assert cta.tmem.get(buffer) == tile, "a race on an accumulator"
            for other in self.led(self.leader(cta)):
                other.acc_empty[buffer].arrive()
            cta.stored.append(tile)

        yield from self.each_tile(cta, 2, store_tile)

    # ---- the run ---------------------------------------------------------------------------------
    def run(self) -> None:
        """Every role to its end, in a random order. Raises AssertionError where that fails."""
        names = [self.tma, self.mma, self.epilogue, *([self.release] if self.c.released else [])]
        roles = [(cta, role(cta)) for cta in self.ctas for role in names]
        waiting: dict[int, Callable[[], bool]] = {i: (lambda: True) for i in range(len(roles))}
        while waiting or self.under_way or any(self.mmas):
            choices: list[tuple[str, int]] = [("role", i) for i, w in waiting.items() if w()]
            choices += [("copy", i) for i in range(len(self.under_way))]
            choices += [("mma", rank) for rank, queue in enumerate(self.mmas) if queue]
            assert choices, "a deadlock"
            kind, i = self.random.choice(choices)
            if kind == "copy":
                self.under_way.pop(i)()
            elif kind == "mma":
                self.mmas[i].pop(0)()
            else:
                cta, role = roles[i]
                try:
                    waiting[i] = next(role)
                except StopIteration:
                    del waiting[i]
                    cta.left = not any(roles[j][0] is cta for j in waiting)
        for cta in self.ctas:
            assert cta.stored == list(range(self.tiles)), "tiles were left out"
