# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | cute | sm_100a
# template: cute/gemm_sm100.py.j2 b32ef56031c8
# text: 68e76d88f4bc
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "cute"
#   arch = "sm_100a"
#   name = "gemm_sm100_c1x2"
#
#   [cluster]
#   shape = [1, 2]
"""GEMM for Blackwell (sm_100a) in the CuTe DSL: bf16 x bf16 -> f32 -> bf16.

Its template was compiled and emulated, and never run: no Blackwell GPU was at hand.

out[l] = A[l] @ B[l].T. Persistent and warp-specialized: each CTA computes output tiles of
128 x 256, one after the other; it loads and multiplies the next while it stores this one.

Roles of a CTA's 192 threads
  epilogue   warps 0 to 3 read the accumulator from TMEM, 32 rows each; warp 0 also allocates and
             frees TMEM, and issues the TMA stores
  mma        warp 4 issues all tcgen05 MMAs
  tma        warp 5 issues all TMA loads

Pipelines
               class              producer -> consumer  stages  full barrier        empty barrier
  mainloop     PipelineTmaUmma    TMA -> tcgen05        4       1 arrive + 49152 B  2 commits
  accumulator  PipelineUmmaAsync  tcgen05 -> threads    2       1 commit            4 arrives
  epilogue     PipelineTmaStore   threads -> TMA store  4       none                none

  mainloop     Filled by an A and a B tile: `acquire` waits until the stage is empty and arms its
               full barrier with tx_count, which the copies complete as their bytes land.
               Emptied by one tcgen05 commit of the MMA warp of every CTA that receives what this
               one loads; it arrives when the MMAs before it have read SMEM.
  accumulator  2 buffers of 256 TMEM columns. Filled by the MMAs of all K tiles: one tcgen05 commit.
               Emptied by one arrive of each epilogue warp, once it has its part in registers.
  epilogue     Filled by all epilogue warps with a piece of 128 x 32, 8192 B; emptied by the
               TMA store. No barriers: `commit` closes a bulk group, and `acquire` waits until fewer
               groups than buffers (4) still read SMEM: the oldest buffer is free.

Timeline of a CTA (K tiles k0, k1, ... of output tile t)
  tma        load k0, k1, ...: at most 4 stages ahead | load k0, k1, ... of tile t+1
  mma        acquire | wait k0, mma k0, release k0 | ... | commit t | acquire | mma t+1 ...
  epilogue                                                 wait t   | subtiles of t, release t | ...

Constraints
  a is (L, M, K), b is (L, N, K), out is (L, M, N), or all three without L; the last dimension
  contiguous, other strides and the addresses multiples of 16 bytes. Any M, K and L; N a multiple
  of 8, because TMA stores 16 bytes at a time. Where another kernel holds TMEM on the same
  SM, a CTA waits until enough of it is free.

Run
  python gemm_sm100_c1x2.py
  compares with float64, on a B200 with torch; with --compile-only it needs neither.
"""

import argparse
import array
import functools
import os
import sys

if __name__ == "__main__":
    # Without a GPU, the compiler takes its target from here, and reads it when imported.
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
from cutlass import cute, memory, pipeline
from cutlass.cute.nvgpu import (
    CopyUniversalOp,
    OperandMajorMode,
    cpasync,
    make_tiled_tma_atom_A,
    make_tiled_tma_atom_B,
    tcgen05,
)
from cutlass.cute.nvgpu.tcgen05 import SmemLayoutAtomKind
from cutlass.utils import HardwareInfo

A_DTYPE, B_DTYPE = cutlass.BFloat16, cutlass.BFloat16
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N, TILE_K = 128, 256, 64  # CTA tile, elements
CLUSTER_M, CLUSTER_N = 1, 2  # CTAs; A is shared along N, B along M
RASTER_GROUP = 8  # cluster rows walked together, for L2
MMA_K = 16  # elements; 32 B of K an instruction
MMAS_PER_STAGE = 4  # 64 / 16

MMA_WARP, TMA_WARP = 4, 5  # warps 0 to 3 are the epilogue's
STORE_WARP = 0  # issues the TMA stores; allocates and frees TMEM
EPILOGUE_THREADS = 128  # 32 * 4: a warp reaches the 32 TMEM lanes of its number modulo 4
THREADS = 192  # 32 * (4 + 1 + 1)

