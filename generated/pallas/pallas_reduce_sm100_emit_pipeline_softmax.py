# SPDX-License-Identifier: Apache-2.0
# pipegen: reduce | pallas | sm_100a
# template: pallas/reduce_emit_pipeline.py.j2 c0d99bcd2763
# text: 47cd8f508d5e
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "reduce"
#   backend = "pallas"
#   arch = "sm_100a"
#   name = "pallas_reduce_sm100_emit_pipeline_softmax"
#   style = "emit-pipeline"
#
#   [reduce]
#   body = "softmax"
"""Softmax for Blackwell (sm_100a) in JAX Pallas (Mosaic GPU): bf16 -> f32 -> bf16.

Compiled and interpreted only: no Blackwell GPU was at hand when its template was written.

out = exp(x - max(x)) / sum(exp(x - max(x))),
over the N columns of each row of an (M, N) matrix; in the code it is `reduce_op`. A CTA takes a few
tiles, a row each, one after the other, and loads the next ones while it computes this one. A
tile is read from GMEM once: its rows are in registers while they are reduced. 2 CTAs share an SM.

Roles of a CTA's 128 threads (one Pallas thread is a warpgroup: 128 threads)
  producer  one thread of the warpgroup issues the TMA loads, between two tiles
  consumer  the warpgroup: reduces the rows of a tile in f32; one thread issues the TMA stores

Pipelines
            producer -> consumer  stages  full barrier           empty barrier
  mainloop  TMA -> threads        4       128 arrives + 16384 B  none
  epilogue  threads -> TMA store  2       none                   none

  mainloop  plgpu.emit_pipeline. Filled by a tile of x: all 128 threads arrive and arm their share
            of its bytes (those of rows of MAX_COLUMNS stand above), and the phase completes when
            the last byte has landed. Emptied by the step itself: producer and consumer are one
            instruction stream, and program order takes the place of a barrier. The stage is filled
            again after its step.
  epilogue  plgpu.copy_smem_to_gmem. Filled by the warpgroup, 16384 B at a time. No barriers: each
            copy is a bulk group, and fewer than there are buffers (2) may still read SMEM
            when the oldest buffer is written again.

Timeline of a CTA (its tiles t0, t1, ...; S = 4 stages)
  loads    t0 ... t(S-1) |                       | tS                    | t(S+1) ...
  threads                | wait t0, reduce, write | wait t1, reduce, write | ...
  stores                 |                       | t0                    | t1 ...

Constraints
  x is (M, N), and so is the result; M from 1, N from 1 to 8192. Made for rows near
  MAX_COLUMNS. Used in place where N is a multiple of 64; others are padded by a copy first, and
  cut after it.

Run
  python pallas_reduce_sm100_emit_pipeline_softmax.py
      compares with float64 on a B200
  python pallas_reduce_sm100_emit_pipeline_softmax.py --interpret
      the same on a CPU, with race detection (needs jax 0.11)
  python pallas_reduce_sm100_emit_pipeline_softmax.py --compile-only
      needs no GPU
"""

import argparse
import functools
import sys

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

X_DTYPE = jnp.bfloat16
COMPUTE_DTYPE, OUT_DTYPE = jnp.float32, jnp.bfloat16

TILE_M = 1  # rows of a tile
MAX_COLUMNS = 8192  # the longest row: 64 registers a thread, 1 * 8192 / 128
VECTOR = 8  # elements that a lane reads or writes at once: 16 B / 2 B
BLOCKS_PER_SM = 2  # they share an SM's SMEM: one computes while another waits
TILES_PER_BLOCK = 4  # few: an SM that is done early gets another block

MAINLOOP_STAGES = 4  # (115712 - 34816) // 16392
EPI_STAGES = 2  # of a warpgroup: one is written while another is stored

# SMEM holds a tile row by row, as GMEM does. TMA copies it in pieces of 128 B of a row: what lies
# outside of the matrix is read as zero, and not stored.
# N is padded to whole ROW_STEPs: where a tile is one row, copies did not end with it on an H200.
# For rows of MAX_COLUMNS 100384 B in all: 4 * 16384 + 2 * 16384 + 2048 + 32
X_SMEM = (plgpu.TilingTransform((1, 64)),)
OUT_SMEM = (plgpu.TilingTransform((1, 64)),)

# Registers: four warps share a row, and a lane reads VECTOR elements at once, so that
# a warp reads and writes whole stretches of SMEM without bank conflicts.
LAYOUT = plgpu.Layout.TILED(
    plgpu.Tiling(((1, 1024), (256,), (8,))), warp_dims=(-3,), lane_dims=(-2,), vector_dim=-1
)
ROW_STEP = 1024  # columns that the warps of a row read at once: 4 * 32 * 8
TOLERANCE = 1e-2  # relative error, Frobenius norm
# Largest error of an element over its row's largest; bf16 rounds that one by up to 2**-8 = 3.9e-3.
WORST = 1e-2


