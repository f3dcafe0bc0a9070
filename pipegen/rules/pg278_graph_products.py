# SPDX-License-Identifier: Apache-2.0
"""A role of kind wgmma or umma must multiply two tiles, where the tensor core of its kind exists.

What it checks
    The architecture: wgmma with sm_90a, umma with sm_100a. That such a role
    takes one (M, c) and one (s, c) from rings, both of bf16 or of f16; that K and P stand only
    where a role multiplies; that all results have one shape, (M, N) or (M, P), and that nothing has
    a symbol over which no loop goes. That a role of threads as written can hand on what it takes.
    That a role of kind umma gives its f32 sums to one ring, and that roles of threads take them.

Why
    wgmma reads A (M, K) and B (N, K) from SMEM and adds their product to f32 registers (PTX ISA,
    "wgmma.mma_async"). What is summed over is walked in a loop of the CTA, the results are shared
    out among CTAs: a symbol that is neither has no place. Blackwell multiplies with tcgen05 (kind
    umma), whose accumulators are in TMEM (PTX ISA, "tcgen05.mma"): only threads can take them from
    there, by tcgen05.ld, and a second product's operand goes through such a role into SMEM.

Example
    x (M, N) and w (N, K) at one role: nothing of x is summed with K.

Use instead
    What the message names.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.planning.custom.graph import TENSOR_CORES, UMMA, WGMMA, Graph, RoleNode
from pipegen.planning.custom.product_bodies import hands_on, made_parts, taken_parts
from pipegen.planning.custom.products import (
    WALKED,
    loops,
    product_of,
    results,
)
from pipegen.planning.custom.reading import (
    SHAPES,
    apart,
    multiplies,
    read_graph,
    shape_of,
    words_of,
)
from pipegen.rules.umma_roles import umma_problems

OPERANDS = ("bf16", "f16")
# Names of the emitted file that only a graph which multiplies has.
TAKEN = frozenset(
    (
        *("m", "n", "k", "p", "index", "block", "own", "whole", "sums", "coord", "tiled_mma"),
        *("tile_coord", "make_mma", "store_sums", "store_sums_global", "part_shape"),
        *("swizzled_layout", "plain_layout", "warp", "warpgroup", "tiles", "values"),
    )
)
# And those that only one with tcgen05 has.
TAKEN_BY_UMMA = frozenset(
    (
        *("row", "column", "piece", "chunk", "tmem", "tmem_ptr", "tcgen05", "chunk_of"),
        *("load_sums", "load_piece", "store_piece", "load_row", "store_row"),
    )
)
WORDS = {WGMMA: "wgmma, whose sums are in registers", UMMA: "tcgen05, whose sums are in TMEM"}
ELSEWHERE = {kind: f'{kind} with arch = "{arch}"' for arch, kind in TENSOR_CORES.items()}


def check(description: KernelDescription) -> Iterator[Problem]:
    if not multiplies(description):
        yield from _symbols_of_products(description)
        return
    kernel = description.kernel
    kinds = [*TENSOR_CORES.values()]
    own = TENSOR_CORES[kernel.arch]
    for name, given in description.role.items():
        if given.kind in kinds and given.kind != own:
            yield Problem(
                f"{kernel.arch} has no {given.kind}: its tensor cores are {WORDS[own]}",
                f"role.{name}.kind",
                given.kind,
                f'"{own}" on {kernel.arch}; {ELSEWHERE[given.kind]}',
                f'"{own}"',
            )
            return
    for key, value in apart(description).items():
        yield Problem(
            "turns, clusters and credits are of graphs that multiply nothing",
            key,
            value,
            "no value",
            "leave the key out",
        )
    yield from _names(description, TAKEN | TAKEN_BY_UMMA if own == UMMA else TAKEN)
    graph = read_graph(description)
    if graph is None:
        return
    for node in graph.roles:
        if node.kind == "cp_async":
            yield Problem(
                "a graph that multiplies loads by TMA, or with a body of threads",
                f"role.{node.name}.kind",
                node.kind,
                '"tma", "thread"',
                '"tma"',
            )
    found = list(_results(graph))
    yield from found
    if not found:
        for node in graph.roles:
            yield from _product(graph, node) if node.multiplies else _threads(node)
            yield from umma_problems(graph, node)


def _symbols_of_products(description: KernelDescription) -> Iterator[Problem]:
    """K and P in a graph that multiplies nothing."""
    for section in ("tensor", "pipeline"):
        for name, entry in getattr(description, section).items():
            dims = shape_of(entry.shape) if entry.shape else None
            if dims and ", ".join(dims) not in SHAPES:
                yield Problem(
                    "K and P are symbols of products, and no role has kind wgmma or umma",
                    f"{section}.{name}.shape",
                    entry.shape,
                    listing(f'"{shape}"' for shape in SHAPES),
                    '"M, N"',
                )


def _names(description: KernelDescription, taken: frozenset[str]) -> Iterator[Problem]:
    words = words_of(description)
    for section, names in (
        ("tensor", list(description.tensor)),
        ("pipeline", list(description.pipeline)),
        ("role", words.roles()),
    ):
        for name in names:
            if name in taken:
                yield Problem(
                    "the emitted kernel needs the name for itself",
                    f"{section}.{name}",
                    allowed="letters, digits and underscores, no keyword, no name of its own",
                    nearest=f"{section}.my_{name[:12]}",
                )


def _results(graph: Graph) -> Iterator[Problem]:
    """The tiles that CTAs share out, and the loops within one."""
    wanted = results(graph)
    shapes = listing(f'"{", ".join(dims)}"' for dims in WALKED)
    for part in graph.tensors:
        if part.name in graph.written and part.dims != wanted:
            said = (
                f"{part.name} would be written by every CTA that has its rows"
                if len(part.dims) == 1
                else f"CTAs share out the tiles of one shape, ({', '.join(wanted)})"
            )
            yield Problem(
                f"{said}: all results have the same two symbols",
                f"tensor.{part.name}.shape",
                ", ".join(part.dims),
                shapes,
                f'"{", ".join(wanted)}"',
            )
            return
    known = {*wanted, *loops(graph)}
    for part in (*graph.tensors, *(part for ring in graph.rings for part in ring.parts)):
        strange = [symbol for symbol in part.dims if symbol not in known]
        if strange:
            section = "tensor" if part in graph.tensors else "pipeline"
            yield Problem(
                f"results ({', '.join(wanted)}) are walked over "
                f"{' and '.join(WALKED[wanted])} only, and {part.name} has {strange[0]}",
                f"{section}.{part.name}.shape",
                ", ".join(part.dims),
                f"symbols {listing(sorted(known))}",
                '"M, N"',
            )
            return


def _product(graph: Graph, role: RoleNode) -> Iterator[Problem]:
    if role.start is not None:
        yield Problem(
            f"{role.name}'s sums begin with its first product",
            f"role.{role.name}.start",
            role.start,
            "no value",
            "leave the key out",
        )
    taken = [part for ring in role.inputs for part in ring.parts]
    said = " and ".join(f"{part.name} ({', '.join(part.dims)})" for part in taken)
    if role.reads:
        yield Problem(
            f"{role.kind} reads SMEM, and {role.name} reads {role.reads[0].name} from GMEM",
            f"tensor.{role.reads[0].name}.read",
            role.name,
            "a role of kind tma, and a ring from it",
            '"load"',
        )
        return
    product = product_of(role)
    if product is None:
        over = sorted({part.dims[-1] for part in taken if len(part.dims) == 2} - {"M", "P"})
        symbol = over[0] if over else "K"
        yield Problem(
            f"it takes {said or 'nothing'}; {role.kind} multiplies two matrices that end with the "
            "same symbol, over which it sums",
            f"role.{role.name}.kind",
            role.kind,
            "one stage of (M, K) and one of (N, K), or of (M, N) and (P, N)",
            f'shape = "M, {symbol}" and shape = "{"P" if symbol == "N" else "N"}, {symbol}"',
        )
        return
    for operand in (product.a, product.b):
        if operand.part.dtype not in OPERANDS and not operand.ring.in_tmem:
            yield _operand_type(
                graph, role.kind, operand.ring.name, operand.part.name, operand.part.dtype
            )
            return
    if product.a.part.dtype != product.b.part.dtype and not role.from_tmem:
        yield Problem(
            f"{product.a.part.name} is {product.a.part.dtype} and {product.b.part.name} "
            f"{product.b.part.dtype}; {role.kind} multiplies two of one type",
            f"role.{role.name}.kind",
            role.kind,
            "two operands of bf16, or of f16; a role of threads converts",
            f'dtype = "{product.a.part.dtype}" for {product.b.part.name}',
        )


def _operand_type(graph: Graph, kind: str, ring: str, part: str, dtype: str) -> Problem:
    """An operand that no tensor core multiplies: another ring behind a role that converts it."""
    tensor = part in {each.name for each in graph.tensors}
    return Problem(
        f"{kind} multiplies bf16 or f16 here, and {part} is {dtype}: a role of threads between "
        "them converts it",
        f"{'tensor' if tensor else 'pipeline'}.{part}.dtype",
        dtype,
        listing(f'"{word}"' for word in OPERANDS),
        f'"bf16", or {ring}_wide.edge = "convert -> ..." behind it',
    )


def _threads(role: RoleNode) -> Iterator[Problem]:
    """Whether the identity can hand on what a role takes."""
    if role.kind != "thread":
        return
    for key in ("finish", "start"):
        if getattr(role, key) is not None:
            yield Problem(
                f"{role.name} keeps nothing over its steps",
                f"role.{role.name}.{key}",
                getattr(role, key),
                "no value",
                "leave the key out",
            )
    if role.body:
        return
    for made in made_parts(role):
        for taken in taken_parts(role):
            if not hands_on(taken, made):
                yield Problem(
                    f"as written it hands on what it takes, and {taken.name} "
                    f"({', '.join(taken.dims)}) is no part of {made.name} ({', '.join(made.dims)})",
                    f"role.{role.name}",
                    allowed="a body, or tiles of one shape and vectors along their rows or columns",
                    nearest=f"role.{role.name}.body",
                )
                return
