# SPDX-License-Identifier: Apache-2.0
"""Turns the CuTe DSL of this process to the launch library, and back.

The DSL links the host half of a kernel with the library that its settings name, and asks the CUDA
runtime for the device in a few places in Python. Both are answered here, for as long as a capture
lasts. CuTe DSL 4.8.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pipegen.compiling.installed import version_of
from pipegen.emulator.capture.capture import Capture
from pipegen.emulator.capture.library import launch_library
from pipegen.errors import InputError

_ARCH = "CUTE_DSL_ARCH"
_MISSING = object()


def session_arch(wanted: str | None) -> str:
    """The architecture to compile for: asked for, or CUTE_DSL_ARCH. InputError if there is none.

    The DSL reads it when it is imported, so that a process has one: asking for another is an error.
    """
    set_before = os.environ.get(_ARCH, "")
    arch = wanted or set_before
    if not arch:
        raise InputError(
            "the emulator must know the architecture: say `pipegen.emulator(arch=...)`, for "
            f'example "sm_90a", or set {_ARCH}'
        )
    if "cutlass" in sys.modules and set_before != arch:
        before = f"{_ARCH}={set_before}" if set_before else f"without {_ARCH}"
        raise InputError(
            f"cutlass was imported {before} and must be compiled for {arch}: the DSL reads its "
            f"target when it is imported. Set {_ARCH}={arch} in the environment, or start the "
            "emulator before cutlass is imported, in a process of its own for each architecture"
        )
    os.environ[_ARCH] = arch
    return arch


@contextmanager
def hooked(capture: Capture) -> Iterator[None]:
    """While this lasts, kernels are compiled for, and launched by, the capture."""
    _require_dsl()
    from cutlass.base_dsl import jit_executor
    from cutlass.utils import HardwareInfo

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pipegen-emulator-"))

        def patch(target: Any, name: str, value: object) -> None:
            stack.enter_context(patched(target, name, value))

        for dsl in _dsls():
            _hook_compiler(dsl, capture, folder, patch)
        _hook_calls(jit_executor, capture, patch)
        _hook_device(HardwareInfo, capture, patch)
        stack.callback(capture.close)
        capture.listen()
        yield


def _require_dsl() -> None:
    version = version_of("nvidia-cutlass-dsl")
    try:
        import cutlass  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"the emulator needs the CuTe DSL: {error}. Install it with pip install 'pipegen[cute]'"
        ) from error
    if version.split(".")[:2] != ["4", "8"]:
        raise InputError(
            f"the emulator knows nvidia-cutlass-dsl 4.8; installed is {version or 'another one'}"
        )


def _dsls() -> list[Any]:
    """The DSLs of the process: settings and compiler are one object each."""
    from cutlass import cutlass_dsl

    names = ("CuTeDSL", "CuteExperimentalDSL")
    return [getattr(cutlass_dsl, name)._get_dsl() for name in names if hasattr(cutlass_dsl, name)]


def _hook_compiler(
    dsl: Any, capture: Capture, folder: str, patch: Callable[[Any, str, object], None]
) -> None:
    """Link with our library, and keep each module's PTX beside its machine code.

    A host function that is called without `cute.compile` is compiled and run in one go: its
    arguments are seen where their types are read.
    """
    build = dsl._build_jit_function
    read_types = dsl.generate_mlir_function_types

    def typed(
        func: Any, name: str, args: Any, kwargs: Any, sig: Any, *rest: Any, **more: Any
    ) -> Any:
        capture.calls({**dict(zip(sig.parameters, args, strict=False)), **kwargs})
        return read_types(func, name, args, kwargs, sig, *rest, **more)

    def built(*args: Any, **kwargs: Any) -> Any:
        function = build(*args, **kwargs)
        artifacts = getattr(function, "artifacts", None)
        if artifacts is not None and isinstance(artifacts.CUBIN, bytes) and artifacts.PTX:
            capture.add_module(artifacts.CUBIN, artifacts.PTX)
        if hasattr(function, "_load_cuda_library"):
            function._load_cuda_library = _loader(function._load_cuda_library, capture)
        return function

    patch(dsl, "_build_jit_function", built)
    patch(dsl, "generate_mlir_function_types", typed)
    # Keeping PTX turns the DSL's caches off, and it warns of that: what is compiled here must not
    # be launched outside, nor the other way round.
    patch(dsl, "print_warning", lambda *args, **kwargs: None)
    patch(dsl.envar, "shared_libs", str(launch_library()))
    patch(dsl.envar, "dump_dir", folder)
    patch(dsl.envar, "keep_ptx", True)
    patch(dsl.envar, "keep_cubin", True)
    # `.loc` lines: a finding names the line of the source.
    patch(dsl.envar, "lineinfo", True)


def _loader(load: Callable[[], Any], capture: Capture) -> Callable[[], list[Any]]:
    """Loads a module through the launch library, and hands out none of its handles.

    The DSL would give them to the CUDA runtime when the module is dropped, perhaps long after the
    capture; without a list it has nothing to give back.
    """

    def loaded() -> list[Any]:
        with _own_errors(capture):
            load()
        return []

    return loaded


@contextmanager
def _own_errors(capture: Capture) -> Iterator[None]:
    """Raise what went wrong on our side of the host half, in the place of its error number."""
    try:
        yield
    except Exception:
        if (error := capture.take_error()) is not None:
            raise error from None
        raise
    if (error := capture.take_error()) is not None:
        raise error


def _hook_calls(executor: Any, capture: Capture, patch: Callable[[Any, str, object], None]) -> None:
    """See the arguments of each host call, and raise what went wrong in its launches."""
    arguments_class, executor_class = executor.ExecutionArgs, executor.JitExecutor
    generate = arguments_class.generate_execution_args
    run = executor_class.run_compiled_program

    def generated(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = list(self._meta.all_names)
        names += [f"argument {index}" for index in range(len(names), len(args))]
        capture.calls({**dict(zip(names, args, strict=False)), **kwargs})
        return generate(self, args, kwargs)

    def ran(self: Any, exe_args: list[Any]) -> Any:
        with _own_errors(capture):
            return run(self, exe_args)

    patch(arguments_class, "generate_execution_args", generated)
    patch(executor_class, "run_compiled_program", ran)


def _hook_device(
    hardware: Any, capture: Capture, patch: Callable[[Any, str, object], None]
) -> None:
    """Answer what Python code asks about the device."""
    import cuda.bindings.runtime as runtime

    success = runtime.cudaError_t.cudaSuccess
    device = capture.device
    patch(runtime, "cudaGetDeviceCount", lambda: (success, device.ordinal + 1))
    patch(runtime, "cudaGetDevice", lambda: (success, device.ordinal))
    patch(runtime, "cudaSetDevice", lambda number: (success,))
    patch(runtime, "cudaDeviceSynchronize", lambda: (success,))
    patch(runtime, "cudaStreamSynchronize", lambda stream: (success,))
    patch(hardware, "__init__", lambda self, device_id=0: None)
    patch(
        hardware,
        "get_max_active_clusters",
        lambda self, cluster_size, stream=None: device.max_active_clusters(cluster_size),
    )
    patch(hardware, "get_device_multiprocessor_count", lambda self: device.sms)
    patch(hardware, "get_l2_cache_size_in_bytes", lambda self: 50 << 20)


@contextmanager
def patched(target: Any, name: str, value: object) -> Iterator[None]:
    """Set an attribute, and put back what was there: its own value, or none."""
    before = vars(target).get(name, _MISSING)
    setattr(target, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(target, name)
        else:
            setattr(target, name, before)
