# SPDX-License-Identifier: Apache-2.0
"""The numbers of a custom kernel that multiplies: swizzled stages, accumulators, steps of loops.

Those of tcgen05, whose accumulators are in TMEM, are in `umma_numbers`.
"""

from dataclasses import dataclass
from functools import cached_property

from pipegen.arithmetic import align_up
from pipegen.barriers.rings import Step
from pipegen.hardware import (
    HARDWARE,
    MBARRIER_BYTES,
    MMA_K_BYTES,
    SWIZZLE_128B_ALIGNMENT,
    TMA_SMEM_ALIGNMENT,
    WARP,
)
from pipegen.planning.custom.graph import UMMA, WGMMA, Graph, Part, Ring, RoleNode, elements
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.products import (
    Product,
    loops,
    product_of,
    ring_depth,
    role_depth,
    words_of_depth,
)
from pipegen.vocabulary import DTYPE

# Registers of a thread beside its accumulators, or beside its part of a tile: addresses, counters,
# what is rounded. Of 96, 64 + 26 did and 80 + 26 spilled (CuTe DSL 4.8.1).
BESIDE_ACCUMULATORS = 32
ATOM_ROWS = 8  # a swizzle's rows (PTX, "wgmma", swizzling modes)
# Stages of a ring that says nothing, outside the innermost loop: its tiles are large, and few.
OUTER_STAGES, BETWEEN_STAGES = 1, 2


def whole_rows(rows: int, parts: int) -> bool:
    """Whether so many warps (times slabs) share a swizzled tile's rows: each has whole atoms of
    ATOM_ROWS, or 1, 2 or 4 rows of one."""
    each = rows // parts
    return rows % parts == 0 and (each % ATOM_ROWS == 0 or each in (1, 2, 4))


def numbers_for(graph: Graph, arch: str, backend: str) -> Numbers:
    """The numbers of a graph, whichever loops it has."""
    if not graph.multiplies:
        return Numbers(graph, arch, backend)
    if backend == "pallas" and arch == "sm_100a":
        from pipegen.planning.custom.pallas_umma_numbers import PallasUmmaNumbers

        return PallasUmmaNumbers(graph, arch, backend)
    if any(role.kind == UMMA for role in graph.roles):
        from pipegen.planning.custom.umma_numbers import UmmaNumbers

        return UmmaNumbers(graph, arch, backend)
    if backend == "pallas":
        from pipegen.planning.custom.pallas_numbers import PallasProductNumbers

        return PallasProductNumbers(graph, arch, backend)
    return ProductNumbers(graph, arch, backend)


