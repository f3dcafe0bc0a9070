# SPDX-License-Identifier: Apache-2.0
"""The tile of a custom kernel must be one that its copies can move and its warps can share.

What it checks
    Rows that each role's warps share evenly, columns that 32 lanes do, boxes that TMA takes,
    element types bf16, f16, f32 and i8, and whole 4, 8 or 16 bytes for each cp.async.

Why
    A thread has the same part of every tile, in registers. TMA copies at most 256 elements along a
    dimension, in units of 16 B (CUDA driver API, cuTensorMapEncodeTiled).

Example
    tile.n = 96 has 3 columns for a lane: 6 bytes of bf16, which no access has.

Use instead
    The nearest that the message names.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import CP_ASYNC_BYTES, TMA_BOX_MAX, VECTOR_BYTES, WARP
from pipegen.planning.custom.graph import Graph
from pipegen.planning.custom.reading import read_graph
from pipegen.vocabulary import DTYPE

DERIVED = True
MOST_ELEMENTS = 64  # of a tile in a thread's registers, for each argument of a body
DTYPES = ("bf16", "f16", "f32", "i8")
COLUMNS = (32, 64, 128, 256)
ROWS = (4, 8, 16, 32, 64, 128, 256)


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    m, n = graph.tile
    if n not in COLUMNS:
        yield Problem(
            f"32 lanes share the columns, and a TMA box has at most {TMA_BOX_MAX}",
            "tile.n",
            n,
            listing(COLUMNS),
            nearest_number(n, COLUMNS),
        )
        return
    rows = _rows(graph)
    if m not in rows:
        most = max((role.warps for role in graph.roles), default=1)
        yield Problem(
            f"up to {most} warps share the rows, a thread has at most {MOST_ELEMENTS} elements of "
            f"a tile, and TMA moves whole {VECTOR_BYTES} bytes of a column vector",
            "tile.m",
            m,
            listing(rows) or "fewer columns",
            nearest_number(m, rows) or "tile.n = 32",
        )
        return
    yield from _bytes(description, graph)


def _rows(graph: Graph) -> tuple[int, ...]:
    """Tile rows with which every role can work."""
    found = []
    for rows in ROWS:
        vectors = [part for part in graph.tensors if part.dims == ("M",)]
        sharing = [max(1, r.warps) for r in graph.roles if r.kind in ("thread", "cp_async")]
        if (
            all(rows % warps == 0 for warps in sharing)
            and all(rows // w * (graph.tile[1] // WARP) <= MOST_ELEMENTS for w in sharing)
            and all(rows * DTYPE[part.dtype].bytes % VECTOR_BYTES == 0 for part in vectors)
        ):
            found.append(rows)
    return tuple(found)


def _bytes(description: KernelDescription, graph: Graph) -> Iterator[Problem]:
    """Element types that a copy of each kind moves."""
    vector = graph.tile[1] // WARP
    for part in graph.tensors:
        if part.dtype not in DTYPES:
            yield Problem(
                "a body takes and gives elements that are exact in f32, by registers",
                f"tensor.{part.name}.dtype",
                part.dtype,
                listing(f'"{word}"' for word in DTYPES),
                '"i8"',
            )
    for role in graph.roles:
        for part in role.reads if role.kind == "cp_async" else ():
            size = vector * DTYPE[part.dtype].bytes
            if part.dims != ("M", "N"):
                yield Problem(
                    f"cp.async copies rows of a matrix, and {part.name} is a vector",
                    f"role.{role.name}.kind",
                    "cp_async",
                    '"tma", "thread"',
                    '"tma"',
                )
            elif size not in CP_ASYNC_BYTES:
                yield Problem(
                    f"a lane has {size} B of a row of {part.name}; cp.async copies "
                    f"{listing(CP_ASYNC_BYTES)}",
                    "tile.n",
                    graph.tile[1],
                    listing(
                        columns
                        for columns in COLUMNS
                        if columns // WARP * DTYPE[part.dtype].bytes in CP_ASYNC_BYTES
                    ),
                    nearest_number(
                        graph.tile[1],
                        [
                            c
                            for c in COLUMNS
                            if c // WARP * DTYPE[part.dtype].bytes in CP_ASYNC_BYTES
                        ],
                    ),
                )
    for name, ring in description.pipeline.items():
        if ring.dtype is not None and ring.dtype not in DTYPES:
            yield Problem(
                "a body takes and gives elements that are exact in f32, by registers",
                f"pipeline.{name}.dtype",
                ring.dtype,
                listing(f'"{word}"' for word in DTYPES),
                '"i8"',
            )
