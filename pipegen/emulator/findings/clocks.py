# SPDX-License-Identifier: Apache-2.0
"""Vector clocks: what has happened before what, for warps and for asynchronous work.

An agent is anything that accesses memory on its own: a warp (its lanes are taken as one agent, so
a race between lanes of one warp is not seen), a warp's cp.async copies, the reads and the writes of
its bulk stores, its loads and its stores of tensor memory, its tcgen05.mma, its tcgen05.cp, a
warpgroup's wgmma, and an mbarrier, which stands for the copies that complete on it. An access is
(agent, epoch). It has happened before a point of a warp if the warp's clock holds that epoch of
that agent.

A clock has two rows. GENERIC: what a plain access of this warp may rely on. ASYNC: what an
asynchronous operation that this warp issues may rely on of generic writes, which is what the warp
knew at its last proxy fence, or what others had fenced before they signalled (PTX ISA, chapter
"Memory Consistency Model", section "Proxies").
"""

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
GENERIC, ASYNC = 0, 1
PER_WARP = 8  # agents that each warp has
NEVER = 0


class Agents:
    """Numbers the agents of a cluster of `ctas` CTAs with `warps` warps each."""

    def __init__(self, ctas: int, warps: int, barriers: int) -> None:
        total = ctas * warps
        self.warps = total
        self._per_warp = PER_WARP * total
        self._groups = -(-warps // 4)
        self._barriers = self._per_warp + ctas * self._groups
        self._next = self._barriers
        self.ctas = ctas
        self.count = self._barriers + ctas * barriers

    def copies(self, warp: int) -> int:
        """The cp.async copies of a warp."""
        return self.warps + warp

    def stores(self, warp: int) -> int:
        """The bulk stores of a warp, as far as they read shared memory."""
        return 2 * self.warps + warp

    def tensor_loads(self, warp: int) -> int:
        """The tcgen05.ld of a warp."""
        return 3 * self.warps + warp

    def tensor_stores(self, warp: int) -> int:
        """The tcgen05.st of a warp."""
        return 4 * self.warps + warp

    def global_writes(self, warp: int) -> int:
        """The bulk stores of a warp, as far as they write global memory."""
        return 5 * self.warps + warp

    def tensor_core(self, warp: int) -> int:
        """The tcgen05.mma that a warp issued."""
        return 6 * self.warps + warp

    def tensor_copies(self, warp: int) -> int:
        """The tcgen05.cp that a warp issued."""
        return 7 * self.warps + warp

    def group(self, cta: int, group: int) -> int:
        """The wgmma of a warpgroup."""
        return self._per_warp + cta * self._groups + group

    def barrier(self) -> int:
        """A new agent for an mbarrier; the last one is shared when all are given."""
        agent = self._next
        self._next = min(self._next + 1, self.count - 1)
        return agent

    def clock(self) -> Array:
        """A clock that knows of nothing."""
        return np.zeros((2, self.count), np.int64)


class Issued:
    """The mma and cp that a warp has issued, numbered from 1."""

    def __init__(self) -> None:
        self.last = 0
        # In which epoch of the warp: its epochs, and the last number of each.
        self._epochs: list[int] = []
        self._numbers: list[int] = []

    def add(self, epoch: int) -> int:
        """One more, in an epoch of the warp; its number."""
        self.last += 1
        if not self._epochs or self._epochs[-1] != epoch:
            self._epochs.append(epoch)
            self._numbers.append(self.last)
        self._numbers[-1] = self.last
        return self.last

    def until(self, epoch: int) -> int:
        """The number of the last one that was issued up to an epoch of the warp."""
        count = bisect_right(self._epochs, epoch)
        return self._numbers[count - 1] if count else 0
