# SPDX-License-Identifier: Apache-2.0
"""Makes a `Launch` of each call of a Pallas kernel: memory, host code, and what it launches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pipegen.emulator.capture.device import Device
from pipegen.emulator.capture.entry import entries
from pipegen.emulator.launch import Buffer, Launch
from pipegen.emulator.mosaic.compiling import Kernel
from pipegen.emulator.mosaic.host_code import HostCodeError
from pipegen.emulator.mosaic.runtime import run_host_code
from pipegen.errors import InputError

Array = np.ndarray[Any, Any]

# XLA's allocator of GPU memory gives each array a multiple of this.
_ALIGNMENT = 256
_GRID_MAX = 2**31 - 1  # CUDA C++ Programming Guide, "Compute Capabilities"
_POISON = 0xFF  # of each byte that nothing wrote: NaN in every floating-point type


class MosaicCapture:
    """Receives the calls of Pallas kernels. `execute` gets each launch, and may write its buffers.

    XLA stands between a call and whoever made it: an exception is kept, and `take_error` has it.
    """

    def __init__(self, device: Device, execute: Callable[[Launch], None], source: str = "") -> None:
        self.device = device
        self.launches: list[Launch] = []
        self._execute: Callable[[Launch], None] | None = execute
        self._source = source
        self._error: BaseException | None = None

    def close(self) -> None:
        """Execute nothing any more."""
        self._execute = None

    def lend(self, arrays: Mapping[str, object]) -> None:
        """As for other DSLs; a Pallas kernel gets no bare addresses, so that it is an error."""
        raise InputError(
            f"{', '.join(arrays)}: a Pallas kernel gets its arrays as operands, there is nothing "
            "to register"
        )

    @contextmanager
    def lending(self, arrays: Mapping[str, object]) -> Iterator[None]:
        """As `lend`."""
        self.lend(arrays)
        yield

    def take_error(self) -> BaseException | None:
        """The exception of a call since the last time, if there was one."""
        error, self._error = self._error, None
        return error

    def call(self, kernel: Kernel, arguments: Sequence[Array]) -> list[Array]:
        """Run a kernel on these arrays; its results."""
        try:
            return self._call(kernel, arguments)
        except BaseException as error:
            self._error = error
            raise

    def _call(self, kernel: Kernel, arguments: Sequence[Array]) -> list[Array]:
        if self._execute is None:
            raise InputError("a kernel that was compiled in an emulator was called after its end")
        results = [_memory(shape, dtype) for shape, dtype in kernel.results]
        operands = []
        for operand in kernel.operands:
            given = None if operand.argument is None else arguments[operand.argument]
            shared = None if operand.aliased is None else results[operand.aliased]
            memory = _memory(operand.shape, operand.dtype) if shared is None else shared
            memory[:] = 0 if given is None else _stored(given)
            operands.append(memory)
        launch = self._launch(kernel, [*operands, *results])
        self.launches.append(launch)
        self._execute(launch)
        shapes = [kernel.results[index] for index in kernel.returned]
        return [
            _read(results[index], shape, dtype)
            for index, (shape, dtype) in zip(kernel.returned, shapes, strict=True)
        ]

    def _launch(self, kernel: Kernel, arrays: Sequence[Array]) -> Launch:
        found = entries(kernel.code.ptx)
        if len(found) != 1:
            raise InputError(f"Mosaic GPU's PTX has {len(found)} kernels: the emulator knows one")
        ((name, parameters),) = found.items()
        addresses = [array.ctypes.data for array in arrays]
        try:
            host = run_host_code(kernel.code.host, addresses, parameters)
        except HostCodeError as error:
            raise InputError(f"the launch of {name} cannot be captured: {error}") from error
        if max(host.grid) > _GRID_MAX or min(host.grid) < 1:
            raise InputError(
                f"{name} is launched with a grid of {host.grid}: this GPU has too few SMs for it "
                f"({self.device.sms}), or the kernel counts them wrong"
            )
        names = _names(kernel)
        buffers = {
            address: Buffer(address, array.nbytes, names[index])
            for index, (address, array) in enumerate(zip(addresses, arrays, strict=True))
        }
        return Launch(
            ptx=kernel.code.ptx,
            kernel=name,
            grid=host.grid,
            block=host.block,
            cluster=host.cluster,
            smem_bytes=host.smem_bytes,
            params=host.params,
            buffers=tuple(buffers.values()),
            sms=self.device.sms,
            source=self._source,
            order=len(self.launches),
            by_mosaic=True,
            barriers=kernel.barriers,
        )


def _names(kernel: Kernel) -> list[str]:
    """What a message calls the operands and results: by number, as the kernel's function has them.

    What is neither an argument nor returned is the kernel's scratch.
    """
    inputs = [
        "scratch" if each.argument is None else f"input {each.argument}" for each in kernel.operands
    ]
    place = {index: number for number, index in enumerate(kernel.returned)}
    outputs = [
        f"output {place[index]}" if index in place else "scratch"
        for index in range(len(kernel.results))
    ]
    return [*inputs, *outputs]


def _memory(shape: Sequence[int], dtype: Any) -> Array:
    """Bytes for an array as a GPU holds it, aligned and poisoned."""
    count = int(np.prod(shape, dtype=np.int64))
    size = -(-count * _bits(dtype) // 8)
    raw = np.full(size + _ALIGNMENT, _POISON, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]


def _bits(dtype: Any) -> int:
    """Bits of an element in GPU memory: XLA packs integers of 2 and 4 bits."""
    name = np.dtype(dtype).name
    packed = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
    return packed.get(name, int(np.dtype(dtype).itemsize) * 8)


def _stored(array: Array) -> Array:
    """The bytes of an array in GPU memory; the first of packed elements is in the lowest bits."""
    bits = _bits(array.dtype)
    flat: Array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if bits >= 8:
        return flat
    packed = flat.reshape(-1, 8 // bits) & (1 << bits) - 1
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    joined: Array = np.bitwise_or.reduce(packed << shifts, axis=1)
    return joined


def _read(memory: Array, shape: Sequence[int], dtype: Any) -> Array:
    if _bits(dtype) < 8:
        raise InputError(f"a kernel returns {np.dtype(dtype).name}, which the emulator does not")
    seen: Array = memory.view(dtype).reshape(shape)
    return seen
