# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | pallas | sm_100a
# template: pallas/gemm_sm100_pair_clc.py.j2 50e90082cea4
# text: e2839c4dc658
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "pallas"
#   arch = "sm_100a"
#   name = "pallas_gemm_sm100_pair_clc_i8"
#
#   [dtype]
#   a = "i8"
#
#   [cluster]
#   cta_group = 2
#
#   [scheduler]
#   tiles = "clc"
"""GEMM for Blackwell (sm_100a) in JAX Pallas (Mosaic GPU): i8 x i8 -> i32 -> i32.

Its template was compiled and emulated (`pipegen emulate`), and never run: no interpreter of jax
runs the MMAs of a CTA pair, and no Blackwell GPU was at hand.

out[l] = A[l] @ B[l].T. Warp-specialized, with tiles by cluster launch control: one pair of CTAs is
launched for each two output tiles of 128 x 256, but a running pair cancels one that waits, and
computes its tiles; it loads and multiplies the next while it stores this one.

Two CTAs side by side along M are a pair: one tcgen05 MMA of 256 x 256 computes both of their tiles
from the A tile of each and a B tile of which each holds half.

Roles of a CTA's 384 threads (one Pallas thread is a warpgroup: 128 threads)
  tma       warpgroup 0: one of its threads issues all TMA loads of its CTA, and in the first CTA
            the queries for tiles
  mma       warpgroup 1: in the pair's first CTA, which leads it, one thread issues all its MMAs
  epilogue  warpgroup 2 reads the accumulator from TMEM, 32 rows a warp, and issues the TMA stores

Pipelines
               producer -> consumer  stages  full barrier             empty barrier
  mainloop     TMA -> tcgen05        6       256 arrives + 65536 B    1 commit
  accumulator  tcgen05 -> threads    2       1 commit                 2 arrives
  scheduler    CLC -> threads        2       384 arrives + 16 B       6 arrives
  epilogue     threads -> TMA store  2       none                     none

  mainloop     Filled by an A and a B tile of each CTA, which complete at the leader's barrier. For
               A and for B, all 128 threads of the leader's TMA warpgroup arrive,
               and arm it with a share of both CTAs' bytes.
               Emptied by a tcgen05 commit of the leader, which arrives in both CTAs when the MMAs
               before it have read the SMEM of both.
  accumulator  Filled by the MMAs of all K tiles of an output tile, then one commit to both CTAs.
               Emptied by both epilogues, which arrive at the leader when their last piece is in
               registers, before that piece is stored.
  scheduler    plgpu.dynamic_scheduling_loop. Filled by the 16 B answer to a query, which the leader
               sends as it begins a tile; all threads arrive as they begin it.
               Emptied by one thread of each warpgroup of both CTAs, in both, when it has read it.
  epilogue     plgpu.copy_smem_to_gmem. Filled by the epilogue warpgroup, 16384 B at a time. No
               barriers: each copy is a bulk group, and fewer of them than buffers (2) may still
               read SMEM when the oldest buffer is written again.

Timeline of a CTA (K tiles k0, k1, ... of tile t)
  tma       t k0 | t k1 | ... at most 6 stages ahead of the MMAs ... | t+1 k0 | ...
  mma              t k0 | t k1 | ...     | t+1 k0 | t+1 k1 | ...     | t+2 k0 ...
  epilogue                               | pieces of tile t          | pieces of tile t+1 ...

Constraints
  a is (L, M, K), b is (L, N, K), the result is (L, M, N); or all three without L. Any M, N,
  K, L from 1. Used in place where rows are a multiple of 8 and columns of 128 B (operands) or
  128 B (result); others are padded by a copy first, or cut after it. So is a result of
  32 columns or fewer.

Run
  python pallas_gemm_sm100_pair_clc_i8.py
      compares with float64 on a B200
  python pallas_gemm_sm100_pair_clc_i8.py --compile-only
      needs no GPU
"""

import argparse
import sys

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

A_DTYPE, B_DTYPE = jnp.int8, jnp.int8
ACC_DTYPE, OUT_DTYPE = jnp.int32, jnp.int32

