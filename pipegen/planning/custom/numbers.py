# SPDX-License-Identifier: Apache-2.0
"""The numbers of a custom kernel: arrive counts, bytes, SMEM, threads. Pure functions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from pipegen.arithmetic import (
    align_up,
    cp_async_producer_arrive_count,
    elected_consumer_arrive_count,
    launch_registers,
    thread_producer_arrive_count,
)
from pipegen.barriers import End, RingModel
from pipegen.barriers.rings import Step
from pipegen.hardware import (
    HARDWARE,
    MBARRIER_BYTES,
    SWIZZLE_128B_ALIGNMENT,
    TMA_SMEM_ALIGNMENT,
    WARP,
    WARPGROUP,
)
from pipegen.planning.custom.graph import WGMMA, Graph, Part, Ring, RoleNode, elements
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 1
# More stages than this hide no more latency of a persistent kernel: the rest of SMEM stays free.
MOST_AUTO_STAGES = 4
NAMED_BARRIERS = 15  # id 0 is __syncthreads (PTX ISA, "barrier")
MOST_THREADS = 1024
MOST_PANELS = 2
MODELLED_STAGES = 2


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
        stored = [part for r in self.graph.roles if r.kind == "thread" for part in r.writes]
        return sum(align_up(self.copied_bytes(part), self.alignment) for part in stored)

    def copied_bytes(self, part: Part) -> int:
        """Bytes of one tile that a copy moves."""
        return elements(part, self.graph.extents) * DTYPE[part.dtype].bytes

    def stage_bytes(self, ring: Ring) -> int:
        """Bytes of one stage."""
        return sum(self.part_bytes(part) for part in ring.parts)

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
        return auto_stages if ring.stages is None else ring.stages

    def every(self, end: Ring | RoleNode) -> str:
        """How often a stage is filled, or a role takes a step."""
        return f"once a {end.every}"

    def total(self, auto_stages: int) -> int:
        """SMEM of a block if the rings that say nothing have so many stages."""
        counts = {ring.name: self.stages_with(ring, auto_stages) for ring in self.graph.rings}
        barriers = 2 * MBARRIER_BYTES * sum(counts.values())
        tiles = sum(
            align_up(counts[ring.name] * self.stage_bytes(ring), self.alignment)
            for ring in self.graph.rings
        )
        if self.pallas:
            return tiles + self.staged_bytes + barriers  # which stand last
        return align_up(barriers, TMA_SMEM_ALIGNMENT) + tiles

    @property
    def smem_bytes(self) -> int:
        """SMEM of a block."""
        return self.total(self.auto_stages)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * sum(role.warps for role in self.graph.roles)

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
        return sum(each.warps for each in before)

    def warp_rows(self, role: RoleNode) -> int:
        """Rows of a tile that a warp of the role has."""
        return self.graph.tile[0] // role.warps

    def own_parts(self, ring: Ring, source: str) -> tuple[Part, ...]:
        """What one of a ring's sources puts into a stage."""
        role = self.graph.role(source)
        if role.kind in ("thread", WGMMA):
            return ring.parts
        return tuple(part for part in ring.parts if part in role.reads)

    def tx_count(self, ring: Ring) -> int | None:
        """Bytes that one TMA warp of the ring arms; None where no bytes are counted."""
        if ring.producer != "tma":
            return None
        return sum(self.copied_bytes(part) for part in self.own_parts(ring, ring.sources[0]))

    def full_count(self, ring: Ring) -> int:
        """Arrivals that fill a stage."""
        return sum(self.commit_arrivals(ring, source) for source in ring.sources)

    def commit_arrivals(self, ring: Ring, source: str) -> int:
        """Arrivals of one source."""
        warps = self.graph.role(source).warps
        if self.pallas:
            return 1  # a warpgroup, or its copy
        if ring.producer == "tma":
            return warps
        if ring.producer == "cp_async":
            return cp_async_producer_arrive_count(warps)
        return thread_producer_arrive_count(warps)

    def empty_count(self, ring: Ring) -> int:
        """Arrivals that empty a stage: one of each warp (Pallas: warpgroup) of each reader."""
        return sum(self.release_arrivals(target) for target in ring.targets)

    def release_arrivals(self, target: str) -> int:
        """Arrivals of one reader."""
        warps = self.graph.role(target).warps
        return 1 if self.pallas else elected_consumer_arrive_count(warps)

    def alone(self, ring: Ring) -> RingModel:
        """The ring for the barrier model: each role, or a warp of the only one, for itself.

        More stages than MODELLED_STAGES add laps of the same, and states beyond number.
        """
        whole = self.together(ring)
        producers, consumers = whole.producers, whole.consumers
        if len(ring.targets) == 1:
            consumers = apart(consumers[0], self.graph.role(ring.targets[0]).warps)
        if len(ring.sources) == 1 and ring.producer != "tma":
            producers = apart(producers[0], self.graph.role(ring.sources[0]).warps)
        stages = min(whole.stages, MODELLED_STAGES)
        return replace(whole, stages=stages, producers=producers, consumers=consumers)

    def together(self, ring: Ring) -> RingModel:
        """The ring for the model of the whole graph, where a role is one agent."""
        producers = [
            End(
                source,
                self.commit_arrivals(ring, source),
                self.tx_count(ring) or 0,
                (
                    sum(self.copied_bytes(p) for p in self.own_parts(ring, source))
                    if ring.producer == "tma"
                    else 0
                ),
            )
            for source in ring.sources
        ]
        consumers = [End(target, self.release_arrivals(target)) for target in ring.targets]
        return self._model(ring, producers, consumers)

    def _model(self, ring: Ring, producers: list[End], consumers: list[End]) -> RingModel:
        return RingModel(
            ring.name,
            self.stages(ring),
            self.full_count(ring),
            self.empty_count(ring),
            tuple(producers),
            tuple(consumers),
        )

    def cases(self) -> Iterator[tuple[str, dict[str, list[Step]]]]:
        """Steps of all roles, for panels of one tile up to more than the deepest ring holds."""
        for tiles in range(1, max(self.stages(ring) for ring in self.graph.rings) + 3):
            yield f"with {tiles} tiles a panel", self.steps(tiles)

    def steps(self, tiles: int) -> dict[str, list[Step]]:
        """What each role does with panels of so many tiles, in the order of the emitted loops."""
        return {
            role.name: [step for _ in range(MOST_PANELS) for step in panel_steps(role, tiles)]
            for role in self.graph.roles
        }


