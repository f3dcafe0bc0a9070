# SPDX-License-Identifier: Apache-2.0
# pipegen: reduce | pallas | sm_100a
# template: pallas/reduce_warp_specialized.py.j2 56acda3bb78d
# text: 2a2a9682930a
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "reduce"
#   backend = "pallas"
#   arch = "sm_100a"
#   name = "pallas_reduce_sm100_ws_out_specs"
#   style = "warp-specialized"
#
#   [pipeline.epilogue]
#   out_specs = true
"""RMS norm for Blackwell (sm_100a) in JAX Pallas (Mosaic GPU): bf16, bf16 -> f32 -> bf16.

Compiled and interpreted only: no Blackwell GPU was at hand when its template was written.

out = x / sqrt(mean(x * x) + 1e-6) * weight,
over the N columns of each row of an (M, N) matrix; in the code it is `reduce_op`. A CTA takes a few
tiles, 2 rows each, one after the other, and loads the next ones while it computes this one. A
tile is read from GMEM once: its rows are in registers while they are reduced.

Roles of a CTA's 256 threads (one Pallas thread is a warpgroup: 128 threads)
  consumer  warpgroup 0: reduces the rows of a tile in f32; one thread issues the TMA stores
  producer  the last warpgroup: one of its threads issues all TMA loads

Pipelines
            producer -> consumer  stages  full barrier           empty barrier
  mainloop  TMA -> threads        3       128 arrives + 32768 B  128 arrives
  epilogue  threads -> TMA store  3       none                   none

  mainloop  plgpu.emit_pipeline_warp_specialized. Filled by a tile of x: all 128 threads of the
            producer arrive and arm their share of its bytes (those of rows of MAX_COLUMNS stand
            above), and the phase completes when the last byte has landed. Emptied by an arrive of
            every consumer thread at the end of the step.
  epilogue  out_specs of the same pipeline, 32768 B a buffer, and a buffer for each stage; they
            allow one consumer warpgroup. No barriers: each copy is a bulk group, and fewer than
            there are buffers may still read SMEM when the oldest buffer is written again.
  weight    loaded once into SMEM, with a barrier of its own.

Timeline of a CTA (its tiles t0, t1, ...)
  producer  load t0, t1, ...: at most 3 stages ahead of the slowest consumer warpgroup
  consumer  wait t0, reduce, write, store, release t0 | wait t1, reduce, write, ... | ...

Constraints
  x is (M, N), weight is (N,), the result (M, N); M from 1, N from 1 to 8192. Made for rows near
  MAX_COLUMNS. Used in place where N is a multiple of 64; others are padded by a copy first, and
  cut after it.

Run
  python pallas_reduce_sm100_ws_out_specs.py
      compares with float64 on a B200
  python pallas_reduce_sm100_ws_out_specs.py --interpret
      SKIP: jax's interpreter does not know the predicated stores of out_specs
  python pallas_reduce_sm100_ws_out_specs.py --compile-only
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

X_DTYPE, WEIGHT_DTYPE = jnp.bfloat16, jnp.bfloat16
COMPUTE_DTYPE, OUT_DTYPE = jnp.float32, jnp.bfloat16

TILE_M = 2  # rows of a tile
MAX_COLUMNS = 8192  # the longest row: 128 registers a thread, 2 * 8192 / 128
VECTOR = 8  # elements that a lane reads or writes at once: 16 B / 2 B
PRODUCER_REGISTERS = 40  # a thread; consumers get 256, min(256, (512 - 40) // 1 // 8 * 8)
BLOCKS_PER_SM = 1  # the memory warpgroup's setmaxnreg needs all registers of an SM
TILES_PER_BLOCK = 4  # few: an SM that is done early gets another block

MAINLOOP_STAGES = 3  # (232448 - 18440) // 65552

# SMEM holds a tile row by row, as GMEM does. TMA copies it in pieces of 128 B of a row: what lies
# outside of the matrix is read as zero, and not stored.
# N is padded to whole pieces.
# For rows of MAX_COLUMNS 215096 B in all: 3 * 32768 + 16384 + 3 * 32768 + 2048 + 56
PIECE = 64  # elements: 128 B / 2 B
X_SMEM = (plgpu.TilingTransform((1, 64)),)
OUT_SMEM = (plgpu.TilingTransform((1, 64)),)

# Registers: two warps share a row, and a lane reads VECTOR elements at once, so that
# a warp reads and writes whole stretches of SMEM without bank conflicts.
LAYOUT = plgpu.Layout.TILED(
    plgpu.Tiling(((2, 512), (256,), (8,))), warp_dims=(-4, -3), lane_dims=(-2,), vector_dim=-1
)
ROW_STEP = 512  # columns that the warps of a row read at once: 2 * 32 * 8
TOLERANCE = 1e-2  # relative error, Frobenius norm
# Largest error of an element over its row's largest; bf16 rounds that one by up to 2**-8 = 3.9e-3.
WORST = 1e-2


# =================================================================================================
# Yours: what becomes of a row
# =================================================================================================
EPSILON = 1e-6


def reduce_op(x, weight, columns):
    """Whole rows in f32 registers, with the layout LAYOUT; x and weight are (rows, C).

    C is N rounded up to ROW_STEP; beyond N, which is `columns`, both are 0.0, and what you return
    is not stored. As written: RMS norm. Without its root and weight, the rows over their mean:

        return x / lax.broadcast_in_dim(jnp.sum(x, axis=1) / columns, x.shape, (0,))

    Change `reference` too.
    """
    mean_square = jnp.sum(x * x, axis=1) / columns
    scale = lax.rsqrt(mean_square + EPSILON)
    return x * lax.broadcast_in_dim(scale, x.shape, (0,)) * weight


def reduce_kernel(x_gmem, weight_gmem, out_gmem, weight_smem, weight_full, *, columns, blocks):
    """`columns` is N; the rows of x_gmem are padded to whole pieces."""
    tiles = pl.cdiv(out_gmem.shape[0], TILE_M)
    tile = (TILE_M, tile_columns(columns))
    block = lax.axis_index("block")
    # Zero, but not for jax 0.12, which refuses a constant slice that reaches beyond N.
    first_column = 0 * block

    def tile_coord(step):
        """The tile that this block takes in a step, and the column where its rows begin."""
        return block + step * blocks, first_column

    # ---------------------------------------------------------------------------------------------
    # Consumers
    # ---------------------------------------------------------------------------------------------
    def step(index, x_smem, out_smem, carry):
        """One tile. The pipeline waits for its stage before, and releases it after."""
        x = plgpu.layout_cast(x_smem[...], LAYOUT).astype(COMPUTE_DTYPE)
        weight = plgpu.layout_cast(weight_smem[...], LAYOUT.reduce(0)).astype(COMPUTE_DTYPE)
        weight = lax.broadcast_in_dim(weight, x.shape, (1,))
        out = reduce_op(x, weight, columns).astype(OUT_DTYPE)
        out_smem[...] = out  # the pipeline publishes it to TMA, and stores it
        # The stage is released next, and TMA writes it through the async proxy: publish that it
        # has been read.
        plgpu.commit_smem()
        return carry

    def consumer(run_mainloop):
        """What the consumers do around the pipeline; nothing is carried from step to step."""
        plgpu.copy_gmem_to_smem(
            weight_gmem, weight_smem, weight_full, oob_mode=plgpu.OOBFillMode.PROMISE_IN_BOUNDS
        )
        plgpu.barrier_wait(weight_full)
        run_mainloop(())

    # ---------------------------------------------------------------------------------------------
    # Producer: what the pipeline's own warpgroup copies
    # ---------------------------------------------------------------------------------------------
    pipeline = plgpu.emit_pipeline_warp_specialized(
        step,
        # This block's tiles: at least one, because there are no more blocks than tiles.
        grid=(lax.div(tiles - 1 - block, jnp.int32(blocks)) + 1,),
        in_specs=[plgpu.BlockSpec(tile, tile_coord, transforms=X_SMEM)],
        out_specs=[plgpu.BlockSpec(tile, tile_coord, transforms=OUT_SMEM)],
        max_concurrent_steps=MAINLOOP_STAGES,
        memory_registers=PRODUCER_REGISTERS,
        wg_axis="warpgroup",
        num_compute_wgs=1,
        compute_context=consumer,
    )
    pipeline(x_gmem, out_gmem)


def tile_columns(columns):
    """Columns of a tile that holds whole rows of so many."""
    return pl.cdiv(columns, ROW_STEP) * ROW_STEP


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(x, weight, sm_count: int, interpret=None):
    """`reduce` of operands known to be right. Compiles once for each shape."""
    m, n = x.shape
    x = pad(x, PIECE)
    tiles = pl.cdiv(m, TILE_M)
    # At least as many blocks as run at once.
    blocks = min(tiles, max(sm_count * BLOCKS_PER_SM, pl.cdiv(tiles, TILES_PER_BLOCK)))
    kernel = plgpu.kernel(
        functools.partial(reduce_kernel, columns=n, blocks=blocks),
        out_type=jax.ShapeDtypeStruct(x.shape, OUT_DTYPE),
        scratch_types={
            "weight_smem": plgpu.SMEM((tile_columns(n),), WEIGHT_DTYPE),
            "weight_full": plgpu.Barrier(),
        },
        grid=(blocks,),
        grid_names=("block",),
        num_threads=2,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret,
    )
    return kernel(x, pad(weight, ROW_STEP))[:, :n]


def pad(x, step):
    """x with zeros up to a multiple of `step` in each row; x itself where it ends with one."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % step)])


