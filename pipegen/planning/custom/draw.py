# SPDX-License-Identifier: Apache-2.0
"""The graph of a custom kernel as text and as SVG. Pure functions."""

from html import escape

from pipegen.planning.custom.graph import Graph, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers

# Pixels of the SVG: a role's box, and the room between boxes.
BOX = (150, 56)
ROOM = (200, 34)
MARGIN = 24
FONT = 'font-family="ui-monospace, monospace" font-size="12"'


def draw_text(numbers: Numbers) -> str:
    """The graph as a tree from the roles that nobody feeds; a role that was drawn is named only."""
    graph = numbers.graph
    lines: list[str] = []
    drawn: set[str] = set()

    def draw(role: RoleNode, depth: int, way: str) -> None:
        again = role.name in drawn
        drawn.add(role.name)
        reads = f"{', '.join(part.name for part in role.reads)} -> " if role.reads else ""
        writes = f" -> {', '.join(part.name for part in role.writes)}" if role.writes else ""
        said = " (drawn above)" if again else f" [{said_of(role)}]{writes}"
        lines.append(f"{'    ' * depth}{way}{'' if again else reads}{role.name}{said}")
        if again:
            return
        for ring in role.outputs:
            for target in ring.targets:
                draw(graph.role(target), depth + 1, f"{ring.name} ({size_of(numbers, ring)}) -> ")

    for role in graph.roles:
        if not role.inputs:
            draw(role, 0, "")
    lines += [f"{order.name}: {', '.join(order.roles)} in turn" for order in graph.orders]
    return "\n".join(lines) + "\n"


def said_of(role: RoleNode) -> str:
    """`tma, 1 warp`"""
    groups = f"{role.groups} x " if role.groups > 1 else ""
    return f"{role.kind}, {groups}{role.warps} warp{'s' if role.block_warps > 1 else ''}"


def size_of(numbers: Numbers, ring: Ring) -> str:
    """`4 x 16384 B a tile`"""
    size = f"{numbers.stages(ring)} x {numbers.stage_words(ring)}, {numbers.every(ring)}"
    return f"{size}{special(ring)}"


def special(ring: Ring) -> str:
    """What sets a ring apart: `, of the other CTA`."""
    words = [
        (ring.peer, ", of the other CTA"),
        (ring.multicast, ", for both CTAs"),
        (ring.credits > 0, f", {ring.credits} full at first"),
    ]
    return "".join(word for holds, word in words if holds)


def depths(graph: Graph) -> dict[str, int]:
    """How many rings lie at most between a load and each role."""
    found: dict[str, int] = {}

    def depth(role: RoleNode) -> int:
        if role.name not in found:
            forward = [ring for ring in role.inputs if not ring.credits]
            before = [depth(graph.role(s)) + 1 for ring in forward for s in ring.sources]
            found[role.name] = max(before, default=0)
        return found[role.name]

    for role in graph.roles:
        depth(role)
    return found


def draw_svg(numbers: Numbers, title: str) -> str:
    """The graph as an SVG picture: roles from left to right, rings as arrows between them."""
    graph = numbers.graph
    layer = depths(graph)
    columns: dict[int, list[RoleNode]] = {}
    for role in graph.roles:
        columns.setdefault(layer[role.name], []).append(role)
    (width, height), (across, down) = BOX, ROOM
    tallest = max(len(roles) for roles in columns.values())
    place = {}
    for column, roles in columns.items():
        above = (tallest - len(roles)) * (height + down) // 2
        for row, role in enumerate(roles):
            x = MARGIN + column * (width + across)
            place[role.name] = (x, MARGIN + 20 + above + row * (height + down))
    total = (
        2 * MARGIN + len(columns) * (width + across) - across,
        2 * MARGIN + 20 + tallest * (height + down),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total[0]}" height="{total[1]}" '
        f'viewBox="0 0 {total[0]} {total[1]}" {FONT}>',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#333"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{MARGIN}" y="{MARGIN}" font-weight="bold">{escape(title)}</text>',
    ]
    labelled: dict[tuple[int, int], int] = {}
    for ring in graph.rings:
        for source in ring.sources:
            for target in ring.targets:
                parts += _arrow(numbers, ring, place[source], place[target], labelled)
    for role in graph.roles:
        parts += _box(role, *place[role.name])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(
    numbers: Numbers,
    ring: Ring,
    start: tuple[int, int],
    end: tuple[int, int],
    labelled: dict[tuple[int, int], int],
) -> list[str]:
    """One ring from a role to another, with its name and size in the middle."""
    (x0, y0), (x1, y1) = (start[0] + BOX[0], start[1] + BOX[1] // 2), (end[0], end[1] + BOX[1] // 2)
    bend = max(40, (x1 - x0) // 2)
    middle = ((x0 + x1) // 2, (y0 + y1) // 2)
    below = labelled.get(middle, 0)  # two rings between the same roles
    labelled[middle] = below + 1
    y = middle[1] - 6 + 30 * below
    return [
        f'<path d="M{x0} {y0} C{x0 + bend} {y0} {x1 - bend} {y1} {x1} {y1}" fill="none" '
        'stroke="#333" marker-end="url(#tip)"/>',
        f'<text x="{middle[0]}" y="{y}" text-anchor="middle">{escape(ring.name)}</text>',
        f'<text x="{middle[0]}" y="{y + 20}" text-anchor="middle" font-size="10" fill="#555">'
        f"{numbers.stages(ring)} x {numbers.stage_words(ring)} {numbers.every(ring)}"
        f"{escape(special(ring))}</text>",
    ]


def _box(role: RoleNode, x: int, y: int) -> list[str]:
    """A role: its name, its kind and warps, and the tensors that it reads and writes."""
    tensors = [*(f"reads {p.name}" for p in role.reads), *(f"writes {p.name}" for p in role.writes)]
    fill = "#e8f0fe" if role.kind == "thread" else "#e6f4ea"
    middle = x + BOX[0] // 2
    return [
        f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="{fill}" '
        'stroke="#333"/>',
        f'<text x="{middle}" y="{y + 18}" text-anchor="middle" font-weight="bold">'
        f"{escape(role.name)}</text>",
        f'<text x="{middle}" y="{y + 34}" text-anchor="middle">{escape(said_of(role))}</text>',
        f'<text x="{middle}" y="{y + 49}" text-anchor="middle" font-size="10" fill="#555">'
        f"{escape(', '.join(tensors))}</text>",
    ]
