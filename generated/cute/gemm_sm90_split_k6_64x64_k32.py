# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | cute | sm_90a
# template: cute/gemm_sm90_split_k.py.j2 9b0732429afd
# text: 3f920c943e57
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "gemm_sm90_split_k6_64x64_k32"
#
#   [tile]
#   m = 64
#   n = 64
#   k = 32
#
#   [pipeline.mainloop]
#   stages = 4
#
#   [scheduler]
#   split_k = 6
"""GEMM for Hopper (sm_90a) in the CuTe DSL: bf16 x bf16 -> f32 -> bf16, K split in 6.

out[l] = A[l] @ B[l].T. For a long K and few output tiles: 6 CTAs of a cluster compute a tile of
64 x 64 together. Each adds up a part of K; then they exchange their sums through the
cluster's SMEM, and each adds up and stores a part of the tile, in a fixed order: the same bits in
every run, no workspace, no atomics.

Roles of a CTA's 256 threads
  producer   warp 0 issues all TMA loads; warps 1 to 3 only give their registers away
  consumer   warps 4 to 7: wgmma, all four on the tile's 64 rows, then the epilogue; warp 4 also
             issues the TMA stores

Pipelines
             class             producer -> consumer  stages  full barrier        empty barrier
  mainloop   PipelineTmaAsync  TMA -> wgmma          4       1 arrive + 8192 B   4 arrives
  epilogue   PipelineTmaStore  threads -> TMA store  1       none                none

  mainloop   Filled by an A and a B tile: `acquire` waits until the stage is empty and arms its full
             barrier with tx_count, which the copies complete as bytes land. `commit` does nothing.
             Emptied by one arrive of each consumer warp.
  epilogue   Filled by all consumer warps with a piece of 64 x 16, 2048 B; emptied by the TMA
             store. No barriers: `commit` closes a bulk group, and `acquire` waits until fewer
             groups than buffers (1) still read SMEM: the oldest buffer is free.

The exchange
  Each CTA writes its sums, 16384 B, over the stages that nobody reads any more. Then the
  cluster meets: all sums are there. Subtile i belongs to CTA i % 6, which reads its 6 sums. The
  cluster meets again before anyone leaves, as a CTA that has left cannot be read.

Timeline of a CTA (its K tiles k0, k1, ...)
  producer   load k0, k1, ...: at most 4 stages ahead          | meet                        | meet
  consumer   wait k0, mma k0 | mma k1, release k0 | ... | sums | meet | add up, store a part | meet

Constraints
  a is (L, M, K), b is (L, N, K), out is (L, M, N), or all three without L; the last dimension
  contiguous, other strides and the addresses multiples of 16 bytes. Any M, K and L; N a multiple
  of 8, because TMA stores 16 bytes at a time.

Run
  python gemm_sm90_split_k6_64x64_k32.py
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

A_DTYPE, B_DTYPE = cutlass.BFloat16, cutlass.BFloat16
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N, TILE_K = 64, 64, 32  # CTA tile, elements
SPLIT_K = 6  # CTAs that share a tile's K
RASTER_GROUP = 8  # rows of tiles walked together, for L2
MMA_K = 16  # elements; 32 B of K an instruction
MMAS_PER_STAGE = 2  # 32 / 16

CONSUMER_WARPGROUPS, CONSUMER_THREADS = 1, 128  # 128 * 1
THREADS = 256  # 128 * (1 + 1)
PRODUCER_WARP, STORE_WARP = 0, 4  # warps of the CTA; the store warp is the first consumer
PRODUCER_REGISTERS = 40  # a thread, after setmaxnreg
CONSUMER_REGISTERS = 240  # min(240, (2 * 256 - 40) // 1 // 8 * 8)

# 232448 B of SMEM a block: 227 KiB
MAINLOOP_STAGES = 4  # given
TX_COUNT = 8192  # B: 4096 + 4096, the A and the B tile
FULL_ARRIVES = 1  # the producer, when it arms TX_COUNT
EMPTY_ARRIVES = 4  # 4 consumer warps

EPI_TILE_M, EPI_TILE_N = 64, 16  # elements of one store, 2048 B
EPI_SUBTILES, EPI_SUBTILES_N = 4, 4  # of a CTA tile, and along N
EPI_STAGES = 1  # min(4, 1, (232448 - 1024 - 4 * 8192) // 2048)
EPI_BARRIER = 1  # named barrier of the consumers; 0 is the whole CTA's
QUADS = 2  # of a thread's accumulators, in a subtile: 16 B each

A_SWIZZLE, B_SWIZZLE = SmemLayoutAtomKind.K_SW64, SmemLayoutAtomKind.K_SW64
OUT_SWIZZLE = SmemLayoutAtomKind.K_SW32
A_ALIGN, B_ALIGN, OUT_ALIGN = 8, 8, 8  # elements of 16 B, the unit of TMA strides


@cute.struct
class SharedStorage:  # 35840 B: 1024 + 4 * 8192 + 1 * 2048
    mainloop_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    # After the mainloop A's and B's stages hold the sums: 64 * 64 * 4
    a: cute.struct.Align[cute.struct.MemRange[A_DTYPE, TILE_M * TILE_K * MAINLOOP_STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[B_DTYPE, TILE_N * TILE_K * MAINLOOP_STAGES], 1024]
    out: cute.struct.Align[
        cute.struct.MemRange[OUT_DTYPE, EPI_TILE_M * EPI_TILE_N * EPI_STAGES], 1024
    ]


# ==== Yours: what happens to the sum before it is rounded and stored ============================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 sums in place. As written it does, and costs, nothing.

    acc[i] belongs to out[batch, m, n] with (m, n) = coord[i], which may lie outside an edge tile.
    All of K is in it, and each element comes here once, a subtile at a time.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`. A bias of N elements (its
    address joins the others in `gemm`; `launch` makes a tensor of it, which comes down to here):

        for i in cutlass.range_constexpr(cute.size(acc)):
            if coord[i][1] < cute.size(bias):
                acc[i] += bias[coord[i][1]].to(ACC_DTYPE)
    """