def apart(end: End, warps: int) -> tuple[End, ...]:
    """A group as two agents: a warp that may run ahead or lag behind, and the others."""
    if warps <= 1 or end.arrivals < warps:
        return (end,)
    each = end.arrivals // warps
    return (
        replace(end, name=f"a warp of {end.name}", arrivals=each),
        replace(end, arrivals=end.arrivals - each),
    )


def panel_steps(role: RoleNode, tiles: int) -> list[Step]:
    """One panel of a role: stages of the panel around the loop over its tiles."""
    panel_in = tuple(ring.name for ring in role.inputs if ring.every == "panel")
    panel_out = tuple(ring.name for ring in role.outputs if ring.every == "panel")
    if role.every == "panel":
        return [Step(panel_in, panel_out, panel_out, panel_in)]
    tile_in = tuple(ring.name for ring in role.inputs if ring.every == "tile")
    tile_out = tuple(ring.name for ring in role.outputs if ring.every == "tile")
    each = Step(tile_in, tile_out, tile_out, tile_in)
    if role.kind != "thread":
        # A mover has its panel's stage on the way before the first tile's.
        return [Step(panel_in, panel_out, panel_out, panel_in), *[each] * tiles]
    # What is kept over the panel is given on behind its last tile.
    return [Step(takes=panel_in), *[each] * tiles, Step((), panel_out, panel_out, panel_in)]
