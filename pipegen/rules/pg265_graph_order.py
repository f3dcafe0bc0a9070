# SPDX-License-Identifier: Apache-2.0
"""Groups that take turns must be able to alternate the tiles of their rings.

What it checks
    That an order names roles of threads, each in one order, with as many warps each, or one role
    with several groups; that all of them are at the same end of each of their rings, which have a
    stage a tile and a stage for each group; that there is something to order; and that what is
    handed on is used.

Why
    The groups have a barrier each: a group waits for its own and then arrives at the next one's
    (PipelineOrder), which counts the threads of one group. A tile goes to one group, so a ring's
    stage is filled or emptied by one of them. A group that came to some rings and not to others
    would be out of step with them (C13).

Example
    [order.turns] with roles = "even, odd", and a ring "load -> even": odd would take tiles of its
    own from nowhere, and even would leave every second stage of the ring to nobody.

Use instead
    "load -> even, odd": they take its stages in turn.
"""

import math
from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_word
from pipegen.planning.custom.graph import Graph, Order, RoleNode
from pipegen.planning.custom.reading import read_graph

MOST_GROUPS = 8
MOST_DEPTH = 2


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    for order in graph.orders:
        found = [*_words(description, graph, order)]
        yield from found
        if not found:
            yield from _groups(graph, order)
            yield from _parts(graph, order)
    ordered = {name for order in graph.orders for name in order.roles}
    for role in graph.roles:
        if role.turn is not None and role.name not in ordered:
            yield Problem(
                f"{role.name} is in no order: it has nobody to take turns with",
                f"role.{role.name}.turn",
                role.turn,
                "no value, or an order that names the role",
                f'order.turns.roles = "{role.name}"',
            )


def _words(description: KernelDescription, graph: Graph, order: Order) -> Iterator[Problem]:
    """What an order's own words say."""
    given = description.order[order.name]
    known = [role.name for role in graph.roles]
    key = f"order.{order.name}.roles"
    unknown = [name for name in order.roles if name not in known]
    others = [other for other in graph.orders if other is not order]
    twice = [name for name in order.roles for other in others if name in other.roles]
    if unknown or not order.roles:
        word = unknown[0] if unknown else ""
        yield Problem(
            f"no role is called {word}" if word else "no role is named",
            key,
            given.roles,
            listing(known),
            nearest_word(word, known) or f'"{known[0]}"',
        )
    elif twice:
        yield Problem(
            f"{twice[0]} is in two orders, and would wait for a turn in the middle of another",
            key,
            given.roles,
            "roles of no other order",
            "one order for all of them",
        )
    elif given.groups is not None and len(order.roles) > 1:
        yield Problem(
            f"{len(order.roles)} roles are {len(order.roles)} groups",
            f"order.{order.name}.groups",
            given.groups,
            "no value",
            "leave the key out",
        )
    elif not 2 <= order.groups <= MOST_GROUPS:
        yield Problem(
            "one group has nobody to take turns with" if order.groups < 2 else "too many groups",
            f"order.{order.name}.groups",
            order.groups,
            f"2 to {MOST_GROUPS}",
            "2",
        )
    if not 1 <= order.depth <= MOST_DEPTH:
        yield Problem(
            "a body has one ordered part, its turn, or two: all before the turn, and the turn",
            f"order.{order.name}.depth",
            order.depth,
            "1, 2",
            "1",
        )
    if given.shape is not None and (order.state is None or order.state.dims != ("M",)):
        yield Problem(
            "a turn hands a number for each row on to the next",
            f"order.{order.name}.shape",
            given.shape,
            '"M", or no value',
            '"M"',
        )
    if not math.isfinite(given.start):
        yield Problem(
            "the check could not compare it",
            f"order.{order.name}.start",
            str(given.start),
            "a finite number",
            "-1e30",
        )
    taken = {*description.tensor, *description.pipeline, *known}
    if not order.name.isidentifier() or order.name != order.name.lower() or order.name in taken:
        yield Problem(
            "the emitted kernel needs a name of its own, in lower case",
            f"order.{order.name}",
            allowed="letters, digits and underscores, the name of nothing else",
            nearest=f"order.turns_of_{order.roles[0] if order.roles else 'roles'}",
        )


