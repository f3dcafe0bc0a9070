# SPDX-License-Identifier: Apache-2.0
"""Turns JAX's Pallas of this process to the emulator, and back.

JAX runs on the CPU. It has no rule by which a Pallas kernel of Mosaic GPU runs there: ours compiles
the kernel for the emulated GPU, and calls the capture in its place. What surrounds the kernels
(padding, slices) stays XLA's. jax 0.10 to 0.12.
"""

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pipegen.emulator.capture.device import Device
from pipegen.emulator.capture.hooks import patched
from pipegen.emulator.mosaic.capture import MosaicCapture
from pipegen.emulator.mosaic.compiling import compile_kernel
from pipegen.emulator.mosaic.quiet import quietly
from pipegen.errors import InputError

# Module -> the primitive that a Pallas kernel is, by versions of jax.
_PRIMITIVES = {
    "jax._src.pallas.pallas_call": "pallas_call_p",
    "jax._src.pallas.mpmd": "mpmd_map_p",
}


@dataclass(frozen=True)
class EmulatedGpu:
    """What `jax.devices()` has: the properties by which kernels choose."""

    compute_capability: str
    core_count: int
    device_kind: str
    id: int = 0
    platform: str = "gpu"

    def __str__(self) -> str:
        return f"emulated {self.device_kind}"


@contextmanager
def hooked(capture: MosaicCapture) -> Iterator[None]:
    """While this lasts, Pallas kernels run in the capture, and JAX has one emulated GPU."""
    with quietly():
        jax = _require_jax()
        jax.devices()
    mlir = importlib.import_module("jax._src.interpreters.mlir")
    rules = mlir._platform_specific_lowerings["cpu"]
    with ExitStack() as stack:
        for primitive in _primitives():
            common = mlir._lowerings[primitive].rule
            mlir.register_lowering(primitive, _rule(capture, primitive, common), platform="cpu")
            stack.callback(rules.pop, primitive, None)
        devices = jax.devices
        gpu = _gpu(capture.device)
        stack.enter_context(
            patched(jax, "devices", lambda *a, **k: devices(*a, **k) if a or k else [gpu])
        )
        # What was compiled before or in the emulator must not be taken for the other.
        jax.clear_caches()
        stack.callback(jax.clear_caches)
        stack.callback(capture.close)
        stack.enter_context(_silent(logging.getLogger("jax._src.callback")))
        with own_errors(capture):
            yield


@contextmanager
def own_errors(capture: Any) -> Iterator[None]:
    """Raise what went wrong on our side of XLA, in the place of XLA's error."""
    try:
        yield
    except Exception:
        if (error := capture.take_error()) is not None:
            raise error from None
        raise


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """JAX logs what a callback raises; whoever called the kernel gets it as an exception."""
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _require_jax() -> Any:
    if "jax" not in sys.modules:
        # The emulated GPU is none that JAX could find.
        os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        jax: Any = importlib.import_module("jax")
        importlib.import_module("jax.experimental.pallas.mosaic_gpu")
    except ImportError as error:
        raise InputError(
            f"the emulator needs jax to run Pallas kernels: {error}. Install it with pip install "
            "'pipegen[pallas]'"
        ) from error
    jax.config.update("jax_platforms", "cpu")
    # A callback reads its operands: it must not wait for the thread that it runs on.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return jax


def _primitives() -> list[Any]:
    found = []
    for module, name in _PRIMITIVES.items():
        try:
            found.append(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError):
            continue
    if not found:
        raise InputError("the emulator knows Pallas of jax 0.10 to 0.12, and this one is another")
    return found


def _gpu(device: Device) -> EmulatedGpu:
    major, minor = device.capability
    return EmulatedGpu(f"{major}.{minor}", device.sms, device.hardware.arch)


def _rule(capture: MosaicCapture, primitive: Any, common: Callable[..., Any]) -> Callable[..., Any]:
    """How a kernel becomes a program of the CPU: a call of the capture."""
    import numpy as np

    jax: Any = importlib.import_module("jax")
    mlir: Any = importlib.import_module("jax.interpreters.mlir")

    def lower(context: Any, *nodes: Any, **parameters: Any) -> Any:
        if parameters.get("interpret"):
            return common(context, *nodes, **parameters)

        def bound(*operands: Any) -> Any:
            return primitive.bind(*operands, **parameters)

        kernel = compile_kernel(bound, context.avals_in, capture.device)
        results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in context.avals_out]

        def call(*operands: Any) -> list[Any]:
            return capture.call(kernel, [np.asarray(each) for each in operands])

        def called(*operands: Any) -> Any:
            return jax.pure_callback(call, results, *operands)

        return mlir.lower_fun(called, multiple_results=True)(context, *nodes)

    return lower
