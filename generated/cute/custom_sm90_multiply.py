# SPDX-License-Identifier: Apache-2.0
# pipegen: custom | cute | sm_90a
# template: cute/custom_multiply.py.j2 dc163ea7b7a7
# text: 0349579a29c4
# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.
# Checked with nvidia-cutlass-dsl 4.8.1.
# description:
#   pipegen = 1
#
#   [kernel]
#   op = "custom"
#   backend = "cute"
#   arch = "sm_90a"
#   name = "custom_sm90_multiply"
#
#   [tensor.x]
#   shape = "M, K"
#   read = "load"
#
#   [tensor.w]
#   shape = "N, K"
#   read = "load"
#
#   [tensor.out]
#   shape = "M, N"
#   dtype = "f32"
#   write = "multiply"
#
#   [pipeline.xw]
#   edge = "load -> multiply"
#
#   [role.multiply]
#   kind = "wgmma"
"""A custom graph of roles that multiply, for Hopper (sm_90a) in the CuTe DSL.

A CTA takes tiles of TILE_M x TILE_N of the result, one after the other, and for each walks over K
in steps of TILE_K. Every role has its own loops; rings of SMEM stages connect the roles, each
filled as often as its tiles change. What a role computes is its body, a function under "Yours":
replacing it never touches the protocol.

Roles of a CTA's 288 threads
  multiply             warps 0 to 7    multiplies: xw_x @ xw_w.T -> out, a wgmma group at each
                       step of K
  load                 warp 8          loads by TMA: x, w -> xw, at each step of K

Pipelines
  ring                 class             stages  full barrier     empty barrier
  xw                   PipelineTmaAsync  4       1 x 32768 B      8 arrives

  xw                   load -> multiply, at each step of K

  A producer acquires a stage (waits for its empty barrier) and commits it (the full barrier: TMA
  by the bytes that land, threads by an arrive each). A consumer waits for the full barrier, and one
  lane of each of its warps releases the stage: wgmma's, when the wgmmas that read it are done.

Timeline of a CTA
  multiply             each tile: store out; each step of K: wait xw, multiply, release xw, a step
                       later
  load                 each step of K: fill xw

Constraints
  x is (M, K), w is (N, K), out is (M, N).
  The last dimension is contiguous, row strides and addresses are multiples of 16 bytes.

Run
  python custom_sm90_multiply.py
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
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.nvgpu.warpgroup import SmemLayoutAtomKind
from cutlass.utils import HardwareInfo

X_DTYPE, X_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
W_DTYPE, W_ALIGN = cutlass.BFloat16, 8  # elements of 16 B
OUT_DTYPE, OUT_ALIGN = cutlass.Float32, 4  # elements of 16 B

TILE_M, TILE_N, TILE_K = 128, 128, 64  # elements of a tile
RASTER_GROUP = 8  # rows of tiles walked together, for L2
MULTIPLY_WARPS = 8
THREADS = 288  # 32 * (8 + 1)

# xw: load -> multiply, at each step of K
XW_STAGES = 4
XW_FULL, XW_EMPTY = 1, 8  # arrivals
XW_BYTES = 32768  # 128 * 64 * 2 + 128 * 64 * 2


@cute.struct
class SharedStorage:  # 132096 B, as rings and stages say
    xw_barriers: cute.struct.MemRange[cutlass.Int64, 2 * XW_STAGES]
    xw_x: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_M * TILE_K * XW_STAGES], 1024
    ]
    xw_w: cute.struct.Align[
        cute.struct.MemRange[cutlass.BFloat16, TILE_N * TILE_K * XW_STAGES], 1024
    ]


def swizzled_layout(swizzle: SmemLayoutAtomKind, dtype, tile: tuple, stages: int):
    """(rows, columns, STAGE), swizzled in a way that both TMA and wgmma know."""
    atom = cute.nvgpu.warpgroup.make_smem_layout_atom(swizzle, dtype)
    return cute.tile_to_shape(atom, (*tile, stages), order=(0, 1, 2))


# ==== Yours: the bodies ==========================================================================
@cute.jit
def multiply(xw_x: cute.Tensor, xw_w: cute.Tensor, sums: cute.Tensor, tiled_mma: cute.TiledMma):
    """Yours; as written, sums += xw_x @ xw_w.T by wgmma. MULTIPLY_WARPS warps.

    xw_x: a stage, x, (TILE_M, TILE_K) bf16 in SMEM, as wgmma's A: (MMA, M, K)
    xw_w: a stage, w, (TILE_N, TILE_K) bf16 in SMEM, as wgmma's B: (MMA, N, K)
    sums: this thread's f32 accumulators of (TILE_M, TILE_N)
    tiled_mma: given back; a tile's first wgmma overwrites the sums, all others add
    """
    for k in cutlass.range_constexpr(cute.size(xw_x, mode=[2])):
        cute.gemm(tiled_mma, sums, xw_x[None, None, k], xw_w[None, None, k], sums)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
    return tiled_mma


@cute.jit
def multiply_finish(sums: cute.Tensor, coord: cute.Tensor):
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
def store_sums_global(sums: cute.Tensor, coord: cute.Tensor, target: cute.Tensor):
    """A thread's accumulators go to their places in a matrix, as far as it reaches."""
    for i in cutlass.range_constexpr(cute.size(sums)):
        if cute.elem_less(coord[i], target.shape):
            target[coord[i]] = sums[i].to(target.element_type)


