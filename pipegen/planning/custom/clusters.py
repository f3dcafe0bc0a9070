# SPDX-License-Identifier: Apache-2.0
"""What a cluster of two CTAs adds to a custom kernel's text, in the CuTe DSL.

Along M the CTAs of a cluster have panels side by side; along N they share a panel, whose tiles they
take in turn. Both go through as many of each: a place outside the matrix is loaded as zeros and
stored nowhere, so that neither waits for a stage that the other does not fill.
"""

from typing import Any

from pipegen.planning.custom.code import field_of
from pipegen.planning.custom.graph import Graph, Ring
from pipegen.planning.custom.numbers import Numbers

CTAS = 2
ROWS = [
    "first, _, _ = cute.arch.block_idx()",
    "step, _, _ = cute.arch.grid_dim()",
]


def cluster_values(numbers: Numbers, launch_arguments: str) -> dict[str, Any]:
    """The template's fields that a cluster changes, and what they are without one."""
    graph = numbers.graph
    columns = graph.cluster == (1, CTAS)
    rows = graph.cluster == (CTAS, 1)
    multicasts = any(ring.multicast for ring in graph.rings)
    return {
        "clustered": graph.clustered,
        "cluster_shape": f"({graph.cluster[0]}, {graph.cluster[1]})",
        "cluster_text": said_of(graph),
        "block_lines": block_lines(rows, columns),
        "tile_range": "rank, tiles, 2" if columns else "tiles",
        "peers": [field_of(ring, part) for ring in graph.rings if ring.peer for part in ring.parts],
        "sends_kept": any(
            ring.peer and ring.parts[0] in graph.role(ring.sources[0]).kept for ring in graph.rings
        ),
        "any_peer": any(ring.peer for ring in graph.rings),
        "multicasts": multicasts,
        "partition_arguments": (
            "tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple"
            + (", cta=0, ctas: int = 1" if multicasts else "")
        ),
        "partition_cta": (
            "cta, cute.make_layout(ctas)" if multicasts else "0, cute.make_layout(1)"
        ),
        "peer_lines": peer_lines(columns),
        "launch_lines": launch_lines(rows, columns, launch_arguments),
    }


def block_lines(rows: bool, columns: bool) -> list[str]:
    """Which panels, and which tiles of them, are this CTA's."""
    if columns:
        return [
            "first, rank, _ = cute.arch.block_idx()  # rank: which of the cluster's two CTAs",
            ROWS[1],
        ]
    return [*ROWS, "rank = first % 2  # which of the cluster's two CTAs"] if rows else ROWS


def launch_lines(rows: bool, columns: bool, arguments: str) -> list[str]:
    """The numbers of panels and tiles, and the launch."""
    panels = "cute.ceil_div(rows, TILE_M)"
    tiles = "cute.ceil_div(columns, TILE_N)"
    grid = "(cutlass.min(panels, max_blocks), 1, 1)"
    lines: list[str] = []
    cluster: list[str] = []
    if rows:
        panels = "2 * cute.ceil_div(rows, 2 * TILE_M)"
        grid = "(cutlass.min(panels, max_blocks // 2 * 2), 1, 1)"
    if columns:
        tiles = "2 * cute.ceil_div(columns, 2 * TILE_N)"
        grid = "(cutlass.min(panels, max_blocks // 2), 2, 1)"
    if rows or columns:
        lines.append("# Both CTAs of a cluster have as many panels and tiles.")
        cluster = [f"    cluster=({CTAS if rows else 1}, {CTAS if columns else 1}, 1),"]
    return [
        *lines,
        f"panels, tiles = {panels}, {tiles}",
        f"custom_kernel({arguments}).launch(",
        f"    grid={grid},",
        "    block=(THREADS, 1, 1),",
        *cluster,
    ]


def said_of(graph: Graph) -> list[str]:
    """The docstring's lines about the cluster."""
    if graph.cluster == (CTAS, 1):
        return [
            "Two CTAs are a cluster: they take panels side by side. Rings with peer are in the",
            "SMEM of the other CTA, whose roles take what this one's give.",
        ]
    return [
        "Two CTAs are a cluster: they share a panel and take its tiles in turn. Rings with peer",
        "are in the SMEM of the other CTA, whose roles take what this one's give.",
    ]


def ring_fields(ring: Ring) -> list[str]:
    """What the construction of a ring needs beyond its counts."""
    if ring.peer:
        return [
            "producer_mask=peer,  # the CTA that hears a commit",
            "consumer_mask=peer,  # and the one that hears a release",
        ]
    if ring.multicast:
        return ["cta_layout_vmnk=cute.make_layout((1, 2, 1, 1)),"]
    return []


def peer_lines(columns: bool) -> list[str]:
    """Of the module's reference: what the other CTA of each cluster has of a tensor."""
    if columns:
        return [
            "spare = x.new_zeros((*x.shape[:-1], -x.shape[-1] % (2 * TILE_N)))",
            "tiles = torch.cat([x, spare], -1).unflatten(-1, (-1, 2, TILE_N))",
            "return tiles.flip(-2).flatten(-3)[..., : x.shape[-1]]",
        ]
    return [
        "spare = x.new_zeros((-x.shape[0] % (2 * TILE_M), *x.shape[1:]))",
        "panels = torch.cat([x, spare]).unflatten(0, (-1, 2, TILE_M))",
        "return panels.flip(1).flatten(0, 2)[: x.shape[0]]",
    ]
