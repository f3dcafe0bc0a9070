# SPDX-License-Identifier: Apache-2.0
# pipegen: gemm | cute-ts | sm_100a
# template: cute_ts/gemm_sm100.py.j2 6edf32c177fc
# text: 602bf9192b3b
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "gemm"
#   backend = "cute-ts"
#   arch = "sm_100a"
#   name = "ts_gemm_sm100"
"""GEMM for Blackwell (sm_100a) in CUTLASS' Task Scheduling: bf16 x bf16 -> f32 -> bf16.

Its template was compiled and emulated, and never run: no Blackwell GPU was at hand.

out[l] = A[l] @ B[l].T. Warp-specialized: each CTA computes output tiles of 128 x 256, one after the
other; it loads and multiplies the next while it stores this one.

The kernel is declared: resources own SMEM, TMEM and the pipelines that guard them, schedules say
what is done with them in which order, and tasks give each schedule its warps. Task Scheduling
writes the barriers from that. `pipegen check` lets it try every order in which tasks can run.

Roles of a CTA's 224 threads: its tasks
  epilogue   warps 0 to 3 read the accumulator from TMEM, 32 rows each, and leave it in SMEM,
             rounded; warp 0 also allocates and frees TMEM
  mma        warp 4 issues all tcgen05 MMAs
  load       warp 5 issues all TMA loads
  store      warp 6 issues all TMA stores

Pipelines, each with the resource that it guards
               pipeline       producer -> consumer  stages  full barrier        empty barrier
  mainloop     TmaUmma        load -> mma           4       1 arrive + 49152 B  1 commit
  accumulator  UmmaAsync      mma -> epilogue       2       1 commit            128 arrives
  epilogue     AsyncAsync     epilogue -> store     4       128 arrives         32 arrives
  tiles        a WorkQueue, read by all: the next output tile, a grid's stride away

  mainloop     Filled by an A and a B tile, whose bytes complete the full barrier. Emptied by one
               tcgen05 commit, which arrives when the MMAs before it have read SMEM.
  accumulator  2 buffers of 256 TMEM columns. Filled by the MMAs of all K tiles: one tcgen05 commit.
               Emptied by every epilogue thread, once it has its part in registers.
  epilogue     Filled by all epilogue warps with a piece of 128 x 32, 8192 B, one arrive a
               thread; emptied by the store warp, once the TMA store has read it.

Timeline of a CTA (K tiles k0, k1, ... of output tile t)
  load         load k0, k1, ...: at most 4 stages ahead | load k0, k1, ... of tile t+1
  mma          acquire | wait k0, mma k0, release k0 | ... | commit t | acquire | mma t+1 ...
  epilogue                                                   wait t   | fill t, release t | ...
  store                                                               | store t ...

Constraints
  a is (L, M, K), b is (L, N, K), out is (L, M, N), or all three without L; the last dimension
  contiguous, other strides and the addresses multiples of 16 bytes. Any M, K and L; N a multiple
  of 8, because TMA stores 16 bytes at a time. Where another kernel holds TMEM on the same
  SM, a CTA waits until enough of it is free.

Run
  python ts_gemm_sm100.py
  compares with float64, on a B200 with torch; with --compile-only it needs neither.
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
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")

import cuda.bindings.driver as cuda
import cuda.bindings.runtime as cudart
import cutlass
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import (
    CopyUniversalOp,
    OperandMajorMode,
    cpasync,
    make_tiled_tma_atom_A,
    make_tiled_tma_atom_B,
    tcgen05,
)
from cutlass.cute.nvgpu.tcgen05 import SmemLayoutAtomKind
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
    TmemAllocation,
    TmemAllocator,
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

A_DTYPE, B_DTYPE = cutlass.BFloat16, cutlass.BFloat16
ACC_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N, TILE_K = 128, 256, 64  # CTA tile, elements
CLUSTER_M, CLUSTER_N = 1, 1  # CTAs
CTAS = (1, CLUSTER_M, CLUSTER_N, 1)  # (V, M, N, K): V is the place in a pair
RASTER_GROUP = 8  # cluster rows walked together, for L2
MMA_K = 16  # elements; 32 B of K an instruction
MMAS_PER_STAGE = 4  # 64 / 16

MMA_WARP, LOAD_WARP, STORE_WARP = 4, 5, 6  # warps 0 to 3 are the epilogue's
TMEM_WARP = 0  # allocates and frees TMEM
THREADS = 224  # 32 * (4 + 1 + 1 + 1)

# 232448 B of SMEM a block: 227 KiB
# SMEM in use: 229544 B = 65536 + 131072 + 32768 + 4 + 4 + 160
MAINLOOP_STAGES = 4  # (232448 - 1024 - 2 * 8192) // 49152
STAGE_BYTES = 49152  # B: 16384 + 32768, the A and the B tile
FULL_ARRIVES = 1  # the load warp, when it arms STAGE_BYTES
EMPTY_ARRIVES = 1  # 1 commit of the MMA warp

ACC_STAGES = 2  # accumulators in TMEM
ACC_FULL_ARRIVES = 1  # the MMA warp's commit
ACC_EMPTY_ARRIVES = 128  # 32 * 4
TMEM_COLUMNS = 512  # 2 * 256

EPI_TILE_M, EPI_TILE_N = 128, 32  # elements of one store, 8192 B
EPI_SUBTILES = 8  # of a CTA tile, along N
EPI_STAGES = 4  # min(4, 8, (232448 - 1024 - 4 * 49152) // 8192)
EPI_FULL_ARRIVES = 128  # 32 * 4
EPI_EMPTY_ARRIVES = 32  # threads of the store warp

A_SWIZZLE, B_SWIZZLE = SmemLayoutAtomKind.K_SW128, SmemLayoutAtomKind.K_SW128
OUT_SWIZZLE = SmemLayoutAtomKind.K_SW64
A_ALIGN, B_ALIGN, OUT_ALIGN = 8, 8, 8  # elements of 16 B, the unit of TMA strides


# ==== Yours: what happens to the accumulator before it is rounded and stored ====================
@cute.jit
def epilogue_op(acc: cute.Tensor, coord: cute.Tensor):
    """Changes a thread's f32 accumulators in place. As written it does, and costs, nothing.

    Called for each piece of EPI_TILE_M x EPI_TILE_N, of which a thread holds one row.
    acc[i] belongs to out[batch, m, n] with (m, n) = coord[i], which may lie outside an edge tile.
    A ReLU: `acc.store(cute.where(acc.load() > 0.0, acc.load(), 0.0))`.
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
    return group * RASTER_GROUP + index % rows, index // rows, batch


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, gmem: cute.Tensor):
    """What TMA copies at a time: SMEM (copy, STAGE), GMEM (copy, tiles, tiles, L)."""
    smem = cute.group_modes(smem, 0, cute.rank(smem) - 1)
    gmem = cute.group_modes(gmem, 0, cute.rank(gmem) - 3)
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
    clusters_m: cutlass.Int32
    clusters_n: cutlass.Int32
    m: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009
    n: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009
    batch: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __init__(self, tiles, clusters_m, clusters_n):
        # No scheduler of the library: the next index is a sum, below.
        scheduler = TileSchedulerConfig(TileSchedulerType.StaticPersistent, None)
        super().__init__(scheduler, name="tiles")
        self.tiles = tiles
        self.clusters_m = clusters_m
        self.clusters_n = clusters_n
        self.m = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="row of tiles")
        self.n = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="column of tiles")
        self.batch = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="matrix of the batch")

    def create_tile_scheduler(self):
        return None

    @cute.jit
    def initial_work_tile_info(self) -> WorkTileInfo:
        _, _, index = cute.arch.block_idx()
        return WorkTileInfo((index, 0, 0), index < self.tiles)

    @consumer_work(returns=("work_tile",))
    @cute.jit
    def get_and_advance_work_tile(self, stage_info: StageInfo) -> WorkTileInfo:
        _, _, step = cute.arch.grid_dim()
        index = stage_info.work_tile.tile_idx[0] + step
        return WorkTileInfo((index, 0, 0), index < self.tiles)

    @consumer_work(work_attrs=WorkAttr.AUXILIARY, returns=(m, n, batch))
    @cute.jit
    def coord(self, stage_info: StageInfo) -> tuple[cutlass.Int32, cutlass.Int32, cutlass.Int32]:
        return tile_coord(stage_info.work_tile.tile_idx[0], self.clusters_m, self.clusters_n)


