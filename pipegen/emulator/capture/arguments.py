# SPDX-License-Identifier: Apache-2.0
"""Finds the memory behind a call's arguments: what a kernel may touch.

Pure functions over the arguments. Whatever names an address and an extent counts: tensors of the
DSL's runtime, numpy arrays, torch tensors on the CPU, the emulator's own tensors, and those inside
tuples, lists, dicts and dataclasses. A bare pointer has no extent and gives no buffer.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipegen.emulator.launch import Buffer

_DEPTH = 4


def buffers_of(arguments: Mapping[str, object]) -> tuple[Buffer, ...]:
    """The buffers behind named arguments, in order; the same range twice is named after both."""
    found: dict[tuple[int, int], str] = {}
    for name, argument in arguments.items():
        for place, address, size in _walk(name, argument, _DEPTH):
            key = address, size
            if place not in found.get(key, "").split(" and "):
                found[key] = f"{found[key]} and {place}" if key in found else place
    return tuple(Buffer(address, size, name) for (address, size), name in found.items() if size)


def byte_range(
    address: int, shape: Sequence[int], strides: Sequence[int], width: int
) -> tuple[int, int]:
    """(first, length) of what a strided array covers, gaps included.

    `address`, `strides` and `width` (of an element) are in one unit: bytes, or bits. An array
    without elements covers nothing.
    """
    if any(size == 0 for size in shape):
        return address, 0
    reach = [stride * (size - 1) for size, stride in zip(shape, strides, strict=True)]
    low = sum(min(0, each) for each in reach)
    high = sum(max(0, each) for each in reach)
    return address + low, high - low + width


def _walk(name: str, value: object, depth: int) -> Iterator[tuple[str, int, int]]:
    if found := _range_of(value):
        yield name, *found
        return
    if depth == 0:
        return
    for place, item in _parts(name, value):
        yield from _walk(place, item, depth - 1)


def _parts(name: str, value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)  # a named tuple's
        return [
            (f"{name}.{names[i]}" if names else f"{name}[{i}]", item)
            for i, item in enumerate(value)
        ]
    if isinstance(value, Mapping):
        return [(f"{name}[{key!r}]", item) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [(f"{name}.{field.name}", getattr(value, field.name)) for field in fields]
    return []


def _range_of(value: Any) -> tuple[int, int] | None:
    """(address, bytes) of something array-like, or None."""
    if isinstance(value, int | float | str | bytes | bool) or value is None:
        return None
    interface = getattr(value, "__array_interface__", None)
    if isinstance(interface, dict):
        return _numpy_range(value)
    pointer = getattr(value, "data_ptr", None)
    if pointer is None or not hasattr(value, "shape"):
        return None
    if callable(pointer):  # torch's way
        width = int(value.element_size())
        strides = [int(stride) * width for stride in value.stride()]
        return byte_range(int(pointer()), [int(size) for size in value.shape], strides, width)
    return _dsl_range(value, int(pointer))


def _numpy_range(value: Any) -> tuple[int, int]:
    width = int(value.itemsize)
    address = int(value.__array_interface__["data"][0])
    return byte_range(address, value.shape, value.strides, width)


def _dsl_range(value: Any, address: int) -> tuple[int, int] | None:
    """Of a `cutlass.cute.runtime` tensor: shape and stride may be nested, widths below a byte."""
    try:
        bits = int(value.element_type.width)
        shape = [int(size) for size in _flat(value.shape)]
        strides = [int(stride) for stride in _flat(value.stride)]
    except (AttributeError, TypeError, ValueError):
        return None  # a fake tensor of a compilation: it has no memory
    first, size = byte_range(0, shape, [stride * bits for stride in strides], bits)
    return address + first // 8, -(-size // 8)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    else:
        yield value
