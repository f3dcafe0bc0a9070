# SPDX-License-Identifier: Apache-2.0
# pipegen: stream | cute-ts | sm_90a
# template: cute_ts/stream.py.j2 5a4a69ad26d8
# text: 915e21721906
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "stream"
#   backend = "cute-ts"
#   arch = "sm_90a"
#   name = "ts_stream_sm90"
"""Elementwise stream for Hopper (sm_90a) in Task Scheduling: bf16 -> f32 -> bf16.

out = f(x) over an (M, N) matrix; f is `stream_op`. Warp-specialized: each CTA takes tiles of
32 x 256, one after the other, and loads the next ones while it computes this one.

The kernel is declared: resources own SMEM and the pipelines that guard it, schedules say what is
done with them in which order, and tasks give each schedule its warps. Task Scheduling writes the
barriers from that. `pipegen check` lets it try every order in which the tasks can run.

Roles of a CTA's 320 threads: its tasks
  compute    warps 0 to 7: read 4 rows of a tile each, apply f in f32, and leave the
             result in SMEM
  load       warp 8 issues all TMA loads
  store      warp 9 issues all TMA stores

Pipelines, each with the resource that it guards
             pipeline       producer -> consumer  stages  full barrier        empty barrier
  inputs     TmaAsync       load -> compute       11      1 arrive + 16384 B  8 arrives
  outputs    AsyncAsync     compute -> store      3       256 arrives         32 arrives
  tiles      no pipeline: where the tile lies whose number the loop has reached

  inputs     Filled by a tile: `acquire` waits until the stage is empty and arms its full barrier
             with num_bytes, which the copy completes as its bytes land. Emptied by one arrive of
             each warp that reads it, as soon as its part is in registers.
  outputs    Filled by all compute warps with a tile of results, one arrive a thread; emptied by
             the store warp, once the TMA store has read it.

Timeline of a CTA (its tiles t0, t1, ...)
  load       load t0, t1, ...: at most 11 stages ahead of the slowest compute warp
  compute    wait t0, read, release t0, f, fill | wait t1, read, release t1, f, fill | ...
  store                                         | store t0                           | store t1

Constraints
  x and out are (M, N) with N a multiple of 8, because TMA stores 16 bytes at a time; the last
  dimension contiguous, row strides and addresses multiples of 16 bytes.

Run
  python ts_stream_sm90.py
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
from cutlass.cute.nvgpu import cpasync
from cutlass.experimental.task_scheduling import (
    consumer_work,
    domain_loop,
    producer_work,
    schedule,
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
)
from cutlass.experimental.task_scheduling.task import Task
from cutlass.experimental.task_scheduling.task_manager import TaskManager
from cutlass.utils import HardwareInfo

X_DTYPE, COMPUTE_DTYPE, OUT_DTYPE = cutlass.BFloat16, cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N = 32, 256  # elements of a tile
WARP_M = 4  # rows of a tile that a compute warp has: 32 / 8
VECTOR = 8  # elements of a row that a lane has: 256 / 32

COMPUTE_WARPS = 8
LOAD_WARP, STORE_WARP = 8, 9
THREADS = 320  # 32 * (8 + 1 + 1)
BLOCKS_PER_SM = 1

# 232448 B of SMEM a block
# SMEM in use: 229600 B = 180224 + 49152 + 224
INPUT_STAGES = 11  # as many stages of 16384 B as fit beside 3 * 16384 and the barriers
STAGE_BYTES = 16384  # B: 32 * 256 * 2, a tile
FULL_ARRIVES = 1  # the load warp, when it arms STAGE_BYTES
EMPTY_ARRIVES = 8  # 8 compute warps
OUTPUT_STAGES = 3  # 3 * 1
OUT_FULL_ARRIVES = 256  # 32 * 8
OUT_EMPTY_ARRIVES = 32  # threads of the store warp

X_ALIGN, OUT_ALIGN = 8, 8  # elements of 16 B: the unit of row strides


# ==== Yours: the arithmetic ======================================================================
@cute.jit
def stream_op(x: cute.TensorSSA) -> cute.TensorSSA:
    """f of WARP_M x VECTOR elements, f32 in a thread's registers. As written: a copy.

    A scale: `return x * 2.0`. A ReLU: `return cute.where(x > 0.0, x, 0.0)`. Change `reference` too.
    Outside the matrix x is 0.0, and what f makes of it is not stored.
    """
    return x


@cute.jit
def tile_coord(index: cutlass.Int32, tiles_n: cutlass.Int32):
    """(m, n) of the tile that comes index-th: row by row."""
    return index // tiles_n, index % tiles_n


def ring_layout(stages: int) -> cute.Layout:
    """(TILE_M, TILE_N, STAGE), row by row: a warp reads a whole row, so without bank conflicts."""
    return cute.make_ordered_layout((TILE_M, TILE_N, stages), order=(1, 0, 2))


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor):
    """What TMA copies at once: SMEM (copy, STAGE), GMEM (copy, tiles along M, along N)."""
    gmem = cute.local_tile(tma.tma_tensor, (TILE_M, TILE_N), (None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


def smem_tensor(block, allocation: SmemAllocation, layout) -> cute.Tensor:
    """The allocation, in the block of SMEM that holds them all, as a tensor."""
    address = block.data_ptr() + allocation.offset
    pointer = cute.make_ptr(allocation.dtype, address, cute.AddressSpace.smem, assumed_align=128)
    return cute.make_tensor(pointer, layout)


def barrier_of(stage_info: StageInfo) -> cute.Pointer:
    """The full barrier of the stage that a producer has acquired."""
    address = stage_info.barrier.data_ptr().toint()
    return cute.make_ptr(cutlass.Int64, address, cute.AddressSpace.smem)


# ==== Resources: who writes (producer_work) and who reads (consumer_work) each of them ==========
@dataclass(kw_only=True)
class Tiles(MemoryResource):
    """Where the tile lies whose number the loop has reached."""

    tiles_n: cutlass.Int32
    m: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009
    n: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __post_init__(self):
        self.m = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="row of tiles")
        self.n = TaskLocalVariable(cutlass.Int32, cutlass.Int32(0), docs="column of tiles")

    @consumer_work(returns=(m, n))
    @cute.jit
    def coord(self, stage_info: StageInfo) -> tuple[cutlass.Int32, cutlass.Int32]:
        return tile_coord(stage_info.loop_offset, self.tiles_n)


@dataclass(kw_only=True)
class Inputs(MemoryResource):
    """A ring of tiles of x in SMEM: TMA fills a stage, the compute warps read it."""

    allocation: cutlass.Constexpr
    tma_x: Any
    values: Any  # a thread's part of a tile, in registers
    tXsX: Any = None  # these once SMEM is laid out
    tXgX: Any = None
    part: Any = None
    x: cutlass.Constexpr = TaskLocalVariable.uninitialized()  # noqa: RUF009

    def __post_init__(self):
        nothing = cutlass.full([WARP_M * VECTOR], 0.0, X_DTYPE)
        self.x = TaskLocalVariable(X_DTYPE, nothing, docs="a thread's part of a tile of x")

    def get_smem_requirements(self):
        return [self.allocation]

    @producer_work
    @cute.jit
    def load_x(self, stage_info: StageInfo, *, m: cutlass.Int32, n: cutlass.Int32):
        stage, full = self.tXsX[None, stage_info.stage_idx], barrier_of(stage_info)
        cute.copy(self.tma_x.atom, self.tXgX[None, m, n], stage, tma_bar_ptr=full)

    @cute.jit
    def read(self, stage_info: StageInfo):
        values = self.values
        cute.autovec_copy(self.part[None, None, stage_info.stage_idx], values)
        # The next copy writes this stage through the async proxy: all reads must be done before
        # one lane releases it for its warp.
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        return cutlass.Vector(values.load())

    @consumer_work(returns=x)
    @cute.jit
    def read_x(self, stage_info: StageInfo):
        return self.read(stage_info)


@dataclass(kw_only=True)
class Outputs(MemoryResource):
    """A ring of tiles of out in SMEM: the compute warps fill a stage, TMA stores it."""

    allocation: cutlass.Constexpr
    tma_out: Any
    values: Any  # a thread's part of a tile, in registers
    tXsX: Any = None  # these once SMEM is laid out
    tXgX: Any = None
    part: Any = None

    def get_smem_requirements(self):
        return [self.allocation]

    @producer_work
    @cute.jit
    def write(self, stage_info: StageInfo, *, x: X_DTYPE):
        x = cute.TensorSSA(x, (WARP_M, VECTOR), X_DTYPE).to(COMPUTE_DTYPE)
        values = self.values
        values.store(stream_op(x).to(OUT_DTYPE))
        cute.autovec_copy(values, self.part[None, None, stage_info.stage_idx])
        # TMA reads SMEM through the async proxy: publish to it before `commit`.
        cute.arch.fence_proxy("async.shared", space="cta")

    @consumer_work
    @cute.jit
    def store(self, stage_info: StageInfo, *, m: cutlass.Int32, n: cutlass.Int32):
        stage = self.tXsX[None, stage_info.stage_idx]
        cute.copy(self.tma_out.atom, stage, self.tXgX[None, m, n])
        # The stage is released below: the store must have read it.
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.kernel
def stream_kernel(tma_x, tma_out, tiles_n, num_tiles):
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    lane = cute.arch.lane_idx()
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    # ---- Resources: what guards them, and where they lie ----------------------------------------
    threads = functools.partial(pipeline.CooperativeGroup, pipeline.Agent.Thread)
    in_ring = SmemAllocation("in", dtype=X_DTYPE, count=TILE_M * TILE_N * INPUT_STAGES)
    out_ring = SmemAllocation("out", dtype=OUT_DTYPE, count=TILE_M * TILE_N * OUTPUT_STAGES)
    own = (WARP_M, VECTOR)  # a thread's part of a tile: its warp's rows, its lane's columns
    registers = cute.make_ordered_layout(own, order=(1, 0))

    tiles = Tiles(name="tiles", tiles_n=tiles_n)
    inputs = Inputs(
        name="inputs",
        pipeline_config=PipelineConfig.create_tma_async_pipeline_cfg(
            num_stages=INPUT_STAGES,
            num_bytes=STAGE_BYTES,
            producer_group=threads(FULL_ARRIVES),
            consumer_group=threads(EMPTY_ARRIVES),
            cta_layout_vmnk=(1, 1, 1, 1),
        ),
        allocation=in_ring,
        tma_x=tma_x,
        values=cute.make_rmem_tensor(registers, X_DTYPE),
    )
    outputs = Outputs(
        name="outputs",
        pipeline_config=PipelineConfig.create_async_async_pipeline_cfg(
            num_stages=OUTPUT_STAGES,
            producer_group=threads(OUT_FULL_ARRIVES),
            consumer_group=threads(OUT_EMPTY_ARRIVES),
            cta_layout_vmnk=(1, 1, 1, 1),
        ),
        allocation=out_ring,
        tma_out=tma_out,
        values=cute.make_rmem_tensor(registers, OUT_DTYPE),
    )

    smem = SmemAllocator()
    smem.add_resource(inputs)
    smem.add_resource(outputs)
    smem.compute_layout()
    block = smem.allocate()
    sIn = smem_tensor(block, in_ring, ring_layout(INPUT_STAGES))
    sOut = smem_tensor(block, out_ring, ring_layout(OUTPUT_STAGES))
    inputs.tXsX, inputs.tXgX = partition_tma(tma_x, sIn)
    outputs.tXsX, outputs.tXgX = partition_tma(tma_out, sOut)
    inputs.part = cute.local_tile(sIn, own, (warp_idx, lane, None))  # (WARP_M, VECTOR, STAGE)
    outputs.part = cute.local_tile(sOut, own, (warp_idx, lane, None))

    # ---- Schedules: the order of things, one for each task --------------------------------------
    @schedule
    def load(tiles, inputs):
        with domain_loop(first, num_tiles, step):
            m, n = tiles.coord()
            inputs.acquire()
            inputs.load_x(m=m, n=n)
            inputs.commit()

    @schedule
    def compute(inputs, outputs):
        with domain_loop(first, num_tiles, step):
            inputs.wait()
            x = inputs.read_x()
            inputs.release()
            outputs.acquire()
            outputs.write(x=x)
            outputs.commit()

    @schedule
    def store(tiles, outputs):
        with domain_loop(first, num_tiles, step):
            m, n = tiles.coord()
            outputs.wait()
            outputs.store(m=m, n=n)
            outputs.release()

    # ---- Tasks: what each reads and writes, its warps, and its schedule -------------------------
    compute_schedule, store_schedule = compute(inputs, outputs), store(tiles, outputs)
    load_schedule = load(tiles, inputs)
    tasks = [
        Task([inputs], [outputs], 0, COMPUTE_WARPS, schedule=compute_schedule, name="compute"),
        Task([tiles], [inputs], LOAD_WARP, 1, schedule=load_schedule, name="load"),
        Task([tiles, outputs], [], STORE_WARP, 1, schedule=store_schedule, name="store"),
    ]
    manager = TaskManager(
        tasks,
        {inputs: [tiles], outputs: [inputs]},  # what each is made from
        smem_allocator=smem,
        verbose=False,
        exhaustive_deadlock_race_check=False,  # `pipegen check` does it: it takes seconds
    )
    manager.setup_resources_and_tasks()
    # Nobody may touch a barrier before it has been set up.
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()
    manager.run()


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `stream` packs."""
    # One argument instead of 7: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(7))
    rows, columns, max_blocks = [cutlass.Int32(numbers[i]) for i in range(3)]
    x_row = cute.assume(numbers[5], X_ALIGN)
    out_row = cute.assume(numbers[6], OUT_ALIGN)
    gmem = cute.AddressSpace.gmem
    x_ptr = cute.make_ptr(X_DTYPE, numbers[3], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((rows, columns), stride=(x_row, 1)))
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[4], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((rows, columns), stride=(out_row, 1)))

    tile, tile_smem = (TILE_M, TILE_N), ring_layout(1)
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    tma_x = cpasync.make_tiled_tma_atom(load, x, tile_smem, tile)
    tma_out = cpasync.make_tiled_tma_atom(store, out, tile_smem, tile)

    tiles_n = cute.ceil_div(columns, TILE_N)
    tiles = cute.ceil_div(rows, TILE_M) * tiles_n
    stream_kernel(tma_x, tma_out, tiles_n, tiles).launch(
        grid=(cutlass.min(tiles, max_blocks), 1, 1),
        block=(THREADS, 1, 1),
        min_blocks_per_mp=BLOCKS_PER_SM,
        preferred_smem_carveout=100,  # percent; left out, the DSL asks a driver what an SM has
        stream=stream,
    )


