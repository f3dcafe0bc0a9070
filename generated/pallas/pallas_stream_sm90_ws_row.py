# SPDX-License-Identifier: Apache-2.0
# pipegen: stream | pallas | sm_90a
# template: pallas/stream_warp_specialized.py.j2 c11c0df44f53
# text: c74f13e4eb26
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "stream"
#   backend = "pallas"
#   arch = "sm_90a"
#   name = "pallas_stream_sm90_ws_row"
#   style = "warp-specialized"
#
#   [stream]
#   y = "row"
"""Elementwise stream for Hopper (sm_90a) in JAX Pallas (Mosaic GPU): bf16, bf16 -> f32 -> bf16.

out = f(x, y) over an (M, N) matrix x and a row y of N elements that all rows of x share, such as a
bias; f is `stream_op`. A CTA takes a few tiles of 64 x 256, one after
the other, and loads the next ones while it computes this one.

Roles of a CTA's 384 threads (one Pallas thread is a warpgroup: 128 threads)
  consumer  warpgroups 0 to 1: 32 rows of a tile each; apply f in f32, and store by TMA
  producer  the last warpgroup: one of its threads issues all TMA loads

Pipelines
            producer -> consumer  stages  full barrier           empty barrier
  mainloop  TMA -> threads        4       256 arrives + 33280 B  256 arrives
  epilogue  threads -> TMA store  2       none                   none

  mainloop  plgpu.emit_pipeline_warp_specialized. Filled by a tile of x and one of y: for each copy
            all 128 threads of the producer arrive and arm their share of its bytes, and the phase
            completes when the last byte has landed. Emptied by an arrive of every consumer thread
            at the end of the step.
  epilogue  plgpu.copy_smem_to_gmem. Filled by a warpgroup, 16384 B at a time. No barriers: each
            copy is a bulk group, and fewer than a warpgroup has buffers (2) may still read SMEM
            when the oldest buffer is written again.

Timeline of a CTA (its tiles t0, t1, ...)
  producer  load t0, t1, ...: at most 4 stages ahead of the slowest consumer warpgroup
  consumer  wait t0, f, write, store, release t0 | wait t1, f, write, store, release t1 | ...

Constraints
  x is (M, N), y is (N,), the result (M, N). Any M and N from 1. Used in place where N is a multiple
  of 64; others are padded by a copy first, and cut after it.

Run
  python pallas_stream_sm90_ws_row.py
      compares with float64 on an H100 or H200
  python pallas_stream_sm90_ws_row.py --interpret
      the same on a CPU, with race detection (needs jax 0.11)
  python pallas_stream_sm90_ws_row.py --compile-only
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

X_DTYPE, Y_DTYPE = jnp.bfloat16, jnp.bfloat16
COMPUTE_DTYPE, OUT_DTYPE = jnp.float32, jnp.bfloat16

TILE_M, TILE_N = 64, 256  # elements of a tile
VECTOR = 8  # elements of a row that a lane has: 256 / 32
CONSUMER_WARPGROUPS = 2
WG_M = 32  # rows of a tile that a warpgroup has: 64 / 2
PRODUCER_REGISTERS = 40  # a thread; consumers get 232, min(256, (512 - 40) // 2 // 8 * 8)
BLOCKS_PER_SM = 1  # the memory warpgroup's setmaxnreg needs all registers of an SM
TILES_PER_BLOCK = 3  # few: an SM that is done early gets another block

MAINLOOP_STAGES = 4  # as many as fit in 232448 B
EPI_STAGES = 2  # of a warpgroup: one is written while another is stored

# SMEM holds a tile row by row, as GMEM does. TMA copies it in pieces of 128 B of a row: what lies
# outside of the matrix is read as zero, and not stored. N is padded to whole pieces.
# 198720 B in all: 4 * 32768 + 4 * 512 + 2 * 32768 + 64
PIECE = 64  # elements: 128 B / 2 B
X_SMEM = (plgpu.TilingTransform((1, 64)),)
OUT_SMEM = (plgpu.TilingTransform((1, 64)),)

# Registers: a warp has every fourth row, a lane VECTOR elements of it, so that a warp reads and
# writes whole rows of SMEM without bank conflicts.
LAYOUT = plgpu.Layout.TILED(
    plgpu.Tiling(((4, TILE_N), (VECTOR,))), warp_dims=(-3,), lane_dims=(-2,), vector_dim=-1
)
TOLERANCE = 1e-2  # relative error, Frobenius norm
# Largest error of an element over the rms of all; bf16 rounds 6 rms by up to 6 / 2**8 = 2.3e-2.
WORST = 3e-2


# =================================================================================================
# Yours: the arithmetic
# =================================================================================================
def stream_op(x, y):
    """f of a tile's rows, f32 in registers, with the layout LAYOUT. As written: the sum.

    A product: `return x * y`. A gate: `return jnp.where(x > 0.0, y, 0.0)`. Change `reference` too.
    Outside the matrix x and y are 0.0, and what f makes of them is not stored.
    """
    return x + y


def stream_kernel(x_gmem, y_gmem, out_gmem, out_smem, *, blocks):
    rows, columns = out_gmem.shape
    tiles_n = pl.cdiv(columns, TILE_N)
    tiles = pl.cdiv(rows, TILE_M) * tiles_n
    block = lax.axis_index("block")
    warpgroup = lax.axis_index("warpgroup")
    part = pl.ds(warpgroup * WG_M, WG_M)  # rows of the tile

    def tile_coord(step):
        """(m, n) of the tile that this block takes in a step: row by row over all blocks."""
        index = block + step * blocks
        return lax.div(index, jnp.int32(tiles_n)), lax.rem(index, jnp.int32(tiles_n))

    # ---------------------------------------------------------------------------------------------
    # Consumers
    # ---------------------------------------------------------------------------------------------
    def step(index, x_smem, y_smem):
        """One tile. The pipeline waits for its stage before, and releases it after."""
        x = plgpu.layout_cast(x_smem[part], LAYOUT).astype(COMPUTE_DTYPE)
        y = plgpu.layout_cast(y_smem[...], LAYOUT.reduce(0)).astype(COMPUTE_DTYPE)
        y = lax.broadcast_in_dim(y, x.shape, (1,))
        out = stream_op(x, y).astype(OUT_DTYPE)
        buffer = out_smem.at[warpgroup, lax.rem(index[0], jnp.int32(EPI_STAGES))]
        # The buffer's last store has read it once this few are left.
        plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)
        buffer[...] = out
        # TMA reads SMEM through the async proxy: publish to it first. That all threads have read
        # the stage, which TMA writes next, is published too, before it is released.
        plgpu.commit_smem()
        m, n = tile_coord(index[0])
        # TMA leaves out what lies outside of an edge tile.
        out_tile = out_gmem.at[
            pl.ds(m * TILE_M + warpgroup * WG_M, WG_M), pl.ds(n * TILE_N, TILE_N)
        ]
        plgpu.copy_smem_to_gmem(buffer, out_tile)

    # ---------------------------------------------------------------------------------------------
    # Producer: what the pipeline's own warpgroup copies
    # ---------------------------------------------------------------------------------------------
    pipeline = plgpu.emit_pipeline_warp_specialized(
        step,
        # This block's tiles: at least one, because there are no more blocks than tiles.
        grid=(lax.div(tiles - 1 - block, jnp.int32(blocks)) + 1,),
        in_specs=[
            plgpu.BlockSpec((TILE_M, TILE_N), tile_coord, transforms=X_SMEM),
            plgpu.BlockSpec((TILE_N,), lambda step: tile_coord(step)[1:]),
        ],
        max_concurrent_steps=MAINLOOP_STAGES,
        memory_registers=PRODUCER_REGISTERS,
        wg_axis="warpgroup",
        num_compute_wgs=CONSUMER_WARPGROUPS,
    )
    pipeline(x_gmem, y_gmem)
    # SMEM must outlive the stores that read it.
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(x, y, sm_count: int, interpret=None):
    """`stream` of operands known to be right. Compiles once for each shape."""
    m, n = x.shape
    x = pad(x)
    y = pad(y)
    out_shape = (m, pl.cdiv(n, PIECE) * PIECE)
    tiles = pl.cdiv(m, TILE_M) * pl.cdiv(out_shape[1], TILE_N)
    # At least as many blocks as run at once.
    blocks = min(tiles, max(sm_count * BLOCKS_PER_SM, pl.cdiv(tiles, TILES_PER_BLOCK)))
    kernel = plgpu.kernel(
        functools.partial(stream_kernel, blocks=blocks),
        out_type=jax.ShapeDtypeStruct(out_shape, OUT_DTYPE),
        scratch_types={
            "out_smem": plgpu.SMEM(
                (CONSUMER_WARPGROUPS, EPI_STAGES, WG_M, TILE_N), OUT_DTYPE, transforms=OUT_SMEM
            )
        },
        grid=(blocks,),
        grid_names=("block",),
        num_threads=CONSUMER_WARPGROUPS + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret,
    )
    return kernel(x, y)[:, :n]


def pad(x):
    """x with zeros up to whole pieces in each row; x itself where it ends with one."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % PIECE)])


