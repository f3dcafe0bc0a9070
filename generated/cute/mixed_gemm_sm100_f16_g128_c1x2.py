# SPDX-License-Identifier: Apache-2.0
# pipegen: mixed_gemm | cute | sm_100a
# template: cute/mixed_gemm_sm100.py.j2 8ba42a64f391
# text: 38ee9bf2fbc7
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "mixed_gemm"
#   backend = "cute"
#   arch = "sm_100a"
#   name = "mixed_gemm_sm100_f16_g128_c1x2"
#
#   [dtype]
#   a = "f16"
#   scale_group = 128
#
#   [cluster]
#   shape = [1, 2]
"""Mixed GEMM for Blackwell (sm_100a) in the CuTe DSL: f16 x (scale * i8) -> f32 -> f16.

Its template was compiled and emulated, and never run: no Blackwell GPU was at hand.

out[l] = A[l] @ (scale[l] * B[l]).T, with f16 activations A, i8 weights B, and
one f16 scale for 128 of K of an output channel: a weight is scaled, and rounded, as f16.

Persistent and warp-specialized: a CTA computes tiles of 128 x 128, one after the other; it
loads and multiplies the next while it stores this one.

tcgen05 takes its first operand from SMEM or TMEM. So the weights come first: a CTA computes
out.T = W @ A.T, with 128 channels for the 128 lanes of TMEM. A transform thread owns a lane, which
is a channel: it reads its row of weights from SMEM, converts it, and writes it into its lane, where
tcgen05 expects the K of a row side by side: no swizzle, and nothing to publish to the async proxy.

Roles of a CTA's 320 threads
  epilogue   warps 0 to 3 read the accumulator from TMEM, 32 channels each; warp 0 also allocates
             and frees TMEM, and issues the TMA stores
  transform  warps 4 to 7 convert the weights, 32 channels each, from SMEM into TMEM
  mma        warp 8 issues all tcgen05 MMAs
  tma        warp 9 issues all TMA loads

Pipelines
               class              producer -> consumer  stages  full barrier        empty barrier
  weights      PipelineTmaAsync   TMA -> threads        4       1 arrive + 16640 B  4 arrives
  transform    PipelineAsyncUmma  threads -> tcgen05    4       128 arrives         1 commit
  mainloop     PipelineTmaUmma    TMA -> tcgen05        4       1 arrive + 32768 B  2 commits
  accumulator  PipelineUmmaAsync  tcgen05 -> threads    2       1 commit            4 arrives
  epilogue     PipelineTmaStore   threads -> TMA store  4       none                none

  weights      Filled by a B tile as it is in memory and the scales of its group of K: `acquire`
               waits until the stage is empty and arms its full barrier with tx_count, which the
               copies complete as their bytes land.
               Emptied by one arrive of each transform warp, once the warp has read its channels.
  transform    4 buffers of 64 TMEM columns. Filled by the transform threads: each arrives for what
               it has written itself. Emptied by a tcgen05 commit, when the MMAs have read it.
  mainloop     Filled by an A tile, as `weights` is. Emptied by one tcgen05 commit of the MMA warp
               of every CTA that receives what this one loads.
  accumulator  2 buffers of 128 TMEM columns. Filled by the MMAs of all K tiles: one tcgen05 commit.
               Emptied by one arrive of each epilogue warp, once it has its part in registers.
  epilogue     Filled by all epilogue warps with a piece of 32 x 128, 8192 B; emptied by the
               TMA store. No barriers: `commit` closes a bulk group, and `acquire` waits until fewer
               groups than buffers (4) still read SMEM: the oldest buffer is free.

Timeline of a CTA (K tiles k0, k1, ... of output tile t)
  tma        load k0, k1, ...: at most 4 stages ahead | load k0, k1, ... of tile t+1
  transform  convert k0, k1, ...: at most 4 ahead | ...
  mma        acquire | wait k0 twice, mma k0, release k0 twice | ... | commit t | acquire | mma t+1
  epilogue                                                            wait t   | subtiles of t ...

Constraints
  a is (L, M, K), b is (L, N, K), scale is (L, K / 128, N), out is (L, M, N), or all four
  without L; the last dimension contiguous, other strides and the addresses multiples of 16 bytes.
  K / 128 is rounded up.
  Any M, K and L; N a multiple of 8, because TMA stores 16 bytes at a time. Where another
  kernel holds TMEM on the same SM, a CTA waits until enough of it is free.

Run
  python mixed_gemm_sm100_f16_g128_c1x2.py
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
    make_tiled_tma_atom_B,
    tcgen05,
)
from cutlass.cute.nvgpu.tcgen05 import SmemLayoutAtomKind
from cutlass.utils import HardwareInfo

A_DTYPE, PAIR_DTYPE = cutlass.Float16, cutlass.Uint16  # B is read as pairs of i8 along K
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.Float16

TILE_M, TILE_N, TILE_K = 128, 128, 128  # CTA tile, elements; N counts output channels
CLUSTER_M, CLUSTER_N = 1, 2  # CTAs; A is shared along N, B along M
RASTER_GROUP = 8  # cluster rows walked together, for L2
SCALE_GROUP = 128  # elements of K that share a scale
MMA_K = 16  # elements; 32 B of K an instruction
MMAS_PER_STAGE = 8  # 128 / 16

TRANSFORM_WARP, MMA_WARP, TMA_WARP = 4, 8, 9  # the first of four; warps 0 to 3 are the epilogue's
STORE_WARP = 0  # issues the TMA stores; allocates and frees TMEM
# 32 * 4 each: a warp reaches the 32 TMEM lanes of its number modulo 4.
EPILOGUE_THREADS, TRANSFORM_THREADS = 128, 128
THREADS = 320  # 32 * (4 + 4 + 1 + 1)

MAINLOOP_STAGES = 4  # (232448 - 1024 - 2 * 8192) // 49408; of weights as well
MAINLOOP_TX_COUNT = 32768  # B: 128 * 128 * 2
WEIGHTS_TX_COUNT = 16640  # B: 16384 + 256, tile and scales
TMA_ARRIVES = 1  # on a full barrier: the TMA warp, when it arms tx_count
MAINLOOP_EMPTY_ARRIVES = 2  # 1 commit of the MMA warp of each of 2 CTAs that share A
WEIGHTS_EMPTY_ARRIVES = 4  # 4 transform warps

ACC_STAGES = 2  # accumulators in TMEM
ACC_EMPTY_ARRIVES = 4  # the epilogue warps
TRANSFORM_STAGES = 4  # min(4, (512 - 2 * 128) // 64): the TMEM columns left
COMMIT_ARRIVES = 1  # of the MMA warp
TMEM_COLUMNS = 512  # 2 * 128 + 4 * 64

ROW_PAIRS = 64  # 128 / 2: of a channel in a stage, 128 B
CHUNK_PAIRS, CHUNKS = 8, 8  # in the 16 B that a swizzle moves as one, and of a row
SWIZZLE_ROWS = 1  # 128 / 128: rows side by side that a swizzle treats alike
PIECE_PAIRS, PIECE_CHUNKS = 16, 2  # converted at a time: 16 registers

EPI_TILE_M, EPI_TILE_N = 32, 128  # elements of one store, 8192 B
EPI_SUBTILES = 4  # of a CTA tile, along M
EPI_STAGES = 4  # min(4, 4, (232448 - 1024 - 4 * 49408) // 8192)
# Named barriers: the epilogue warps; those, the transform warps and the MMA warp.
EPI_BARRIER, TMEM_BARRIER = 1, 2

A_SWIZZLE, B_SWIZZLE = SmemLayoutAtomKind.K_SW128, SmemLayoutAtomKind.K_SW128
OUT_SWIZZLE = SmemLayoutAtomKind.MN_SW128
A_ALIGN, B_ALIGN, OUT_ALIGN = 8, 16, 8  # elements (B: bytes) of 16 B, the unit of TMA strides
SCALE_ALIGN = 8


@cute.struct
class SharedStorage:  # 231424 B: 1024 + 4 * 49408 + 4 * 8192
    mainloop_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    weights_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    transform_barriers: cute.struct.MemRange[cutlass.Int64, 2 * TRANSFORM_STAGES]
    accumulator_barriers: cute.struct.MemRange[cutlass.Int64, 2 * ACC_STAGES]
    tmem_address: cute.struct.MemRange[cutlass.Int32, 1]
    a: cute.struct.Align[cute.struct.MemRange[A_DTYPE, TILE_M * TILE_K * MAINLOOP_STAGES], 1024]
    b: cute.struct.Align[
        cute.struct.MemRange[PAIR_DTYPE, TILE_N * ROW_PAIRS * MAINLOOP_STAGES], 1024
    ]
    out: cute.struct.Align[
        cute.struct.MemRange[OUT_DTYPE, EPI_TILE_M * EPI_TILE_N * EPI_STAGES], 1024
    ]
    scale: cute.struct.Align[cute.struct.MemRange[A_DTYPE, TILE_N * MAINLOOP_STAGES], 128]


# ==== Yours: what happens to the accumulator before it is rounded and stored ====================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 accumulators in place. As written it does, and costs, nothing.

    Called for each piece of EPI_TILE_M x EPI_TILE_N, of which a thread holds one channel.
    acc[i] belongs to out[batch, m, n] with (n, m) = coord[i], which may lie outside an edge tile.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`. A bias of N elements (its
    address joins the others in `gemm`; `launch` makes a tensor of it, which comes down to here):

        for i in cutlass.range_constexpr(cute.size(acc)):
            if coord[i][0] < cute.size(bias):
                acc[i] += bias[coord[i][0]].to(ACC_DTYPE)
    """


