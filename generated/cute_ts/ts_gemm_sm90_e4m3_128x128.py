# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | cute-ts | sm_90a
# template: cute_ts/gemm_sm90.py.j2 10c22a6be1c4
# text: a3cb6b3818a3
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "cute-ts"
#   arch = "sm_90a"
#   name = "ts_gemm_sm90_e4m3_128x128"
#
#   [dtype]
#   a = "e4m3"
#
#   [tile]
#   n = 128
"""GEMM for Hopper (sm_90a) in CUTLASS' Task Scheduling: e4m3 x e4m3 -> f32 -> bf16.

out[l] = A[l] @ B[l].T. Persistent and warp-specialized: each CTA computes output tiles of
128 x 128, one after the other, and loads the next tile while it stores this one.

The kernel is declared: resources own SMEM and the pipelines that guard it, schedules say what is
done with them in which order, and tasks give each schedule its warps. Task Scheduling writes the
barriers from that. `pipegen check` lets it try every order in which the tasks can run.

Roles of a CTA's 384 threads: its tasks
  load       warp 0 issues all TMA loads
  store      warp 1 issues all TMA stores
  idle       warps 2 and 3 only give their registers away
  compute    warps 4 to 11: wgmma, each warpgroup on its 64 rows, then the rounded pieces to SMEM

Pipelines, each with the resource that it guards
             pipeline    producer -> consumer  stages  full barrier        empty barrier
  mainloop   TmaAsync    load -> compute       6       1 arrive + 32768 B  8 arrives
  epilogue   AsyncAsync  compute -> store      4       256 arrives         32 arrives
  tiles      a WorkQueue, read by all: the CTA's next output tile, a grid's stride away

  mainloop   Filled by an A and a B tile: `acquire` waits until the stage is empty and arms its full
             barrier with num_bytes, which the copies complete as bytes land. Emptied by one arrive
             of each compute warp.
  epilogue   Filled by all compute warps with a piece of 128 x 32, 8192 B, one arrive a
             thread; emptied by the store warp, once the TMA store has read it.
  advance_on_wait gives the mainloop's consumer two cursors: it waits for the next stage and feeds
             it to wgmma before it releases the one before, which wgmma has then read.

Timeline of a CTA (K tiles k0, k1, ... of output tile t)
  load       load k0, k1, ...: at most 6 stages ahead | load k0, k1, ... of tile t+1
  compute    wait k0, mma k0 | wait k1, mma k1, release k0 | ... | release the last | fill t | ...
  store                                                                             | store t ...

Constraints
  a is (L, M, K), b is (L, N, K), out is (L, M, N), or all three without L; the last dimension
  contiguous, other strides and the addresses multiples of 16 bytes. Any M, K and L; N a multiple
  of 8, because TMA stores 16 bytes at a time.

Run
  python ts_gemm_sm90_e4m3_128x128.py
  compares with float64, on an H100 or H200 with torch; with --compile-only it needs neither.
"""

import argparse
import array
import functools
import os
import sys
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":
    # Without a GPU, the compiler takes its target from here, and reads it when imported.
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.cute.nvgpu.warpgroup import SmemLayoutAtomKind
from cutlass.experimental.task_scheduling import (
    WorkAttr,
    consumer_work,
    domain_loop,
    producer_work,
    schedule,
    work_tile_loop,
)
from cutlass.experimental.task_scheduling.enums import (
    TileSchedulerType,
)
from cutlass.experimental.task_scheduling.memory import (
    SmemAllocation,
    SmemAllocator,
)
from cutlass.experimental.task_scheduling.resources import (
    MemoryResource,
    PipelineConfig,
    StageInfo,
    TaskLocalVariable,
    TileSchedulerConfig,
    WorkQueue,
    WorkTileInfo,
)
from cutlass.experimental.task_scheduling.task import Task
from cutlass.experimental.task_scheduling.task_manager import TaskManager
from cutlass.utils import HardwareInfo

A_DTYPE, B_DTYPE = cutlass.Float8E4M3FN, cutlass.Float8E4M3FN
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N, TILE_K = 128, 128, 128  # CTA tile, elements
CLUSTER_M, CLUSTER_N = 1, 1  # no cluster: `max_clusters` counts CTAs
RASTER_GROUP = 8  # rows of tiles walked together, for L2
MMA_K = 32  # elements; 32 B of K an instruction
MMAS_PER_STAGE = 4  # 128 / 32

