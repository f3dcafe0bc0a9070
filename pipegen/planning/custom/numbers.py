# SPDX-License-Identifier: Apache-2.0
"""The numbers of a custom kernel: arrive counts, bytes, SMEM, threads. Pure functions."""

import math
from dataclasses import dataclass
from functools import cached_property

from pipegen.arithmetic import (
    align_up,
    cp_async_producer_arrive_count,
    elected_consumer_arrive_count,
    launch_registers,
    thread_producer_arrive_count,
)
from pipegen.hardware import (
    HARDWARE,
    MBARRIER_BYTES,
    SWIZZLE_128B_ALIGNMENT,
    TMA_SMEM_ALIGNMENT,
    WARP,
    WARPGROUP,
)
from pipegen.planning.custom.graph import UMMA, Graph, Order, Part, Ring, RoleNode, elements
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 1
# More stages than this hide no more latency of a persistent kernel: the rest of SMEM stays free.
MOST_AUTO_STAGES = 4
NAMED_BARRIERS = 15  # id 0 is __syncthreads (PTX ISA, "barrier")
MOST_THREADS = 1024
# What Mosaic GPU takes for itself where a body reduces rows (seen, jax 0.10.2 and 0.12).
REDUCTION_BYTES = 2048


@dataclass(frozen=True)
class Numbers:
    """Every number of a graph on an architecture."""

    graph: Graph
    arch: str
    backend: str = "cute"

    @property
    def pallas(self) -> bool:
        """Whether whole warpgroups arrive, and each copy for itself."""
        return self.backend == "pallas"

    @property
    def alignment(self) -> int:
        """Where a buffer may begin in SMEM."""
        return SWIZZLE_128B_ALIGNMENT if self.pallas else TMA_SMEM_ALIGNMENT

    def part_bytes(self, part: Part) -> int:
        """Bytes of one tile, where the next one may begin."""
        return align_up(self.copied_bytes(part), TMA_SMEM_ALIGNMENT)

    @property
    def staged_bytes(self) -> int:
        """In Pallas, the buffers from which a role's results are stored."""
        if not self.pallas:
            return 0
        return sum(
            align_up(role.groups * self.copied_bytes(part), self.alignment)
            for role in self.graph.roles
            if role.kind != "tma_store"
            for part in role.writes
        )

    def copied_bytes(self, part: Part) -> int:
        """Bytes of one tile that a copy moves."""
        return elements(part, self.graph.extents) * DTYPE[part.dtype].bytes

    def stage_bytes(self, ring: Ring) -> int:
        """Bytes of one stage."""
        return sum(self.part_bytes(part) for part in ring.parts)

    def stage_words(self, ring: Ring) -> str:
        """What a stage takes, for a drawing."""
        return f"{self.stage_bytes(ring)} B"

    @property
    def own_barriers(self) -> int:
        """Named barriers that the kernel itself takes."""
        return 0

    @property
    def capacity(self) -> int:
        """SMEM that a block may have."""
        return HARDWARE[self.arch].smem_per_block

    @cached_property
    def auto_stages(self) -> int:
        """The stages of each ring that leaves them to SMEM; 0 if not even one fits."""
        fitting = [s for s in range(1, MOST_AUTO_STAGES + 1) if self.total(s) <= self.capacity]
        return max(fitting, default=0)

    def stages(self, ring: Ring) -> int:
        """The stages of a ring."""
        return self.stages_with(ring, self.auto_stages)

    def stages_with(self, ring: Ring, auto_stages: int) -> int:
        """The stages of a ring if those that say nothing have so many."""
        if ring.stages is not None:
            return ring.stages
        # In Pallas each group of an order has stages of its own.
        groups = self.groups_at(ring) if self.pallas else 1
        return max(auto_stages // groups * groups, min(auto_stages, 1) * groups)

    def groups_at(self, ring: Ring) -> int:
        """Groups that take the stages of a ring in turn; 1 where nobody does."""
        roles = [self.graph.role(name) for name in (*ring.sources, *ring.targets)]
        return math.lcm(*(max(1, role.order.groups) for role in roles if role.order), 1)

    def every(self, end: Ring | RoleNode) -> str:
        """How often a stage is filled, or a role takes a step."""
        return f"once a {end.every}"

    def total(self, auto_stages: int) -> int:
        """SMEM of a block if the rings that say nothing have so many stages."""
        counts = {ring.name: self.stages_with(ring, auto_stages) for ring in self.graph.rings}
        barriers = MBARRIER_BYTES * (
            2 * sum(counts.values()) + sum(o.depth * o.groups for o in self.graph.orders)
        )
        tiles = sum(
            align_up(counts[ring.name] * self.stage_bytes(ring), self.alignment)
            for ring in self.graph.rings
        )
        states = [self.part_bytes(o.state) for o in self.graph.orders if o.state]
        if self.pallas:
            handed = sum(align_up(size, self.alignment) + REDUCTION_BYTES for size in states)
            return tiles + self.staged_bytes + handed + barriers  # which stand last
        handed = sum(states)
        return align_up(barriers, TMA_SMEM_ALIGNMENT) + tiles + handed

    @property
    def smem_bytes(self) -> int:
        """SMEM of a block."""
        return self.total(self.auto_stages)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * sum(role.block_warps for role in self.graph.roles)

    @property
    def launch_registers(self) -> int:
        """Registers that a thread starts with where setmaxnreg is used.

        ptxas divides the register file by whole warpgroups: seen in its reports, 168 for 320
        threads as for 384.
        """
        whole = align_up(self.threads, WARPGROUP)
        return launch_registers(whole, HARDWARE[self.arch])

    def first_warp(self, role: RoleNode) -> int:
        """The first warp of a role."""
        before = self.graph.roles[: self.graph.roles.index(role)]
        return sum(each.block_warps for each in before)

    def warp_rows(self, role: RoleNode) -> int:
        """Rows of a tile that a warp of the role has."""
        return self.graph.tile[0] // role.warps

    def own_parts(self, ring: Ring, source: str) -> tuple[Part, ...]:
        """What one of a ring's sources puts into a stage."""
        role = self.graph.role(source)
        if role.kind == "thread" or role.multiplies:
            return ring.parts
        return tuple(part for part in ring.parts if part in role.reads)

    def tx_count(self, ring: Ring) -> int | None:
        """Bytes that one TMA warp of the ring arms; None where no bytes are counted."""
        if ring.producer != "tma":
            return None
        return sum(self.copied_bytes(part) for part in self.own_parts(ring, ring.sources[0]))

    def full_count(self, ring: Ring) -> int:
        """Arrivals that fill a stage; of groups in turn one comes to it."""
        sources = self.graph.at_a_time(ring.sources)
        return sum(self.commit_arrivals(ring, source) for source in sources)

    def commit_arrivals(self, ring: Ring, source: str) -> int:
        """Arrivals of one source."""
        warps = self.graph.role(source).warps
        if self.pallas:
            # Each copy for itself, or each warpgroup.
            copies = len(self.own_parts(ring, source))
            return copies if ring.producer == "tma" else max(1, warps // 4)
        if ring.producer == "tma":
            return warps
        if ring.producer == UMMA:
            return 1  # its tcgen05.commit
        if ring.producer == "cp_async":
            return cp_async_producer_arrive_count(warps)
        return thread_producer_arrive_count(warps)

    def empty_count(self, ring: Ring) -> int:
        """Arrivals that empty a stage: one of each warp (Pallas: warpgroup) of each reader.

        Of groups in turn one comes to it; what is loaded for both CTAs is released by both.
        """
        targets = self.graph.at_a_time(ring.targets)
        ctas = 2 if ring.multicast else 1
        return ctas * sum(self.release_arrivals(target) for target in targets)

    def turn_count(self, order: Order) -> int:
        """Arrivals that give a turn on: every thread of a group (Pallas: the warpgroup)."""
        warps = self.graph.role(order.roles[0]).warps
        return max(1, warps // 4) if self.pallas else WARP * warps

    def release_arrivals(self, target: str) -> int:
        """Arrivals of one reader: of each warp (Pallas: warpgroup)."""
        warps = self.graph.role(target).warps
        return max(1, warps // 4) if self.pallas else elected_consumer_arrive_count(warps)

    def case(self, tiles: int) -> str:
        """What the model of the barriers tried, for the message of rule PG274."""
        return f"with {tiles} tiles a panel"
