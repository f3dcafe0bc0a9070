# SPDX-License-Identifier: Apache-2.0
"""JAX's own Hopper GEMM (jax.experimental.pallas.ops.gpu): a handful of its configurations."""

from functools import partial
from typing import Any

from pipegen.measuring.clocks import Entry
from pipegen.measuring.operators import Operator, Size
from pipegen.measuring.operators.jax_arrays import from_jax, jax_launcher, to_jax

# tile_m, tile_n (of a warpgroup), dimension shared by the two warpgroups, minor dimension of the
# grid, tiles walked together, dimension of the cluster: those that were fastest, of the two dozen
# that the file's own sweep tries and of clusters, on an H200 at 4096^3 to 8192^3.
CONFIGURATIONS = (
    (128, 128, "N", "N", 8, None),
    (128, 128, "N", "M", 8, None),
    (128, 128, "M", "M", 8, None),
    (128, 128, "M", "N", 16, None),
    (64, 256, "M", "M", 8, None),
    (128, 128, "M", "M", 8, "N"),
)


def entries(name: str, operator: Operator, sets: list[list[Any]], size: Size) -> dict[str, Entry]:
    """An entry for each configuration. It takes A (M, K) and B (K, N), both stored row by row, of
    one 16-bit type, and sizes that are multiples of the tiles."""
    import jax
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as source

    kernel: Any = operator
    dimension: dict[str | None, Any] = {
        "M": source.MatmulDimension.M,
        "N": source.MatmulDimension.N,
        None: None,
    }
    arrays = [
        [
            to_jax(a[0] if kernel.a_major == "k" else a[0].mT.contiguous()),
            to_jax(b[0].mT.contiguous() if kernel.b_major == "k" else b[0]),
        ]
        for a, b in sets
    ]
    found = {}
    for tile_m, tile_n, shared, minor, width, cluster in CONFIGURATIONS:
        config = source.TuningConfig(
            tile_m=tile_m,
            tile_n=tile_n,
            tile_k=64,
            max_concurrent_steps=4,
            wg_dimension=dimension[shared],
            grid_minor_dim=dimension[minor],
            grid_tile_width=width,
            cluster_dimension=dimension[cluster],
        )
        word = f"{tile_m}x{tile_n} by {shared}, minor {minor}, width {width}, cluster {cluster}"
        run = jax.jit(partial(_matmul, source, config))
        calls, wait = jax_launcher(run, arrays)
        result = from_jax(run(*arrays[0]), sets[0][0].dtype)
        found[word] = Entry(calls, wait, "device", partial(_batch, result), word)
    return found


def _matmul(source: Any, config: Any, a: Any, b: Any) -> Any:
    return source.matmul(a, b, None, config)


def _batch(result: Any) -> list[Any]:
    return [result[None]]
