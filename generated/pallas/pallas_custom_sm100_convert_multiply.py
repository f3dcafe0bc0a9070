# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | pallas | sm_100a
# template: pallas/custom_multiply_sm100.py.j2 c716a97a7135
# text: 7ea1b31b4184
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "pallas"
#   arch = "sm_100a"
#   name = "pallas_custom_sm100_convert_multiply"
#
#   [tensor.x]
#   shape = "M, K"
#   read = "load"
#
#   [tensor.w]
#   shape = "N, K"
#   dtype = "i8"
#   read = "load"
#
#   [tensor.scale]
#   shape = "N"
#   dtype = "f32"
#   read = "load"
#
#   [tensor.out]
#   shape = "M, N"
#   write = "store"
#   expect = "(x @ w.T) * scale"
#
#   [pipeline.x]
#   edge = "load -> multiply"
#
#   [pipeline.w]
#   edge = "load -> convert"
#
#   [pipeline.wide]
#   edge = "convert -> multiply"
#   dtype = "bf16"
#
#   [pipeline.scale]
#   edge = "load -> epilogue"
#
#   [pipeline.acc]
#   edge = "multiply -> epilogue"
#
#   [pipeline.done]
#   edge = "epilogue -> store"
#   dtype = "bf16"
#
#   [role.multiply]
#   kind = "umma"
#
#   [role.store]
#   kind = "tma_store"
#
#   [role.epilogue]
#   body = """for piece in range(TILE_N // PIECE):
#       columns = pl.ds(piece * PIECE, PIECE)
#       sums = plgpu.async_load_tmem(acc.at[:, columns])
#       scaled = sums * across_rows(scale.at[columns], (TILE_M, PIECE))
#       done[:, columns] = scaled.astype(done.dtype)
#   """
"""A custom graph of roles that multiply, for Blackwell (sm_100a) in Pallas (Mosaic GPU).

A CTA takes tiles of TILE_M x TILE_N of the result, one after the other, and for each walks over K
in steps of TILE_K. Every role has its own loops; rings of SMEM and TMEM stages connect the roles,
each filled as often as its tiles change. What a role computes is its body, a function under
"Yours": replacing it never touches the protocol. Compiled and emulated, never run: no Blackwell
GPU was at hand when this was written.

Roles
  epilogue             warpgroup 0       computes: scale, acc -> done, once a tile
  convert              warpgroup 1       computes: w -> wide, at each step of K
  load                 warpgroup 2       loads by TMA: x, w, scale -> x, w, scale, at each step of
                       K
  multiply             warpgroup 3       multiplies: x @ wide.T -> acc, tcgen05 at each step of K
  store                warpgroup 4       stores by TMA: done -> out, once a tile

Pipelines (plgpu.Barrier)
  ring                 stages  a stage is full, and empty, after
  x                    4       1 copy, 1 commit
  w                    4       1 copy, 1 warpgroup
  wide                 4       1 warpgroup, 1 commit
  scale                1       1 copy, 1 warpgroup
  acc                  2       1 commit, 1 warpgroup
  done                 1       1 warpgroup, 1 warpgroup

  x                    load -> multiply, at each step of K
  w                    load -> convert, at each step of K
  wide                 convert -> multiply, at each step of K
  scale                load -> epilogue, once a tile
  acc                  multiply -> epilogue, once a tile
  done                 epilogue -> store, once a tile

Timeline of a CTA
  epilogue             each tile: wait scale, wait acc, fill done, release scale, release acc
  convert              each step of K: wait w, fill wide, release w
  load                 each tile: fill scale; each step of K: fill x, fill w
  multiply             each tile: fill acc; each step of K: wait x, wait wide, multiply, release
                       x, release wide
  store                each tile: wait done, store out, release done

Constraints
  x is (M, K), w is (N, K), scale is (N,), out is (M, N).
  Any sizes from 1. Used in place where rows are a multiple of 8 and columns of a swizzle; others
  are padded by a copy first, or cut after it.

Run
  python pallas_custom_sm100_convert_multiply.py
  compares with numpy, on a B200; --compile-only and --interpret need no GPU.
"""

