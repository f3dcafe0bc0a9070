# SPDX-License-Identifier: Apache-2.0
"""Ping-pong has two consumer warpgroups.

What it checks
    role.consumer.warpgroups with scheduler.consumers = "ping-pong": 2.

Why
    One warpgroup has nobody to take turns with: the tensor cores would wait for each of its
    epilogues. With three, four warpgroups would share the register file, 128 registers a thread
    (65536 / 512): 40 for the producer leave 152 for a consumer, and its tile of 128 x 128 takes 128
    of them before the first address. The template's order has two barriers, and each warpgroup
    steps over the one tile between two of its own.

Example
    consumers = "ping-pong" with [role.consumer] warpgroups = 1.

Use instead
    Leave warpgroups out. For one consumer warpgroup, consumers = "cooperative".
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.turns import TURN_WARPGROUPS


def check(description: KernelDescription) -> Iterator[Problem]:
    warpgroups = description.role["consumer"].warpgroups
    if warpgroups != TURN_WARPGROUPS:
        yield Problem(
            f"in ping-pong {TURN_WARPGROUPS} warpgroups take turns",
            "role.consumer.warpgroups",
            warpgroups,
            str(TURN_WARPGROUPS),
            str(TURN_WARPGROUPS),
        )
