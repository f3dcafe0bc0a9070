# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | pallas | sm_90a
# template: pallas/gemm_sm90_pallas_call.py.j2 6293241e46b0
# text: 6d063237d61f
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2; interpreted with 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "pallas"
#   arch = "sm_90a"
#   name = "pallas_gemm_sm90_pallas_call_f16_f32_out_64x256"
#   style = "pallas-call"
#
#   [dtype]
#   a = "f16"
#   out = "f32"
#
#   [tile]
#   m = 64
#   n = 256
"""GEMM for Hopper (sm_90a) in JAX Pallas (Mosaic GPU): f16 x f16 -> f32 -> f32.

out[l] = A[l] @ B[l].T, behind pl.pallas_call: the entry point that Pallas kernels for TPUs have. A
CTA is one warpgroup that loads, multiplies and stores one output tile of 64 x 256. Two CTAs
share an SM: one's wgmma runs while the other waits for its own.

Roles of a CTA's 128 threads (one Pallas thread is a warpgroup: 128 threads)
  producer  one thread of the warpgroup issues the TMA loads, between two wgmma
  consumer  the warpgroup: wgmma, then the epilogue, with one thread that issues the TMA stores

Grid (dimension_semantics)
  K tiles       sequential: a CTA walks them in order, and pallas_call makes them a pipeline
  output tiles  parallel: one CTA each

Pipelines
            producer -> consumer  stages  full barrier             empty barrier
  mainloop  TMA -> wgmma          2       256 arrives + 40960 B    none
  epilogue  threads -> TMA store  4       none                     none

  mainloop  max_concurrent_steps. Filled by one A and one B tile: for each, all 128 threads arrive
            and arm their share of its bytes, and the phase completes when the last byte has landed.
            Emptied by wgmma_wait(0): producer and consumer are one instruction stream, and program
            order takes the place of a barrier. A stage is filled again right after its own step:
            pallas_call drops delay_release, so no wgmma may be left in flight.
  epilogue  plgpu.copy_smem_to_gmem. Filled by the warpgroup, 8192 B at a time. No barriers: each
            copy is a bulk group, and fewer than there are buffers (4) may still read SMEM when
            the oldest buffer is written again.

Timeline of a CTA (K tiles k0, k1, ...; S = 2 stages)
  loads   k0 ... k(S-1) |        | kS     | k(S+1) | ...
  wgmma                 | mma k0 | mma k1 | mma k2 | ... | epilogue
  stores                                                 | pieces of the tile

Constraints
  a is (L, M, K), b is (L, N, K), the result is (L, M, N); or all three without L. Any M, N,
  K, L from 1. Used in place where rows are a multiple of 8 and columns of 128 B (operands) or
  128 B (result, twice as many or more); others are padded by a copy first, or cut after it.
  jax 0.10 only, which warns that this is deprecated: from 0.11 on pl.pallas_call does not reach
  Mosaic GPU. pipegen's styles emit-pipeline and warp-specialized run with every jax from 0.10.2.

Run
  python pallas_gemm_sm90_pallas_call_f16_f32_out_64x256.py
      compares with float64 on an H100 or H200
  python pallas_gemm_sm90_pallas_call_f16_f32_out_64x256.py --interpret
      the same on a CPU, with race detection (from jax 0.11 on, through jax's own stand-in)
  python pallas_gemm_sm90_pallas_call_f16_f32_out_64x256.py --compile-only
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

A_DTYPE, B_DTYPE = jnp.float16, jnp.float16
ACC_DTYPE, OUT_DTYPE = jnp.float32, jnp.float32

TILE_M, TILE_N, TILE_K = 64, 256, 64  # CTA tile, elements; 128 registers a thread: 64 * 256 / 128
RASTER_GROUP = 8  # tile rows walked together, for L2

MAINLOOP_STAGES = 2  # (115712 - 8192) // 40968
# Of the grid's dimensions: K tiles, output tiles.
DIMENSION_SEMANTICS = ("sequential", "parallel")

EPI_TILE_M, EPI_TILE_N = 64, 32  # elements of one store, 8192 B
EPI_SUBTILES = 8  # 256 / 32
EPI_STAGES = 4

# SMEM as TMA writes it and wgmma reads it: dense blocks of 8 rows x one swizzle (bytes).
# 114704 B in all: 2 * 40960 + 4 * 8192 + 16
MMA_BLOCK = (8, 64)  # 128 B of 2 B elements
MMA_LAYOUT = (plgpu.TilingTransform(MMA_BLOCK), plgpu.SwizzleTransform(128))
OUT_BLOCK = (8, 32)  # 128 B of 4 B elements
OUT_LAYOUT = (plgpu.TilingTransform(OUT_BLOCK), plgpu.SwizzleTransform(128))
TOLERANCE = 1e-3  # relative error, Frobenius norm
# Largest error of an element over the rms of all; an element of 6 rms may be 6 times as far off.
WORST = 6e-3


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


def tile_grid(out_shape):
    """Output tiles along M and along N."""
    return pl.cdiv(out_shape[1], TILE_M), pl.cdiv(out_shape[2], TILE_N)


def tile_coord(index, out_shape):
    """(m, n, batch) of the output tile that comes index-th.

    RASTER_GROUP rows are walked together, column by column: what runs at one time is nearly a
    square of the output, which reads the least of A and B.
    """
    grid_m, grid_n = tile_grid(out_shape)
    batch = lax.div(index, jnp.int32(grid_m * grid_n))
    index = lax.rem(index, jnp.int32(grid_m * grid_n))
    m, n = plgpu.planar_snake(index, (grid_m, grid_n), 0, RASTER_GROUP)
    return m, n, batch


def gemm_kernel(a_smem, b_smem, out_gmem, acc_ref):
    """One step: K tile program_id(0) of the output tile that comes program_id(1)-th."""
    # ---------------------------------------------------------------------------------------------
    # Producer and consumer: mainloop
    # ---------------------------------------------------------------------------------------------
    # pallas_call waits for the step's stage before, and fills it for a later one after.
    plgpu.wgmma(acc_ref, a_smem, b_smem.T)
    plgpu.wgmma_wait(0)

    # ---------------------------------------------------------------------------------------------
    # Consumer: epilogue
    # ---------------------------------------------------------------------------------------------
    @pl.when(pl.program_id(0) == pl.num_programs(0) - 1)
    def last_step():
        m, n, batch = tile_coord(pl.program_id(1), out_gmem.shape)
        acc = acc_ref[...]

        def epilogue(out_smem):
            for subtile in range(EPI_SUBTILES):
                sub_n = subtile * EPI_TILE_N
                out_m, out_n = m * TILE_M, n * TILE_N + sub_n
                acc_sub = epilogue_op(acc[:, sub_n : sub_n + EPI_TILE_N], out_m, out_n, batch)
                buffer = out_smem.at[subtile % EPI_STAGES]
                # The buffer's last store has read it once this few are left.
                plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)
                buffer[...] = acc_sub.astype(OUT_DTYPE)
                # TMA reads SMEM through the async proxy: publish to it first.
                plgpu.commit_smem()
                # TMA leaves out what lies outside of an edge tile.
                out_tile = out_gmem.at[batch, pl.ds(out_m, EPI_TILE_M), pl.ds(out_n, EPI_TILE_N)]
                plgpu.copy_smem_to_gmem(buffer, out_tile)
            # SMEM must outlive the stores that read it.
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)

        buffers = (EPI_STAGES, EPI_TILE_M, EPI_TILE_N)
        pl.run_scoped(epilogue, plgpu.SMEM(buffers, OUT_DTYPE, transforms=OUT_LAYOUT))


@functools.partial(jax.jit, static_argnames="pallas_call")
def launch(a, b, pallas_call=pl.pallas_call):
    """`gemm` of operands in three dimensions, known to be right. Compiles once for each shape."""
    batches, m, _ = a.shape
    _, n, _ = b.shape
    a, b = pad(a, MMA_BLOCK), pad(b, MMA_BLOCK)
    # Two blocks of columns or more: Mosaic GPU copies a lone one without its index, and a store
    # beyond the edge would land on it.
    out_shape = (batches, *round_up((m, max(n, OUT_BLOCK[1] + 1)), OUT_BLOCK))
    grid_m, grid_n = tile_grid(out_shape)

    def a_block(k, tile):
        m, _, batch = tile_coord(tile, out_shape)
        return batch, m, k  # counts tiles

    def b_block(k, tile):
        _, n, batch = tile_coord(tile, out_shape)
        return batch, n, k

    kernel = pallas_call(
        gemm_kernel,
        out_shape=jax.ShapeDtypeStruct(out_shape, OUT_DTYPE),
        # K first: of a parallel dimension with a sequential one behind it, program_id is the index
        # along another axis (jax 0.10.2).
        grid=(pl.cdiv(a.shape[2], TILE_K), batches * grid_m * grid_n),
        in_specs=[
            plgpu.BlockSpec((None, TILE_M, TILE_K), a_block, transforms=MMA_LAYOUT),
            plgpu.BlockSpec((None, TILE_N, TILE_K), b_block, transforms=MMA_LAYOUT),
        ],
        # Stored by the epilogue, in pieces: a block of it would take SMEM for every stage.
        out_specs=plgpu.BlockSpec(memory_space=plgpu.GMEM),
        scratch_shapes=[plgpu.ACC((TILE_M, TILE_N), ACC_DTYPE)],  # starts at zero
        compiler_params=plgpu.CompilerParams(
            dimension_semantics=DIMENSION_SEMANTICS,
            max_concurrent_steps=MAINLOOP_STAGES,
            lowering_semantics=plgpu.LoweringSemantics.Warpgroup,
        ),
    )
    return kernel(a, b)[:, :m, :n]


def round_up(sizes, block):
    """The sizes of the smallest matrix of whole blocks that holds one of `sizes`."""
    return tuple(pl.cdiv(size, step) * step for size, step in zip(sizes, block))


def pad(x, block):
    """x with zeros up to whole blocks; x itself where it ends with one."""
    return jnp.pad(x, [(0, 0)] + [(0, -size % step) for size, step in zip(x.shape[1:], block)])


def jax_fault() -> str:
    """Why the installed jax cannot run this kernel; empty if it can."""
    if jax.__version_info__ < (0, 11):
        return ""
    return (
        f"jax {jax.__version__}: pl.pallas_call reaches Mosaic GPU up to jax 0.10 only. Install "
        "jax 0.10.2, or generate the kernel with style emit-pipeline or warp-specialized"
    )


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
    if fault := jax_fault():
        raise NotImplementedError(fault)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "9.0":
        raise ValueError(f"jax.devices()[0]={device}: must be an H100 or H200")
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
    a = jnp.asarray(rng.standard_normal((batches, m, k), np.float32), A_DTYPE)
    b = jnp.asarray(rng.standard_normal((batches, n, k), np.float32), B_DTYPE)
    expected = reference(a, b)
    m_up, n_up, k_up = (pl.cdiv(each, 256) * 256 for each in (m, n, k))
    elements = batches * (m_up * n_up + m_up * k_up + n_up * k_up)
    # XLA takes the result, and what it pads and cuts, from freed memory: most likely from this, as
    # large as all of that. What is not written stays 0xff, NaN in every type of float. Best effort:
    # no allocator promises it.
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
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    a = jax.ShapeDtypeStruct((batches, m, k), A_DTYPE, sharding=sharding)
    b = jax.ShapeDtypeStruct((batches, n, k), B_DTYPE, sharding=sharding)
    launch.trace(a, b).lower().compile()


def size(text: str) -> tuple:
    m, n, k, *batches = map(int, text.split(","))
    return m, n, k, *batches


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--interpret", action="store_true", help="runs on the CPU")
    parser.add_argument("--size", type=size, metavar="M,N,K[,L]", action="append")
    arguments = parser.parse_args(argv)
    if arguments.interpret:
        try:
            # Private: what jax tests pallas_call with, as a plgpu.kernel with an emit_pipeline.
            from jax._src.pallas.mosaic_gpu.pallas_call import pallas_call as stand_in
        except ImportError:
            print(f"SKIP jax {jax.__version__} has no interpreter for pallas_call, 0.11 has")
            return 0
        jax.config.update("jax_platforms", "cpu")
        # Prints "RACE DETECTED" if there is one.
        interpret = plgpu.InterpretGPUParams(detect_races=True)
        kernel_fn = functools.partial(plgpu.kernel, interpret=interpret)
        run = functools.partial(
            launch, pallas_call=functools.partial(stand_in, kernel_fn=kernel_fn)
        )
        passed = [check(run, *sizes) for sizes in arguments.size or [(72, 320, 192, 2)]]
        return 0 if all(passed) else 1
    if fault := jax_fault():
        print(f"FAIL {fault}")
        return 1
    if arguments.compile_only:
        jax.config.update("jax_platforms", "cpu")  # look for no GPU
        for sizes in arguments.size or [(4096, 4096, 4096, 2)]:
            compile_only(*sizes)
        print("PASS compiles for sm_90a")
        return 0
    if getattr(jax.devices()[0], "compute_capability", "") != "9.0":
        print("SKIP no GPU of compute capability 9.0 (--compile-only works without)")
        return 0
    tails = [(40, 24, 40), (1000, 1000, 500), (328, 1088, 1088, 3), (4096, 4096, 4096)]
    passed = [check(gemm, *sizes) for sizes in arguments.size or tails]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
