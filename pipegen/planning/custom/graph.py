# SPDX-License-Identifier: Apache-2.0
"""The graph of a custom kernel: roles, and the rings that connect them. Plain data.

A CTA takes panels of tile.m rows, one after the other, and walks over each panel's tiles of tile.n
columns. What has columns comes once a tile; what has only rows comes once a panel. Where a role
multiplies, loops are nested in another way: `products`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Every = Literal["panel", "tile"]
# The kinds of a role that multiplies (planning/custom/products.py), and the one an arch has.
WGMMA, UMMA = "wgmma", "umma"
TENSOR_CORES = {"sm_90a": WGMMA, "sm_100a": UMMA}


@dataclass(frozen=True)
class Part:
    """One tile: what a stage holds of a tensor, or what a body writes.

    `dims` are of M and N, where roles multiply also of K and P.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str

    @property
    def every(self) -> Every:
        """How often a CTA sees another one."""
        return "tile" if "N" in self.dims else "panel"


@dataclass(frozen=True)
class Ring:
    """A ring buffer between roles. `stages` is None where SMEM decides."""

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    parts: tuple[Part, ...]
    producer: str
    consumer: str
    stages: int | None
    credits: int = 0
    multicast: bool = False
    peer: bool = False

    @property
    def every(self) -> Every:
        """A stage is filled once a panel if nothing in it has columns."""
        return "tile" if any(part.every == "tile" for part in self.parts) else "panel"

    @property
    def in_tmem(self) -> bool:
        """Whether a stage is an accumulator of tcgen05's, which has no SMEM."""
        return self.producer == UMMA

    @property
    def edge(self) -> str:
        """`load -> sum, copy`"""
        return f"{', '.join(self.sources)} -> {', '.join(self.targets)}"


@dataclass(frozen=True)
class Order:
    """Groups that alternate tiles: roles of one group each, or the groups of one role.

    `depth`: ordered parts of a tile. `state`: what a turn hands on to the next, in SMEM.
    """

    name: str
    roles: tuple[str, ...]
    groups: int
    depth: int = 1
    state: Part | None = None
    start: float = 0.0


@dataclass(frozen=True)
class RoleNode:
    """One role: its warps, what it moves or computes, and the rings at its ends."""

    name: str
    kind: str
    warps: int
    registers: int
    inputs: tuple[Ring, ...] = ()
    outputs: tuple[Ring, ...] = ()
    reads: tuple[Part, ...] = ()
    writes: tuple[Part, ...] = ()
    body: str | None = None
    finish: str | None = None
    start: float | None = None
    turn: str | None = None
    order: Order | None = None

    @property
    def groups(self) -> int:
        """Groups of `warps` warps each: several take turns."""
        return self.order.groups if self.order and len(self.order.roles) == 1 else 1

    @property
    def multiplies(self) -> bool:
        """Whether the role does tensor-core work."""
        return self.kind in TENSOR_CORES.values()

    @property
    def sums(self) -> tuple[Ring, ...]:
        """The rings of accumulators that a role of threads takes from TMEM; no other kind can."""
        return self.from_tmem if self.kind == "thread" else ()

    @property
    def from_tmem(self) -> tuple[Ring, ...]:
        """The role's inputs whose stages are accumulators in TMEM."""
        return tuple(ring for ring in self.inputs if ring.in_tmem)

    @property
    def block_warps(self) -> int:
        """Warps of a block that the role has, in all its groups."""
        return self.warps * self.groups

    @property
    def every(self) -> Every:
        """Whether the role has a loop over the tiles of a panel."""
        ends = [ring.every for ring in (*self.inputs, *self.outputs)]
        ends += [part.every for part in (*self.reads, *self.writes)]
        return "tile" if "tile" in ends else "panel"

    @property
    def kept(self) -> tuple[Part, ...]:
        """Results that a thread keeps over the tiles of a panel: those without columns."""
        if self.kind != "thread" or self.every == "panel":
            return ()
        written = [part for ring in self.outputs for part in ring.parts] + list(self.writes)
        return tuple(part for part in written if part.every == "panel")


@dataclass(frozen=True)
class Graph:
    """All of a custom kernel. `tile` is (tile.m, tile.n), `depths` (tile.k, tile.p) of products."""

    roles: tuple[RoleNode, ...]
    rings: tuple[Ring, ...]
    tensors: tuple[Part, ...]
    tile: tuple[int, int]
    written: frozenset[str] = field(default_factory=frozenset)
    orders: tuple[Order, ...] = ()
    cluster: tuple[int, int] = (1, 1)
    depths: tuple[int, int] = (0, 0)

    @property
    def extents(self) -> dict[str, int]:
        """Elements of a tile along each symbol."""
        return dict(zip("MNKP", (*self.tile, *self.depths), strict=True))

    @property
    def multiplies(self) -> bool:
        """Whether a role does tensor-core work."""
        return any(role.multiplies for role in self.roles)

    @property
    def clustered(self) -> bool:
        """Whether two CTAs work together: on panels side by side, or on the tiles of one panel."""
        return self.cluster != (1, 1)

    def at_a_time(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """Of a ring's roles those that come to one stage: of groups in turn, one."""
        found: list[str] = []
        orders: list[Order] = []
        for name in roles:
            order = self.role(name).order
            if order is None or order not in orders:
                found.append(name)
            orders += [order] if order else []
        return tuple(found)

    def with_rings(self, rings: Mapping[str, Ring]) -> "Graph":
        """The same graph with other rings of the same names, stages for one."""
        roles = tuple(
            replace(
                role,
                inputs=tuple(rings[ring.name] for ring in role.inputs),
                outputs=tuple(rings[ring.name] for ring in role.outputs),
            )
            for role in self.roles
        )
        return replace(self, roles=roles, rings=tuple(rings.values()))

    def role(self, name: str) -> RoleNode:
        """The role of that name; KeyError if there is none."""
        return {role.name: role for role in self.roles}[name]

    def ring(self, name: str) -> Ring:
        """The ring of that name; KeyError if there is none."""
        return {ring.name: ring for ring in self.rings}[name]

    @property
    def feeds_back(self) -> bool:
        """Whether some ring leads back, so that a tile depends on those before it."""
        return any(ring.credits for ring in self.rings)

    def cycle(self) -> tuple[Ring, ...]:
        """Rings without credits that lead from a role back to it; empty if there are none."""
        followed: set[str] = set()

        def follow(role: str, path: tuple[Ring, ...], passed: tuple[str, ...]) -> tuple[Ring, ...]:
            if role in passed:
                return path[passed.index(role) :]
            if role in followed:
                return ()
            for ring in self.rings:
                if role in ring.sources and not ring.credits:
                    for target in ring.targets:
                        found = follow(target, (*path, ring), (*passed, role))
                        if found:
                            return found
            followed.add(role)
            return ()

        for role in self.roles:
            if found := follow(role.name, (), ()):
                return found
        return ()


def elements(part: Part, extents: Mapping[str, int]) -> int:
    """Elements of one tile of a part."""
    return math.prod(extents[symbol] for symbol in part.dims)