import argparse
import functools
import inspect
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

X_DTYPE = jnp.bfloat16
W_DTYPE = jnp.int8
SCALE_DTYPE = jnp.float32
OUT_DTYPE = jnp.bfloat16

TILE_M, TILE_N, TILE_K = 128, 128, 64  # elements of a tile; 197892 B of SMEM a CTA
RASTER_GROUP = 8  # rows of tiles walked together, for L2
# x: load -> multiply, at each step of K
X_STAGES = 4
X_FULL, X_EMPTY = 1, 1  # arrivals of copies, of commits
# w: load -> convert, at each step of K
W_STAGES = 4
W_FULL, W_EMPTY = 1, 1  # arrivals of copies, of warpgroups
# wide: convert -> multiply, at each step of K
WIDE_STAGES = 4
WIDE_FULL, WIDE_EMPTY = 1, 1  # arrivals of warpgroups, of commits
# scale: load -> epilogue, once a tile
SCALE_STAGES = 1
SCALE_FULL, SCALE_EMPTY = 1, 1  # arrivals of copies, of warpgroups
# acc: multiply -> epilogue, once a tile
ACC_STAGES = 2
ACC_FULL, ACC_EMPTY = 1, 1  # arrivals of commits, of warpgroups
# done: epilogue -> store, once a tile
DONE_STAGES = 1
DONE_FULL, DONE_EMPTY = 1, 1  # arrivals of warpgroups, of warpgroups
PIECE = 64  # columns of an accumulator that a body takes from TMEM at a time
TOLERANCE = 1e-2  # relative error, Frobenius norm
# Largest error of an element over the largest of all; bf16 rounds by up to 2**-8 at each step.
WORST = 2e-2

# jax 0.10 wants the index of a load apart from its ref, which later versions refuse.
WHOLE = (...,) if "idx" in inspect.signature(plgpu.load).parameters else ()