COMPUTE_WARPGROUPS, COMPUTE_THREADS = 2, 256  # 128 * 2
THREADS = 384  # 128 * (1 + 2)
LOAD_REGISTERS = 40  # a thread of the first four warps, after setmaxnreg
COMPUTE_REGISTERS = 232  # min(240, (3 * 168 - 40) // 2 // 8 * 8)

# 232448 B of SMEM a block: 227 KiB
# SMEM in use: 229536 B = 98304 + 98304 + 32768 + 160
MAINLOOP_STAGES = 6  # (232448 - 1024 - 2 * 8192) // 32768
STAGE_BYTES = 32768  # B: 16384 + 16384, the A and the B tile
FULL_ARRIVES = 1  # the load warp, when it arms STAGE_BYTES
EMPTY_ARRIVES = 8  # 8 consumer warps

EPI_TILE_M, EPI_TILE_N = 128, 32  # elements of one store, 8192 B
EPI_SUBTILES, EPI_SUBTILES_N = 4, 4  # of a CTA tile, and along N
FRAGMENT = 16  # elements of a subtile that a compute thread has
EPI_STAGES = 4  # min(4, 4, (232448 - 1024 - 6 * 32768) // 8192)
EPI_FULL_ARRIVES = 256  # 32 * 8
EPI_EMPTY_ARRIVES = 32  # threads of the store warp

A_SWIZZLE, B_SWIZZLE = SmemLayoutAtomKind.K_SW128, SmemLayoutAtomKind.K_SW128
OUT_SWIZZLE = SmemLayoutAtomKind.K_SW64
A_ALIGN, B_ALIGN, OUT_ALIGN = 16, 16, 8  # elements of 16 B, the unit of TMA strides


