# SPDX-License-Identifier: Apache-2.0
"""Other kernels that `hopper.py speed --against NAME` times beside a GEMM module, in its rounds.

Each peer is a handful of configurations; the fastest one for a size is what we are compared with,
as a user would tune it.
"""

from collections.abc import Callable
from typing import Any

import torch

from operators import Call

# tile_m, tile_n (of a warpgroup), dimension shared by the two warpgroups, minor dimension of the
# grid, tiles walked together, dimension of the cluster: those that were fastest, of the two dozen
# that the file's own sweep tries and of clusters, on an H200 at 4096^3 to 8192^3.
HOPPER_MATMUL_MGPU = (
    (128, 128, "N", "N", 8, None),
    (128, 128, "N", "M", 8, None),
    (128, 128, "M", "M", 8, None),
    (128, 128, "M", "N", 16, None),
    (64, 256, "M", "M", 8, None),
    (128, 128, "M", "M", 8, "N"),
)


def hopper_matmul_mgpu(a: torch.Tensor, b: torch.Tensor) -> dict[str, Call]:
    """JAX's own Hopper GEMM (jax.experimental.pallas.ops.gpu), a call for each configuration.

    a is (M, K) and b is (K, N), both row-major: what it takes. Sizes must be multiples of the
    tiles, and types bf16 or f16 (it has one type for all).
    """
    import jax
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as source

    from operators.gemm import to_jax

    left, right = to_jax(a), to_jax(b)
    dimension = {"M": source.MatmulDimension.M, "N": source.MatmulDimension.N, None: None}
    calls: dict[str, Call] = {}
    for tile_m, tile_n, shared, minor, width, cluster in HOPPER_MATMUL_MGPU:
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
        name = f"{tile_m}x{tile_n} by {shared}, minor {minor}, width {width}, cluster {cluster}"
        calls[name] = _launch(jax.jit(lambda x, y, c=config: source.matmul(x, y, None, c)), left, right)
    return calls


def _launch(run: Callable[[Any, Any], Any], left: Any, right: Any) -> Call:
    """A call that launches once and keeps the result, so that it can be waited for."""

    def call() -> Any:
        return run(left, right)

    return call


PEERS: dict[str, Callable[[torch.Tensor, torch.Tensor], dict[str, Call]]] = {
    "hopper_matmul_mgpu": hopper_matmul_mgpu,
}