TILE_M, TILE_N, TILE_K = 128, 256, 128  # CTA tile, elements
MMA_TILE_M = 256  # rows of a pair's MMA: TILE_M of each CTA
HALF_N = 128  # rows of B that each CTA of a pair holds
RASTER_GROUP = 8  # rows of pair tiles walked together, for L2

# A Pallas thread is a warpgroup.
TMA_WARPGROUP, MMA_WARPGROUP, EPILOGUE_WARPGROUP = 0, 1, 2

MAINLOOP_STAGES = 6  # (232448 - 32768) // 32784
ACC_STAGES = 2  # accumulators in TMEM, 512 of its 512 columns: 2 * 256

EPI_TILE_N = 32  # columns of one store, 16384 B
EPI_SUBTILES = 8  # 256 / 32
EPI_STAGES = 2  # divides EPI_SUBTILES: every tile starts at buffer 0

# SMEM as TMA writes it and tcgen05 reads it: dense blocks of 8 rows x one swizzle (bytes).
# 230564 B in all: 6 * 32768 + 2 * 16384 + 1024 + 164
MMA_BLOCK = (8, 128)  # 128 B of 1 B elements
MMA_LAYOUT = (plgpu.TilingTransform(MMA_BLOCK), plgpu.SwizzleTransform(128))
OUT_BLOCK = (8, 32)  # 128 B of 4 B elements
OUT_LAYOUT = (plgpu.TilingTransform(OUT_BLOCK), plgpu.SwizzleTransform(128))
TOLERANCE = 0.0  # relative error, Frobenius norm
WORST = 6 * TOLERANCE  # error of an element over the rms: of one of six sigma


# =================================================================================================
# Yours: what happens to the accumulator before it is rounded and stored
# =================================================================================================
def epilogue_op(acc, m, n, batch):
    """Changes `acc`, a (TILE_M, EPI_TILE_N) piece in i32. As written it costs nothing.

    acc[i, j] belongs to out[batch, m + i, n + j], which may lie outside an edge tile. A ReLU:

        return jnp.maximum(acc, 0)

    A bias, handed to the kernel as `bias_gmem`, of N elements rounded up to a multiple of TILE_N:

        layout = plgpu.Layout.TCGEN05.reduce(0)
        piece = bias_gmem.at[pl.ds(n, EPI_TILE_N)]  # jax 0.10: load(bias_gmem, pl.ds(...), ...)
        bias = plgpu.load(piece, layout=layout, optimized=False)
        return acc + lax.broadcast_in_dim(bias.astype(ACC_DTYPE), acc.shape, (1,))
    """
    return acc


