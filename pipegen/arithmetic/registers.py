# SPDX-License-Identifier: Apache-2.0
"""Registers: accumulators, setmaxnreg, blocks of an SM."""

from pipegen.arithmetic.sizes import align_up
from pipegen.hardware import (
    SETMAXNREG_MAX,
    SETMAXNREG_MIN,
    SETMAXNREG_STEP,
    WARP,
    WARPGROUP,
    Hardware,
)


def accumulator_registers(tile_m: int, tile_n: int, consumer_warpgroups: int) -> int:
    """32-bit registers a consumer thread needs for its part of the f32 accumulator
    (PTX, "wgmma.mma_async", accumulator fragments: M x N over 128 threads)."""
    return tile_m * tile_n // (WARPGROUP * consumer_warpgroups)


def launch_registers(threads: int, hardware: Hardware) -> int:
    """Registers a thread starts with when one block may take the whole register file.

    The register file over the threads, rounded down to the allocation step of 8
    (PTX, ".maxntid" with ".minnctapersm 1"; "setmaxnreg").
    """
    even = hardware.registers_per_sm // threads // SETMAXNREG_STEP * SETMAXNREG_STEP
    return min(even, SETMAXNREG_MAX)


def consumer_registers(
    producer_warpgroups: int, consumer_warpgroups: int, producer: int, hardware: Hardware
) -> int:
    """The most registers consumers can hold after the producers gave theirs away.

    producer_warpgroups * producer + consumer_warpgroups * result <= what the launch allocated,
    in steps of 8 (PTX, "setmaxnreg": multiples of 8 from 24 to 256). Capped at 240: ptxas keeps
    at most 255 for a thread, and 240 is the step that CUTLASS uses for one consumer.
    """
    threads = WARPGROUP * (producer_warpgroups + consumer_warpgroups)
    pool = launch_registers(threads, hardware) * (producer_warpgroups + consumer_warpgroups)
    share = (pool - producer_warpgroups * producer) // consumer_warpgroups
    return min(240, share // SETMAXNREG_STEP * SETMAXNREG_STEP)


def pallas_consumer_registers(memory_registers: int, consumer_warpgroups: int) -> int:
    """Registers of a consumer thread as `emit_pipeline_warp_specialized` sets them
    (jax, mosaic_gpu/pipeline.py: min(256, (512 - memory_registers) / num_compute_wgs), by 8)."""
    share = (512 - memory_registers) // consumer_warpgroups
    return min(SETMAXNREG_MAX, share // SETMAXNREG_STEP * SETMAXNREG_STEP)


def setmaxnreg_valid(registers: int) -> bool:
    """Whether setmaxnreg takes this count (PTX, "setmaxnreg")."""
    return SETMAXNREG_MIN <= registers <= SETMAXNREG_MAX and registers % SETMAXNREG_STEP == 0


def blocks_per_sm(threads: int, registers: int, smem_bytes: int, hardware: Hardware) -> int:
    """Blocks that one SM holds at once: the smallest of what registers, SMEM, threads and the
    block limit allow. Registers are allocated for whole warps in units of 256 (CUDA)."""
    warps = threads // WARP
    per_warp = align_up(registers * WARP, 256)
    by_registers = hardware.registers_per_sm // (per_warp * warps)
    by_smem = hardware.smem_per_sm // (smem_bytes + hardware.smem_reserved_per_block)
    by_threads = hardware.max_threads_per_sm // threads
    return min(by_registers, by_smem, by_threads, hardware.max_blocks_per_sm)
