# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | cute | sm_90a
# template: cute/custom_multiply.py.j2 dc163ea7b7a7
# text: de9e66a9dc22
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "custom_sm90_multiply_twice"
#
#   [tile]
#   n = 64
#
#   [tensor.a]
#   shape = "M, K"
#   read = "load"
#
#   [tensor.b]
#   shape = "N, K"
#   read = "load"
#
#   [tensor.c]
#   shape = "P, N"
#   read = "load"
#
#   [tensor.out]
#   shape = "M, P"
#   write = "store"
#
#   [pipeline.ab]
#   edge = "load -> score"
#   holds = "a, b"
#
#   [pipeline.c]
#   edge = "load -> second"
#
#   [pipeline.between]
#   edge = "score -> second"
#   dtype = "bf16"
#
#   [pipeline.done]
#   edge = "second -> store"
#   dtype = "bf16"
#
#   [role.score]
#   kind = "wgmma"
#
#   [role.second]
#   kind = "wgmma"
#
#   [role.store]
#   kind = "tma_store"
"""A custom graph of roles that multiply, for Hopper (sm_90a) in the CuTe DSL.

A CTA takes tiles of TILE_M x TILE_P of the result, one after the other, and for each walks over N
in steps of TILE_N, and within it over K in steps of TILE_K. Every role has its own loops; rings
of SMEM stages connect the roles, each filled as often as its tiles change. What a role computes
is its body, a function under "Yours": replacing it never touches the protocol. The first product
is computed anew for each tile of P: that is wasted work where there are many.

Roles of a CTA's 576 threads
  score                warps 0 to 7    multiplies: ab_a @ ab_b.T -> between, a wgmma group at each
                       step of K
  second               warps 8 to 15   multiplies: between @ c.T -> done, a wgmma group at each
                       step of N
  load                 warp 16         loads by TMA: a, b, c -> ab, c, at each step of K
  store                warp 17         stores by TMA: done -> out, once a tile

Pipelines
  ring                 class             stages  full barrier     empty barrier
  ab                   PipelineTmaAsync  4       1 x 24576 B      8 arrives
  c                    PipelineTmaAsync  2       1 x 16384 B      8 arrives
  between              PipelineAsync     2       256 arrives      8 arrives
  done                 PipelineAsync     1       256 arrives      1 arrives

  ab                   load -> score, at each step of K
  c                    load -> second, at each step of N
  between              score -> second, at each step of N
  done                 second -> store, once a tile

  A producer acquires a stage (waits for its empty barrier) and commits it (the full barrier: TMA
  by the bytes that land, threads by an arrive each). A consumer waits for the full barrier, and one
  lane of each of its warps releases the stage: wgmma's, when the wgmmas that read it are done.

Timeline of a CTA
  score                each step of N: fill between; each step of K: wait ab, multiply, release
                       ab, a step later
  second               each tile: fill done; each step of N: wait c, wait between, multiply,
                       release c, release between, a step later
  load                 each step of N: fill c; each step of K: fill ab
  store                each tile: wait done, store out, release done

Constraints
  a is (M, K), b is (N, K), c is (P, N), out is (M, P).
  The last dimension is contiguous, row strides and addresses are multiples of 16 bytes.
  P is a multiple of 8: TMA stores 16 bytes at a time.

Run
  python custom_sm90_multiply_twice.py
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

A_DTYPE, A_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
B_DTYPE, B_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
C_DTYPE, C_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
OUT_DTYPE, OUT_ALIGN = cutlass.BFloat16, 8  # elements of 16 B

TILE_M, TILE_N, TILE_K, TILE_P = 128, 64, 64, 128  # elements of a tile
RASTER_GROUP = 8  # rows of tiles walked together, for L2
SCORE_WARPS = 8
SECOND_WARPS = 8
THREADS = 576  # 32 * (8 + 8 + 1 + 1)

# ab: load -> score, at each step of K
AB_STAGES = 4
AB_FULL, AB_EMPTY = 1, 8  # arrivals
AB_BYTES = 24576  # 128 * 64 * 2 + 64 * 64 * 2
# c: load -> second, at each step of N
C_STAGES = 2
C_FULL, C_EMPTY = 1, 8  # arrivals
C_BYTES = 16384  # 128 * 64 * 2
# between: score -> second, at each step of N
BETWEEN_STAGES = 2
BETWEEN_FULL, BETWEEN_EMPTY = 256, 8  # arrivals
# done: second -> store, once a tile
DONE_STAGES = 1
DONE_FULL, DONE_EMPTY = 256, 1  # arrivals


@cute.struct
class SharedStorage:  # 197632 B, as rings and stages say
    ab_barriers: cute.struct.MemRange[cutlass.Int64, 2 * AB_STAGES]
    c_barriers: cute.struct.MemRange[cutlass.Int64, 2 * C_STAGES]
    between_barriers: cute.struct.MemRange[cutlass.Int64, 2 * BETWEEN_STAGES]
    done_barriers: cute.struct.MemRange[cutlass.Int64, 2 * DONE_STAGES]
    ab_a: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_K * AB_STAGES], 1024
    ]
    ab_b: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_N * TILE_K * AB_STAGES], 1024
    ]
    c: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, TILE_P * TILE_N * C_STAGES], 1024]
    between: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_N * BETWEEN_STAGES], 1024
    ]
    done: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_P * DONE_STAGES], 1024
    ]


def swizzled_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int):
    """(rows, columns, STAGE), swizzled in a way that both TMA and wgmma know."""
    atom = cute.nvgpu.warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=(0, 1, 2))


# ==== Yours: the bodies ==========================================================================
@cute.jit
def score(ab_a: cute.Tensor, ab_b: cute.Tensor, sums: cute.Tensor, tiled_mma: cute.TiledMma):
    """Yours; as written, sums += ab_a @ ab_b.T by wgmma. SCORE_WARPS warps.

    ab_a: a stage, a, (TILE_M, TILE_K) bf16 in SMEM, as wgmma's A: (MMA, M, K)
    ab_b: a stage, b, (TILE_N, TILE_K) bf16 in SMEM, as wgmma's B: (MMA, N, K)
    sums: this thread's f32 accumulators of (TILE_M, TILE_N)
    tiled_mma: given back; a tile's first wgmma overwrites the sums, all others add
    """
    for k in cutlass.range_constexpr(cute.size(ab_a, mode=[2])):
        cute.gemm(tiled_mma, sums, ab_a[None, None, k], ab_b[None, None, k], sums)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    return tiled_mma


@cute.jit
def score_finish(sums: cute.Tensor, coord: cute.Tensor):
    """Yours; as written it does, and costs, nothing.

    Ends a tile: what is in sums then is given on. sums[i] belongs to the row and column
    coord[i] of the whole product, which may lie outside at an edge.
    """


@cute.jit
def second(between: cute.Tensor, c: cute.Tensor, sums: cute.Tensor, tiled_mma: cute.TiledMma):
    """Yours; as written, sums += between @ c.T by wgmma. SECOND_WARPS warps.

    between: a stage, (TILE_M, TILE_N) bf16 in SMEM, as wgmma's A: (MMA, M, K)
    c: a stage, (TILE_P, TILE_N) bf16 in SMEM, as wgmma's B: (MMA, N, K)
    sums: this thread's f32 accumulators of (TILE_M, TILE_P)
    tiled_mma: given back; a tile's first wgmma overwrites the sums, all others add
    """
    for k in cutlass.range_constexpr(cute.size(between, mode=[2])):
        cute.gemm(tiled_mma, sums, between[None, None, k], c[None, None, k], sums)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    return tiled_mma


@cute.jit
def second_finish(sums: cute.Tensor, coord: cute.Tensor):
    """Yours; as written it does, and costs, nothing.

    Ends a tile: what is in sums then is given on. sums[i] belongs to the row and column
    coord[i] of the whole product, which may lie outside at an edge.
    """


# ==== The moves ==================================================================================
@cute.jit
def tile_coord(index: cutlass.Int32, tiles_m: cutlass.Int32, tiles_n: cutlass.Int32):
    """(row, column) of the tile of the results that comes index-th.

    RASTER_GROUP rows of tiles are walked together, column by column: what runs at one time is
    nearly a square of the results, and shares the most of what it loads in L2.
    """
    group, index = index // (RASTER_GROUP * tiles_n), index % (RASTER_GROUP * tiles_n)
    rows = cutlass.min(RASTER_GROUP, tiles_m - group * RASTER_GROUP)
    return group * RASTER_GROUP + index % rows, index // rows


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at once: SMEM (copy, STAGE), GMEM (copy, tiles, tiles)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


@cute.jit
def store_sums(
    sums: cute.Tensor, tile: cute.Tensor, tiled_mma: cute.TiledMma, thread: cutlass.Int32
):
    """Rounds a thread's accumulators into a stage; 16-bit ones by stmatrix, for a warp at once."""
    if cutlass.const_expr(tile.element_type.width == 16):
        matrices = 4 if cute.size(tile, mode=[1]) % 16 == 0 else 2  # 8 columns each, 16 rows
        op = warp.StMatrix8x8x16bOp(num_matrices=matrices)
    else:
        op = cute.nvgpu.CopyUniversalOp()
    copy = cute.make_tiled_copy_C(cute.make_copy_atom(op, tile.element_type), tiled_mma)
    rounded = cute.make_rmem_tensor_like(sums, tile.element_type)
    rounded.store(sums.load().to(tile.element_type))
    cute.copy(copy, copy.retile(rounded), copy.get_slice(thread).partition_D(tile))