MAINLOOP_STAGES = 4  # (232448 - 1024 - 2 * 8192) // 49152
TX_COUNT = 49152  # B: 16384 + 32768, the A and the B tile
FULL_ARRIVES = 1  # the TMA warp, when it arms tx_count
EMPTY_ARRIVES = 2  # 1 commit of the MMA warp of each of 2 multicast partners

ACC_STAGES = 2  # accumulators in TMEM
ACC_FULL_ARRIVES = 1  # the MMA warp's commit
ACC_EMPTY_ARRIVES = 4  # the epilogue warps
TMEM_COLUMNS = 512  # 2 * 256

EPI_TILE_M, EPI_TILE_N = 128, 32  # elements of one store, 8192 B
EPI_SUBTILES = 8  # of a CTA tile, along N
EPI_STAGES = 4  # min(4, 8, (232448 - 1024 - 4 * 49152) // 8192)
EPI_BARRIER, TMEM_BARRIER = 1, 2  # named barriers: the epilogue warps, those and the MMA warp

A_SWIZZLE, B_SWIZZLE = SmemLayoutAtomKind.K_SW128, SmemLayoutAtomKind.K_SW128
OUT_SWIZZLE = SmemLayoutAtomKind.K_SW64
A_ALIGN, B_ALIGN, OUT_ALIGN = 8, 8, 8  # elements of 16 B, the unit of TMA strides