def check_operands(x, y):
    """Raises if `stream` cannot take these operands, naming what is wrong."""
    for name, operand, dtype in (("x", x, X_DTYPE), ("y", y, Y_DTYPE)):
        if operand.dtype != dtype:
            raise TypeError(f"{name}.dtype={operand.dtype}: must be {jnp.dtype(dtype).name}")
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x.shape={x.shape}: must be (M, N), each at least 1")
    if y.shape != x.shape[1:]:
        raise ValueError(f"x.shape={x.shape}, y.shape={y.shape}: must be (M, N), (N,)")


def stream(x, y):
    """Returns f(x, y) as (M, N). Runs on JAX's default device, and within a jax.jit too."""
    check_operands(x, y)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "9.0":
        raise ValueError(f"jax.devices()[0]={device}: must be an H100 or H200")
    return launch(x, y, device.core_count)


def reference(x, y):
    """What `stream` should return, in float64; a numpy array."""
    import numpy as np

    return np.asarray(x).astype(np.float64) + np.asarray(y).astype(np.float64)


def check(run, m: int, n: int) -> bool:
    """Compares one size with the reference. `run` is `stream` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((m, n), np.float32), X_DTYPE)
    y = jnp.asarray(rng.standard_normal(n, np.float32), Y_DTYPE)
    expected = reference(x, y)
    elements = 3 * m * pl.cdiv(n, PIECE) * PIECE
    # XLA takes the result, and what it pads and cuts, from freed memory: most likely from this, as
    # large as all of that. What is not written stays 0xff, NaN in every type of float. Best effort:
    # no allocator promises it.
    jnp.full(4 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
    out = np.asarray(run(x, y)).astype(np.float64)
    difference = np.abs(out - expected)
    error = np.linalg.norm(difference) / np.linalg.norm(expected)
    worst = np.max(difference / np.sqrt(np.mean(expected**2)))
    passed = bool(error <= TOLERANCE and worst <= WORST)  # never true for NaN
    print(
        f"{'PASS' if passed else 'FAIL'} M={m} N={n}: "
        f"relative error {error:.1e} (limit {TOLERANCE:.0e}), "
        f"of an element {worst:.1e} ({WORST:.0e})"
    )
    return passed


def compile_only(m: int, n: int):
    """Compiles `launch` to a cubin for an H200 that need not be there."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        "h200",
        "cuda",
        topology="1x1x1",
        # What XLA asks a GPU about itself (a text-format GpuTargetConfigProto).
        target_config="""
            platform_name: "CUDA"
            gpu_device_info {
              cuda_compute_capability { major: 9 minor: 0 }
              core_count: 132
              fpus_per_core: 128
              clock_rate_ghz: 1.98
              memory_bandwidth: 4800000000000
              device_memory_size: 150000000000
              l2_cache_size: 62914560
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
    y = jax.ShapeDtypeStruct((n,), Y_DTYPE, sharding=sharding)
    launch.trace(x, y, sm_count=device.core_count).lower().compile()


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
        print("PASS compiles for sm_90a")
        return 0
    if arguments.interpret:
        if not hasattr(plgpu, "InterpretGPUParams"):
            print(f"SKIP jax {jax.__version__} has no public interpreter, 0.11 has")
            return 0
        jax.config.update("jax_platforms", "cpu")
        # Few blocks, so that each takes several tiles. Prints "RACE DETECTED" if there is one.
        interpret = plgpu.InterpretGPUParams(detect_races=True)
        run = functools.partial(launch, sm_count=2, interpret=interpret)
        passed = [check(run, *sizes) for sizes in arguments.size or [(133, 545)]]
        return 0 if all(passed) else 1
    if getattr(jax.devices()[0], "compute_capability", "") != "9.0":
        print("SKIP no GPU of compute capability 9.0 (--compile-only works without)")
        return 0
    tails = [(1, 1), (TILE_M, TILE_N), (1001, 1001), (333, 4104), (8192, 8192)]
    passed = [check(stream, *sizes) for sizes in arguments.size or tails]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
