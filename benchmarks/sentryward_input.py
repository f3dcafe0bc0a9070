# SPDX-License-Identifier: Apache-2.0
"""A captured launch as the input of `sentryward`, a static verifier of PTX (sm_100a).

What its command line takes besides the PTX: a JSON of the kind "spverify.kernel-input/v1" with the
launch, the parameters' values, and the tensor maps.
"""

import struct
from typing import Any

from pipegen.emulator.launch import Launch, TensorMap
from pipegen.emulator.ptx import parse
from pipegen.emulator.tensor_map import decode_tensor_map

_MAP_BYTES = 128


def kernel_input(launch: Launch) -> dict[str, Any]:
    """The input of one launch. ValueError for a tensor map that it has no words for."""
    kernel = parse(launch.ptx).kernel(launch.kernel)
    arguments: list[dict[str, Any]] = []
    maps: list[dict[str, Any]] = []
    for parameter, raw in zip(kernel.parameters, launch.params, strict=True):
        if len(raw) == _MAP_BYTES:
            maps.append(_map(parameter.name, decode_tensor_map(raw), launch))
        elif len(raw) == 8 and (owner := _owner(struct.unpack("<Q", raw)[0], launch)):
            arguments.append({"parameter": parameter.name, "type": "u64", "object": owner})
        else:
            arguments += _words(parameter.name, raw)
    return {
        "schema": "spverify.kernel-input/v1",
        "entry": launch.kernel,
        "launch": {
            "grid_dim": list(launch.grid),
            "block_dim": list(launch.block),
            "cluster_dim": list(launch.cluster),
            "dynamic_shared_bytes": launch.smem_bytes,
        },
        "arguments": arguments,
        "tma_descriptors": maps,
    }


def simplified(ptx: str) -> str:
    """The PTX without a modifier that sentryward 0.1.1 does not know, and that says the default.

    PTX ISA, "tcgen05.mma": without `.collector::a` it is `.collector::a::discard`.
    """
    return ptx.replace(".collector::a::discard", "")


def _words(name: str, raw: bytes) -> list[dict[str, Any]]:
    """A scalar, or the fields of a structure by their widths: 4 B, or 1 B where that is no word."""
    if len(raw) == 8:
        return [{"parameter": name, "type": "u64", "value": struct.unpack("<Q", raw)[0]}]
    found = []
    for offset in range(0, len(raw), 4):
        value = struct.unpack_from("<I", raw, offset)[0]
        found.append({"parameter": name, "type": "u32", "offset": offset, "value": value})
    return found


def _owner(address: int, launch: Launch) -> str | None:
    return next((b.name for b in launch.buffers if b.address <= address < b.end), None)


def _map(name: str, found: TensorMap, launch: Launch) -> dict[str, Any]:
    owner = _owner(found.address, launch)
    if owner is None:
        raise ValueError(f"the tensor map {name} describes none of the launch's arrays")
    buffer = next(b for b in launch.buffers if b.name == owner)
    return {
        "parameter": name,
        "object": owner,
        "offset": found.address - buffer.address,
        "rank": len(found.sizes),
        "element_type": found.dtype,
        "global_shape": list(found.sizes),
        "global_strides_bytes": list(found.strides),
        "box_shape": list(found.box),
        "element_strides": list(found.element_strides),
        "swizzle": f"{found.swizzle}B" if found.swizzle else "none",
        "interleave": found.interleave,
        "oob_fill": "nan" if found.oob_nan else "zero",
    }
