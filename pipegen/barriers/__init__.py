# SPDX-License-Identifier: Apache-2.0
"""A small exhaustive model of mbarriers: phases, arrive counts and bytes, lap by lap.

`machine` runs programs of waits, arrivals and copies in every order. `rings` writes those programs
for a ring buffer, for groups in turn, and for a graph of roles; `plans` for a kernel's plan.
"""

from pipegen.barriers.machine import Finding, System, explore
from pipegen.barriers.rings import (
    End,
    RingModel,
    TurnsModel,
    find_in_ring,
    find_in_roles,
    find_in_turns,
)

__all__ = [
    "End",
    "Finding",
    "RingModel",
    "System",
    "TurnsModel",
    "explore",
    "find_in_ring",
    "find_in_roles",
    "find_in_turns",
]
