# SPDX-License-Identifier: Apache-2.0
"""The words that the templates of templates/cute_ts share."""

from typing import Any

from pipegen.description import KernelDescription

FULL_BARRIER_WIDTH = 18  # of a column of the resources table


def import_words(
    description: KernelDescription, auxiliary: bool, queue: bool, tmem: bool = False
) -> dict[str, Any]:
    """The names that a module imports of Task Scheduling, each list sorted."""
    pdl = description.integration.pdl
    pair = description.cluster.cta_group == 2
    return {
        "schedule_names": sorted(
            [
                *(["WorkAttr"] if auxiliary or queue else []),
                "consumer_work",
                "domain_loop",
                "producer_work",
                "schedule",
                *(["work_tile_loop"] if queue else []),
            ]
        ),
        "enum_names": [
            *(["SignalingThreads"] if pair else []),
            *(["TileSchedulerType"] if queue else []),
        ],
        "memory_names": sorted(
            ["SmemAllocation", "SmemAllocator"]
            + (["TmemAllocation", "TmemAllocator"] if tmem else [])
        ),
        "resource_names": sorted(
            [
                "MemoryResource",
                *(["PdlLaunchBarrier", "PdlWaitBarrier"] if pdl else []),
                "PipelineConfig",
                "StageInfo",
                "TaskLocalVariable",
                *(["TileSchedulerConfig", "WorkQueue", "WorkTileInfo"] if queue else []),
            ]
        ),
    }


def queue_words(
    what: str, coords: tuple[tuple[str, str], ...], counts: tuple[str, ...]
) -> dict[str, Any]:
    """What the WorkQueue hands out: the coordinates of a tile, from counts of tiles."""
    types = ", ".join(["cutlass.Int32"] * len(coords))
    return {
        "tiles_doc": what,
        "coords": [{"name": name, "docs": docs} for name, docs in coords],
        "coord_names": ", ".join(name for name, _ in coords),
        "coord_types": types,
        "counts": list(counts),
        "counts_of_self": ", ".join(f"self.{count}" for count in counts),
    }


def option_words(description: KernelDescription) -> dict[str, Any]:
    """Booleans of the options that every template has."""
    return {
        "tries": description.pipeline["mainloop"].try_ahead,
        "pdl": description.integration.pdl,
    }


def dependency_words(edges: dict[str, list[str]], pdl: bool) -> str:
    """The resource dependency graph as Python text; a dependent launch is waited for by `load`."""
    if pdl:
        first = next(iter(edges))
        edges = {**edges, first: [*edges[first], "grid_before"], "grid_after": ["grid_before"]}
    return "{" + ", ".join(f"{k}: [{', '.join(v)}]" for k, v in edges.items()) + "}"


def arrives_word(count: int | None) -> str:
    """So many arrivals, in the width of the table's column."""
    return f"{count} arrives".ljust(FULL_BARRIER_WIDTH)
