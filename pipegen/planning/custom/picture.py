# SPDX-License-Identifier: Apache-2.0
"""The graph of a custom kernel as an SVG picture. Pure functions.

Roles stand in columns from left to right, a ring's box between those it connects. What passes a
column has a place of its own there, so that no line goes through a box; a ring that leads back goes
around below. Groups that take turns are in a frame.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape

from pipegen.planning.custom.draw import cluster_text, depths, said_of, special
from pipegen.planning.custom.graph import Order, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers

# Pixels.
MARGIN, BETWEEN, GAP = 24, 48, 18
LINE, NAME_WIDTH, WORD_WIDTH = 14, 7.3, 6.1  # a line's height; a letter's width
FRAME = 12  # from a role to the frame of its order
SWEEPS = 8  # in which nodes move towards their neighbours
# What moves tiles, what computes; and all that multiplies.
FILLS = {**dict.fromkeys(("tma", "tma_store", "cp_async"), "#e6f4ea"), "thread": "#e8f0fe"}
MULTIPLIES = "#fef7e0"
FONT = 'font-family="ui-monospace, monospace" font-size="12"'


@dataclass
class Node:
    """A box, or (without lines) the place where a line passes a column; `y` is its middle."""

    key: str
    column: int
    name: str = ""
    lines: tuple[str, ...] = ()
    look: str = ""
    order: Order | None = None
    near: list[str] = field(default_factory=list)
    y: float = 0.0

    @property
    def width(self) -> float:
        words = max((WORD_WIDTH * len(line) for line in self.lines), default=0)
        return max(NAME_WIDTH * len(self.name), words) + 20 if self.name else 0

    @property
    def height(self) -> float:
        return LINE * (1 + len(self.lines)) + 12 if self.name else 4


@dataclass
class Picture:
    """Boxes by their keys, the columns' nodes from top to bottom, and lines between neighbours."""

    nodes: dict[str, Node]
    columns: dict[int, list[Node]]
    lines: list[tuple[str, str]]
    left: dict[int, float] = field(default_factory=dict)

    def across(self, node: Node) -> float:
        """How wide a node is: a line passes the whole column."""
        return node.width or max(each.width for each in self.columns[node.column])

    def x(self, node: Node) -> float:
        """The left side of a box: it stands in the middle of its column."""
        widest = max(each.width for each in self.columns[node.column])
        return self.left[node.column] + (widest - self.across(node)) / 2

    @property
    def bottom(self) -> float:
        return max(n.y + n.height / 2 + FRAME + LINE for n in self.nodes.values())

    @property
    def right(self) -> float:
        return max(self.x(node) + self.across(node) + FRAME for node in self.nodes.values())


def draw_svg(numbers: Numbers, title: str) -> str:
    """The graph as an SVG picture: roles from left to right, rings as boxes between them."""
    graph = numbers.graph
    picture = placed(numbers)
    back = [ring for ring in graph.rings if ring.credits]
    parts = [arrow(picture, *line) for line in picture.lines]
    parts += [frame(picture, order) for order in graph.orders]
    for node in picture.nodes.values():
        parts += box(node, picture.x(node), node.y) if node.name else []
    below = picture.bottom + GAP
    for ring in back:
        node = ring_node(numbers, ring, 0)
        parts += around(picture, ring, node, below)
        below += node.height + GAP
    said = cluster_text(graph)
    words = max(WORD_WIDTH * len(said), NAME_WIDTH * len(title))
    ends = [frame_left(picture, o) + WORD_WIDTH * len(order_words(o)) for o in graph.orders]
    width = round(max(picture.right, MARGIN + words, *ends) + MARGIN)
    height = round((below if back else picture.bottom) + MARGIN)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" {FONT}>',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#333"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{MARGIN}" y="{MARGIN}" font-weight="bold">{escape(title)}</text>',
        *([small(MARGIN, MARGIN + LINE, said, "start")] if said else []),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def placed(numbers: Numbers) -> Picture:
    """Every node of the graph in its place."""
    picture = connected(numbers)
    for column in sorted(picture.columns):
        before = picture.left.get(column - 1)
        if before is None:
            picture.left[column] = MARGIN
        else:
            widest = max(node.width for node in picture.columns[column - 1])
            picture.left[column] = before + widest + BETWEEN
    for nodes in picture.columns.values():
        stack(nodes, [node.y for node in nodes])
    for sweep in range(SWEEPS):
        for index in sorted(picture.columns, reverse=sweep % 2 == 1):
            nodes = picture.columns[index]
            wanted = {n.key: middle(picture.nodes, n) for n in nodes}
            places = {n.key: in_column(nodes, wanted, n) for n in nodes}
            nodes[:] = [picture.nodes[key] for key in sorted(places, key=places.__getitem__)]
            stack(nodes, [wanted[node.key] for node in nodes])
    top = min(node.y - node.height / 2 for node in picture.nodes.values())
    for node in picture.nodes.values():
        node.y += MARGIN + 2 * LINE + FRAME - top
    return picture


