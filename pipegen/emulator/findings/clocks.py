# SPDX-License-Identifier: Apache-2.0
"""Vector clocks: what has happened before what, for warps and for asynchronous work.

An agent is anything that accesses memory on its own: a warp (its lanes are taken as one agent, so
a race between lanes of one warp is not seen), a warp's cp.async copies, its bulk stores, its
accesses to tensor memory, a warpgroup's wgmma, a CTA's tcgen05 queue, and an mbarrier, which
stands for the copies that complete on it. An access is (agent, epoch). It has happened before a
point of a warp if the warp's clock holds that epoch of that agent.

A clock has two rows. GENERIC: what a plain access of this warp may rely on. ASYNC: what an
asynchronous operation that this warp issues may rely on of generic writes, which is what the warp
knew at its last proxy fence, or what others had fenced before they signalled (PTX ISA, chapter
"Memory Consistency Model", section "Proxies").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
GENERIC, ASYNC = 0, 1
NEVER = 0


class Agents:
    """Numbers the agents of a cluster of `ctas` CTAs with `warps` warps each."""

    def __init__(self, ctas: int, warps: int, barriers: int) -> None:
        total = ctas * warps
        self.warps = total
        self._per_warp = 4 * total
        self._groups = -(-warps // 4)
        self._barriers = self._per_warp + ctas * self._groups + ctas
        self._next = self._barriers
        self.ctas = ctas
        self.count = self._barriers + ctas * barriers

    def copies(self, warp: int) -> int:
        """The cp.async copies of a warp."""
        return self.warps + warp

    def stores(self, warp: int) -> int:
        """The bulk stores of a warp."""
        return 2 * self.warps + warp

    def tensor_accesses(self, warp: int) -> int:
        """The tcgen05.ld and tcgen05.st of a warp."""
        return 3 * self.warps + warp

    def group(self, cta: int, group: int) -> int:
        """The wgmma of a warpgroup."""
        return self._per_warp + cta * self._groups + group

    def tensor_core(self, cta: int) -> int:
        """The tcgen05 operations that a CTA issued."""
        return self._barriers - self.ctas + cta

    def barrier(self) -> int:
        """A new agent for an mbarrier; the last one is shared when all are given."""
        agent = self._next
        self._next = min(self._next + 1, self.count - 1)
        return agent

    def clock(self) -> Array:
        """A clock that knows of nothing."""
        return np.zeros((2, self.count), np.int64)
