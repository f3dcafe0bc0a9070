# SPDX-License-Identifier: Apache-2.0
"""The numbers of a custom Pallas kernel that multiplies: whole warpgroups, buffers, registers."""

from dataclasses import dataclass

from pipegen.arithmetic import align_up
from pipegen.hardware import MBARRIER_BYTES, WARP
from pipegen.planning.custom.graph import WGMMA, Part, Ring, RoleNode, elements
from pipegen.planning.custom.product_numbers import BESIDE_ACCUMULATORS, ProductNumbers
from pipegen.planning.custom.products import product_of
from pipegen.vocabulary import DTYPE

SWIZZLES = (128, 64, 32)  # B of a row (PTX ISA, "wgmma", swizzling modes)
BLOCK_ROWS = 8  # of a swizzle's block


@dataclass(frozen=True)
class PallasProductNumbers(ProductNumbers):
    """Every number of a Pallas graph that multiplies."""

    def buffer_alignment(self, ring: Ring) -> int:
        """Mosaic GPU begins every buffer so."""
        return self.alignment

    def total(self, auto_stages: int) -> int:
        """SMEM of a block if the innermost loop's rings that say nothing have so many stages."""
        return self.smem_of(auto_stages)

    def smem_of(self, auto_stages: int) -> int:
        """SMEM of the buffers and barriers.

        A buffer for each tensor of a ring and for each stored one, then the barriers.
        """
        found = self.staged_bytes
        for ring in self.graph.rings:
            count = self.stages_with(ring, auto_stages)
            found += 2 * MBARRIER_BYTES * count
            found += sum(
                align_up(count * self.copied_bytes(part), self.alignment)
                for part in ring.parts
                if not ring.in_tmem
            )
        return found

    def part_bytes(self, part: Part) -> int:
        """Bytes of one tile: the stages of a buffer follow each other."""
        return self.copied_bytes(part)

    def slabs(self, role: RoleNode) -> int:
        """A body has its warpgroup's rows of a tile at once."""
        return 1

    def warpgroups(self, role: RoleNode) -> int:
        """Pallas threads of a role; at least one, as long as rule PG285 has not seen its warps."""
        return max(1, role.warps // 4)

    def rows(self, role: RoleNode) -> int:
        """Rows of its tiles that each warpgroup of a role has."""
        return self.graph.extents[self.rows_symbol(role)] // self.warpgroups(role)

    def rows_symbol(self, role: RoleNode) -> str:
        """The symbol of the rows that a role's warpgroups share: those of what it gives."""
        if role.kind == WGMMA:
            return "M"
        made = [part for ring in role.outputs for part in ring.parts] + list(role.writes)
        return made[0].dims[0] if made else "M"

    def accumulators(self, role: RoleNode) -> int:
        """Accumulator registers of a thread."""
        product = product_of(role)
        if product is None:
            return 0
        return self.rows(role) * self.graph.extents[product.columns] // (4 * WARP)

    def values(self, role: RoleNode) -> int:
        """Registers of a thread for the tiles that a body as written has at once: in wgmma's layout
        four lanes share a row's columns, and a lane has every 32nd row, of a vector all of them."""
        parts = [part for ring in (*role.inputs, *role.outputs) for part in ring.parts]
        parts += [*role.reads, *role.writes]
        extents, rows, found = self.graph.extents, self.rows_symbol(role), 0
        tiles = [part for part in parts if len(part.dims) == 2]
        most = max((elements(part, extents) for part in tiles), default=0)
        most //= 4 * WARP * self.warpgroups(role)
        for part in parts:
            if len(part.dims) == 1:
                along_rows = part.dims[0] == rows
                found += self.rows(role) // 32 if along_rows else extents[part.dims[0]] // 4
        return most + found

    @property
    def fits_registers(self) -> bool:
        """Whether accumulators, and what bodies as written hold, fit at launch.

        ptxas refuses a wgmma that needs more than that, even behind setmaxnreg (12.9: error C7602),
        and ignores setmaxnreg (C7504) where jaxlib finds nvJitLink.
        """
        held = self.launch_registers - BESIDE_ACCUMULATORS
        return all(
            max(self.accumulators(role), 0 if role.body else self.values(role)) <= held
            for role in self.graph.roles
            if role.kind in (WGMMA, "thread")
        )

    def swizzle(self, part: Part) -> int:
        """Bytes of the widest swizzle that divides a row of a matrix's tile; 0 if none does."""
        row = self.graph.extents[part.dims[-1]] * DTYPE[part.dtype].bytes
        return next((width for width in SWIZZLES if row % width == 0), 0)

    def block(self, part: Part) -> tuple[int, int]:
        """Rows and columns of a swizzle's block, of which a tile and its tensor have whole ones."""
        return BLOCK_ROWS, self.swizzle(part) // DTYPE[part.dtype].bytes
