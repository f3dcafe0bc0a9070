# SPDX-License-Identifier: Apache-2.0
"""Custom graphs that multiply: their loops, and what their tensor cores do. Pure functions.

A product is A (M, c) times B (s, c), both with the symbol c that is summed over last; the result is
(M, s). x (M, K) and w (N, K) give (M, N); that and v (P, N) give (M, P). A CTA takes one tile of
the results after the other, and walks over N, if they are (M, P), and over K within it.
"""

from dataclasses import dataclass

from pipegen.planning.custom.graph import Graph, Part, Ring, RoleNode

SHAPES = {
    ", ".join(dims): dims
    for dims in (
        ("M", "N"),
        ("M", "K"),
        ("N", "K"),
        ("P", "N"),
        ("M", "P"),
        ("M",),
        ("N",),
        ("K",),
        ("P",),
    )
}
# Symbols that are walked over within a tile of the results, from the outermost loop on.
WALKED = {("M", "N"): ("K",), ("M", "P"): ("N", "K")}


@dataclass(frozen=True)
class Operand:
    """What one side of a product takes from a stage."""

    ring: Ring
    part: Part


@dataclass(frozen=True)
class Product:
    """A role's A and B; it sums over `over`, and its result has the columns `columns`."""

    a: Operand
    b: Operand

    @property
    def over(self) -> str:
        """The symbol that is summed over."""
        return self.a.part.dims[-1]

    @property
    def columns(self) -> str:
        """The symbol of the result's columns."""
        return self.b.part.dims[0]


def result_dims(taken: list[Part]) -> tuple[str, ...] | None:
    """The shape of the product of two matrices; None where they are no operands of one."""
    matrices = [part for part in taken if len(part.dims) == 2]
    if len(taken) != 2 or len(matrices) != 2:
        return None
    a, b = sorted(matrices, key=lambda part: part.dims[0] != "M")
    fits = a.dims[0] == "M" and b.dims[0] != "M" and a.dims[1] == b.dims[1]
    return ("M", b.dims[0]) if fits else None


def product_of(role: RoleNode) -> Product | None:
    """A role's product; None where it multiplies nothing, or not two matrices that fit."""
    operands = [Operand(ring, part) for ring in role.inputs for part in ring.parts]
    if not role.multiplies or result_dims([each.part for each in operands]) is None:
        return None
    a, b = sorted(operands, key=lambda each: each.part.dims[0] != "M")
    return Product(a, b)


def results(graph: Graph) -> tuple[str, str]:
    """The symbols of the tiles that CTAs take: those of the first matrix that is written."""
    written = [part.dims for part in graph.tensors if part.name in graph.written]
    matrices = [dims for dims in written if dims in WALKED]
    rows, columns = matrices[0] if matrices else ("M", "N")
    return rows, columns


def loops(graph: Graph) -> tuple[str, ...]:
    """The loops of a tile of the results, from the outermost on: of N and K, or of K."""
    held = [part for ring in graph.rings for part in ring.parts]
    used = {symbol for part in (*graph.tensors, *held) for symbol in part.dims}
    return tuple(symbol for symbol in WALKED[results(graph)] if symbol in used)


def depth_of(dims: tuple[str, ...], nest: tuple[str, ...]) -> int:
    """How many loops lie around a tile of these symbols: 0 for one that comes once a result."""
    return max((nest.index(symbol) + 1 for symbol in dims if symbol in nest), default=0)


def ring_depth(ring: Ring, nest: tuple[str, ...]) -> int:
    """The loop in which a ring's stages are filled."""
    return max((depth_of(part.dims, nest) for part in ring.parts), default=0)


def role_depth(role: RoleNode, nest: tuple[str, ...]) -> int:
    """The innermost loop of a role."""
    rings = [ring_depth(ring, nest) for ring in (*role.inputs, *role.outputs)]
    parts = [depth_of(part.dims, nest) for part in (*role.reads, *role.writes)]
    return max((*rings, *parts), default=0)


def words_of_depth(depth: int, nest: tuple[str, ...]) -> str:
    """`once a tile`, `at each step of K`: how often something of that depth comes."""
    return f"at each step of {nest[depth - 1]}" if depth else "once a tile"