@cute.jit
def convert(pair: cutlass.Int32, scale: cutlass.Int32):
    """Two i8 in the low bits of `pair` as two f16, exact, then times the two of `scale`."""
    # f16 with high byte 0x64 and low byte u is 1024 + u; with the sign bit turned, u is the weight
    # + 128.
    biased = cutlass.Int32(cute.arch.prmt(pair, 0x64, 0x4140))  # u0, 0x64, u1, 0x64 from the lowest
    one, minus_1152 = cutlass.Int32(0x3C003C00), cutlass.Int32(0xE480E480 - 2**32)
    value = cute.arch.fma_packed_f16x2(biased ^ 0x00800080, one, minus_1152)
    return cute.arch.fma_packed_f16x2(value, scale, cutlass.Int32(0))


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


@cute.kernel
def gemm_kernel(
    tma_a, tma_b, tma_scale, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, tiles
):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    _, _, first = cute.arch.block_idx()  # grid: (CLUSTER_M, CLUSTER_N, clusters)
    _, _, step = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    a_smem, b_smem, out_smem = tma_a.smem_layout, tma_b.smem_layout, tma_out.smem_layout
    sA = storage.a.get_tensor(a_smem.outer, swizzle=a_smem.inner)  # (MMA, M, K, STAGE)
    sB = storage.b.get_tensor(b_smem.outer, swizzle=b_smem.inner)  # (TILE_N, ROW_PAIRS, STAGE)
    sOut = storage.out.get_tensor(out_smem.outer, swizzle=out_smem.inner)  # (EPI_N, EPI_M, STAGE)
    sScale = storage.scale.get_tensor(tma_scale.smem_layout)  # (TILE_N, 1, STAGE)
    # tcgen05's first operand, A of the names below, is B; its M counts channels, its N tokens.
    # (MMA, N, M, STAGE), in TMEM: TILE_N lanes, TILE_M columns a stage
    acc_shape = cute.append(tiled_mma.partition_shape_C((TILE_N, TILE_M)), ACC_STAGES)
    acc_layout = tiled_mma.make_fragment_C(acc_shape).layout
    # (MMA, N, K, STAGE), in TMEM behind the accumulators: TILE_N lanes, TILE_K / 2 columns a stage
    b_shape = cute.append(tiled_mma.partition_shape_A((TILE_N, TILE_K)), TRANSFORM_STAGES)
    b_layout = tiled_mma.make_fragment_A(b_shape).layout

    # (V, M, N, K). V's stride is 0, as in the DSL's default layout: the commits' mask also takes in
    # the CTA at V = 1, even where there are no pairs, which with an explicit stride other than 0
    # may be one that the cluster does not have (nvidia-cutlass-dsl 4.8.1; CUTLASS issue 3658).
    ctas = cute.make_layout((1, CLUSTER_M, CLUSTER_N, 1), stride=(0, 1, CLUSTER_M, 0))
    thread_group = pipeline.Agent.Thread
    # A comes from the CTAs of this row of the cluster, B from those of this column: mcast_mode_mn
    # says who is told that a stage is empty.
    mainloop = pipeline.PipelineTmaUmma.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(thread_group, TMA_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(thread_group, MAINLOOP_EMPTY_ARRIVES),
        tx_count=MAINLOOP_TX_COUNT,
        barrier_storage=storage.mainloop_barriers.data_ptr(),
        cta_layout_vmnk=ctas,
        mcast_mode_mn=(1, 0),
        defer_sync=True,
    )
    weights = pipeline.PipelineTmaAsync.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(thread_group, TMA_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(thread_group, WEIGHTS_EMPTY_ARRIVES),
        tx_count=WEIGHTS_TX_COUNT,
        barrier_storage=storage.weights_barriers.data_ptr(),
        cta_layout_vmnk=ctas,
        mcast_mode_mn=(0, 1),
        defer_sync=True,
    )
    transform = pipeline.PipelineAsyncUmma.create(
        num_stages=TRANSFORM_STAGES,
        producer_group=pipeline.CooperativeGroup(thread_group, TRANSFORM_THREADS),
        consumer_group=pipeline.CooperativeGroup(thread_group, COMMIT_ARRIVES),
        barrier_storage=storage.transform_barriers.data_ptr(),
        cta_layout_vmnk=ctas,
        defer_sync=True,
    )
    accumulator = pipeline.PipelineUmmaAsync.create(
        num_stages=ACC_STAGES,
        producer_group=pipeline.CooperativeGroup(thread_group, COMMIT_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(thread_group, ACC_EMPTY_ARRIVES),
        barrier_storage=storage.accumulator_barriers.data_ptr(),
        cta_layout_vmnk=ctas,
        defer_sync=True,
    )
    # Nobody may touch a barrier, its own or another CTA's, before that one has been set up.
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER_M, CLUSTER_N), is_relaxed=True)
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER_M, CLUSTER_N))
    mainloop_producer, mainloop_consumer = mainloop.make_participants()
    weights_producer, weights_consumer = weights.make_participants()
    transform_producer, transform_consumer = transform.make_participants()
    accumulator_producer, accumulator_consumer = accumulator.make_participants()

    # The store warp allocates; those who use TMEM meet here before they read its address.
    tmem = memory.TmemAllocator(
        storage.tmem_address.data_ptr(),
        barrier_for_retrieve=pipeline.NamedBarrier(
            TMEM_BARRIER, EPILOGUE_THREADS + TRANSFORM_THREADS + 32
        ),
        allocator_warp_id=STORE_WARP,
    )

    if warp_idx == TMA_WARP:
        # ---- TMA loads --------------------------------------------------------------------------
        # (MMA, M, K, tiles, K tiles, L) and (TILE_N, ROW_PAIRS, tiles, K tiles, L)
        a_tiles = cute.local_tile(tma_a.tma_tensor, (TILE_M, TILE_K), (None, None, None))
        a_tiles = tiled_mma.get_slice(0).partition_B(a_tiles)
        b_tiles = cute.local_tile(tma_b.tma_tensor, (TILE_N, ROW_PAIRS), (None, None, None))
        cta_m, cta_n, _ = cute.arch.block_in_cluster_idx()
        place = 0, cta_m, cta_n, 0
        # CTAs side by side along N use one A tile: each loads a part of it for all of them.
        tAsA, tAgA = partition_tma(tma_a, sA, a_tiles, cta_n, CLUSTER_N)
        a_mask = cute.make_layout_image_mask(ctas, place, mode=2)
        tBsB, tBgB = partition_tma(tma_b, sB, b_tiles)
        scale_tiles = cute.local_tile(tma_scale.tma_tensor, (TILE_N, 1), (None, None, None))
        tSsS, tSgS = partition_tma(tma_scale, sScale, scale_tiles)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(index, clusters_m, clusters_n)
            gA, gB = tAgA[None, m, None, batch], tBgB[None, n, None, batch]  # (copy, K tiles)
            gS = tSgS[None, n, None, batch]  # (copy, groups)
            for k in cutlass.range(k_tiles, unroll=1):
                # Weights first: they have the longer way. No commit after the copies, for their
                # bytes complete the barrier, and for PipelineTmaUmma the handle's commit does not
                # compile (nvidia-cutlass-dsl 4.8.1).
                stage = weights_producer.acquire_and_advance()
                full, b_stage = stage.barrier, tBsB[None, stage.index]
                cute.copy(tma_b.atom, gB[None, k], b_stage, tma_bar_ptr=full)
                group, s_stage = gS[None, k // (SCALE_GROUP // TILE_K)], tSsS[None, stage.index]
                cute.copy(tma_scale.atom, group, s_stage, tma_bar_ptr=full)
                stage = mainloop_producer.acquire_and_advance()
                full, a_stage = stage.barrier, tAsA[None, stage.index]
                cute.copy(tma_a.atom, gA[None, k], a_stage, tma_bar_ptr=full, mcast_mask=a_mask)
        # The last releases and commits, other CTAs' among them, must find this CTA's barriers.
        weights_producer.tail()
        mainloop_producer.tail()

    elif warp_idx == MMA_WARP:
        # ---- MMA --------------------------------------------------------------------------------
        tCrA = tiled_mma.make_fragment_B(sA)  # (MMA, M, K, STAGE): SMEM descriptors
        tmem.wait_for_alloc()
        tmem_ptr = tmem.retrieve_ptr(ACC_DTYPE)
        tCtAcc = cute.make_tensor(tmem_ptr, acc_layout)
        b_ptr = cute.recast_ptr(tmem_ptr + ACC_STAGES * TILE_M, dtype=A_DTYPE)
        tCtB = cute.make_tensor(b_ptr, b_layout)
        for _ in cutlass.range(first, tiles, step, unroll=1):
            buffer = accumulator_producer.acquire_and_advance()
            acc = tCtAcc[None, None, None, buffer.index]
            tiled_mma.set(tcgen05.Field.ACCUMULATE, False)  # the first MMA overwrites acc
            for _ in cutlass.range(k_tiles, unroll=1):
                converted = transform_consumer.wait_and_advance()
                stage = mainloop_consumer.wait_and_advance()
                for k in cutlass.range_constexpr(MMAS_PER_STAGE):
                    b, a = tCtB[None, None, k, converted.index], tCrA[None, None, k, stage.index]
                    cute.gemm(tiled_mma, acc, b, a, acc)
                    tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
                # Nobody waits here: the commits arrive once the MMAs so far are done.
                converted.release()
                stage.release()
            buffer.commit()
        # No tail: what empties an accumulator comes from this CTA's own warps.

    elif warp_idx >= TRANSFORM_WARP:
        # ---- Transform --------------------------------------------------------------------------
        row = thread - 32 * TRANSFORM_WARP  # a channel of the tile, and a TMEM lane
        chunks = cute.make_layout((CHUNK_PAIRS, CHUNKS, TILE_N, MAINLOOP_STAGES))
        sB_chunks = storage.b.get_tensor(chunks)
        scale_bits = storage.scale.get_tensor(
            cute.make_layout((TILE_N, MAINLOOP_STAGES)), dtype=cutlass.Uint16
        )
        tmem.wait_for_alloc()
        b_ptr = cute.recast_ptr(tmem.retrieve_ptr(ACC_DTYPE) + ACC_STAGES * TILE_M, dtype=A_DTYPE)
        tCtB = cute.make_tensor(b_ptr, b_layout)
        convert_atom = cute.make_copy_atom(
            tcgen05.St32x32bOp(tcgen05.Repetition(PIECE_PAIRS)), A_DTYPE
        )
        write = tcgen05.make_tmem_copy(convert_atom, tCtB[None, None, None, 0])
        thr_write = write.get_slice(row)
        tTtB = thr_write.partition_D(tCtB)  # (write, N, 1, pieces of K, STAGE)
        # A thread's part, as coordinates: one row, and 2 * PIECE_PAIRS of K a piece, in order.
        tile = tiled_mma.get_slice(0).partition_A(cute.make_identity_tensor((TILE_N, TILE_K)))
        coords = thr_write.partition_S(tile)  # (write, N, 1, pieces of K)
        pairs = cute.make_rmem_tensor((CHUNK_PAIRS, PIECE_CHUNKS), PAIR_DTYPE)
        for _ in cutlass.range(first, tiles, step, unroll=1):
            for _ in cutlass.range(k_tiles, unroll=1):
                stage = weights_consumer.wait_and_advance()
                converted = transform_producer.acquire_and_advance()
                scale = cute.arch.prmt(scale_bits[row, stage.index].to(cutlass.Int32), 0, 0x1010)
                for piece in cutlass.range_constexpr(cute.size(coords, mode=[3])):
                    # 16 B a load. The swizzle moves chunk i of row r to i ^ (r // SWIZZLE_ROWS).
                    for i in cutlass.range_constexpr(PIECE_CHUNKS):
                        chunk = (piece * PIECE_CHUNKS + i) ^ (row // SWIZZLE_ROWS % CHUNKS)
                        cute.autovec_copy(sB_chunks[None, chunk, row, stage.index], pairs[None, i])
                    rB = cute.make_rmem_tensor(coords[None, None, None, 0].shape, A_DTYPE)
                    registers = cute.recast_tensor(rB, cutlass.Int32)
                    for i in cutlass.range_constexpr(PIECE_PAIRS):
                        registers[i] = convert(pairs[i].to(cutlass.Int32), scale)
                    cute.copy(write, rB, tTtB[None, None, None, piece, converted.index])
                # The stores have reached TMEM before this thread vouches for them.
                cute.arch.fence_view_async_tmem_store()
                converted.commit()
                # The next copy writes this stage through the async proxy: every lane's reads come
                # first.
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.sync_warp()
                stage.release()
        # Leaves no commit pending: waits until every buffer has been released.
        transform_producer.tail()

    else:
        # ---- Epilogue ---------------------------------------------------------------------------
        tmem.allocate(TMEM_COLUMNS)
        # The CTA allocates once; as long as it holds the permit, no other one on this SM can.
        tmem.relinquish_alloc_permit()
        tmem.wait_for_alloc()
        tmem_ptr = tmem.retrieve_ptr(ACC_DTYPE)
        tCtAcc = cute.make_tensor(tmem_ptr, acc_layout)
        epi_tile = (EPI_TILE_N, EPI_TILE_M)
        # (EPI_N, EPI_M, 1, subtiles, STAGE)
        acc_tiles = cute.flat_divide(tCtAcc[(None, None), 0, 0, None], epi_tile)
        load_op = tcgen05.Ld32x32bOp(tcgen05.Repetition(EPI_TILE_M))
        load_atom = cute.make_copy_atom(load_op, ACC_DTYPE)
        load = tcgen05.make_tmem_copy(load_atom, acc_tiles[None, None, 0, 0, 0])
        thr_load = load.get_slice(thread)
        tTtAcc = thr_load.partition_S(acc_tiles)  # (load, N, M, 1, subtiles, STAGE)

        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, EPILOGUE_THREADS)
        epilogue = pipeline.PipelineTmaStore.create(num_stages=EPI_STAGES, producer_group=group)
        epilogue_warps = pipeline.NamedBarrier(EPI_BARRIER, EPILOGUE_THREADS)
        # A warp stores 32 channels of a token side by side: one element a thread and instruction.
        store_atom = cute.make_copy_atom(
            CopyUniversalOp(), OUT_DTYPE, num_bits_per_copy=OUT_DTYPE.width
        )
        store = cute.make_tiled_copy_D(store_atom, load)
        tRsOut = store.get_slice(thread).partition_D(sOut)  # (copy, N, M, STAGE)
        out_tiles = cute.local_tile(tma_out.tma_tensor, epi_tile, (None, None, None))
        tSsOut, tSgOut = partition_tma(tma_out, sOut, out_tiles)
        # The place in the ring of store buffers; PipelineTmaStore keeps none.
        place_out = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, EPI_STAGES)

        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(index, clusters_m, clusters_n)
            tile = cute.make_identity_tensor((TILE_N, TILE_M))
            tile = cute.domain_offset((n * TILE_N, m * TILE_M), tile)
            coords = thr_load.partition_D(cute.flat_divide(tile, epi_tile))
            buffer = accumulator_consumer.wait_and_advance()
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
                    gmem = tSgOut[None, n, m * EPI_SUBTILES + subtile, batch]
                    cute.copy(tma_out.atom, tSsOut[None, place_out.index], gmem)
                    epilogue.producer_commit()
                place_out.advance()

        # TMEM outlives a CTA that does not free it, and the next one on this SM would wait for
        # ever. All warps have read it; every MMA into it and out of it was waited for.
        epilogue_warps.arrive_and_wait()
        tmem.free(tmem_ptr)
        if warp_idx == STORE_WARP:
            epilogue.producer_tail()

    # A CTA that has left cannot be signalled. The tails have waited for every arrive at this CTA's
    # barriers; leaving together keeps that safe when the roles above are edited.
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


