# SPDX-License-Identifier: Apache-2.0
"""The lines of warpgroups that take turns in Pallas: a barrier for each group and ordered part.

Mosaic GPU counts a thread's waits to know a barrier's phase, so that a group must see each phase of
the barriers it waits for: its stages are its own, every GROUPS-th.

Names of the emitted file: NAME_turns are an order's barriers, NAME_smem what a turn hands on;
`group` is a warpgroup's place in its order.
"""

import textwrap
from typing import Any

from pipegen.planning.custom.bodies import Body
from pipegen.planning.custom.code import arguments_of, field_of, upper
from pipegen.planning.custom.graph import Order, RoleNode
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.template import WIDTH, column
from pipegen.planning.custom.turns import said_of


def template_values(numbers: Numbers) -> dict[str, Any]:
    """The template's fields about orders."""
    orders = numbers.graph.orders
    return {
        "ordered": bool(orders),
        "by_tiles": not orders,
        "hands_on": any(order.state for order in orders),
        "orders": [
            {
                "upper": upper(order.name),
                "groups": order.groups,
                "barriers": (
                    f"{order.depth} * {upper(order.name)}_GROUPS"
                    if order.depth > 1
                    else f"{upper(order.name)}_GROUPS"
                ),
                "comment": textwrap.wrap(f"{order.name}: {said_of(order)}", WIDTH),
                "described": column(order.name, said_of(order)),
                "states": ["(TILE_M,)"] if order.state else [],
            }
            for order in orders
        ],
    }


def buffer_shape(role: RoleNode) -> str:
    """The buffers from which a role's results are stored: of each group one."""
    if role.order is None or role.groups == 1:
        return "(TILE_M, TILE_N)"
    return f"({upper(role.order.name)}_GROUPS, TILE_M, TILE_N)"


def role_lines(numbers: Numbers, role: RoleNode) -> list[str]:
    """A role that has every so many-th tile, and an ordered part in each."""
    assert role.order is not None
    order, groups = role.order, f"{upper(role.order.name)}_GROUPS"
    return [
        group_line(numbers, role, order),
        "",
        f"@pl.loop(0, lax.div(trips - group + {groups} - 1, jnp.int32({groups})))",
        "def _(turn):",
        *(f"    {line}" for line in [f"step = turn * {groups} + group", *steps(role, order)]),
    ]


def group_line(numbers: Numbers, role: RoleNode, order: Order) -> str:
    """Which group of its order a warpgroup is."""
    if role.groups == 1:
        return f"group = {order.roles.index(role.name)}"
    first = numbers.first_warp(role) // 4
    return f"group = role - {first}" if first else "group = role"


def steps(role: RoleNode, order: Order) -> list[str]:
    """What a group does with the tile that comes step-th."""
    from pipegen.planning.custom.pallas import slot

    buffer = ".at[group]" if role.groups > 1 else ""
    given = [slot(ring, part) for ring in role.inputs for part in ring.parts]
    made = [slot(ring, part) for ring in role.outputs for part in ring.parts]
    made += [f"{part.name}_buffer{buffer}" for part in role.writes]
    lines = [
        f"{r.name}_stage = wait({r.name}_full, step, {upper(r.name)}_STAGES)" for r in role.inputs
    ]
    lines += [
        f"{r.name}_stage = acquire({r.name}_empty, step, {upper(r.name)}_STAGES)"
        for r in role.outputs
    ]
    if role.writes:
        lines.append("# The last stores have read their buffers.")
        lines.append("plgpu.wait_smem_to_gmem(0, wait_read_only=True)")
    body = [f"{role.name}({', '.join([*given, *made])})"]
    if role.turn is None:
        lines += in_turn(order, body, 0)
    else:
        lines += body if order.depth == 1 else in_turn(order, body, 0)
        turn = turn_lines(role, order, given, made)
        if order.depth == 1:
            lines += ["# What the body wrote, for all threads of the group.", "plgpu.commit_smem()"]
        lines += in_turn(order, turn, order.depth - 1)
    lines += [f"plgpu.barrier_arrive({r.name}_full.at[{r.name}_stage])" for r in role.outputs]
    lines += [f"plgpu.barrier_arrive({r.name}_empty.at[{r.name}_stage])" for r in role.inputs]
    return lines + [
        f"plgpu.copy_smem_to_gmem({part.name}_buffer{buffer}, {part.name}_gmem.at[place(step)])"
        for part in role.writes
    ]


def in_turn(order: Order, lines: list[str], part: int) -> list[str]:
    """Lines that a group comes to when the one before it is through with its own."""
    groups, place = f"{upper(order.name)}_GROUPS", f", {part}" if part else ""
    return [
        "# In the order of the tiles: the group that has the tile before gives the turn on.",
        f"wait_turn({order.name}_turns, step, {groups}{place})",
        *lines,
        "# Publishes to the other warpgroups, and to TMA, which is another proxy.",
        "plgpu.commit_smem()",
        f"give_turn({order.name}_turns, step, trips, {groups}{place})",
    ]


def turn_lines(role: RoleNode, order: Order, given: list[str], made: list[str]) -> list[str]:
    """The call of the ordered part, and what is handed on around it."""
    if order.state is None:
        return [f"{role.name}_turn({', '.join([*given, *made])})"]
    name = order.name
    return [
        "",
        "@pl.when(lax.rem(step, jnp.int32(tiles_n)) == 0)",
        "def _():",
        f"    start = jnp.full((TILE_M,), {float(order.start)!r}, jnp.float32)",
        f"    {name}_smem[...] = plgpu.layout_cast(start, ROWS)",
        "    plgpu.commit_smem()",
        "",
        f"{name} = plgpu.load({name}_smem, *WHOLE, layout=ROWS, optimized=False)",
        f"{name}_smem[...] = {role.name}_turn({', '.join([*given, name, *made])})",
    ]


def tails(numbers: Numbers, role: RoleNode) -> list[str]:
    """Every arrival of a group's own stages is waited for, and every store, before the end."""
    assert role.order is not None
    groups, lines = f"{upper(role.order.name)}_GROUPS", []
    for ring in role.outputs:
        stages = f"{upper(ring.name)}_STAGES"
        lines += [
            f"@pl.loop(lax.max(trips - {stages}, 0), trips)",
            "def _(step):",
            f"    @pl.when(lax.rem(step, jnp.int32({groups})) == group)",
            "    def _():",
            f"        plgpu.barrier_wait({ring.name}_empty.at[lax.rem(step, jnp.int32({stages}))])",
            "",
        ]
    return [*lines, *(["plgpu.wait_smem_to_gmem(0)"] if role.writes else [])]


def bodies(role: RoleNode) -> list[Body]:
    """The ordered part of a role that takes turns, if it has one."""
    if role.order is None or role.turn is None:
        return []
    names, state = arguments_of(role), role.order.state
    inputs = len([field_of(ring, part) for ring in role.inputs for part in ring.parts])
    words = ["Ordered: the tile before has been through here, in another group. Its arguments are"]
    words.append(f"those of {role.name}.")
    lines = textwrap.dedent(role.turn).strip().splitlines()
    if state:
        names.insert(inputs, role.order.name)
        words[1] = f"those of {role.name}, and what the turns hand on:"
        words.append(
            f"{role.order.name}: a number of each row, f32; what it is here at the end, the"
        )
        words.append("    next turn has")
        lines.append(f"return {role.order.name}")
    return [Body(f"{role.name}_turn", ", ".join(names), ["Yours.", "", *words], lines)]
