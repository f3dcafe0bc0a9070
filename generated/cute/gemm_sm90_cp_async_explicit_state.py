# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | cute | sm_90a
# template: cute/gemm_sm90_cp_async.py.j2 9168b5586dc3
# text: f54f37fee871
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "gemm_sm90_cp_async_explicit_state"
#   style = "explicit-state"
#
#   [pipeline.mainloop]
#   producer = "cp_async"
"""GEMM for Hopper (sm_90a) in the CuTe DSL, without TMA loads: bf16 x bf16 -> f32 -> bf16.

out[l] = A[l] @ B[l].T. Persistent and warp-specialized: each CTA computes output tiles of
128 x 256, one after the other, and loads the next tile while it stores this one.

Threads load the operands with cp.async, which like TMA writes SMEM without a detour through
registers, and signals an mbarrier when it is done.
The addresses are each thread's own: the form to start from where what you need is no box that
TMA could load.

Roles of a CTA's 384 threads
  producer   warps 0 to 3 issue all loads, each thread 24 copies of 16 B a stage
  consumer   warps 4 to 11: wgmma, each warpgroup on its 64 rows, then the epilogue; warp 4 also
             issues the TMA stores

Pipelines
             class             producer -> consumer  stages  full barrier  empty barrier
  mainloop   PipelineCpAsync   cp.async -> wgmma     4       128 arrives   8 arrives
  epilogue   PipelineTmaStore  threads -> TMA store  4       none          none

  mainloop   Filled by an A and a B tile, 49152 B, by all producer threads. `commit` does not wait:
             it leaves an arrive behind, which happens when the thread's copies so far have landed.
             There is no tx_count, the barrier counts threads: each commits every stage. Emptied by
             one arrive of each consumer warp.
  epilogue   Filled by all consumer warps with a piece of 128 x 32, 8192 B; emptied by the TMA
             store. No barriers: `commit` closes a bulk group, and `acquire` waits until fewer
             groups than buffers (4) still read SMEM: the oldest buffer is free.

Timeline of a CTA (K tiles k0, k1, ... of output tile t)
  producer   copy k0, k1, ...: at most 4 stages ahead | copy k0, k1, ... of tile t+1
  consumer   wait k0, mma k0 | mma k1, release k0 | ... | release the last | epilogue t | mma ...
  stores                                                                   | subtiles of t ...

Constraints
  a is (L, M, K), b is (L, N, K), out is (L, M, N), or all three without L; the last dimension
  contiguous. Addresses and other strides are multiples of 16 bytes. Any M, K and L; N a multiple
  of 8, because TMA stores 16 bytes at a time.
  Between batches a stride of a or b may be 0: all of them use one matrix.

Run
  python gemm_sm90_cp_async_explicit_state.py
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
from cutlass.experimental import primitives
from cutlass.utils import HardwareInfo

A_DTYPE, B_DTYPE = cutlass.BFloat16, cutlass.BFloat16
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N, TILE_K = 128, 256, 64  # CTA tile, elements
RASTER_GROUP = 8  # rows of tiles walked together, for L2
MMA_K = 16  # elements; 32 B of K an instruction
MMAS_PER_STAGE = 4  # 64 / 16

PRODUCER_THREADS = 128  # one warpgroup, the first
CONSUMER_WARPGROUPS, CONSUMER_THREADS = 2, 256  # 128 * 2
THREADS = 384  # 128 * (1 + 2)
STORE_WARP = 4  # the first consumer warp
PRODUCER_REGISTERS = 88  # 2 * 24 + 40: a row's address takes 2
CONSUMER_REGISTERS = 208  # min(240, (3 * 168 - 88) // 2 // 8 * 8)

COPY_BYTES = 16  # of one cp.async, and what rows are aligned to
COPY_ELEMENTS = 8  # 16 / 2
THREADS_PER_ROW = 8  # 64 / 8: side by side on one row of a stage
ROWS_PER_PASS = 16  # 128 / 8: copied at once by all producer threads
A_PASSES, B_PASSES = 8, 16  # 128 / 16 and 256 / 16: a thread's rows in a stage

# 232448 B of SMEM a block: 227 KiB
MAINLOOP_STAGES = 4  # (232448 - 1024 - 2 * 8192) // 49152
FULL_ARRIVES = 128  # one of each producer thread
EMPTY_ARRIVES = 8  # 8 consumer warps

EPI_TILE_M, EPI_TILE_N = 128, 32  # elements of one store, 8192 B
EPI_SUBTILES, EPI_SUBTILES_N = 8, 8  # of a CTA tile, and along N
EPI_STAGES = 4  # min(4, 8, (232448 - 1024 - 4 * 49152) // 8192)
EPI_BARRIER = 1  # named barrier of the consumers; 0 is the whole CTA's

OPERAND_SWIZZLE, OUT_SWIZZLE = SmemLayoutAtomKind.K_SW128, SmemLayoutAtomKind.K_SW64
OUT_ALIGN = 8  # elements of 16 B, the unit of TMA strides


@cute.struct
class SharedStorage:  # 230400 B: 1024 + 4 * 49152 + 4 * 8192
    mainloop_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    a: cute.struct.Align[cute.struct.MemRange[A_DTYPE, TILE_M * TILE_K * MAINLOOP_STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[B_DTYPE, TILE_N * TILE_K * MAINLOOP_STAGES], 1024]
    out: cute.struct.Align[
        cute.struct.MemRange[OUT_DTYPE, EPI_TILE_M * EPI_TILE_N * EPI_STAGES], 1024
    ]


# ==== Yours: what happens to the accumulator before it is rounded and stored ====================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 accumulators in place. As written it does, and costs, nothing.

    acc[i] belongs to out[batch, m, n] with (m, n) = coord[i]. Outside an edge tile, where nothing
    is stored, acc repeats the last row and column.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`. A bias of N elements (its
    address joins the others in `gemm`; `launch` makes a tensor of it, which comes down to here):

        for i in cutlass.range_constexpr(cute.size(acc)):
            if coord[i][1] < cute.size(bias):
                acc[i] += bias[coord[i][1]].to(ACC_DTYPE)
    """


