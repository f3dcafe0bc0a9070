# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | cute | sm_90a
# template: cute/custom.py.j2 c0a58dea80f9
# text: 63bf1f61d13c
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "custom_sm90_scale_rows"
#
#   [tensor.x]
#   read = "load"
#
#   [tensor.v]
#   shape = "M"
#   dtype = "f32"
#   read = "load_v"
#
#   [tensor.out]
#   write = "save"
#   expect = "x * v[:, None]"
#
#   [pipeline.x]
#   stages = 5
#   edge = "load -> scale"
#
#   [pipeline.v]
#   stages = 2
#   edge = "load_v -> scale"
#
#   [pipeline.done]
#   stages = 3
#   edge = "scale -> save"
#
#   [role.scale]
#   body = """values = load_part(x, SCALE_WARPS, thread) * load_part(v, SCALE_WARPS, thread)
#   store_part(values, done, SCALE_WARPS, thread)
#   """
#
#   [role.save]
#   kind = "tma_store"
"""A custom graph of roles for Hopper (sm_90a) in the CuTe DSL.

A CTA takes panels of 32 rows, one after the other, and walks over each panel's tiles of 256
columns. Every role has its own loop over them; rings of SMEM stages connect the roles. What a role
computes is its body, a function under "Yours": replacing it never touches the protocol.

Roles of a CTA's 224 threads
  scale                warps 0 to 3    computes: x, v -> done, once a tile
  load                 warp 4          loads by TMA: x -> x, once a tile
  load_v               warp 5          loads by TMA: v -> v, once a panel
  save                 warp 6          stores by TMA: done -> out, once a tile

Pipelines
  ring  edge             class             stages  full barrier  empty barrier
  x     load -> scale    PipelineTmaAsync  5       1 x 16384 B   4 arrives
  v     load_v -> scale  PipelineTmaAsync  2       1 x 128 B     4 arrives
  done  scale -> save    PipelineAsync     3       128 arrives   1 arrives

  A producer acquires a stage (waits for its empty barrier) and commits it (the full barrier: TMA
  by the bytes that land, threads by an arrive each). A consumer waits for the full barrier, and one
  lane of each of its warps releases the stage.

Timeline of a CTA
  scale                a panel: wait v, release v; each tile: wait x, fill done, release x
  load                 each tile: fill x
  load_v               a panel: fill v
  save                 each tile: wait done, store out, release done

Constraints
  x is (M, N), v is (M,), out is (M, N).
  The last dimension is contiguous, row strides and addresses are multiples of 16 bytes.
  N is a multiple of 8: TMA stores 16 bytes at a time.

Run
  python custom_sm90_scale_rows.py
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
V_DTYPE, V_ALIGN = cutlass.Float32, 4  # elements of 16 B
OUT_DTYPE, OUT_ALIGN = cutlass.BFloat16, 8  # elements of 16 B

TILE_M, TILE_N = 32, 256  # elements of a tile
VECTOR = 8  # elements of a row that a lane has: 256 / 32
SCALE_WARPS, SCALE_ROWS = 4, 8  # a warp has so many rows of a tile
THREADS = 224  # 32 * (4 + 1 + 1 + 1)

# x: load -> scale
X_STAGES = 5
X_FULL, X_EMPTY = 1, 4  # arrivals
X_BYTES = 16384  # 32 * 256 * 2
# v: load_v -> scale
V_STAGES = 2
V_FULL, V_EMPTY = 1, 4  # arrivals
V_BYTES = 128  # 32 * 4
# done: scale -> save
DONE_STAGES = 3
DONE_FULL, DONE_EMPTY = 128, 1  # arrivals


@cute.struct
class SharedStorage:  # 131584 B, as rings and stages say
    x_barriers: cute.struct.MemRange[cutlass.Int64, 2 * X_STAGES]
    v_barriers: cute.struct.MemRange[cutlass.Int64, 2 * V_STAGES]
    done_barriers: cute.struct.MemRange[cutlass.Int64, 2 * DONE_STAGES]
    x: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_N * X_STAGES], 128]
    v: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, TILE_M * V_STAGES], 128]
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


# ==== Yours: the bodies ==========================================================================
@cute.jit
def scale(
    x: cute.Tensor, v: cute.Tensor, done: cute.Tensor, columns: cutlass.Int32, thread: cutlass.Int32
):
    """Yours. SCALE_WARPS warps; this is thread `thread` of them.

    x: a stage, (TILE_M, TILE_N) bf16 in SMEM
    v: a stage, (TILE_M, 1) f32 in SMEM
    done: the stage to fill
    columns: of the matrix, from this tile's first on
    """
    values = load_part(x, SCALE_WARPS, thread) * load_part(v, SCALE_WARPS, thread)
    store_part(values, done, SCALE_WARPS, thread)


# ==== The moves ==================================================================================
def partition_tma(tma: cpasync.TmaInfo, smem: cute.Tensor, tile: tuple):
    """What TMA copies at once: SMEM (copy, STAGE), GMEM (copy, tiles along M, along N)."""
    gmem = cute.local_tile(tma.tma_tensor, tile, (None, None))
    smem, gmem = cute.group_modes(smem, 0, 2), cute.group_modes(gmem, 0, 2)
    return cpasync.tma_partition(tma.atom, 0, cute.make_layout(1), smem, gmem)


@cute.kernel
def custom_kernel(tma_x, tma_v, tma_out, columns, panels, tiles):
    thread_idx, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    x_smem = storage.x.get_tensor(stages_layout(TILE_M, TILE_N, X_STAGES))
    v_smem = storage.v.get_tensor(stages_layout(TILE_M, 1, V_STAGES))
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
        # ---- scale -------------------------------------------------------------------------------
        x_consumer = x_ring.make_consumer()
        v_consumer = v_ring.make_consumer()
        done_producer = done_ring.make_producer()
        thread = thread_idx
        for panel in cutlass.range(first, panels, step, unroll=1):
            v_stage = v_consumer.wait_and_advance()
            for tile in cutlass.range(tiles, unroll=1):
                x_stage = x_consumer.wait_and_advance()
                done_stage = done_producer.acquire_and_advance()
                scale(
                    x_smem[None, None, x_stage.index],
                    v_smem[None, None, v_stage.index],
                    done_smem[None, None, done_stage.index],
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
            # The next load writes through the async proxy: all reads must be done before it.
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            v_stage.release()
        # Leaves no arrive pending: waits until every stage has been released.
        done_producer.tail()
    elif warp_idx == 4:
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
    elif warp_idx == 5:
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
    # One argument instead of 9: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(9))
    rows, columns, max_blocks = [cutlass.Int32(numbers[i]) for i in range(3)]
    gmem = cute.AddressSpace.gmem
    x_row = cute.assume(numbers[6], X_ALIGN)
    x_ptr = cute.make_ptr(X_DTYPE, numbers[3], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((rows, columns), stride=(x_row, 1)))
    v_ptr = cute.make_ptr(V_DTYPE, numbers[4], gmem, assumed_align=16)
    v = cute.make_tensor(v_ptr, cute.make_layout((rows, 1), stride=(1, 4)))
    out_row = cute.assume(numbers[8], OUT_ALIGN)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[5], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((rows, columns), stride=(out_row, 1)))

    load = cpasync.CopyBulkTensorTileG2SOp()
    x_smem = cute.make_ordered_layout((TILE_M, TILE_N), order=(1, 0))
    tma_x = cpasync.make_tiled_tma_atom(load, x, x_smem, (TILE_M, TILE_N))
    v_smem = cute.make_ordered_layout((TILE_M, 1), order=(1, 0))
    tma_v = cpasync.make_tiled_tma_atom(load, v, v_smem, (TILE_M, 1))

    store = cpasync.CopyBulkTensorTileS2GOp()
    out_smem = cute.make_ordered_layout((TILE_M, TILE_N), order=(1, 0))
    tma_out = cpasync.make_tiled_tma_atom(store, out, out_smem, (TILE_M, TILE_N))

    panels, tiles = cute.ceil_div(rows, TILE_M), cute.ceil_div(columns, TILE_N)
    custom_kernel(tma_x, tma_v, tma_out, columns, panels, tiles).launch(
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


def custom(x, v, out, stream=None):
    """Writes out from x, v, on the current device.

    Tensors of torch, or of others through DLPack (jax, cupy). `stream`: a CUstream, an int or a
    torch stream; None is torch's current stream if torch is in use, else the default stream.
    """
    operands = {
        "x": operand("x", x, "bfloat16", 2, X_ALIGN),
        "v": operand("v", v, "float32", 1, V_ALIGN),
        "out": operand("out", out, "bfloat16", 2, OUT_ALIGN),
    }
    addresses, devices, shapes, row_strides = zip(*operands.values())
    m, n = shapes[0]
    wanted = ((m, n), (m,), (m, n))
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


def reference(torch, m: int, n: int, x, v):
    """What `custom` should write, in float64; takes torch's float64 tensors."""
    return {
        "out": x * v[:, None],
    }


def check(torch, m: int, n: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside the results is written."""
    inputs, outputs, around = {}, {}, {}

    def longer(size, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return (size // align + 1) * align

    values = torch.randn((m, longer(n, X_ALIGN)), device="cuda")
    inputs["x"] = values.to(torch.bfloat16)[:m, :n]
    values = torch.randn((m + n,), device="cuda")
    inputs["v"] = values.to(torch.float32)[:m]
    around["out"] = torch.full(
        (m + 1, longer(n, OUT_ALIGN)), float("nan"), dtype=torch.bfloat16, device="cuda"
    )
    outputs["out"] = around["out"][:m, :n]
    custom(inputs["x"], inputs["v"], outputs["out"])
    expected = reference(torch, m, n, *(each.double() for each in inputs.values()))
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
