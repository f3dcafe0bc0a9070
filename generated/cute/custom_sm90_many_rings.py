# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | cute | sm_90a
# template: cute/custom.py.j2 c0a58dea80f9
# text: dcf8a25ba441
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "custom_sm90_many_rings"
#
#   [tile]
#   m = 32
#   n = 128
#
#   [tensor.x]
#   read = "load"
#
#   [tensor.v]
#   shape = "M"
#   dtype = "f32"
#   read = "load_v"
#
#   [tensor.b]
#   shape = "N"
#   read = "load_b"
#
#   [tensor.w]
#   dtype = "f32"
#   read = "gather"
#
#   [tensor.z]
#   read = "eyes"
#
#   [tensor.out]
#   write = "save"
#
#   [tensor.total]
#   shape = "M"
#   dtype = "f32"
#   write = "add"
#
#   [tensor.again]
#   dtype = "f32"
#   write = "copy"
#
#   [pipeline.x]
#   edge = "load -> add, copy"
#
#   [pipeline.v]
#   stages = 2
#   edge = "load_v -> add"
#
#   [pipeline.b]
#   edge = "load_b -> add"
#
#   [pipeline.w]
#   edge = "gather -> add"
#
#   [pipeline.seen]
#   edge = "eyes -> add"
#
#   [pipeline.done]
#   edge = "add -> save"
#
#   [role.gather]
#   kind = "cp_async"
#
#   [role.eyes]
#   warps = 2
#   kind = "thread"
#
#   [role.save]
#   kind = "tma_store"
"""A custom graph of roles for Hopper (sm_90a) in the CuTe DSL.

A CTA takes panels of 32 rows, one after the other, and walks over each panel's tiles of 128
columns. Every role has its own loop over them; rings of SMEM stages connect the roles. What a role
computes is its body, a function under "Yours": replacing it never touches the protocol.

Roles of a CTA's 576 threads
  add                  warps 0 to 3    computes: x, v, b, w, seen -> done, total, once a tile
  copy                 warps 4 to 7    computes: x -> again, once a tile
  gather               warps 8 to 11   copies by cp.async: w -> w, once a tile
  eyes                 warps 12 to 13  computes: z -> seen, once a tile
  load                 warp 14         loads by TMA: x -> x, once a tile
  load_v               warp 15         loads by TMA: v -> v, once a panel
  load_b               warp 16         loads by TMA: b -> b, once a tile
  save                 warp 17         stores by TMA: done -> out, once a tile

Pipelines
  ring  edge               class             stages  full barrier  empty barrier
  x     load -> add, copy  PipelineTmaAsync  4       1 x 8192 B    8 arrives
  v     load_v -> add      PipelineTmaAsync  2       1 x 128 B     4 arrives
  b     load_b -> add      PipelineTmaAsync  4       1 x 256 B     4 arrives
  w     gather -> add      PipelineCpAsync   4       128 arrives   4 arrives
  seen  eyes -> add        PipelineAsync     4       64 arrives    4 arrives
  done  add -> save        PipelineAsync     4       128 arrives   1 arrives

  A producer acquires a stage (waits for its empty barrier) and commits it (the full barrier: TMA
  by the bytes that land, threads by an arrive each). A consumer waits for the full barrier, and one
  lane of each of its warps releases the stage.

Timeline of a CTA
  add                  a panel: wait v, store total, release v; each tile: wait x, wait b, wait w,
                       wait seen, fill done, release x, release b, release w, release seen
  copy                 each tile: wait x, store again, release x
  gather               each tile: fill w
  eyes                 each tile: fill seen
  load                 each tile: fill x
  load_v               a panel: fill v
  load_b               each tile: fill b
  save                 each tile: wait done, store out, release done

Constraints
  x is (M, N), v is (M,), b is (N,), w is (M, N), z is (M, N), out is (M, N), total is (M,), again
  is (M, N).
  The last dimension is contiguous, row strides and addresses are multiples of 16 bytes.
  N is a multiple of 8: TMA stores 16 bytes at a time.

Run
  python custom_sm90_many_rings.py
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
from cutlass.cute.nvgpu import cpasync
from cutlass.experimental import primitives
from cutlass.utils import HardwareInfo

X_DTYPE, X_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
V_DTYPE, V_ALIGN = cutlass.Float32, 4  # elements of 16 B
B_DTYPE, B_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
W_DTYPE, W_ALIGN = cutlass.Float32, 4  # elements of 16 B
Z_DTYPE, Z_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
OUT_DTYPE, OUT_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
TOTAL_DTYPE, TOTAL_ALIGN = cutlass.Float32, 4  # elements of 16 B
AGAIN_DTYPE, AGAIN_ALIGN = cutlass.Float32, 4  # elements of 16 B

TILE_M, TILE_N = 32, 128  # elements of a tile
VECTOR = 4  # elements of a row that a lane has: 128 / 32
ADD_WARPS, ADD_ROWS = 4, 8  # a warp has so many rows of a tile
COPY_WARPS, COPY_ROWS = 4, 8  # a warp has so many rows of a tile
GATHER_WARPS, GATHER_ROWS = 4, 8  # a warp has so many rows of a tile
EYES_WARPS, EYES_ROWS = 2, 16  # a warp has so many rows of a tile
THREADS = 576  # 32 * (4 + 4 + 4 + 2 + 1 + 1 + 1 + 1)

# x: load -> add, copy
X_STAGES = 4
X_FULL, X_EMPTY = 1, 8  # arrivals
X_BYTES = 8192  # 32 * 128 * 2
# v: load_v -> add
V_STAGES = 2
V_FULL, V_EMPTY = 1, 4  # arrivals
V_BYTES = 128  # 32 * 4
# b: load_b -> add
B_STAGES = 4
B_FULL, B_EMPTY = 1, 4  # arrivals
B_BYTES = 256  # 128 * 2
# w: gather -> add
W_STAGES = 4
W_FULL, W_EMPTY = 128, 4  # arrivals
# seen: eyes -> add
SEEN_STAGES = 4
SEEN_FULL, SEEN_EMPTY = 64, 4  # arrivals
# done: add -> save
DONE_STAGES = 4
DONE_FULL, DONE_EMPTY = 128, 1  # arrivals


@cute.struct
class SharedStorage:  # 165504 B, as rings and stages say
    x_barriers: cute.struct.MemRange[cutlass.Int64, 2 * X_STAGES]
    v_barriers: cute.struct.MemRange[cutlass.Int64, 2 * V_STAGES]
    b_barriers: cute.struct.MemRange[cutlass.Int64, 2 * B_STAGES]
    w_barriers: cute.struct.MemRange[cutlass.Int64, 2 * W_STAGES]
    seen_barriers: cute.struct.MemRange[cutlass.Int64, 2 * SEEN_STAGES]
    done_barriers: cute.struct.MemRange[cutlass.Int64, 2 * DONE_STAGES]
    x: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_N * X_STAGES], 128]
    v: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE_M * V_STAGES], 128]
    b: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, TILE_N * B_STAGES], 128]
    w: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE_M * TILE_N * W_STAGES], 128]
    seen: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_N * SEEN_STAGES], 128
    ]
    done: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_N * DONE_STAGES], 128
    ]


def stages_layout(rows: int, columns: int, stages: int, step: int = 0) -> cute.Layout:
    """(rows, columns, STAGE), row by row: a warp reads a whole row, so without bank conflicts.

    `step`: elements from a stage to the next, where a short one ends before a multiple of 128 B.
    """
    return cute.make_layout((rows, columns, stages), stride=(columns, 1, step or rows * columns))


def part_of(tile: cute.Tensor, warps: int, thread):
    """A thread's part of a tile in SMEM: its warp's rows, its lane's columns. A vector has one."""
    rows, columns = tile.shape
    shape = (max(1, rows // warps), max(1, columns // 32))
    place = (thread // 32 if rows > 1 else 0, thread % 32 if columns > 1 else 0)
    return cute.local_tile(tile, shape, place)


def make_part(shape: tuple, dtype) -> cute.Tensor:
    """Registers for a thread's part, row by row."""
    return cute.make_rmem_tensor(cute.make_ordered_layout(shape, order=(1, 0)), dtype)


def load_part(tile: cute.Tensor, warps: int, thread) -> cute.TensorSSA:
    """A thread's part of a tile in SMEM, as f32: (rows of a warp, VECTOR), or 1 of a vector."""
    part = part_of(tile, warps, thread)
    registers = make_part(part.shape, part.element_type)
    cute.autovec_copy(part, registers)
    return registers.load().to(cutlass.Float32)


def store_part(values: cute.TensorSSA, tile: cute.Tensor, warps: int, thread):
    """Puts a thread's values into its part of a tile in SMEM."""
    part = part_of(tile, warps, thread)
    registers = make_part(part.shape, part.element_type)
    registers.store(values.to(part.element_type))
    cute.autovec_copy(registers, part)


@cute.jit
def store_kept(kept: cute.Tensor, target: cute.Tensor, m: cutlass.Int32, thread: cutlass.Int32):
    """Lane 0 stores what its warp has for its rows, the m-th part of a vector; none outside."""
    rows = cutlass.const_expr(cute.size(kept))
    if thread % 32 == 0:
        for i in cutlass.range_constexpr(rows):
            if m * rows + i < target.shape[0]:
                target[m * rows + i, 0] = kept[i].to(target.element_type)


@cute.jit
def add_rows(
    values: cute.TensorSSA, kept: cute.Tensor, columns: cutlass.Int32, thread: cutlass.Int32
):
    """Adds a thread's values to its rows' sums, as far as the matrix has columns."""
    registers = make_part(values.shape, cutlass.Float32)
    registers.store(values)
    for i in cutlass.range_constexpr(cute.size(registers, mode=[0])):
        for j in cutlass.range_constexpr(cute.size(registers, mode=[1])):
            if thread % 32 * VECTOR + j < columns:
                kept[i] += registers[i, j]


# ==== Yours: the bodies ==========================================================================
@cute.jit
def add(
    x: cute.Tensor,
    v: cute.Tensor,
    b: cute.Tensor,
    w: cute.Tensor,
    seen: cute.Tensor,
    done: cute.Tensor,
    total: cute.Tensor,
    columns: cutlass.Int32,
    thread: cutlass.Int32,
):
    """Yours; as written, the identity. ADD_WARPS warps; this is thread `thread` of them.

    x: a stage, (TILE_M, TILE_N) bf16 in SMEM
    v: a stage, (TILE_M, 1) f32 in SMEM
    b: a stage, (1, TILE_N) bf16 in SMEM
    w: a stage, (TILE_M, TILE_N) f32 in SMEM
    seen: a stage, (TILE_M, TILE_N) bf16 in SMEM
    done: the stage to fill
    total: ROWS f32 that this thread keeps over a panel
    columns: of the matrix, from this tile's first on
    """
    values = (
        load_part(x, ADD_WARPS, thread)
        + load_part(v, ADD_WARPS, thread)
        + load_part(b, ADD_WARPS, thread)
        + load_part(w, ADD_WARPS, thread)
        + load_part(seen, ADD_WARPS, thread)
    )
    store_part(values, done, ADD_WARPS, thread)
    row_values = (
        load_part(x, ADD_WARPS, thread)
        + load_part(b, ADD_WARPS, thread)
        + load_part(w, ADD_WARPS, thread)
        + load_part(seen, ADD_WARPS, thread)
    )
    add_rows(row_values, total, columns, thread)


@cute.jit
def add_finish(total: cute.Tensor, thread: cutlass.Int32):
    """Yours; as written, the sum over a warp's lanes.

    Ends a panel: lane 0 of each warp stores what it has then.
    """
    for i in cutlass.range_constexpr(ADD_ROWS):
        total[i] = cute.arch.warp_reduction_sum(total[i])


@cute.jit
def copy(x: cute.Tensor, again: cute.Tensor, columns: cutlass.Int32, thread: cutlass.Int32):
    """Yours; as written, the identity. COPY_WARPS warps; this is thread `thread` of them.

    x: a stage, (TILE_M, TILE_N) bf16 in SMEM
    again: this thread's part, which is stored
    columns: of the matrix, from this tile's first on
    """
    values = load_part(x, COPY_WARPS, thread)
    again.store(values.to(again.element_type))


@cute.jit
def eyes(z: cute.Tensor, seen: cute.Tensor, columns: cutlass.Int32, thread: cutlass.Int32):
    """Yours; as written, the identity. EYES_WARPS warps; this is thread `thread` of them.

    z: this thread's part of the tile in GMEM
    seen: the stage to fill
    columns: of the matrix, from this tile's first on
    """
    values = z.load().to(cutlass.Float32)
    store_part(values, seen, EYES_WARPS, thread)


# ==== The moves ==================================================================================
def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at once: SMEM (copy, STAGE), GMEM (copy, tiles along M, along N)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


def copy_async(source: cute.Tensor, target: cute.Tensor, elements: cutlass.Int32):
    """One cp.async: the first `elements` of a lane's VECTOR from GMEM, zeros for the others.

    cute.copy's own atom cannot end in the middle of a copy; this instruction can.
    """
    width = source.element_type.width // 8  # bytes of an element
    primitives.cp_async_shared_global(
        target.iterator, source.iterator, VECTOR * width, "cg", cp_size=elements * width
    )


@cute.jit
def copy_global(source: cute.Tensor, target: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32):
    """cp.async of a thread's part at the place (m, n) of a matrix; zeros outside."""
    rows = cutlass.const_expr(cute.size(target, mode=[0]))
    part = cute.local_tile(source, (rows, VECTOR), (m, n))
    in_row = cutlass.max(0, cutlass.min(VECTOR, source.shape[1] - n * VECTOR))
    for i in cutlass.range_constexpr(rows):
        inside = m * rows + i < source.shape[0]
        copy_async(part[i, None], target[i, None], in_row if inside else 0)


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
    tma_x, tma_v, tma_b, w_gmem, z_gmem, tma_out, total_gmem, again_gmem, columns, panels, tiles
):
    thread_idx, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    x_smem = storage.x.get_tensor(stages_layout(TILE_M, TILE_N, X_STAGES))
    v_smem = storage.v.get_tensor(stages_layout(TILE_M, 1, V_STAGES))
    b_smem = storage.b.get_tensor(stages_layout(1, TILE_N, B_STAGES))
    w_smem = storage.w.get_tensor(stages_layout(TILE_M, TILE_N, W_STAGES))
    seen_smem = storage.seen.get_tensor(stages_layout(TILE_M, TILE_N, SEEN_STAGES))
    done_smem = storage.done.get_tensor(stages_layout(TILE_M, TILE_N, DONE_STAGES))

    x_ring = pipeline.PipelineTmaAsync.create(
        num_stages=X_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, X_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, X_EMPTY),
        tx_count=X_BYTES,
        barrier_storage=storage.x_barriers.data_ptr(),
        defer_sync=True,
    )
    v_ring = pipeline.PipelineTmaAsync.create(
        num_stages=V_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, V_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, V_EMPTY),
        tx_count=V_BYTES,
        barrier_storage=storage.v_barriers.data_ptr(),
        defer_sync=True,
    )
    b_ring = pipeline.PipelineTmaAsync.create(
        num_stages=B_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, B_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, B_EMPTY),
        tx_count=B_BYTES,
        barrier_storage=storage.b_barriers.data_ptr(),
        defer_sync=True,
    )
    w_ring = pipeline.PipelineCpAsync.create(
        num_stages=W_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, W_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, W_EMPTY),
        barrier_storage=storage.w_barriers.data_ptr(),
        defer_sync=True,
    )
    seen_ring = pipeline.PipelineAsync.create(
        num_stages=SEEN_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, SEEN_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, SEEN_EMPTY),
        barrier_storage=storage.seen_barriers.data_ptr(),
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

    if warp_idx < 4:
        # ---- add ---------------------------------------------------------------------------------
        x_consumer = x_ring.make_consumer()
        v_consumer = v_ring.make_consumer()
        b_consumer = b_ring.make_consumer()
        w_consumer = w_ring.make_consumer()
        seen_consumer = seen_ring.make_consumer()
        done_producer = done_ring.make_producer()
        thread = thread_idx
        total_kept = cute.make_rmem_tensor(ADD_ROWS, cutlass.Float32)
        for panel in cutlass.range(first, panels, step, unroll=1):
            v_stage = v_consumer.wait_and_advance()
            total_kept.fill(0.0)
            for tile in cutlass.range(tiles, unroll=1):
                x_stage = x_consumer.wait_and_advance()
                b_stage = b_consumer.wait_and_advance()
                w_stage = w_consumer.wait_and_advance()
                seen_stage = seen_consumer.wait_and_advance()
                done_stage = done_producer.acquire_and_advance()
                add(
                    x_smem[None, None, x_stage.index],
                    v_smem[None, None, v_stage.index],
                    b_smem[None, None, b_stage.index],
                    w_smem[None, None, w_stage.index],
                    seen_smem[None, None, seen_stage.index],
                    done_smem[None, None, done_stage.index],
                    total_kept,
                    columns - tile * TILE_N,
                    thread,
                )
                # TMA reads the stage through the async proxy: publish to it first.
                cute.arch.fence_proxy("async.shared", space="cta")
                done_stage.commit()
                # The next load writes through the async proxy: all reads must be done before it.
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.sync_warp()
                x_stage.release()
                b_stage.release()
                with cute.arch.elect_one():
                    w_stage.release()
                with cute.arch.elect_one():
                    seen_stage.release()
            add_finish(total_kept, thread)
            store_kept(total_kept, total_gmem, panel * ADD_WARPS + thread // 32, thread)
            # The next load writes through the async proxy: all reads must be done before it.
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            v_stage.release()
        # Leaves no arrive pending: waits until every stage has been released.
        done_producer.tail()
    elif warp_idx < 8:
        # ---- copy --------------------------------------------------------------------------------
        x_consumer = x_ring.make_consumer()
        thread = thread_idx - 128
        again_part = make_part((COPY_ROWS, VECTOR), AGAIN_DTYPE)
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                x_stage = x_consumer.wait_and_advance()
                copy(x_smem[None, None, x_stage.index], again_part, columns - tile * TILE_N, thread)
                store_global(
                    again_part,
                    again_gmem,
                    panel * COPY_WARPS + thread // 32,
                    tile * 32 + thread % 32,
                )
                # The next load writes through the async proxy: all reads must be done before it.
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.sync_warp()
                x_stage.release()
    elif warp_idx < 12:
        # ---- gather ------------------------------------------------------------------------------
        w_producer = w_ring.make_producer()
        thread = thread_idx - 256
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                w_stage = w_producer.acquire_and_advance()
                copy_global(
                    w_gmem,
                    part_of(w_smem[None, None, w_stage.index], GATHER_WARPS, thread),
                    panel * GATHER_WARPS + thread // 32,
                    tile * 32 + thread % 32,
                )
                w_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        w_producer.tail()
    elif warp_idx < 14:
        # ---- eyes --------------------------------------------------------------------------------
        seen_producer = seen_ring.make_producer()
        thread = thread_idx - 384
        z_part = make_part((EYES_ROWS, VECTOR), Z_DTYPE)
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                seen_stage = seen_producer.acquire_and_advance()
                load_global(
                    z_gmem, z_part, panel * EYES_WARPS + thread // 32, tile * 32 + thread % 32
                )
                eyes(
                    z_part, seen_smem[None, None, seen_stage.index], columns - tile * TILE_N, thread
                )
                seen_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        seen_producer.tail()
    elif warp_idx == 14:
        # ---- load --------------------------------------------------------------------------------
        x_producer = x_ring.make_producer()
        x_to, x_from = partition_tma(tma_x, x_smem, (TILE_M, TILE_N))
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                x_stage = x_producer.acquire_and_advance()
                x_tile = x_from[None, panel, tile]
                cute.copy(
                    tma_x.atom, x_tile, x_to[None, x_stage.index], tma_bar_ptr=x_stage.barrier
                )
                x_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        x_producer.tail()
    elif warp_idx == 15:
        # ---- load_v ------------------------------------------------------------------------------
        v_producer = v_ring.make_producer()
        v_to, v_from = partition_tma(tma_v, v_smem, (TILE_M, 1))
        for panel in cutlass.range(first, panels, step, unroll=1):
            v_stage = v_producer.acquire_and_advance()
            v_tile = v_from[None, panel, 0]
            cute.copy(tma_v.atom, v_tile, v_to[None, v_stage.index], tma_bar_ptr=v_stage.barrier)
            v_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        v_producer.tail()
    elif warp_idx == 16:
        # ---- load_b ------------------------------------------------------------------------------
        b_producer = b_ring.make_producer()
        b_to, b_from = partition_tma(tma_b, b_smem, (1, TILE_N))
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                b_stage = b_producer.acquire_and_advance()
                b_tile = b_from[None, 0, tile]
                cute.copy(
                    tma_b.atom, b_tile, b_to[None, b_stage.index], tma_bar_ptr=b_stage.barrier
                )
                b_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        b_producer.tail()
    else:
        # ---- save --------------------------------------------------------------------------------
        done_consumer = done_ring.make_consumer()
        out_from, out_to = partition_tma(tma_out, done_smem, (TILE_M, TILE_N))
        # One group of stores at a time: the next begins when this one has read its stage.
        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)
        stores = pipeline.PipelineTmaStore.create(num_stages=1, producer_group=group)
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                done_stage = done_consumer.wait_and_advance()
                cute.copy(tma_out.atom, out_from[None, done_stage.index], out_to[None, panel, tile])
                stores.producer_commit()
                stores.producer_acquire()
                cute.arch.sync_warp()
                with cute.arch.elect_one():
                    done_stage.release()
        stores.producer_tail()


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `custom` packs."""
    # One argument instead of 19: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(19))
    rows, columns, max_blocks = [cutlass.Int32(numbers[i]) for i in range(3)]
    gmem = cute.AddressSpace.gmem
    x_row = cute.assume(numbers[11], X_ALIGN)
    x_ptr = cute.make_ptr(X_DTYPE, numbers[3], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((rows, columns), stride=(x_row, 1)))
    v_ptr = cute.make_ptr(V_DTYPE, numbers[4], gmem, assumed_align=16)
    v = cute.make_tensor(v_ptr, cute.make_layout((rows, 1), stride=(1, 4)))
    b_ptr = cute.make_ptr(B_DTYPE, numbers[5], gmem, assumed_align=16)
    b = cute.make_tensor(b_ptr, cute.make_layout((1, columns), stride=(8, 1)))
    w_row = cute.assume(numbers[14], W_ALIGN)
    w_ptr = cute.make_ptr(W_DTYPE, numbers[6], gmem, assumed_align=16)
    w = cute.make_tensor(w_ptr, cute.make_layout((rows, columns), stride=(w_row, 1)))
    z_row = cute.assume(numbers[15], Z_ALIGN)
    z_ptr = cute.make_ptr(Z_DTYPE, numbers[7], gmem, assumed_align=16)
    z = cute.make_tensor(z_ptr, cute.make_layout((rows, columns), stride=(z_row, 1)))
    out_row = cute.assume(numbers[16], OUT_ALIGN)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[8], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((rows, columns), stride=(out_row, 1)))
    total_ptr = cute.make_ptr(TOTAL_DTYPE, numbers[9], gmem, assumed_align=16)
    total = cute.make_tensor(total_ptr, cute.make_layout((rows, 1), stride=(1, 4)))
    again_row = cute.assume(numbers[18], AGAIN_ALIGN)
    again_ptr = cute.make_ptr(AGAIN_DTYPE, numbers[10], gmem, assumed_align=16)
    again = cute.make_tensor(again_ptr, cute.make_layout((rows, columns), stride=(again_row, 1)))

    load = cpasync.CopyBulkTensorTileG2SOp()
    x_smem = cute.make_ordered_layout((TILE_M, TILE_N), order=(1, 0))
    tma_x = cpasync.make_tiled_tma_atom(load, x, x_smem, (TILE_M, TILE_N))
    v_smem = cute.make_ordered_layout((TILE_M, 1), order=(1, 0))
    tma_v = cpasync.make_tiled_tma_atom(load, v, v_smem, (TILE_M, 1))
    b_smem = cute.make_ordered_layout((1, TILE_N), order=(1, 0))
    tma_b = cpasync.make_tiled_tma_atom(load, b, b_smem, (1, TILE_N))

    store = cpasync.CopyBulkTensorTileS2GOp()
    out_smem = cute.make_ordered_layout((TILE_M, TILE_N), order=(1, 0))
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, (TILE_M, TILE_N))

    panels, tiles = cute.ceil_div(rows, TILE_M), cute.ceil_div(columns, TILE_N)
    custom_kernel(tma_x, tma_v, tma_b, w, z, tma_out, total, again, columns, panels, tiles).launch(
        grid=(cutlass.min(panels, max_blocks), 1, 1),
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


def custom(x, v, b, w, z, out, total, again, stream=None):
    """Writes out, total, again from x, v, b, w, z, on the current device.

    Tensors of torch, or of others through DLPack (jax, cupy). `stream`: a CUstream, an int or a
    torch stream; None is torch's current stream if torch is in use, else the default stream.
    """
    operands = {
        "x": operand("x", x, "bfloat16", 2, X_ALIGN),
        "v": operand("v", v, "float32", 1, V_ALIGN),
        "b": operand("b", b, "bfloat16", 1, B_ALIGN),
        "w": operand("w", w, "float32", 2, W_ALIGN),
        "z": operand("z", z, "bfloat16", 2, Z_ALIGN),
        "out": operand("out", out, "bfloat16", 2, OUT_ALIGN),
        "total": operand("total", total, "float32", 1, TOTAL_ALIGN),
        "again": operand("again", again, "float32", 2, AGAIN_ALIGN),
    }
    addresses, devices, shapes, row_strides = zip(*operands.values())
    m, n = shapes[0]
    wanted = ((m, n), (m,), (n,), (m, n), (m, n), (m, n), (m,), (m, n))
    if shapes != wanted:
        raise ValueError(f"shapes={shapes}: must be {wanted}, for M={m} and N={n}")
    if n % 8:
        raise ValueError(f"N={n}: must be a multiple of 8, TMA stores 16 bytes at a time")
    if min(devices) < 0 or len(set(devices)) > 1:
        raise ValueError(f"{devices=}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if devices[0] != current:
        raise ValueError(f"{devices=}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    problem = array.array("q", (m, n, max_blocks(current), *addresses, *row_strides))
    compile_custom()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(torch, m: int, n: int, x, v, b, w, z):
    """What `custom` should write, in float64; takes torch's float64 tensors."""
    return {
        "out": (x + v[:, None] + b + w + z),
        "total": (x + b + w + z).sum(1),
        "again": x,
    }