@dataclass(frozen=True)
class ProductNumbers(Numbers):
    """Every number of a graph that multiplies."""

    @cached_property
    def nest(self) -> tuple[str, ...]:
        """The loops of a tile of the results."""
        return loops(self.graph)

    def depth(self, end: Ring | RoleNode) -> int:
        """How many loops lie around a ring's stages, or a role's steps."""
        kind = ring_depth if isinstance(end, Ring) else role_depth
        return kind(end, self.nest)  # type: ignore[arg-type]

    @property
    def accumulator_rings(self) -> tuple[Ring, ...]:
        """The rings of accumulators in TMEM."""
        return tuple(ring for ring in self.graph.rings if ring.in_tmem)

    def every(self, end: Ring | RoleNode) -> str:
        """How often a stage is filled, or a role takes a step."""
        return words_of_depth(self.depth(end), self.nest)

    def swizzled(self, ring: Ring) -> bool:
        """Whether wgmma reads the ring's stages, or accumulators are stored to them."""
        return any(self.graph.role(end).kind == WGMMA for end in (*ring.sources, *ring.targets))

    def stages_with(self, ring: Ring, auto_stages: int) -> int:
        """The stages of a ring: in the innermost loop as many as fit, if it says nothing."""
        if ring.stages is not None:
            return ring.stages
        depth = self.depth(ring)
        if depth == len(self.nest):
            return auto_stages
        return BETWEEN_STAGES if depth else OUTER_STAGES

    def buffer_alignment(self, ring: Ring) -> int:
        """Where a ring's buffers may begin in SMEM."""
        return SWIZZLE_128B_ALIGNMENT if self.swizzled(ring) else TMA_SMEM_ALIGNMENT

    def total(self, auto_stages: int) -> int:
        """SMEM of a block if the rings of the innermost loop that say nothing have so many stages.

        The barriers, then each ring's buffers where the next one may begin; as a whole a multiple
        of the widest alignment (the emitted struct is laid out so).
        """
        rings = self.graph.rings
        counts = {ring.name: self.stages_with(ring, auto_stages) for ring in rings}
        end = 2 * MBARRIER_BYTES * sum(counts.values())
        for ring in rings:
            for part in ring.parts:
                begin = align_up(end, self.buffer_alignment(ring))
                end = begin + counts[ring.name] * self.part_bytes(part)
        return align_up(end, max(self.buffer_alignment(ring) for ring in rings))

    def accumulators(self, role: RoleNode) -> int:
        """Accumulator registers of a thread (PTX, "wgmma.mma_async", accumulator fragments)."""
        product = product_of(role)
        if product is None:
            return 0
        rows, columns = self.graph.extents["M"], self.graph.extents[product.columns]
        return rows * columns // (WARP * role.warps)

    def mma_k(self, product: Product) -> int:
        """Elements of one wgmma along what is summed over."""
        return MMA_K_BYTES // DTYPE[product.a.part.dtype].bytes

    def release_distance(self, role: RoleNode) -> int:
        """Stages that a multiplying role holds beside the newest: its wgmmas may still read them.

        With one stage the next would never come.
        """
        return int(all(self.stages(ring) > 1 for ring in role.inputs))

    def held_registers(self, role: RoleNode) -> int:
        """Registers of a role's thread."""
        most = HARDWARE[self.arch].max_registers_per_thread
        return min(role.registers or self.launch_registers, most)

    def slabs(self, role: RoleNode) -> int:
        """Slabs of rows in which a role of threads hands its tiles on, so that registers do."""
        tiles = [part for ring in (*role.inputs, *role.outputs) for part in ring.parts]
        matrices = [part for part in tiles if len(part.dims) == 2]
        if role.reads or role.writes or not matrices:
            return 1
        room = self.held_registers(role) - BESIDE_ACCUMULATORS
        most = max(elements(part, self.graph.extents) for part in matrices) // (WARP * role.warps)
        rows = min(self.graph.extents[part.dims[0]] for part in matrices)
        slabs = 1
        while most > room * slabs and whole_rows(rows, 2 * slabs * role.warps):
            slabs *= 2
        return slabs

    @property
    def formed(self) -> bool:
        """Whether every role that multiplies has its two operands (else rule PG278 says why)."""
        return all(not role.multiplies or product_of(role) for role in self.graph.roles)

    def case(self, tiles: int) -> str:
        """What the model of the barriers tried, for the message of rule PG274."""
        words = " and ".join(f"{tiles} steps of {symbol}" for symbol in self.nest)
        return f"with {words or '1 step'} a tile"

    def loop(self, role: RoleNode, depth: int, count: int) -> list[Step]:
        """One pass of a role through the loop of that depth."""
        takes = tuple(ring.name for ring in role.inputs if self.depth(ring) == depth)
        gives = tuple(ring.name for ring in role.outputs if self.depth(ring) == depth)
        if depth == self.depth(role):
            return [Step(takes, gives, gives, takes)]
        if role.kind == WGMMA and depth + 1 == self.depth(role):
            return [*self.sums(role, count), Step((), gives, gives, ())]
        inner = [step for _ in range(count) for step in self.loop(role, depth + 1, count)]
        if role.kind not in ("thread", WGMMA):
            # A mover has what comes less often on the way before the rest.
            return [Step(takes, gives, gives, takes), *inner]
        return [Step(takes), *inner, Step((), gives, gives, takes)]

    def sums(self, role: RoleNode, count: int) -> list[Step]:
        """A multiplying role's steps of a sum: a stage goes back when the next one is under way."""
        rings = tuple(ring.name for ring in role.inputs)
        if not self.release_distance(role):
            return [Step(rings, releases=rings)] * count
        return [Step(rings), *[Step(rings, releases=rings)] * (count - 1), Step(releases=rings)]


def swizzle_of(part: Part, extents: dict[str, int]) -> str:
    """The widest swizzle of a tile whose rows end with its last symbol."""
    from pipegen.planning.gemm_sm90_cute_template import swizzle

    return swizzle("K", extents[part.dims[-1]] * DTYPE[part.dtype].bytes)
