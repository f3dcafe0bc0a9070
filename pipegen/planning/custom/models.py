# SPDX-License-Identifier: Apache-2.0
"""A custom graph for the model of the barriers: its rings alone, and all roles together.

Every group of threads is an agent: a role, each group of an order, and in a cluster those of both
CTAs. Pure functions.
"""

from collections.abc import Iterator
from dataclasses import replace

from pipegen.barriers import End, Finding, RingModel, TurnsModel, find_in_ring, find_in_roles
from pipegen.barriers.rings import Step
from pipegen.hardware import WARP
from pipegen.planning.custom.graph import Graph, Order, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.product_numbers import ProductNumbers

MOST_PANELS = 2
# A deep ring does no more than one of this many stages does, and takes longer to try.
MODELLED_STAGES = 2


def groups_of(graph: Graph, role: RoleNode) -> list[tuple[str, int, int]]:
    """The agents of a role: (name, its first tile, tiles from one of its turns to the next)."""
    order = role.order
    if order is None:
        return [(role.name, 0, 1)]
    if role.groups == 1:
        return [(role.name, order.roles.index(role.name), order.groups)]
    return [(f"{role.name} {group}", group, order.groups) for group in range(order.groups)]


def consumers(numbers: Numbers, ring: Ring) -> list[End]:
    """Who empties a stage of a ring."""
    return [
        End(name, numbers.release_arrivals(target), first=first, every=every)
        for target in ring.targets
        for name, first, every in groups_of(numbers.graph, numbers.graph.role(target))
    ]


def producers(numbers: Numbers, ring: Ring) -> list[End]:
    """Who fills a stage of a ring, with the bytes of TMA."""
    tx_count = numbers.tx_count(ring) or 0
    return [
        End(
            name,
            numbers.commit_arrivals(ring, source),
            tx_count,
            (
                sum(numbers.copied_bytes(p) for p in numbers.own_parts(ring, source))
                if ring.producer == "tma"
                else 0
            ),
            first=first,
            every=every,
            tails=not ring.in_tmem,  # what empties an accumulator comes from this CTA's own warps
        )
        for source in ring.sources
        for name, first, every in groups_of(numbers.graph, numbers.graph.role(source))
    ]


def ring_model(
    numbers: Numbers, ring: Ring, name: str, sources: list[End], targets: list[End]
) -> RingModel:
    """A ring between these ends, with the counts that its barriers are initialised with."""
    return RingModel(
        name,
        numbers.stages(ring),
        numbers.full_count(ring),
        numbers.empty_count(ring),
        tuple(sources),
        tuple(targets),
    )


def alone(numbers: Numbers, ring: Ring) -> RingModel:
    """The ring on its own: each role, or one thread or warp of the only one, for itself.

    More stages than MODELLED_STAGES add laps of the same, and states beyond number. Of a ring for
    both CTAs the releases of the other one come as those of others that may lag behind.
    """
    sources, targets = producers(numbers, ring), consumers(numbers, ring)
    if len(targets) == 1:
        targets = apart(targets[0])
    if len(sources) == 1 and ring.producer != "tma":
        sources = apart(sources[0])
    if ring.multicast:
        targets += [replace(end, name=f"{end.name} of the other CTA") for end in targets]
    whole = ring_model(numbers, ring, ring.name, sources, targets)
    return replace(whole, stages=min(whole.stages, MODELLED_STAGES))


def apart(end: End) -> list[End]:
    """A group as two agents: one thread or warp that may lag behind, and the others."""
    if end.arrivals <= 1:
        return [end]
    lagging = replace(end, name=f"one of {end.name}", arrivals=1)
    return [lagging, replace(end, arrivals=end.arrivals - 1)]


def find_alone(numbers: Numbers) -> tuple[Ring, Finding] | None:
    """The first ring that hangs or races on its own."""
    for ring in numbers.graph.rings:
        orders = orders_of(numbers.graph, ring)
        found = (
            find_in_turn(numbers, ring, orders) if orders else find_in_ring(alone(numbers, ring))
        )
        if found is not None:
            return ring, found
    return None


def orders_of(graph: Graph, ring: Ring) -> list[Order]:
    """The orders of a ring's roles."""
    found = [graph.role(name).order for name in (*ring.sources, *ring.targets)]
    return [order for order in graph.orders if order in found]


def find_in_turn(numbers: Numbers, ring: Ring, orders: list[Order]) -> Finding | None:
    """The fault of a ring whose stages go to groups in turn, in every order of events.

    Turns keep a group from running ahead of the others by more than their number: a wait knows the
    parity of a phase, and would take the one before the last for the one that it wants.
    """
    groups = max(order.groups for order in orders)
    model = replace(alone(numbers, ring), stages=min(numbers.stages(ring), groups + 1))
    turns = [turns_model(numbers, order, 0, (0,)) for order in orders]
    steps: dict[str, list[Step]] = {}
    for ends, fills in ((model.producers, True), (model.consumers, False)):
        for end in ends:
            mine = tuple(order.name for order in turns if end.name in order.groups)
            names = (ring.name,)
            step = Step((), names, names, (), mine) if fills else Step(names, (), (), names, mine)
            steps[end.name] = [step] * len(range(end.first, 3 * groups, end.every))
    return find_in_roles([model], steps, every_order=True, turns=turns)