def check(torch, m: int, n: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside the results is written."""
    inputs, outputs, around = {}, {}, {}

    def longer(size, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return (size // align + 1) * align

    values = torch.randint(-4, 5, (m, longer(n, X_ALIGN)), device="cuda")
    inputs["x"] = values.to(torch.bfloat16)[:m, :n]
    values = torch.randint(-4, 5, (m + n,), device="cuda")
    inputs["v"] = values.to(torch.float32)[:m]
    values = torch.randint(-4, 5, (m + n,), device="cuda")
    inputs["b"] = values.to(torch.bfloat16)[:n]
    values = torch.randint(-4, 5, (m, longer(n, W_ALIGN)), device="cuda")
    inputs["w"] = values.to(torch.float32)[:m, :n]
    values = torch.randint(-4, 5, (m, longer(n, Z_ALIGN)), device="cuda")
    inputs["z"] = values.to(torch.bfloat16)[:m, :n]
    around["out"] = torch.full(
        (m + 1, longer(n, OUT_ALIGN)), float("nan"), dtype=torch.bfloat16, device="cuda"
    )
    outputs["out"] = around["out"][:m, :n]
    around["total"] = torch.full((m + n + 1,), float("nan"), dtype=torch.float32, device="cuda")
    outputs["total"] = around["total"][:m]
    around["again"] = torch.full(
        (m + 1, longer(n, AGAIN_ALIGN)), float("nan"), dtype=torch.float32, device="cuda"
    )
    outputs["again"] = around["again"][:m, :n]
    custom(
        inputs["x"],
        inputs["v"],
        inputs["b"],
        inputs["w"],
        inputs["z"],
        outputs["out"],
        outputs["total"],
        outputs["again"],
    )
    expected = reference(torch, m, n, *(each.double() for each in inputs.values()))
    passed = True
    for name, out in outputs.items():
        # Small integers: every sum is exact.
        right = torch.equal(out, expected[name].to(out.dtype))
        verdict = "exact" if right else "not exact"
        out.copy_(around[name].flatten()[-1].expand(out.shape))
        whole = around[name].double()
        intact = bool((whole.isnan() | (whole == 77)).all())
        beside = "" if intact else ", and wrote beside it"
        passed = passed and right and intact
        print(f"{'PASS' if right and intact else 'FAIL'} {m=} {n=} {name}: {verdict}{beside}")
    return passed


def main(argv=None) -> int:
    def size(text):
        m, n = map(int, text.split(","))
        return m, n

    parser = argparse.ArgumentParser(description="Compiles or checks this kernel.")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    parser.add_argument("--size", type=size, metavar="M,N", action="append")
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
    tails = [(TILE_M, TILE_N), (1, 8), (1001, 1008), (333, 4112), (4096, 4096)]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