def gemm_kernel(
    a_gmem,
    b_gmem,
    out_gmem,
    a_smem,
    b_smem,
    acc_tmem,
    out_smem,
    mainloop_full,
    mainloop_empty,
    acc_full,
    acc_empty,
):
    _, m_size, n_size = out_gmem.shape
    k_tiles = pl.cdiv(a_gmem.shape[2], TILE_K)
    grid_m, grid_n = pl.cdiv(m_size, MMA_TILE_M), pl.cdiv(n_size, TILE_N)
    warpgroup = lax.axis_index("warpgroup")
    rank = lax.axis_index("pair")  # 0 leads

    def tile_coord(index):
        """(m, n, batch) of the pair tile that comes index-th: m counts MMA_TILE_M rows.

        RASTER_GROUP rows are walked together, column by column: what runs at one time is nearly a
        square of the output, which reads the least of A and B.
        """
        batch = lax.div(index, jnp.int32(grid_m * grid_n))
        index = lax.rem(index, jnp.int32(grid_m * grid_n))
        first = lax.div(index, jnp.int32(RASTER_GROUP * grid_n)) * RASTER_GROUP
        index = lax.rem(index, jnp.int32(RASTER_GROUP * grid_n))
        rows = lax.min(grid_m - first, RASTER_GROUP)
        return first + lax.rem(index, rows), lax.div(index, rows), batch

    def wait_each(barriers, count):
        """The tail of a role: what is still on its way to its first `count` barriers."""
        lax.fori_loop(0, count, lambda i, _: plgpu.barrier_wait(barriers.at[i]), None)

    # ---------------------------------------------------------------------------------------------
    # Producer: TMA loads, in both CTAs
    # ---------------------------------------------------------------------------------------------
    def load_tile(count, index):
        """Loads this CTA's halves of the operands of the pair's count-th tile."""
        m, n, batch = tile_coord(index)

        def load_stage(k, _):
            step = count * k_tiles + k
            stage = lax.rem(step, MAINLOOP_STAGES)

            @pl.when(step >= MAINLOOP_STAGES)  # on the first lap the stages are empty
            def acquire():
                plgpu.barrier_wait(mainloop_empty.at[stage])

            # The leader arrives for each copy, and arms its barrier with the bytes of both CTAs;
            # both CTAs' copies complete there. TMA writes zeros for what lies outside of an edge
            # tile.
            full = mainloop_full.at[stage]
            a_tile = a_gmem.at[batch, pl.ds(m * MMA_TILE_M, MMA_TILE_M), pl.ds(k * TILE_K, TILE_K)]
            plgpu.copy_gmem_to_smem(
                a_tile,
                a_smem.at[stage],
                full,
                collective_axes="pair",
                leader_tracked=plgpu.CopyPartition.PARTITIONED(0),
            )
            b_tile = b_gmem.at[batch, pl.ds(n * TILE_N, TILE_N), pl.ds(k * TILE_K, TILE_K)]
            plgpu.copy_gmem_to_smem(
                b_tile,
                b_smem.at[stage],
                full,
                collective_axes="pair",
                leader_tracked=plgpu.CopyPartition.PARTITIONED(0),
            )

        lax.fori_loop(0, k_tiles, load_stage, None)

    # ---------------------------------------------------------------------------------------------
    # Consumer: MMAs into the TMEM of both CTAs, issued by the leader
    # ---------------------------------------------------------------------------------------------
    def multiply_tile(count, _):
        """Issues the MMAs of the pair's count-th tile, in the leader only.

        Nothing here waits for one of them.
        """
        buffer = lax.rem(count, ACC_STAGES)
        acc = acc_tmem.at[:, pl.ds(buffer * TILE_N, TILE_N)]

        @pl.when(count >= ACC_STAGES)  # both epilogues arrive here, in the leader
        def acquire():
            plgpu.barrier_wait(acc_empty.at[buffer])

        def mma_stage(k, _):
            stage = lax.rem(count * k_tiles + k, MAINLOOP_STAGES)
            plgpu.barrier_wait(mainloop_full.at[stage])
            # Releases the stage when it has been read: a commit to its empty barrier in both CTAs.
            plgpu.tcgen05_mma(
                acc,
                a_smem.at[stage],
                b_smem.at[stage].T,
                mainloop_empty.at[stage],
                accumulate=k > 0,
                collective_axis="pair",
            )

        lax.fori_loop(0, k_tiles, mma_stage, None)
        # Arrives in both CTAs when all MMAs before it are done.
        plgpu.tcgen05_commit_arrive(acc_full.at[buffer], collective_axis="pair")

    # ---------------------------------------------------------------------------------------------
    # Epilogue: TMEM to registers to SMEM, then TMA stores
    # ---------------------------------------------------------------------------------------------
    def store_tile(count, index):
        """Stores this CTA's count-th tile. Its stores outlive the call."""
        m, n, batch = tile_coord(index)
        buffer = lax.rem(count, ACC_STAGES)
        plgpu.barrier_wait(acc_full.at[buffer])
        for subtile in range(EPI_SUBTILES):
            out_m, out_n = (2 * m + rank) * TILE_M, n * TILE_N + subtile * EPI_TILE_N
            columns = pl.ds(buffer * TILE_N + subtile * EPI_TILE_N, EPI_TILE_N)
            acc = plgpu.async_load_tmem(acc_tmem.at[:, columns])
            if subtile == EPI_SUBTILES - 1:
                # All of the accumulator has been read: the MMAs may have it back.
                plgpu.wait_load_tmem()
                plgpu.barrier_arrive(acc_empty.at[buffer])
            acc = epilogue_op(acc, out_m, out_n, batch)
            store = out_smem.at[subtile % EPI_STAGES]
            # The buffer's last store has read it once this few are left.
            plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)
            store[...] = acc.astype(OUT_DTYPE)
            # TMA reads SMEM through the async proxy: publish to it first.
            plgpu.commit_smem()
            # TMA leaves out what lies outside of an edge tile.
            out_tile = out_gmem.at[batch, pl.ds(out_m, TILE_M), pl.ds(out_n, EPI_TILE_N)]
            plgpu.copy_smem_to_gmem(store, out_tile)

    # ---------------------------------------------------------------------------------------------
    # Scheduler and roles: warpgroup 0 asks for the next tile as it begins this one, and the answer
    # is there once all roles have begun it
    # ---------------------------------------------------------------------------------------------
    @plgpu.dynamic_scheduling_loop(
        ("tile",), thread_axis="warpgroup", cluster_axes=("pair",), init_carry=jnp.int32(0)
    )
    def cta_tiles(loop, carry):
        """One tile. The loop returns how many there were."""
        count, index = loop.local_index, loop.index[0]

        @pl.when(warpgroup == TMA_WARPGROUP)
        def tma():
            load_tile(count, index)

        @pl.when((warpgroup == MMA_WARPGROUP) & (rank == 0))
        def mma():
            multiply_tile(count, index)

        @pl.when(warpgroup == EPILOGUE_WARPGROUP)
        def epilogue():
            store_tile(count, index)

        return carry + 1

    @pl.when(warpgroup == TMA_WARPGROUP)
    def tma_tail():
        wait_each(mainloop_empty, lax.min(cta_tiles * k_tiles, MAINLOOP_STAGES))

    @pl.when((warpgroup == MMA_WARPGROUP) & (rank == 0))
    def mma_tail():
        wait_each(acc_empty, lax.min(cta_tiles, ACC_STAGES))

    @pl.when(warpgroup == EPILOGUE_WARPGROUP)
    def epilogue_tail():
        # SMEM must outlive the stores that read it.
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)


