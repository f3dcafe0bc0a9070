# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | pallas | sm_100a
# template: pallas/custom_multiply_sm100.py.j2 c716a97a7135
# text: 46308346c7f9
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "pallas"
#   arch = "sm_100a"
#   name = "pallas_custom_sm100_multiply_twice"
#
#   [tile]
#   n = 64
#
#   [tensor.a]
#   shape = "M, K"
#   read = "load"
#
#   [tensor.b]
#   shape = "N, K"
#   read = "load"
#
#   [tensor.c]
#   shape = "P, N"
#   read = "load"
#
#   [tensor.out]
#   shape = "M, P"
#   dtype = "f32"
#   write = "epilogue"
#
#   [pipeline.ab]
#   edge = "load -> score"
#   holds = "a, b"
#
#   [pipeline.c]
#   edge = "load -> second"
#
#   [pipeline.scores]
#   edge = "score -> round"
#
#   [pipeline.between]
#   edge = "round -> second"
#   dtype = "bf16"
#
#   [pipeline.acc]
#   edge = "second -> epilogue"
#
#   [role.score]
#   kind = "umma"
#
#   [role.second]
#   kind = "umma"
"""A custom graph of roles that multiply, for Blackwell (sm_100a) in Pallas (Mosaic GPU).

A CTA takes tiles of TILE_M x TILE_P of the result, one after the other, and for each walks over N
in steps of TILE_N, and within it over K in steps of TILE_K. Every role has its own loops; rings
of SMEM and TMEM stages connect the roles, each filled as often as its tiles change. What a role
computes is its body, a function under "Yours": replacing it never touches the protocol. The first
product is computed anew for each tile of P: that is wasted work where there are many. Compiled
and emulated, never run: no Blackwell GPU was at hand when this was written.

Roles
  round                warpgroup 0       computes: scores -> between, at each step of N
  epilogue             warpgroup 1       computes: acc -> out, once a tile
  load                 warpgroup 2       loads by TMA: a, b, c -> ab, c, at each step of K
  score                warpgroup 3       multiplies: ab_a @ ab_b.T -> scores, tcgen05 at each step
                       of K
  second               warpgroup 4       multiplies: between @ c.T -> acc, tcgen05 at each step of
                       N

Pipelines (plgpu.Barrier)
  ring                 stages  a stage is full, and empty, after
  ab                   4       2 copies, 1 commit
  c                    2       1 copy, 1 commit
  scores               2       1 commit, 1 warpgroup
  between              2       1 warpgroup, 1 commit
  acc                  2       1 commit, 1 warpgroup

  ab                   load -> score, at each step of K
  c                    load -> second, at each step of N
  scores               score -> round, at each step of N
  between              round -> second, at each step of N
  acc                  second -> epilogue, once a tile

Timeline of a CTA
  round                each step of N: wait scores, fill between, release scores
  epilogue             each tile: wait acc, store out, release acc
  load                 each step of N: fill c; each step of K: fill ab
  score                each step of N: fill scores; each step of K: wait ab, multiply, release ab
  second               each tile: fill acc; each step of N: wait c, wait between, multiply,
                       release c, release between

Constraints
  a is (M, K), b is (N, K), c is (P, N), out is (M, P).
  Any sizes from 1. Used in place where rows are a multiple of 8 and columns of a swizzle; others
  are padded by a copy first, or cut after it.

Run
  python pallas_custom_sm100_multiply_twice.py
  compares with numpy, on a B200; --compile-only and --interpret need no GPU.
"""

import argparse
import functools
import os
import sys

if __name__ == "__main__":
    # Lets XLA compile for a GPU that is not there; read when jax is imported.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

A_DTYPE = jnp.bfloat16
B_DTYPE = jnp.bfloat16
C_DTYPE = jnp.bfloat16
OUT_DTYPE = jnp.float32

