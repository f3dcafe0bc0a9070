# SPDX-License-Identifier: Apache-2.0
"""A custom graph must fit into one block.

What it checks
    Warps of all roles (32 at most, of which each kind takes some numbers only), the rings' SMEM,
    the named barriers, and registers that setmaxnreg can move.

Why
    A block has 1024 threads, 232448 B of SMEM, 15 named barriers beside __syncthreads, and the
    registers that it was launched with: setmaxnreg waits for ever for more (PTX ISA, "setmaxnreg").

Example
    Two rings of 8 stages, each of 32 x 256 f32: 524288 B.

Use instead
    The number that the message proposes.
"""

from collections.abc import Iterator

from pipegen.arithmetic import setmaxnreg_valid
from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import (
    MBARRIER_TX_LIMIT,
    SETMAXNREG_MAX,
    SETMAXNREG_MIN,
    SETMAXNREG_STEP,
    WARP,
)
from pipegen.planning.custom.graph import UMMA, WGMMA
from pipegen.planning.custom.numbers import MOST_THREADS, NAMED_BARRIERS, Numbers
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.reading import read_graph

DERIVED = True
MOST_STAGES = 32
# Warps of the kinds that do not take any power of two: wgmma is for whole warpgroups, and a warp
# issues all tcgen05 MMAs. Four reach the 128 lanes of TMEM, 32 each (PTX, "tcgen05.ld").
WARPS = {"tma": (1,), "tma_store": (1,), WGMMA: (4, 8, 12, 16), UMMA: (1,)}
LANES = (4,)


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None or min(graph.tile) < 1:
        return
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    found = [*_warps(numbers), *_stages(numbers)]
    yield from found
    if not found:
        yield from _smem(numbers)
        yield from _registers(numbers)


def _warps(numbers: Numbers) -> Iterator[Problem]:
    graph = numbers.graph
    for role in graph.roles:
        allowed = LANES if role.sums else WARPS.get(role.kind, (1, 2, 4, 8, 16))
        if numbers.pallas:
            continue  # rule PG277 speaks of them
        if role.warps not in allowed:
            yield Problem(
                (
                    f"{role.name} takes accumulators of 128 rows from TMEM, 32 a warp"
                    if role.sums
                    else f"{role.name} is of kind {role.kind}, which has {listing(allowed)} warps"
                ),
                f"role.{role.name}.warps",
                role.warps,
                listing(allowed),
                nearest_number(role.warps, allowed),
            )
            return
    most = MOST_THREADS // WARP
    total = sum(role.block_warps for role in graph.roles)
    meeting = [
        role
        for role in graph.roles
        for _ in range(role.groups if role.kind == "thread" and role.warps > 1 else 0)
    ]
    widest = max(graph.roles, key=lambda role: role.block_warps)
    if total > most:
        said = " + ".join(str(role.block_warps) for role in graph.roles)
        yield Problem(
            f"the roles have {said} = {total} warps, a block {most}",
            f"role.{widest.name}.warps",
            widest.warps,
            f"{most} warps together",
            str(max(1, widest.warps // 2)),
        )
    elif len(meeting) > (left := NAMED_BARRIERS - numbers.own_barriers):
        yield Problem(
            f"{len(meeting)} roles have threads that may meet, and a block has "
            f"{left} named barriers beside __syncthreads"
            f"{' and those around TMEM' if left < NAMED_BARRIERS else ''}",
            f"role.{meeting[-1].name}.warps",
            meeting[-1].warps,
            f"{left} roles of several warps",
            "1",
        )


def _stages(numbers: Numbers) -> Iterator[Problem]:
    for ring in numbers.graph.rings:
        if ring.stages is not None and not 1 <= ring.stages <= MOST_STAGES:
            yield Problem(
                f"{ring.edge} is a ring buffer",
                f"pipeline.{ring.name}.stages",
                ring.stages,
                f"1 to {MOST_STAGES}",
                nearest_number(ring.stages, (1, MOST_STAGES)),
            )
        tx_count = numbers.tx_count(ring) or 0
        if tx_count >= MBARRIER_TX_LIMIT:
            yield Problem(
                f"a stage of {ring.edge} is {tx_count} B, and an mbarrier counts fewer than "
                f"{MBARRIER_TX_LIMIT}",
                f"pipeline.{ring.name}.edge",
                ring.edge,
                "smaller tiles",
                "tile.m = 32",
            )


def _smem(numbers: Numbers) -> Iterator[Problem]:
    rings = [ring for ring in numbers.graph.rings if not ring.in_tmem]
    smallest = numbers.total(max(1, numbers.auto_stages))
    if smallest <= numbers.capacity:
        return
    largest = max(rings, key=lambda r: numbers.stage_bytes(r) * max(1, numbers.stages(r)))
    said = " + ".join(
        f"{ring.name} {max(1, numbers.stages(ring))} * {numbers.stage_bytes(ring)}"
        for ring in rings
    )
    size = numbers.stage_bytes(largest)
    stages = max(1, numbers.stages(largest))
    over = smallest - numbers.capacity
    fewer = stages - -(-over // size)
    if largest.stages is not None and fewer >= 1:
        key, value, nearest = f"pipeline.{largest.name}.stages", stages, str(fewer)
    else:
        key, value, nearest = (
            "tile.m",
            numbers.graph.tile[0],
            str(max(1, numbers.graph.tile[0] // 2)),
        )
    yield Problem(
        f"the stages take {said} = {smallest} B with their barriers, and a block has "
        f"{numbers.capacity} B; most of it in {largest.name}, {largest.edge}",
        key,
        value,
        f"at most {numbers.capacity} B together",
        nearest,
    )


def _registers(numbers: Numbers) -> Iterator[Problem]:
    roles = numbers.graph.roles
    moving = [role for role in roles if role.registers]
    if not moving:
        return
    launch = numbers.launch_registers
    for role in moving:
        key = f"role.{role.name}.registers"
        if not setmaxnreg_valid(role.registers):
            yield Problem(
                "setmaxnreg takes no such count",
                key,
                role.registers,
                f"multiples of {SETMAXNREG_STEP} from {SETMAXNREG_MIN} to {SETMAXNREG_MAX}",
                nearest_number(
                    role.registers, range(SETMAXNREG_MIN, SETMAXNREG_MAX + 1, SETMAXNREG_STEP)
                ),
            )
            return
        if role.block_warps % 4 or numbers.first_warp(role) % 4:
            first = numbers.first_warp(role)
            yield Problem(
                f"setmaxnreg is for whole warpgroups, and {role.name} is warps {first} to "
                f"{first + role.block_warps - 1}",
                key,
                role.registers,
                "roles of 4, 8 or 16 warps that stand before all smaller ones",
                "leave the key out",
            )
            return
    warps = sum(role.block_warps for role in roles)
    asked = sum(role.block_warps * (role.registers or launch) for role in roles)
    if asked > warps * launch:
        most = max(moving, key=lambda role: role.registers)
        spare = warps * launch - (asked - most.block_warps * most.registers)
        fitting = max(
            SETMAXNREG_MIN, spare // most.block_warps // SETMAXNREG_STEP * SETMAXNREG_STEP
        )
        said = " + ".join(f"{role.block_warps} * {role.registers or launch}" for role in roles)
        yield Problem(
            f"{warps} warps start with {launch} registers a thread, {warps * launch} together; "
            f"{said} = {asked} would wait for ever",
            f"role.{most.name}.registers",
            most.registers,
            f"at most {fitting}",
            str(fitting),
        )
