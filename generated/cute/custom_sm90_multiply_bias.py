# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | cute | sm_90a
# template: cute/custom_multiply.py.j2 dc163ea7b7a7
# text: 59cab65d689a
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "custom_sm90_multiply_bias"
#
#   [tile]
#   m = 128
#   n = 64
#   k = 32
#
#   [tensor.x]
#   shape = "M, K"
#   dtype = "f16"
#   read = "load"
#
#   [tensor.w]
#   shape = "N, K"
#   dtype = "f16"
#   read = "load_w"
#
#   [tensor.row]
#   shape = "M"
#   dtype = "f32"
#   read = "load"
#
#   [tensor.bias]
#   shape = "N"
#   dtype = "f32"
#   read = "add"
#
#   [tensor.out]
#   shape = "M, N"
#   dtype = "f32"
#   write = "add"
#   expect = "(x @ w.T).relu() + row[:, None] + bias"
#
#   [pipeline.x]
#   stages = 1
#   edge = "load -> multiply"
#
#   [pipeline.w]
#   stages = 1
#   edge = "load_w -> multiply"
#
#   [pipeline.row]
#   stages = 2
#   edge = "load -> add"
#
#   [pipeline.product]
#   stages = 2
#   edge = "multiply -> add"
#
#   [role.multiply]
#   warpgroups = 1
#   registers = 152
#   kind = "wgmma"
#   finish = "sums.store(cute.where(sums.load() > 0.0, sums.load(), 0.0))"
#
#   [role.add]
#   warps = 8
#   registers = 112
"""A custom graph of roles that multiply, for Hopper (sm_90a) in the CuTe DSL.

A CTA takes tiles of TILE_M x TILE_N of the result, one after the other, and for each walks over K
in steps of TILE_K. Every role has its own loops; rings of SMEM stages connect the roles, each
filled as often as its tiles change. What a role computes is its body, a function under "Yours":
replacing it never touches the protocol.

Roles of a CTA's 448 threads
  multiply             warps 0 to 3    multiplies: x @ w.T -> product, a wgmma group at each step
                       of K
  add                  warps 4 to 11   computes: bias, row, product -> out, once a tile
  load                 warp 12         loads by TMA: x, row -> x, row, at each step of K
  load_w               warp 13         loads by TMA: w -> w, at each step of K

Pipelines
  ring                 class             stages  full barrier     empty barrier
  x                    PipelineTmaAsync  1       1 x 8192 B       4 arrives
  w                    PipelineTmaAsync  1       1 x 4096 B       4 arrives
  row                  PipelineTmaAsync  2       1 x 512 B        8 arrives
  product              PipelineAsync     2       128 arrives      8 arrives

  x                    load -> multiply, at each step of K
  w                    load_w -> multiply, at each step of K
  row                  load -> add, once a tile
  product              multiply -> add, once a tile

  A producer acquires a stage (waits for its empty barrier) and commits it (the full barrier: TMA
  by the bytes that land, threads by an arrive each). A consumer waits for the full barrier, and one
  lane of each of its warps releases the stage: wgmma's, when the wgmmas that read it are done.

Timeline of a CTA
  multiply             each tile: fill product; each step of K: wait x, wait w, multiply, release
                       x, release w
  add                  each tile: wait row, wait product, store out, release row, release product
  load                 each tile: fill row; each step of K: fill x
  load_w               each step of K: fill w

Constraints
  x is (M, K), w is (N, K), row is (M,), bias is (N,), out is (M, N).
  The last dimension is contiguous, row strides and addresses are multiples of 16 bytes.

Run
  python custom_sm90_multiply_bias.py
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

X_DTYPE, X_ALIGN = cutlass.Float16, 8  # elements of 16 B
W_DTYPE, W_ALIGN = cutlass.Float16, 8  # elements of 16 B
ROW_DTYPE, ROW_ALIGN = cutlass.Float32, 4  # elements of 16 B
BIAS_DTYPE, BIAS_ALIGN = cutlass.Float32, 4  # elements of 16 B
OUT_DTYPE, OUT_ALIGN = cutlass.Float32, 4  # elements of 16 B

TILE_M, TILE_N, TILE_K = 128, 64, 32  # elements of a tile
RASTER_GROUP = 8  # rows of tiles walked together, for L2
MULTIPLY_WARPS = 4
ADD_WARPS = 8
THREADS = 448  # 32 * (4 + 8 + 1 + 1)

# x: load -> multiply, at each step of K
X_STAGES = 1
X_FULL, X_EMPTY = 1, 4  # arrivals
X_BYTES = 8192  # 128 * 32 * 2
# w: load_w -> multiply, at each step of K
W_STAGES = 1
W_FULL, W_EMPTY = 1, 4  # arrivals
W_BYTES = 4096  # 64 * 32 * 2
# row: load -> add, once a tile
ROW_STAGES = 2
ROW_FULL, ROW_EMPTY = 1, 8  # arrivals
ROW_BYTES = 512  # 128 * 4
# product: multiply -> add, once a tile
PRODUCT_STAGES = 2
PRODUCT_FULL, PRODUCT_EMPTY = 128, 8  # arrivals


@cute.struct
class SharedStorage:  # 79872 B, as rings and stages say
    x_barriers: cute.struct.MemRange[cutlass.Int64, 2 * X_STAGES]
    w_barriers: cute.struct.MemRange[cutlass.Int64, 2 * W_STAGES]
    row_barriers: cute.struct.MemRange[cutlass.Int64, 2 * ROW_STAGES]
    product_barriers: cute.struct.MemRange[cutlass.Int64, 2 * PRODUCT_STAGES]
    x: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE_M * TILE_K * X_STAGES], 1024]
    w: cute.struct.Align[cute.struct.MemRange[cutlass.Float16, TILE_N * TILE_K * W_STAGES], 1024]
    row: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE_M * ROW_STAGES], 128]
    product: cute.struct.Align[
        cute.struct.MemRange[cutlass.Float32, TILE_M * TILE_N * PRODUCT_STAGES], 1024
    ]


def swizzled_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int):
    """(rows, columns, STAGE), swizzled in a way that both TMA and wgmma know."""
    atom = cute.nvgpu.warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=(0, 1, 2))


def plain_layout(tile: tuple, stages: int, step: int) -> cute.Layout:
    """(rows, columns, STAGE), row by row: a warp reads a whole row, so without bank conflicts.

    A stage begins `step` elements after the one before: at a multiple of 128 B, as TMA wants it.
    """
    return cute.make_layout((*tile, stages), stride=(tile[1], 1, step))


def part_of(tile: cute.Tensor, warps: int, thread):
    """A thread's part of a tile in SMEM: its warp's rows, its lane's columns. A vector has one."""
    rows, columns = cute.size(tile, mode=[0]), cute.size(tile, mode=[1])
    shape = (max(1, rows // warps), max(1, columns // 32))
    place = (thread // 32 if rows > 1 else 0, thread % 32 if columns > 1 else 0)
    return cute.local_tile(tile, shape, place)


def make_part(shape: tuple, dtype) -> cute.Tensor:
    """Registers for a thread's part, row by row."""
    return cute.make_rmem_tensor(cute.make_ordered_layout(shape, order=(1, 0)), dtype)


def part_shape(part: cute.Tensor) -> tuple:
    """Rows and columns of a part; those of a swizzled tile have several modes."""
    return cute.size(part, mode=[0]), cute.size(part, mode=[1])


def load_part(tile: cute.Tensor, warps: int, thread) -> cute.TensorSSA:
    """A thread's part of a tile in SMEM, as f32: (rows of a warp, columns of a lane)."""
    part = part_of(tile, warps, thread)
    registers = make_part(part_shape(part), part.element_type)
    cute.autovec_copy(part, registers)
    return registers.load().to(cutlass.Float32)


def store_part(values: cute.TensorSSA, tile: cute.Tensor, warps: int, thread):
    """Puts a thread's values into its part of a tile in SMEM."""
    part = part_of(tile, warps, thread)
    registers = make_part(part_shape(part), part.element_type)
    registers.store(values.to(part.element_type))
    cute.autovec_copy(registers, part)


# ==== Yours: the bodies ==========================================================================
@cute.jit
def multiply(x: cute.Tensor, w: cute.Tensor, sums: cute.Tensor, tiled_mma: cute.TiledMma):
    """Yours; as written, sums += x @ w.T by wgmma. MULTIPLY_WARPS warps.

    x: a stage, (TILE_M, TILE_K) f16 in SMEM, as wgmma's A: (MMA, M, K)
    w: a stage, (TILE_N, TILE_K) f16 in SMEM, as wgmma's B: (MMA, N, K)
    sums: this thread's f32 accumulators of (TILE_M, TILE_N)
    tiled_mma: given back; a tile's first wgmma overwrites the sums, all others add
    """
    for k in cutlass.range_constexpr(cute.size(x, mode=[2])):
        cute.gemm(tiled_mma, sums, x[None, None, k], w[None, None, k], sums)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    return tiled_mma


@cute.jit
def multiply_finish(sums: cute.Tensor, coord: cute.Tensor):
    """Yours.

    Ends a tile: what is in sums then is given on. sums[i] belongs to the row and column
    coord[i] of the whole product, which may lie outside at an edge.
    """
    sums.store(cute.where(sums.load() > 0.0, sums.load(), 0.0))


@cute.jit
def add(
    row: cute.Tensor,
    product: cute.Tensor,
    bias: cute.Tensor,
    out: cute.Tensor,
    thread: cutlass.Int32,
):
    """Yours; as written, the identity. ADD_WARPS warps; this is thread `thread` of them.

    row: a stage, (TILE_M, 1) f32 in SMEM
    product: a stage, (TILE_M, TILE_N) f32 in SMEM
    bias: this thread's part of the tile in GMEM
    out: this thread's part, which is stored
    """
    values = (
        load_part(row, ADD_WARPS, thread)
        + load_part(product, ADD_WARPS, thread)
        + bias.load().to(cutlass.Float32)
    )
    out.store(values.to(out.element_type))


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


@cute.jit
def load_global(source: cute.Tensor, target: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32):
    """A thread's part at the place (m, n) of a matrix into registers; zeros outside."""
    rows = cutlass.const_expr(cute.size(target, mode=[0]))
    columns = cutlass.const_expr(cute.size(target, mode=[1]))
    part = cute.local_tile(source, (rows, columns), (m, n))
    left = source.shape[1] - n * columns
    target.fill(0)
    for i in cutlass.range_constexpr(rows):
        if m * rows + i < source.shape[0]:
            if left >= columns:
                cute.autovec_copy(part[i, None], target[i, None])
            else:
                for j in cutlass.range_constexpr(columns):
                    if j < left:
                        target[i, j] = part[i, j]


@cute.jit
def store_global(source: cute.Tensor, target: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32):
    """A thread's part goes to the place (m, n) of a matrix, as far as it reaches."""
    rows = cutlass.const_expr(cute.size(source, mode=[0]))
    columns = cutlass.const_expr(cute.size(source, mode=[1]))
    part = cute.local_tile(target, (rows, columns), (m, n))
    left = target.shape[1] - n * columns
    for i in cutlass.range_constexpr(rows):
        if m * rows + i < target.shape[0]:
            if left >= columns:
                cute.autovec_copy(source[i, None], part[i, None])
            else:
                for j in cutlass.range_constexpr(columns):
                    if j < left:
                        part[i, j] = source[i, j]


@cute.kernel
def custom_kernel(
    tma_x, tma_w, tma_row, bias_gmem, out_gmem, multiply_mma, tiles_m, tiles_n, tiles_k, tiles
):
    thread_idx, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    x_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW64, cutlass.Float16, (TILE_M, TILE_K), X_STAGES
    )
    x_smem = storage.x.get_tensor(x_layout.outer, swizzle=x_layout.inner)
    w_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW64, cutlass.Float16, (TILE_N, TILE_K), W_STAGES
    )
    w_smem = storage.w.get_tensor(w_layout.outer, swizzle=w_layout.inner)
    row_layout = plain_layout((TILE_M, 1), ROW_STAGES, TILE_M)
    row_smem = storage.row.get_tensor(row_layout)
    product_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.Float32, (TILE_M, TILE_N), PRODUCT_STAGES
    )
    product_smem = storage.product.get_tensor(product_layout.outer, swizzle=product_layout.inner)

    x_ring = pipeline.PipelineTmaAsync.create(
        num_stages=X_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, X_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, X_EMPTY),
        tx_count=X_BYTES,
        barrier_storage=storage.x_barriers.data_ptr(),
        defer_sync=True,
    )
    w_ring = pipeline.PipelineTmaAsync.create(
        num_stages=W_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, W_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, W_EMPTY),
        tx_count=W_BYTES,
        barrier_storage=storage.w_barriers.data_ptr(),
        defer_sync=True,
    )
    row_ring = pipeline.PipelineTmaAsync.create(
        num_stages=ROW_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, ROW_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, ROW_EMPTY),
        tx_count=ROW_BYTES,
        barrier_storage=storage.row_barriers.data_ptr(),
        defer_sync=True,
    )
    product_ring = pipeline.PipelineAsync.create(
        num_stages=PRODUCT_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, PRODUCT_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, PRODUCT_EMPTY),
        barrier_storage=storage.product_barriers.data_ptr(),
        defer_sync=True,
    )
    # Nobody may touch a barrier before all have been set up.
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()

    if warp_idx < 4:
        # ---- multiply ----------------------------------------------------------------------------
        x_consumer = x_ring.make_consumer()
        w_consumer = w_ring.make_consumer()
        product_producer = product_ring.make_producer()
        thread = thread_idx
        # 152 registers a thread, from what the launch gave to all.
        cute.arch.setmaxregister_increase(152)
        # A warpgroup's threads hold one and the same SMEM descriptor.
        whole = multiply_mma.get_slice(cute.arch.make_warp_uniform(thread // 128) * 128)
        # (MMA, M, K, STAGE) and (MMA, N, K, STAGE)
        x_parts = multiply_mma.make_fragment_A(whole.partition_A(x_smem))
        w_parts = multiply_mma.make_fragment_B(whole.partition_B(w_smem))
        own = multiply_mma.get_slice(thread)
        # ((2 columns, 2 rows 8 apart, TILE_N / 8), M, 1): 64 registers
        sums = cute.make_rmem_tensor(own.partition_shape_C((TILE_M, TILE_N)), cutlass.Float32)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(index, tiles_m, tiles_n)
            # The first wgmma overwrites the sums, the others add.
            multiply_mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(tiles_k, unroll=1):
                x_stage = x_consumer.wait_and_advance()
                w_stage = w_consumer.wait_and_advance()
                warpgroup.fence()
                multiply_mma = multiply(
                    x_parts[None, None, None, x_stage.index],
                    w_parts[None, None, None, w_stage.index],
                    sums,
                    multiply_mma,
                )
                warpgroup.commit_group()
                # A ring of one stage: the next comes when this one has been read.
                warpgroup.wait_group(0)
                x_stage.release()
                w_stage.release()
            block = cute.make_identity_tensor((TILE_M, TILE_N))
            block = cute.domain_offset((m * TILE_M, n * TILE_N), block)
            multiply_finish(sums, own.partition_C(block))
            product_stage = product_producer.acquire_and_advance()
            store_sums(sums, product_smem[None, None, product_stage.index], multiply_mma, thread)
            product_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        product_producer.tail()
    elif warp_idx < 12:
        # ---- add ---------------------------------------------------------------------------------
        row_consumer = row_ring.make_consumer()
        product_consumer = product_ring.make_consumer()
        thread = thread_idx - 128
        # 112 registers a thread, from what the launch gave to all.
        cute.arch.setmaxregister_decrease(112)
        bias_part = make_part((1, TILE_N // 32), BIAS_DTYPE)
        out_part = make_part((TILE_M // ADD_WARPS, TILE_N // 32), OUT_DTYPE)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(index, tiles_m, tiles_n)
            row_stage = row_consumer.wait_and_advance()
            product_stage = product_consumer.wait_and_advance()
            load_global(bias_gmem, bias_part, 0, n * 32 + thread % 32)
            add(
                row_smem[None, None, row_stage.index],
                product_smem[None, None, product_stage.index],
                bias_part,
                out_part,
                thread,
            )
            store_global(out_part, out_gmem, m * ADD_WARPS + thread // 32, n * 32 + thread % 32)
            # The next load writes through the async proxy: all reads must be done before it.
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            row_stage.release()
            with cute.arch.elect_one():
                product_stage.release()
    elif warp_idx == 12:
        # ---- load --------------------------------------------------------------------------------
        x_producer = x_ring.make_producer()
        row_producer = row_ring.make_producer()
        x_to, x_from = partition_tma(tma_x, x_smem, (TILE_M, TILE_K))
        row_to, row_from = partition_tma(tma_row, row_smem, (TILE_M, 1))
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(index, tiles_m, tiles_n)
            row_stage = row_producer.acquire_and_advance()
            row_tile = row_from[None, m, 0]
            cute.copy(
                tma_row.atom, row_tile, row_to[None, row_stage.index], tma_bar_ptr=row_stage.barrier
            )
            row_stage.commit()
            for k in cutlass.range(tiles_k, unroll=1):
                x_stage = x_producer.acquire_and_advance()
                x_tile = x_from[None, m, k]
                cute.copy(
                    tma_x.atom, x_tile, x_to[None, x_stage.index], tma_bar_ptr=x_stage.barrier
                )
                x_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        x_producer.tail()
        row_producer.tail()
    else:
        # ---- load_w ------------------------------------------------------------------------------
        w_producer = w_ring.make_producer()
        w_to, w_from = partition_tma(tma_w, w_smem, (TILE_N, TILE_K))
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(index, tiles_m, tiles_n)
            for k in cutlass.range(tiles_k, unroll=1):
                w_stage = w_producer.acquire_and_advance()
                w_tile = w_from[None, n, k]
                cute.copy(
                    tma_w.atom, w_tile, w_to[None, w_stage.index], tma_bar_ptr=w_stage.barrier
                )
                w_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        w_producer.tail()


def make_mma(dtype, columns: int, k: int, warps: int) -> cute.TiledMma:
    """wgmma of both operands from SMEM, the symbol that is summed over contiguous, f32 sums."""
    shape, source, major = (64, columns, k), warpgroup.OperandSource.SMEM, OperandMajorMode.K
    op = warpgroup.MmaF16BF16Op(dtype, cutlass.Float32, shape, source, major, major)
    return cute.make_tiled_mma(op, (warps // 4, 1, 1))


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `custom` packs."""
    # One argument instead of 14: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(14))
    m, n, k, max_blocks = [cutlass.Int32(numbers[i]) for i in range(4)]
    gmem = cute.AddressSpace.gmem
    x_row = cute.assume(numbers[9], X_ALIGN)
    x_ptr = cute.make_ptr(X_DTYPE, numbers[4], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((m, k), stride=(x_row, 1)))
    w_row = cute.assume(numbers[10], W_ALIGN)
    w_ptr = cute.make_ptr(W_DTYPE, numbers[5], gmem, assumed_align=16)
    w = cute.make_tensor(w_ptr, cute.make_layout((n, k), stride=(w_row, 1)))
    row_ptr = cute.make_ptr(ROW_DTYPE, numbers[6], gmem, assumed_align=16)
    row = cute.make_tensor(row_ptr, cute.make_layout((m, 1), stride=(1, 4)))
    bias_ptr = cute.make_ptr(BIAS_DTYPE, numbers[7], gmem, assumed_align=16)
    bias = cute.make_tensor(bias_ptr, cute.make_layout((1, n), stride=(4, 1)))
    out_row = cute.assume(numbers[13], OUT_ALIGN)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[8], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((m, n), stride=(out_row, 1)))

    load = cpasync.CopyBulkTensorTileG2SOp()
    x_layout = swizzled_layout(SmemLayoutAtomKind.K_SW64, X_DTYPE, (TILE_M, TILE_K), 1)
    tma_x = cpasync.make_tiled_tma_atom(load, x, x_layout, (TILE_M, TILE_K))
    w_layout = swizzled_layout(SmemLayoutAtomKind.K_SW64, W_DTYPE, (TILE_N, TILE_K), 1)
    tma_w = cpasync.make_tiled_tma_atom(load, w, w_layout, (TILE_N, TILE_K))
    row_layout = cute.make_ordered_layout((TILE_M, 1), order=(1, 0))
    tma_row = cpasync.make_tiled_tma_atom(load, row, row_layout, (TILE_M, 1))

    multiply_mma = make_mma(cutlass.Float16, TILE_N, 16, MULTIPLY_WARPS)
    tiles_m = cute.ceil_div(m, TILE_M)
    tiles_n = cute.ceil_div(n, TILE_N)
    tiles_k = cute.ceil_div(k, TILE_K)
    tiles = tiles_m * tiles_n
    custom_kernel(
        tma_x, tma_w, tma_row, bias, out, multiply_mma, tiles_m, tiles_n, tiles_k, tiles
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


def custom(x, w, row, bias, out, stream=None):
    """Writes out from x, w, row, bias, on the current device.

    Tensors of torch, or of others through DLPack (jax, cupy). `stream`: a CUstream, an int or a
    torch stream; None is torch's current stream if torch is in use, else the default stream.
    """
    operands = {
        "x": operand("x", x, "float16", 2, X_ALIGN),
        "w": operand("w", w, "float16", 2, W_ALIGN),
        "row": operand("row", row, "float32", 1, ROW_ALIGN),
        "bias": operand("bias", bias, "float32", 1, BIAS_ALIGN),
        "out": operand("out", out, "float32", 2, OUT_ALIGN),
    }
    addresses, devices, shapes, row_strides = zip(*operands.values())
    m, k = shapes[0]
    n = shapes[1][0]
    wanted = ((m, k), (n, k), (m,), (n,), (m, n))
    if shapes != wanted:
        raise ValueError(f"shapes={shapes}: must be {wanted}, for M={m}, N={n} and K={k}")
    if min(devices) < 0 or len(set(devices)) > 1:
        raise ValueError(f"{devices=}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if devices[0] != current:
        raise ValueError(f"{devices=}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    problem = array.array("q", (m, n, k, max_blocks(current), *addresses, *row_strides))
    compile_custom()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(torch, m: int, n: int, k: int, x, w, row, bias):
    """What `custom` should write, in float64; takes torch's float64 tensors."""
    return {
        "out": (x @ w.T).relu() + row[:, None] + bias,
    }


def check(torch, m: int, n: int, k: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside the results is written."""
    inputs, outputs, around = {}, {}, {}

    def longer(size, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return (size // align + 1) * align

    values = torch.randn((m, longer(k, X_ALIGN)), device="cuda")
    inputs["x"] = values.to(torch.float16)[:m, :k]
    values = torch.randn((n, longer(k, W_ALIGN)), device="cuda")
    inputs["w"] = values.to(torch.float16)[:n, :k]
    values = torch.randn((m,), device="cuda")
    inputs["row"] = values.to(torch.float32)[:m]
    values = torch.randn((n,), device="cuda")
    inputs["bias"] = values.to(torch.float32)[:n]
    around["out"] = torch.full(
        (m + 1, longer(n, OUT_ALIGN)), float("nan"), dtype=torch.float32, device="cuda"
    )
    outputs["out"] = around["out"][:m, :n]
    custom(inputs["x"], inputs["w"], inputs["row"], inputs["bias"], outputs["out"])
    expected = reference(torch, m, n, k, *(each.double() for each in inputs.values()))
    passed = True
    for name, out in outputs.items():
        error = ((out.double() - expected[name]).norm() / expected[name].norm()).item()
        right = error <= 1e-3  # never true for NaN
        verdict = f"relative error {error:.1e}, limit 1e-3"
        out.copy_(around[name].flatten()[-1].expand(out.shape))
        whole = around[name].double()
        intact = bool((whole.isnan() | (whole == 77)).all())
        beside = "" if intact else ", and wrote beside it"
        passed = passed and right and intact
        print(f"{'PASS' if right and intact else 'FAIL'} {m=} {n=} {k=} {name}: {verdict}{beside}")
    return passed


def main(argv=None) -> int:
    def size(text):
        m, n, k = map(int, text.split(","))
        return m, n, k

    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--size", type=size, metavar="M,N,K", action="append")
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
        (TILE_M, TILE_N, TILE_K),
        (1, 1, 1),
        (1001, 1000, 504),
        (333, 77, 72),
        (4096, 2048, 512),
    ]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