TILE_M, TILE_N, TILE_K, TILE_P = 128, 64, 64, 128  # elements of a tile; 229572 B of SMEM a CTA
RASTER_GROUP = 8  # rows of tiles walked together, for L2
# ab: load -> score, at each step of K
AB_STAGES = 4
AB_FULL, AB_EMPTY = 2, 1  # arrivals of copies, of commits
# c: load -> second, at each step of N
C_STAGES = 2
C_FULL, C_EMPTY = 1, 1  # arrivals of copies, of commits
# scores: score -> round, at each step of N
SCORES_STAGES = 2
SCORES_FULL, SCORES_EMPTY = 1, 1  # arrivals of commits, of warpgroups
# between: round -> second, at each step of N
BETWEEN_STAGES = 2
BETWEEN_FULL, BETWEEN_EMPTY = 1, 1  # arrivals of warpgroups, of commits
# acc: second -> epilogue, once a tile
ACC_STAGES = 2
ACC_FULL, ACC_EMPTY = 1, 1  # arrivals of commits, of warpgroups
PIECE = 64  # columns of an accumulator that a body takes from TMEM at a time
TOLERANCE = 1e-2  # relative error, Frobenius norm
# Largest error of an element over the largest of all; bf16 rounds by up to 2**-8 at each step.
WORST = 2e-2


