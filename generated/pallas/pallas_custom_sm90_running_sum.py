# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | pallas | sm_90a
# template: pallas/custom.py.j2 8047b446664c
# text: de73987be1ee
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with jax 0.10.2, 0.11.2 and 0.12.0.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "pallas"
#   arch = "sm_90a"
#   name = "pallas_custom_sm90_running_sum"
#
#   [tensor.x]
#   read = "load"
#
#   [tensor.out]
#   dtype = "f32"
#   write = "scan"
#   expect = "x + np.repeat((s := x.reshape(len(x), -1, 128).sum(2)).cumsum(1) - s, 128, 1)"
#
#   [pipeline.x]
#   edge = "load -> scan"
#
#   [role.scan]
#   body = "out[...] = x[...].astype(jnp.float32)"
#   turn = """values = out[...]
#   out[...] = values + lax.broadcast_in_dim(carry, out.shape, (0,))
#   carry = carry + jnp.sum(values, axis=1)
#   """
#
#   [order.carry]
#   roles = "scan"
#   groups = 2
#   shape = "M"
"""A custom graph of roles for Hopper (sm_90a) in Pallas (Mosaic GPU).

A CTA takes panels of 64 rows, one after the other, and walks over each in tiles of 128 columns.
Every role is a warpgroup with its own loop over them, or several that take turns; rings of SMEM
stages connect the roles. What a role computes is its body, a function under "Yours": replacing it
never touches the protocol.

Roles
  scan                 warpgroups 0 to 1  computes: x -> out, once a tile
  load                 warpgroup 2  loads by TMA: x -> x, once a tile

Pipelines (plgpu.Barrier)
  ring                 stages  a stage is full, and empty, after
  x                    4       1 copy, 1 warpgroup

  x                    load -> scan

Timeline of a CTA
  scan                 each tile: wait x, store out, release x
  load                 each tile: fill x

Turns
  carry                scan's 2 groups take the tiles one after the other: the turn, which hands a
                       number for each row on to the next

Constraints
  All matrices are (M, N), M a multiple of 64 and N of 128.

Run
  python pallas_custom_sm90_running_sum.py
  compares with numpy, on an H100 or H200; --compile-only and --interpret need no GPU.
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
OUT_DTYPE = jnp.float32

TILE_M, TILE_N = 64, 128  # elements of a tile; 134224 B of SMEM a CTA
# x: load -> scan
X_STAGES = 4
X_FULL, X_EMPTY = 1, 1  # arrivals of copies, of warpgroups
# carry: scan's 2 groups take the tiles one after the other: the turn, which hands a number for
# each row on to the next
CARRY_GROUPS = 2
TOLERANCE = 1e-5  # relative error, Frobenius norm
# Largest error of an element over the largest of all; f32 rounds by up to 2**-24 at each step.
WORST = 1e-5


# ==== Yours: the bodies ==========================================================================
def scan(x, out):
    """Yours.

    x: a stage to read
    out: a tile to write
    """
    out[...] = x[...].astype(jnp.float32)


def scan_turn(x, carry, out):
    """Yours.

    Ordered: the tile before has been through here, in another group. Its arguments are
    those of scan, and what the turns hand on:
    carry: a number of each row, f32; what it is here at the end, the
        next turn has
    """
    values = out[...]
    out[...] = values + lax.broadcast_in_dim(carry, out.shape, (0,))
    carry = carry + jnp.sum(values, axis=1)
    return carry


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


def wait_turn(turns, step, groups: int, part: int = 0):
    """Waits until the group that has the tile before gives its turn on."""

    @pl.when(step > 0)
    def _():
        plgpu.barrier_wait(turns.at[part * groups + lax.rem(step, jnp.int32(groups))])


def give_turn(turns, step, steps, groups: int, part: int = 0):
    """Gives the turn on to the group that has the next tile, if there is one."""

    @pl.when(step + 1 < steps)
    def _():
        plgpu.barrier_arrive(turns.at[part * groups + lax.rem(step + 1, jnp.int32(groups))])


# jax 0.10 wants the index of a load apart from its ref, which later versions refuse.
WHOLE = (...,) if "idx" in inspect.signature(plgpu.load).parameters else ()
ROWS = plgpu.Layout.WGMMA.reduce(1)  # registers that hold a number of each row


def custom_kernel(x_gmem, out_gmem, x_smem, out_buffer, carry_smem, x_full, x_empty, carry_turns):
    m_size, n_size = out_gmem.shape
    tiles_n = n_size // TILE_N
    first, grid = lax.axis_index("cta"), lax.axis_size("cta")
    # The CTA's tiles: the same number for every role, so that all barriers come to their end.
    trips = lax.div(m_size // TILE_M - first + grid - 1, grid) * tiles_n
    role = lax.axis_index("role")

    def place(step):
        """Rows and columns of the tile that comes step-th."""
        m, n = (part(step, jnp.int32(tiles_n)) for part in (lax.div, lax.rem))
        m = first + m * grid  # a panel's tiles one after the other
        return pl.ds(m * TILE_M, TILE_M), pl.ds(n * TILE_N, TILE_N)

    def tail(empty, stages: int):
        """Waits until the last lap's stages have been released: no arrive is left pending."""

        @pl.loop(lax.max(trips - stages, 0), trips)
        def _(step):
            plgpu.barrier_wait(empty.at[lax.rem(step, jnp.int32(stages))])

    # ---- scan --------------------------------------------------------------------------------
    @pl.when(role <= 1)
    def _():
        group = role

        @pl.loop(0, lax.div(trips - group + CARRY_GROUPS - 1, jnp.int32(CARRY_GROUPS)))
        def _(turn):
            step = turn * CARRY_GROUPS + group
            x_stage = wait(x_full, step, X_STAGES)
            # The last stores have read their buffers.
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            scan(x_smem.at[x_stage], out_buffer.at[group])
            # What the body wrote, for all threads of the group.
            plgpu.commit_smem()
            # In the order of the tiles: the group that has the tile before gives the turn on.
            wait_turn(carry_turns, step, CARRY_GROUPS)

            @pl.when(lax.rem(step, jnp.int32(tiles_n)) == 0)
            def _():
                start = jnp.full((TILE_M,), 0.0, jnp.float32)
                carry_smem[...] = plgpu.layout_cast(start, ROWS)
                plgpu.commit_smem()

            carry = plgpu.load(carry_smem, *WHOLE, layout=ROWS, optimized=False)
            carry_smem[...] = scan_turn(x_smem.at[x_stage], carry, out_buffer.at[group])
            # Publishes to the other warpgroups, and to TMA, which is another proxy.
            plgpu.commit_smem()
            give_turn(carry_turns, step, trips, CARRY_GROUPS)
            plgpu.barrier_arrive(x_empty.at[x_stage])
            plgpu.copy_smem_to_gmem(out_buffer.at[group], out_gmem.at[place(step)])

        plgpu.wait_smem_to_gmem(0)

    # ---- load --------------------------------------------------------------------------------
    @pl.when(role == 2)
    def _():
        @pl.loop(0, trips)
        def _(step):
            x_stage = acquire(x_empty, step, X_STAGES)
            plgpu.copy_gmem_to_smem(x_gmem.at[place(step)], x_smem.at[x_stage], x_full.at[x_stage])

        tail(x_empty, X_STAGES)


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
            plgpu.SMEM((X_STAGES, TILE_M, TILE_N), jnp.bfloat16),
            plgpu.SMEM((CARRY_GROUPS, TILE_M, TILE_N), OUT_DTYPE),
            plgpu.SMEM((TILE_M,), jnp.float32),
            plgpu.Barrier(num_arrivals=X_FULL, num_barriers=X_STAGES),
            plgpu.Barrier(num_arrivals=X_EMPTY, num_barriers=X_STAGES),
            plgpu.Barrier(num_arrivals=1, num_barriers=CARRY_GROUPS),
        ],
        grid=(sm_count,),
        grid_names=("cta",),
        num_threads=3,
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
    if getattr(device, "compute_capability", "") != "9.0":
        raise ValueError(f"jax.devices()[0]={device}: must be an H100 or H200")
    return launch(x, sm_count=device.core_count)