# =================================================================================================
# Yours: what becomes of a row
# =================================================================================================
BEYOND = -jnp.inf  # what a row reads as beyond N: it changes neither peak nor total
LOG2_E = 1.4426950408889634  # the hardware knows powers of 2 only


def reduce_op(x):
    """Whole rows in f32 registers, with the layout LAYOUT: x is (rows, C).

    C is N rounded up to ROW_STEP; beyond N x is BEYOND, and what you return is not stored. As
    written: softmax. The rows less their largest element:

        return x - lax.broadcast_in_dim(jnp.max(x, axis=1), x.shape, (0,))

    Change `reference` too.
    """
    peak = jnp.max(x, axis=1)
    powers = jnp.exp2((x - lax.broadcast_in_dim(peak, x.shape, (0,))) * LOG2_E)
    total = jnp.sum(powers, axis=1)
    return powers * lax.broadcast_in_dim(1.0 / total, x.shape, (0,))


def reduce_kernel(x_gmem, out_gmem, out_smem, *, columns, blocks):
    """`columns` is N; the rows of x_gmem are padded to whole pieces."""
    tiles = pl.cdiv(out_gmem.shape[0], TILE_M)
    tile = (TILE_M, tile_columns(columns))
    block = lax.axis_index("block")
    # Zero, but not for jax 0.12, which refuses a constant slice that reaches beyond N.
    first_column = 0 * block

    def tile_coord(step):
        """The tile that this block takes in a step, and the column where its rows begin."""
        return block + step * blocks, first_column

    def step(index, x_smem):
        """One tile. The pipeline waits for its stage before, and fills it again after."""
        x = plgpu.layout_cast(x_smem[...], LAYOUT).astype(COMPUTE_DTYPE)
        out = reduce_op(mask(x, columns)).astype(OUT_DTYPE)
        buffer = out_smem.at[lax.rem(index[0], jnp.int32(EPI_STAGES))]
        # The buffer's last store has read it once this few are left.
        plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)
        buffer[...] = out
        # TMA reads SMEM through the async proxy: publish to it first. All threads meet here, and
        # have read the stage, which TMA writes next.
        plgpu.commit_smem()
        m, n = tile_coord(index[0])
        # TMA leaves out rows and columns beyond the matrix.
        out_tile = out_gmem.at[pl.ds(m * TILE_M, TILE_M), pl.ds(n, tile[1])]
        plgpu.copy_smem_to_gmem(buffer, out_tile)

    pipeline = plgpu.emit_pipeline(
        step,
        # This block's tiles: at least one, because there are no more blocks than tiles.
        grid=(lax.div(tiles - 1 - block, jnp.int32(blocks)) + 1,),
        in_specs=[plgpu.BlockSpec(tile, tile_coord, transforms=X_SMEM)],
        max_concurrent_steps=MAINLOOP_STAGES,
    )
    pipeline(x_gmem)
    # SMEM must outlive the stores that read it.
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)


def tile_columns(columns):
    """Columns of a tile that holds whole rows of so many."""
    return pl.cdiv(columns, ROW_STEP) * ROW_STEP


def mask(x, columns):
    """x with BEYOND in the columns that are not in the matrix; x itself where there are none."""
    if x.shape[1] == columns:
        return x
    column = plgpu.broadcasted_iota(jnp.int32, x.shape, 1, layout=LAYOUT)
    return jnp.where(column < columns, x, BEYOND)


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(x, sm_count: int, interpret=None):
    """`reduce` of operands known to be right. Compiles once for each shape."""
    m, n = x.shape
    x = pad(x, ROW_STEP)
    tiles = pl.cdiv(m, TILE_M)
    # At least as many blocks as run at once.
    blocks = min(tiles, max(sm_count * BLOCKS_PER_SM, pl.cdiv(tiles, TILES_PER_BLOCK)))
    kernel = plgpu.kernel(
        functools.partial(reduce_kernel, columns=n, blocks=blocks),
        out_type=jax.ShapeDtypeStruct(x.shape, OUT_DTYPE),
        scratch_types={
            "out_smem": plgpu.SMEM(
                (EPI_STAGES, TILE_M, tile_columns(n)), OUT_DTYPE, transforms=OUT_SMEM
            ),
        },
        grid=(blocks,),
        grid_names=("block",),
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret,
    )
    return kernel(x)[:, :n]