@cute.struct
class SharedStorage:  # 230400 B: 1024 + 4 * 49152 + 4 * 8192
    mainloop_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    accumulator_barriers: cute.struct.MemRange[cutlass.Int64, 2 * ACC_STAGES]
    tmem_address: cute.struct.MemRange[cutlass.Int32, 1]
    a: cute.struct.Align[cute.struct.MemRange[A_DTYPE, TILE_M * TILE_K * MAINLOOP_STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[B_DTYPE, TILE_N * TILE_K * MAINLOOP_STAGES], 1024]
    out: cute.struct.Align[
        cute.struct.MemRange[OUT_DTYPE, EPI_TILE_M * EPI_TILE_N * EPI_STAGES], 1024
    ]


# ==== Yours: what happens to the accumulator before it is rounded and stored ====================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 accumulators in place. As written it does, and costs, nothing.

    Called for each piece of EPI_TILE_M x EPI_TILE_N, of which a thread holds one row.
    acc[i] belongs to out[batch, m, n] with (m, n) = coord[i], which may lie outside an edge tile.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`. A bias of N elements (its
    address joins the others in `gemm`; `launch` makes a tensor of it, which comes down to here):

        for i in cutlass.range_constexpr(cute.size(acc)):
            if coord[i][1] < cute.size(bias):
                acc[i] += bias[coord[i][1]].to(ACC_DTYPE)
    """


@cute.jit
def tile_coord(index: cutlass.Int32, clusters_m: cutlass.Int32, clusters_n: cutlass.Int32):
    """(m, n, batch) of this CTA's output tile in the cluster of tiles that comes index-th.

    RASTER_GROUP rows of clusters are walked together, column by column: what runs at one time is
    nearly a square of the output, and shares the most of A and B in L2.
    """
    batch, index = index // (clusters_m * clusters_n), index % (clusters_m * clusters_n)
    group, index = index // (RASTER_GROUP * clusters_n), index % (RASTER_GROUP * clusters_n)
    rows = cutlass.min(RASTER_GROUP, clusters_m - group * RASTER_GROUP)
    cta_m, cta_n, _ = cute.arch.block_in_cluster_idx()
    m = (group * RASTER_GROUP + index % rows) * CLUSTER_M + cta_m
    n = index // rows * CLUSTER_N + cta_n
    return m, n, batch


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, gmem: cute.Tensor, cta=0, ctas=1):
    """What one of `ctas` CTAs copies: SMEM (copy, STAGE), GMEM (copy, tiles, tiles, L)."""
    smem = cute.group_modes(smem, 0, cute.rank(smem) - 1)
    gmem = cute.group_modes(gmem, 0, cute.rank(gmem) - 3)
    return cpasync.tma_partition(tma.atom, cta, cute.make_layout(ctas), smem, gmem)


@cute.jit
def multiply(mainloop_consumer, accumulator_producer, tiled_mma, tCtAcc, tCrA, tCrB, k_tiles):
    """One output tile's MMAs: the next k_tiles stages into the next accumulator."""
    buffer = accumulator_producer.acquire_and_advance()
    acc = tCtAcc[None, None, None, buffer.index]
    tiled_mma.set(tcgen05.Field.ACCUMULATE, False)  # the first MMA overwrites acc
    for _ in cutlass.range(k_tiles, unroll=1):
        stage = mainloop_consumer.wait_and_advance()
        for k in cutlass.range_constexpr(MMAS_PER_STAGE):
            a, b = tCrA[None, None, k, stage.index], tCrB[None, None, k, stage.index]
            cute.gemm(tiled_mma, acc, a, b, acc)
            tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
        # Nobody waits here: the commit arrives once the MMAs so far are done.
        stage.release()
    buffer.commit()
    return mainloop_consumer, accumulator_producer, tiled_mma


@cute.kernel
def gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, tiles):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    _, _, first = cute.arch.block_idx()  # grid: (CLUSTER_M, CLUSTER_N, clusters)
    _, _, step = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    a_smem, out_smem = tma_a.smem_layout, tma_out.smem_layout
    b_smem = tma_b.smem_layout
    sA = storage.a.get_tensor(a_smem.outer, swizzle=a_smem.inner)  # (MMA, M, K, STAGE)
    sB = storage.b.get_tensor(b_smem.outer, swizzle=b_smem.inner)  # (MMA, N, K, STAGE)
    sOut = storage.out.get_tensor(out_smem.outer, swizzle=out_smem.inner)  # (EPI_M, EPI_N, STAGE)
    # (MMA, M, N, STAGE), in TMEM: TILE_M lanes, TILE_N columns a stage
    acc_shape = cute.append(tiled_mma.partition_shape_C((TILE_M, TILE_N)), ACC_STAGES)
    acc_layout = tiled_mma.make_fragment_C(acc_shape).layout

    # The store warp allocates; those who use TMEM meet here before they read its address.
    tmem = memory.TmemAllocator(
        storage.tmem_address.data_ptr(),
        barrier_for_retrieve=pipeline.NamedBarrier(TMEM_BARRIER, EPILOGUE_THREADS + 32),
        allocator_warp_id=STORE_WARP,
    )
    # (V, M, N, K). V's stride is 0, as in the DSL's default layout: the commits' mask also takes in
    # the CTA at V = 1, even where there are no pairs, which with an explicit stride other than 0
    # may be one that the cluster does not have (nvidia-cutlass-dsl 4.8.1; CUTLASS issue 3658).
    ctas = cute.make_layout((1, CLUSTER_M, CLUSTER_N, 1), stride=(0, 1, CLUSTER_M, 0))
    thread_group = pipeline.Agent.Thread
    mainloop = pipeline.PipelineTmaUmma.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(thread_group, FULL_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(thread_group, EMPTY_ARRIVES),
        tx_count=TX_COUNT,
        barrier_storage=storage.mainloop_barriers.data_ptr(),
        cta_layout_vmnk=ctas,
        defer_sync=True,
    )
    accumulator = pipeline.PipelineUmmaAsync.create(
        num_stages=ACC_STAGES,
        producer_group=pipeline.CooperativeGroup(thread_group, ACC_FULL_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(thread_group, ACC_EMPTY_ARRIVES),
        barrier_storage=storage.accumulator_barriers.data_ptr(),
        cta_layout_vmnk=ctas,
        defer_sync=True,
    )
    # Nobody may touch a barrier, its own or another CTA's, before that one has been set up.
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER_M, CLUSTER_N), is_relaxed=True)
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER_M, CLUSTER_N))
    mainloop_producer, mainloop_consumer = mainloop.make_participants()
    accumulator_producer, accumulator_consumer = accumulator.make_participants()

    if warp_idx == TMA_WARP:
        # ---- TMA loads --------------------------------------------------------------------------
        thr_mma = tiled_mma.get_slice(0)
        # (MMA, M or N, K, tiles, K tiles, L)
        a_tiles = cute.local_tile(tma_a.tma_tensor, (TILE_M, TILE_K), (None, None, None))
        tCgA = thr_mma.partition_A(a_tiles)
        b_tiles = cute.local_tile(tma_b.tma_tensor, (TILE_N, TILE_K), (None, None, None))
        tCgB = thr_mma.partition_B(b_tiles)
        cta_m, cta_n, _ = cute.arch.block_in_cluster_idx()
        place = 0, cta_m, cta_n, 0
        # CTAs side by side along N use one A tile: each loads a part of it for all of them.
        tAsA, tAgA = partition_tma(tma_a, sA, tCgA, cta_n, CLUSTER_N)
        a_mask = cute.make_layout_image_mask(ctas, place, mode=2)
        tBsB, tBgB = partition_tma(tma_b, sB, tCgB)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(index, clusters_m, clusters_n)
            gA = tAgA[None, m, None, batch]  # (copy, K tiles)
            gB = tBgB[None, n, None, batch]
            for k in cutlass.range(k_tiles, unroll=1):
                # No stage.commit() after the copies: their bytes complete the barrier, and for this
                # class the handle's commit does not compile (nvidia-cutlass-dsl 4.8.1).
                stage = mainloop_producer.acquire_and_advance()
                full = stage.barrier
                a_stage = tAsA[None, stage.index]
                cute.copy(tma_a.atom, gA[None, k], a_stage, tma_bar_ptr=full, mcast_mask=a_mask)
                cute.copy(tma_b.atom, gB[None, k], tBsB[None, stage.index], tma_bar_ptr=full)
        # The last commits, other CTAs' among them, must find this CTA's barriers.
        mainloop_producer.tail()

    elif warp_idx == MMA_WARP:
        # ---- MMA --------------------------------------------------------------------------------
        tCrA = tiled_mma.make_fragment_A(sA)  # (MMA, M, K, STAGE): SMEM descriptors
        tCrB = tiled_mma.make_fragment_B(sB)  # (MMA, N, K, STAGE)
        tmem.wait_for_alloc()
        tCtAcc = cute.make_tensor(tmem.retrieve_ptr(ACC_DTYPE), acc_layout)
        for _ in cutlass.range(first, tiles, step, unroll=1):
            mainloop_consumer, accumulator_producer, tiled_mma = multiply(
                mainloop_consumer, accumulator_producer, tiled_mma, tCtAcc, tCrA, tCrB, k_tiles
            )
        # No tail: what empties an accumulator comes from this CTA's own warps.

    else:
        # ---- Epilogue ---------------------------------------------------------------------------
        tmem.allocate(TMEM_COLUMNS)
        # The CTA allocates once; as long as it holds the permit, no other one on this SM can.
        tmem.relinquish_alloc_permit()
        tmem.wait_for_alloc()
        tmem_ptr = tmem.retrieve_ptr(ACC_DTYPE)
        tCtAcc = cute.make_tensor(tmem_ptr, acc_layout)
        epi_tile = (EPI_TILE_M, EPI_TILE_N)
        # (EPI_M, EPI_N, 1, subtiles, STAGE)
        acc_tiles = cute.flat_divide(tCtAcc[(None, None), 0, 0, None], epi_tile)
        load_op = tcgen05.Ld32x32bOp(tcgen05.Repetition(EPI_TILE_N))
        load_atom = cute.make_copy_atom(load_op, ACC_DTYPE)
        load = tcgen05.make_tmem_copy(load_atom, acc_tiles[None, None, 0, 0, 0])
        thr_load = load.get_slice(thread)
        tTtAcc = thr_load.partition_S(acc_tiles)  # (load, M, N, 1, subtiles, STAGE)

        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, EPILOGUE_THREADS)
        epilogue = pipeline.PipelineTmaStore.create(num_stages=EPI_STAGES, producer_group=group)
        epilogue_warps = pipeline.NamedBarrier(EPI_BARRIER, EPILOGUE_THREADS)
        store_atom = cute.make_copy_atom(CopyUniversalOp(), OUT_DTYPE, num_bits_per_copy=128)
        store = cute.make_tiled_copy_D(store_atom, load)
        tRsOut = store.get_slice(thread).partition_D(sOut)  # (copy, M, N, STAGE)
        out_tiles = cute.local_tile(tma_out.tma_tensor, epi_tile, (None, None, None))
        tSsOut, tSgOut = partition_tma(tma_out, sOut, out_tiles)
        # The place in the ring of store buffers; PipelineTmaStore keeps none.
        place_out = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, EPI_STAGES)

        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(index, clusters_m, clusters_n)
            buffer = accumulator_consumer.wait_and_advance()
            tile = cute.make_identity_tensor((TILE_M, TILE_N))
            tile = cute.domain_offset((m * TILE_M, n * TILE_N), tile)
            coords = thr_load.partition_D(cute.flat_divide(tile, epi_tile))
            for subtile in cutlass.range_constexpr(EPI_SUBTILES):
                coord = coords[None, None, None, 0, subtile]
                acc = cute.make_rmem_tensor(coord.shape, ACC_DTYPE)
                cute.copy(load, tTtAcc[None, None, None, 0, subtile, buffer.index], acc)
                # The load has come back before its registers are used or TMEM is given away.
                cute.arch.fence_view_async_tmem_load()
                if cutlass.const_expr(subtile + 1 == EPI_SUBTILES):
                    with cute.arch.elect_one():
                        buffer.release()
                epilogue_op(acc, coord)
                rOut = cute.make_rmem_tensor(acc.shape, OUT_DTYPE)
                rOut.store(acc.load().to(OUT_DTYPE))

                # Only the store warp knows whether the buffer's last store has read it.
                if warp_idx == STORE_WARP:
                    epilogue.producer_acquire()
                epilogue_warps.arrive_and_wait()
                cute.copy(store, store.retile(rOut), tRsOut[None, None, None, place_out.index])
                # TMA reads SMEM through the async proxy: publish to it first, then meet.
                cute.arch.fence_proxy("async.shared", space="cta")
                epilogue_warps.arrive_and_wait()
                if warp_idx == STORE_WARP:
                    gmem = tSgOut[None, m, n * EPI_SUBTILES + subtile, batch]
                    cute.copy(tma_out.atom, tSsOut[None, place_out.index], gmem)
                    epilogue.producer_commit()
                place_out.advance()

        # TMEM outlives a CTA that does not free it, and the next one on this SM would wait for
        # ever. All warps have read it; every MMA into it was waited for.
        epilogue_warps.arrive_and_wait()
        tmem.free(tmem_ptr)
        if warp_idx == STORE_WARP:
            epilogue.producer_tail()

    # A CTA that has left cannot be signalled. The tail has waited for every arrive at this CTA's
    # barriers; leaving together keeps that safe when the roles above are edited.
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


def smem_layout(swizzle: SmemLayoutAtomKind, dtype, shape, stages: int, order: tuple):
    """(MMA, M or N, K, STAGE), swizzled in a way that both TMA and tcgen05 know."""
    atom = tcgen05.make_smem_layout_atom(swizzle, dtype)
    return tcgen05.tile_to_mma_shape(atom, cute.append(shape, stages), order=order)


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `gemm` packs."""
    # One argument instead of 14: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(14))
    m, n, k, batches, max_clusters = [cutlass.Int32(numbers[i]) for i in range(3, 8)]
    a_row, a_batch = cute.assume(numbers[8], A_ALIGN), cute.assume(numbers[9], A_ALIGN)
    b_row, b_batch = cute.assume(numbers[10], B_ALIGN), cute.assume(numbers[11], B_ALIGN)
    out_row, out_batch = cute.assume(numbers[12], OUT_ALIGN), cute.assume(numbers[13], OUT_ALIGN)
    a_layout = cute.make_layout((m, k, batches), stride=(a_row, 1, a_batch))
    b_layout = cute.make_layout((n, k, batches), stride=(b_row, 1, b_batch))
    out_layout = cute.make_layout((m, n, batches), stride=(out_row, 1, out_batch))

    gmem = cute.AddressSpace.gmem
    a = cute.make_tensor(cute.make_ptr(A_DTYPE, numbers[0], gmem, assumed_align=16), a_layout)
    b = cute.make_tensor(cute.make_ptr(B_DTYPE, numbers[1], gmem, assumed_align=16), b_layout)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[2], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, out_layout)

    one, smem = tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM
    mma_shape = (TILE_M, TILE_N, MMA_K)
    a_major, b_major = OperandMajorMode.K, OperandMajorMode.K
    mma_op = tcgen05.MmaF16BF16Op(A_DTYPE, ACC_DTYPE, mma_shape, one, smem, a_major, b_major)
    tiled_mma = cute.make_tiled_mma(mma_op)

    a_shape = tiled_mma.partition_shape_A((TILE_M, TILE_K))
    b_shape = tiled_mma.partition_shape_B((TILE_N, TILE_K))
    a_smem = smem_layout(A_SWIZZLE, A_DTYPE, a_shape, MAINLOOP_STAGES, (1, 2, 3))
    b_smem = smem_layout(B_SWIZZLE, B_DTYPE, b_shape, MAINLOOP_STAGES, (1, 2, 3))
    out_tile = (EPI_TILE_M, EPI_TILE_N)
    out_atom = tcgen05.make_smem_layout_atom(OUT_SWIZZLE, OUT_DTYPE)
    out_smem = cute.tile_to_shape(out_atom, (*out_tile, EPI_STAGES), order=(0, 1, 2))
    tile, ctas = (TILE_M, TILE_N, TILE_K), (1, CLUSTER_M, CLUSTER_N, 1)
    multicast = cpasync.CopyBulkTensorTileG2SMulticastOp(one)
    load = cpasync.CopyBulkTensorTileG2SOp(one)
    tma_a = make_tiled_tma_atom_A(multicast, a, a_smem, tile, tiled_mma, ctas)
    tma_b = make_tiled_tma_atom_B(load, b, b_smem, tile, tiled_mma, ctas)
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, out_tile)

    clusters_m = cute.ceil_div(m, TILE_M * CLUSTER_M)
    clusters_n = cute.ceil_div(n, TILE_N * CLUSTER_N)
    tiles = clusters_m * clusters_n * batches
    k_tiles = cute.ceil_div(k, TILE_K)
    kernel = gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, tiles)
    grid = (CLUSTER_M, CLUSTER_N, cutlass.min(tiles, max_clusters))
    cluster = (CLUSTER_M, CLUSTER_N, 1)
    kernel.launch(
        grid=grid, block=(THREADS, 1, 1), cluster=cluster, min_blocks_per_mp=1, stream=stream
    )


@functools.cache
def compile_gemm():
    """`launch`, compiled: once, for all sizes and strides. Needs no GPU."""
    problem = cute.runtime.make_ptr(cutlass.Int64, 0)
    return cute.compile(launch, problem, cute.runtime.make_fake_stream())


@functools.cache
def max_clusters(device: int) -> int:
    """Clusters that run at once. More would wait for a first one to end: a second, short wave."""
    return HardwareInfo(device).get_max_active_clusters(CLUSTER_M * CLUSTER_N)


@functools.lru_cache(maxsize=1024)
def matrix(name: str, dtype, shape: tuple, strides: tuple, wanted: str, align: int):
    """((L, rows, columns), row stride, batch stride) of an operand, checked for TMA."""
    if str(dtype).removeprefix("torch.") != wanted:
        raise TypeError(f"{name}.dtype={dtype}: must be {wanted}")
    if len(shape) not in (2, 3) or min(shape) < 1 or max(shape) >= 2**31:
        raise ValueError(f"{name}.shape={tuple(shape)}: must be 2 or 3 sizes from 1 to 2**31 - 1")
    batches, rows, columns = (1, *shape)[-3:]
    batch, row, column = (0, *strides)[-3:]
    # A dimension of size 1 may have any stride: it is not used, and `align` takes its place.
    batch, row = batch if batches > 1 else align, row if rows > 1 else align
    if (column != 1 and columns > 1) or min(batch, row) < 1 or batch % align or row % align:
        rule = f"must be 1 last, and positive multiples of {align} elements (16 bytes) before"
        raise ValueError(f"{name}.stride={tuple(strides)}: {rule}")
    extent = 1  # elements from the first to the last one, in the dimensions so far
    for stride, size in sorted([(1, columns), (row, rows), (batch, batches)]):
        if name == "out" and size > 1 and stride < extent:
            raise ValueError(f"out.stride={tuple(strides)}: elements of out overlap")
        extent += (size - 1) * stride
    return (batches, rows, columns), row, batch


def operand(name: str, tensor, dtype: str, align: int):
    """(address, device, what `matrix` returns) of a tensor."""
    if hasattr(tensor, "data_ptr"):  # torch: quicker than DLPack, which may refuse float8
        address, device = tensor.data_ptr(), tensor.get_device()
        shape, strides = tensor.shape, tensor.stride()
    else:
        device_type, device = tensor.__dlpack_device__()
        device = device if device_type == 2 else -1  # 2 is CUDA
        view = cute.runtime.from_dlpack(tensor)
        address, shape, strides = view.data_ptr, view.shape, view.stride
    if address % 16:
        raise ValueError(f"{name} address={address:#x}: must be a multiple of 16")
    return address, device, matrix(name, tensor.dtype, shape, strides, dtype, align)


def gemm(a, b, out, stream=None):
    """Writes A[l] @ B[l].T to out[l]: a is (L, M, K), b is (L, N, K), out is (L, M, N).

    Takes torch tensors, and others through DLPack (jax, cupy), on the current device. `stream` is
    a CUstream, an int or a torch stream; None is torch's current stream if torch is in use, else
    the default stream.
    """
    a_address, a_device, (a_shape, *a_strides) = operand("a", a, "bfloat16", A_ALIGN)
    b_address, b_device, (b_shape, *b_strides) = operand("b", b, "bfloat16", B_ALIGN)
    out_address, device, (out_shape, *out_strides) = operand("out", out, "bfloat16", OUT_ALIGN)
    (batches, m, n), k = out_shape, a_shape[2]
    if a_shape != (batches, m, k) or b_shape != (batches, n, k):
        shapes = f"a.shape={a_shape}, b.shape={b_shape}, out.shape={out_shape}"
        raise ValueError(f"{shapes}: must be (L, M, K), (L, N, K), (L, M, N)")
    if n % OUT_ALIGN:
        raise ValueError(f"N={n}: must be a multiple of {OUT_ALIGN}, TMA stores 16 bytes at a time")
    if not 0 <= a_device == b_device == device:
        devices = f"a.device={a_device}, b.device={b_device}, out.device={device}"
        raise ValueError(f"{devices}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if device != current:
        raise ValueError(f"out.device={device}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    numbers = a_address, b_address, out_address, m, n, k, batches, max_clusters(device)
    problem = array.array("q", (*numbers, *a_strides, *b_strides, *out_strides))
    compile_gemm()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(a, b):
    """What `gemm` should write, in float64; for torch tensors."""
    return a.double() @ b.double().mT


def check(torch, m: int, n: int, k: int, batches: int = 1) -> bool:
    """Compares one size with the reference, and sees that nothing beside out is written."""

    def buffer(rows, columns, dtype, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        row = (columns // align + 1) * align
        return torch.randn(batches, rows, row, device="cuda").to(dtype)

    a = buffer(m, k, torch.bfloat16, A_ALIGN)[..., :k]
    b = buffer(n, k, torch.bfloat16, B_ALIGN)[..., :k]
    around = buffer(m + 1, n, torch.bfloat16, OUT_ALIGN).fill_(float("nan"))
    out = around[:, :m, :n]
    gemm(a, b, out)
    expected = reference(a, b)
    error = ((out.double() - expected).norm() / expected.norm()).item()
    intact = (around[:, m:].isnan().all() & around[..., n:].isnan().all()).item()
    passed = error <= 1e-2 and intact  # never true for NaN
    verdict, beside = "PASS" if passed else "FAIL", "" if intact else ", and wrote beside out"
    print(f"{verdict} {m=} {n=} {k=} {batches=}: relative error {error:.1e}, limit 1e-2{beside}")
    return passed


def main(argv=None) -> int:
    def size(text):
        m, n, k, *batches = map(int, text.split(","))
        return m, n, k, *batches

    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--size", type=size, metavar="M,N,K[,L]", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        compile_gemm()
        print("PASS compiles for sm_100a")
        return 0
    try:
        import torch
    except ImportError:
        print("SKIP torch is not installed (--compile-only works without it)")
        return 0
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (10, 0):
        print("SKIP no GPU of compute capability 10.0 (--compile-only works without)")
        return 0
    tails = [(TILE_M, TILE_N, TILE_K), (1000, 1000, 500), (333, 776, 1001, 3), (4096, 4096, 4096)]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
