# SPDX-License-Identifier: Apache-2.0
# pipegen: mixed_gemm | cute | sm_90a
# template: cute/mixed_gemm_sm90.py.j2 138be33504a3
# text: 46cfa15f0015
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "mixed_gemm"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "mixed_gemm_sm90_16x64"
#
#   [tile]
#   m = 16
#   n = 64
"""Mixed GEMM for Hopper (sm_90a) in the CuTe DSL: bf16 x (scale * i8) -> f32 -> bf16.

out[l] = A[l] @ (scale[l] * B[l]).T, with bf16 activations A, i8 weights B, and
one f32 scale for each output channel, which multiplies the sum: the weights go in as they are.

Persistent and warp-specialized: a CTA computes tiles of 16 x 64, one after the other, and
loads the next while it stores this one.

wgmma takes its first operand from registers or SMEM, its second from SMEM only. So the weights come
first: a CTA computes out.T = W @ A.T. Its threads bring the weights from SMEM into registers in
wgmma's layout and convert them there; nothing is written back, and A stays where TMA put it.

Roles of a CTA's 256 threads
  producer   warp 0 issues all TMA loads; warps 1 to 3 only give their registers away
  consumer   warps 4 to 7: convert and wgmma, each warpgroup on 64 channels at a time, then
             the epilogue; warp 4 also issues the TMA stores

Pipelines
             class             producer -> consumer  stages  full barrier        empty barrier
  mainloop   PipelineTmaAsync  TMA -> wgmma          18      1 arrive + 12288 B  4 arrives
  epilogue   PipelineTmaStore  threads -> TMA store  1       none                none

  mainloop   Filled by an A and a B tile: `acquire` waits until the stage is empty and arms its full
             barrier with tx_count, which the copies complete as their bytes land (`commit` does
             nothing).
             Emptied by one arrive of each consumer warp, when the stage's last wgmma has read A.
  epilogue   Filled by all consumer warps with a piece of 16 x 64, 2048 B; emptied by the TMA
             store. No barriers: `commit` closes a bulk group, and `acquire` waits until fewer
             groups than buffers (1) still read SMEM: the oldest buffer is free.

Timeline of a CTA (K tiles k0, k1, ... of output tile t; of each, 2 times convert, wgmma)
  producer   load k0, k1, ...: at most 18 stages ahead | load k0, k1, ... of tile t+1
  consumer   wait k0, convert, wgmma | wait k1, convert, wgmma, release k0 | ... | epilogue t | ...
  stores                                                                           | subtiles of t

Constraints
  a is (L, M, K), b is (L, N, K), scale is (L, N), out is (L, M, N), or all four without L; the
  last dimension contiguous; other strides and the addresses of a, b and out multiples of 16 bytes.
  Any M, K and L; N a multiple of 8, because TMA stores 16 bytes at a time.

Run
  python mixed_gemm_sm90_16x64.py
  compares with float64, on an H100 or H200 with torch; with --compile-only it needs neither.
"""

import argparse
import array
import functools
import os
import sys

if __name__ == "__main__":
    # Without a GPU, the compiler takes its target from here, and reads it when imported.
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
from cutlass import cute, memory, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.nvgpu.warpgroup import SmemLayoutAtomKind
from cutlass.utils import HardwareInfo

A_DTYPE, PAIR_DTYPE = cutlass.BFloat16, cutlass.Uint16  # B is read as pairs of i8 along K
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N, TILE_K = 16, 64, 128  # CTA tile, elements; N counts output channels
CLUSTER_M, CLUSTER_N = 1, 1  # CTAs; A is shared along N, B along M
RASTER_GROUP = 8  # cluster rows walked together, for L2
MMA_K = 16  # elements; 32 B of K an instruction
GROUP_STEPS = 4  # min(16 // (4 * 1), 8 // 2): wgmmas along K, converted, then multiplied together
GROUPS = 2  # 128 / (16 * 4): of a stage

CONSUMER_WARPGROUPS, CONSUMER_THREADS = 1, 128  # 128 * 1
THREADS = 256  # 128 * (1 + 1)
PRODUCER_WARP, STORE_WARP = 0, 4  # warps of the CTA; the store warp is the first consumer
PRODUCER_REGISTERS = 40  # a thread, after setmaxnreg
CONSUMER_REGISTERS = 240  # min(240, (2 * 256 - 40) // 1 // 8 * 8)