@cute.kernel
def custom_kernel(
    tma_a, tma_b, tma_c, tma_out, score_mma, second_mma, tiles_m, tiles_p, tiles_n, tiles_k, tiles
):
    thread_idx, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    ab_a_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_M, TILE_K), AB_STAGES
    )
    ab_a_smem = storage.ab_a.get_tensor(ab_a_layout.outer, swizzle=ab_a_layout.inner)
    ab_b_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_N, TILE_K), AB_STAGES
    )
    ab_b_smem = storage.ab_b.get_tensor(ab_b_layout.outer, swizzle=ab_b_layout.inner)
    c_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_P, TILE_N), C_STAGES
    )
    c_smem = storage.c.get_tensor(c_layout.outer, swizzle=c_layout.inner)
    between_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_M, TILE_N), BETWEEN_STAGES
    )
    between_smem = storage.between.get_tensor(between_layout.outer, swizzle=between_layout.inner)
    done_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_M, TILE_P), DONE_STAGES
    )
    done_smem = storage.done.get_tensor(done_layout.outer, swizzle=done_layout.inner)

    ab_ring = pipeline.PipelineTmaAsync.create(
        num_stages=AB_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, AB_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, AB_EMPTY),
        tx_count=AB_BYTES,
        barrier_storage=storage.ab_barriers.data_ptr(),
        defer_sync=True,
    )
    c_ring = pipeline.PipelineTmaAsync.create(
        num_stages=C_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, C_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, C_EMPTY),
        tx_count=C_BYTES,
        barrier_storage=storage.c_barriers.data_ptr(),
        defer_sync=True,
    )
    between_ring = pipeline.PipelineAsync.create(
        num_stages=BETWEEN_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, BETWEEN_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, BETWEEN_EMPTY),
        barrier_storage=storage.between_barriers.data_ptr(),
        defer_sync=True,
    )
    done_ring = pipeline.PipelineAsync.create(
        num_stages=DONE_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, DONE_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, DONE_EMPTY),
        barrier_storage=storage.done_barriers.data_ptr(),
        defer_sync=True,
    )
    # Nobody may touch a barrier before all have been set up.
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()

    if warp_idx < 8:
        # ---- score -------------------------------------------------------------------------------
        ab_consumer = ab_ring.make_consumer()
        between_producer = between_ring.make_producer()
        thread = thread_idx
        # A warpgroup's threads hold one and the same SMEM descriptor.
        whole = score_mma.get_slice(cute.arch.make_warp_uniform(thread // 128) * 128)
        # (MMA, M, K, STAGE) and (MMA, N, K, STAGE)
        ab_a_parts = score_mma.make_fragment_A(whole.partition_A(ab_a_smem))
        ab_b_parts = score_mma.make_fragment_B(whole.partition_B(ab_b_smem))
        own = score_mma.get_slice(thread)
        # ((2 columns, 2 rows 8 apart, TILE_N / 8), M, 1): 32 registers
        sums = cute.make_rmem_tensor(own.partition_shape_C((TILE_M, TILE_N)), cutlass.Float32)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, p = tile_coord(index, tiles_m, tiles_p)
            for n in cutlass.range(tiles_n, unroll=1):
                # The first wgmma overwrites the sums, the others add.
                score_mma.set(warpgroup.Field.ACCUMULATE, False)
                ab_stage = ab_consumer.wait_and_advance()
                warpgroup.fence()
                score_mma = score(
                    ab_a_parts[None, None, None, ab_stage.index],
                    ab_b_parts[None, None, None, ab_stage.index],
                    sums,
                    score_mma,
                )
                warpgroup.commit_group()
                for _ in cutlass.range(tiles_k - 1, unroll=1):
                    ab_next = ab_consumer.wait_and_advance()
                    warpgroup.fence()
                    score_mma = score(
                        ab_a_parts[None, None, None, ab_next.index],
                        ab_b_parts[None, None, None, ab_next.index],
                        sums,
                        score_mma,
                    )
                    warpgroup.commit_group()
                    # The newest group stays in flight: only the stages before it have been read.
                    warpgroup.wait_group(1)
                    ab_stage.release()
                    ab_stage = ab_next
                warpgroup.wait_group(0)
                ab_stage.release()
                block = cute.make_identity_tensor((TILE_M, TILE_N))
                block = cute.domain_offset((m * TILE_M, n * TILE_N), block)
                score_finish(sums, own.partition_C(block))
                between_stage = between_producer.acquire_and_advance()
                store_sums(sums, between_smem[None, None, between_stage.index], score_mma, thread)
                # wgmma reads the stage through the async proxy: publish to it first.
                cute.arch.fence_proxy("async.shared", space="cta")
                between_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        between_producer.tail()
    elif warp_idx < 16:
        # ---- second ------------------------------------------------------------------------------
        c_consumer = c_ring.make_consumer()
        between_consumer = between_ring.make_consumer()
        done_producer = done_ring.make_producer()
        thread = thread_idx - 256
        # A warpgroup's threads hold one and the same SMEM descriptor.
        whole = second_mma.get_slice(cute.arch.make_warp_uniform(thread // 128) * 128)
        # (MMA, M, K, STAGE) and (MMA, N, K, STAGE)
        between_parts = second_mma.make_fragment_A(whole.partition_A(between_smem))
        c_parts = second_mma.make_fragment_B(whole.partition_B(c_smem))
        own = second_mma.get_slice(thread)
        # ((2 columns, 2 rows 8 apart, TILE_P / 8), M, 1): 64 registers
        sums = cute.make_rmem_tensor(own.partition_shape_C((TILE_M, TILE_P)), cutlass.Float32)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, p = tile_coord(index, tiles_m, tiles_p)
            # The first wgmma overwrites the sums, the others add.
            second_mma.set(warpgroup.Field.ACCUMULATE, False)
            c_stage = c_consumer.wait_and_advance()
            between_stage = between_consumer.wait_and_advance()
            warpgroup.fence()
            second_mma = second(
                between_parts[None, None, None, between_stage.index],
                c_parts[None, None, None, c_stage.index],
                sums,
                second_mma,
            )
            warpgroup.commit_group()
            for _ in cutlass.range(tiles_n - 1, unroll=1):
                c_next = c_consumer.wait_and_advance()
                between_next = between_consumer.wait_and_advance()
                warpgroup.fence()
                second_mma = second(
                    between_parts[None, None, None, between_next.index],
                    c_parts[None, None, None, c_next.index],
                    sums,
                    second_mma,
                )
                warpgroup.commit_group()
                # The newest group stays in flight: only the stages before it have been read.
                warpgroup.wait_group(1)
                c_stage.release()
                with cute.arch.elect_one():
                    between_stage.release()
                c_stage, between_stage = c_next, between_next
            warpgroup.wait_group(0)
            c_stage.release()
            with cute.arch.elect_one():
                between_stage.release()
            block = cute.make_identity_tensor((TILE_M, TILE_P))
            block = cute.domain_offset((m * TILE_M, p * TILE_P), block)
            second_finish(sums, own.partition_C(block))
            done_stage = done_producer.acquire_and_advance()
            store_sums(sums, done_smem[None, None, done_stage.index], second_mma, thread)
            # TMA reads the stage through the async proxy: publish to it first.
            cute.arch.fence_proxy("async.shared", space="cta")
            done_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        done_producer.tail()
    elif warp_idx == 16:
        # ---- load --------------------------------------------------------------------------------
        ab_producer = ab_ring.make_producer()
        c_producer = c_ring.make_producer()
        ab_a_to, ab_a_from = partition_tma(tma_a, ab_a_smem, (TILE_M, TILE_K))
        ab_b_to, ab_b_from = partition_tma(tma_b, ab_b_smem, (TILE_N, TILE_K))
        c_to, c_from = partition_tma(tma_c, c_smem, (TILE_P, TILE_N))
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, p = tile_coord(index, tiles_m, tiles_p)
            for n in cutlass.range(tiles_n, unroll=1):
                c_stage = c_producer.acquire_and_advance()
                c_tile = c_from[None, p, n]
                cute.copy(
                    tma_c.atom, c_tile, c_to[None, c_stage.index], tma_bar_ptr=c_stage.barrier
                )
                c_stage.commit()
                for k in cutlass.range(tiles_k, unroll=1):
                    ab_stage = ab_producer.acquire_and_advance()
                    ab_a_tile = ab_a_from[None, m, k]
                    cute.copy(
                        tma_a.atom,
                        ab_a_tile,
                        ab_a_to[None, ab_stage.index],
                        tma_bar_ptr=ab_stage.barrier,
                    )
                    ab_b_tile = ab_b_from[None, n, k]
                    cute.copy(
                        tma_b.atom,
                        ab_b_tile,
                        ab_b_to[None, ab_stage.index],
                        tma_bar_ptr=ab_stage.barrier,
                    )
                    ab_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        ab_producer.tail()
        c_producer.tail()
    else:
        # ---- store -------------------------------------------------------------------------------
        done_consumer = done_ring.make_consumer()
        out_from, out_to = partition_tma(tma_out, done_smem, (TILE_M, TILE_P))
        # One group of stores at a time: the next begins when this one has read its stage.
        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)
        stores = pipeline.PipelineTmaStore.create(num_stages=1, producer_group=group)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, p = tile_coord(index, tiles_m, tiles_p)
            done_stage = done_consumer.wait_and_advance()
            cute.copy(tma_out.atom, out_from[None, done_stage.index], out_to[None, m, p])
            stores.producer_commit()
            stores.producer_acquire()
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                done_stage.release()
        stores.producer_tail()


def make_mma(dtype, columns: int, k: int, warps: int) -> cute.TiledMma:
    """wgmma of both operands from SMEM, the symbol that is summed over contiguous, f32 sums."""
    shape, source, major = (64, columns, k), warpgroup.OperandSource.SMEM, OperandMajorMode.K
    op = warpgroup.MmaF16BF16Op(dtype, cutlass.Float32, shape, source, major, major)
    return cute.make_tiled_mma(op, (warps // 4, 1, 1))


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `custom` packs."""
    # One argument instead of 13: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(13))
    m, n, k, p, max_blocks = [cutlass.Int32(numbers[i]) for i in range(5)]
    gmem = cute.AddressSpace.gmem
    a_row = cute.assume(numbers[9], A_ALIGN)
    a_ptr = cute.make_ptr(A_DTYPE, numbers[5], gmem, assumed_align=16)
    a = cute.make_tensor(a_ptr, cute.make_layout((m, k), stride=(a_row, 1)))
    b_row = cute.assume(numbers[10], B_ALIGN)
    b_ptr = cute.make_ptr(B_DTYPE, numbers[6], gmem, assumed_align=16)
    b = cute.make_tensor(b_ptr, cute.make_layout((n, k), stride=(b_row, 1)))
    c_row = cute.assume(numbers[11], C_ALIGN)
    c_ptr = cute.make_ptr(C_DTYPE, numbers[7], gmem, assumed_align=16)
    c = cute.make_tensor(c_ptr, cute.make_layout((p, n), stride=(c_row, 1)))
    out_row = cute.assume(numbers[12], OUT_ALIGN)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[8], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((m, p), stride=(out_row, 1)))

    load = cpasync.CopyBulkTensorTileG2SOp()
    a_layout = swizzled_layout(SmemLayoutAtomKind.K_SW128, A_DTYPE, (TILE_M, TILE_K), 1)
    tma_a = cpasync.make_tiled_tma_atom(load, a, a_layout, (TILE_M, TILE_K))
    b_layout = swizzled_layout(SmemLayoutAtomKind.K_SW128, B_DTYPE, (TILE_N, TILE_K), 1)
    tma_b = cpasync.make_tiled_tma_atom(load, b, b_layout, (TILE_N, TILE_K))
    c_layout = swizzled_layout(SmemLayoutAtomKind.K_SW128, C_DTYPE, (TILE_P, TILE_N), 1)
    tma_c = cpasync.make_tiled_tma_atom(load, c, c_layout, (TILE_P, TILE_N))

    store = cpasync.CopyBulkTensorTileS2GOp()
    out_layout = swizzled_layout(SmemLayoutAtomKind.K_SW128, OUT_DTYPE, (TILE_M, TILE_P), 1)
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_layout, (TILE_M, TILE_P))

    score_mma = make_mma(cutlass.BFloat16, TILE_N, 16, SCORE_WARPS)
    second_mma = make_mma(cutlass.BFloat16, TILE_P, 16, SECOND_WARPS)
    tiles_m = cute.ceil_div(m, TILE_M)
    tiles_p = cute.ceil_div(p, TILE_P)
    tiles_n = cute.ceil_div(n, TILE_N)
    tiles_k = cute.ceil_div(k, TILE_K)
    tiles = tiles_m * tiles_p
    custom_kernel(
        tma_a,
        tma_b,
        tma_c,
        tma_out,
        score_mma,
        second_mma,
        tiles_m,
        tiles_p,
        tiles_n,
        tiles_k,
        tiles,
    ).launch(
        grid=(cutlass.min(tiles, max_blocks), 1, 1),
        block=(THREADS, 1, 1),
        min_blocks_per_mp=1,
        preferred_smem_carveout=100,  # percent; left out, the DSL asks a driver what an SM has
        stream=stream,
    )


@functools.cache
def compile_custom():
    """`launch`, compiled: once, for all sizes and strides. Needs no GPU."""
    problem = cute.runtime.make_ptr(cutlass.Int64, 0)
    return cute.compile(launch, problem, cute.runtime.make_fake_stream())


@functools.cache
def max_blocks(device: int) -> int:
    """CTAs that run at once. More would wait for a first one to end: a second, short wave."""
    return HardwareInfo(device).get_device_multiprocessor_count()


@functools.lru_cache(maxsize=1024)
def sizes(name: str, dtype, shape: tuple, strides: tuple, wanted: str, dims: int, align: int):
    """The row stride of an operand, checked for accesses of 16 bytes."""
    if str(dtype).removeprefix("torch.") != wanted:
        raise TypeError(f"{name}.dtype={dtype}: must be {wanted}")
    if len(shape) != dims or min(shape) < 1 or max(shape) >= 2**31:
        raise ValueError(f"{name}.shape={tuple(shape)}: must be {dims} sizes from 1 to 2**31 - 1")
    # A dimension of size 1 may have any stride: it is not used, and `align` takes its place.
    row = strides[0] if dims == 2 and shape[0] > 1 else align
    if (strides[-1] != 1 and shape[-1] > 1) or row < 1 or row % align:
        rule = f"must be 1 last, and a positive multiple of {align} elements (16 bytes) before"
        raise ValueError(f"{name}.stride={tuple(strides)}: {rule}")
    return row


def operand(name: str, tensor, dtype: str, dims: int, align: int):
    """(address, device, shape, row stride) of a tensor."""
    if hasattr(tensor, "data_ptr"):  # torch: quicker than DLPack
        address, device = tensor.data_ptr(), tensor.get_device()
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    else:
        device_type, device = tensor.__dlpack_device__()
        device = device if device_type == 2 else -1  # 2 is CUDA
        view = cute.runtime.from_dlpack(tensor)
        address, shape, strides = view.data_ptr, tuple(view.shape), tuple(view.stride)
    if address % 16:
        raise ValueError(f"{name} address={address:#x}: must be a multiple of 16")
    return address, device, shape, sizes(name, tensor.dtype, shape, strides, dtype, dims, align)


def custom(a, b, c, out, stream=None):
    """Writes out from a, b, c, on the current device.

    Tensors of torch, or of others through DLPack (jax, cupy). `stream`: a CUstream, an int or a
    torch stream; None is torch's current stream if torch is in use, else the default stream.
    """
    operands = {
        "a": operand("a", a, "bfloat16", 2, A_ALIGN),
        "b": operand("b", b, "bfloat16", 2, B_ALIGN),
        "c": operand("c", c, "bfloat16", 2, C_ALIGN),
        "out": operand("out", out, "bfloat16", 2, OUT_ALIGN),
    }
    addresses, devices, shapes, row_strides = zip(*operands.values())
    m, k = shapes[0]
    n = shapes[1][0]
    p = shapes[2][0]
    wanted = ((m, k), (n, k), (p, n), (m, p))
    if shapes != wanted:
        raise ValueError(f"shapes={shapes}: must be {wanted}, for M={m}, N={n}, K={k} and P={p}")
    if p % 8:
        raise ValueError(f"P={p}: must be a multiple of 8, TMA stores 16 bytes at a time")
    if min(devices) < 0 or len(set(devices)) > 1:
        raise ValueError(f"{devices=}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if devices[0] != current:
        raise ValueError(f"{devices=}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    problem = array.array("q", (m, n, k, p, max_blocks(current), *addresses, *row_strides))
    compile_custom()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(torch, m: int, n: int, k: int, p: int, a, b, c):
    """What `custom` should write, in float64; takes torch's float64 tensors."""
    return {
        "out": ((a @ b.T) @ c.T),
    }


def check(torch, m: int, n: int, k: int, p: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside the results is written."""
    inputs, outputs, around = {}, {}, {}

    def longer(size, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return (size // align + 1) * align

    values = torch.randn((m, longer(k, A_ALIGN)), device="cuda")
    inputs["a"] = values.to(torch.bfloat16)[:m, :k]
    values = torch.randn((n, longer(k, B_ALIGN)), device="cuda")
    inputs["b"] = values.to(torch.bfloat16)[:n, :k]
    values = torch.randn((p, longer(n, C_ALIGN)), device="cuda")
    inputs["c"] = values.to(torch.bfloat16)[:p, :n]
    around["out"] = torch.full(
        (m + 1, longer(p, OUT_ALIGN)), float("nan"), dtype=torch.bfloat16, device="cuda"
    )
    outputs["out"] = around["out"][:m, :p]
    custom(inputs["a"], inputs["b"], inputs["c"], outputs["out"])
    expected = reference(torch, m, n, k, p, *(each.double() for each in inputs.values()))
    passed = True
    for name, out in outputs.items():
        error = ((out.double() - expected[name]).norm() / expected[name].norm()).item()
        right = error <= 1e-2  # never true for NaN
        verdict = f"relative error {error:.1e}, limit 1e-2"
        out.copy_(around[name].flatten()[-1].expand(out.shape))
        whole = around[name].double()
        intact = bool((whole.isnan() | (whole == 77)).all())
        beside = "" if intact else ", and wrote beside it"
        passed = passed and right and intact
        print(f"{'PASS' if right and intact else 'FAIL'} {m},{n},{k},{p} {name}: {verdict}{beside}")
    return passed


def main(argv=None) -> int:
    def size(text):
        m, n, k, p = map(int, text.split(","))
        return m, n, k, p

    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--size", type=size, metavar="M,N,K,P", action="append")
    arguments = parser.parse_args(argv)
    if arguments.compile_only:
        compile_custom()
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
    tails = [
        (TILE_M, TILE_N, TILE_K, TILE_P),
        (1, 1, 1, 8),
        (1001, 1000, 504, 200),
        (333, 77, 72, 136),
        (4096, 2048, 512, 1024),
    ]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