@cute.jit
def tile_coord(tile: cutlass.Int32, tiles_m: cutlass.Int32, tiles_n: cutlass.Int32):
    """(m, n, batch) of the output tile that comes tile-th.

    RASTER_GROUP rows of tiles are walked together, column by column: what runs at one time is
    nearly a square of the output, and shares the most of A and B in L2.
    """
    batch, tile = tile // (tiles_m * tiles_n), tile % (tiles_m * tiles_n)
    group, tile = tile // (RASTER_GROUP * tiles_n), tile % (RASTER_GROUP * tiles_n)
    rows = cutlass.min(RASTER_GROUP, tiles_m - group * RASTER_GROUP)
    return group * RASTER_GROUP + tile % rows, tile // rows, batch


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at a time: SMEM (copy, STAGE), GMEM (copy, tiles, tiles, L)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


def copy_tile(smem, gmem, starts: cute.Tensor, stage, left):
    """Issues a thread's copies of one operand tile: COPY_BYTES from each of its rows.

    starts[i] is where the i-th row begins behind gmem, in elements, of which `left` are left in
    every row. For what lies beyond, cp.async reads nothing and writes zeros.
    """
    passes = cute.size(starts)
    count = cutlass.max(0, cutlass.min(COPY_ELEMENTS, left)) * COPY_BYTES // COPY_ELEMENTS
    for i in range(passes):
        place = smem + (stage * passes + i) * (ROWS_PER_PASS * TILE_K)
        primitives.cp_async_shared_global(place, gmem + starts[i], COPY_BYTES, "cg", cp_size=count)


