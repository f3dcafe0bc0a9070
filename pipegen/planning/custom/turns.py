# SPDX-License-Identifier: Apache-2.0
"""The lines of groups that take turns (PipelineOrder), in the CuTe DSL.

Names of the emitted file: NAME_order and NAME_turn of an order, NAME_group of a warp's place in it,
NAME_smem and NAME_kept of what a turn hands on to the next.
"""

from typing import Any

from pipegen.hardware import WARP
from pipegen.planning.custom import code
from pipegen.planning.custom.code import RoleCode, upper
from pipegen.planning.custom.graph import Order, RoleNode
from pipegen.planning.custom.numbers import Numbers


def role_code(numbers: Numbers, role: RoleNode) -> RoleCode:
    """All lines of a role, whether it takes turns or not."""
    return code.role_code(numbers, role) if role.order is None else turn_code(numbers, role)


def turn_code(numbers: Numbers, role: RoleNode) -> RoleCode:
    """A role that has every so many-th tile, and an ordered part in each."""
    assert role.order is not None
    order, warps = role.order, f"{upper(role.name)}_WARPS"
    setup = code.setup_of(numbers, role, True)
    for part in (*role.reads, *role.writes):
        shape = code.fragment_shape(part, role)
        setup.append(f"{part.name}_part = make_part({shape}, {upper(part.name)}_DTYPE)")
    if order.state:
        setup.append(
            f"{order.name}_kept = cute.make_rmem_tensor({upper(role.name)}_ROWS, cutlass.Float32)"
        )
    setup += [
        "# Each group has its own stages of a ring, and its own state in the order of turns.",
        *(f"{ring.name}_consumer.advance({order.name}_group)" for ring in role.inputs),
        *(f"{ring.name}_producer.advance({order.name}_group)" for ring in role.outputs),
        f"{order.name}_turn = {order.name}_order.state.clone()",
        "turns = cute.ceil_div(panels - first, step) * tiles  # of this CTA",
    ]
    skip = f"advance({upper(order.name)}_GROUPS - 1)"
    step = ["panel, tile = first + index // tiles * step, index % tiles"]
    for ring in role.inputs:
        step += [*code.waits(ring), f"{ring.name}_consumer.{skip}"]
    for ring in role.outputs:
        step += [f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()"]
        step += [f"{ring.name}_producer.{skip}"]
    step += [
        f"load_global({part.name}_gmem, {part.name}_part, {code.place_of(part, role)})"
        for part in role.reads
    ]
    arguments = code.call_arguments(role)
    body = [f"{role.name}({', '.join(arguments)})"]
    step += body if role.turn and order.depth == 1 else in_turn(order, body)
    if role.turn:
        step += in_turn(order, turn_lines(role, order, warps, arguments))
    step += [line for ring in role.outputs for line in code.commit(numbers.graph, ring)]
    step += [
        f"store_global({part.name}_part, {part.name}_gmem, {code.place_of(part, role)})"
        for part in role.writes
    ]
    step += code.give_back(role.inputs)
    groups = f"{upper(order.name)}_GROUPS"
    loop = f"for index in cutlass.range({order.name}_group, turns, {groups}, unroll=1):"
    return RoleCode(setup, step, [], [], [], loop)


def in_turn(order: Order, lines: list[str]) -> list[str]:
    """Lines that a group comes to when the one before it is through with its own."""
    return [
        "# In the order of the tiles: the group that has the tile before gives the turn on.",
        f"{order.name}_order.wait({order.name}_turn)",
        *lines,
        f"{order.name}_turn = {order.name}_order.arrive({order.name}_turn)",
    ]


def turn_lines(role: RoleNode, order: Order, warps: str, arguments: list[str]) -> list[str]:
    """The call of the ordered part, and what is handed on around it."""
    if order.state is None:
        return [f"{role.name}_turn({', '.join(arguments)})"]
    kept = f"{order.name}_kept"
    inputs = len([part for ring in role.inputs for part in ring.parts])
    given = [*arguments[:inputs], kept, *arguments[inputs:]]
    return [
        f"load_kept({order.name}_smem, {kept}, thread)",
        "if tile == 0:",
        f"    {kept}.fill({float(order.start)!r})",
        f"{role.name}_turn({', '.join(given)})",
        "cute.arch.sync_warp()",
        f"store_kept({kept}, {order.name}_smem, thread // 32, thread)",
    ]


def order_values(numbers: Numbers, order: Order) -> dict[str, Any]:
    """The template's fields of an order."""
    role = numbers.graph.role(order.roles[0])
    first, threads = numbers.first_warp(role), numbers.turn_count(order)
    warp = f"(warp_idx - {first})" if first else "warp_idx"
    return {
        "name": order.name,
        "upper": upper(order.name),
        "groups": order.groups,
        "depth": order.depth,
        "arrives": threads,
        "arrives_formula": f"{WARP} * {role.warps}, every thread of a group",
        "barriers": order.depth * order.groups,
        "group": f"{warp} // {upper(role.name)}_WARPS",
        "states": ["TILE_M"] if order.state else [],
    }


def said_of(order: Order) -> str:
    """`even, odd, even, ...: one part of each tile in turn`"""
    groups = order.roles if len(order.roles) > 1 else [f"{order.roles[0]}'s {order.groups} groups"]
    names = " -> ".join(groups) if len(order.roles) > 1 else groups[0]
    hands = "" if order.state is None else ", which hands a number for each row on to the next"
    parts = "the body and then the turn" if order.depth == 2 else "the turn"
    return f"{names} take the tiles one after the other: {parts}{hands}"
