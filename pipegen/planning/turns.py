# SPDX-License-Identifier: Apache-2.0
"""Ping-pong: two consumer warpgroups that take turns, each with an output tile of its own."""

from pipegen.description import KernelDescription

TURN_WARPGROUPS = 2  # of three, none would have the registers for a tile (rule PG230)
TURN_STAGES = 1  # depth of the PipelineOrder: one kind of turn, the mainloop


def takes_turns(description: KernelDescription) -> bool:
    """Whether the consumers are in ping-pong."""
    return description.scheduler.consumers == "ping-pong"


def tile_warpgroups(description: KernelDescription, warpgroups: int) -> int:
    """Consumer warpgroups, of `warpgroups`, that compute one output tile together."""
    return 1 if takes_turns(description) else warpgroups