def pad(x, step):
    """x with zeros up to a multiple of `step` in each row; x itself where it ends with one."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % step)])


def check_operands(x):
    """Raises if `reduce` cannot take these operands, naming what is wrong."""
    if x.dtype != X_DTYPE:
        raise TypeError(f"x.dtype={x.dtype}: must be {jnp.dtype(X_DTYPE).name}")
    if x.ndim != 2 or 0 in x.shape or x.shape[1] > MAX_COLUMNS:
        rule = f"must be (M, N), each at least 1, and N at most MAX_COLUMNS={MAX_COLUMNS}"
        raise ValueError(f"x.shape={x.shape}: {rule}")


def reduce(x):
    """Returns the reduced rows, (M, N). Runs on JAX's default device, and within a jax.jit too."""
    check_operands(x)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "10.0":
        raise ValueError(f"jax.devices()[0]={device}: must be a B200")
    return launch(x, device.core_count)


def reference(x):
    """What `reduce` should return, in float64; a numpy array."""
    import numpy as np

    x = np.asarray(x).astype(np.float64)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def check(run, m: int, n: int) -> bool:
    """Compares one size with the reference. `run` is `reduce` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    # Far apart: without the largest subtracted, exp would overflow.
    x = jnp.asarray(30.0 * rng.standard_normal((m, n), np.float32), X_DTYPE)
    expected = reference(x)
    elements = (2 * m + 1) * tile_columns(n)
    # XLA takes the result, and what it pads and cuts, from freed memory: most likely from this, as
    # large as all of that. What is not written stays 0xff, NaN in every type of float. Best effort:
    # no allocator promises it.
    jnp.full(4 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
    out = np.asarray(run(x)).astype(np.float64)
    difference = np.abs(out - expected)
    error = np.linalg.norm(difference) / np.linalg.norm(expected)
    worst = np.max(difference / np.max(np.abs(expected), axis=1, keepdims=True))
    passed = bool(error <= TOLERANCE and worst <= WORST)  # never true for NaN
    print(
        f"{'PASS' if passed else 'FAIL'} M={m} N={n}: "
        f"relative error {error:.1e} (limit {TOLERANCE:.0e}), "
        f"of an element {worst:.1e} ({WORST:.0e})"
    )
    return passed


def compile_only(m: int, n: int):
    """Compiles `launch` to a cubin for a B200 that need not be there."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        "b200",
        "cuda",
        topology="1x1x1",
        # What XLA asks a GPU about itself (a text-format GpuTargetConfigProto).
        target_config="""
            platform_name: "CUDA"
            gpu_device_info {
              cuda_compute_capability { major: 10 minor: 0 }
              core_count: 148
              fpus_per_core: 128
              clock_rate_ghz: 1.97
              memory_bandwidth: 8000000000000
              device_memory_size: 192000000000
              l2_cache_size: 132644864
              shared_memory_per_core: 233472
              shared_memory_per_block: 49152
              shared_memory_per_block_optin: 232448
              registers_per_core_limit: 65536
              registers_per_block_limit: 65536
              threads_per_warp: 32
              threads_per_core_limit: 2048
              threads_per_block_limit: 1024
              block_dim_limit_x: 2147483647
              block_dim_limit_y: 65535
              block_dim_limit_z: 65535
            }
        """,
    )
    device = topology.devices[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    x = jax.ShapeDtypeStruct((m, n), X_DTYPE, sharding=sharding)
    launch.trace(x, sm_count=device.core_count).lower().compile()


def size(text: str) -> tuple:
    m, n = map(int, text.split(","))
    return m, n


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--interpret", action="store_true", help="runs on the CPU")
    parser.add_argument("--size", type=size, metavar="M,N", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        jax.config.update("jax_platforms", "cpu")  # look for no GPU
        for sizes in arguments.size or [(8192, 8192)]:
            compile_only(*sizes)
        print("PASS compiles for sm_100a")
        return 0
    if arguments.interpret:
        if not hasattr(plgpu, "InterpretGPUParams"):
            print(f"SKIP jax {jax.__version__} has no public interpreter, 0.11 has")
            return 0
        jax.config.update("jax_platforms", "cpu")
        # Few blocks, so that each takes several tiles. Prints "RACE DETECTED" if there is one.
        interpret = plgpu.InterpretGPUParams(detect_races=True)
        run = functools.partial(launch, sm_count=2, interpret=interpret)
        passed = [check(run, *sizes) for sizes in arguments.size or [(7, 7933)]]
        return 0 if all(passed) else 1
    if getattr(jax.devices()[0], "compute_capability", "") != "10.0":
        print("SKIP no GPU of compute capability 10.0 (--compile-only works without)")
        return 0
    tails = [(1, 1), (TILE_M, 8192), (1001, 8191), (333, 5128), (8192, 8192)]
    passed = [check(reduce, *sizes) for sizes in arguments.size or tails]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
