# SPDX-License-Identifier: Apache-2.0
"""What a search tries at a size: first of all, and then around what was fast there. Pure.

In which order tiles are tried is `order`'s matter; whether a proposal can be, `space`'s.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from pipegen.description import Kernel, KernelDescription
from pipegen.hardware import HARDWARE
from pipegen.measuring.shapes import Shape
from pipegen.planning.defaults import resolve
from pipegen.tuning.space import Candidate, Values
from pipegen.vocabulary import DTYPE

CLUSTERS = ((1, 1), (2, 1), (1, 2))
RASTER_GROUPS = (4, 16, 32)
TILES_PER_BLOCK = (1, 2, 4, 8)
LARGEST_DEEP_TILE = 128 * 128
# Split K won on an H200 with 64 x 48 tiles, and was level with 64 x 144; larger tiles lost.
SPLIT_TILE = 64 * 144
SPLITS = {(1, 1): (2, 3, 4, 8), (2, 1): (2, 4)}

# What is tried earlier has the lower number: see `proposals`.
SINGLE, SPLIT, DEEPER, CLUSTERED = 0, 2, 3, 5

PING_PONG: Values = (("scheduler.consumers", "ping-pong"),)
ONE_WARPGROUP: Values = (("role.consumer.warpgroups", 1),)


def proposals(
    description: KernelDescription, shape: Shape, tiles: Sequence[tuple[int, int]]
) -> list[Values]:
    """What to try first at a size: every way to run each (M, N) tile; for what moves bytes, tiles
    and rings.

    In the order of what won on an H200 (docs/tuning.md): all tiles in ping-pong, all by the usual
    warpgroups, split K where SMs would be without a tile, deeper stages, clusters. Stages,
    registers and store buffers are what the plan makes of them; `variations` changes them for those
    that turn out to be fast.
    """
    resolved = resolve(description)
    kernel, bits = resolved.kernel, DTYPE[resolved.dtype.a].bits
    if kernel.op not in ("gemm", "mixed_gemm"):
        return list(_moving(kernel.op))
    found: list[tuple[int, Values]] = []
    for m, n in tiles:
        rows, columns = -(-shape[0] // m), -(-shape[1] // n)
        modes = _modes(kernel, m)
        for cluster, (late, depth), mode in product(CLUSTERS, _depths(m, n, bits), modes):
            # A cluster shares what its tiles have in common: it needs that many of them.
            if rows < cluster[0] or columns < cluster[1]:
                continue
            tile: Values = (("tile.m", m), ("tile.n", n), ("tile.k", depth))
            values = (*tile, ("cluster.shape", cluster), *mode)
            tier = SINGLE + late + (mode != PING_PONG) if cluster == (1, 1) else CLUSTERED
            found.append((tier, values))
            if mode != PING_PONG and _may_split(kernel, m, n):
                sms = HARDWARE[kernel.arch].sm_count
                ways = [way for way in SPLITS.get(cluster, ()) if rows * columns * way <= sms]
                found += [(SPLIT, (*values, ("scheduler.split_k", way))) for way in ways]
    return [values for _, values in sorted(found, key=lambda each: each[0])]


def _may_split(kernel: Kernel, m: int, n: int) -> bool:
    """Whether several CTAs may share a tile's K: small tiles, which exchange little."""
    able = kernel.op == "gemm" and kernel.backend == "cute" and kernel.arch == "sm_90a"
    return able and m * n <= SPLIT_TILE


def _modes(kernel: Kernel, m: int) -> tuple[Values, ...]:
    """Who computes a tile of m rows: two warpgroups that take turns, the usual ones, or one."""
    if kernel.op != "gemm" or kernel.arch != "sm_90a" or m not in (64, 128):
        return (ONE_WARPGROUP,) if m == 64 and kernel.backend == "cute" else ((),)
    if kernel.backend == "cute":
        return (PING_PONG, ONE_WARPGROUP if m == 64 else ())
    turns = kernel.backend == "pallas" and kernel.style == "warp-specialized"
    return (PING_PONG, ()) if turns else ((),)


def _depths(m: int, n: int, bits: int) -> tuple[tuple[int, int], ...]:
    """K of a stage, and how late to try it: rows of 128 bytes; also of 256 for small tiles, whose
    stages are soon consumed: on an H200 one warpgroup was faster with these."""
    row, double = 128 * 8 // bits, 256 * 8 // bits
    return ((0, row), (DEEPER, double)) if m * n <= LARGEST_DEEP_TILE else ((0, row),)


def _moving(op: str) -> Iterator[Values]:
    """Ops that move bytes: the tile, and how many blocks share an SM."""
    rows = (1, 2, 4, 8, 16, 32, 64)
    if op == "reduce":
        for m, blocks in product(rows, (1, 2, 3, 4)):
            yield (("tile.m", m), ("reduce.blocks_per_sm", blocks))
    elif op == "stream":
        for m, n, blocks in product(rows, (64, 128, 256, 512), (1, 2, 3, 4)):
            yield (("tile.m", m), ("tile.n", n), ("stream.blocks_per_sm", blocks))


def variations(candidate: Candidate, op: str, stages: int, buffers: int) -> list[Values]:
    """A fast candidate with one value changed: raster, registers, tiles of a block, stages, store
    buffers.

    `stages` and `buffers`: what its plan has.
    """
    given: Mapping[str, Any] = dict(candidate.values)
    found = raster_variations(candidate)

    def change(key: str, value: Any) -> None:
        if given.get(key) != value:
            found.append(_changed(candidate, key, value))

    if "tile.k" in given:  # a GEMM
        for registers in (24, 56):
            change("role.producer.registers", registers)
    if op in ("stream", "reduce"):
        for each in TILES_PER_BLOCK:
            change(f"{op}.tiles_per_block", each)
    for fewer in sorted({stages - 1, stages - 2} - {0, 1, -1}, reverse=True):
        change("pipeline.mainloop.stages", fewer)
    for other in sorted({2, 4, 8} - {buffers}):
        change("pipeline.epilogue.stages", other)
    return found


def raster_variations(candidate: Candidate) -> list[Values]:
    """A fast candidate of a GEMM with each raster group."""
    given = dict(candidate.values)
    if "tile.k" not in given:
        return []
    key = "scheduler.raster_group"
    return [_changed(candidate, key, group) for group in RASTER_GROUPS if given.get(key) != group]


def _changed(candidate: Candidate, key: str, value: Any) -> Values:
    return (*((k, v) for k, v in candidate.values if k != key), (key, value))