# ==== Yours: the bodies ==========================================================================
def epilogue(scale, acc, done):
    """Yours.

    scale: a stage to read, (TILE_N) f32
    acc: a stage to read, (TILE_M, TILE_N) f32 in TMEM, by plgpu.async_load_tmem
    done: to write, (TILE_M, TILE_N) bf16
    """
    for piece in range(TILE_N // PIECE):
        columns = pl.ds(piece * PIECE, PIECE)
        sums = plgpu.async_load_tmem(acc.at[:, columns])
        scaled = sums * across_rows(scale.at[columns], (TILE_M, PIECE))
        done[:, columns] = scaled.astype(done.dtype)


def convert(w, wide):
    """Yours; as written, the identity.

    w: a stage to read, (TILE_N, TILE_K) i8
    wide: to write, (TILE_N, TILE_K) bf16
    """
    values = w[...].astype(jnp.float32)
    wide[...] = values.astype(wide.dtype)


def multiply(x, wide, sums, accumulate):
    """Yours; as written, sums += x @ wide.T by tcgen05.

    x: a stage, (TILE_M, TILE_K) bf16
    wide: a stage, (TILE_N, TILE_K) bf16
    sums: an accumulator in TMEM, (TILE_M, TILE_N) f32
    accumulate: False for a tile's first stage, which overwrites the sums
    """
    plgpu.tcgen05_mma(sums, x, wide.T, accumulate=accumulate)


def layout_of(shape):
    """How a warpgroup's registers hold a tile: as TMEM gives 128 rows, else as 64 for wgmma."""
    return plgpu.Layout.TCGEN05 if shape[0] % 128 == 0 else plgpu.Layout.WGMMA


def across_rows(ref, shape):
    """A vector of columns, repeated for each row of a tile, in tcgen05's layout."""
    row = plgpu.load(ref, *WHOLE, layout=layout_of(shape).reduce(0), optimized=False)
    return lax.broadcast_in_dim(row, shape, (1,))


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
    x_gmem,
    w_gmem,
    scale_gmem,
    out_gmem,
    x_smem,
    w_smem,
    wide_smem,
    scale_smem,
    acc_tmem,
    done_smem,
    x_full,
    x_empty,
    w_full,
    w_empty,
    wide_full,
    wide_empty,
    scale_full,
    scale_empty,
    acc_full,
    acc_empty,
    done_full,
    done_empty,
):
    tiles_m = pl.cdiv(out_gmem.shape[0], TILE_M)
    tiles_n = pl.cdiv(out_gmem.shape[1], TILE_N)
    tiles_k = pl.cdiv(x_gmem.shape[1], TILE_K)
    first, grid = lax.axis_index("cta"), lax.axis_size("cta")
    # The CTA's tiles: the same number for every role, so that all barriers come to their end.
    trips = lax.div(tiles_m * tiles_n - first + grid - 1, grid)
    warpgroup = lax.axis_index("warpgroup")

    def tile_coord(trip):
        """Places of the tile that comes trip-th, RASTER_GROUP rows of tiles side by side."""
        tiles = (tiles_m, tiles_n)
        return plgpu.planar_snake(first + trip * grid, tiles, 0, RASTER_GROUP)

    # ---- epilogue ----------------------------------------------------------------------------
    @pl.when(warpgroup == 0)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            scale_stage = wait(scale_full, trip, SCALE_STAGES)
            acc_stage = wait(acc_full, trip, ACC_STAGES)
            done_stage = acquire(done_empty, trip, DONE_STAGES)
            epilogue(
                scale_smem.at[scale_stage],
                acc_tmem.at[:, pl.ds(acc_stage * TILE_N, TILE_N)],
                done_smem.at[done_stage],
            )
            # Publishes to the async proxy too, by which TMA and tcgen05 read.
            plgpu.commit_smem()
            plgpu.barrier_arrive(done_full.at[done_stage])
            # The sums have left TMEM, which may be written again.
            plgpu.wait_load_tmem()
            plgpu.barrier_arrive(scale_empty.at[scale_stage])
            plgpu.barrier_arrive(acc_empty.at[acc_stage])

        tail(done_empty, DONE_STAGES, trips)

    # ---- convert -----------------------------------------------------------------------------
    @pl.when(warpgroup == 1)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            @pl.loop(0, tiles_k)
            def _(k):
                k_step = trip * tiles_k + k
                w_stage = wait(w_full, k_step, W_STAGES)
                wide_stage = acquire(wide_empty, k_step, WIDE_STAGES)
                convert(w_smem.at[w_stage], wide_smem.at[wide_stage])
                # Publishes to the async proxy too, by which TMA and tcgen05 read.
                plgpu.commit_smem()
                plgpu.barrier_arrive(wide_full.at[wide_stage])
                plgpu.barrier_arrive(w_empty.at[w_stage])

        tail(wide_empty, WIDE_STAGES, trips * tiles_k)

    # ---- load --------------------------------------------------------------------------------
    @pl.when(warpgroup == 2)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            m, n = tile_coord(trip)
            scale_stage = acquire(scale_empty, trip, SCALE_STAGES)
            plgpu.copy_gmem_to_smem(
                scale_gmem.at[pl.ds(n * TILE_N, TILE_N)],
                scale_smem.at[scale_stage],
                scale_full.at[scale_stage],
            )

            @pl.loop(0, tiles_k)
            def _(k):
                k_step = trip * tiles_k + k
                x_stage = acquire(x_empty, k_step, X_STAGES)
                plgpu.copy_gmem_to_smem(
                    x_gmem.at[pl.ds(m * TILE_M, TILE_M), pl.ds(k * TILE_K, TILE_K)],
                    x_smem.at[x_stage],
                    x_full.at[x_stage],
                )
                w_stage = acquire(w_empty, k_step, W_STAGES)
                plgpu.copy_gmem_to_smem(
                    w_gmem.at[pl.ds(n * TILE_N, TILE_N), pl.ds(k * TILE_K, TILE_K)],
                    w_smem.at[w_stage],
                    w_full.at[w_stage],
                )

        tail(x_empty, X_STAGES, trips * tiles_k)
        tail(w_empty, W_STAGES, trips * tiles_k)
        tail(scale_empty, SCALE_STAGES, trips)

    # ---- multiply ----------------------------------------------------------------------------
    @pl.when(warpgroup == 3)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            acc_stage = acquire(acc_empty, trip, ACC_STAGES)
            sums = acc_tmem.at[:, pl.ds(acc_stage * TILE_N, TILE_N)]

            @pl.loop(0, tiles_k)
            def _(k):
                k_step = trip * tiles_k + k
                x_stage = wait(x_full, k_step, X_STAGES)
                wide_stage = wait(wide_full, k_step, WIDE_STAGES)
                multiply(x_smem.at[x_stage], wide_smem.at[wide_stage], sums, k > 0)
                # Nobody waits here: a commit arrives when the MMAs so far are done.
                plgpu.tcgen05_commit_arrive(x_empty.at[x_stage])
                plgpu.tcgen05_commit_arrive(wide_empty.at[wide_stage])

            # Arrives once all MMAs of the sum are done.
            plgpu.tcgen05_commit_arrive(acc_full.at[acc_stage])

        tail(acc_empty, ACC_STAGES, trips)

    # ---- store -------------------------------------------------------------------------------
    @pl.when(warpgroup == 4)
    def _():
        @pl.loop(0, trips)
        def _(trip):
            m, n = tile_coord(trip)
            done_stage = wait(done_full, trip, DONE_STAGES)
            plgpu.copy_smem_to_gmem(
                done_smem.at[done_stage],
                out_gmem.at[pl.ds(m * TILE_M, TILE_M), pl.ds(n * TILE_N, TILE_N)],
            )
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            plgpu.barrier_arrive(done_empty.at[done_stage])

        plgpu.wait_smem_to_gmem(0)