@jax.jit
def launch(a, b):
    """`gemm` of operands in three dimensions, known to be right. Compiles once for each shape."""
    batches, m, _ = a.shape
    _, n, _ = b.shape
    a, b = pad(a, MMA_BLOCK), pad(b, MMA_BLOCK)
    # Two blocks of columns or more: Mosaic GPU copies a lone one without its index, and a store
    # beyond the edge would land on it.
    out_shape = (batches, *round_up((m, max(n, OUT_BLOCK[1] + 1)), OUT_BLOCK))
    tiles = batches * pl.cdiv(out_shape[1], MMA_TILE_M) * pl.cdiv(out_shape[2], TILE_N)
    kernel = plgpu.kernel(
        gemm_kernel,
        out_type=jax.ShapeDtypeStruct(out_shape, OUT_DTYPE),
        grid=(tiles,),
        grid_names=("tile",),
        cluster=(2,),
        cluster_names=("pair",),
        num_threads=3,
        thread_name="warpgroup",
        scratch_types={
            "a_smem": plgpu.SMEM((MAINLOOP_STAGES, TILE_M, TILE_K), A_DTYPE, transforms=MMA_LAYOUT),
            "b_smem": plgpu.SMEM((MAINLOOP_STAGES, HALF_N, TILE_K), B_DTYPE, transforms=MMA_LAYOUT),
            "acc_tmem": plgpu.TMEM((TILE_M, ACC_STAGES * TILE_N), ACC_DTYPE, collective=True),
            "out_smem": plgpu.SMEM(
                (EPI_STAGES, TILE_M, EPI_TILE_N), OUT_DTYPE, transforms=OUT_LAYOUT
            ),
            # Two copies arrive. orders_tensor_core: tcgen05 commits to it, or it hands TMEM over.
            "mainloop_full": plgpu.Barrier(num_arrivals=2, num_barriers=MAINLOOP_STAGES),
            "mainloop_empty": plgpu.Barrier(num_barriers=MAINLOOP_STAGES, orders_tensor_core=True),
            "acc_full": plgpu.Barrier(num_barriers=ACC_STAGES, orders_tensor_core=True),
            # Both epilogues arrive, at the leader's: only its MMA role waits.
            "acc_empty": plgpu.ClusterBarrier(
                collective_axes=("pair",),
                num_barriers=ACC_STAGES,
                orders_tensor_core=True,
                leader_tracked=True,
            ),
        },
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
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
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"a.shape={a.shape}, b.shape={b.shape}: must be (L, M, K), (L, N, K) or both without L"
        )


