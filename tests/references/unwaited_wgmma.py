# SPDX-License-Identifier: Apache-2.0
"""A planted fault: wgmma reads a stage whose copy nobody has waited for yet."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

M, N, K = 64, 64, 64
WAITS_FIRST = False  # True: as it should be


def kernel(a_gmem, b_gmem, out_gmem, a_smem, b_smem, out_smem, loaded):
    plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
    plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
    if WAITS_FIRST:
        plgpu.barrier_wait(loaded)

    def compute(acc_ref):
        plgpu.wgmma(acc_ref, a_smem, b_smem)
        return acc_ref[...]

    out_smem[...] = pl.run_scoped(compute, plgpu.ACC((M, N), jnp.float32))
    if not WAITS_FIRST:
        plgpu.barrier_wait(loaded)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out_smem, out_gmem)
    plgpu.wait_smem_to_gmem(0)


def main(_arguments) -> int:
    run = plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((M, N), jnp.float32),
        scratch_types=[
            plgpu.SMEM((M, K), jnp.float16),
            plgpu.SMEM((K, N), jnp.float16),
            plgpu.SMEM((M, N), jnp.float32),
            plgpu.Barrier(num_arrivals=2),
        ],
        interpret=plgpu.InterpretGPUParams(detect_races=True),
    )
    a = jnp.arange(M * K, dtype=jnp.float16).reshape(M, K) / (M * K)
    b = jnp.ones((K, N), jnp.float16)
    expected = np.asarray(a).astype(np.float64) @ np.asarray(b).astype(np.float64)
    passed = np.allclose(np.asarray(run(a, b)), expected, rtol=1e-3)
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main([]))
