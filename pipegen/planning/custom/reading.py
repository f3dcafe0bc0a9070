# SPDX-License-Identifier: Apache-2.0
"""From a description to its graph, with every word that names nothing. Pure functions."""

import re
from dataclasses import dataclass, field

from pipegen.description import KernelDescription, Pipeline
from pipegen.description import Order as GivenOrder
from pipegen.errors import Problem, listing, nearest_word
from pipegen.planning.custom.graph import Graph, Order, Part, Ring, RoleNode

MOVERS = ("tma", "cp_async")
# Warps of a role that says nothing: one issues TMA for all, four are a warpgroup.
USUAL_WARPS = {"tma": 1, "tma_store": 1, "cp_async": 4, "thread": 4}
SHAPES = {"M, N": ("M", "N"), "M": ("M",), "N": ("N",)}
EXAMPLE = '"load -> compute"'


@dataclass
class Words:
    """What the description says, before it is a graph: names only."""

    edges: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)
    reads: dict[str, list[str]] = field(default_factory=dict)
    writes: dict[str, list[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def roles(self) -> list[str]:
        """Every role that an edge or a tensor names, in the order of the file's edges."""
        named = [role for ends in self.edges.values() for end in ends for role in end]
        return list(dict.fromkeys([*named, *self.reads, *self.writes]))


def split_edge(text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Both ends of `load -> sum, copy`; None if it is no such thing."""
    sides = text.split("->")
    if len(sides) != 2:
        return None
    left, right = (tuple(name.strip() for name in side.split(",")) for side in sides)
    names = (*left, *right)
    if not all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names):
        return None
    repeated = len(set(left)) < len(left) or len(set(right)) < len(right)
    return None if repeated else (left, right)


def shape_of(text: str) -> tuple[str, ...] | None:
    """`M, N` as its symbols; None if it is none of the three shapes."""
    return SHAPES.get(", ".join(symbol.strip() for symbol in text.split(",")))


def words_of(description: KernelDescription) -> Words:
    """The names of the description, with what is wrong with them."""
    words = Words()
    for name, ring in description.pipeline.items():
        ends = split_edge(ring.edge or "")
        if ends is None:
            words.problems.append(
                Problem(
                    "an edge names the roles at both ends, each once, in lower case",
                    f"pipeline.{name}.edge",
                    ring.edge or "",
                    '"FROM -> TO", with commas between several roles of an end',
                    EXAMPLE,
                )
            )
            continue
        words.edges[name] = ends
    for name, tensor in description.tensor.items():
        ends_given = [end for end in ("read", "write") if getattr(tensor, end)]
        if len(ends_given) != 1:
            both = "a tensor that one role reads and one writes would race with itself"
            words.problems.append(
                Problem(
                    both if ends_given else "nobody reads or writes it",
                    f"tensor.{name}",
                    allowed="read = ROLE, or write = ROLE",
                    nearest=f'tensor.{name}.read = "load"',
                )
            )
        elif tensor.read:
            words.reads.setdefault(tensor.read, []).append(name)
        elif tensor.write:
            words.writes.setdefault(tensor.write, []).append(name)
        if shape_of(tensor.shape) is None:
            words.problems.append(_no_shape(f"tensor.{name}.shape", tensor.shape))
    for name, ring in description.pipeline.items():
        if ring.shape is not None and shape_of(ring.shape) is None:
            words.problems.append(_no_shape(f"pipeline.{name}.shape", ring.shape))
    known = words.roles()
    for name in description.role:
        if name not in known:
            words.problems.append(
                Problem(
                    "no edge and no tensor names this role",
                    f"role.{name}",
                    allowed=listing(known) or "a role that an edge names",
                    nearest=nearest_word(name, known) or "leave the table out",
                )
            )
    return words


def _no_shape(key: str, value: str) -> Problem:
    return Problem(
        "rows are M, columns are N, and no others",
        key,
        value,
        listing(f'"{s}"' for s in SHAPES),
        '"M, N"',
    )


def kind_of(description: KernelDescription, words: Words, role: str) -> str:
    """The kind of a role: as said; else TMA loads for it if nobody feeds it, or it is threads."""
    given = description.role.get(role)
    if given is not None and given.kind is not None:
        return given.kind
    fed = any(role in targets for _, targets in words.edges.values())
    fills = any(role in sources for sources, _ in words.edges.values())
    return "tma" if not fed and fills and role in words.reads else "thread"


def warps_of(description: KernelDescription, role: str, kind: str) -> int:
    """Warps of a role: as said, or the usual number of its kind; in Pallas a warpgroup."""
    given = description.role.get(role)
    usual = 4 if description.kernel.backend == "pallas" else USUAL_WARPS[kind]
    if given is None:
        return usual
    if given.warpgroups is not None:
        return 4 * given.warpgroups
    return given.warps or usual


def held_names(description: KernelDescription, words: Words, ring: str) -> tuple[str, ...]:
    """The tensors of a mover that a ring holds: as said, by its name, or all that is left."""
    entry = description.pipeline[ring]
    sources = words.edges[ring][0]
    readable = [name for source in sources for name in words.reads.get(source, ())]
    if entry.holds is not None:
        return tuple(name.strip() for name in entry.holds.split(","))
    if ring in readable:
        return (ring,)
    taken = {
        name
        for other, (others, _) in words.edges.items()
        if other != ring and set(others) & set(sources)
        for name in _said(description.pipeline[other], other)
    }
    return tuple(name for name in readable if name not in taken)


def _said(entry: Pipeline, ring: str) -> tuple[str, ...]:
    return tuple(n.strip() for n in entry.holds.split(",")) if entry.holds is not None else (ring,)


def read_graph(description: KernelDescription) -> Graph | None:
    """The graph of a description whose words name something; None where they do not.

    Whether the graph can be built is for the rules.
    """
    words = words_of(description)
    if words.problems or not words.edges or not description.tensor:
        return None
    tensors = {
        name: Part(name, shape_of(tensor.shape) or (), tensor.dtype)
        for name, tensor in description.tensor.items()
    }
    kinds = {role: kind_of(description, words, role) for role in words.roles()}
    parts: dict[str, tuple[Part, ...]] = {}

    def inputs_of(role: str, passed: tuple[str, ...]) -> list[Part]:
        """What a role takes in: of its rings, then of GMEM."""
        found = [
            part
            for name, (_, targets) in words.edges.items()
            if role in targets and name not in passed
            for part in parts_of(name, passed)
        ]
        return found + [tensors[name] for name in words.reads.get(role, ())]

    def parts_of(ring: str, passed: tuple[str, ...] = ()) -> tuple[Part, ...]:
        if ring not in parts:
            entry, source = description.pipeline[ring], words.edges[ring][0][0]
            if kinds[source] in MOVERS:
                held = held_names(description, words, ring)
                parts[ring] = tuple(tensors[name] for name in held if name in tensors)
            else:
                taken = inputs_of(source, (*passed, ring))
                wide = max((part.dims for part in taken), key=len, default=("M", "N"))
                dims = shape_of(entry.shape) if entry.shape else None
                dtype = entry.dtype or (taken[0].dtype if taken else "bf16")
                made = (Part(ring, dims or wide, dtype),)
                if passed:
                    return made  # within a cycle its parts are not known yet
                parts[ring] = made
        return parts[ring]

    rings = {
        name: Ring(
            name,
            sources,
            targets,
            parts_of(name),
            description.pipeline[name].producer or _move(kinds[sources[0]]),
            description.pipeline[name].consumer or "thread",
            None if (stages := description.pipeline[name].stages) == "auto" else stages,
            description.pipeline[name].credits or 0,
            bool(description.pipeline[name].multicast),
            bool(description.pipeline[name].peer),
        )
        for name, (sources, targets) in words.edges.items()
    }
    orders = tuple(order_of(name, given) for name, given in description.order.items())
    roles = tuple(
        RoleNode(
            role,
            kinds[role],
            warps_of(description, role, kinds[role]),
            (description.role[role].registers or 0) if role in description.role else 0,
            tuple(ring for ring in rings.values() if role in ring.targets),
            tuple(ring for ring in rings.values() if role in ring.sources),
            tuple(tensors[name] for name in words.reads.get(role, ())),
            tuple(tensors[name] for name in words.writes.get(role, ())),
            description.role[role].body if role in description.role else None,
            description.role[role].finish if role in description.role else None,
            description.role[role].start if role in description.role else None,
            description.role[role].turn if role in description.role else None,
            next((order for order in orders if role in order.roles), None),
        )
        for role in words.roles()
    )
    written = frozenset(name for names in words.writes.values() for name in names)
    tile = (description.tile.m or 0, description.tile.n or 0)
    return Graph(
        placed(roles),
        tuple(rings.values()),
        tuple(tensors.values()),
        tile,
        written,
        orders,
        description.cluster.shape or (1, 1),
    )


def placed(roles: tuple[RoleNode, ...]) -> tuple[RoleNode, ...]:
    """The roles in the order of their warps.

    Those that compute come first, so that they begin at a multiple of four warps; groups that take
    turns stand side by side, so that a warp's place says whose turn is its own.
    """
    first: dict[str, int] = {}
    for index, role in enumerate(roles):
        first.setdefault(role.order.name if role.order else role.name, index)

    def place(role: RoleNode) -> tuple[bool, int, int]:
        if role.order is None:
            return role.kind in ("tma", "tma_store"), first[role.name], 0
        return False, first[role.order.name], role.order.roles.index(role.name)

    return tuple(sorted(roles, key=place))


def order_of(name: str, given: GivenOrder) -> Order:
    """An order as described; rule PG290 says whether its words name groups."""
    roles = tuple(dict.fromkeys(word.strip() for word in given.roles.split(",") if word.strip()))
    groups = len(roles) if given.groups is None or len(roles) > 1 else given.groups
    dims = shape_of(given.shape) if given.shape else None
    state = Part(name, dims, "f32") if dims else None
    return Order(name, roles, groups, given.depth, state, given.start)


def _move(kind: str) -> str:
    return kind if kind in MOVERS else "thread"