@dataclass(kw_only=True)
class Mainloop(MemoryResource):
    """A ring of A and B tiles in SMEM."""

    allocations: cutlass.Constexpr
    tma_a: Any
    tma_b: Any
    tAsA: Any = None  # these four once SMEM is laid out
    tAgA: Any = None
    tBsB: Any = None
    tBgB: Any = None
    stage: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __post_init__(self):
        self.stage = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="the stage to read")

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

    @consumer_work(returns=stage)
    @cute.jit
    def full_stage(self, stage_info: StageInfo) -> cutlass.Int32:
        return stage_info.stage_idx


@dataclass(kw_only=True)
class Accumulator(MemoryResource):
    """Accumulators in TMEM: the MMA warp fills one, the epilogue warps read it."""

    allocation: cutlass.Constexpr
    tiled_mma: Any
    tCrA: Any = None  # these two once SMEM is laid out
    tCrB: Any = None
    tCtAcc: Any = None  # these three once TMEM is allocated
    load_copy: Any = None
    tTtAcc: Any = None
    fragment: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __post_init__(self):
        nothing = cutlass.full([EPI_TILE_N], 0.0, OUT_DTYPE)
        self.fragment = TaskLocalVariable(OUT_DTYPE, nothing, docs="a thread's row of a subtile")

    def get_tmem_requirements(self):
        return [self.allocation]

    @producer_work
    @cute.jit
    def multiply(self, stage_info: StageInfo, *, stage: cutlass.Int32):
        issue_mmas(self, stage_info, stage)

    @consumer_work(returns=fragment)
    @cute.jit
    def read(
        self,
        stage_info: StageInfo,
        *,
        m: cutlass.Int32,
        n: cutlass.Int32,
        subtile: cutlass.Constexpr[int],
    ):
        thread, _, _ = cute.arch.thread_idx()
        tile = cute.make_identity_tensor((TILE_M, TILE_N))
        tile = cute.domain_offset((m * TILE_M, n * TILE_N), tile)
        tile = cute.flat_divide(tile, (EPI_TILE_M, EPI_TILE_N))
        coord = self.load_copy.get_slice(thread).partition_D(tile)[None, None, None, 0, subtile]
        acc = cute.make_rmem_tensor(coord.shape, ACC_DTYPE)
        tmem = self.tTtAcc[None, None, None, 0, subtile, stage_info.stage_idx]
        cute.copy(self.load_copy, tmem, acc)
        # The load has come back before its registers are used or TMEM is given away.
        cute.arch.fence_view_async_tmem_load()
        epilogue_op(acc, coord)
        return cutlass.Vector(acc.load().to(OUT_DTYPE))


