# SPDX-License-Identifier: Apache-2.0
# pipegen: stream | cute | sm_90a
# template: cute/stream_thread.py.j2 4adf929fe021
# text: 1baa9404a6dc
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "stream"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "stream_sm90_thread_store_matrix_explicit_state"
#   style = "explicit-state"
#
#   [pipeline.mainloop]
#   producer = "thread"
#
#   [pipeline.epilogue]
#   consumer = "tma_store"
#
#   [stream]
#   y = "matrix"
"""Elementwise stream for Hopper (sm_90a) in the CuTe DSL: bf16, bf16 -> f32 -> bf16.

out = f(x, y) over (M, N) matrices; f is `stream_op`. Persistent and warp-specialized: each CTA
takes tiles of 32 x 256, one after the other, and loads the next ones while it computes this one.

Roles of a CTA's 512 threads
  consumer   warps 0 to 7: read 4 rows of a tile each, apply f in f32, put the result into a
             buffer of their own, and issue its TMA store
  producer   warps 8 to 15: load 4 rows of a tile each into registers, 16 B at a time, and put
             them into SMEM

Pipelines
             class             producer -> consumer  stages  full barrier  empty barrier
  mainloop   PipelineAsync     threads -> threads    2       256 arrives   8 arrives
  epilogue   PipelineTmaStore  threads -> TMA store  3       none          none

  mainloop   Filled by a tile of x and one of y: `acquire` waits until the stage is empty, and
             `commit` arrives, which publishes what this thread, and only this thread, has put into
             it: every producer thread commits every stage, even where its rows or columns lie
             outside. Emptied by one arrive of each consumer warp, as soon as its part is in
             registers.
  epilogue   One for each consumer warp. Filled by its lanes with 4 rows, 2048 B; emptied by the
             TMA store. No barriers: `commit` closes a bulk group, and `acquire` waits until fewer
             groups than buffers (3) still read SMEM: the oldest buffer is free.

Timeline of a CTA (its tiles t0, t1, ...)
  producer   load t0, fill | load t1, fill | ...: at most 2 stages ahead of the slowest consumer
  consumer   wait t0, read, release t0, f, fill | wait t1, read, release t1, f, fill | ...
  stores                                        | rows of t0                         | rows of t1

Constraints
  x, y and out are (M, N) with N a multiple of 8, because TMA stores 16 bytes at a time; the last
  dimension contiguous, row strides and addresses multiples of 16 bytes.

Run
  python stream_sm90_thread_store_matrix_explicit_state.py
  compares with float64, on an H100 or H200 with torch; with --compile-only it needs neither.
"""

import argparse
import array
import functools
import itertools
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
from cutlass.utils import HardwareInfo

X_DTYPE, Y_DTYPE = cutlass.BFloat16, cutlass.BFloat16
COMPUTE_DTYPE, OUT_DTYPE = cutlass.Float32, cutlass.BFloat16

TILE_M, TILE_N = 32, 256  # elements of a tile
WARP_M = 4  # rows of a tile that a consumer warp has: 32 / 8
PRODUCER_M = 4  # and a producer warp: 32 / 8
VECTOR = 8  # elements of a row that a lane accesses at once: 256 / 32
PIECES = 1  # such vectors of a lane in a row: 256 / (32 * 8)
LANE_N = 8  # columns from the first to the last of a lane: 256 - 31 * 8

CONSUMER_WARPS, PRODUCER_WARPS = 8, 8
THREADS = 512  # 32 * (8 + 8)
BLOCKS_PER_SM = 2

# 115712 B of SMEM a block: 228 KiB / 2 blocks - 1 KiB
MAINLOOP_STAGES = 2  # (115712 - 128 - 3 * 16384) // 32768
FULL_ARRIVES = 256  # 32 * 8, every producer thread
EMPTY_ARRIVES = 8  # 8 consumer warps, one lane each
EPI_STAGES = 3  # buffers of a consumer warp, 2048 B each