MAINLOOP_STAGES = 18  # (232448 - 1024 - 1 * 2048) // 12288
TX_COUNT = 12288  # B: 4096 + 8192, an A and a B tile
FULL_ARRIVES = 1  # the producer, when it arms tx_count
EMPTY_ARRIVES = 4  # 4 consumer warps

ROW_PAIRS = 64  # 128 / 2: of a channel in a stage, 128 B
CHUNK_PAIRS, CHUNKS = 8, 8  # in the 16 B that a swizzle moves as one, and of a row
SWIZZLE_ROWS = 1  # 128 / 128: rows side by side that a swizzle treats alike

EPI_TILE_M, EPI_TILE_N = 16, 64  # elements of one store, 2048 B
EPI_SUBTILES, EPI_SUBTILES_M = 1, 1  # of a CTA tile, and along M
EPI_STAGES = 1  # min(4, 1, (232448 - 1024 - 18 * 12288) // 2048)
EPI_BARRIER = 1  # named barrier of the consumers; 0 is the whole CTA's

A_SWIZZLE, B_SWIZZLE = SmemLayoutAtomKind.K_SW128, SmemLayoutAtomKind.K_SW128
OUT_SWIZZLE = SmemLayoutAtomKind.MN_SW128
A_ALIGN, B_ALIGN, OUT_ALIGN = 8, 16, 8  # elements (B: bytes) of 16 B, the unit of TMA strides


@cute.struct
class SharedStorage:  # 224256 B: 1024 + 18 * 12288 + 1 * 2048
    mainloop_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    a: cute.struct.Align[cute.struct.MemRange[A_DTYPE, TILE_M * TILE_K * MAINLOOP_STAGES], 1024]
    b: cute.struct.Align[
        cute.struct.MemRange[PAIR_DTYPE, TILE_N * ROW_PAIRS * MAINLOOP_STAGES], 1024
    ]
    out: cute.struct.Align[
        cute.struct.MemRange[OUT_DTYPE, EPI_TILE_M * EPI_TILE_N * EPI_STAGES], 1024
    ]