def in_column(nodes: list[Node], wanted: Mapping[str, float], node: Node) -> tuple[float, str, int]:
    """What nodes are sorted by: groups of one order stay together, in their order."""
    if node.order is None:
        return wanted[node.key], node.key, 0
    together = [wanted[each.key] for each in nodes if each.order is node.order]
    return sum(together) / len(together), node.order.name, node.order.roles.index(node.name)


def middle(nodes: Mapping[str, Node], node: Node) -> float:
    """The mean height of what a node is connected with."""
    near = [nodes[key].y for key in node.near]
    return sum(near) / len(near) if near else node.y


def stack(nodes: list[Node], wanted: list[float]) -> None:
    """Nodes from top to bottom, as near as can be to where they want to be, without overlap."""
    end = float("-inf")
    for before, node, y in zip([None, *nodes], nodes, wanted, strict=False):
        gap = GAP if before is None or not before.order or before.order is node.order else GAP * 3
        node.y = max(y, end + gap + node.height / 2)
        end = node.y + node.height / 2
    shift = sum(y - node.y for node, y in zip(nodes, wanted, strict=True)) / len(nodes)
    for node in nodes:
        node.y += shift


def connected(numbers: Numbers) -> Picture:
    """Roles, rings, and places in the columns that a line passes; nothing has a height yet."""
    graph, layer = numbers.graph, depths(numbers.graph)
    nodes = {role.name: role_node(role, 2 * layer[role.name]) for role in graph.roles}
    lines: list[tuple[str, str]] = []

    def connect(start: str, end: str) -> None:
        for column in range(nodes[start].column + 1, nodes[end].column):
            key = f"{start} {end} {column}"
            nodes[key] = Node(key, column)
            connect_near(start, key)
            start = key
        connect_near(start, end)

    def connect_near(start: str, end: str) -> None:
        lines.append((start, end))
        nodes[start].near.append(end)
        nodes[end].near.append(start)

    for ring in graph.rings:
        if not ring.credits:
            key = f"ring {ring.name}"
            nodes[key] = ring_node(numbers, ring, 2 * max(layer[s] for s in ring.sources) + 1)
            for source in ring.sources:
                connect(source, key)
            for target in ring.targets:
                connect(key, target)
    columns: dict[int, list[Node]] = {}
    for node in nodes.values():
        columns.setdefault(node.column, []).append(node)
    return Picture(nodes, columns, lines)


def role_node(role: RoleNode, column: int) -> Node:
    """A role: its name, its kind and warps, and the tensors that it reads and writes."""
    tensors = [
        f"{verb} {', '.join(part.name for part in parts)}"
        for verb, parts in (("reads", role.reads), ("writes", role.writes))
        if parts
    ]
    look = f'rx="6" fill="{FILLS.get(role.kind, MULTIPLIES)}" stroke="#333"'
    return Node(role.name, column, role.name, (said_of(role), *tensors), look, role.order)


def ring_node(numbers: Numbers, ring: Ring, column: int) -> Node:
    """A ring: its stages, how often one is filled, and what sets it apart."""
    apart = [word.strip() for word in special(ring).split(",") if word.strip()]
    size = f"{numbers.stages(ring)} x {numbers.stage_bytes(ring)} B"
    look = 'rx="14" fill="#fff" stroke="#888"' + (' stroke-dasharray="5 3"' if ring.peer else "")
    return Node(f"ring {ring.name}", column, ring.name, (size, numbers.every(ring), *apart), look)


