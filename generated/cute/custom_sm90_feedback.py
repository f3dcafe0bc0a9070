# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | cute | sm_90a
# template: cute/custom.py.j2 c0a58dea80f9
# text: d405998ca419
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "custom_sm90_feedback"
#
#   [tensor.x]
#   read = "load"
#
#   [tensor.out]
#   dtype = "f32"
#   write = "keep"
#   expect = """sum(
#       0.5**k * torch.nn.functional.pad(x, (256 * k, 0))[:, : x.shape[1]]
#       for k in range(x.shape[1] // 256 + 1)
#   )
#   """
#
#   [pipeline.x]
#   edge = "load -> mix"
#
#   [pipeline.done]
#   stages = 2
#   edge = "mix -> keep"
#   dtype = "f32"
#
#   [pipeline.back]
#   stages = 1
#   edge = "keep -> mix"
#   dtype = "f32"
#   credits = 1
#
#   [role.mix]
#   body = """values = load_part(x, MIX_WARPS, thread) + 0.5 * load_part(back, MIX_WARPS, thread)
#   store_part(values, done, MIX_WARPS, thread)
#   """
#
#   [role.keep]
#   body = """values = load_part(done, KEEP_WARPS, thread)
#   store_part(values, back, KEEP_WARPS, thread)
#   out.store(values)
#   """
"""A custom graph of roles for Hopper (sm_90a) in the CuTe DSL.

A CTA takes panels of 32 rows, one after the other, and walks over each panel's tiles of 256
columns. Every role has its own loop over them; rings of SMEM stages connect the roles. What a role
computes is its body, a function under "Yours": replacing it never touches the protocol.

Roles of a CTA's 288 threads
  mix                  warps 0 to 3    computes: x, back -> done, once a tile
  keep                 warps 4 to 7    computes: done -> back, out, once a tile
  load                 warp 8          loads by TMA: x -> x, once a tile

Pipelines
  ring  edge         class             stages  full barrier  empty barrier
  x     load -> mix  PipelineTmaAsync  4       1 x 16384 B   4 arrives
  done  mix -> keep  PipelineAsync     2       128 arrives   4 arrives
  back  keep -> mix  PipelineAsync     1       128 arrives   4 arrives

  A producer acquires a stage (waits for its empty barrier) and commits it (the full barrier: TMA
  by the bytes that land, threads by an arrive each). A consumer waits for the full barrier, and one
  lane of each of its warps releases the stage.

Timeline of a CTA
  mix                  each tile: wait x, wait back, fill done, release x, release back
  keep                 each tile: wait done, fill back, store out, release done
  load                 each tile: fill x

Constraints
  x is (M, N), out is (M, N).
  The last dimension is contiguous, row strides and addresses are multiples of 16 bytes.

Run
  python custom_sm90_feedback.py
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
from cutlass.utils import HardwareInfo

X_DTYPE, X_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
OUT_DTYPE, OUT_ALIGN = cutlass.Float32, 4  # elements of 16 B

TILE_M, TILE_N = 32, 256  # elements of a tile
VECTOR = 8  # elements of a row that a lane has: 256 / 32
MIX_WARPS, MIX_ROWS = 4, 8  # a warp has so many rows of a tile
KEEP_WARPS, KEEP_ROWS = 4, 8  # a warp has so many rows of a tile
THREADS = 288  # 32 * (4 + 4 + 1)

# x: load -> mix
X_STAGES = 4
X_FULL, X_EMPTY = 1, 4  # arrivals
X_BYTES = 16384  # 32 * 256 * 2
# done: mix -> keep
DONE_STAGES = 2
DONE_FULL, DONE_EMPTY = 128, 4  # arrivals
# back: keep -> mix
BACK_STAGES = 1
BACK_FULL, BACK_EMPTY = 128, 4  # arrivals
BACK_CREDITS = 1  # stages full of zeros before a panel's first tile


@cute.struct
class SharedStorage:  # 163968 B, as rings and stages say
    x_barriers: cute.struct.MemRange[cutlass.Int64, 2 * X_STAGES]
    done_barriers: cute.struct.MemRange[cutlass.Int64, 2 * DONE_STAGES]
    back_barriers: cute.struct.MemRange[cutlass.Int64, 2 * BACK_STAGES]
    x: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_N * X_STAGES], 128]
    done: cute.struct.Align[
        cute.struct.MemRange[cutlass.Float32, TILE_M * TILE_N * DONE_STAGES], 128
    ]
    back: cute.struct.Align[
        cute.struct.MemRange[cutlass.Float32, TILE_M * TILE_N * BACK_STAGES], 128
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


# ==== Yours: the bodies ==========================================================================
@cute.jit
def mix(
    x: cute.Tensor,
    back: cute.Tensor,
    done: cute.Tensor,
    columns: cutlass.Int32,
    thread: cutlass.Int32,
):
    """Yours. MIX_WARPS warps; this is thread `thread` of them.

    x: a stage, (TILE_M, TILE_N) bf16 in SMEM
    back: a stage, (TILE_M, TILE_N) f32 in SMEM
    done: the stage to fill
    columns: of the matrix, from this tile's first on
    """
    values = load_part(x, MIX_WARPS, thread) + 0.5 * load_part(back, MIX_WARPS, thread)
    store_part(values, done, MIX_WARPS, thread)


@cute.jit
def keep(
    done: cute.Tensor,
    back: cute.Tensor,
    out: cute.Tensor,
    columns: cutlass.Int32,
    thread: cutlass.Int32,
):
    """Yours. KEEP_WARPS warps; this is thread `thread` of them.

    done: a stage, (TILE_M, TILE_N) f32 in SMEM
    back: the stage to fill
    out: this thread's part, which is stored
    columns: of the matrix, from this tile's first on
    """
    values = load_part(done, KEEP_WARPS, thread)
    store_part(values, back, KEEP_WARPS, thread)
    out.store(values)


# ==== The moves ==================================================================================
def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at once: SMEM (copy, STAGE), GMEM (copy, tiles along M, along N)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


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
def custom_kernel(tma_x, out_gmem, columns, panels, tiles):
    thread_idx, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    x_smem = storage.x.get_tensor(stages_layout(TILE_M, TILE_N, X_STAGES))
    done_smem = storage.done.get_tensor(stages_layout(TILE_M, TILE_N, DONE_STAGES))
    back_smem = storage.back.get_tensor(stages_layout(TILE_M, TILE_N, BACK_STAGES))

    x_ring = pipeline.PipelineTmaAsync.create(
        num_stages=X_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, X_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, X_EMPTY),
        tx_count=X_BYTES,
        barrier_storage=storage.x_barriers.data_ptr(),
        defer_sync=True,
    )
    done_ring = pipeline.PipelineAsync.create(
        num_stages=DONE_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, DONE_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, DONE_EMPTY),
        barrier_storage=storage.done_barriers.data_ptr(),
        defer_sync=True,
    )
    back_ring = pipeline.PipelineAsync.create(
        num_stages=BACK_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, BACK_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, BACK_EMPTY),
        barrier_storage=storage.back_barriers.data_ptr(),
        defer_sync=True,
    )
    # Nobody may touch a barrier before all have been set up.
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()

    if warp_idx < 4:
        # ---- mix ---------------------------------------------------------------------------------
        x_consumer = x_ring.make_consumer()
        back_consumer = back_ring.make_consumer()
        done_producer = done_ring.make_producer()
        thread = thread_idx
        for panel in cutlass.range(first, panels, step, unroll=1):
            for tile in cutlass.range(tiles, unroll=1):
                x_stage = x_consumer.wait_and_advance()
                back_stage = back_consumer.wait_and_advance()
                done_stage = done_producer.acquire_and_advance()
                mix(
                    x_smem[None, None, x_stage.index],
                    back_smem[None, None, back_stage.index],
                    done_smem[None, None, done_stage.index],
                    columns - tile * TILE_N,
                    thread,
                )
                done_stage.commit()
                # The next load writes through the async proxy: all reads must be done before it.
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.sync_warp()
                x_stage.release()
                with cute.arch.elect_one():
                    back_stage.release()
            # Nobody needs what the last tiles have fed back.
            for _ in cutlass.range(BACK_CREDITS, unroll=1):
                back_stage = back_consumer.wait_and_advance()
                cute.arch.sync_warp()
                with cute.arch.elect_one():
                    back_stage.release()
        # Leaves no arrive pending: waits until every stage has been released.
        done_producer.tail()
    elif warp_idx < 8:
        # ---- keep --------------------------------------------------------------------------------
        done_consumer = done_ring.make_consumer()
        back_producer = back_ring.make_producer()
        thread = thread_idx - 128
        out_part = make_part((KEEP_ROWS, VECTOR), OUT_DTYPE)
        for panel in cutlass.range(first, panels, step, unroll=1):
            # What keep -> mix holds before the first tile.
            for _ in cutlass.range(BACK_CREDITS, unroll=1):
                back_stage = back_producer.acquire_and_advance()
                zeros = cute.full((KEEP_ROWS, VECTOR), 0.0, cutlass.Float32)
                store_part(zeros, back_smem[None, None, back_stage.index], KEEP_WARPS, thread)
                back_stage.commit()
            for tile in cutlass.range(tiles, unroll=1):
                done_stage = done_consumer.wait_and_advance()
                back_stage = back_producer.acquire_and_advance()
                keep(
                    done_smem[None, None, done_stage.index],
                    back_smem[None, None, back_stage.index],
                    out_part,
                    columns - tile * TILE_N,
                    thread,
                )
                back_stage.commit()
                store_global(
                    out_part, out_gmem, panel * KEEP_WARPS + thread // 32, tile * 32 + thread % 32
                )
                cute.arch.sync_warp()
                with cute.arch.elect_one():
                    done_stage.release()
        # Leaves no arrive pending: waits until every stage has been released.
        back_producer.tail()
    else:
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


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `custom` packs."""
    # One argument instead of 7: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(7))
    rows, columns, max_blocks = [cutlass.Int32(numbers[i]) for i in range(3)]
    gmem = cute.AddressSpace.gmem
    x_row = cute.assume(numbers[5], X_ALIGN)
    x_ptr = cute.make_ptr(X_DTYPE, numbers[3], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((rows, columns), stride=(x_row, 1)))
    out_row = cute.assume(numbers[6], OUT_ALIGN)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[4], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((rows, columns), stride=(out_row, 1)))

    load = cpasync.CopyBulkTensorTileG2SOp()
    x_smem = cute.make_ordered_layout((TILE_M, TILE_N), order=(1, 0))
    tma_x = cpasync.make_tiled_tma_atom(load, x, x_smem, (TILE_M, TILE_N))

    panels, tiles = cute.ceil_div(rows, TILE_M), cute.ceil_div(columns, TILE_N)
    custom_kernel(tma_x, out, columns, panels, tiles).launch(
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


def custom(x, out, stream=None):
    """Writes out from x, on the current device.

    Tensors of torch, or of others through DLPack (jax, cupy). `stream`: a CUstream, an int or a
    torch stream; None is torch's current stream if torch is in use, else the default stream.
    """
    operands = {
        "x": operand("x", x, "bfloat16", 2, X_ALIGN),
        "out": operand("out", out, "float32", 2, OUT_ALIGN),
    }
    addresses, devices, shapes, row_strides = zip(*operands.values())
    m, n = shapes[0]
    wanted = ((m, n), (m, n))
    if shapes != wanted:
        raise ValueError(f"shapes={shapes}: must be {wanted}, for M={m} and N={n}")
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


def reference(torch, m: int, n: int, x):
    """What `custom` should write, in float64; takes torch's float64 tensors."""
    return {
        "out": sum(
            0.5**k * torch.nn.functional.pad(x, (256 * k, 0))[:, : x.shape[1]]
            for k in range(x.shape[1] // 256 + 1)
        ),
    }


def check(torch, m: int, n: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside the results is written."""
    inputs, outputs, around = {}, {}, {}

    def longer(size, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return (size // align + 1) * align

    values = torch.randn((m, longer(n, X_ALIGN)), device="cuda")
    inputs["x"] = values.to(torch.bfloat16)[:m, :n]
    around["out"] = torch.full(
        (m + 1, longer(n, OUT_ALIGN)), float("nan"), dtype=torch.float32, device="cuda"
    )
    outputs["out"] = around["out"][:m, :n]
    custom(inputs["x"], outputs["out"])
    expected = reference(torch, m, n, *(each.double() for each in inputs.values()))
    passed = True
    for name, out in outputs.items():
        error = ((out.double() - expected[name]).norm() / expected[name].norm()).item()
        right = error <= 1e-5  # never true for NaN
        verdict = f"relative error {error:.1e}, limit 1e-5"
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
    tails = [(TILE_M, TILE_N), (1, 1), (1001, 1001), (333, 4099), (4096, 4096)]
    try:
        passed = [check(torch, *each) for each in arguments.size or tails]
    except ValueError as error:
        parser.error(str(error))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
