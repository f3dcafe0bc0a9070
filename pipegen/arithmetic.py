# SPDX-License-Identifier: Apache-2.0
"""The numbers of a pipelined kernel as pure functions. Sizes in bytes unless a name says so.

Sources, short names used below:
  DSL: `cutlass/pipeline/{sm90,sm100,helpers}.py` of nvidia-cutlass-dsl 4.8.1.
  PTX: PTX ISA 8.8, the section named.
  CUDA: CUDA C++ Programming Guide, "Compute Capabilities".
"""

from dataclasses import dataclass

from pipegen.hardware import (
    MBARRIER_BYTES,
    SETMAXNREG_MAX,
    SETMAXNREG_MIN,
    SETMAXNREG_STEP,
    SWIZZLE_128B_ALIGNMENT,
    TMEM_COLUMNS_MAX,
    TMEM_COLUMNS_MIN,
    WARP,
    WARPGROUP,
    Hardware,
)


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is at least `value`."""
    return -(-value // alignment) * alignment


def tile_bytes(rows: int, columns: int, element_bits: int) -> int:
    """Bytes of a dense tile."""
    return rows * columns * element_bits // 8


def operand_stage_bytes(
    tile_mnk: tuple[int, int, int], a_bits: int, b_bits: int
) -> tuple[int, int]:
    """Bytes of the A and of the B tile of one stage.

    With multicast each CTA issues a part of the copies, and still receives both whole tiles: the
    sum is also the stage's tx_count (PTX, "mbarrier complete-tx": bytes count where they land).
    """
    m, n, k = tile_mnk
    return tile_bytes(m, k, a_bits), tile_bytes(n, k, b_bits)


def multicast_partners(cluster_mn: tuple[int, int]) -> int:
    """CTAs (this one included) that a stage's release must be signalled to.

    A is shared along the cluster's N mode, B along its M mode; this CTA lies on both lines and
    counts once (DSL, `PipelineTmaAsync.create`: mcast_m_size + mcast_n_size - 1).
    """
    m, n = cluster_mn
    return m + n - 1


def tma_consumer_arrive_count(consumer_warps: int, cluster_mn: tuple[int, int]) -> int:
    """Arrivals that empty one stage of a `PipelineTmaAsync`.

    One lane of each consumer warp arrives at each partner's barrier
    (DSL, `PipelineTmaAsync.init_empty_barrier_arrive_signal` and `consumer_release`).
    A larger count hangs at the second lap of the ring; a smaller one is a race.
    """
    return consumer_warps * multicast_partners(cluster_mn)


def umma_consumer_arrive_count(cluster_mn: tuple[int, int]) -> int:
    """Arrivals that empty one stage of a `PipelineTmaUmma` with one CTA to an MMA.

    One tcgen05.commit of the MMA warp of each CTA that receives what this one loads: it arrives
    once at each CTA of its mask (DSL, `PipelineTmaUmma.consumer_release`; PTX, "tcgen05.commit").
    """
    return multicast_partners(cluster_mn)


def tmem_columns(buffers: int, tile_n: int) -> int:
    """TMEM columns of `buffers` f32 accumulators of `tile_n` columns, as they are allocated:
    a power of two from 32 (PTX, "tcgen05.alloc"). More than 512 cannot be had."""
    columns = TMEM_COLUMNS_MIN
    while columns < buffers * tile_n:
        columns *= 2
    return columns


def most_accumulators(tile_n: int) -> int:
    """f32 accumulators of `tile_n` columns that fit in TMEM."""
    return TMEM_COLUMNS_MAX // tile_n


def ring_barrier_bytes(stages: int) -> int:
    """Bytes of a ring's mbarriers: a full and an empty one for each stage, 8 B each
    (PTX, "Size and alignment of mbarrier object")."""
    return 2 * stages * MBARRIER_BYTES


@dataclass(frozen=True)
class SmemSplit:
    """How a block's SMEM is divided between the ring, the store buffers and the barriers."""

    stages: int
    store_buffers: int
    barrier_bytes: int
    total_bytes: int


def smem_bytes(
    operand_bytes: tuple[int, int],
    buffer_bytes: int,
    stages: int,
    store_buffers: int,
    other_bytes: int = 0,
) -> int:
    """Bytes of a block's SMEM: barriers, the A ring, the B ring and the store buffers, each from a
    multiple of 1024 on (where a tile with the 128-byte swizzle may start: PTX, "wgmma", matrix
    descriptor). `other_bytes` stand right after the ring's barriers."""
    parts = [ring_barrier_bytes(stages) + other_bytes, store_buffers * buffer_bytes]
    parts += [stages * size for size in operand_bytes]
    return sum(align_up(part, SWIZZLE_128B_ALIGNMENT) for part in parts)


def split_smem(
    capacity: int,
    operand_bytes: tuple[int, int],
    buffer_bytes: int,
    subtiles: int,
    max_store_buffers: int,
    stages: int | None = None,
    store_buffers: int | None = None,
    other_bytes: int = 0,
) -> SmemSplit:
    """As many stages as fit, then as many store buffers as fit beside them.

    `operand_bytes` are those of A and of B in one stage. `stages` or `store_buffers` fix one of the
    two; None lets it grow. Stages are counted with two store buffers (the fewest that let a store
    fly while the next subtile is written; one where a tile has one subtile); what is left goes to
    further buffers, up to `max_store_buffers` and the number of subtiles of a tile. `other_bytes`
    are what the kernel keeps beside the ring's barriers.
    The result may exceed `capacity`, or have 0 stages: the caller decides what that means.
    """
    fewest = fewest_store_buffers(subtiles) if store_buffers is None else store_buffers

    def total(stages: int, buffers: int) -> int:
        return smem_bytes(operand_bytes, buffer_bytes, stages, buffers, other_bytes)

    if stages is None:
        stages = max(0, (capacity - fewest * buffer_bytes) // sum(operand_bytes))
        while stages and total(stages, fewest) > capacity:
            stages -= 1
    if store_buffers is None:
        store_buffers = min(max_store_buffers, subtiles)
        while store_buffers > fewest and total(stages, store_buffers) > capacity:
            store_buffers -= 1
    barriers = ring_barrier_bytes(stages) + other_bytes
    return SmemSplit(stages, store_buffers, barriers, total(stages, store_buffers))


def fewest_store_buffers(subtiles: int) -> int:
    """Store buffers that let one be read by TMA while another is written."""
    return min(2, subtiles)


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