X_ALIGN, Y_ALIGN, OUT_ALIGN = 8, 8, 8  # elements: the units of row strides


@cute.struct
class SharedStorage:  # 114816 B: 128 + 2 * 32768 + 3 * 16384
    mainloop_barriers: cute.struct.MemRange[cutlass.Int64, 2 * MAINLOOP_STAGES]
    x: cute.struct.Align[cute.struct.MemRange[X_DTYPE, TILE_M * TILE_N * MAINLOOP_STAGES], 128]
    y: cute.struct.Align[cute.struct.MemRange[Y_DTYPE, TILE_M * TILE_N * MAINLOOP_STAGES], 128]
    out: cute.struct.Align[cute.struct.MemRange[OUT_DTYPE, TILE_M * TILE_N * EPI_STAGES], 128]


# ==== Yours: the arithmetic ======================================================================
@cute.jit
def stream_op(x: cute.TensorSSA, y: cute.TensorSSA) -> cute.TensorSSA:
    """f of a thread's WARP_M x VECTOR x PIECES elements, f32 in registers. As written: the sum.

    A scale: `return x * y`. A gate: `return cute.where(x > 0.0, y, 0.0)`. Change `reference` too.
    Outside the matrix x and y are 0.0, and what f makes of them is not stored.
    """
    return x + y


@cute.jit
def tile_coord(index: cutlass.Int32, tiles_n: cutlass.Int32):
    """(m, n) of the tile that comes index-th: row by row."""
    return index // tiles_n, index % tiles_n


def smem_layout(rows: int, stages: int) -> cute.Layout:
    """(rows, TILE_N, STAGE), row by row: a warp reads a whole row, so without bank conflicts."""
    return cute.make_ordered_layout((rows, TILE_N, stages), order=(1, 0, 2))


def lane_part(tile: cute.Tensor, rows: int, warp: cutlass.Int32, lane: cutlass.Int32):
    """A lane's part of a tile of which each warp has `rows`: (rows, VECTOR, PIECES)."""
    pieces = cute.local_tile(tile, (rows, 32 * VECTOR), (warp, None))
    return cute.local_tile(pieces, (rows, VECTOR), (0, lane, None))


def lane_reach(shape: tuple, m, n, rows: int, warp: cutlass.Int32, lane: cutlass.Int32):
    """How many rows and columns a matrix has from a lane's part of the tile (m, n) on."""
    return shape[0] - m * TILE_M - warp * rows, shape[1] - n * TILE_N - lane * VECTOR


def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at once: SMEM (copy, STAGE), GMEM (copy, tiles along M, along N)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


@cute.jit
def load_rows(source: cute.Tensor, target: cute.Tensor, m, n, warp, lane):
    """A thread's part of the tile (m, n); zeros outside the matrix."""
    gPart = lane_part(cute.local_tile(source, (TILE_M, TILE_N), (m, n)), PRODUCER_M, warp, lane)
    rows_left, columns_left = lane_reach(source.shape, m, n, PRODUCER_M, warp, lane)
    if rows_left >= PRODUCER_M and columns_left >= LANE_N:
        cute.autovec_copy(gPart, target)
    else:
        target.fill(0.0)
        for i, j, k in itertools.product(range(PRODUCER_M), range(VECTOR), range(PIECES)):
            if i < rows_left and k * 32 * VECTOR + j < columns_left:
                target[i, j, k] = gPart[i, j, k]