# ==== Yours: what happens to the accumulator before it is rounded and stored ====================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 accumulators in place. As written it does, and costs, nothing.

    acc[i] belongs to out[batch, m, n] with (m, n) = coord[i], which may lie outside an edge tile.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`.
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


def smem_tensor(block, allocation: SmemAllocation, layout) -> cute.Tensor:
    """The allocation, in the block of SMEM that holds them all, as a tensor."""
    address = block.data_ptr() + allocation.offset
    pointer = cute.make_ptr(allocation.dtype, address, cute.AddressSpace.smem, assumed_align=1024)
    return cute.make_tensor(cute.recast_ptr(pointer, layout.inner), layout.outer)


def barrier_of(stage_info: StageInfo) -> cute.Pointer:
    """The full barrier of the stage that a producer has acquired."""
    address = stage_info.barrier.data_ptr().toint()
    return cute.make_ptr(cutlass.Int64, address, cute.AddressSpace.smem)


# ==== Resources: who writes (producer_work) and who reads (consumer_work) each of them ==========
@dataclass(kw_only=True)
class Tiles(WorkQueue):
    """Which output tile a CTA computes next: the CTAs of the grid take them in turn."""

    tiles: cutlass.Int32
    tiles_m: cutlass.Int32
    tiles_n: cutlass.Int32
    m: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009
    n: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009
    batch: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __init__(self, tiles, tiles_m, tiles_n):
        # No scheduler of the library: the next index is a sum, below.
        scheduler = TileSchedulerConfig(TileSchedulerType.StaticPersistent, None)
        super().__init__(scheduler, name="tiles")
        self.tiles = tiles
        self.tiles_m = tiles_m
        self.tiles_n = tiles_n
        self.m = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="row of tiles")
        self.n = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="column of tiles")
        self.batch = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="matrix of the batch")

    def create_tile_scheduler(self):
        return None

    @cute.jit
    def initial_work_tile_info(self) -> WorkTileInfo:
        index, _, _ = cute.arch.block_idx()
        return WorkTileInfo((index, 0, 0), index < self.tiles)

    @consumer_work(returns=("work_tile",))
    @cute.jit
    def get_and_advance_work_tile(self, stage_info: StageInfo) -> WorkTileInfo:
        step, _, _ = cute.arch.grid_dim()
        index = stage_info.work_tile.tile_idx[0] + step
        return WorkTileInfo((index, 0, 0), index < self.tiles)

    @consumer_work(work_attrs=WorkAttr.AUXILIARY, returns=(m, n, batch))
    @cute.jit
    def coord(self, stage_info: StageInfo) -> tuple[cutlass.Int32, cutlass.Int32, cutlass.Int32]:
        return tile_coord(stage_info.work_tile.tile_idx[0], self.tiles_m, self.tiles_n)


@dataclass(kw_only=True)
class Mainloop(MemoryResource):
    """A ring of A and B tiles in SMEM, and the accumulator that its readers keep in registers."""

    allocations: cutlass.Constexpr
    tma_a: Any
    tma_b: Any
    tiled_mma: Any
    thr_mma: Any
    acc: Any
    fragment_shape: cutlass.Constexpr
    tAsA: Any = None  # these six once SMEM is laid out
    tAgA: Any = None
    tBsB: Any = None
    tBgB: Any = None
    tCrA: Any = None
    tCrB: Any = None
    fragment: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __post_init__(self):
        nothing = cutlass.full([FRAGMENT], 0.0, OUT_DTYPE)
        self.fragment = TaskLocalVariable(OUT_DTYPE, nothing, docs="a thread's part of a subtile")

    def get_smem_requirements(self):
        return list(self.allocations)

    @producer_work
    @cute.jit
    def load(
        self, stage_info: StageInfo, *, m: cutlass.Int32, n: cutlass.Int32, batch: cutlass.Int32
    ):
        k, stage, full = stage_info.loop_offset, stage_info.stage_idx, barrier_of(stage_info)
        gA, gB = self.tAgA[None, m, k, batch], self.tBgB[None, n, k, batch]
        cute.copy(self.tma_a.atom, gA, self.tAsA[None, stage], tma_bar_ptr=full)
        cute.copy(self.tma_b.atom, gB, self.tBsB[None, stage], tma_bar_ptr=full)

    @consumer_work
    @cute.jit
    def multiply(self, stage_info: StageInfo):
        stage, tiled_mma = stage_info.stage_idx, self.tiled_mma.with_()
        # The first wgmma of a tile overwrites acc.
        tiled_mma.set(warpgroup.Field.ACCUMULATE, stage_info.loop_offset != 0)
        warpgroup.fence()
        for k in cutlass.range_constexpr(MMAS_PER_STAGE):
            a, b = self.tCrA[None, None, k, stage], self.tCrB[None, None, k, stage]
            cute.gemm(tiled_mma, self.acc, a, b, self.acc)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()
        # The newest group stays in flight: only the stage before it has been read.
        warpgroup.wait_group(1)

    @consumer_work(work_attrs=WorkAttr.AUXILIARY)
    @cute.jit
    def finish(self, stage_info: StageInfo):
        warpgroup.wait_group(0)

    @consumer_work(work_attrs=WorkAttr.AUXILIARY)
    @cute.jit
    def apply(self, stage_info: StageInfo, *, m: cutlass.Int32, n: cutlass.Int32):
        tile = cute.make_identity_tensor((TILE_M, TILE_N))
        tile = cute.domain_offset((m * TILE_M, n * TILE_N), tile)
        epilogue_op(self.acc, self.thr_mma.partition_C(tile))

    @consumer_work(work_attrs=WorkAttr.AUXILIARY, returns=fragment)
    @cute.jit
    def rounded(self, stage_info: StageInfo, *, subtile: cutlass.Constexpr[int]):
        sub_m, sub_n = divmod(subtile, EPI_SUBTILES_N)
        acc_rows = self.acc[(None, None, None), sub_m, 0]
        acc_sub = cute.local_tile(acc_rows, (2, 2, EPI_TILE_N // 8), (0, 0, sub_n))
        return cutlass.Vector(acc_sub.load().to(OUT_DTYPE).reshape(self.fragment_shape))


@dataclass(kw_only=True)
class Epilogue(MemoryResource):
    """A ring of pieces of output tiles in SMEM, on their way to the TMA store."""

    allocations: cutlass.Constexpr
    tma_out: Any
    store_copy: Any
    rOut: Any
    tRsOut: Any = None  # these three once SMEM is laid out
    tSsOut: Any = None
    tSgOut: Any = None

    def get_smem_requirements(self):
        return list(self.allocations)

    @producer_work
    @cute.jit
    def write(self, stage_info: StageInfo, *, fragment: OUT_DTYPE):
        rOut = self.rOut
        rOut.store(cute.TensorSSA(fragment, rOut.shape, OUT_DTYPE))
        cute.copy(self.store_copy, rOut, self.tRsOut[None, None, None, stage_info.stage_idx])
        # TMA reads SMEM through the async proxy: publish to it before `commit`.
        cute.arch.fence_proxy("async.shared", space="cta")

    @consumer_work
    @cute.jit
    def store(
        self, stage_info: StageInfo, *, m: cutlass.Int32, n: cutlass.Int32, batch: cutlass.Int32
    ):
        subtile = stage_info.loop_offset
        out_m = m * (EPI_SUBTILES // EPI_SUBTILES_N) + subtile // EPI_SUBTILES_N
        gmem = self.tSgOut[None, out_m, n * EPI_SUBTILES_N + subtile % EPI_SUBTILES_N, batch]
        cute.copy(self.tma_out.atom, self.tSsOut[None, stage_info.stage_idx], gmem)
        # The stage is released below: the store must have read it.
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


def next_tile(tiles):
    """What every schedule ends a tile with; it becomes part of the schedule that calls it."""
    tiles.wait()
    tiles.get_and_advance_work_tile()
    tiles.release()


@cute.kernel
def gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, tiles_m, tiles_n, num_tiles):
    thread, _, _ = cute.arch.thread_idx()
    consumer = thread - (THREADS - COMPUTE_THREADS)
    thr_mma = tiled_mma.get_slice(consumer)
    # A warpgroup's threads hold one and the same SMEM descriptor.
    wg_mma = tiled_mma.get_slice(cute.arch.make_warp_uniform(consumer // 128) * 128)

    # ---- Resources: what guards them, and where they lie ----------------------------------------
    threads = functools.partial(pipeline.CooperativeGroup, pipeline.Agent.Thread)
    ring = functools.partial(SmemAllocation, alignment=1024)
    a_ring = ring("a", dtype=A_DTYPE, count=TILE_M * TILE_K * MAINLOOP_STAGES)
    b_ring = ring("b", dtype=B_DTYPE, count=TILE_N * TILE_K * MAINLOOP_STAGES)
    out_ring = ring("out", dtype=OUT_DTYPE, count=EPI_TILE_M * EPI_TILE_N * EPI_STAGES)
    store_atom = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4), OUT_DTYPE)
    store_copy = cute.make_tiled_copy_C_atom(store_atom, tiled_mma)
    store_tile = cute.make_identity_tensor((EPI_TILE_M, EPI_TILE_N))
    part = store_copy.get_slice(consumer).partition_D(store_tile)  # (copy, M, N)

    tiles = Tiles(num_tiles, tiles_m, tiles_n)
    mainloop = Mainloop(
        name="mainloop",
        pipeline_config=PipelineConfig.create_tma_async_pipeline_cfg(
            num_stages=MAINLOOP_STAGES,
            num_bytes=STAGE_BYTES,
            producer_group=threads(FULL_ARRIVES),
            consumer_group=threads(EMPTY_ARRIVES),
            cta_layout_vmnk=(1, 1, 1, 1),
            advance_on_wait=True,
        ),
        allocations=(a_ring, b_ring),
        tma_a=tma_a,
        tma_b=tma_b,
        tiled_mma=tiled_mma,
        thr_mma=thr_mma,
        # ((2 columns, 2 rows 8 apart, TILE_N / 8), M, 1)
        acc=cute.make_rmem_tensor(thr_mma.partition_shape_C((TILE_M, TILE_N)), ACC_DTYPE),
        fragment_shape=part.shape,
    )
    epilogue = Epilogue(
        name="epilogue",
        pipeline_config=PipelineConfig.create_async_async_pipeline_cfg(
            num_stages=EPI_STAGES,
            producer_group=threads(EPI_FULL_ARRIVES),
            consumer_group=threads(EPI_EMPTY_ARRIVES),
            cta_layout_vmnk=(1, 1, 1, 1),
        ),
        allocations=(out_ring,),
        tma_out=tma_out,
        store_copy=store_copy,
        rOut=cute.make_rmem_tensor(part.shape, OUT_DTYPE),
    )

    smem = SmemAllocator()
    smem.add_resource(mainloop)
    smem.add_resource(epilogue)
    smem.compute_layout()
    block = smem.allocate()
    sA = smem_tensor(block, a_ring, tma_a.smem_layout)  # (TILE_M, TILE_K, STAGE)
    sB = smem_tensor(block, b_ring, tma_b.smem_layout)  # (TILE_N, TILE_K, STAGE)
    sOut = smem_tensor(block, out_ring, tma_out.smem_layout)  # (EPI_M, EPI_N, STAGE)
    mainloop.tAsA, mainloop.tAgA = partition_tma(tma_a, sA, (TILE_M, TILE_K))
    mainloop.tBsB, mainloop.tBgB = partition_tma(tma_b, sB, (TILE_N, TILE_K))
    mainloop.tCrA = tiled_mma.make_fragment_A(wg_mma.partition_A(sA))  # (MMA, M, K, STAGE)
    mainloop.tCrB = tiled_mma.make_fragment_B(wg_mma.partition_B(sB))  # (MMA, N, K, STAGE)
    epilogue.tRsOut = store_copy.get_slice(consumer).partition_D(sOut)  # (copy, M, N, STAGE)
    epilogue.tSsOut, epilogue.tSgOut = partition_tma(tma_out, sOut, (EPI_TILE_M, EPI_TILE_N))

    # ---- Schedules: the order of things, one for each task --------------------------------------
    @schedule
    def load(tiles, mainloop):
        with work_tile_loop(tiles):
            m, n, batch = tiles.coord()
            with domain_loop(0, k_tiles, 1):
                mainloop.acquire()
                mainloop.load(m=m, n=n, batch=batch)
                mainloop.commit()
            next_tile(tiles)

    @schedule
    def compute(tiles, mainloop, epilogue):
        with work_tile_loop(tiles):
            m, n, _ = tiles.coord()
            with domain_loop(0, k_tiles, 1) as k_loop:
                mainloop.wait()
                mainloop.multiply()
                with k_loop.every(1, start=1):
                    mainloop.release()  # the stage before this one
            mainloop.finish()
            mainloop.release()
            mainloop.apply(m=m, n=n)
            for subtile in cutlass.range_constexpr(EPI_SUBTILES):
                fragment = mainloop.rounded(subtile=subtile)
                epilogue.acquire()
                epilogue.write(fragment=fragment)
                epilogue.commit()
            next_tile(tiles)

    @schedule
    def store(tiles, epilogue):
        with work_tile_loop(tiles):
            m, n, batch = tiles.coord()
            with domain_loop(0, EPI_SUBTILES, 1):
                epilogue.wait()
                epilogue.store(m=m, n=n, batch=batch)
                epilogue.release()
            next_tile(tiles)

    @schedule
    def idle(tiles):
        with work_tile_loop(tiles):
            with domain_loop(0, 0, 1):
                pass
            next_tile(tiles)

    # ---- Tasks: a schedule, what it reads, what it writes, and its warps ------------------------
    few, many = {"num_registers": LOAD_REGISTERS}, {"num_registers": COMPUTE_REGISTERS}
    compute_schedule = compute(tiles, mainloop, epilogue)
    load_reads, load_writes = [tiles], [mainloop]
    load_schedule = load(tiles, mainloop)
    tasks = [
        Task(load_reads, load_writes, 0, 1, schedule=load_schedule, name="load", **few),
        Task([tiles, epilogue], [], 1, 1, schedule=store(tiles, epilogue), name="store", **few),
        Task([tiles], [], 2, 2, schedule=idle(tiles), name="idle", **few),
        Task(
            [tiles, mainloop], [epilogue], 4, 8, schedule=compute_schedule, name="compute", **many
        ),
    ]
    manager = TaskManager(
        tasks,
        {mainloop: [tiles], epilogue: [mainloop, tiles]},  # what each is made from
        smem_allocator=smem,
        verbose=False,
        exhaustive_deadlock_race_check=False,  # `pipegen check` does it: it takes seconds
    )
    manager.setup_resources_and_tasks()
    # Nobody may touch a barrier before it has been set up.
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()
    manager.run()


def smem_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int, order: tuple):
    """(rows, columns, STAGE), swizzled in a way that both TMA and wgmma know."""
    atom = warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=order)


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `gemm` packs."""
    # One argument instead of 14: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(14))
    m, n, k, batches, max_ctas = [cutlass.Int32(numbers[i]) for i in range(3, 8)]
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
    mma_op = warpgroup.MmaF8Op(A_DTYPE, B_DTYPE, ACC_DTYPE, mma_shape, from_smem, a_major, b_major)
    tiled_mma = cute.make_tiled_mma(mma_op, (COMPUTE_WARPGROUPS, 1, 1))

    tiles_m, tiles_n = cute.ceil_div(m, TILE_M), cute.ceil_div(n, TILE_N)
    tiles, k_tiles = tiles_m * tiles_n * batches, cute.ceil_div(k, TILE_K)
    kernel = gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, tiles_m, tiles_n, tiles)
    grid = (cutlass.min(tiles, max_ctas), 1, 1)
    kernel.launch(grid=grid, block=(THREADS, 1, 1), min_blocks_per_mp=1, stream=stream)


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
    a_address, a_device, (a_shape, *a_strides) = operand("a", a, "float8_e4m3fn", A_ALIGN)
    b_address, b_device, (b_shape, *b_strides) = operand("b", b, "float8_e4m3fn", B_ALIGN)
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

    a = buffer(m, k, torch.float8_e4m3fn, A_ALIGN)[..., :k]
    b = buffer(n, k, torch.float8_e4m3fn, B_ALIGN)[..., :k]
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