@cute.jit
def multiply(mainloop, read, release, tiled_mma, acc, tCrA, tCrB, count):
    """The consumers' mainloop: acc = the sum over the next `count` stages, at least one.

    `read` and `release` are places in the ring: reading runs one stage ahead of releasing.
    cp.async writes SMEM through the generic proxy, as ordinary stores do, and wgmma reads it
    through the async proxy: a fence between `wait` and the first wgmma makes one see the other.
    """
    mainloop.consumer_wait(read)
    cute.arch.fence_proxy("async.shared", space="cta")
    tiled_mma.set(warpgroup.Field.ACCUMULATE, False)  # the first wgmma overwrites acc
    warpgroup.fence()
    for k in cutlass.range_constexpr(MMAS_PER_STAGE):
        a, b = tCrA[None, None, k, read.index], tCrB[None, None, k, read.index]
        cute.gemm(tiled_mma, acc, a, b, acc)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    warpgroup.commit_group()
    read.advance()
    for _ in cutlass.range(count - 1, unroll=1):
        mainloop.consumer_wait(read)
        cute.arch.fence_proxy("async.shared", space="cta")
        warpgroup.fence()
        for k in cutlass.range_constexpr(MMAS_PER_STAGE):
            a, b = tCrA[None, None, k, read.index], tCrB[None, None, k, read.index]
            cute.gemm(tiled_mma, acc, a, b, acc)
        warpgroup.commit_group()
        read.advance()
        # The newest group stays in flight: only the stage before it has been read.
        warpgroup.wait_group(1)
        # A release is an arrive of each thread that calls it; one of a warp speaks for all.
        with cute.arch.elect_one():
            mainloop.consumer_release(release)
        release.advance()
    warpgroup.wait_group(0)
    with cute.arch.elect_one():
        mainloop.consumer_release(release)
    release.advance()
    return read, release, tiled_mma


