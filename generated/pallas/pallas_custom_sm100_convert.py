# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | pallas | sm_100a
# template: pallas/custom.py.j2 8047b446664c
# text: 5295cc52e2b9
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "pallas"
#   arch = "sm_100a"
#   name = "pallas_custom_sm100_convert"
#
#   [tensor.x]
#   read = "load"
#
#   [tensor.out]
#   write = "save"
#
#   [pipeline.raw]
#   edge = "load -> convert"
#
#   [pipeline.wide]
#   edge = "convert -> compute"
#   dtype = "f32"
#
#   [pipeline.done]
#   edge = "compute -> save"
#   dtype = "bf16"
"""A custom graph of roles for Blackwell (sm_100a) in Pallas (Mosaic GPU).

Compiled and interpreted only: no Blackwell GPU was at hand when its template was written.

A CTA takes tiles of 32 x 256, one after the other. Every role is a warpgroup with its own
loop over them; rings of SMEM stages connect the roles. What a role computes is its body, a function
under "Yours": replacing it never touches the protocol.

Roles
  convert              warpgroup 0  computes: raw -> wide, once a tile
  compute              warpgroup 1  computes: wide -> done, once a tile
  save                 warpgroup 2  computes: done -> out, once a tile
  load                 warpgroup 3  loads by TMA: x -> raw, once a tile

Pipelines (plgpu.Barrier)
  ring                 stages  a stage is full, and empty, after
  raw                  3       1 copy, 1 warpgroup
  wide                 3       1 warpgroup, 1 warpgroup
  done                 3       1 warpgroup, 1 warpgroup

  raw                  load -> convert
  wide                 convert -> compute
  done                 compute -> save

Timeline of a CTA
  convert              each tile: wait raw, fill wide, release raw
  compute              each tile: wait wide, fill done, release wide
  save                 each tile: wait done, store out, release done
  load                 each tile: fill raw

Constraints
  All matrices are (M, N), M a multiple of 32 and N of 256.

Run
  python pallas_custom_sm100_convert.py
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

X_DTYPE = jnp.bfloat16
OUT_DTYPE = jnp.bfloat16

TILE_M, TILE_N = 32, 256  # elements of a tile; 213136 B of SMEM a CTA
# raw: load -> convert
RAW_STAGES = 3
RAW_FULL, RAW_EMPTY = 1, 1  # arrivals of copies, of warpgroups
# wide: convert -> compute
WIDE_STAGES = 3
WIDE_FULL, WIDE_EMPTY = 1, 1  # arrivals of copies, of warpgroups
# done: compute -> save
DONE_STAGES = 3
DONE_FULL, DONE_EMPTY = 1, 1  # arrivals of copies, of warpgroups


# ==== Yours: the bodies ==========================================================================
def convert(raw, wide):
    """Yours; as written, the identity.

    raw: a stage to read
    wide: a tile to write
    """
    values = raw[...].astype(jnp.float32)
    wide[...] = values.astype(wide.dtype)


def compute(wide, done):
    """Yours; as written, the identity.

    wide: a stage to read
    done: a tile to write
    """
    values = wide[...].astype(jnp.float32)
    done[...] = values.astype(done.dtype)


def save(done, out):
    """Yours; as written, the identity.

    done: a stage to read
    out: a tile to write
    """
    values = done[...].astype(jnp.float32)
    out[...] = values.astype(out.dtype)


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


def custom_kernel(
    x_gmem,
    out_gmem,
    raw_smem,
    wide_smem,
    done_smem,
    out_buffer,
    raw_full,
    raw_empty,
    wide_full,
    wide_empty,
    done_full,
    done_empty,
):
    m_size, n_size = out_gmem.shape
    tiles_n = n_size // TILE_N
    tiles = m_size // TILE_M * tiles_n
    first, grid = lax.axis_index("cta"), lax.axis_size("cta")
    # The CTA's tiles: the same number for every role, so that all barriers come to their end.
    trips = lax.div(tiles - first + grid - 1, grid)
    role = lax.axis_index("role")

    def place(step):
        """Rows and columns of the tile that comes step-th."""
        m, n = (part(first + step * grid, tiles_n) for part in (lax.div, lax.rem))
        return pl.ds(m * TILE_M, TILE_M), pl.ds(n * TILE_N, TILE_N)

    def tail(empty, stages: int):
        """Waits until the last lap's stages have been released: no arrive is left pending."""

        @pl.loop(lax.max(trips - stages, 0), trips)
        def _(step):
            plgpu.barrier_wait(empty.at[lax.rem(step, jnp.int32(stages))])

    # ---- convert -----------------------------------------------------------------------------
    @pl.when(role == 0)
    def _():
        @pl.loop(0, trips)
        def _(step):
            raw_stage = wait(raw_full, step, RAW_STAGES)
            wide_stage = acquire(wide_empty, step, WIDE_STAGES)
            convert(raw_smem.at[raw_stage], wide_smem.at[wide_stage])
            # Publishes to the other warpgroups, and to TMA, which is another proxy.
            plgpu.commit_smem()
            plgpu.barrier_arrive(wide_full.at[wide_stage])
            plgpu.barrier_arrive(raw_empty.at[raw_stage])

        tail(wide_empty, WIDE_STAGES)

    # ---- compute -----------------------------------------------------------------------------
    @pl.when(role == 1)
    def _():
        @pl.loop(0, trips)
        def _(step):
            wide_stage = wait(wide_full, step, WIDE_STAGES)
            done_stage = acquire(done_empty, step, DONE_STAGES)
            compute(wide_smem.at[wide_stage], done_smem.at[done_stage])
            # Publishes to the other warpgroups, and to TMA, which is another proxy.
            plgpu.commit_smem()
            plgpu.barrier_arrive(done_full.at[done_stage])
            plgpu.barrier_arrive(wide_empty.at[wide_stage])

        tail(done_empty, DONE_STAGES)

    # ---- save --------------------------------------------------------------------------------
    @pl.when(role == 2)
    def _():
        @pl.loop(0, trips)
        def _(step):
            done_stage = wait(done_full, step, DONE_STAGES)
            # The last stores have read their buffers.
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            save(done_smem.at[done_stage], out_buffer)
            # Publishes to the other warpgroups, and to TMA, which is another proxy.
            plgpu.commit_smem()
            plgpu.barrier_arrive(done_empty.at[done_stage])
            plgpu.copy_smem_to_gmem(out_buffer, out_gmem.at[place(step)])

        plgpu.wait_smem_to_gmem(0)

    # ---- load --------------------------------------------------------------------------------
    @pl.when(role == 3)
    def _():
        @pl.loop(0, trips)
        def _(step):
            raw_stage = acquire(raw_empty, step, RAW_STAGES)
            plgpu.copy_gmem_to_smem(
                x_gmem.at[place(step)], raw_smem.at[raw_stage], raw_full.at[raw_stage]
            )

        tail(raw_empty, RAW_STAGES)


