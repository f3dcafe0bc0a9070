# SPDX-License-Identifier: Apache-2.0
"""Small sizes at which a ring buffer shows its faults, computed from the plan.

A ring of S stages is interesting where its index wraps: with 1 tile (nothing wraps), S - 1, S (it
wraps at the end), S + 1 (the first stage is used again) and 2 S + 1 (each phase comes twice). The
GPU claims one cluster's SMs, so that each CTA computes two output tiles and its rings wrap over
the border between them. No size is a multiple of its tile where the operator allows it: the edges
are tried as well.
"""

from dataclasses import dataclass

from pipegen.planning import Plan
from pipegen.planning.gemm_sm100_pallas_numbers import IDLE_SMS

# Sizes are short of a whole tile by this many elements: what TMA stores at once of 16-bit numbers.
_SHORT = 8
_OUTPUT_TILES = 2
_COLUMNS = 2048  # of a row to reduce: the longest that a module takes need not be tried
_SECOND_STEPS = 3  # of a second product, over N: its rings have two stages


@dataclass(frozen=True)
class Case:
    """One size to try: what it tries, the sizes by name (`m`, `n`, `k`, `p`), and the GPU's SMs."""

    label: str
    sizes: dict[str, int]
    sms: int


def loop_counts(stages: int) -> tuple[int, ...]:
    """How many tiles go through a ring of so many stages, smallest first."""
    return tuple(sorted({1, max(1, stages - 1), stages, stages + 1, 2 * stages + 1}))


def ring_stages(plan: Plan) -> int:
    """Stages of the plan's longest ring; a pipeline of stores has no ring that wraps a phase."""
    return max(p.stages for p in plan.pipelines if p.construct != "PipelineTmaStore")


def output_tiles(plan: Plan) -> int:
    """Tiles of the results that a CTA computes: more than there are accumulators in TMEM."""
    accumulators = [pipe.stages for pipe in plan.pipelines if pipe.producer == "umma"]
    return max(_OUTPUT_TILES, *(stages + 1 for stages in accumulators), 0)


def verify_cases(plan: Plan) -> tuple[Case, ...]:
    """The cases of `pipegen verify`, cheapest first."""
    asked = plan.description.cluster
    cluster_m, cluster_n = asked.shape if asked and asked.shape else (1, 1)
    tile, op = plan.description.tile, plan.description.kernel.op
    assert isinstance(tile.m, int)
    assert isinstance(tile.n, int)
    blocks = {each.name: each.value for each in plan.numbers}.get("blocks_per_sm", 1)
    ctas = cluster_m * (int(blocks) if op in ("stream", "reduce") else 1)
    # The Pallas modules of custom graphs take whole tiles alone.
    pallas = plan.description.kernel.backend == "pallas"
    whole = op == "custom" and pallas
    # Those with clusters of 2 x 2 leave SMs to clusters that find no room.
    idle = IDLE_SMS if pallas and (cluster_m, cluster_n) == (2, 2) else 0
    found = []
    for count in loop_counts(ring_stages(plan)):
        if op == "stream":  # the loop runs over tiles of rows
            sizes = {"m": count * ctas * tile.m, "n": tile.n}
        elif op == "reduce":  # over tiles of a few whole rows; the last one is not full
            rows = count * ctas * tile.m + _SHORT - (tile.m - 1)
            sizes = {"m": max(rows, _SHORT + 1), "n": min(tile.n, _COLUMNS)}
        elif op == "custom" and isinstance(tile.k, int):  # products: over K, of a second one over N
            sizes = {"m": output_tiles(plan) * tile.m, "n": tile.n, "k": count * tile.k}
            if isinstance(tile.p, int):
                sizes |= {"n": _SECOND_STEPS * tile.n, "p": tile.p}
        elif op == "custom":  # over panels of rows, and over the tiles of each
            sizes = {
                "m": _OUTPUT_TILES * cluster_m * tile.m,
                "n": count * cluster_n * tile.n,
            }
        else:
            assert isinstance(tile.k, int)
            sizes = {
                "m": _OUTPUT_TILES * cluster_m * tile.m,
                "n": cluster_n * tile.n,
                "k": count * tile.k,
            }
        short = sizes if whole else {name: _shortened(size) for name, size in sizes.items()}
        found.append(Case(f"{count} {_plural(count)}", short, cluster_m * cluster_n + idle))
    return tuple(found)


def default_case(plan: Plan) -> Case:
    """The case of `pipegen emulate` without a shape: the first stage is used again."""
    stages = ring_stages(plan)
    wanted = f"{stages + 1} {_plural(stages + 1)}"
    return next(case for case in verify_cases(plan) if case.label == wanted)


def _shortened(size: int) -> int:
    return size - _SHORT if size > _SHORT else size


def _plural(count: int) -> str:
    return "tile" if count == 1 else "tiles"