@cute.kernel
def custom_kernel(tma_x, tma_w, out_gmem, multiply_mma, tiles_m, tiles_n, tiles_k, tiles):
    thread_idx, _, _ = cute.arch.thread_idx()
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    first, _, _ = cute.arch.block_idx()
    step, _, _ = cute.arch.grid_dim()

    storage = memory.SmemAllocator().allocate(SharedStorage)
    xw_x_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_M, TILE_K), XW_STAGES
    )
    xw_x_smem = storage.xw_x.get_tensor(xw_x_layout.outer, swizzle=xw_x_layout.inner)
    xw_w_layout = swizzled_layout(
        SmemLayoutAtomKind.K_SW128, cutlass.BFloat16, (TILE_N, TILE_K), XW_STAGES
    )
    xw_w_smem = storage.xw_w.get_tensor(xw_w_layout.outer, swizzle=xw_w_layout.inner)

    xw_ring = pipeline.PipelineTmaAsync.create(
        num_stages=XW_STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, XW_FULL),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, XW_EMPTY),
        tx_count=XW_BYTES,
        barrier_storage=storage.xw_barriers.data_ptr(),
        defer_sync=True,
    )
    # Nobody may touch a barrier before all have been set up.
    pipeline.pipeline_init_arrive()
    pipeline.pipeline_init_wait()

    if warp_idx < 8:
        # ---- multiply ----------------------------------------------------------------------------
        xw_consumer = xw_ring.make_consumer()
        thread = thread_idx
        # A warpgroup's threads hold one and the same SMEM descriptor.
        whole = multiply_mma.get_slice(cute.arch.make_warp_uniform(thread // 128) * 128)
        # (MMA, M, K, STAGE) and (MMA, N, K, STAGE)
        xw_x_parts = multiply_mma.make_fragment_A(whole.partition_A(xw_x_smem))
        xw_w_parts = multiply_mma.make_fragment_B(whole.partition_B(xw_w_smem))
        own = multiply_mma.get_slice(thread)
        # ((2 columns, 2 rows 8 apart, TILE_N / 8), M, 1): 64 registers
        sums = cute.make_rmem_tensor(own.partition_shape_C((TILE_M, TILE_N)), cutlass.Float32)
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(index, tiles_m, tiles_n)
            # The first wgmma overwrites the sums, the others add.
            multiply_mma.set(warpgroup.Field.ACCUMULATE, False)
            xw_stage = xw_consumer.wait_and_advance()
            warpgroup.fence()
            multiply_mma = multiply(
                xw_x_parts[None, None, None, xw_stage.index],
                xw_w_parts[None, None, None, xw_stage.index],
                sums,
                multiply_mma,
            )
            warpgroup.commit_group()
            for _ in cutlass.range(tiles_k - 1, unroll=1):
                xw_next = xw_consumer.wait_and_advance()
                warpgroup.fence()
                multiply_mma = multiply(
                    xw_x_parts[None, None, None, xw_next.index],
                    xw_w_parts[None, None, None, xw_next.index],
                    sums,
                    multiply_mma,
                )
                warpgroup.commit_group()
                # The newest group stays in flight: only the stages before it have been read.
                warpgroup.wait_group(1)
                xw_stage.release()
                xw_stage = xw_next
            warpgroup.wait_group(0)
            xw_stage.release()
            block = cute.make_identity_tensor((TILE_M, TILE_N))
            block = cute.domain_offset((m * TILE_M, n * TILE_N), block)
            multiply_finish(sums, own.partition_C(block))
            store_sums_global(sums, own.partition_C(block), out_gmem)
    else:
        # ---- load --------------------------------------------------------------------------------
        xw_producer = xw_ring.make_producer()
        xw_x_to, xw_x_from = partition_tma(tma_x, xw_x_smem, (TILE_M, TILE_K))
        xw_w_to, xw_w_from = partition_tma(tma_w, xw_w_smem, (TILE_N, TILE_K))
        for index in cutlass.range(first, tiles, step, unroll=1):
            m, n = tile_coord(index, tiles_m, tiles_n)
            for k in cutlass.range(tiles_k, unroll=1):
                xw_stage = xw_producer.acquire_and_advance()
                xw_x_tile = xw_x_from[None, m, k]
                cute.copy(
                    tma_x.atom,
                    xw_x_tile,
                    xw_x_to[None, xw_stage.index],
                    tma_bar_ptr=xw_stage.barrier,
                )
                xw_w_tile = xw_w_from[None, n, k]
                cute.copy(
                    tma_w.atom,
                    xw_w_tile,
                    xw_w_to[None, xw_stage.index],
                    tma_bar_ptr=xw_stage.barrier,
                )
                xw_stage.commit()
        # Leaves no arrive pending: waits until every stage has been released.
        xw_producer.tail()


def make_mma(dtype, columns: int, k: int, warps: int) -> cute.TiledMma:
    """wgmma of both operands from SMEM, the symbol that is summed over contiguous, f32 sums."""
    shape, source, major = (64, columns, k), warpgroup.OperandSource.SMEM, OperandMajorMode.K
    op = warpgroup.MmaF16BF16Op(dtype, cutlass.Float32, shape, source, major, major)
    return cute.make_tiled_mma(op, (warps // 4, 1, 1))


@cute.jit
def launch(problem: cute.Pointer, stream: cuda.CUstream):
    """The compiled host side: tensor maps, grid and launch, for the numbers that `custom` packs."""
    # One argument instead of 10: the DSL needs microseconds to convert each.
    numbers = cute.make_tensor(problem, cute.make_layout(10))
    m, n, k, max_blocks = [cutlass.Int32(numbers[i]) for i in range(4)]
    gmem = cute.AddressSpace.gmem
    x_row = cute.assume(numbers[7], X_ALIGN)
    x_ptr = cute.make_ptr(X_DTYPE, numbers[4], gmem, assumed_align=16)
    x = cute.make_tensor(x_ptr, cute.make_layout((m, k), stride=(x_row, 1)))
    w_row = cute.assume(numbers[8], W_ALIGN)
    w_ptr = cute.make_ptr(W_DTYPE, numbers[5], gmem, assumed_align=16)
    w = cute.make_tensor(w_ptr, cute.make_layout((n, k), stride=(w_row, 1)))
    out_row = cute.assume(numbers[9], OUT_ALIGN)
    out_ptr = cute.make_ptr(OUT_DTYPE, numbers[6], gmem, assumed_align=16)
    out = cute.make_tensor(out_ptr, cute.make_layout((m, n), stride=(out_row, 1)))

    load = cpasync.CopyBulkTensorTileG2SOp()
    x_layout = swizzled_layout(SmemLayoutAtomKind.K_SW128, X_DTYPE, (TILE_M, TILE_K), 1)
    tma_x = cpasync.make_tiled_tma_atom(load, x, x_layout, (TILE_M, TILE_K))
    w_layout = swizzled_layout(SmemLayoutAtomKind.K_SW128, W_DTYPE, (TILE_N, TILE_K), 1)
    tma_w = cpasync.make_tiled_tma_atom(load, w, w_layout, (TILE_N, TILE_K))

    multiply_mma = make_mma(cutlass.BFloat16, TILE_N, 16, MULTIPLY_WARPS)
    tiles_m = cute.ceil_div(m, TILE_M)
    tiles_n = cute.ceil_div(n, TILE_N)
    tiles_k = cute.ceil_div(k, TILE_K)
    tiles = tiles_m * tiles_n
    custom_kernel(tma_x, tma_w, out, multiply_mma, tiles_m, tiles_n, tiles_k, tiles).launch(
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


def custom(x, w, out, stream=None):
    """Writes out from x, w, on the current device.

    Tensors of torch, or of others through DLPack (jax, cupy). `stream`: a CUstream, an int or a
    torch stream; None is torch's current stream if torch is in use, else the default stream.
    """
    operands = {
        "x": operand("x", x, "bfloat16", 2, X_ALIGN),
        "w": operand("w", w, "bfloat16", 2, W_ALIGN),
        "out": operand("out", out, "float32", 2, OUT_ALIGN),
    }
    addresses, devices, shapes, row_strides = zip(*operands.values())
    m, k = shapes[0]
    n = shapes[1][0]
    wanted = ((m, k), (n, k), (m, n))
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


def reference(torch, m: int, n: int, k: int, x, w):
    """What `custom` should write, in float64; takes torch's float64 tensors."""
    return {
        "out": (x @ w.T),
    }


def check(torch, m: int, n: int, k: int) -> bool:
    """Compares one size with the reference, and sees that nothing beside the results is written."""
    inputs, outputs, around = {}, {}, {}

    def longer(size, align):
        # Rows longer than the matrix: odd sizes stay aligned, and every stride counts.
        return (size // align + 1) * align

    values = torch.randn((m, longer(k, X_ALIGN)), device="cuda")
    inputs["x"] = values.to(torch.bfloat16)[:m, :k]
    values = torch.randn((n, longer(k, W_ALIGN)), device="cuda")
    inputs["w"] = values.to(torch.bfloat16)[:n, :k]
    around["out"] = torch.full(
        (m + 1, longer(n, OUT_ALIGN)), float("nan"), dtype=torch.float32, device="cuda"
    )
    outputs["out"] = around["out"][:m, :n]
    custom(inputs["x"], inputs["w"], outputs["out"])
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