@functools.cache
def compile_stream():
    """`launch`, compiled: once, for all sizes and strides. Needs no GPU."""
    problem = cute.runtime.make_ptr(cutlass.Int64, 0)
    return cute.compile(launch, problem, cute.runtime.make_fake_stream())


@functools.cache
def max_blocks(device: int) -> int:
    """CTAs that run at once. More would wait for a first one to end: a second, short wave."""
    return HardwareInfo(device).get_device_multiprocessor_count() * BLOCKS_PER_SM


@functools.lru_cache(maxsize=1024)
def matrix(name: str, dtype, shape: tuple, strides: tuple, wanted: str, align: int):
    """((rows, columns), row stride) of an operand, checked for accesses of 16 bytes."""
    if str(dtype).removeprefix("torch.") != wanted:
        raise TypeError(f"{name}.dtype={dtype}: must be {wanted}")
    if len(shape) != 2 or min(shape) < 1 or max(shape) >= 2**31:
        raise ValueError(f"{name}.shape={tuple(shape)}: must be 2 sizes from 1 to 2**31 - 1")
    (rows, columns), (row, column) = shape, strides
    # A dimension of size 1 may have any stride: it is not used, and `align` takes its place.
    row = row if rows > 1 else align
    if (column != 1 and columns > 1) or row < 1 or row % align:
        rule = f"must be 1 last, and a positive multiple of {align} elements (16 bytes) before"
        raise ValueError(f"{name}.stride={tuple(strides)}: {rule}")
    if name == "out" and rows > 1 and row < columns:
        raise ValueError(f"out.stride={tuple(strides)}: elements of out overlap")
    return (rows, columns), row