# ==== Yours: the bodies ==========================================================================
def round(scores, between):
    """Yours; as written, the identity.

    scores: a stage to read, (TILE_M, TILE_N) f32 in TMEM, by plgpu.async_load_tmem
    between: to write, (TILE_M, TILE_N) bf16
    """
    for piece in range(TILE_N // PIECE):  # registers hold a part of a tile
        columns = pl.ds(piece * PIECE, PIECE)
        values = plgpu.async_load_tmem(scores.at[:, columns])
        between[:, columns] = values.astype(between.dtype)


def epilogue(acc, out):
    """Yours; as written, the identity.

    acc: a stage to read, (TILE_M, TILE_P) f32 in TMEM, by plgpu.async_load_tmem
    out: to write, (TILE_M, TILE_P) f32
    """
    for piece in range(TILE_P // PIECE):  # registers hold a part of a tile
        columns = pl.ds(piece * PIECE, PIECE)
        values = plgpu.async_load_tmem(acc.at[:, columns])
        out[:, columns] = values.astype(out.dtype)


def score(ab_a, ab_b, sums, accumulate):
    """Yours; as written, sums += ab_a @ ab_b.T by tcgen05.

    ab_a: a stage, (TILE_M, TILE_K) bf16
    ab_b: a stage, (TILE_N, TILE_K) bf16
    sums: an accumulator in TMEM, (TILE_M, TILE_N) f32
    accumulate: False for a tile's first stage, which overwrites the sums
    """
    plgpu.tcgen05_mma(sums, ab_a, ab_b.T, accumulate=accumulate)


def second(between, c, sums, accumulate):
    """Yours; as written, sums += between @ c.T by tcgen05.

    between: a stage, (TILE_M, TILE_N) bf16
    c: a stage, (TILE_P, TILE_N) bf16
    sums: an accumulator in TMEM, (TILE_M, TILE_P) f32
    accumulate: False for a tile's first stage, which overwrites the sums
    """
    plgpu.tcgen05_mma(sums, between, c.T, accumulate=accumulate)


# ==== The protocol ===============================================================================
def wait(full, step, stages: int):
    """A consumer's wait for the step-th stage; returns its place in the ring."""
    stage = lax.rem(step, jnp.int32(stages))
    plgpu.barrier_wait(full.at[stage])
    return stage


def acquire(empty, step, stages: int):
    """A producer's wait until the step-th stage is empty, as the first lap's are; its place."""
    stage = lax.rem(step, jnp.int32(stages))

    @pl.when(step >= stages)
    def _():
        plgpu.barrier_wait(empty.at[stage])

    return stage


def tail(empty, stages: int, steps):
    """Waits until the last lap's stages have been released: no arrive is left pending."""

    @pl.loop(lax.max(steps - stages, 0), steps)
    def _(step):
        plgpu.barrier_wait(empty.at[lax.rem(step, jnp.int32(stages))])


def custom_kernel(
    a_gmem,
    b_gmem,
    c_gmem,
    out_gmem,
    ab_a_smem,
    ab_b_smem,
    c_smem,
    scores_tmem,
    between_smem,
    acc_tmem,
    out_buffer,
    ab_full,
    ab_empty,
    c_full,
    c_empty,
    scores_full,
    scores_empty,
    between_full,
    between_empty,
    acc_full,
    acc_empty,
):
    tiles_m = pl.cdiv(out_gmem.shape[0], TILE_M)
    tiles_p = pl.cdiv(out_gmem.shape[1], TILE_P)
    tiles_n = pl.cdiv(b_gmem.shape[0], TILE_N)
    tiles_k = pl.cdiv(a_gmem.shape[1], TILE_K)
    first, grid = lax.axis_index("cta"), lax.axis_size("cta")
    # The CTA's tiles: the same number for every role, so that all barriers come to their end.
    trips = lax.div(tiles_m * tiles_p - first + grid - 1, grid)
    warpgroup = lax.axis_index("warpgroup")

    def tile_coord(trip):
        """Places of the tile that comes trip-th, RASTER_GROUP rows of tiles side by side."""
        tiles = (tiles_m, tiles_p)
        return plgpu.planar_snake(first + trip * grid, tiles, 0, RASTER_GROUP)

    # ---- round -------------------------------------------------------------------------------
    @pl.when(warpgroup == 0)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            @pl.loop(0, tiles_n)
            def _(n):
                n_step = trip * tiles_n + n
                scores_stage = wait(scores_full, n_step, SCORES_STAGES)
                between_stage = acquire(between_empty, n_step, BETWEEN_STAGES)
                round(
                    scores_tmem.at[:, pl.ds(scores_stage * TILE_N, TILE_N)],
                    between_smem.at[between_stage],
                )
                # Publishes to the async proxy too, by which TMA and tcgen05 read.
                plgpu.commit_smem()
                plgpu.barrier_arrive(between_full.at[between_stage])
                # The sums have left TMEM, which may be written again.
                plgpu.wait_load_tmem()
                plgpu.barrier_arrive(scores_empty.at[scores_stage])

        tail(between_empty, BETWEEN_STAGES, trips * tiles_n)

    # ---- epilogue ----------------------------------------------------------------------------
    @pl.when(warpgroup == 1)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            m, p = tile_coord(trip)
            acc_stage = wait(acc_full, trip, ACC_STAGES)
            # The last stores have read their buffers.
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            epilogue(acc_tmem.at[:, pl.ds(acc_stage * TILE_P, TILE_P)], out_buffer)
            # Publishes to the async proxy too, by which TMA and tcgen05 read.
            plgpu.commit_smem()
            # The sums have left TMEM, which may be written again.
            plgpu.wait_load_tmem()
            plgpu.barrier_arrive(acc_empty.at[acc_stage])
            plgpu.copy_smem_to_gmem(
                out_buffer, out_gmem.at[pl.ds(m * TILE_M, TILE_M), pl.ds(p * TILE_P, TILE_P)]
            )

        plgpu.wait_smem_to_gmem(0)

    # ---- load --------------------------------------------------------------------------------
    @pl.when(warpgroup == 2)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            m, p = tile_coord(trip)

            @pl.loop(0, tiles_n)
            def _(n):
                n_step = trip * tiles_n + n
                c_stage = acquire(c_empty, n_step, C_STAGES)
                plgpu.copy_gmem_to_smem(
                    c_gmem.at[pl.ds(p * TILE_P, TILE_P), pl.ds(n * TILE_N, TILE_N)],
                    c_smem.at[c_stage],
                    c_full.at[c_stage],
                )

                @pl.loop(0, tiles_k)
                def _(k):
                    k_step = n_step * tiles_k + k
                    ab_stage = acquire(ab_empty, k_step, AB_STAGES)
                    plgpu.copy_gmem_to_smem(
                        a_gmem.at[pl.ds(m * TILE_M, TILE_M), pl.ds(k * TILE_K, TILE_K)],
                        ab_a_smem.at[ab_stage],
                        ab_full.at[ab_stage],
                    )
                    plgpu.copy_gmem_to_smem(
                        b_gmem.at[pl.ds(n * TILE_N, TILE_N), pl.ds(k * TILE_K, TILE_K)],
                        ab_b_smem.at[ab_stage],
                        ab_full.at[ab_stage],
                    )

        tail(ab_empty, AB_STAGES, trips * tiles_n * tiles_k)
        tail(c_empty, C_STAGES, trips * tiles_n)

    # ---- score -------------------------------------------------------------------------------
    @pl.when(warpgroup == 3)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            @pl.loop(0, tiles_n)
            def _(n):
                n_step = trip * tiles_n + n
                scores_stage = acquire(scores_empty, n_step, SCORES_STAGES)
                sums = scores_tmem.at[:, pl.ds(scores_stage * TILE_N, TILE_N)]

                @pl.loop(0, tiles_k)
                def _(k):
                    k_step = n_step * tiles_k + k
                    ab_stage = wait(ab_full, k_step, AB_STAGES)
                    score(ab_a_smem.at[ab_stage], ab_b_smem.at[ab_stage], sums, k > 0)
                    # Nobody waits here: a commit arrives when the MMAs so far are done.
                    plgpu.tcgen05_commit_arrive(ab_empty.at[ab_stage])

                # Arrives once all MMAs of the sum are done.
                plgpu.tcgen05_commit_arrive(scores_full.at[scores_stage])

        tail(scores_empty, SCORES_STAGES, trips * tiles_n)

    # ---- second ------------------------------------------------------------------------------
    @pl.when(warpgroup == 4)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            acc_stage = acquire(acc_empty, trip, ACC_STAGES)
            sums = acc_tmem.at[:, pl.ds(acc_stage * TILE_P, TILE_P)]

            @pl.loop(0, tiles_n)
            def _(n):
                n_step = trip * tiles_n + n
                c_stage = wait(c_full, n_step, C_STAGES)
                between_stage = wait(between_full, n_step, BETWEEN_STAGES)
                second(between_smem.at[between_stage], c_smem.at[c_stage], sums, n > 0)
                # Nobody waits here: a commit arrives when the MMAs so far are done.
                plgpu.tcgen05_commit_arrive(c_empty.at[c_stage])
                plgpu.tcgen05_commit_arrive(between_empty.at[between_stage])

            # Arrives once all MMAs of the sum are done.
            plgpu.tcgen05_commit_arrive(acc_full.at[acc_stage])

        tail(acc_empty, ACC_STAGES, trips)


def swizzled(columns: int, width: int):
    """SMEM as TMA and tcgen05 have it: blocks of 8 rows x one swizzle of `width` bytes."""
    return plgpu.TilingTransform((8, columns)), plgpu.SwizzleTransform(width)


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(a, b, c, sm_count: int, interpret=None):
    """`custom` of operands that are known to be right. Compiles once for each shape."""
    m, p = a.shape[0], c.shape[0]
    kernel = plgpu.kernel(
        custom_kernel,
        out_type=[
            jax.ShapeDtypeStruct(round_up((m, p), (8, 32)), OUT_DTYPE),
        ],
        scratch_types=[
            plgpu.SMEM((AB_STAGES, TILE_M, TILE_K), jnp.bfloat16, transforms=swizzled(64, 128)),
            plgpu.SMEM((AB_STAGES, TILE_N, TILE_K), jnp.bfloat16, transforms=swizzled(64, 128)),
            plgpu.SMEM((C_STAGES, TILE_P, TILE_N), jnp.bfloat16, transforms=swizzled(64, 128)),
            plgpu.TMEM((TILE_M, SCORES_STAGES * TILE_N), jnp.float32),
            plgpu.SMEM(
                (BETWEEN_STAGES, TILE_M, TILE_N), jnp.bfloat16, transforms=swizzled(64, 128)
            ),
            plgpu.TMEM((TILE_M, ACC_STAGES * TILE_P), jnp.float32),
            plgpu.SMEM((TILE_M, TILE_P), OUT_DTYPE, transforms=swizzled(32, 128)),
            plgpu.Barrier(num_arrivals=AB_FULL, num_barriers=AB_STAGES),
            plgpu.Barrier(num_arrivals=AB_EMPTY, num_barriers=AB_STAGES, orders_tensor_core=True),
            plgpu.Barrier(num_arrivals=C_FULL, num_barriers=C_STAGES),
            plgpu.Barrier(num_arrivals=C_EMPTY, num_barriers=C_STAGES, orders_tensor_core=True),
            plgpu.Barrier(
                num_arrivals=SCORES_FULL, num_barriers=SCORES_STAGES, orders_tensor_core=True
            ),
            plgpu.Barrier(
                num_arrivals=SCORES_EMPTY, num_barriers=SCORES_STAGES, orders_tensor_core=True
            ),
            plgpu.Barrier(num_arrivals=BETWEEN_FULL, num_barriers=BETWEEN_STAGES),
            plgpu.Barrier(
                num_arrivals=BETWEEN_EMPTY, num_barriers=BETWEEN_STAGES, orders_tensor_core=True
            ),
            plgpu.Barrier(num_arrivals=ACC_FULL, num_barriers=ACC_STAGES, orders_tensor_core=True),
            plgpu.Barrier(num_arrivals=ACC_EMPTY, num_barriers=ACC_STAGES, orders_tensor_core=True),
        ],
        grid=(sm_count,),
        grid_names=("cta",),
        num_threads=5,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret,
    )
    # Blocks of swizzles are whole, and vectors whole tiles; a tile may go beyond the matrix's edge.
    (out,) = kernel(
        pad(a, (8, 64)),
        pad(b, (8, 64)),
        pad(c, (8, 64)),
    )
    return [
        out[:m, :p],
    ]


def round_up(sizes, block):
    """The sizes of the smallest array of whole blocks that holds one of `sizes`."""
    return tuple(pl.cdiv(size, step) * step for size, step in zip(sizes, block))


def pad(x, block):
    """x with zeros up to whole blocks; x itself where it ends with one."""
    return jnp.pad(x, [(0, -size % step) for size, step in zip(x.shape, block)])


def check_operands(a, b, c):
    """Raises if `custom` cannot take these operands, naming what is wrong."""
    operands = {
        "a": (a, A_DTYPE, "MK"),
        "b": (b, B_DTYPE, "NK"),
        "c": (c, C_DTYPE, "PN"),
    }
    sizes = {}
    for name, (each, dtype, symbols) in operands.items():
        if each.dtype != dtype:
            raise TypeError(f"{name}.dtype={each.dtype}: must be {jnp.dtype(dtype).name}")
        if each.ndim != len(symbols) or 0 in each.shape:
            raise ValueError(f"{name}.shape={each.shape}: must be ({', '.join(symbols)}), from 1")
        for symbol, size in zip(symbols, each.shape):
            if sizes.setdefault(symbol, size) != size:
                raise ValueError(f"{name}.shape={each.shape}: {symbol} is {sizes[symbol]} before")


def custom(a, b, c):
    """Returns [out] from a, b, c:
    a is (M, K), b is (N, K), c is (P, N), out is (M, P).

    Runs on JAX's default device, and within a jax.jit too.
    """
    check_operands(a, b, c)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "10.0":
        raise ValueError(f"jax.devices()[0]={device}: must be a B200")
    return launch(a, b, c, sm_count=device.core_count)


def reference(a, b, c):
    """What `custom` should return, in float64, by name; takes numpy's float64 arrays."""
    return {
        "out": ((a @ b.T) @ c.T),
    }


def check(run, m: int, n: int, k: int, p: int) -> bool:
    """Compares one size with the reference. `run` is `custom` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    inputs = [
        jnp.asarray(rng.standard_normal((m, k), np.float32), A_DTYPE),
        jnp.asarray(rng.standard_normal((n, k), np.float32), B_DTYPE),
        jnp.asarray(rng.standard_normal((p, n), np.float32), C_DTYPE),
    ]
    check_operands(*inputs)
    expected = reference(*(np.asarray(each).astype(np.float64) for each in inputs))
    elements = sum(each.size for each in (*expected.values(), *inputs))
    # XLA takes the results from freed memory: most likely from this, as large as all arrays. What
    # is not written stays 0xff, NaN in every type of float. Best effort: no allocator promises it.
    jnp.full(8 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
    passed = True
    for (name, wanted), out in zip(expected.items(), run(*inputs)):
        out = np.asarray(out).astype(np.float64)
        difference = np.abs(out - wanted)
        error = np.linalg.norm(difference) / np.linalg.norm(wanted)
        worst = np.max(difference) / np.max(np.abs(wanted))
        right = bool(error <= TOLERANCE and worst <= WORST)  # never true for NaN
        verdict = f"relative error {error:.1e} (limit {TOLERANCE:.0e}), "
        verdict += f"of an element {worst:.1e} ({WORST:.0e})"
        passed = passed and right
        print(f"{'PASS' if right else 'FAIL'} {m=} {n=} {k=} {p=} {name}: {verdict}")
    return passed


def compile_only(m: int, n: int, k: int, p: int):
    """Compiles `launch` to a cubin for a GPU that need not be there."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        "gpu",
        "cuda",
        topology="1x1x1",
        # What XLA asks a GPU about itself (a text-format GpuTargetConfigProto).
        target_config="""
            platform_name: "CUDA"
            gpu_device_info {
              cuda_compute_capability { major: 10 minor: 0 }
              core_count: 148
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
    shapes = [
        (m, k),
        (n, k),
        (p, n),
    ]
    operands = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
        for shape, dtype in zip(
            shapes,
            (
                A_DTYPE,
                B_DTYPE,
                C_DTYPE,
            ),
        )
    ]
    launch.trace(*operands, sm_count=device.core_count).lower().compile()


def size(text: str) -> tuple:
    m, n, k, p = map(int, text.split(","))
    return m, n, k, p


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--interpret", action="store_true", help="runs on the CPU")
    parser.add_argument("--size", type=size, metavar="M,N,K,P", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        jax.config.update("jax_platforms", "cpu")  # look for no GPU
        for sizes in arguments.size or [(4096, 4096, 4096, 4096)]:
            compile_only(*sizes)
        print("PASS compiles for sm_100a")
        return 0
    if arguments.interpret:
        if not hasattr(plgpu, "InterpretGPUParams"):
            print(f"SKIP jax {jax.__version__} has no public interpreter, 0.11 has")
            return 0
        jax.config.update("jax_platforms", "cpu")
        # Few CTAs, so that each takes several tiles. Prints "RACE DETECTED" if there is one.
        interpret = plgpu.InterpretGPUParams(detect_races=True)
        run = functools.partial(launch, sm_count=2, interpret=interpret)
    elif getattr(jax.devices()[0], "compute_capability", "") != "10.0":
        print("SKIP no GPU of compute capability 10.0 (--compile-only works without)")
        return 0
    else:
        run = custom
    few = [
        (TILE_M, TILE_N, TILE_K, TILE_P),
        (TILE_M * 3 - 5, TILE_N * 2 - 9, TILE_K * 5 - 13, TILE_P * 2 - 3),
    ]
    many = (
        []
        if arguments.interpret
        else [(TILE_M * 33 - 5, TILE_N * 5 - 9, TILE_K * 3 - 13, TILE_P * 7 - 3)]
    )
    try:
        passed = [check(run, *sizes) for sizes in arguments.size or few + many]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