# ==== Yours: what happens to the accumulator before it is rounded and stored ====================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 sums, scaled, in place. As written it does, and costs, nothing.

    acc[i] belongs to out[batch, m, n] with (n, m) = coord[i], which may lie outside an edge tile.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`. A bias of N elements (its
    address joins the others in `gemm`; `launch` makes a tensor of it, which comes down to here):

        for i in cutlass.range_constexpr(cute.size(acc)):
            if coord[i][0] < cute.size(bias):
                acc[i] += bias[coord[i][0]].to(ACC_DTYPE)
    """


@cute.jit
def convert(pair: cutlass.Int32):
    """Two i8 in the low bits of `pair` as two bf16. Exact."""
    # bf16 with high byte 0x43 and low byte u is 128 + u, for the 7 low bits of u. Without the sign
    # bit that is 128 + the low bits; with nothing but the sign bit it is 128, or 256 where the
    # weight is negative. The difference is the weight.
    biased = cutlass.Int32(cute.arch.prmt(pair, 0x43, 0x4140))  # u0, 0x43, u1, 0x43 from the lowest
    low, sign = biased & cutlass.Int32(~0x00800080), biased & cutlass.Int32(~0x007F007F)
    return cute.arch.sub_packed_bf16x2(low, sign)


@cute.jit
def tile_coord(index: cutlass.Int32, clusters_m: cutlass.Int32, clusters_n: cutlass.Int32):
    """(m, n, batch) of this CTA's output tile in the cluster of tiles that comes index-th.

    RASTER_GROUP rows of clusters are walked together, column by column: what runs at one time is
    nearly a square of the output, and shares the most of A and B in L2.
    """
    batch, index = index // (clusters_m * clusters_n), index % (clusters_m * clusters_n)
    group, index = index // (RASTER_GROUP * clusters_n), index % (RASTER_GROUP * clusters_n)
    rows = cutlass.min(RASTER_GROUP, clusters_m - group * RASTER_GROUP)
    return group * RASTER_GROUP + index % rows, index // rows, batch


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple, cta=0, ctas: int = 1):
    """What one of `ctas` CTAs copies: SMEM (copy, STAGE), GMEM (copy, tiles, tiles, L)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, cta, cute.make_layout(ctas), smem, gmem)


@cute.jit
def load_pairs(pairs, sB, thread, group: cutlass.Constexpr, stage):
    """The weights of a group of steps, (4 pairs, N, steps), as wgmma wants them in each step: pairs
    c and c + 4 of K, of channels r and r + 8."""
    # A warp reads 2 * 2 B in each of 16 chunks at a time, which the swizzle spreads over all
    # banks. It moves chunk i of row r to i ^ (r // SWIZZLE_ROWS): one XOR, and sB is seen plain.
    row = thread // 32 * 16 + thread % 32 // 4
    for i in cutlass.range_constexpr(cute.size(pairs)):
        p, n, k = i % 4, i // 4 % cute.size(pairs, mode=[1]), i // cute.size(pairs[None, None, 0])
        pair = (group * GROUP_STEPS + k) * 8 + p // 2 * 4
        chunk = (pair // CHUNK_PAIRS) ^ (row // SWIZZLE_ROWS % CHUNKS)
        channel = row + p % 2 * 8 + n * 64 * CONSUMER_WARPGROUPS
        bits = sB[pair % CHUNK_PAIRS + thread % 4, chunk, channel, stage]
        pairs[i] = bits.to(cutlass.Int32)


@cute.jit
def multiply_stage(tiled_mma, acc, rB, tCrA, sB, thread, stage, previous):
    """acc += one stage's product. Releases `previous`, once the wgmmas that read it are done."""
    pairs = cute.make_rmem_tensor((4, cute.size(rB, mode=[1]), GROUP_STEPS), cutlass.Int32)
    load_pairs(pairs, sB, thread, 0, stage.index)
    for group in cutlass.range_constexpr(GROUPS):
        steps = range(group * GROUP_STEPS, (group + 1) * GROUP_STEPS)
        for k, step in enumerate(steps):
            registers = cute.recast_tensor(rB[None, None, step], cutlass.Int32)
            for i in cutlass.range_constexpr(cute.size(registers)):
                registers[i] = convert(pairs[None, None, k][i])
        # The next group's loads are under way while this one is multiplied.
        if cutlass.const_expr(group + 1 < GROUPS):
            load_pairs(pairs, sB, thread, group + 1, stage.index)
        warpgroup.fence()
        for step in steps:
            cute.gemm(
                tiled_mma, acc, rB[None, None, step], tCrA[None, None, step, stage.index], acc
            )
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()
        # One group stays under way. The one before has read its registers, which come next, and
        # the first of a stage follows the last of the stage before.
        warpgroup.wait_group(1)
        if cutlass.const_expr(previous is not None and group == 0):
            # The next copy writes this stage through the async proxy: every lane's reads come
            # first.
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            previous.release()
    return tiled_mma


@cute.jit
def multiply(mainloop_consumer, tiled_mma, acc, rB, tCrA, sB, thread, count):
    """The consumers' mainloop: acc = the sum over the next `count` stages, at least one."""
    stage = mainloop_consumer.wait_and_advance()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)  # the first wgmma overwrites acc
    tiled_mma = multiply_stage(tiled_mma, acc, rB, tCrA, sB, thread, stage, None)
    for _ in cutlass.range(count - 1, unroll=1):
        newest = mainloop_consumer.wait_and_advance()
        tiled_mma = multiply_stage(tiled_mma, acc, rB, tCrA, sB, thread, newest, stage)
        stage = newest
    warpgroup.wait_group(0)
    # The next copy writes this stage through the async proxy: every lane's reads come first.
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    stage.release()
    return mainloop_consumer, tiled_mma


@cute.kernel
def gemm_kernel(tma_a, tma_b, scale, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, tiles):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_idx = cute.arch.make_warp_uniform(thread // 128)
    _, _, first = cute.arch.block_idx()  # grid: (CLUSTER_M, CLUSTER_N, clusters)
    _, _, step = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    a_smem, b_smem, out_smem = tma_a.smem_layout, tma_b.smem_layout, tma_out.smem_layout
    sA = storage.a.get_tensor(a_smem.outer, swizzle=a_smem.inner)  # (TILE_M, TILE_K, STAGE)
    sB = storage.b.get_tensor(b_smem.outer, swizzle=b_smem.inner)  # (TILE_N, ROW_PAIRS, STAGE)
    sOut = storage.out.get_tensor(out_smem.outer, swizzle=out_smem.inner)  # (EPI_N, EPI_M, STAGE)

    mainloop = pipeline.PipelineTmaAsync.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, FULL_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EMPTY_ARRIVES),
        tx_count=TX_COUNT,
        barrier_storage=storage.mainloop_barriers.data_ptr(),
        cta_layout_vmnk=cute.make_layout((1, CLUSTER_M, CLUSTER_N, 1)),
        defer_sync=True,
    )
    # Nobody may touch a barrier before it has been set up.
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER_M, CLUSTER_N), is_relaxed=True)
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER_M, CLUSTER_N))
    mainloop_producer, mainloop_consumer = mainloop.make_participants()

    if warpgroup_idx == 0:
        # ---- Producer ---------------------------------------------------------------------------
        cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)  # executed by all four warps
        if warp_idx == PRODUCER_WARP:
            tAsA, tAgA = partition_tma(tma_a, sA, (TILE_M, TILE_K))
            tBsB, tBgB = partition_tma(tma_b, sB, (TILE_N, ROW_PAIRS))
            for index in cutlass.range(first, tiles, step, unroll=1):
                m, n, batch = tile_coord(index, clusters_m, clusters_n)
                gA, gB = tAgA[None, m, None, batch], tBgB[None, n, None, batch]  # (copy, K tiles)
                for k in cutlass.range(k_tiles, unroll=1):
                    stage = mainloop_producer.acquire_and_advance()
                    full = stage.barrier
                    a_stage, b_stage = tAsA[None, stage.index], tBsB[None, stage.index]
                    cute.copy(tma_a.atom, gA[None, k], a_stage, tma_bar_ptr=full)
                    cute.copy(tma_b.atom, gB[None, k], b_stage, tma_bar_ptr=full)
                    stage.commit()
            # Leaves no arrive pending: waits until every stage has been released.
            mainloop_producer.tail()
    else:
        # ---- Consumers: mainloop, in `multiply` -------------------------------------------------
        cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        consumer = thread - (THREADS - CONSUMER_THREADS)
        thr_mma = tiled_mma.get_slice(consumer)
        # A warpgroup's threads hold one and the same SMEM descriptor.
        wg_mma = tiled_mma.get_slice((warpgroup_idx - 1) * 128)
        # wgmma's first operand, A of the names below, is B; its M counts channels, its N tokens.
        tCrA = tiled_mma.make_fragment_B(wg_mma.partition_B(sA))  # (MMA, M, K, STAGE)
        chunks = cute.make_layout((CHUNK_PAIRS, CHUNKS, TILE_N, MAINLOOP_STAGES))
        sB_chunks = storage.b.get_tensor(chunks)
        # ((2 of K, 2 channels 8 apart, 2 halves of K), N, K): 32 registers
        rB = cute.make_rmem_tensor(thr_mma.partition_shape_A((TILE_N, TILE_K)), A_DTYPE)
        # ((2 tokens, 2 channels 8 apart, TILE_M / 8), N, 1): 8 registers
        acc = cute.make_rmem_tensor(thr_mma.partition_shape_C((TILE_N, TILE_M)), ACC_DTYPE)

        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMER_THREADS)
        epilogue = pipeline.PipelineTmaStore.create(num_stages=EPI_STAGES, producer_group=group)
        consumers = pipeline.NamedBarrier(EPI_BARRIER, CONSUMER_THREADS)
        # Transposed: 8 channels of one token side by side, as `out` has them.
        store_op = warp.StMatrix8x8x16bOp(transpose=True, num_matrices=4)
        store_atom = cute.make_copy_atom(store_op, OUT_DTYPE)
        store = cute.make_tiled_copy_C_atom(store_atom, tiled_mma)
        tRsOut = store.get_slice(consumer).partition_D(sOut)  # (copy, N, M, STAGE)
        rOut = cute.make_rmem_tensor(tRsOut[None, None, None, 0].shape, OUT_DTYPE)
        tSsOut, tSgOut = partition_tma(tma_out, sOut, (EPI_TILE_N, EPI_TILE_M))
        # The place in the ring of store buffers; PipelineTmaStore keeps none.
        buffer = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, EPI_STAGES)

        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(index, clusters_m, clusters_n)
            tile = cute.make_identity_tensor((TILE_N, TILE_M))
            tile = cute.domain_offset((n * TILE_N, m * TILE_M), tile)
            coord = thr_mma.partition_C(tile)
            # Loaded before the mainloop, used after it. (2 channels 8 apart, N)
            channel_scales = cute.make_rmem_tensor((2, cute.size(acc, mode=[1])), ACC_DTYPE)
            for i in cutlass.range_constexpr(cute.size(channel_scales)):
                channel = coord[(0, i % 2, 0), i // 2, 0][0]
                channel_scales[i] = 0.0
                if channel < cute.size(scale, mode=[0]):
                    channel_scales[i] = scale[channel, batch]
            mainloop_consumer, tiled_mma = multiply(
                mainloop_consumer, tiled_mma, acc, rB, tCrA, sB_chunks, consumer, k_tiles
            )

            # ---- Consumers: epilogue ------------------------------------------------------------
            # The weights went in as the integers they are: scaling the f32 sums loses nothing.
            for i in cutlass.range_constexpr(cute.size(channel_scales)):
                channel_acc = acc[(None, i % 2, None), i // 2, 0]
                channel_acc.store(channel_acc.load() * channel_scales[i])
            epilogue_op(acc, coord)

            for subtile in cutlass.range_constexpr(EPI_SUBTILES):
                sub_n, sub_m = divmod(subtile, EPI_SUBTILES_M)
                # Only the store warp knows whether the buffer's last store has read it.
                if warp_idx == STORE_WARP:
                    epilogue.producer_acquire()
                consumers.arrive_and_wait()
                acc_rows = acc[(None, None, None), sub_n, 0]
                acc_sub = cute.local_tile(acc_rows, (2, 2, EPI_TILE_M // 8), (0, 0, sub_m))
                rOut.store(acc_sub.load().to(OUT_DTYPE).reshape(rOut.shape))
                cute.copy(store, rOut, tRsOut[None, None, None, buffer.index])
                # TMA reads SMEM through the async proxy: publish to it first, then meet.
                cute.arch.fence_proxy("async.shared", space="cta")
                consumers.arrive_and_wait()
                if warp_idx == STORE_WARP:
                    out_n = n * (EPI_SUBTILES // EPI_SUBTILES_M) + sub_n
                    out_m = m * EPI_SUBTILES_M + sub_m
                    gmem = tSgOut[None, out_n, out_m, batch]
                    cute.copy(tma_out.atom, tSsOut[None, buffer.index], gmem)
                    epilogue.producer_commit()
                buffer.advance()

        if warp_idx == STORE_WARP:
            epilogue.producer_tail()


def smem_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int, order: tuple):
    """(rows, columns, STAGE), swizzled as TMA and wgmma know; atoms side by side in `order`."""
    atom = warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=order)


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `gemm` packs."""
    # One argument instead of 16: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(16))
    m, n, k, batches, max_clusters = [cutlass.Int32(numbers[i]) for i in range(4, 9)]
    a_row, a_batch = cute.assume(numbers[9], A_ALIGN), cute.assume(numbers[10], A_ALIGN)
    # Strides of B count pairs here, 2 bytes.
    b_row, b_batch = [cute.assume(numbers[i] // 2, B_ALIGN // 2) for i in (11, 12)]
    out_row, out_batch = cute.assume(numbers[13], OUT_ALIGN), cute.assume(numbers[14], OUT_ALIGN)
    a_layout = cute.make_layout((m, k, batches), stride=(a_row, 1, a_batch))
    b_layout = cute.make_layout((n, cute.ceil_div(k, 2), batches), stride=(b_row, 1, b_batch))
    # The kernel computes out.T: channels first.
    out_layout = cute.make_layout((n, m, batches), stride=(1, out_row, out_batch))
    scale_layout = cute.make_layout((n, batches), stride=(1, numbers[15]))

    gmem = cute.AddressSpace.gmem
    a = cute.make_tensor(cute.make_ptr(A_DTYPE, numbers[0], gmem, assumed_align=16), a_layout)
    b = cute.make_tensor(cute.make_ptr(PAIR_DTYPE, numbers[1], gmem, assumed_align=16), b_layout)
    scale = cute.make_tensor(
        cute.make_ptr(ACC_DTYPE, numbers[2], gmem, assumed_align=4), scale_layout
    )
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[3], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, out_layout)

    a_tile, b_tile, out_tile = (TILE_M, TILE_K), (TILE_N, ROW_PAIRS), (EPI_TILE_N, EPI_TILE_M)
    a_smem = smem_layout(A_SWIZZLE, A_DTYPE, a_tile, MAINLOOP_STAGES, (0, 1, 2))
    b_smem = smem_layout(B_SWIZZLE, PAIR_DTYPE, b_tile, MAINLOOP_STAGES, (0, 1, 2))
    # Along M first: what TMA stores at once is a row of atoms, as many channels as a swizzle has.
    out_smem = smem_layout(OUT_SWIZZLE, OUT_DTYPE, out_tile, EPI_STAGES, (1, 0, 2))
    load = cpasync.CopyBulkTensorTileG2SOp()
    tma_a = cpasync.make_tiled_tma_atom(load, a, a_smem, a_tile)
    tma_b = cpasync.make_tiled_tma_atom(load, b, b_smem, b_tile)
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, out_tile)

    mma_shape, from_registers = (64, TILE_M, MMA_K), warpgroup.OperandSource.RMEM
    k_major = OperandMajorMode.K
    mma_op = warpgroup.MmaF16BF16Op(A_DTYPE, ACC_DTYPE, mma_shape, from_registers, k_major, k_major)
    tiled_mma = cute.make_tiled_mma(mma_op, (CONSUMER_WARPGROUPS, 1, 1))

    clusters_m = cute.ceil_div(m, TILE_M * CLUSTER_M)
    clusters_n = cute.ceil_div(n, TILE_N * CLUSTER_N)
    tiles = clusters_m * clusters_n * batches
    k_tiles = cute.ceil_div(k, TILE_K)
    kernel = gemm_kernel(
        tma_a, tma_b, scale, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, tiles
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


@functools.lru_cache(maxsize=1024)
def scale_vector(name: str, dtype, shape: tuple, strides: tuple):
    """((L, N), batch stride) of the scales, which threads read."""
    if str(dtype).removeprefix("torch.") != "float32":
        raise TypeError(f"{name}.dtype={dtype}: must be float32")
    if len(shape) not in (1, 2) or (strides[-1] != 1 and shape[-1] > 1):
        text = f"{name}.shape={tuple(shape)}, {name}.stride={tuple(strides)}"
        raise ValueError(f"{text}: must be (N,) or (L, N), the last dimension contiguous")
    return (1, *shape)[-2:], (0, *strides)[-2]


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
    """Writes A[l] @ (scale[l] * B[l]).T to out[l]. a is (L, M, K), b (L, N, K), scale (L, N).

    Takes torch tensors, and others through DLPack (jax, cupy), on the current device. `stream` is
    a CUstream, an int or a torch stream; None is torch's current stream if torch is in use, else
    the default stream.
    """
    a_address, a_device, (a_shape, *a_strides) = operand("a", a, 16, matrix, "bfloat16", A_ALIGN)
    b_address, b_device, (b_shape, *b_strides) = operand("b", b, 16, matrix, "int8", B_ALIGN)
    scale_address, scale_device, (scale_shape, *scale_strides) = operand(
        "scale", scale, 4, scale_vector
    )
    out_address, device, (out_shape, *out_strides) = operand(
        "out", out, 16, matrix, "bfloat16", OUT_ALIGN
    )
    (batches, m, n), k = out_shape, a_shape[2]
    b_wanted = batches, n, k
    scale_wanted = batches, n
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
    return a.double() @ (scale.double().unsqueeze(-1) * weights).mT


def check(torch, m: int, n: int, k: int, batches: int = 1) -> bool:
    """Compares one size with the reference, and sees that nothing beside out is written."""

    def buffer(rows, columns, dtype, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        row = (columns // align + 1) * align
        return torch.randn(batches, rows, row, device="cuda").to(dtype)

    a = buffer(m, k, torch.bfloat16, A_ALIGN)[..., :k]
    b = buffer(n, k, torch.int8, B_ALIGN)[..., :k].random_(-128, 128)
    scale = torch.rand(batches, n + 1, device="cuda")[..., :n] + 0.5
    around = buffer(m + 1, n, torch.bfloat16, OUT_ALIGN).fill_(float("nan"))
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
        print("PASS compiles for sm_90a")
        return 0
    try:
        import torch
    except ImportError:
        print("SKIP torch is not installed (--compile-only works without it)")
        return 0
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("SKIP no GPU of compute capability 9.0 (--compile-only works without)")
        return 0
    tails = [(TILE_M, TILE_N, TILE_K), (1000, 1000, 500), (333, 776, 1001, 3), (4096, 4096, 4096)]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