@functools.partial(jax.jit, static_argnames=("sm_count", "interpret"))
def launch(x, sm_count: int, interpret=None):
    """`custom` of operands that are known to be right. Compiles once for each shape."""
    shape = x.shape
    kernel = plgpu.kernel(
        custom_kernel,
        out_type=[
            jax.ShapeDtypeStruct(shape, OUT_DTYPE),
        ],
        scratch_types=[
            plgpu.SMEM((RAW_STAGES, TILE_M, TILE_N), jnp.bfloat16),
            plgpu.SMEM((WIDE_STAGES, TILE_M, TILE_N), jnp.float32),
            plgpu.SMEM((DONE_STAGES, TILE_M, TILE_N), jnp.bfloat16),
            plgpu.SMEM((TILE_M, TILE_N), OUT_DTYPE),
            plgpu.Barrier(num_arrivals=RAW_FULL, num_barriers=RAW_STAGES),
            plgpu.Barrier(num_arrivals=RAW_EMPTY, num_barriers=RAW_STAGES),
            plgpu.Barrier(num_arrivals=WIDE_FULL, num_barriers=WIDE_STAGES),
            plgpu.Barrier(num_arrivals=WIDE_EMPTY, num_barriers=WIDE_STAGES),
            plgpu.Barrier(num_arrivals=DONE_FULL, num_barriers=DONE_STAGES),
            plgpu.Barrier(num_arrivals=DONE_EMPTY, num_barriers=DONE_STAGES),
        ],
        grid=(sm_count,),
        grid_names=("cta",),
        num_threads=4,
        thread_name="role",
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret,
    )
    return kernel(x)


def check_operands(x):
    """Raises if `custom` cannot take these operands, naming what is wrong."""
    operands = {
        "x": (x, X_DTYPE),
    }
    shapes = {name: each.shape for name, (each, _) in operands.items()}
    for name, (each, dtype) in operands.items():
        if each.dtype != dtype:
            raise TypeError(f"{name}.dtype={each.dtype}: must be {jnp.dtype(dtype).name}")
        if each.ndim != 2 or 0 in each.shape or each.shape[0] % TILE_M or each.shape[1] % TILE_N:
            rule = f"must be (M, N), multiples of {TILE_M} and {TILE_N}"
            raise ValueError(f"{name}.shape={each.shape}: {rule}")
    if len(set(shapes.values())) > 1:
        raise ValueError(f"{shapes=}: must be the same")


def custom(x):
    """Returns [out] from x, (M, N) each.

    Runs on JAX's default device, and within a jax.jit too.
    """
    check_operands(x)
    device = jax.devices()[0]
    if getattr(device, "compute_capability", "") != "10.0":
        raise ValueError(f"jax.devices()[0]={device}: must be a B200")
    return launch(x, sm_count=device.core_count)


def reference(x):
    """What `custom` should return, in float64, by name; takes numpy's float64 arrays."""
    return {
        "out": x,
    }


def check(run, m: int, n: int) -> bool:
    """Compares one size with the reference. `run` is `custom` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    inputs = [
        jnp.asarray(rng.integers(-4, 5, (m, n)), X_DTYPE),
    ]
    check_operands(*inputs)
    expected = reference(*(np.asarray(each).astype(np.float64) for each in inputs))
    elements = len(expected) * m * n
    # XLA takes the results from freed memory: most likely from this, as large as all of them. What
    # is not written stays 0xff, NaN in every type of float. Best effort: no allocator promises it.
    jnp.full(4 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
    passed = True
    for (name, wanted), out in zip(expected.items(), run(*inputs)):
        # Small integers: every sum is exact.
        right = np.array_equal(np.asarray(out), wanted.astype(out.dtype))
        verdict = "exact" if right else "not exact"
        passed = passed and right
        print(f"{'PASS' if right else 'FAIL'} {m=} {n=} {name}: {verdict}")
    return passed


def compile_only(m: int, n: int):
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
    operands = [jax.ShapeDtypeStruct((m, n), dtype, sharding=sharding) for dtype in (X_DTYPE,)]
    launch.trace(*operands, sm_count=device.core_count).lower().compile()


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
        for sizes in arguments.size or [(4096, 4096)]:
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
    few = [(TILE_M, TILE_N), (TILE_M * 5, TILE_N * 3)]
    many = [] if arguments.interpret else [(TILE_M * 33, TILE_N * 5), (TILE_M * 64, TILE_N * 32)]
    try:
        passed = [check(run, *sizes) for sizes in arguments.size or few + many]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
