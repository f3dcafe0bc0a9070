# SPDX-License-Identifier: Apache-2.0
"""What must fit in a block's shared memory. All sizes in bytes."""

from dataclasses import dataclass

from pipegen.arithmetic import SmemSplit


@dataclass(frozen=True)
class SmemBudget:
    """What must fit in `capacity`, and the split that the description asks for.

    `subtiles` are a CTA's stores for one output tile; `buffer_choices` the numbers of store
    buffers that can be had beside the chosen stages.
    """

    capacity: int
    a_bytes: int
    b_bytes: int
    buffer_bytes: int
    epi_tile_mn: tuple[int, int]
    subtiles: int
    split: SmemSplit
    buffer_choices: tuple[int, ...]
    scale_bytes: int = 0  # of a mixed GEMM, whose stages bring scales

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of the ring."""
        return self.a_bytes + self.b_bytes + self.scale_bytes