def small(x: float, y: float, text: str, anchor: str = "middle") -> str:
    """A line of small letters."""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="10" fill="#555">'
        f"{escape(text)}</text>"
    )


def box(node: Node, x: float, y: float) -> list[str]:
    """A role's box or a ring's, around the middle y."""
    top, centre = y - node.height / 2, x + node.width / 2
    return [
        f'<rect x="{x:.0f}" y="{top:.0f}" width="{node.width:.0f}" height="{node.height:.0f}" '
        f"{node.look}/>",
        f'<text x="{centre:.0f}" y="{top + LINE + 2:.0f}" text-anchor="middle" '
        f'font-weight="bold">{escape(node.name)}</text>',
        *(
            small(centre, top + LINE * (2 + index) + 2, line)
            for index, line in enumerate(node.lines)
        ),
    ]


def arrow(picture: Picture, start: str, end: str) -> str:
    """A line between neighbouring columns; its tip only where it arrives at a box."""
    source, target = picture.nodes[start], picture.nodes[end]
    x0, x1 = picture.x(source) + picture.across(source), picture.x(target)
    bend = (x1 - x0) / 2
    tip = ' marker-end="url(#tip)"' if target.name else ""
    passed = "" if target.name else f" H{x1 + picture.across(target):.0f}"
    return (
        f'<path d="M{x0:.0f} {source.y:.0f} C{x0 + bend:.0f} {source.y:.0f} {x1 - bend:.0f} '
        f'{target.y:.0f} {x1:.0f} {target.y:.0f}{passed}" fill="none" stroke="#333"{tip}/>'
    )


def frame(picture: Picture, order: Order) -> str:
    """The frame around groups that take turns, with what they do below it."""
    nodes = [picture.nodes[role] for role in order.roles]
    left = frame_left(picture, order)
    right = max(picture.x(node) + node.width for node in nodes) + FRAME
    top = min(node.y - node.height / 2 for node in nodes) - FRAME
    bottom = max(node.y + node.height / 2 for node in nodes) + FRAME
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" '
        f'height="{bottom - top:.0f}" rx="8" fill="none" stroke="#b06000" '
        'stroke-dasharray="3 3"/>\n' + small(left, bottom + LINE - 2, order_words(order), "start")
    )


def frame_left(picture: Picture, order: Order) -> float:
    """The left side of an order's frame."""
    return min(picture.x(picture.nodes[role]) for role in order.roles) - FRAME


def order_words(order: Order) -> str:
    """`halo: in turn, hands on f32 a row`"""
    parts = ", body and turn" if order.depth > 1 else ""
    return f"{order.name}: in turn{parts}{', hands on f32 a row' if order.state else ''}"


def around(picture: Picture, ring: Ring, node: Node, top: float) -> Iterable[str]:
    """A ring that leads back, below all others, from the right of its source to the left."""
    sources = [picture.nodes[name] for name in ring.sources]
    targets = [picture.nodes[name] for name in ring.targets]
    y = top + node.height / 2
    starts = [picture.x(source) + source.width for source in sources]
    ends = [picture.x(target) for target in targets]
    x = (max(starts) + min(ends) - node.width) / 2
    for source, start in zip(sources, starts, strict=True):
        turn = start + BETWEEN / 3
        yield (
            f'<path d="M{start:.0f} {source.y + 8:.0f} H{turn:.0f} V{y:.0f} '
            f'H{x + node.width:.0f}" fill="none" stroke="#333" marker-end="url(#tip)"/>'
        )
    for target, end in zip(targets, ends, strict=True):
        turn = end - BETWEEN / 3
        yield (
            f'<path d="M{x:.0f} {y:.0f} H{turn:.0f} V{target.y + 8:.0f} H{end:.0f}" fill="none" '
            'stroke="#333" marker-end="url(#tip)"/>'
        )
    yield from box(node, x, y)