@cute.jit
def tile_coord(index: cutlass.Int32, tiles_m: cutlass.Int32, tiles_n: cutlass.Int32):
    """(m, n, batch) of the output tile that comes index-th.

    RASTER_GROUP rows of tiles are walked together, column by column: what runs at one time is
    nearly a square of the output, and shares the most of A and B in L2.
    """
    batch, index = index // (tiles_m * tiles_n), index % (tiles_m * tiles_n)
    group, index = index // (RASTER_GROUP * tiles_n), index % (RASTER_GROUP * tiles_n)
    rows = cutlass.min(RASTER_GROUP, tiles_m - group * RASTER_GROUP)
    return group * RASTER_GROUP + index % rows, index // rows, batch


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at a time: SMEM (copy, STAGE), GMEM (copy, tiles, tiles, L)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


def at_peer(smem: cute.Tensor, rank):
    """The same tensor in the SMEM of the CTA with this rank in the cluster."""
    return cute.make_tensor(cute.arch.map_dsmem_ptr(smem.iterator, rank), smem.layout)


@cute.jit
def multiply(mainloop_consumer, tiled_mma, acc, tCrA, tCrB, count):
    """The consumers' mainloop: acc = the sum over the next `count` stages, at least one."""
    stage = mainloop_consumer.wait_and_advance()
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)  # the first wgmma overwrites acc
    warpgroup.fence()
    for k in cutlass.range_constexpr(MMAS_PER_STAGE):
        a, b = tCrA[None, None, k, stage.index], tCrB[None, None, k, stage.index]
        cute.gemm(tiled_mma, acc, a, b, acc)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    for _ in cutlass.range(count - 1, unroll=1):
        newest = mainloop_consumer.wait_and_advance()
        warpgroup.fence()
        for k in cutlass.range_constexpr(MMAS_PER_STAGE):
            a, b = tCrA[None, None, k, newest.index], tCrB[None, None, k, newest.index]
            cute.gemm(tiled_mma, acc, a, b, acc)
        warpgroup.commit_group()
        # The newest group stays in flight: only the stage before it has been read.
        warpgroup.wait_group(1)
        stage.release()
        stage = newest
    warpgroup.wait_group(0)
    stage.release()
    return mainloop_consumer, tiled_mma


