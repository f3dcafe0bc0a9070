# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | pallas | sm_90a
# template: pallas/gemm_sm90_pingpong.py.j2 0a075f1fa323
# text: 9233992a0f2c
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "pallas"
#   arch = "sm_90a"
#   name = "pallas_gemm_sm90_pingpong_64x256_a_m_b_n_major"
#
#   [layout]
#   a = "m"
#   b = "n"
#
#   [tile]
#   m = 64
#   n = 256
#
#   [scheduler]
#   consumers = "ping-pong"
"""GEMM for Hopper (sm_90a) in JAX Pallas (Mosaic GPU), ping-pong: bf16 x bf16 -> f32 -> bf16.

out[l] = A[l] @ B[l].T. Persistent and warp-specialized: a CTA computes output tiles of
64 x 256 one after the other. Two consumer warpgroups take turns: while one stores its tile,
the other computes the next, so that the tensor cores do not wait for an epilogue.

Roles of a CTA's 384 threads (one Pallas thread is a warpgroup: 128 threads)
  consumers  warpgroup 0 computes the CTA's tiles 0, 2, 4, ..., and warpgroup 1 tiles 1, 3, 5, ...:
             wgmma, then the epilogue and its TMA stores
  producer   warpgroup 2: one of its threads issues all TMA loads

Pipelines (plgpu.Barrier)
            producer -> consumer  stages  full barrier             empty barrier
  mainloop  TMA -> wgmma          4       256 arrives + 40960 B    128 arrives
  turns     warpgroup -> next     1       128 arrives              none
  epilogue  threads -> TMA store  2 x 2   none                     none

  mainloop  Filled by an A and a B tile, in the order of the output tiles: for each, all 128
            producer threads arrive and arm their share of its bytes, and the phase completes when
            the last byte has landed. A stage has a full barrier for each consumer warpgroup, which
            waits only for its own tiles: a barrier's parity counts the waits, and may skip none.
            Emptied by all 128 threads of the warpgroup whose tile it is, one step later: by then no
            wgmma reads it (1 in flight <= 1 step kept < 4 stages).
  turns     A barrier for each warpgroup; the other one arrives once it has issued the last wgmma of
            the tile before. The CTA's first tile waits for nobody, and its last one tells nobody.
  epilogue  plgpu.copy_smem_to_gmem. Filled by a consumer warpgroup, 8192 B at a time; each has a
            ring of its own. No barriers: each copy is a bulk group, and
            fewer than there are buffers (2) may still read SMEM when the oldest buffer
            is written again.

Timeline of a CTA (output tiles t0, t1, ...)
  producer      load t0 | load t1: at most 4 stages ahead | load t2 | ...
  warpgroup 0   mma t0  | epilogue t0, then wait | mma t2                 | epilogue t2 ...
  warpgroup 1   wait    | mma t1                 | epilogue t1, then wait | mma t3 ...

Constraints
  a is (L, K, M), b is (L, K, N), the result is (L, M, N); or all three without L. Any M, N,
  K, L from 1. Used in place where rows are a multiple of 8 and columns of 128 B (operands) or
  128 B (result, twice as many or more); others are padded by a copy first, or cut after it.

Run
  python pallas_gemm_sm90_pingpong_64x256_a_m_b_n_major.py
      compares with float64 on an H100 or H200
  python pallas_gemm_sm90_pingpong_64x256_a_m_b_n_major.py --interpret
      the same on a CPU, with race detection (needs jax 0.11)
  python pallas_gemm_sm90_pingpong_64x256_a_m_b_n_major.py --compile-only
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

A_DTYPE, B_DTYPE = jnp.bfloat16, jnp.bfloat16
ACC_DTYPE, OUT_DTYPE = jnp.float32, jnp.bfloat16

TILE_M, TILE_N, TILE_K = 64, 256, 64  # one warpgroup's; 128 registers a thread
RASTER_GROUP = 8  # tile rows walked together, for L2

CONSUMERS = 2  # warpgroups 0 and 1, which take turns
PRODUCER = 2  # the warpgroup that loads
PRODUCER_REGISTERS = 56  # a thread
CONSUMER_REGISTERS = 224  # min(256, (512 - 56) // 2 // 8 * 8)

MAINLOOP_STAGES = 4  # (232448 - 32784) // 40984

EPI_TILE_M, EPI_TILE_N = 64, 64  # elements of one store, 8192 B
EPI_SUBTILES, EPI_SUBTILES_N = 4, 4  # of a tile, and along N
EPI_STAGES = 2  # a warpgroup; divides EPI_SUBTILES: every tile starts at buffer 0

# SMEM as TMA writes it and wgmma reads it: dense blocks of 8 rows x one swizzle (bytes).
# 196720 B in all: 4 * 40960 + 4 * 8192 + 112
MMA_BLOCK = (8, 64)  # 128 B of 2 B elements
MMA_LAYOUT = (plgpu.TilingTransform(MMA_BLOCK), plgpu.SwizzleTransform(128))
OUT_BLOCK = (8, 64)  # 128 B of 2 B elements
OUT_LAYOUT = (plgpu.TilingTransform(OUT_BLOCK), plgpu.SwizzleTransform(128))
TOLERANCE = 1e-2  # relative error, Frobenius norm
# Largest error of an element over the rms of all; bf16 rounds 6 rms by up to 6 / 2**8 = 2.3e-2.
WORST = 3e-2


# =================================================================================================
# Yours: what happens to the accumulator before it is rounded and stored
# =================================================================================================
def epilogue_op(acc, m, n, batch):
    """Changes `acc`, an (EPI_TILE_M, EPI_TILE_N) piece in f32. As written it costs nothing.

    acc[i, j] belongs to out[batch, m + i, n + j], which may lie outside an edge tile. A ReLU:

        return jnp.maximum(acc, 0.0)

    A bias, handed to the kernel as `bias_gmem`, of N elements rounded up to a multiple of TILE_N:

        layout = plgpu.Layout.WGMMA.reduce(0)
        piece = bias_gmem.at[pl.ds(n, EPI_TILE_N)]  # jax 0.10: load(bias_gmem, pl.ds(...), ...)
        bias = plgpu.load(piece, layout=layout, optimized=False)
        return acc + lax.broadcast_in_dim(bias.astype(ACC_DTYPE), acc.shape, (1,))
    """
    return acc


def gemm_kernel(a_gmem, b_gmem, out_gmem, a_smem, b_smem, out_smem, full, empty, turn):
    batches, m_size, n_size = out_gmem.shape
    k_tiles = pl.cdiv(a_gmem.shape[1], TILE_K)
    grid_m, grid_n = pl.cdiv(m_size, TILE_M), pl.cdiv(n_size, TILE_N)
    first, ctas = lax.axis_index("grid"), lax.axis_size("grid")
    # Output tiles of this CTA: every ctas-th of all.
    tiles = lax.div(batches * grid_m * grid_n - first + ctas - 1, ctas)
    warpgroup = lax.axis_index("warpgroup")

    def tile_coord(tile):
        """(m, n, batch) of the CTA's output tile that comes tile-th.

        RASTER_GROUP rows are walked together, column by column: what runs at one time is nearly a
        square of the output, which reads the least of A and B.
        """
        index = first + tile * ctas
        batch = lax.div(index, jnp.int32(grid_m * grid_n))
        index = lax.rem(index, jnp.int32(grid_m * grid_n))
        m, n = plgpu.planar_snake(index, (grid_m, grid_n), 0, RASTER_GROUP)
        return m, n, batch

    def stage_of(step):
        """The place in the ring of the CTA's K tile that comes step-th."""
        return lax.rem(step, jnp.int32(MAINLOOP_STAGES))

    # ---------------------------------------------------------------------------------------------
    # Producer: all tiles in order, whoever computes them
    # ---------------------------------------------------------------------------------------------
    @pl.when(warpgroup == PRODUCER)
    def producer():
        plgpu.set_max_registers(PRODUCER_REGISTERS, action="decrease")

        @pl.loop(0, tiles)
        def one_tile(tile):
            m, n, batch = tile_coord(tile)
            reader = lax.rem(tile, jnp.int32(CONSUMERS))

            @pl.loop(0, k_tiles)
            def one_load(k):
                stage = stage_of(tile * k_tiles + k)

                # On the first lap all stages are empty.
                @pl.when(tile * k_tiles + k >= MAINLOOP_STAGES)
                def later_lap():
                    plgpu.barrier_wait(empty.at[stage])

                loaded = full.at[reader * MAINLOOP_STAGES + stage]
                plgpu.copy_gmem_to_smem(
                    a_gmem.at[batch, pl.ds(k * TILE_K, TILE_K), pl.ds(m * TILE_M, TILE_M)],
                    a_smem.at[stage],
                    loaded,
                )
                plgpu.copy_gmem_to_smem(
                    b_gmem.at[batch, pl.ds(k * TILE_K, TILE_K), pl.ds(n * TILE_N, TILE_N)],
                    b_smem.at[stage],
                    loaded,
                )

        # The CTA stays until its last stages are empty: an arrive needs the barrier's SMEM.
        @pl.loop(lax.max(tiles * k_tiles - MAINLOOP_STAGES, 0), tiles * k_tiles)
        def last_lap(step):
            plgpu.barrier_wait(empty.at[stage_of(step)])

    # ---------------------------------------------------------------------------------------------
    # Consumers: mainloop
    # ---------------------------------------------------------------------------------------------
    def mainloop(acc_ref, tile):
        """Computes the CTA's tile-th tile when it is this warpgroup's turn."""

        @pl.when(tile > 0)
        def later_tile():
            plgpu.barrier_wait(turn.at[warpgroup])

        @pl.loop(0, k_tiles)
        def mma_step(k):
            stage = stage_of(tile * k_tiles + k)
            plgpu.barrier_wait(full.at[warpgroup * MAINLOOP_STAGES + stage])
            plgpu.wgmma(acc_ref, a_smem.at[stage].T, b_smem.at[stage])
            # The newest stays in flight: the one before it has read its stage.
            plgpu.wgmma_wait(1)

            @pl.when(k > 0)
            def release():
                plgpu.barrier_arrive(empty.at[stage_of(tile * k_tiles + k - 1)])

        @pl.when(tile + 1 < tiles)
        def next_turn():
            plgpu.barrier_arrive(turn.at[1 - warpgroup])

        plgpu.wgmma_wait(0)
        plgpu.barrier_arrive(empty.at[stage_of((tile + 1) * k_tiles - 1)])

    # ---------------------------------------------------------------------------------------------
    # Consumers: epilogue
    # ---------------------------------------------------------------------------------------------
    def epilogue(acc, m, n, batch):
        """Stores tile (m, n). Its stores outlive the call."""
        for subtile in range(EPI_SUBTILES):
            sub_m, sub_n = divmod(subtile, EPI_SUBTILES_N)
            sub_m, sub_n = sub_m * EPI_TILE_M, sub_n * EPI_TILE_N
            out_m, out_n = m * TILE_M + sub_m, n * TILE_N + sub_n
            acc_sub = acc[sub_m : sub_m + EPI_TILE_M, sub_n : sub_n + EPI_TILE_N]
            acc_sub = epilogue_op(acc_sub, out_m, out_n, batch)
            buffer = out_smem.at[warpgroup, subtile % EPI_STAGES]
            # The buffer's last store has read it once this few are left.
            plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)
            buffer[...] = acc_sub.astype(OUT_DTYPE)
            # TMA reads SMEM through the async proxy: publish to it first.
            plgpu.commit_smem()
            # TMA leaves out what lies outside of an edge tile.
            out_tile = out_gmem.at[batch, pl.ds(out_m, EPI_TILE_M), pl.ds(out_n, EPI_TILE_N)]
            plgpu.copy_smem_to_gmem(buffer, out_tile)

    # ---------------------------------------------------------------------------------------------
    # Consumers: every second tile
    # ---------------------------------------------------------------------------------------------
    @pl.when(warpgroup < CONSUMERS)
    def consumer():
        plgpu.set_max_registers(CONSUMER_REGISTERS, action="increase")

        @pl.loop(0, lax.div(tiles - warpgroup + CONSUMERS - 1, CONSUMERS))
        def one_tile(index):
            tile = index * CONSUMERS + warpgroup
            m, n, batch = tile_coord(tile)

            # Allocated in here, the accumulator costs the producer no registers.
            @functools.partial(pl.run_scoped, acc_ref=plgpu.ACC((TILE_M, TILE_N), ACC_DTYPE))
            def compute(acc_ref):
                mainloop(acc_ref, tile)
                epilogue(acc_ref[...], m, n, batch)

        # SMEM must outlive the stores that read it.
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(a, b, sm_count: int, interpret=None):
    """`gemm` of operands in three dimensions, known to be right. Compiles once for each shape."""
    batches, _, m = a.shape
    _, _, n = b.shape
    a, b = pad(a, MMA_BLOCK), pad(b, MMA_BLOCK)
    # Two blocks of columns or more: Mosaic GPU copies a lone one without its index, and a store
    # beyond the edge would land on it.
    out_shape = (batches, *round_up((m, max(n, OUT_BLOCK[1] + 1)), OUT_BLOCK))
    out_type = jax.ShapeDtypeStruct(out_shape, OUT_DTYPE)
    out_buffers = (CONSUMERS, EPI_STAGES, EPI_TILE_M, EPI_TILE_N)
    kernel = plgpu.kernel(
        gemm_kernel,
        out_type=out_type,
        scratch_types=[
            plgpu.SMEM((MAINLOOP_STAGES, TILE_K, TILE_M), A_DTYPE, transforms=MMA_LAYOUT),
            plgpu.SMEM((MAINLOOP_STAGES, TILE_K, TILE_N), B_DTYPE, transforms=MMA_LAYOUT),
            plgpu.SMEM(out_buffers, OUT_DTYPE, transforms=OUT_LAYOUT),
            plgpu.Barrier(num_arrivals=2, num_barriers=CONSUMERS * MAINLOOP_STAGES),  # copies
            plgpu.Barrier(num_arrivals=1, num_barriers=MAINLOOP_STAGES),  # warpgroups
            plgpu.Barrier(num_arrivals=1, num_barriers=CONSUMERS),
        ],
        grid=(sm_count,),
        grid_names=("grid",),
        num_threads=CONSUMERS + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret,
    )
    return kernel(a, b)[:, :m, :n]