def _groups(graph: Graph, order: Order) -> Iterator[Problem]:
    """Whether the roles are groups of one kind."""
    roles = [graph.role(name) for name in order.roles]
    for role in roles:
        if role.kind != "thread":
            yield Problem(
                f"{role.name} is of kind {role.kind}, which has no body to order",
                f"order.{order.name}.roles",
                ", ".join(order.roles),
                "roles of threads",
                f'role.{role.name}.kind = "thread"',
            )
            return
    if len({role.warps for role in roles}) > 1:
        said = ", ".join(f"{role.name} {role.warps}" for role in roles)
        yield Problem(
            f"each barrier of an order counts the threads of one group, and the groups have {said} "
            "warps",
            f"role.{roles[-1].name}.warps",
            roles[-1].warps,
            "as many in each group",
            str(roles[0].warps),
        )
        return
    for ring in graph.rings:
        for end, names in (("source", ring.sources), ("target", ring.targets)):
            some = [name for name in order.roles if name in names]
            lacking = [name for name in order.roles if name not in names]
            if some and lacking:
                yield Problem(
                    f"{listing(order.roles)} alternate tiles, and {listing(lacking)} would be out "
                    f"of step with {listing(some)} as a {end} of {ring.name}",
                    f"pipeline.{ring.name}.edge",
                    ring.edge,
                    "all of an order's roles at one end, or none",
                    _whole_edge(ring.sources, ring.targets, end, order),
                )
        both = {*ring.sources, *ring.targets} & set(order.roles)
        if both and ring.stages is not None and 1 <= ring.stages < order.groups:
            yield Problem(
                f"{order.groups} groups take the stages of {ring.edge} in turn: with fewer stages "
                "one would wait for a stage's lap after the next, which a barrier's parity takes "
                "for the last",
                f"pipeline.{ring.name}.stages",
                ring.stages,
                f"at least {order.groups}",
                str(order.groups),
            )
    yield from _levels(graph, order, roles)


def _whole_edge(sources: tuple[str, ...], targets: tuple[str, ...], end: str, order: Order) -> str:
    """The edge with all of an order's roles at one of its ends."""
    whole = tuple(dict.fromkeys((*(sources if end == "source" else targets), *order.roles)))
    left, right = (whole, targets) if end == "source" else (sources, whole)
    return f'"{", ".join(left)} -> {", ".join(right)}"'


def _levels(graph: Graph, order: Order, roles: list[RoleNode]) -> Iterator[Problem]:
    """Whether a group sees only what comes once a tile."""
    for role in roles:
        rings = (*role.inputs, *role.outputs)
        slow = next((ring for ring in rings if ring.every == "panel"), None)
        if slow is not None:
            yield Problem(
                f"{slow.name} has a stage for a panel, and a group of {role.name} has one of "
                f"{order.groups} of its tiles",
                f"pipeline.{slow.name}.edge",
                slow.edge,
                "rings with a stage a tile",
                "a role that takes all tiles",
            )
            return
        lent = next((ring for ring in rings if ring.credits), None)
        if lent is not None:
            yield Problem(
                f"a group of {role.name} has one of {order.groups} tiles, so it neither fills all "
                "stages before the first nor takes all behind the last",
                f"pipeline.{lent.name}.credits",
                lent.credits,
                "0",
                f'order.{order.name}.shape = "M", which hands on what a turn leaves',
            )
            return
        narrow = next((p for p in (*role.reads, *role.writes) if p.every == "panel"), None)
        if narrow is not None or role.finish or role.start is not None:
            what = narrow.name if narrow else "a result over a panel's tiles"
            yield Problem(
                f"a group of {role.name} has one of {order.groups} tiles of a panel, and {what} is "
                "for all",
                f"order.{order.name}.roles",
                ", ".join(order.roles),
                'matrices, and order.NAME.shape = "M" for what is kept',
                f'order.{order.name}.shape = "M"',
            )
            return


def _parts(graph: Graph, order: Order) -> Iterator[Problem]:
    """Whether there is a turn where the description needs one."""
    roles = [graph.role(name) for name in order.roles]
    without = [role for role in roles if role.turn is None]
    needs = "hands something on" if order.state else "has two ordered parts"
    if without and (order.state or order.depth == MOST_DEPTH or len(without) < len(roles)):
        why = (
            f"the order {needs}, and {without[0].name} has no turn"
            if order.state or order.depth == MOST_DEPTH
            else f"{without[0].name} has no turn, and others of the order have"
        )
        yield Problem(
            why,
            f"role.{without[0].name}",
            allowed="turn = Python text, in each role of the order",
            nearest=f'role.{without[0].name}.turn = "pass"',
        )
    for role in roles:
        if role.body is None and role.turn is not None:
            yield Problem(
                "the identity has no ordered part",
                f"role.{role.name}.turn",
                role.turn,
                "a body of its own beside it",
                f'role.{role.name}.body = "pass"',
            )