@cute.jit
def issue_mmas(accumulator: Accumulator, stage_info: StageInfo, stage: cutlass.Int32):
    """The MMAs of one stage, into the accumulator that the MMA warp has acquired."""
    acc = accumulator.tCtAcc[None, None, None, stage_info.stage_idx]
    tiled_mma = accumulator.tiled_mma.with_()
    # The first MMA of a tile overwrites acc.
    tiled_mma.set(tcgen05.Field.ACCUMULATE, stage_info.loop_offset != 0)
    for k in cutlass.range_constexpr(MMAS_PER_STAGE):
        a, b = accumulator.tCrA[None, None, k, stage], accumulator.tCrB[None, None, k, stage]
        cute.gemm(tiled_mma, acc, a, b, acc)
        tiled_mma.set(tcgen05.Field.ACCUMULATE, True)


@dataclass(kw_only=True)
class Epilogue(MemoryResource):
    """A ring of pieces of output tiles in SMEM, on their way to the TMA store."""

    allocation: cutlass.Constexpr
    tma_out: Any
    store_copy: Any = None  # these three once TMEM is allocated
    rOut: Any = None
    tRsOut: Any = None
    tSsOut: Any = None  # these two once SMEM is laid out
    tSgOut: Any = None

    def get_smem_requirements(self):
        return [self.allocation]

    @producer_work
    @cute.jit
    def write(self, stage_info: StageInfo, *, fragment: OUT_DTYPE):
        rOut, stage = self.rOut, self.tRsOut[None, None, None, stage_info.stage_idx]
        rOut.store(cute.TensorSSA(fragment, rOut.shape, OUT_DTYPE))
        cute.copy(self.store_copy, self.store_copy.retile(rOut), stage)
        # TMA reads SMEM through the async proxy: publish to it before `commit`.
        cute.arch.fence_proxy("async.shared", space="cta")

    @consumer_work
    @cute.jit
    def store(
        self, stage_info: StageInfo, *, m: cutlass.Int32, n: cutlass.Int32, batch: cutlass.Int32
    ):
        gmem = self.tSgOut[None, m, n * EPI_SUBTILES + stage_info.loop_offset, batch]
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
def gemm_kernel(tma_a, tma_b, tma_out, tiled_mma, k_tiles, clusters_m, clusters_n, num_tiles):
    thread, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())

    # ---- Resources: what guards them, and where they lie ----------------------------------------
    threads = functools.partial(pipeline.CooperativeGroup, pipeline.Agent.Thread)
    ring = functools.partial(SmemAllocation, alignment=1024)
    a_ring = ring("a", dtype=A_DTYPE, count=TILE_M * TILE_K * MAINLOOP_STAGES)
    b_ring = ring("b", dtype=B_DTYPE, count=TILE_N * TILE_K * MAINLOOP_STAGES)
    out_ring = ring("out", dtype=OUT_DTYPE, count=EPI_TILE_M * EPI_TILE_N * EPI_STAGES)

    tiles = Tiles(num_tiles, clusters_m, clusters_n)
    mainloop = Mainloop(
        name="mainloop",
        pipeline_config=PipelineConfig.create_tma_umma_pipeline_cfg(
            num_stages=MAINLOOP_STAGES,
            num_bytes=STAGE_BYTES,
            producer_group=threads(FULL_ARRIVES),
            consumer_group=threads(EMPTY_ARRIVES),
            cta_layout_vmnk=CTAS,
        ),
        allocations=(a_ring, b_ring),
        tma_a=tma_a,
        tma_b=tma_b,
    )
    accumulator = Accumulator(
        name="accumulator",
        pipeline_config=PipelineConfig.create_umma_async_pipeline_cfg(
            num_stages=ACC_STAGES,
            producer_group=threads(ACC_FULL_ARRIVES),
            consumer_group=threads(ACC_EMPTY_ARRIVES),
            cta_layout_vmnk=CTAS,
        ),
        allocation=TmemAllocation("accumulators", TILE_N * ACC_STAGES),
        tiled_mma=tiled_mma,
    )
    epilogue = Epilogue(
        name="epilogue",
        pipeline_config=PipelineConfig.create_async_async_pipeline_cfg(
            num_stages=EPI_STAGES,
            producer_group=threads(EPI_FULL_ARRIVES),
            consumer_group=threads(EPI_EMPTY_ARRIVES),
            cta_layout_vmnk=CTAS,
        ),
        allocation=out_ring,
        tma_out=tma_out,
    )

    smem, tmem = SmemAllocator(), TmemAllocator()
    for resource in (tiles, mainloop, accumulator, epilogue):
        smem.add_resource(resource)
    tmem_place = smem.add_tmem_ptr(SmemAllocation("tmem_address", dtype=cutlass.Int32, alignment=4))
    smem.compute_layout()
    tmem.add_resource(accumulator)
    tmem.compute_layout()
    block = smem.allocate()
    sA = smem_tensor(block, a_ring, tma_a.smem_layout)  # (MMA, M, K, STAGE)
    sB = smem_tensor(block, b_ring, tma_b.smem_layout)  # (MMA, N, K, STAGE)
    sOut = smem_tensor(block, out_ring, tma_out.smem_layout)  # (EPI_M, EPI_N, STAGE)
    thr_mma = tiled_mma.get_slice(0)
    # (MMA, M or N, K, tiles, K tiles, L)
    a_tiles = cute.local_tile(tma_a.tma_tensor, (TILE_M, TILE_K), (None, None, None))
    b_tiles = cute.local_tile(tma_b.tma_tensor, (TILE_N, TILE_K), (None, None, None))
    mainloop.tAsA, mainloop.tAgA = partition_tma(tma_a, sA, thr_mma.partition_A(a_tiles))
    mainloop.tBsB, mainloop.tBgB = partition_tma(tma_b, sB, thr_mma.partition_B(b_tiles))
    accumulator.tCrA = tiled_mma.make_fragment_A(sA)  # (MMA, M, K, STAGE): SMEM descriptors
    accumulator.tCrB = tiled_mma.make_fragment_B(sB)  # (MMA, N, K, STAGE)
    epi_tile = (EPI_TILE_M, EPI_TILE_N)
    out_tiles = cute.local_tile(tma_out.tma_tensor, epi_tile, (None, None, None))
    epilogue.tSsOut, epilogue.tSgOut = partition_tma(tma_out, sOut, out_tiles)

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
    def mma(tiles, mainloop, accumulator):
        with work_tile_loop(tiles):
            accumulator.acquire()
            with domain_loop(0, k_tiles, 1):
                mainloop.wait()
                stage = mainloop.full_stage()
                accumulator.multiply(stage=stage)
                mainloop.release()
            accumulator.commit()
            next_tile(tiles)

    @schedule
    def drain(tiles, accumulator, epilogue):
        with work_tile_loop(tiles):
            m, n, _ = tiles.coord()
            with domain_loop(0, 0, 1):
                pass
            accumulator.wait()
            for subtile in cutlass.range_constexpr(EPI_SUBTILES):
                fragment = accumulator.read(m=m, n=n, subtile=subtile)
                if cutlass.const_expr(subtile + 1 == EPI_SUBTILES):
                    accumulator.release()
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

    # ---- Tasks: what each reads and writes, its warps, and its schedule -------------------------
    drain_schedule, mma_schedule = drain(tiles, accumulator, epilogue), mma(
        tiles, mainloop, accumulator
    )
    load_schedule, store_schedule = load(tiles, mainloop), store(tiles, epilogue)
    tasks = [
        Task([tiles, accumulator], [epilogue], 0, 4, schedule=drain_schedule, name="epilogue"),
        Task([tiles, mainloop], [accumulator], MMA_WARP, 1, schedule=mma_schedule, name="mma"),
        Task([tiles], [mainloop], LOAD_WARP, 1, schedule=load_schedule, name="load"),
        Task([tiles, epilogue], [], STORE_WARP, 1, schedule=store_schedule, name="store"),
    ]
    manager = TaskManager(
        tasks,
        {
            mainloop: [tiles],
            accumulator: [mainloop, tiles],
            epilogue: [accumulator, tiles],
        },  # what each is made from
        smem_allocator=smem,
        tmem_allocator=tmem,
        verbose=False,
        exhaustive_deadlock_race_check=False,  # `pipegen check` does it: it takes seconds
    )
    manager.setup_resources_and_tasks()

    # ---- TMEM: allocated before all meet, whose barriers are set up then ------------------------
    tmem_address = cute.make_ptr(
        cutlass.Int32, block.data_ptr() + tmem_place.offset, cute.AddressSpace.smem
    )
    if warp_idx == TMEM_WARP:
        cute.arch.alloc_tmem(TMEM_COLUMNS, tmem_address, is_two_cta=False)
        # The CTA allocates once; as long as it holds the permit, no other one on this SM can.
        cute.arch.relinquish_tmem_alloc_permit(is_two_cta=False)
    pipeline.pipeline_init_arrive(cluster_shape_mn=(CLUSTER_M, CLUSTER_N))
    pipeline.pipeline_init_wait(cluster_shape_mn=(CLUSTER_M, CLUSTER_N))
    tmem_ptr = cute.arch.retrieve_tmem_ptr(
        ACC_DTYPE, alignment=16, ptr_to_buffer_holding_addr=tmem_address
    )
    # (MMA, M, N, STAGE): TILE_M lanes, TILE_N columns a stage
    acc_shape = cute.append(tiled_mma.partition_shape_C((TILE_M, TILE_N)), ACC_STAGES)
    tCtAcc = cute.make_tensor(tmem_ptr, tiled_mma.make_fragment_C(acc_shape).layout)
    # (EPI_M, EPI_N, 1, subtiles, STAGE)
    acc_tiles = cute.flat_divide(tCtAcc[(None, None), 0, 0, None], epi_tile)
    load_op = tcgen05.Ld32x32bOp(tcgen05.Repetition(EPI_TILE_N))
    load_atom = cute.make_copy_atom(load_op, ACC_DTYPE)
    load_copy = tcgen05.make_tmem_copy(load_atom, acc_tiles[None, None, 0, 0, 0])
    store_atom = cute.make_copy_atom(CopyUniversalOp(), OUT_DTYPE, num_bits_per_copy=128)
    store_copy = cute.make_tiled_copy_D(store_atom, load_copy)
    row = load_copy.get_slice(thread).partition_D(cute.make_identity_tensor(epi_tile))
    accumulator.tCtAcc, accumulator.load_copy = tCtAcc, load_copy
    # (load, M, N, 1, subtiles, STAGE)
    accumulator.tTtAcc = load_copy.get_slice(thread).partition_S(acc_tiles)
    epilogue.store_copy = store_copy
    epilogue.rOut = cute.make_rmem_tensor(row.shape, OUT_DTYPE)
    epilogue.tRsOut = store_copy.get_slice(thread).partition_D(sOut)  # (copy, M, N, STAGE)

    manager.run()

    # TMEM outlives a CTA that does not free it, and the next one on this SM would wait for ever.
    cute.arch.sync_threads()
    if warp_idx == TMEM_WARP:
        cute.arch.dealloc_tmem(tmem_ptr, TMEM_COLUMNS, is_two_cta=False)


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
    load = cpasync.CopyBulkTensorTileG2SOp(one)
    tma_a = make_tiled_tma_atom_A(load, a, a_smem, tile, tiled_mma, ctas)
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