def smem_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int, order: tuple):
    """(rows, columns, STAGE), swizzled as TMA knows; atoms side by side in `order`."""
    atom = tcgen05.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=order)


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `gemm` packs."""
    # One argument instead of 17: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(17))
    m, n, k, batches, max_clusters = [cutlass.Int32(numbers[i]) for i in range(4, 9)]
    a_row, a_batch = cute.assume(numbers[9], A_ALIGN), cute.assume(numbers[10], A_ALIGN)
    # Strides of B count pairs here, 2 bytes.
    b_row, b_batch = [cute.assume(numbers[i] // 2, B_ALIGN // 2) for i in (11, 12)]
    out_row, out_batch = cute.assume(numbers[13], OUT_ALIGN), cute.assume(numbers[14], OUT_ALIGN)
    a_layout = cute.make_layout((m, k, batches), stride=(a_row, 1, a_batch))
    b_layout = cute.make_layout((n, cute.ceil_div(k, 2), batches), stride=(b_row, 1, b_batch))
    # The kernel computes out.T: channels first.
    out_layout = cute.make_layout((n, m, batches), stride=(1, out_row, out_batch))
    groups = cute.ceil_div(k, SCALE_GROUP)
    s_row, s_batch = cute.assume(numbers[15], SCALE_ALIGN), cute.assume(numbers[16], SCALE_ALIGN)
    scale_layout = cute.make_layout((n, groups, batches), stride=(1, s_row, s_batch))

    gmem = cute.AddressSpace.gmem
    a = cute.make_tensor(cute.make_ptr(A_DTYPE, numbers[0], gmem, assumed_align=16), a_layout)
    b = cute.make_tensor(cute.make_ptr(PAIR_DTYPE, numbers[1], gmem, assumed_align=16), b_layout)
    scale_ptr = cute.make_ptr(A_DTYPE, numbers[2], gmem, assumed_align=16)
    scale = cute.make_tensor(scale_ptr, scale_layout)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[3], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, out_layout)

    mma_shape, one, from_tmem = (
        (TILE_N, TILE_M, MMA_K),
        tcgen05.CtaGroup.ONE,
        tcgen05.OperandSource.TMEM,
    )
    k_major = OperandMajorMode.K
    mma_op = tcgen05.MmaF16BF16Op(A_DTYPE, ACC_DTYPE, mma_shape, one, from_tmem, k_major, k_major)
    tiled_mma = cute.make_tiled_mma(mma_op)

    a_shape = tiled_mma.partition_shape_B((TILE_M, TILE_K))  # (MMA, M, K), as tcgen05 reads it
    a_atom = tcgen05.make_smem_layout_atom(A_SWIZZLE, A_DTYPE)
    a_shape = cute.append(a_shape, MAINLOOP_STAGES)
    a_smem = tcgen05.tile_to_mma_shape(a_atom, a_shape, order=(1, 2, 3))
    b_tile, out_tile = (TILE_N, ROW_PAIRS), (EPI_TILE_N, EPI_TILE_M)
    b_smem = smem_layout(B_SWIZZLE, PAIR_DTYPE, b_tile, MAINLOOP_STAGES, (0, 1, 2))
    # Along M first: what TMA stores at once is a row of atoms, as many channels as a swizzle has.
    out_smem = smem_layout(OUT_SWIZZLE, OUT_DTYPE, out_tile, EPI_STAGES, (1, 0, 2))
    # In the order of tcgen05's M and N: channels, tokens.
    tile, ctas = (TILE_N, TILE_M, TILE_K), (1, CLUSTER_N, CLUSTER_M, 1)
    multicast = cpasync.CopyBulkTensorTileG2SMulticastOp(one)
    load = cpasync.CopyBulkTensorTileG2SOp(one)
    tma_a = make_tiled_tma_atom_B(multicast, a, a_smem, tile, tiled_mma, ctas)
    tma_b = cpasync.make_tiled_tma_atom(load, b, b_smem, b_tile)
    scale_smem = cute.make_layout((TILE_N, 1, MAINLOOP_STAGES))
    tma_scale = cpasync.make_tiled_tma_atom(load, scale, scale_smem, (TILE_N, 1))
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, out_tile)

    clusters_m = cute.ceil_div(m, TILE_M * CLUSTER_M)
    clusters_n = cute.ceil_div(n, TILE_N * CLUSTER_N)
    tiles = clusters_m * clusters_n * batches
    k_tiles = cute.ceil_div(k, TILE_K)
    kernel = gemm_kernel(
        tma_a, tma_b, tma_scale, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, tiles
    )
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


def operand(name: str, tensor, align: int, check, *arguments):
    """(address, device, what `check` returns) of a tensor; `align` is for its address."""
    if hasattr(tensor, "data_ptr"):  # torch: quicker than DLPack
        address, device = tensor.data_ptr(), tensor.get_device()
        shape, strides = tensor.shape, tensor.stride()
    else:
        device_type, device = tensor.__dlpack_device__()
        device = device if device_type == 2 else -1  # 2 is CUDA
        view = cute.runtime.from_dlpack(tensor)
        address, shape, strides = view.data_ptr, view.shape, view.stride
    if address % align:
        raise ValueError(f"{name} address={address:#x}: must be a multiple of {align}")
    return address, device, check(name, tensor.dtype, shape, strides, *arguments)


def mixed_gemm(a, b, scale, out, stream=None):
    """Writes A[l] @ (scale[l] * B[l]).T to out[l]. a is (L, M, K), b (L, N, K),
    scale (L, groups, N): scale[l, g, n] is for b[l, n, g * SCALE_GROUP] and what follows.

    Takes torch tensors, and others through DLPack (jax, cupy), on the current device. `stream` is
    a CUstream, an int or a torch stream; None is torch's current stream if torch is in use, else
    the default stream.
    """
    a_address, a_device, (a_shape, *a_strides) = operand("a", a, 16, matrix, "float16", A_ALIGN)
    b_address, b_device, (b_shape, *b_strides) = operand("b", b, 16, matrix, "int8", B_ALIGN)
    scale_address, scale_device, (scale_shape, *scale_strides) = operand(
        "scale", scale, 16, matrix, "float16", SCALE_ALIGN
    )
    out_address, device, (out_shape, *out_strides) = operand(
        "out", out, 16, matrix, "float16", OUT_ALIGN
    )
    (batches, m, n), k = out_shape, a_shape[2]
    b_wanted = batches, n, k
    scale_wanted = batches, (k + SCALE_GROUP - 1) // SCALE_GROUP, n
    if (a_shape, b_shape, scale_shape) != ((batches, m, k), b_wanted, scale_wanted):
        shapes = f"a.shape={a_shape}, b.shape={b_shape}, scale.shape={scale_shape}"
        wanted = f"{(batches, m, k)}, {b_wanted}, {scale_wanted}"
        raise ValueError(f"{shapes}: out.shape={out_shape} and K={k} want {wanted}")
    if n % OUT_ALIGN:
        raise ValueError(f"N={n}: must be a multiple of {OUT_ALIGN}, TMA stores 16 bytes at a time")
    if not 0 <= a_device == b_device == scale_device == device:
        devices = f"a.device={a_device}, b.device={b_device}, scale.device={scale_device}"
        raise ValueError(f"{devices}, out.device={device}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if device != current:
        raise ValueError(f"out.device={device}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    addresses = a_address, b_address, scale_address, out_address
    sizes = m, n, k, batches, max_clusters(device)
    strides = *a_strides, *b_strides, *out_strides, *scale_strides
    problem = array.array("q", (*addresses, *sizes, *strides))
    compile_gemm()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(a, b, scale):
    """What `mixed_gemm` should write, in float64; for torch tensors."""
    weights = b.double()
    scales = scale.double().repeat_interleave(SCALE_GROUP, -2)[..., : a.shape[-1], :]
    return a.double() @ (scales * weights.mT)


def check(torch, m: int, n: int, k: int, batches: int = 1) -> bool:
    """Compares one size with the reference, and sees that nothing beside out is written."""

    def buffer(rows, columns, dtype, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        row = (columns // align + 1) * align
        return torch.randn(batches, rows, row, device="cuda").to(dtype)

    a = buffer(m, k, torch.float16, A_ALIGN)[..., :k]
    b = buffer(n, k, torch.int8, B_ALIGN)[..., :k].random_(-128, 128)
    scale = buffer(-(-k // SCALE_GROUP), n, torch.float16, SCALE_ALIGN)[..., :n].uniform_(0.5, 1.5)
    around = buffer(m + 1, n, torch.float16, OUT_ALIGN).fill_(float("nan"))
    out = around[:, :m, :n]
    mixed_gemm(a, b, scale, out)
    expected = reference(a, b, scale)
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
