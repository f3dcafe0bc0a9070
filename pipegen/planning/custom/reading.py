# SPDX-License-Identifier: Apache-2.0
"""From a description to its graph, with every word that names nothing. Pure functions."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipegen.description import KernelDescription, Pipeline
from pipegen.description import Order as GivenOrder
from pipegen.errors import Problem, listing, nearest_word
from pipegen.planning.custom.graph import (
    TENSOR_CORES,
    UMMA,
    WGMMA,
    Graph,
    Order,
    Part,
    Ring,
    RoleNode,
)
from pipegen.planning.custom.products import SHAPES as PRODUCT_SHAPES
from pipegen.planning.custom.products import result_dims

MOVERS = ("tma", "cp_async")
# Warps of a role that says nothing: one issues TMA for all, four are a warpgroup.
USUAL_WARPS = {"tma": 1, "tma_store": 1, "cp_async": 4, "thread": 4, UMMA: 1}
SHAPES = {"M, N": ("M", "N"), "M": ("M",), "N": ("N",)}
# Rows of a tile that each warpgroup of a role has that says nothing, and multiplies.
USUAL_PRODUCT_ROWS = 64
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
    """`M, N` as its symbols; None if it is none of the shapes, those of products included."""
    return PRODUCT_SHAPES.get(", ".join(symbol.strip() for symbol in text.split(",")))


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
            words.problems.append(_no_shape(description, f"tensor.{name}.shape", tensor.shape))
    for name, ring in description.pipeline.items():
        if ring.shape is not None and shape_of(ring.shape) is None:
            words.problems.append(_no_shape(description, f"pipeline.{name}.shape", ring.shape))
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


def multiplies(description: KernelDescription) -> bool:
    """Whether a role of the description does tensor-core work."""
    return any(role.kind in TENSOR_CORES.values() for role in description.role.values())


def _no_shape(description: KernelDescription, key: str, value: str) -> Problem:
    said, shapes = "rows are M, columns are N, and no others", list(SHAPES)
    if multiplies(description):
        said = "what a product sums over comes last, and K and P are its other symbols"
        shapes = list(PRODUCT_SHAPES)
    swapped = ", ".join(reversed([symbol.strip() for symbol in value.split(",")]))
    nearest = swapped if swapped in shapes else "M, N"
    return Problem(said, key, value, listing(f'"{s}"' for s in shapes), f'"{nearest}"')


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
    if kind == WGMMA:
        usual = 8 if (description.tile.m or 0) >= 2 * USUAL_PRODUCT_ROWS else 4
    else:
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

    Whether the graph can be built is for the rules; None also where it multiplies in a way of which
    rule PG278 speaks alone: by what the architecture lacks, or where no template has it.
    """
    words = words_of(description)
    if words.problems or not words.edges or not description.tensor or _no_products(description):
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
                if kinds[source] in TENSOR_CORES.values():  # gives its sums on
                    dims, dtype = result_dims(taken) or ("M", "N"), entry.dtype or "f32"
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
            description.pipeline[name].consumer or _reads(kinds[role] for role in targets),
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
    depths = (description.tile.k or 0, description.tile.p or 0)
    return Graph(
        placed(roles),
        tuple(rings.values()),
        tuple(tensors.values()),
        tile,
        written,
        orders,
        description.cluster.shape or (1, 1),
        depths,
    )


def placed(roles: tuple[RoleNode, ...]) -> tuple[RoleNode, ...]:
    """The roles in the order of their warps.

    Those that compute come first, so that they begin at a multiple of four warps, and before the
    others those of wgmma, or those that take umma's sums from TMEM; groups that take turns stand
    side by side, so that a warp's place says whose turn is its own.
    """
    first: dict[str, int] = {}
    for index, role in enumerate(roles):
        first.setdefault(role.order.name if role.order else role.name, index)
    kinds = {WGMMA: 0, UMMA: 2, "tma": 2, "tma_store": 2}

    def place(role: RoleNode) -> tuple[int, int, int]:
        if role.order is None:
            return 0 if role.sums else kinds.get(role.kind, 1), first[role.name], 0
        return 1, first[role.order.name], role.order.roles.index(role.name)

    return tuple(sorted(roles, key=place))


def order_of(name: str, given: GivenOrder) -> Order:
    """An order as described; rule PG265 says whether its words name groups."""
    roles = tuple(dict.fromkeys(word.strip() for word in given.roles.split(",") if word.strip()))
    groups = len(roles) if given.groups is None or len(roles) > 1 else given.groups
    dims = shape_of(given.shape) if given.shape else None
    state = Part(name, dims, "f32") if dims else None
    return Order(name, roles, groups, given.depth, state, given.start)


def _no_products(description: KernelDescription) -> bool:
    """Whether the graph multiplies where nothing can, or has symbols of products without any."""
    kernel = description.kernel
    if multiplies(description):
        kinds = {role.kind for role in description.role.values()} & {*TENSOR_CORES.values()}
        fits = kinds == {TENSOR_CORES[kernel.arch]}
        return not fits or bool(apart(description))
    shapes = [tensor.shape for tensor in description.tensor.values()]
    shapes += [ring.shape for ring in description.pipeline.values() if ring.shape is not None]
    return any({"K", "P"} & set(shape) for shape in shapes)


def apart(description: KernelDescription) -> dict[str, object]:
    """Keys, with their values, that a graph which multiplies has no template for."""
    found: dict[str, object] = {f"order.{name}": "a table" for name in description.order}
    if description.cluster.shape not in (None, (1, 1)):
        found["cluster.shape"] = list(description.cluster.shape or ())
    for name, ring in description.pipeline.items():
        for key in ("credits", "multicast", "peer"):
            if getattr(ring, key):
                found[f"pipeline.{name}.{key}"] = getattr(ring, key)
    for name, role in description.role.items():
        if role.turn is not None:
            found[f"role.{name}.turn"] = role.turn
    return found


def _reads(kinds: Iterable[str]) -> str:
    """The consumer of a ring with readers of these kinds: whose stages wgmma reads, says so."""
    found = {*kinds} & {*TENSOR_CORES.values()}
    return min(found, default="thread")


def _move(kind: str) -> str:
    return kind if kind in (*MOVERS, UMMA) else "thread"