def gemm(a, b):
    """Returns out[l] = A[l] @ B[l].T as (L, M, N): a is (L, M, K), b is (L, N, K).

    L may be left out of both. Runs on JAX's default device, and within a jax.jit too.
    """
    check_operands(a, b)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "10.0":
        raise ValueError(f"jax.devices()[0]={device}: must be a B200 (compute capability 10.0)")
    out = launch(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]))
    return out.reshape(*a.shape[:-2], *out.shape[-2:])


def reference(a, b):
    """What `gemm` should return, in float64; a numpy array."""
    import numpy as np

    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    return a @ b.swapaxes(-1, -2)


def check(run, m: int, n: int, k: int, batches: int = 1) -> bool:
    """Compares one size with the reference. `run` is `gemm` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.integers(-128, 128, (batches, m, k)), A_DTYPE)
    b = jnp.asarray(rng.integers(-128, 128, (batches, n, k)), B_DTYPE)
    expected = reference(a, b)
    # XLA is likely to take the result, and its padded copies, from this memory, which holds them
    # all: what is not written stays -2**31 then.
    padded_m, padded_n, padded_k = m + 128, n + 128, k + 128
    operands = (padded_m + padded_n) * padded_k
    poison = jnp.full(batches * (operands + 2 * padded_m * padded_n), -(2**31), OUT_DTYPE)
    poison.block_until_ready().delete()
    difference = np.asarray(run(a, b)).astype(np.float64) - expected
    error = np.linalg.norm(difference) / np.linalg.norm(expected)
    worst = np.abs(difference).max() / np.sqrt(np.mean(expected**2))
    passed = bool(error <= TOLERANCE and worst <= WORST)
    print(
        f"{'PASS' if passed else 'FAIL'} M={m} N={n} K={k} L={batches}: "
        f"error {error:.1e} (limit {TOLERANCE:.0e}), worst {worst:.1e} (limit {WORST:.0e})"
    )
    return passed


def compile_only(m: int, n: int, k: int, batches: int = 1):
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
              clock_rate_ghz: 1.965
              memory_bandwidth: 8000000000000
              device_memory_size: 190000000000
              l2_cache_size: 132120576
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
    a = jax.ShapeDtypeStruct((batches, m, k), A_DTYPE, sharding=sharding)
    b = jax.ShapeDtypeStruct((batches, n, k), B_DTYPE, sharding=sharding)
    launch.trace(a, b).lower().compile()


def size(text: str) -> tuple:
    m, n, k, *batches = map(int, text.split(","))
    return m, n, k, *batches


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--interpret", action="store_true", help="does not run a pair")
    parser.add_argument("--size", type=size, metavar="M,N,K[,L]", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        jax.config.update("jax_platforms", "cpu")  # look for no GPU
        for sizes in arguments.size or [(4096, 4096, 4096, 2)]:
            compile_only(*sizes)
        print("PASS compiles for sm_100a")
        return 0
    if arguments.interpret:
        print("SKIP no interpreter of jax runs the MMAs of a CTA pair")
        return 0
    if getattr(jax.devices()[0], "compute_capability", "") != "10.0":
        print("SKIP no GPU of compute capability 10.0 (--compile-only works without)")
        return 0
    tails = [(40, 24, 40), (1000, 1000, 500), (328, 1088, 1088, 3), (4096, 4096, 4096)]
    passed = [check(gemm, *sizes) for sizes in arguments.size or tails]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