def round_up(sizes, block):
    """The sizes of the smallest matrix of whole blocks that holds one of `sizes`."""
    return tuple(pl.cdiv(size, step) * step for size, step in zip(sizes, block))


def pad(x, block):
    """x with zeros up to whole blocks; x itself where it ends with one."""
    return jnp.pad(x, [(0, 0)] + [(0, -size % step) for size, step in zip(x.shape[1:], block)])


def check_operands(a, b):
    """Raises if `gemm` cannot take these operands, naming what is wrong."""
    for name, x, dtype in (("a", a, A_DTYPE), ("b", b, B_DTYPE)):
        if x.dtype != dtype:
            raise TypeError(f"{name}.dtype={x.dtype}: must be {jnp.dtype(dtype).name}")
        if x.ndim not in (2, 3):
            raise ValueError(f"{name}.shape={x.shape}: must have two dimensions, or L and two")
        if 0 in x.shape:
            raise ValueError(f"{name}.shape={x.shape}: every dimension must be at least 1")
    if a.shape[:-2] != b.shape[:-2] or a.shape[-2] != b.shape[-2]:
        raise ValueError(
            f"a.shape={a.shape}, b.shape={b.shape}: must be (L, K, M), (L, K, N) or both without L"
        )


def gemm(a, b):
    """Returns out[l] = A[l] @ B[l].T as (L, M, N): a is (L, K, M), b is (L, K, N).

    L may be left out of both. Runs on JAX's default device, and within a jax.jit too.
    """
    check_operands(a, b)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "9.0":
        raise ValueError(f"jax.devices()[0]={device}: must be an H100 or H200")
    out = launch(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), device.core_count)
    return out.reshape(*a.shape[:-2], *out.shape[-2:])