@cute.kernel
def gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, tiles_m, tiles_n):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_idx = cute.arch.make_warp_uniform(thread // 128)
    index, _, _ = cute.arch.cluster_idx()
    m, n, batch = tile_coord(index, tiles_m, tiles_n)
    _, _, part = cute.arch.block_in_cluster_idx()
    # This CTA's K tiles. With fewer of them than CTAs, some have none, and add nothing.
    k_begin, k_end = part * k_tiles // SPLIT_K, (part + 1) * k_tiles // SPLIT_K

    storage = memory.SmemAllocator().allocate(SharedStorage)
    a_smem, b_smem, out_smem = tma_a.smem_layout, tma_b.smem_layout, tma_out.smem_layout
    sA = storage.a.get_tensor(a_smem.outer, swizzle=a_smem.inner)  # (TILE_M, TILE_K, STAGE)
    sB = storage.b.get_tensor(b_smem.outer, swizzle=b_smem.inner)  # (TILE_N, TILE_K, STAGE)
    sOut = storage.out.get_tensor(out_smem.outer, swizzle=out_smem.inner)  # (EPI_M, EPI_N, STAGE)
    # A warp's 16 B of each lane stand side by side: no bank conflicts.
    sums = cute.make_ordered_layout((4, QUADS, CONSUMER_THREADS, EPI_SUBTILES), order=(0, 2, 1, 3))
    sSum = cute.make_tensor(cute.recast_ptr(storage.a.data_ptr(), dtype=ACC_DTYPE), sums)

    mainloop = pipeline.PipelineTmaAsync.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, FULL_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EMPTY_ARRIVES),
        tx_count=TX_COUNT,
        barrier_storage=storage.mainloop_barriers.data_ptr(),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, SPLIT_K)),
        defer_sync=True,
    )
    pipeline.pipeline_init_arrive((1, 1, SPLIT_K), is_relaxed=True)
    # Nobody may touch a barrier before it has been set up.
    pipeline.pipeline_init_wait((1, 1, SPLIT_K))
    mainloop_producer, mainloop_consumer = mainloop.make_participants()

    if warpgroup_idx == 0:
        # ---- Producer ---------------------------------------------------------------------------
        cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)  # executed by all four warps
        if warp_idx == PRODUCER_WARP:
            tAsA, tAgA = partition_tma(tma_a, sA, (TILE_M, TILE_K))
            tBsB, tBgB = partition_tma(tma_b, sB, (TILE_N, TILE_K))
            gA, gB = tAgA[None, m, None, batch], tBgB[None, n, None, batch]  # (copy, K tiles)
            for k in cutlass.range(k_begin, k_end, unroll=1):
                stage = mainloop_producer.acquire_and_advance()
                full = stage.barrier
                a_stage, b_stage = tAsA[None, stage.index], tBsB[None, stage.index]
                cute.copy(tma_a.atom, gA[None, k], a_stage, tma_bar_ptr=full)
                cute.copy(tma_b.atom, gB[None, k], b_stage, tma_bar_ptr=full)
                stage.commit()
            # Leaves no arrive pending: waits until every stage has been released.
            mainloop_producer.tail()
        # The cluster's barrier counts every thread: these have no sums, but meet the others, twice.
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()
        cute.arch.cluster_arrive_relaxed()
    else:
        # ---- Consumers: mainloop, in `multiply` -------------------------------------------------
        cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        consumer = thread - (THREADS - CONSUMER_THREADS)
        thr_mma = tiled_mma.get_slice(consumer)
        # A warpgroup's threads hold one and the same SMEM descriptor.
        wg_mma = tiled_mma.get_slice((warpgroup_idx - 1) * 128)
        tCrA = tiled_mma.make_fragment_A(wg_mma.partition_A(sA))  # (MMA, M, K, STAGE)
        tCrB = tiled_mma.make_fragment_B(wg_mma.partition_B(sB))  # (MMA, N, K, STAGE)
        # ((2 columns, 2 rows 8 apart, TILE_N / 8), M, 1): 32 registers
        acc = cute.make_rmem_tensor(thr_mma.partition_shape_C((TILE_M, TILE_N)), ACC_DTYPE)
        if k_begin < k_end:
            mainloop_consumer, tiled_mma = multiply(
                mainloop_consumer, tiled_mma, acc, tCrA, tCrB, k_end - k_begin
            )
        else:
            acc.fill(0.0)

        # ---- Consumers: exchange ----------------------------------------------------------------
        consumers = pipeline.NamedBarrier(EPI_BARRIER, CONSUMER_THREADS)
        # All stages have landed; once every warpgroup's wgmmas have read them, they are free.
        consumers.arrive_and_wait()
        quads = cute.make_rmem_tensor((4, QUADS), ACC_DTYPE)
        for subtile in cutlass.range_constexpr(EPI_SUBTILES):
            sub_m, sub_n = divmod(subtile, EPI_SUBTILES_N)
            acc_rows = acc[(None, None, None), sub_m, 0]
            acc_sub = cute.local_tile(acc_rows, (2, 2, EPI_TILE_N // 8), (0, 0, sub_n))
            quads.store(acc_sub.load().reshape(quads.shape))
            cute.autovec_copy(quads, sSum[None, None, consumer, subtile])
        # Publishes this CTA's sums, and waits for the others'.
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

        # ---- Consumers: epilogue, of every SPLIT_K-th subtile -----------------------------------
        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMER_THREADS)
        epilogue = pipeline.PipelineTmaStore.create(num_stages=EPI_STAGES, producer_group=group)
        store_atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4), OUT_DTYPE)
        store = cute.make_tiled_copy_C_atom(store_atom, tiled_mma)
        tRsOut = store.get_slice(consumer).partition_D(sOut)  # (copy, M, N, STAGE)
        rOut = cute.make_rmem_tensor(tRsOut[None, None, None, 0].shape, OUT_DTYPE)
        tSsOut, tSgOut = partition_tma(tma_out, sOut, (EPI_TILE_M, EPI_TILE_N))
        # The place in the ring of store buffers; PipelineTmaStore keeps none.
        buffer = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, EPI_STAGES)
        total = cute.make_rmem_tensor((2, 2, EPI_TILE_N // 8), ACC_DTYPE)

        for subtile in cutlass.range(part, EPI_SUBTILES, SPLIT_K, unroll=1):
            sub_m, sub_n = subtile // EPI_SUBTILES_N, subtile % EPI_SUBTILES_N
            total.fill(0.0)
            for peer in cutlass.range_constexpr(SPLIT_K):
                sPeer = at_peer(sSum, peer)
                cute.autovec_copy(sPeer[None, None, consumer, subtile], quads)
                total.store(total.load() + quads.load().reshape(total.shape))
            out_m = m * (EPI_SUBTILES // EPI_SUBTILES_N) + sub_m
            out_n = n * EPI_SUBTILES_N + sub_n
            tile = cute.make_identity_tensor((TILE_M, TILE_N))
            tile = cute.domain_offset((out_m * EPI_TILE_M, out_n * EPI_TILE_N), tile)
            coord = thr_mma.partition_C(tile)[(None, None, None), 0, 0]
            epilogue_op(total, cute.local_tile(coord, (2, 2, EPI_TILE_N // 8), (0, 0, 0)))

            # Only the store warp knows whether the buffer's last store has read it.
            if warp_idx == STORE_WARP:
                epilogue.producer_acquire()
            consumers.arrive_and_wait()
            rOut.store(total.load().to(OUT_DTYPE).reshape(rOut.shape))
            cute.copy(store, rOut, tRsOut[None, None, None, buffer.index])
            # TMA reads SMEM through the async proxy: publish to it first, then meet.
            cute.arch.fence_proxy("async.shared", space="cta")
            consumers.arrive_and_wait()
            if warp_idx == STORE_WARP:
                gmem = tSgOut[None, out_m, out_n, batch]
                cute.copy(tma_out.atom, tSsOut[None, buffer.index], gmem)
                epilogue.producer_commit()
            buffer.advance()

        # A CTA that has left cannot be read. Relaxed: this one's reads have come back, and there is
        # nothing to publish.
        cute.arch.cluster_arrive_relaxed()
        if warp_idx == STORE_WARP:
            epilogue.producer_tail()
    cute.arch.cluster_wait()


def smem_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int, order: tuple):
    """(rows, columns, STAGE), swizzled in a way that both TMA and wgmma know."""
    atom = warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=order)


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `gemm` packs."""
    # One argument instead of 13: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(13))
    m, n, k, batches = [cutlass.Int32(numbers[i]) for i in range(3, 7)]
    a_row, a_batch = cute.assume(numbers[7], A_ALIGN), cute.assume(numbers[8], A_ALIGN)
    b_row, b_batch = cute.assume(numbers[9], B_ALIGN), cute.assume(numbers[10], B_ALIGN)
    out_row, out_batch = cute.assume(numbers[11], OUT_ALIGN), cute.assume(numbers[12], OUT_ALIGN)
    a_layout = cute.make_layout((m, k, batches), stride=(a_row, 1, a_batch))
    b_layout = cute.make_layout((n, k, batches), stride=(b_row, 1, b_batch))
    out_layout = cute.make_layout((m, n, batches), stride=(out_row, 1, out_batch))

    gmem = cute.AddressSpace.gmem
    a = cute.make_tensor(cute.make_ptr(A_DTYPE, numbers[0], gmem, assumed_align=16), a_layout)
    b = cute.make_tensor(cute.make_ptr(B_DTYPE, numbers[1], gmem, assumed_align=16), b_layout)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[2], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, out_layout)
    a_tile, b_tile, out_tile = (TILE_M, TILE_K), (TILE_N, TILE_K), (EPI_TILE_M, EPI_TILE_N)
    a_smem = smem_layout(A_SWIZZLE, A_DTYPE, a_tile, MAINLOOP_STAGES, (0, 1, 2))
    b_smem = smem_layout(B_SWIZZLE, B_DTYPE, b_tile, MAINLOOP_STAGES, (0, 1, 2))
    out_smem = smem_layout(OUT_SWIZZLE, OUT_DTYPE, out_tile, EPI_STAGES, (0, 1, 2))
    load = cpasync.CopyBulkTensorTileG2SOp()
    tma_a = cpasync.make_tiled_tma_atom(load, a, a_smem, a_tile)
    tma_b = cpasync.make_tiled_tma_atom(load, b, b_smem, b_tile)
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, out_tile)

    mma_shape, from_smem = (64, TILE_N, MMA_K), warpgroup.OperandSource.SMEM
    a_major, b_major = OperandMajorMode.K, OperandMajorMode.K
    mma_op = warpgroup.MmaF16BF16Op(A_DTYPE, ACC_DTYPE, mma_shape, from_smem, a_major, b_major)
    tiled_mma = cute.make_tiled_mma(mma_op, (CONSUMER_WARPGROUPS, 1, 1))

    # Not persistent: the tiles are few, best no more than there are clusters at one time.
    k_tiles = cute.ceil_div(k, TILE_K)
    tiles_m, tiles_n = cute.ceil_div(m, TILE_M), cute.ceil_div(n, TILE_N)
    kernel = gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, tiles_m, tiles_n)
    grid = (tiles_m * tiles_n * batches, 1, SPLIT_K)
    cluster = (1, 1, SPLIT_K)
    kernel.launch(
        grid=grid, block=(THREADS, 1, 1), cluster=cluster, min_blocks_per_mp=1, stream=stream
    )


@functools.cache
def compile_gemm():
    """`launch`, compiled: once, for all sizes and strides. Needs no GPU."""
    problem = cute.runtime.make_ptr(cutlass.Int64, 0)
    return cute.compile(launch, problem, cute.runtime.make_fake_stream())


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
    numbers = a_address, b_address, out_address, m, n, k, batches
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
