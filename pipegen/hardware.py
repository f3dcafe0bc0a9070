# SPDX-License-Identifier: Apache-2.0
"""Limits of each architecture. Sizes in bytes unless the name says otherwise.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (SMEM, registers, threads);
PTX ISA, "setmaxnreg", "mbarrier" (tx-count range), "wgmma" (shapes), "tcgen05.alloc" (TMEM).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """What one SM, and one block on it, may use."""

    arch: str
    smem_per_block: int
    smem_per_sm: int
    smem_reserved_per_block: int
    registers_per_sm: int
    max_registers_per_thread: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    max_cluster: int
    sm_count: int


HARDWARE: dict[str, Hardware] = {
    "sm_90a": Hardware(
        arch="sm_90a",
        smem_per_block=232448,
        smem_per_sm=233472,
        smem_reserved_per_block=1024,
        registers_per_sm=65536,
        max_registers_per_thread=255,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        max_cluster=8,
        sm_count=132,
    ),
    "sm_100a": Hardware(
        arch="sm_100a",
        smem_per_block=232448,
        smem_per_sm=233472,
        smem_reserved_per_block=1024,
        registers_per_sm=65536,
        max_registers_per_thread=255,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        max_cluster=8,
        sm_count=148,
    ),
}

MBARRIER_BYTES = 8
MBARRIER_TX_LIMIT = 2**20
SETMAXNREG_STEP = 8
SETMAXNREG_MIN = 24
SETMAXNREG_MAX = 256
WARP = 32
WARPGROUP = 128
# K of one wgmma or tcgen05.mma, in bytes of the operand type (PTX ISA, "wgmma.mma_async", shapes;
# "tcgen05.mma", shapes for kind::f16 and kind::f8f6f4).
MMA_K_BYTES = 32
# SMEM tile that TMA writes with the 128-byte swizzle must start at a multiple of this.
SWIZZLE_128B_ALIGNMENT = 1024
SWIZZLE_BYTES = 128
# Columns of TMEM, 32 bits wide and 128 lanes high (PTX ISA, "tcgen05.alloc").
TMEM_COLUMNS_MIN = 32
TMEM_COLUMNS_MAX = 512
# The widest access of a thread, and the unit of TMA's strides (CUDA C++ Programming Guide, "Device
# Memory Accesses"; CUDA driver API, cuTensorMapEncodeTiled).
VECTOR_BYTES = 16
# Where a tile that TMA copies may begin in SMEM (PTX ISA, "cp.async.bulk.tensor"), and the elements
# of a box in each dimension (CUDA driver API, cuTensorMapEncodeTiled).
TMA_SMEM_ALIGNMENT = 128
TMA_BOX_MAX = 256
# What one cp.async can copy (PTX ISA, "cp.async").
CP_ASYNC_BYTES = (4, 8, 16)