def reference(a, b):
    """What `gemm` should return, in float64; a numpy array."""
    import numpy as np

    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    return a.swapaxes(-1, -2) @ b


def check(run, m: int, n: int, k: int, batches: int = 1) -> bool:
    """Compares one size with the reference. `run` is `gemm` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.standard_normal((batches, k, m), np.float32), A_DTYPE)
    b = jnp.asarray(rng.standard_normal((batches, k, n), np.float32), B_DTYPE)
    expected = reference(a, b)
    m_up, n_up, k_up = (pl.cdiv(each, 256) * 256 for each in (m, n, k))
    elements = batches * (m_up * n_up + m_up * k_up + n_up * k_up)
    # XLA takes the result, and what it pads and cuts, from freed memory: most likely from this, as
    # large as all of that. What is not written stays 0xff: NaN in floats, -1 in integers. Best
    # effort: no allocator promises it.
    jnp.full(4 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
    out = np.asarray(run(a, b)).astype(np.float64)
    difference = np.abs(out - expected)
    error = np.linalg.norm(difference) / np.linalg.norm(expected)
    worst = np.max(difference / np.sqrt(np.mean(expected**2)))
    passed = bool(error <= TOLERANCE and worst <= WORST)  # never true for NaN
    print(
        f"{'PASS' if passed else 'FAIL'} M={m} N={n} K={k} L={batches}: "
        f"relative error {error:.1e} (limit {TOLERANCE:.0e}), "
        f"of an element {worst:.1e} ({WORST:.0e})"
    )
    return passed


def compile_only(m: int, n: int, k: int, batches: int = 1):
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
    a = jax.ShapeDtypeStruct((batches, k, m), A_DTYPE, sharding=sharding)
    b = jax.ShapeDtypeStruct((batches, k, n), B_DTYPE, sharding=sharding)
    launch.trace(a, b, sm_count=device.core_count).lower().compile()


def size(text: str) -> tuple:
    m, n, k, *batches = map(int, text.split(","))
    return m, n, k, *batches


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--interpret", action="store_true", help="runs on the CPU")
    parser.add_argument("--size", type=size, metavar="M,N,K[,L]", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        jax.config.update("jax_platforms", "cpu")  # look for no GPU
        for sizes in arguments.size or [(4096, 4096, 4096, 2)]:
            compile_only(*sizes)
        print("PASS compiles for sm_90a")
        return 0
    if arguments.interpret:
        if not hasattr(plgpu, "InterpretGPUParams"):
            print(f"SKIP jax {jax.__version__} has no public interpreter, 0.11 has")
            return 0
        jax.config.update("jax_platforms", "cpu")
        # Few CTAs, so that each computes several tiles. Prints "RACE DETECTED" if there is one.
        interpret = plgpu.InterpretGPUParams(detect_races=True)
        run = functools.partial(launch, sm_count=2, interpret=interpret)
        passed = [check(run, *sizes) for sizes in arguments.size or [(72, 320, 192, 2)]]
        return 0 if all(passed) else 1
    if getattr(jax.devices()[0], "compute_capability", "") != "9.0":
        print("SKIP no GPU of compute capability 9.0 (--compile-only works without)")
        return 0
    tails = [(40, 24, 40), (1000, 1000, 500), (328, 1088, 1088, 3), (4096, 4096, 4096)]
    passed = [check(gemm, *sizes) for sizes in arguments.size or tails]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