def find_together(numbers: Numbers, tiles: int) -> Finding | None:
    """The fault of all roles together, for panels of so many tiles (of a CTA)."""
    ctas = (0, 1) if numbers.graph.clustered else (0,)
    rings = [model for ring in numbers.graph.rings for model in models(numbers, ring, ctas)]
    steps = {
        at(name, cta, ctas): passes
        for cta in ctas
        for name, passes in steps_of(numbers, tiles, cta, ctas)
    }
    turns = [
        turns_model(numbers, order, cta, ctas) for order in numbers.graph.orders for cta in ctas
    ]
    return find_in_roles(rings, steps, turns=turns)


def at(name: str, cta: int, ctas: tuple[int, ...]) -> str:
    """The name of a role or a ring of a CTA: as it is where there is only one."""
    return name if len(ctas) == 1 else f"{name} of CTA {cta}"


def models(numbers: Numbers, ring: Ring, ctas: tuple[int, ...]) -> Iterator[RingModel]:
    """A ring of each CTA: one that the peer's roles take from, or that both CTAs' loads fill."""
    for cta in ctas:
        other = 1 - cta

        def ends(found: list[End], where: int) -> list[End]:
            return [replace(end, name=at(end.name, where, ctas)) for end in found]

        sources, targets = ends(producers(numbers, ring), cta), ends(consumers(numbers, ring), cta)
        if ring.peer and len(ctas) > 1:
            targets = ends(consumers(numbers, ring), other)
        elif ring.multicast and len(ctas) > 1:
            also = (at(ring.name, other, ctas),)
            sources = [replace(e, copied=e.copied // 2, also=also) for e in sources]
            sources += ends(
                [replace(e, armed=0, copied=0) for e in producers(numbers, ring)], other
            )
            targets = [replace(end, also=also) for end in targets]
            targets += ends(consumers(numbers, ring), other)
        yield ring_model(numbers, ring, at(ring.name, cta, ctas), sources, targets)


def turns_model(numbers: Numbers, order: Order, cta: int, ctas: tuple[int, ...]) -> TurnsModel:
    """The turns of an order's groups: each thread of a group gives its turn on."""
    roles = [numbers.graph.role(name) for name in order.roles]
    groups = [name for role in roles for name, _, _ in groups_of(numbers.graph, role)]
    threads = 1 if numbers.pallas else WARP * roles[0].warps
    return TurnsModel(
        at(order.name, cta, ctas),
        tuple(at(name, cta, ctas) for name in groups),
        numbers.turn_count(order),
        threads,
        order.depth,
    )


def steps_of(
    numbers: Numbers, tiles: int, cta: int, ctas: tuple[int, ...]
) -> Iterator[tuple[str, list[Step]]]:
    """What each agent does with panels of so many tiles, in the order of the emitted loops."""
    graph = numbers.graph

    def here(names: tuple[str, ...], takes: bool) -> tuple[str, ...]:
        """The rings of this CTA; what is taken from the peer's ring is the other one's."""
        rings = {ring.name: ring for ring in graph.rings}
        return tuple(
            at(name, 1 - cta if takes and name in rings and rings[name].peer else cta, ctas)
            for name in names
        )

    for role in graph.roles:
        passes = [
            Step(
                here(step.takes, True),
                here(step.fills, False),
                here(step.commits, False),
                here(step.releases, True),
                here(step.turns, False),
            )
            for _ in range(MOST_PANELS)
            for step in passes_of(numbers, role, tiles)
        ]
        for name, first, every in groups_of(graph, role):
            yield name, passes[first::every]


def passes_of(numbers: Numbers, role: RoleNode, tiles: int) -> list[Step]:
    """One panel of a role; where roles multiply, one tile of the results, its loops in it."""
    if isinstance(numbers, ProductNumbers):
        return numbers.loop(role, 0, tiles)
    return panel_steps(role, tiles)


def panel_steps(role: RoleNode, tiles: int) -> list[Step]:
    """One panel of a role: stages of the panel around the loop over its tiles."""
    panel_in = tuple(ring.name for ring in role.inputs if ring.every == "panel")
    panel_out = tuple(ring.name for ring in role.outputs if ring.every == "panel")
    if role.every == "panel":
        return [Step(panel_in, panel_out, panel_out, panel_in)]
    tile_in = tuple(ring.name for ring in role.inputs if ring.every == "tile")
    tile_out = tuple(ring.name for ring in role.outputs if ring.every == "tile")
    turns = (role.order.name,) if role.order else ()
    each = Step(tile_in, tile_out, tile_out, tile_in, turns)
    if role.kind != "thread":
        # A mover has its panel's stage on the way before the first tile's.
        return [Step(panel_in, panel_out, panel_out, panel_in), *[each] * tiles]
    if role.order:
        return [each] * tiles
    # What is kept over the panel is given on behind its last tile.
    begin = [
        Step((), (ring.name,), (ring.name,), ())
        for ring in role.outputs
        for _ in range(ring.credits)
    ]
    end = [
        Step((ring.name,), (), (), (ring.name,))
        for ring in role.inputs
        for _ in range(ring.credits)
    ]
    last = Step((), panel_out, panel_out, panel_in)
    return [*begin, Step(takes=panel_in), *[each] * tiles, *end, last]
