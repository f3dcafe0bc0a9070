# SPDX-License-Identifier: Apache-2.0
"""Where Task Scheduling's SmemAllocator puts things. Sizes in bytes.

Source: cutlass.experimental.task_scheduling.memory (nvidia-cutlass-dsl 4.8.1): allocations sorted
by alignment, the widest first, one behind the other; then the barriers of all pipelines.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pipegen.arithmetic import align_up, ring_barrier_bytes
from pipegen.hardware import MBARRIER_BYTES
from pipegen.planning.model import Number


@dataclass(frozen=True)
class Region:
    """One allocation: its name in the module, its bytes, and what its address is a multiple of."""

    name: str
    bytes: int
    alignment: int


@dataclass(frozen=True)
class SmemLayout:
    """The regions with their offsets, and what the pipelines' barriers take behind them."""

    offsets: tuple[tuple[Region, int], ...]
    barrier_bytes: int

    @property
    def data_bytes(self) -> int:
        """Where the last region ends."""
        return max((offset + region.bytes for region, offset in self.offsets), default=0)

    @property
    def total_bytes(self) -> int:
        """What the block's allocation takes."""
        return align_up(self.data_bytes, MBARRIER_BYTES) + self.barrier_bytes

    @property
    def formula(self) -> str:
        """The total as a sum."""
        end = str(align_up(self.data_bytes, MBARRIER_BYTES))
        if all(offset == before for offset, before in self._packed()):
            end = " + ".join(str(region.bytes) for region, _ in self.offsets)
            rest = align_up(self.data_bytes, MBARRIER_BYTES) - self.data_bytes
            end += f" + {rest}" if rest else ""
        return f"{end} + {self.barrier_bytes}"

    def _packed(self) -> list[tuple[int, int]]:
        ends = [0, *(offset + region.bytes for region, offset in self.offsets)]
        return [(offset, end) for (_, offset), end in zip(self.offsets, ends[:-1], strict=True)]


def lay_out(regions: Iterable[Region], pipelines: Iterable[int]) -> SmemLayout:
    """The layout of the regions and of the barriers of pipelines with so many stages each."""
    placed: list[tuple[Region, int]] = []
    end = 0
    for region in sorted(regions, key=lambda each: -each.alignment):
        offset = align_up(end, region.alignment)
        placed.append((region, offset))
        end = offset + region.bytes
    return SmemLayout(tuple(placed), sum(map(ring_barrier_bytes, pipelines)))


def layout_numbers(layout: SmemLayout, capacity: int, arch: str) -> tuple[Number, ...]:
    """What the plan says about SMEM, in Task Scheduling's own terms."""
    return (
        Number(
            "smem_layout",
            ", ".join(f"{region.name} at {offset}" for region, offset in layout.offsets),
            "",
            "widest alignment first, then in order",
            "task_scheduling.memory.SmemAllocator.compute_layout",
        ),
        Number(
            "mbarrier_bytes",
            layout.barrier_bytes,
            "B",
            str(layout.barrier_bytes),
            "task_scheduling.memory: a full and an empty barrier of 8 B for each stage",
        ),
        Number(
            "smem_bytes",
            layout.total_bytes,
            "B",
            layout.formula,
            f"at most {capacity} B a block on {arch} (CUDA, Compute Capabilities)",
        ),
    )


def restated(
    numbers: tuple[Number, ...], *stated: Number, without: tuple[str, ...] = ()
) -> tuple[Number, ...]:
    """The numbers, those that `stated` names said anew, further ones behind, some left out."""
    anew = {number.name: number for number in stated}
    kept = [anew.pop(n.name, n) for n in numbers if n.name not in without]
    return (*kept, *anew.values())
