# SPDX-License-Identifier: Apache-2.0
"""Ping-pong has two consumer warpgroups, and in Pallas no cluster.

What it checks
    With scheduler.consumers = "ping-pong": role.consumer.warpgroups is 2; with the pallas backend
    cluster.shape is [1, 1].

Why
    One warpgroup has nobody to take turns with: the tensor cores would wait for each of its
    epilogues. With three, four warpgroups would share the register file, 128 registers a thread
    (65536 / 512): 40 for the producer leave 152 for a consumer, and its tile of 128 x 128 takes 128
    of them before the first address. The template's order has two barriers, and each warpgroup
    steps over the one tile between two of its own.

    In Pallas the template's barriers are a CTA's own: with a multicast a stage could be filled
    again only once the other CTA has read it, too. On an H200 clusters gained at most 1 percent at
    22 of 25 sizes (docs/tuning.md).

Example
    consumers = "ping-pong" with [role.consumer] warpgroups = 1.

Use instead
    Leave warpgroups and, in Pallas, the cluster out. For one consumer warpgroup,
    consumers = "cooperative".
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
    if description.kernel.backend == "pallas" and description.cluster.shape != (1, 1):
        yield Problem(
            "in Pallas the barriers of ping-pong are a CTA's own, and no tile is shared",
            "cluster.shape",
            list(description.cluster.shape or ()),
            "[1, 1]",
            "[1, 1]",
        )