def swizzled(columns: int, width: int):
    """SMEM as TMA and tcgen05 have it: blocks of 8 rows x one swizzle of `width` bytes."""
    return plgpu.TilingTransform((8, columns)), plgpu.SwizzleTransform(width)


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(x, w, scale, sm_count: int, interpret=None):
    """`custom` of operands that are known to be right. Compiles once for each shape."""
    m, n = x.shape[0], w.shape[0]
    kernel = plgpu.kernel(
        custom_kernel,
        out_type=[
            jax.ShapeDtypeStruct(round_up((m, n), (8, 64)), OUT_DTYPE),
        ],
        scratch_types=[
            plgpu.SMEM((X_STAGES, TILE_M, TILE_K), jnp.bfloat16, transforms=swizzled(64, 128)),
            plgpu.SMEM((W_STAGES, TILE_N, TILE_K), jnp.int8, transforms=swizzled(64, 64)),
            plgpu.SMEM((WIDE_STAGES, TILE_N, TILE_K), jnp.bfloat16, transforms=swizzled(64, 128)),
            plgpu.SMEM((SCALE_STAGES, TILE_N), jnp.float32),
            plgpu.TMEM((TILE_M, ACC_STAGES * TILE_N), jnp.float32),
            plgpu.SMEM((DONE_STAGES, TILE_M, TILE_N), jnp.bfloat16, transforms=swizzled(64, 128)),
            plgpu.Barrier(num_arrivals=X_FULL, num_barriers=X_STAGES),
            plgpu.Barrier(num_arrivals=X_EMPTY, num_barriers=X_STAGES, orders_tensor_core=True),
            plgpu.Barrier(num_arrivals=W_FULL, num_barriers=W_STAGES),
            plgpu.Barrier(num_arrivals=W_EMPTY, num_barriers=W_STAGES),
            plgpu.Barrier(num_arrivals=WIDE_FULL, num_barriers=WIDE_STAGES),
            plgpu.Barrier(
                num_arrivals=WIDE_EMPTY, num_barriers=WIDE_STAGES, orders_tensor_core=True
            ),
            plgpu.Barrier(num_arrivals=SCALE_FULL, num_barriers=SCALE_STAGES),
            plgpu.Barrier(num_arrivals=SCALE_EMPTY, num_barriers=SCALE_STAGES),
            plgpu.Barrier(num_arrivals=ACC_FULL, num_barriers=ACC_STAGES, orders_tensor_core=True),
            plgpu.Barrier(num_arrivals=ACC_EMPTY, num_barriers=ACC_STAGES, orders_tensor_core=True),
            plgpu.Barrier(num_arrivals=DONE_FULL, num_barriers=DONE_STAGES),
            plgpu.Barrier(num_arrivals=DONE_EMPTY, num_barriers=DONE_STAGES),
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
        pad(x, (8, 64)),
        pad(w, (8, 64)),
        pad(scale, (TILE_N,)),
    )
    return [
        out[:m, :n],
    ]


def round_up(sizes, block):
    """The sizes of the smallest array of whole blocks that holds one of `sizes`."""
    return tuple(pl.cdiv(size, step) * step for size, step in zip(sizes, block))


def pad(x, block):
    """x with zeros up to whole blocks; x itself where it ends with one."""
    return jnp.pad(x, [(0, -size % step) for size, step in zip(x.shape, block)])


def check_operands(x, w, scale):
    """Raises if `custom` cannot take these operands, naming what is wrong."""
    operands = {
        "x": (x, X_DTYPE, "MK"),
        "w": (w, W_DTYPE, "NK"),
        "scale": (scale, SCALE_DTYPE, "N"),
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


def custom(x, w, scale):
    """Returns [out] from x, w, scale:
    x is (M, K), w is (N, K), scale is (N,), out is (M, N).

    Runs on JAX's default device, and within a jax.jit too.
    """
    check_operands(x, w, scale)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "10.0":
        raise ValueError(f"jax.devices()[0]={device}: must be a B200")
    return launch(x, w, scale, sm_count=device.core_count)


def reference(x, w, scale):
    """What `custom` should return, in float64, by name; takes numpy's float64 arrays."""
    return {
        "out": (x @ w.T) * scale,
    }


def check(run, m: int, n: int, k: int) -> bool:
    """Compares one size with the reference. `run` is `custom` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    inputs = [
        jnp.asarray(rng.standard_normal((m, k), np.float32), X_DTYPE),
        jnp.asarray(rng.integers(-100, 101, (n, k)), W_DTYPE),
        jnp.asarray(rng.standard_normal((n,), np.float32), SCALE_DTYPE),
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
        print(f"{'PASS' if right else 'FAIL'} {m=} {n=} {k=} {name}: {verdict}")
    return passed


def compile_only(m: int, n: int, k: int):
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
        (n,),
    ]
    operands = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
        for shape, dtype in zip(
            shapes,
            (
                X_DTYPE,
                W_DTYPE,
                SCALE_DTYPE,
            ),
        )
    ]
    launch.trace(*operands, sm_count=device.core_count).lower().compile()


def size(text: str) -> tuple:
    m, n, k = map(int, text.split(","))
    return m, n, k


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--interpret", action="store_true", help="runs on the CPU")
    parser.add_argument("--size", type=size, metavar="M,N,K", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        jax.config.update("jax_platforms", "cpu")  # look for no GPU
        for sizes in arguments.size or [(4096, 4096, 4096)]:
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
    few = [(TILE_M, TILE_N, TILE_K), (TILE_M * 3 - 5, TILE_N * 2 - 9, TILE_K * 5 - 13)]
    many = [] if arguments.interpret else [(TILE_M * 33 - 5, TILE_N * 5 - 9, TILE_K * 3 - 13)]
    try:
        passed = [check(run, *sizes) for sizes in arguments.size or few + many]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