def check_operands(x, weight):
    """Raises if `reduce` cannot take these operands, naming what is wrong."""
    for name, operand, dtype in (("x", x, X_DTYPE), ("weight", weight, WEIGHT_DTYPE)):
        if operand.dtype != dtype:
            raise TypeError(f"{name}.dtype={operand.dtype}: must be {jnp.dtype(dtype).name}")
    if x.ndim != 2 or 0 in x.shape or x.shape[1] > MAX_COLUMNS:
        rule = f"must be (M, N), each at least 1, and N at most MAX_COLUMNS={MAX_COLUMNS}"
        raise ValueError(f"x.shape={x.shape}: {rule}")
    if weight.shape != x.shape[1:]:
        raise ValueError(f"x.shape={x.shape}, weight.shape={weight.shape}: must be (M, N), (N,)")


def reduce(x, weight):
    """Returns the reduced rows, (M, N). Runs on JAX's default device, and within a jax.jit too."""
    check_operands(x, weight)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "10.0":
        raise ValueError(f"jax.devices()[0]={device}: must be a B200")
    return launch(x, weight, device.core_count)


def reference(x, weight):
    """What `reduce` should return, in float64; a numpy array."""
    import numpy as np

    x = np.asarray(x).astype(np.float64)
    scale = 1.0 / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON)
    return x * scale * np.asarray(weight).astype(np.float64)