@cute.kernel
def stream_kernel(x, y, tma_out, tiles_n, tiles):
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    lane = cute.arch.lane_idx()
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    sX = storage.x.get_tensor(smem_layout(TILE_M, MAINLOOP_STAGES))  # (TILE_M, TILE_N, STAGE)
    sY = storage.y.get_tensor(smem_layout(TILE_M, MAINLOOP_STAGES))  # (TILE_M, TILE_N, STAGE)
    sOut = storage.out.get_tensor(smem_layout(TILE_M, EPI_STAGES))  # (TILE_M, TILE_N, STAGE)

    # `create` also sees to it that nobody touches a barrier before it has been set up.
    mainloop = pipeline.PipelineAsync.create(
        num_stages=MAINLOOP_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, FULL_ARRIVES),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EMPTY_ARRIVES),
        barrier_storage=storage.mainloop_barriers.data_ptr(),
    )

    if warp_idx >= CONSUMER_WARPS:
        # ---- Producers --------------------------------------------------------------------------
        producer_warp = warp_idx - CONSUMER_WARPS
        # A thread's part of a tile: its warp's rows, its lane's columns.
        part = cute.make_ordered_layout((PRODUCER_M, VECTOR, PIECES), order=(1, 0, 2))
        rX = cute.make_rmem_tensor(part, X_DTYPE)
        rY = cute.make_rmem_tensor(part, Y_DTYPE)
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, MAINLOOP_STAGES)
        for tile in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(tile, tiles_n)
            # Loads need no stage: they are in flight while this thread waits for one.
            load_rows(x, rX, m, n, producer_warp, lane)
            load_rows(y, rY, m, n, producer_warp, lane)
            mainloop.producer_acquire(stage)
            cute.autovec_copy(
                rX, lane_part(sX[None, None, stage.index], PRODUCER_M, producer_warp, lane)
            )
            cute.autovec_copy(
                rY, lane_part(sY[None, None, stage.index], PRODUCER_M, producer_warp, lane)
            )
            mainloop.producer_commit(stage)
            stage.advance()
        # Leaves no arrive pending: waits until every stage has been released.
        mainloop.producer_tail(stage)
    else:
        # ---- Consumers --------------------------------------------------------------------------
        # A thread's part of a tile: its warp's rows, its lane's columns.
        part = cute.make_ordered_layout((WARP_M, VECTOR, PIECES), order=(1, 0, 2))
        rX = cute.make_rmem_tensor(part, X_DTYPE)
        rY = cute.make_rmem_tensor(part, Y_DTYPE)
        rOut = cute.make_rmem_tensor(part, OUT_DTYPE)
        stage = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, MAINLOOP_STAGES)

        # A warp stores its own rows: its lanes meet, and no barrier of the CTA is needed.
        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)
        epilogue = pipeline.PipelineTmaStore.create(num_stages=EPI_STAGES, producer_group=group)
        sRows = cute.local_tile(sOut, (WARP_M, TILE_N), (warp_idx, 0, None))
        tSsOut, tSgOut = partition_tma(tma_out, sRows, (WARP_M, TILE_N))
        # The place in the ring of store buffers; PipelineTmaStore keeps none.
        buffer = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, EPI_STAGES)

        for tile in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(tile, tiles_n)
            mainloop.consumer_wait(stage)
            cute.autovec_copy(lane_part(sX[None, None, stage.index], WARP_M, warp_idx, lane), rX)
            cute.autovec_copy(lane_part(sY[None, None, stage.index], WARP_M, warp_idx, lane), rY)
            # One lane releases for its warp: by then, all its lanes must have read. This class does
            # not choose the lane, as the TMA classes do: every thread that calls it arrives.
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                mainloop.consumer_release(stage)
            stage.advance()

            y_values = rY.load().to(COMPUTE_DTYPE)
            rOut.store(stream_op(rX.load().to(COMPUTE_DTYPE), y_values).to(OUT_DTYPE))

            # Only the lane that issued the stores knows whether the oldest has read its buffer.
            epilogue.producer_acquire()
            cute.arch.sync_warp()
            cute.autovec_copy(
                rOut, lane_part(sOut[None, None, buffer.index], WARP_M, warp_idx, lane)
            )
            # TMA reads SMEM through the async proxy: publish to it first, then meet.
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            gmem = tSgOut[None, m * CONSUMER_WARPS + warp_idx, n]
            cute.copy(tma_out.atom, tSsOut[None, buffer.index], gmem)
            epilogue.producer_commit()
            buffer.advance()
        epilogue.producer_tail()


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor map, grid and launch, for the numbers that `stream` packs."""
    # One argument instead of 9: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(9))
    rows, columns, max_blocks = [cutlass.Int32(numbers[i]) for i in range(3)]
    x_row = cute.assume(numbers[6], X_ALIGN)
    y_row = cute.assume(numbers[7], Y_ALIGN)
    out_row = cute.assume(numbers[8], OUT_ALIGN)
    gmem = cute.AddressSpace.gmem
    x_ptr = cute.make_ptr(X_DTYPE, numbers[3], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((rows, columns), stride=(x_row, 1)))
    y_ptr = cute.make_ptr(Y_DTYPE, numbers[4], gmem, assumed_align=16)
    y = cute.make_tensor(y_ptr, cute.make_layout((rows, columns), stride=(y_row, 1)))
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[5], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((rows, columns), stride=(out_row, 1)))

    store = cpasync.CopyBulkTensorTileS2GOp()
    tma_out = cpasync.make_tiled_tma_atom(store, out, smem_layout(WARP_M, 1), (WARP_M, TILE_N))

    tiles_n = cute.ceil_div(columns, TILE_N)
    tiles = cute.ceil_div(rows, TILE_M) * tiles_n
    stream_kernel(x, y, tma_out, tiles_n, tiles).launch(
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


def stream(x, y, out, stream=None):
    """Writes f(x, y) to out; all are (M, N).

    Takes torch tensors, and others through DLPack (jax, cupy), on the current device. `stream` is
    a CUstream, an int or a torch stream; None is torch's current stream if torch is in use, else
    the default stream.
    """
    x_address, x_device, (x_shape, x_row) = operand("x", x, "bfloat16", X_ALIGN)
    y_address, y_device, (y_shape, y_row) = operand("y", y, "bfloat16", Y_ALIGN)
    out_address, device, (shape, out_row) = operand("out", out, "bfloat16", OUT_ALIGN)
    if not x_shape == y_shape == shape:
        shapes = f"x.shape={x_shape}, y.shape={y_shape}, out.shape={shape}"
        raise ValueError(f"{shapes}: must be the same (M, N)")
    if shape[1] % OUT_ALIGN:
        rule = f"must be a multiple of {OUT_ALIGN}, TMA stores 16 bytes at a time"
        raise ValueError(f"N={shape[1]}: {rule}")
    if not 0 <= x_device == y_device == device:
        devices = f"x.device={x_device}, y.device={y_device}, out.device={device}"
        raise ValueError(f"{devices}: must be one GPU (-1 is none)")
    current = cudart.cudaGetDevice()[1]
    if device != current:
        raise ValueError(f"out.device={device}: must be the current device, {current}")
    if stream is None:
        torch = sys.modules.get("torch")
        stream = torch.cuda.current_stream() if torch and torch.cuda.is_initialized() else 0
    stream = cuda.CUstream(int(getattr(stream, "cuda_stream", stream)))
    addresses, row_strides = (x_address, y_address, out_address), (x_row, y_row, out_row)
    problem = array.array("q", (*shape, max_blocks(device), *addresses, *row_strides))
    compile_stream()(cute.runtime.make_ptr(cutlass.Int64, problem.buffer_info()[0]), stream)


def reference(x, y):
    """What `stream` should write, in float64; for torch tensors."""
    return x.double() + y.double()


def check(torch, m: int, n: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside out is written."""

    def buffer(rows, dtype, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return torch.randn(rows, (n // align + 1) * align, device="cuda").to(dtype)

    x = buffer(m, torch.bfloat16, X_ALIGN)[:, :n]
    y = buffer(m, torch.bfloat16, Y_ALIGN)[:, :n]
    around = buffer(m + 1, torch.bfloat16, OUT_ALIGN).fill_(float("nan"))
    stream(x, y, around[:m, :n])
    expected = reference(x, y)
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
