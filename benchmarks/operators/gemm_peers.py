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


def hopper_matmul_mgpu(a: torch.Tensor, b: torch.Tensor) -> dict[str, tuple[Call, Call]]:
    """JAX's own Hopper GEMM (jax.experimental.pallas.ops.gpu), by configuration.

    a is (M, K) and b is (K, N), both stored row by row: what it takes. One type for all, bf16 or
    f16; sizes that are multiples of the tiles. Each call's result is held to that of torch.mm
    before it counts.
    """
    import jax
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as source

    from operators.gemm import from_jax, to_jax

    left, right = to_jax(a), to_jax(b)
    dimension = {"M": source.MatmulDimension.M, "N": source.MatmulDimension.N, None: None}
    wanted = torch.mm(a, b).float()
    calls: dict[str, tuple[Call, Call]] = {}
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
        run = jax.jit(lambda x, y, c=config: source.matmul(x, y, None, c))
        found = from_jax(run(left, right), a.dtype).float()
        error = ((found - wanted).norm() / wanted.norm()).item()
        assert error < 1e-2, f"hopper_matmul_mgpu {name}: relative error {error:.1e}"
        calls[name] = _launches(run, left, right)
    return calls


def _launches(run: Callable[[Any, Any], Any], left: Any, right: Any) -> tuple[Call, Call]:
    """A call that launches once, and one that waits for all launches."""
    last: list[Any] = [run(left, right)]

    def launch() -> None:
        last[0] = run(left, right)

    return launch, lambda: last[0].block_until_ready()


# Each takes A (M, K) and B (K, N), and gives a launch and a wait for each of its configurations.
PEERS: dict[str, Callable[[torch.Tensor, torch.Tensor], dict[str, tuple[Call, Call]]]] = {
    "hopper_matmul_mgpu": hopper_matmul_mgpu,
}
