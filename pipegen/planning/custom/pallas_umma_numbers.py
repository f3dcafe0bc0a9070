# SPDX-License-Identifier: Apache-2.0
"""The numbers of a custom Pallas kernel that multiplies with tcgen05: SMEM, TMEM, pieces of a row.

Accumulators are rings of TMEM as in `umma_numbers`, warpgroups and buffers as in `pallas_numbers`.
"""

from dataclasses import dataclass

from pipegen.planning.custom.graph import Ring, RoleNode
from pipegen.planning.custom.pallas_numbers import PallasProductNumbers
from pipegen.planning.custom.umma_numbers import ADDRESS_BYTES, UmmaNumbers
from pipegen.vocabulary import DTYPE


@dataclass(frozen=True)
class PallasUmmaNumbers(UmmaNumbers, PallasProductNumbers):
    """Every number of a Pallas graph that multiplies with tcgen05."""

    @property
    def own_barriers(self) -> int:
        """Named barriers of the kernel: Mosaic GPU allocates TMEM and frees it."""
        return 0

    def total(self, auto_stages: int) -> int:
        """SMEM of a block: as without TMEM, and its address. Accumulators have barriers only."""
        return self.smem_of(auto_stages) + ADDRESS_BYTES

    def buffer_alignment(self, ring: Ring) -> int:
        """Mosaic GPU begins every buffer so."""
        return self.alignment

    @property
    def piece(self) -> int:
        """Columns that a body as written takes from TMEM at a time: whole blocks of each tile."""
        return max(self.piece_of(role) for role in self.readers)

    def piece_of(self, role: RoleNode) -> int:
        """Of one role: the widest block of the tiles that it touches in SMEM."""
        parts = [
            p for ring in (*role.inputs, *role.outputs) if not ring.in_tmem for p in ring.parts
        ]
        matrices = [p for p in (*parts, *role.writes) if len(p.dims) == 2 and DTYPE[p.dtype].bytes]
        blocks = [self.block(part)[1] for part in matrices]
        return max(blocks, default=self.columns(role.sums[0]))

    def values(self, role: RoleNode) -> int:
        """Registers of a thread for what a body as written has at once: of sums, a piece.

        In the layout of tcgen05's sums four lanes share a row's columns, as in wgmma's.
        """
        if not role.sums:
            return super().values(role)
        found = self.piece_of(role)
        for part in (*(p for ring in role.inputs for p in ring.parts), *role.reads):
            if len(part.dims) == 1:
                along_rows = part.dims[0] == self.rows_symbol(role)
                found += self.rows(role) // 32 if along_rows else self.piece_of(role) // 4
        return found
