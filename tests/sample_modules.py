# SPDX-License-Identifier: Apache-2.0
"""Small modules to compile: real kernels, and files that only behave like a compiler's user."""

import struct


def header(backend: str = "cute", arch: str = "sm_90a") -> str:
    """The line that tells whose a file is."""
    zeros = "0" * 12
    return (
        "# SPDX-License-Identifier: Apache-2.0\n"
        f"# pipegen: gemm | {backend} | {arch}\n# template: none.py.j2 {zeros}\n# text: {zeros}\n"
        "# Offers --compile-only.\n"
    )


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_0' for 'sm_90a'
ptxas info    : Function properties for k_0
    0 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 168 registers, used 2 barriers
ptxas info    : Compile time = 3.221 ms
"""


def elf(flags: int, abi: int, machine: int = 190) -> bytes:
    """The first 64 bytes of a cubin."""
    data = bytearray(64)
    data[:9] = b"\x7fELF\x02\x01\x01\x33" + bytes([abi])
    struct.pack_into("<H", data, 18, machine)
    struct.pack_into("<I", data, 48, flags)
    return bytes(data)


def pretender(arch: str = "sm_90a", report: str = REPORT, ir: str = "", stores: int = 0) -> str:
    """A module that writes what the CuTe DSL would dump, at once and without the DSL."""
    ptx = f".version 8.8\n.target {arch}\n.visible .entry k_0(\n)\n.reqntid 128, 1, 1\n{{ ret; }}\n"
    flags = {"sm_90a": (0x5A0D5A, 7), "sm_100a": (0x600640A, 8)}[arch]
    return header() + (
        "import os, pathlib\n"
        'dump = pathlib.Path(os.environ["CUTE_DSL_DUMP_DIR"])\n'
        f"(dump / 'k.ptx').write_text({ptx!r})\n"
        f"(dump / 'k.cubin').write_bytes({elf(*flags)!r})\n"
        f"(dump / 'k.mlir').write_text({ir!r})\n"
        f"print({report.format(stores=stores, loads=stores)!r})\n"
    )


CUTE = """\
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.memory import SmemAllocator


@cute.kernel
def mirror_kernel(x: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    smem = SmemAllocator()
    first = smem.allocate_tensor(cutlass.Float32, cute.make_layout(33), byte_alignment=8)
    tile = smem.allocate_tensor(cutlass.Float32, cute.make_layout(64), byte_alignment=1024)
    tile[thread] = x[thread]
    if thread < 33:
        first[thread] = x[thread + 64]
    cute.arch.barrier()
    x[thread] = tile[63 - thread] + first[thread % 33]


@cute.jit
def mirror(x: cute.Tensor, stream):
    mirror_kernel(x).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)


# --compile-only is all this file does.
x = make_fake_compact_tensor(cutlass.Float32, (128,), stride_order=(0,), assumed_align=16)
cute.compile(mirror, x, make_fake_stream())
"""

# 1024 threads leave 64 registers each; 96 values are alive across the barrier.
CUTE_SPILLS = """\
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


@cute.kernel
def rotate_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    held = cute.make_rmem_tensor((96,), cutlass.Float32)
    for i in cutlass.range_constexpr(96):
        held[i] = x[thread + 1024 * i]
    cute.arch.barrier()
    for i in cutlass.range_constexpr(96):
        y[thread + 1024 * i] = held[(i * 7 + 1) % 96] * held[i]


@cute.jit
def rotate(x: cute.Tensor, y: cute.Tensor, stream):
    rotate_kernel(x, y).launch(grid=(1, 1, 1), block=(1024, 1, 1), stream=stream)


# --compile-only is all this file does.
size = (1024 * 96,)
x = make_fake_compact_tensor(cutlass.Float32, size, stride_order=(0,), assumed_align=16)
y = make_fake_compact_tensor(cutlass.Float32, size, stride_order=(0,), assumed_align=16)
cute.compile(rotate, x, y, make_fake_stream())
"""

PALLAS = '''\
import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.experimental.pallas import mosaic_gpu as plgpu

# --compile-only is all this file does.
TARGET = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150000000000 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""


def double(x_gmem, y_gmem, x_smem, loaded):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
    plgpu.barrier_wait(loaded)
    x_smem[...] = x_smem[...] * 2.0
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(x_smem, y_gmem)
    plgpu.wait_smem_to_gmem(0)


x = jax.ShapeDtypeStruct((128, 64), jnp.float32)
kernel = plgpu.kernel(
    double,
    out_type=x,
    scratch_types=[plgpu.SMEM((128, 64), jnp.float32), plgpu.Barrier()],
)
topology = topologies.get_topology_desc(
    platform="cuda", topology_name="h200", topology="1x1x1", target_config=TARGET
)
place = jax.sharding.SingleDeviceSharding(topology.devices[0])
jax.jit(kernel, in_shardings=place, out_shardings=place).trace(x).lower().compile()
'''