def operand(name: str, tensor, dtype: str, align: int):
    """(address, device, what `matrix` returns) of a tensor."""
    if hasattr(tensor, "data_ptr"):  # torch: quicker than DLPack
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


def stream(x, out, stream=None):
    """Writes f(x) to out; both are (M, N).

    Takes torch tensors, and others through DLPack (jax, cupy), on the current device. `stream` is
    a CUstream, an int or a torch stream; None is torch's current stream if torch is in use, else
    the default stream.
    """
    x_address, x_device, (x_shape, x_row) = operand("x", x, "bfloat16", X_ALIGN)
    out_address, device, (shape, out_row) = operand("out", out, "bfloat16", OUT_ALIGN)
    if x_shape != shape:
        raise ValueError(f"x.shape={x_shape}, out.shape={shape}: must be the same (M, N)")
    if shape[1] % OUT_ALIGN:
        rule = f"must be a multiple of {OUT_ALIGN}, TMA stores 16 bytes at a time"
        raise ValueError(f"N={shape[1]}: {rule}")
    if not 0 <= x_device == device:
        raise ValueError(f"x.device={x_device}, out.device={device}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if device != current:
        raise ValueError(f"out.device={device}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    addresses, row_strides = (x_address, out_address), (x_row, out_row)
    problem = array.array("q", (*shape, max_blocks(device), *addresses, *row_strides))
    compile_stream()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(x):
    """What `stream` should write, in float64; for torch tensors."""
    return x.double()


def check(torch, m: int, n: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside out is written."""

    def buffer(rows, dtype, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return torch.randn(rows, (n // align + 1) * align, device="cuda").to(dtype)

    x = buffer(m, torch.bfloat16, X_ALIGN)[:, :n]
    around = buffer(m + 1, torch.bfloat16, OUT_ALIGN).fill_(float("nan"))
    stream(x, around[:m, :n])
    expected = reference(x)
    error = ((around[:m, :n].double() - expected).norm() / expected.norm()).item()
    intact = (around[m:].isnan().all() & around[:, n:].isnan().all()).item()
    passed = error <= 1e-2 and intact  # never true for NaN
    verdict, beside = "PASS" if passed else "FAIL", "" if intact else ", and wrote beside out"
    print(f"{verdict} {m=} {n=}: relative error {error:.1e}, limit 1e-2{beside}")
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
        compile_stream()
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
    tails = [(TILE_M, TILE_N), (1, 8), (1001, 1000), (333, 4104), (8192, 8192)]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
