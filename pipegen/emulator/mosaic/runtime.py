# SPDX-License-Identifier: Apache-2.0
"""Stands in for Mosaic GPU's runtime library, which the host code of a kernel calls.

Its calls and their arguments are those that jax 0.10 to 0.12 declare in the dumped host code:

    mosaic_gpu_init_tma_desc(map, base, element type, rank, sizes, strides, swizzle, box)
    mosaic_gpu_launch_kernel(kernel, grid x y z, cluster x y z, block x y z, SMEM bytes, stream,
                             parameters)                                        jax 0.10, 0.11
    mosaic_gpu_build_kernel_spec(spec, grid, cluster, block, SMEM bytes, flags, parameter count,
                                 parameters, their bytes)                       jax 0.12

Sizes, strides and box are arrays of 64-bit integers, in elements, outermost dimension first.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from pipegen.emulator.capture.entry import Parameter
from pipegen.emulator.capture.recording import read_params
from pipegen.emulator.launch import TensorMap
from pipegen.emulator.mosaic.host_code import Function, HostCodeError, functions, run_function
from pipegen.emulator.tensor_map import encode_tensor_map

Extent = tuple[int, int, int]

_LAUNCH = "mosaic_gpu_launch_kernel"
_SPEC = "mosaic_gpu_build_kernel_spec"
# Mosaic's element type -> (the tensor map's, bits of an element in memory). Elements of less than a
# byte travel as bytes.
_ELEMENTS = {
    0: ("u8", 4),
    1: ("u8", 8),
    2: ("u16", 16),
    3: ("u32", 32),
    4: ("u64", 64),
    5: ("f16", 16),
    6: ("f32", 32),
    7: ("bf16", 16),
    8: ("u8", 2),
    9: ("s32", 32),
    10: ("s64", 64),
}
_SWIZZLES = {16: 0, 32: 32, 64: 64, 128: 128}


@dataclass(frozen=True)
class HostLaunch:
    """What the host code launches. `params`: the bytes of each parameter of the kernel."""

    grid: Extent
    cluster: Extent
    block: Extent
    smem_bytes: int
    params: tuple[bytes, ...]


def run_host_code(
    text: str, operands: Sequence[int], parameters: Sequence[Parameter]
) -> HostLaunch:
    """The launch that a kernel's host code makes.

    `operands`: the addresses of the inputs, then of the outputs. `parameters`: those of the
    kernel's entry in the PTX. HostCodeError for host code that the emulator does not know.
    """
    launched: list[HostLaunch] = []

    def launch(given: Sequence[int]) -> None:
        grid, cluster, block = ((given[at], given[at + 1], given[at + 2]) for at in (1, 4, 7))
        cluster = cluster if cluster[0] else (1, 1, 1)
        params = read_params(given[12], tuple(parameters))
        launched.append(HostLaunch(grid, cluster, block, given[10], params))

    def specify(given: Sequence[int]) -> None:
        if given[12] != len(parameters):
            raise HostCodeError(
                f"the host code gives the kernel {given[12]} parameters, and its PTX has "
                f"{len(parameters)}"
            )
        launch([*given[:11], 0, given[13]])

    calls = {
        _LAUNCH: launch,
        _SPEC: specify,
        "mosaic_gpu_init_tma_desc": _init_tensor_map,
    }
    function = _host_function(text)
    pointers = (ctypes.c_uint64 * len(operands))(*operands)
    # The first argument or two stand for the kernel and the stream; the last is the operands'.
    given = [*[0] * (len(function.arguments) - 1), ctypes.addressof(pointers)]
    run_function(function, given, calls)
    if len(launched) != 1:
        raise HostCodeError(f"{function.name} launches {len(launched)} kernels: it must be one")
    return launched[0]


def _host_function(text: str) -> Function:
    found = [each for each in functions(text) if each.calls(_LAUNCH) or each.calls(_SPEC)]
    if len(found) != 1:
        raise HostCodeError(
            f"the host code has {len(found)} functions that launch a kernel by {_LAUNCH} or "
            f"{_SPEC}: the emulator knows Mosaic GPU as it is in jax 0.10 to 0.12"
        )
    return found[0]


def _init_tensor_map(given: Sequence[int]) -> None:
    """Write the 128 bytes of a tensor map, as `cuTensorMapEncodeTiled` would."""
    target, base, kind, rank, sizes_at, strides_at, swizzle, box_at = given
    if kind not in _ELEMENTS or swizzle not in _SWIZZLES or not 1 <= rank <= 5:
        raise HostCodeError(
            f"a tensor map of element type {kind}, rank {rank} and swizzle {swizzle}"
        )
    dtype, bits = _ELEMENTS[kind]
    packed = max(1, 8 // bits)  # elements in a byte
    sizes, strides, box = (_numbers(at, rank)[::-1] for at in (sizes_at, strides_at, box_at))
    if strides[0] != 1 or sizes[0] % packed or box[0] % packed:
        raise HostCodeError("a tensor map whose innermost dimension is not contiguous bytes")
    tensor_map = TensorMap(
        address=base,
        dtype=dtype,
        element_bits=max(8, bits),
        sizes=(sizes[0] // packed, *sizes[1:]),
        strides=tuple(stride * bits // 8 for stride in strides[1:]),
        box=(box[0] // packed, *box[1:]),
        element_strides=(1,) * rank,
        swizzle=_SWIZZLES[swizzle],
    )
    raw = encode_tensor_map(tensor_map)
    ctypes.memmove(target, raw, len(raw))


def _numbers(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address))
