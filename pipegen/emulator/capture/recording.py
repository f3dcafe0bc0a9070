# SPDX-License-Identifier: Apache-2.0
"""Reads one launch out of the memory that the host half hands over.

`cudaLaunchConfig_t` of the CUDA runtime API: grid and block as six 32-bit words, dynamic SMEM (64
bit) at byte 24, the stream at 32, the attributes' address at 40, their number at 48. An attribute
has 72 bytes: its id (32 bits), four bytes of padding, and a value of 64 bytes.
"""

import ctypes
import struct
from dataclasses import dataclass

from pipegen.emulator.capture.entry import Parameter

CONFIG_BYTES = 56
_ATTRIBUTE_BYTES = 72
# cudaLaunchAttributeID
COOPERATIVE, CLUSTER, PROGRAMMATIC = 2, 4, 6
_ATTRIBUTES_MAX = 64
_FAT_MAGIC, _FAT_CUBIN = 0xBA55ED50, 2

Extent = tuple[int, int, int]


@dataclass(frozen=True)
class Config:
    """A launch's configuration, as `Launch` names its parts."""

    grid: Extent
    block: Extent
    smem_bytes: int
    attributes: tuple[tuple[int, bytes], ...]

    @property
    def cluster(self) -> Extent:
        """CTAs of a cluster; (1, 1, 1) without the attribute."""
        value = dict(self.attributes).get(CLUSTER)
        x, y, z = struct.unpack_from("<3I", value) if value else (1, 1, 1)
        return x or 1, y or 1, z or 1

    def flag(self, attribute: int) -> bool:
        """Whether an attribute with a 32-bit value is set, and not to zero."""
        value = dict(self.attributes).get(attribute)
        return value is not None and struct.unpack_from("<I", value)[0] != 0


def read_config(address: int) -> Config:
    """The configuration at an address of this process."""
    raw = ctypes.string_at(address, CONFIG_BYTES)
    words = struct.unpack_from("<6I", raw)
    smem_bytes, _, attributes = struct.unpack_from("<3Q", raw, 24)
    (count,) = struct.unpack_from("<I", raw, 48)
    if count > _ATTRIBUTES_MAX:
        raise ValueError(f"a launch with {count} attributes: the configuration was not understood")
    found = []
    for index in range(count):
        each = ctypes.string_at(attributes + index * _ATTRIBUTE_BYTES, _ATTRIBUTE_BYTES)
        found.append((struct.unpack_from("<I", each)[0], each[8:]))
    return Config(words[0:3], words[3:6], smem_bytes, tuple(found))


def read_params(address: int, parameters: tuple[Parameter, ...]) -> tuple[bytes, ...]:
    """Each parameter's bytes: `address` is an array of pointers, one a parameter."""
    pointers = (ctypes.c_uint64 * len(parameters)).from_address(address) if parameters else ()
    return tuple(
        ctypes.string_at(pointer, parameter.bytes)
        for pointer, parameter in zip(pointers, parameters, strict=True)
    )


def read_cubins(address: int) -> tuple[bytes, ...]:
    """The cubins of the module image at an address: a fat binary, or one cubin by itself.

    A fat binary begins with a magic number, version (16 bits), the header's bytes (16 bits) and
    the bytes after it (64 bits). Each entry: its kind (16 bits), version (16 bits), the bytes of
    its header (32 bits) and of its payload (64 bits).
    """
    magic, _, header, size = struct.unpack("<IHHQ", ctypes.string_at(address, 16))
    if magic != _FAT_MAGIC:
        return (_read_elf(address),)
    found = []
    at, end = address + header, address + header + size
    while at < end:
        kind, _, head, payload = struct.unpack("<HHIQ", ctypes.string_at(at, 16))
        if kind == _FAT_CUBIN:
            found.append(ctypes.string_at(at + head, payload))
        at += head + payload
    return tuple(found)


def _read_elf(address: int) -> bytes:
    """An ELF file in memory: one of its two tables comes last.

    System V ABI, "ELF Header": offsets of the program and section tables at bytes 32 and 40, entry
    size and count of each from byte 54.
    """
    head = ctypes.string_at(address, 64)
    if head[:4] != b"\x7fELF":
        raise ValueError("the module that the host code loads is neither a cubin nor a fat binary")
    segments, sections = struct.unpack_from("<2Q", head, 32)
    segment, segment_count, section, section_count = struct.unpack_from("<4H", head, 54)
    end = max(segments + segment * segment_count, sections + section * section_count)
    return ctypes.string_at(address, end)
