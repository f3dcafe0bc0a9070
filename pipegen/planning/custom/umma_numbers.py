# SPDX-License-Identifier: Apache-2.0
"""The numbers of a custom kernel that multiplies with tcgen05: SMEM, columns of TMEM, steps.

A ring from a role of kind umma holds accumulators in TMEM, a thread's row of TILE_M in one lane;
roles of threads take them from there. Everything else is as in `product_numbers`.
"""

import math
from dataclasses import dataclass

from pipegen.arithmetic import align_up, tmem_columns
from pipegen.barriers.rings import Step
from pipegen.hardware import MBARRIER_BYTES, TMEM_COLUMNS_MAX, WARP
from pipegen.planning.custom.graph import UMMA, Ring, RoleNode
from pipegen.planning.custom.product_numbers import ProductNumbers

ACCUMULATORS = 2  # of a ring that says nothing: one fills while the other is read
TMEM_BARRIERS = 2  # named ones: all who use TMEM, and of those who read it
ADDRESS_BYTES = 4  # of TMEM, as tcgen05.alloc writes it to SMEM
# f32 of a row at a time in registers: with the values beside them they fit a thread's.
WIDE_PIECE, NARROW_PIECE, WIDE_REGISTERS = 32, 16, 128


@dataclass(frozen=True)
class UmmaNumbers(ProductNumbers):
    """Every number of a graph that multiplies with tcgen05."""

    @property
    def own_barriers(self) -> int:
        """Named barriers of the kernel: when TMEM is there, and before it is freed."""
        return TMEM_BARRIERS

    @property
    def readers(self) -> tuple[RoleNode, ...]:
        """The roles that take accumulators; the first of them allocates TMEM and frees it."""
        return tuple(role for role in self.graph.roles if role.sums)

    @property
    def reader_threads(self) -> int:
        """Threads that meet before TMEM is freed."""
        return WARP * sum(role.warps for role in self.readers)

    @property
    def tmem_threads(self) -> int:
        """Threads that meet when TMEM has been allocated: its readers, and who issues MMAs."""
        issue = [role for role in self.graph.roles if role.kind == UMMA]
        return self.reader_threads + WARP * sum(role.warps for role in issue)

    def swizzled(self, ring: Ring) -> bool:
        """Whether tcgen05 reads the ring's stages, or threads with a row each touch them."""
        ends = [self.graph.role(end) for end in (*ring.sources, *ring.targets)]
        by_rows = any(role.sums for role in ends) and all(len(p.dims) == 2 for p in ring.parts)
        return not ring.in_tmem and (ring.consumer == UMMA or by_rows)

    def columns(self, ring: Ring) -> int:
        """TMEM columns of one accumulator: one of 32 bits for each of the product's."""
        return self.graph.extents[ring.parts[0].dims[-1]]

    def first_column(self, ring: Ring) -> int:
        """Where a ring's accumulators begin."""
        before = self.accumulator_rings[: self.accumulator_rings.index(ring)]
        return sum(self.stages(each) * self.columns(each) for each in before)

    @property
    def used_columns(self) -> int:
        """TMEM columns of all accumulators."""
        return sum(self.stages(ring) * self.columns(ring) for ring in self.accumulator_rings)

    @property
    def tmem_columns(self) -> int:
        """TMEM columns as they are allocated."""
        return tmem_columns(1, self.used_columns)

    def accumulator_stages(self, ring: Ring) -> int:
        """Accumulators of a ring: ACCUMULATORS, or one where TMEM has no room for so many."""
        if ring.stages is not None:
            return ring.stages
        most = sum(
            (each.stages or ACCUMULATORS) * self.columns(each) for each in self.accumulator_rings
        )
        return ACCUMULATORS if most <= TMEM_COLUMNS_MAX else 1

    def stages_with(self, ring: Ring, auto_stages: int) -> int:
        """The stages of a ring: accumulators do not ask SMEM."""
        if ring.in_tmem:
            return self.accumulator_stages(ring)
        return super().stages_with(ring, auto_stages)

    def stage_bytes(self, ring: Ring) -> int:
        """SMEM of one stage."""
        return 0 if ring.in_tmem else super().stage_bytes(ring)

    def stage_words(self, ring: Ring) -> str:
        """What a stage takes."""
        return f"{self.columns(ring)} columns" if ring.in_tmem else super().stage_words(ring)

    def total(self, auto_stages: int) -> int:
        """SMEM of a block: the barriers, TMEM's address, then each ring's buffers, as emitted."""
        rings = self.graph.rings
        counts = {ring.name: self.stages_with(ring, auto_stages) for ring in rings}
        end = 2 * MBARRIER_BYTES * sum(counts.values()) + ADDRESS_BYTES
        held = [ring for ring in rings if not ring.in_tmem]
        for ring in held:
            for part in ring.parts:
                begin = align_up(end, self.buffer_alignment(ring))
                end = begin + counts[ring.name] * self.part_bytes(part)
        widest = max((self.buffer_alignment(ring) for ring in held), default=MBARRIER_BYTES)
        return align_up(end, widest)

    def accumulators(self, role: RoleNode) -> int:
        """Accumulator registers of a thread: none, they are in TMEM."""
        return 0

    def release_distance(self, role: RoleNode) -> int:
        """Stages held beside the newest: none, a commit says when they have been read."""
        return 0

    def slabs(self, role: RoleNode) -> int:
        """Slabs of a role's tiles; who takes accumulators goes through them in pieces."""
        return 1 if role.sums else super().slabs(role)

    @property
    def piece(self) -> int:
        """Columns of a row that a thread takes from TMEM at a time."""
        held = min((self.held_registers(role) for role in self.readers), default=WIDE_REGISTERS)
        widest = WIDE_PIECE if held >= WIDE_REGISTERS else NARROW_PIECE
        return math.gcd(widest, *(self.columns(ring) for ring in self.accumulator_rings))

    def loop(self, role: RoleNode, depth: int, count: int) -> list[Step]:
        """One pass of a role; one that multiplies has an accumulator open over the steps of a sum.

        Its stages go back at each step: the commits arrive when the MMAs have read them.
        """
        if role.kind != UMMA or depth + 1 != self.depth(role):
            return super().loop(role, depth, count)
        takes = tuple(ring.name for ring in role.inputs)
        gives = tuple(ring.name for ring in role.outputs)
        step = Step(takes, releases=takes)
        return [Step(fills=gives), *[step] * count, Step(commits=gives)]