def reference(x):
    """What `custom` should return, in float64, by name; takes numpy's float64 arrays."""
    import numpy as np

    return {
        "out": x + np.repeat((s := x.reshape(len(x), -1, 128).sum(2)).cumsum(1) - s, 128, 1),
    }


def check(run, m: int, n: int) -> bool:
    """Compares one size with the reference. `run` is `custom` or does the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    inputs = [
        jnp.asarray(rng.standard_normal((m, n), np.float32), X_DTYPE),
    ]
    check_operands(*inputs)
    expected = reference(*(np.asarray(each).astype(np.float64) for each in inputs))
    elements = len(expected) * m * n
    # XLA takes the results from freed memory: most likely from this, as large as all of them. What
    # is not written stays 0xff, NaN in every type of float. Best effort: no allocator promises it.
    jnp.full(4 * elements, 0xFF, jnp.uint8).block_until_ready().delete()
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
        print("PASS compiles for sm_90a")
        return 0
    if arguments.interpret:
        if not hasattr(plgpu, "InterpretGPUParams"):
            print(f"SKIP jax {jax.__version__} has no public interpreter, 0.11 has")
            return 0
        jax.config.update("jax_platforms", "cpu")
        # Few CTAs, so that each takes several tiles. Prints "RACE DETECTED" if there is one.
        interpret = plgpu.InterpretGPUParams(detect_races=True)
        run = functools.partial(launch, sm_count=2, interpret=interpret)
    elif getattr(jax.devices()[0], "compute_capability", "") != "9.0":
        print("SKIP no GPU of compute capability 9.0 (--compile-only works without)")
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