@cute.kernel
def gemm_kernel(a, b, tma_out, a_smem, b_smem, tiled_mma, k_tiles, tiles_m, tiles_n, tiles):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    warpgroup_idx = cute.arch.make_warp_uniform(thread // 128)
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    out_smem = tma_out.smem_layout
    sA = storage.a.get_tensor(a_smem.outer, swizzle=a_smem.inner)  # (TILE_M, TILE_K, STAGE)
    sB = storage.b.get_tensor(b_smem.outer, swizzle=b_smem.inner)  # (TILE_N, TILE_K, STAGE)
    sOut = storage.out.get_tensor(out_smem.outer, swizzle=out_smem.inner)  # (EPI_M, EPI_N, STAGE)

    # Sets the barriers up, and lets the whole CTA meet before anyone uses them.
    mainloop = pipeline.PipelineCpAsync.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, FULL_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EMPTY_ARRIVES),
        barrier_storage=storage.mainloop_barriers.data_ptr(),
    )

    if warpgroup_idx == 0:
        # ---- Producer ---------------------------------------------------------------------------
        cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
        m_size, n_size, k_size = a.shape[0], b.shape[0], a.shape[1]
        # A thread copies the same columns of rows that are ROWS_PER_PASS apart.
        row, column = thread // THREADS_PER_ROW, thread % THREADS_PER_ROW * COPY_ELEMENTS
        # The 128 B swizzle puts chunk c of row r, 16 B or 8 elements, where chunk c ^ (r % 8) would
        # lie. ROWS_PER_PASS is a multiple of 8, so all of a thread's rows have the same r % 8.
        swizzled = row * TILE_K + (column ^ (row % 8 * 8))
        smem_a, smem_b = storage.a.data_ptr().raw_ptr(), storage.b.data_ptr().raw_ptr()
        gmem_a, gmem_b = a.iterator.raw_ptr(), b.iterator.raw_ptr()
        starts_a = cute.make_rmem_tensor(A_PASSES, cutlass.Int64)
        starts_b = cute.make_rmem_tensor(B_PASSES, cutlass.Int64)
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, MAINLOOP_STAGES)
        for tile in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(tile, tiles_m, tiles_n)
            # Rows past the end repeat the last row: their products end in rows and columns of the
            # tile that TMA does not store. Past the end of K only zeros are right.
            for i in cutlass.range_constexpr(A_PASSES):
                row_m = cutlass.min(m * TILE_M + i * ROWS_PER_PASS + row, m_size - 1)
                starts_a[i] = a.layout((row_m, column, batch))
            for i in cutlass.range_constexpr(B_PASSES):
                row_n = cutlass.min(n * TILE_N + i * ROWS_PER_PASS + row, n_size - 1)
                starts_b[i] = b.layout((row_n, column, batch))
            for k in cutlass.range(k_tiles, unroll=1):
                mainloop.producer_acquire(stage)
                start, left = k * TILE_K, k_size - k * TILE_K - column
                copy_tile(smem_a + swizzled, gmem_a + start, starts_a, stage.index, left)
                copy_tile(smem_b + swizzled, gmem_b + start, starts_b, stage.index, left)
                mainloop.producer_commit(stage)
                stage.advance()
        # Leaves no arrive pending: waits until every stage has been released.
        mainloop.producer_tail(stage)
    else:
        # ---- Consumers: mainloop, in `multiply` -------------------------------------------------
        cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        consumer = thread - PRODUCER_THREADS
        thr_mma = tiled_mma.get_slice(consumer)
        # A warpgroup's threads hold one and the same SMEM descriptor.
        wg_mma = tiled_mma.get_slice((warpgroup_idx - 1) * 128)
        tCrA = tiled_mma.make_fragment_A(wg_mma.partition_A(sA))  # (MMA, M, K, STAGE)
        tCrB = tiled_mma.make_fragment_B(wg_mma.partition_B(sB))  # (MMA, N, K, STAGE)
        # ((2 columns, 2 rows 8 apart, TILE_N / 8), M, 1): 128 registers
        acc = cute.make_rmem_tensor(thr_mma.partition_shape_C((TILE_M, TILE_N)), ACC_DTYPE)

        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMER_THREADS)
        epilogue = pipeline.PipelineTmaStore.create(num_stages=EPI_STAGES, producer_group=group)
        consumers = pipeline.NamedBarrier(EPI_BARRIER, CONSUMER_THREADS)
        store_atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4), OUT_DTYPE)
        store = cute.make_tiled_copy_C_atom(store_atom, tiled_mma)
        tRsOut = store.get_slice(consumer).partition_D(sOut)  # (copy, M, N, STAGE)
        rOut = cute.make_rmem_tensor(tRsOut[None, None, None, 0].shape, OUT_DTYPE)
        tSsOut, tSgOut = partition_tma(tma_out, sOut, (EPI_TILE_M, EPI_TILE_N))
        # The place in the ring of store buffers; PipelineTmaStore keeps none.
        buffer = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, EPI_STAGES)
        read = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, MAINLOOP_STAGES)
        release = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, MAINLOOP_STAGES)

        for tile in cutlass.range(first, tiles, step, unroll=1):
            m, n, batch = tile_coord(tile, tiles_m, tiles_n)
            read, release, tiled_mma = multiply(
                mainloop, read, release, tiled_mma, acc, tCrA, tCrB, k_tiles
            )

            # ---- Consumers: epilogue ------------------------------------------------------------
            coord = cute.make_identity_tensor((TILE_M, TILE_N))
            coord = cute.domain_offset((m * TILE_M, n * TILE_N), coord)
            epilogue_op(acc, thr_mma.partition_C(coord))

            for subtile in cutlass.range_constexpr(EPI_SUBTILES):
                sub_m, sub_n = divmod(subtile, EPI_SUBTILES_N)
                # Only the store warp knows whether the buffer's last store has read it.
                if warp_idx == STORE_WARP:
                    epilogue.producer_acquire()
                consumers.arrive_and_wait()
                acc_rows = acc[(None, None, None), sub_m, 0]
                acc_sub = cute.local_tile(acc_rows, (2, 2, EPI_TILE_N // 8), (0, 0, sub_n))
                rOut.store(acc_sub.load().to(OUT_DTYPE).reshape(rOut.shape))
                cute.copy(store, rOut, tRsOut[None, None, None, buffer.index])
                # TMA reads SMEM through the async proxy: publish to it first, then meet.
                cute.arch.fence_proxy("async.shared", space="cta")
                consumers.arrive_and_wait()
                if warp_idx == STORE_WARP:
                    out_m = m * (EPI_SUBTILES // EPI_SUBTILES_N) + sub_m
                    out_n = n * EPI_SUBTILES_N + sub_n
                    gmem = tSgOut[None, out_m, out_n, batch]
                    cute.copy(tma_out.atom, tSsOut[None, buffer.index], gmem)
                    epilogue.producer_commit()
                buffer.advance()

        if warp_idx == STORE_WARP:
            epilogue.producer_tail()


def smem_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int):
    """(rows, columns, STAGE), swizzled in a way that wgmma and TMA know."""
    atom = warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=(0, 1, 2))


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensors, tensor map, grid and launch, for what `gemm` packs."""
    # One argument instead of 14: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(14))
    a_ptr, b_ptr, out_ptr = [numbers[i] for i in range(3)]
    m, n, k, batches, max_ctas = [cutlass.Int32(numbers[i]) for i in range(3, 8)]
    a_row, a_batch, b_row, b_batch = [numbers[i] for i in range(8, 12)]
    out_row, out_batch = cute.assume(numbers[12], OUT_ALIGN), cute.assume(numbers[13], OUT_ALIGN)

    def tensor(dtype, address, align, shape, stride):
        pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=align)
        return cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))

    a = tensor(A_DTYPE, a_ptr, COPY_BYTES, (m, k, batches), (a_row, 1, a_batch))
    b = tensor(B_DTYPE, b_ptr, COPY_BYTES, (n, k, batches), (b_row, 1, b_batch))
    out = tensor(OUT_DTYPE, out_ptr, 16, (m, n, batches), (out_row, 1, out_batch))
    out_tile = (EPI_TILE_M, EPI_TILE_N)
    a_smem = smem_layout(OPERAND_SWIZZLE, A_DTYPE, (TILE_M, TILE_K), MAINLOOP_STAGES)
    b_smem = smem_layout(OPERAND_SWIZZLE, B_DTYPE, (TILE_N, TILE_K), MAINLOOP_STAGES)
    out_smem = smem_layout(OUT_SWIZZLE, OUT_DTYPE, out_tile, EPI_STAGES)
    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, out_tile)

    mma_shape, from_smem = (64, TILE_N, MMA_K), warpgroup.OperandSource.SMEM
    major = OperandMajorMode.K
    mma_op = warpgroup.MmaF16BF16Op(A_DTYPE, ACC_DTYPE, mma_shape, from_smem, major, major)
    tiled_mma = cute.make_tiled_mma(mma_op, (CONSUMER_WARPGROUPS, 1, 1))

    tiles_m, tiles_n = cute.ceil_div(m, TILE_M), cute.ceil_div(n, TILE_N)
    tiles, k_tiles = tiles_m * tiles_n * batches, cute.ceil_div(k, TILE_K)
    layouts, sizes = (tma_out, a_smem, b_smem, tiled_mma), (k_tiles, tiles_m, tiles_n, tiles)
    kernel = gemm_kernel(a, b, *layouts, *sizes)
    grid = (cutlass.min(tiles, max_ctas), 1, 1)
    kernel.launch(grid=grid, block=(THREADS, 1, 1), min_blocks_per_mp=1, stream=stream)


@functools.cache
def compile_gemm():
    """`launch`, compiled: once, for all sizes and strides. Needs no GPU."""
    problem = cute.runtime.make_ptr(cutlass.Int64, 0)
    return cute.compile(launch, problem, cute.runtime.make_fake_stream())


@functools.cache
def max_ctas(device: int) -> int:
    """CTAs that run at once. More would wait for a first one to end: a second, short wave."""
    return HardwareInfo(device).get_max_active_clusters(1)


@functools.lru_cache(maxsize=1024)
def matrix(name: str, dtype, shape: tuple, strides: tuple, wanted: str, align: int):
    """((L, rows, columns), row stride, batch stride) of an operand, checked.

    Strides are multiples of `align`; 0 between the batches lets one a or b stand for all of them.
    """
    if str(dtype).removeprefix("torch.") != wanted:
        raise TypeError(f"{name}.dtype={dtype}: must be {wanted}")
    if len(shape) not in (2, 3) or min(shape) < 1 or max(shape) >= 2**31:
        raise ValueError(f"{name}.shape={tuple(shape)}: must be 2 or 3 sizes from 1 to 2**31 - 1")
    batches, rows, columns = (1, *shape)[-3:]
    batch, row, column = (0, *strides)[-3:]
    # A dimension of size 1 may have any stride: it is not used, and `align` takes its place.
    batch, row = batch if batches > 1 else align, row if rows > 1 else align
    if (column != 1 and columns > 1) or row < 1 or batch < 0 or batch % align or row % align:
        rule = f"must be 1 last, and positive multiples of {align} elements before"
        rule += "" if name == "out" else ", or 0 between batches"
        raise ValueError(f"{name}.stride={tuple(strides)}: {rule}")
    extent = 1  # elements from the first to the last one, in the dimensions so far
    for stride, size in sorted([(1, columns), (row, rows), (batch, batches)]):
        if name == "out" and size > 1 and stride < extent:
            raise ValueError(f"out.stride={tuple(strides)}: elements of out overlap")
        extent += (size - 1) * stride
    return (batches, rows, columns), row, batch


def parts(tensor):
    """(address, device, shape, strides) of a tensor; device is -1 where it is no GPU."""
    if hasattr(tensor, "data_ptr"):  # torch: quicker than DLPack
        return tensor.data_ptr(), tensor.get_device(), tensor.shape, tensor.stride()
    device_type, device = tensor.__dlpack_device__()
    view = cute.runtime.from_dlpack(tensor)
    return view.data_ptr, device if device_type == 2 else -1, view.shape, view.stride  # 2 is CUDA


def operand(name: str, tensor, dtype: str, unit: int, align: int):
    """(address, device, what `matrix` returns) of a tensor; its address is a multiple of `unit`."""
    address, device, shape, strides = parts(tensor)
    if address % unit:
        raise ValueError(f"{name} address={address:#x}: must be a multiple of {unit}")
    return address, device, matrix(name, tensor.dtype, shape, strides, dtype, align)


def gemm(a, b, out, stream=None):
    """Writes A[l] @ B[l].T to out[l]: a is (L, M, K), b is (L, N, K), out is (L, M, N).

    Takes torch tensors, and others through DLPack (jax, cupy), on the current device. `stream` is
    a CUstream, an int or a torch stream; None is torch's current stream if torch is in use, else
    the default stream.
    """
    a_address, a_device, (a_shape, *a_strides) = operand(
        "a", a, "bfloat16", COPY_BYTES, COPY_ELEMENTS
    )
    b_address, b_device, (b_shape, *b_strides) = operand(
        "b", b, "bfloat16", COPY_BYTES, COPY_ELEMENTS
    )
    out_address, device, (out_shape, *out_strides) = operand("out", out, "bfloat16", 16, OUT_ALIGN)
    (batches, m, n), (_, rows, k) = out_shape, a_shape
    if a_shape[0] != batches or rows != m or b_shape != (batches, n, k):
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
    addresses = a_address, b_address, out_address
    sizes = m, n, k, batches, max_ctas(device)
    strides = *a_strides, *b_strides, *out_strides
    problem = array.array("q", (*addresses, *sizes, *strides))
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

    a = buffer(m, k, torch.bfloat16, COPY_ELEMENTS)[..., :k]
    b = buffer(n, k, torch.bfloat16, COPY_ELEMENTS)[..., :k]
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
