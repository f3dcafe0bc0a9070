# SPDX-License-Identifier: Apache-2.0
"""Which tiles to try first for a size: by how well they fill the GPU, or by NVIDIA's heuristics.

The model is a sum over waves: as many tiles as the GPU has SMs run at once, and a tile takes as
long as its MMAs or as its loads, whichever is more. How well it does on an H200: docs/tuning.md.
Pure but for `nvidia_tiles`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pipegen.errors import InputError
from pipegen.measuring.shapes import Shape

TILE_M = (64, 128, 256)
TILE_N = tuple(range(16, 257, 16))
# Tiles that are good at many sizes: the model knows nothing of who computes a tile, and misses one.
USUAL = ((128, 128), (64, 128), (128, 256), (128, 192), (64, 256), (128, 160))
# Elements of the largest tile whose accumulators fit (rule PG204 has the last word).
LARGEST_TILE = 128 * 256
# Multiply-adds of bf16 an SM does in a cycle, and elements that it loads from L2 meanwhile.
MMA_RATE, LOAD_RATE = 2048, 32
# K of a tile's start and end, in which no MMA runs.
OVERHEAD_K = 128


def tile_cost(shape: Shape, m: int, n: int, sms: int) -> float:
    """Cycles for each element of K, over all waves; only its order between tiles means anything."""
    rows, columns, depth = (*shape, 1)[:3]
    waves = -(-(-(-rows // m) * -(-columns // n)) // sms)
    multiply, load = m * n / MMA_RATE, (m + n) / LOAD_RATE
    return waves * (max(multiply, load) + multiply * OVERHEAD_K / depth)


def model_tiles(shape: Shape, sms: int, most: int) -> list[tuple[int, int]]:
    """The (M, N) tiles that the model finds cheapest; of equals the larger one."""
    every = [(m, n) for m in TILE_M for n in TILE_N if m * n <= LARGEST_TILE]
    return sorted(every, key=lambda t: (tile_cost(shape, t[0], t[1], sms), -t[0] * t[1]))[:most]


def tiles_for(
    shape: Shape, sms: int, most: int, first: Sequence[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """The (M, N) tiles to try at a size: those that somebody else proposes (`first`), then the
    model's, `most` of both; last the usual ones, which so are tried at every size."""
    found = dict.fromkeys([*first, *model_tiles(shape, sms, most)])
    return list(dict.fromkeys([*list(found)[:most], *USUAL]))


PRECISIONS = {("bf16", "bf16"): "TST", ("f16", "f16"): "HSH"}


def nvidia_tiles(
    shapes: Iterable[Shape], dtypes: tuple[str, str], majors: tuple[str, str], most: int
) -> list[list[tuple[int, int]]]:
    """For each size the tiles of NVIDIA's nvidia-matmul-heuristics, for an H200.

    Raises InputError if the package is missing or does not know the types.
    """
    try:
        import nvMatmulHeuristics as heuristics
    except ImportError:
        raise InputError(
            "--order nvidia needs a package that is not installed: pip install "
            "nvidia-matmul-heuristics"
        ) from None
    precision = PRECISIONS.get(dtypes)
    if precision is None:
        raise InputError(
            f"--order nvidia: nothing is known of {dtypes[0]} operands with {dtypes[1]} output. "
            "Leave the option out"
        )
    asked: Any = heuristics.NvMatmulHeuristicsInterfaceEx(
        backend=heuristics.NvMatmulHeuristicsTarget.CUTLASS3,
        flags=heuristics.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=heuristics.NvMatmulHeuristicsNvidiaGpu.H200_SXM,
    )
    transposed = (majors[0] == "k", majors[1] == "n")
    layouts = heuristics.NvMatmulHeuristicsMatmulLayout
    layout = {
        (True, False): layouts.TN_ROW_MAJOR,
        (True, True): layouts.TT_ROW_MAJOR,
        (False, False): layouts.NN_ROW_MAJOR,
        (False, True): layouts.NT_ROW_MAJOR,
    }[transposed]
    found = []
    for m, n, k in shapes:
        problem = asked.makeNvMatmulHeuristicsProblem(m, n, k, layout)
        kernels = [each["kernel"] for each in asked.get(problem, 2 * most, precision=precision)]
        tiles = [(kernel.cta_tile_m, kernel.cta_tile_n) for kernel in kernels]
        found.append(list(dict.fromkeys(t for t in tiles if t[1] in TILE_N))[:most])
    return found