def check(run, m: int, n: int) -> bool:
    """Compares one size with the reference. `run` is `reduce` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((m, n), np.float32), X_DTYPE)
    weight = jnp.asarray(rng.standard_normal(n, np.float32), WEIGHT_DTYPE)
    expected = reference(x, weight)
    elements = (2 * m + 1) * tile_columns(n)
    # XLA takes the result, and what it pads and cuts, from freed memory: most likely from this, as
    # large as all of that. What is not written stays 0xff, NaN in every type of float. Best effort:
    # no allocator promises it.
    jnp.full(4 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
    out = np.asarray(run(x, weight)).astype(np.float64)
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
    weight = jax.ShapeDtypeStruct((n,), WEIGHT_DTYPE, sharding=sharding)
    launch.trace(x, weight, sm_count=device.core_count).lower().compile()


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
        print(f"SKIP jax {jax.__version__} interprets no predicated store, which out_specs make")
        return 0
    if getattr(jax.devices()[0], "compute_capability", "") != "10.0":
        print("SKIP no GPU of compute capability 10.0 (--compile-only works without)")
        return 0
    tails = [(1, 1), (TILE_M, 8192), (1001, 8191), (333, 5128), (8192, 8192)]
    passed = [check(reduce, *sizes) for sizes in arguments.size or tails]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
