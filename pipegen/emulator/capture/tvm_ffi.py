# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled with `--enable-tvm-ffi`: their host code is called through TVM FFI.

The call takes torch tensors or numpy arrays as they are, and refuses those that are not on a GPU.
It is given views of them that say so; the memory stays the CPU's. CuTe DSL 4.8, apache-tvm-ffi 0.1.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pipegen.emulator.capture.capture import Capture
from pipegen.emulator.capture.library import launch_library

_CPU, _CUDA = 1, 2  # DLDeviceType, dlpack.h
# Where a tensor object of TVM FFI (tvm/ffi/c_api.h) has its DLTensor, and that its device type.
_OBJECT_HEADER, _DEVICE_TYPE = 24, 8
_LIBRARIES = "CUTE_DSL_LIBS"
Patch = Callable[[Any, str, object], None]


def hook_tvm_ffi(
    capture: Capture, patch: Patch, own_errors: Callable[[Capture], AbstractContextManager[None]]
) -> None:
    """Link such kernels with the launch library, and see the arguments of each call."""
    try:
        from cutlass.cute import runtime
        from cutlass.cutlass_dsl import tvm_ffi_provider
    except ImportError:
        return  # apache-tvm-ffi is not installed: nothing can be compiled for it
    for name in ("TVMFFIJitCompiledFunction", "TVMFFIJitCompiledFunctionWithKwargs"):
        kind = getattr(tvm_ffi_provider, name)
        patch(kind, "__call__", _called(kind.__call__, capture, own_errors))
    base = tvm_ffi_provider.TVMFFIJitCompiledFunctionBase
    patch(base, "_create_tvm_ffi_function", _linked(base._create_tvm_ffi_function))
    patch(runtime._Tensor, "__init__", _made(runtime._Tensor.__init__))


def _made(make: Callable[..., None]) -> Callable[..., None]:
    """Tensors of `from_dlpack(..., enable_tvm_ffi=True)` say from the start that they are on a GPU.

    Their kernels are compiled for the device that they name.
    """

    def made(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:
        make(self, _on_gpu(tensor) if kwargs.get("enable_tvm_ffi") else tensor, *args, **kwargs)

    return made


def _linked(create: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The host code is linked a second time for TVM FFI, with what the environment names."""

    def linked(self: Any) -> Any:
        before = os.environ.get(_LIBRARIES)
        os.environ[_LIBRARIES] = str(launch_library())
        try:
            return create(self)
        finally:
            if before is None:
                del os.environ[_LIBRARIES]
            else:
                os.environ[_LIBRARIES] = before

    return linked


def _called(
    call: Callable[..., Any],
    capture: Capture,
    own_errors: Callable[[Capture], AbstractContextManager[None]],
) -> Callable[..., Any]:
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = {f"argument {index}": each for index, each in enumerate(args)}
        capture.calls({**named, **kwargs})
        with own_errors(capture):
            return call(self, *map(_on_gpu, args), **{k: _on_gpu(v) for k, v in kwargs.items()})

    return called


def _on_gpu(value: Any) -> Any:
    """A view of an array that says that it is on a GPU; other values as they are."""
    if isinstance(value, list):
        return [_on_gpu(each) for each in value]
    if isinstance(value, tuple):
        items = [_on_gpu(each) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if hasattr(value, "_tvm_ffi_tensor") or not hasattr(value, "__dlpack__"):
        return value
    if value.__dlpack_device__()[0] != _CPU:
        return value
    import tvm_ffi

    view = tvm_ffi.from_dlpack(value)
    where = view.__chandle__() + _OBJECT_HEADER + _DEVICE_TYPE
    device = ctypes.c_int32.from_address(where)
    if device.value != _CPU:
        raise RuntimeError("the layout of TVM FFI's tensors is not that of apache-tvm-ffi 0.1")
    device.value = _CUDA
    return view
