# SPDX-License-Identifier: Apache-2.0
"""Compiles one Pallas kernel for a GPU that is not there: its PTX and its host code.

XLA is given a description of the GPU (`jax.experimental.topologies`), and Mosaic GPU writes what it
makes into a folder (MOSAIC_GPU_DUMP_TO).
"""

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pipegen.emulator.capture.device import Device
from pipegen.emulator.mosaic.barrier_names import noting_barriers
from pipegen.emulator.mosaic.quiet import quietly
from pipegen.errors import InputError
from pipegen.hardware import Hardware

_TARGET = "mosaic_gpu_v2"
_DUMPS = ("MOSAIC_GPU_DUMP_PTX", "MOSAIC_GPU_DUMP_HOST_LLVM")
_SKIP = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"


@dataclass(frozen=True)
class Code:
    """A compiled kernel. `host`: the LLVM text of its host code."""

    ptx: str
    host: str


@dataclass(frozen=True)
class Operand:
    """Where a kernel's operand comes from: the call's `argument`, or None for zeros.

    `aliased`: which of the kernel's results lies in the same memory, or None.
    """

    argument: int | None
    shape: tuple[int, ...]
    dtype: Any
    aliased: int | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel and how it is called. `results`: (shape, dtype) of all, those of scratch too;
    `returned`: which of them the call returns, in order. `barriers`: SMEM offset -> the name of the
    mbarrier there."""

    code: Code
    operands: tuple[Operand, ...]
    results: tuple[tuple[tuple[int, ...], Any], ...]
    returned: tuple[int, ...]
    barriers: tuple[tuple[int, str], ...] = ()


# Mosaic GPU compiles a kernel once in a process: it writes nothing the second time.
_known: dict[bytes, Code] = {}
# The architecture of the first kernel: Mosaic GPU compiles all others of the process for it.
_archs: list[str] = []


def compile_kernel(function: Callable[..., Any], avals: Sequence[Any], device: Device) -> Kernel:
    """The kernel that `function` calls on arrays of these shapes and dtypes.

    InputError if it does more than to call one kernel, or if Mosaic GPU did not write its code.
    """
    jax: Any = importlib.import_module("jax")
    arch = device.hardware.arch
    if _archs and arch not in _archs:
        raise InputError(
            f"Pallas kernels were compiled for {_archs[0]} in this process, and must be compiled "
            f"for {arch}: Mosaic GPU keeps its target. One architecture a process"
        )
    _archs[:] = [arch]
    with quietly():
        sharding = jax.sharding.SingleDeviceSharding(_gpu(device.hardware))
        operands = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding) for aval in avals
        ]
        jitted = jax.jit(function, in_shardings=sharding, out_shardings=sharding)
        with noting_barriers() as barriers:
            lowered = jitted.trace(*operands).lower()
        key, kernel = _read_call(lowered.compiler_ir("stablehlo"))
        if key not in _known:
            with _dumping() as folder:
                lowered.compile()
                _known[key] = _read_code(folder)
    return replace(kernel(_known[key]), barriers=tuple(sorted(barriers.items())))


@contextmanager
def _dumping() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pipegen-mosaic-") as name:
        wanted = {"MOSAIC_GPU_DUMP_TO": name, **dict.fromkeys(_DUMPS, "1")}
        before = {key: os.environ.get(key) for key in wanted}
        os.environ.update(wanted)
        try:
            yield Path(name)
        finally:
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value


def _read_code(folder: Path) -> Code:
    ptx, host = sorted(folder.glob("*.ptx")), sorted(folder.glob("*.ll"))
    if len(ptx) != 1 or len(host) != 1:
        raise InputError(
            f"Mosaic GPU wrote {len(ptx)} files of PTX and {len(host)} of host code for a kernel, "
            "and should have written one of each: the emulator knows jax 0.10 to 0.12"
        )
    return Code(ptx[0].read_text("utf-8"), host[0].read_text("utf-8"))


def _read_call(module: Any) -> tuple[bytes, Callable[[Code], Kernel]]:
    """(the kernel's hash, how to make the kernel of its code), from StableHLO."""
    main = next(op for op in module.body if op.attributes["sym_name"].value == "main")
    (block,) = main.regions[0].blocks
    calls = [op for op in block if _is_call(op)]
    if len(calls) != 1:
        raise InputError(f"a pallas_call became {len(calls)} kernels: the emulator knows one")
    (call,) = calls
    config = call.attributes["mhlo.backend_config"]
    key = config["kernel_hash"].value_bytes
    aliases = _aliases(call)
    operands = tuple(
        Operand(_argument(value, block), *_array(value.type), aliases.get(index))
        for index, value in enumerate(call.operands)
    )
    results = tuple(_array(result.type) for result in call.results)
    (end,) = (op for op in block if op.operation.name == "func.return")
    places = [_place(value, call.results) for value in end.operands]
    returned = tuple(place for place in places if place is not None)
    if len(returned) < len(places):
        raise InputError("something happens to a kernel's results before they are returned")
    return key, lambda code: Kernel(code, operands, results, returned)


def _is_call(op: Any) -> bool:
    name = op.operation.name
    return bool(
        name == "stablehlo.custom_call" and op.attributes["call_target_name"].value == _TARGET
    )


def _aliases(call: Any) -> dict[int, int]:
    """Operand -> the result that shares its memory."""
    from jaxlib.mlir.dialects import stablehlo

    found = {}
    for each in call.attributes["output_operand_aliases"]:
        alias = stablehlo.OutputOperandAlias(each)
        (result,) = alias.output_tuple_indices or [0]
        found[alias.operand_index] = result
    return found


def _place(value: Any, values: Any) -> int | None:
    """The index of a value among others, or None."""
    return next((index for index, each in enumerate(values) if each == value), None)


def _argument(value: Any, block: Any) -> int | None:
    """Which argument a value is; None for zeros. InputError for anything else."""
    from jaxlib.mlir import ir

    if (index := _place(value, block.arguments)) is not None:
        return index
    op = value.owner
    name = op.operation.name
    if name == "stablehlo.broadcast_in_dim":
        return _argument(op.operands[0], block)
    if name == "stablehlo.constant":
        constant = ir.DenseElementsAttr(op.attributes["value"])
        splat: Any = constant.get_splat_value() if constant.is_splat else None
        if splat is not None and not splat.value:
            return None
    raise InputError(f"a kernel's operand is the result of {name}: the emulator knows zeros")


def _array(kind: Any) -> tuple[tuple[int, ...], Any]:
    """(shape, dtype) of a StableHLO array type."""
    from jaxlib.mlir import ir

    ranked = ir.RankedTensorType(kind)
    return tuple(ranked.shape), _dtype(str(ranked.element_type))


def _dtype(name: str) -> Any:
    """The numpy dtype of an element type's name in StableHLO."""
    import jax.numpy as jnp
    import numpy as np

    plain = {"i1": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
    if name in plain:
        return np.dtype(getattr(jnp, plain[name]) if name == "bf16" else plain[name])
    if name.startswith("f8"):
        return np.dtype(getattr(jnp, f"float8_{name[2:].lower()}"))
    kind = "uint" if name.startswith("ui") else "int"
    return np.dtype(getattr(jnp, kind + name.lstrip("ui")))


@cache
def _gpu(hardware: Hardware) -> Any:
    """The device to compile for."""
    from jax.experimental import topologies

    before = os.environ.get(_SKIP)
    os.environ[_SKIP] = "1"
    try:
        topology = topologies.get_topology_desc(
            hardware.arch, "cuda", topology="1x1x1", target_config=target_config(hardware)
        )
    except Exception as error:
        raise InputError(f"jax cannot compile for a GPU that is not there: {error}") from error
    finally:
        if before is None:
            del os.environ[_SKIP]
        else:
            os.environ[_SKIP] = before
    return topology.devices[0]


def target_config(hardware: Hardware) -> str:
    """What XLA asks a GPU about itself: a text-format GpuTargetConfigProto of XLA.

    Clock, bandwidth and memory only enter XLA's estimates of its own kernels' speed.
    """
    digits = hardware.arch.removeprefix("sm_").rstrip("af")
    return f"""
        platform_name: "CUDA"
        gpu_device_info {{
          cuda_compute_capability {{ major: {digits[:-1]} minor: {digits[-1]} }}
          core_count: {hardware.sm_count}
          fpus_per_core: 128
          clock_rate_ghz: 1.9
          memory_bandwidth: 4000000000000
          device_memory_size: 80000000000
          l2_cache_size: 52428800
          shared_memory_per_core: {hardware.smem_per_sm}
          shared_memory_per_block: 49152
          shared_memory_per_block_optin: {hardware.smem_per_block}
          registers_per_core_limit: {hardware.registers_per_sm}
          registers_per_block_limit: {hardware.registers_per_sm}
          threads_per_warp: 32
          threads_per_core_limit: {hardware.max_threads_per_sm}
          threads_per_block_limit: 1024
          block_dim_limit_x: 2147483647
          block_dim_limit_y: 65535
          block_dim_limit_z: 65535
        }}
    """
