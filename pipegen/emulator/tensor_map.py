# SPDX-License-Identifier: Apache-2.0
"""Decodes a tensor map: the 128 opaque bytes that a TMA instruction gets from the host.

The CuTe DSL's host code writes these bytes itself, as `cuTensorMapEncodeTiled` of the CUDA driver
does. The layout is not published: it was found by varying one property at a time, in the DSL and
with the driver of an H200, and the tests hold both. Only the first 64 bytes are read: the DSL
leaves the others unwritten. 64-bit words, little endian:

    word 0   address of element 0
    word 1   bits 0-3: kind (tiled: 0 from the driver, 2 from the DSL); 4-6: rank - 1; 7-10: element
             type; 11-12: interleave; 13-14: swizzle; 15: out-of-bounds elements read as NaN; 16:
             f32 read as tf32; 17-18: L2 promotion; 19-20: swizzle atom; 21: a hint of the DSL;
             32-63: stride 1
    word 2   strides 2 and 3, 32 bits each
    word 3   stride 4; 32-47: bits 32 to 35 of each of the strides 1 to 4
    word 4   sizes 0 and 1, word 5   sizes 2 and 3, 32 bits each, less one
    word 6   size 4 less one; 32-46: element strides 0 to 4, 3 bits each, less one; 56-63: box 0
    word 7   boxes 1 to 4, 8 bits each, less one

Strides are in units of 16 bytes.
"""

from typing import TypeVar

from pipegen.emulator.launch import TensorMap

_K = TypeVar("_K")
_V = TypeVar("_V")

BYTES = 128
_USED = 64
_TILED = (0, 2)
_STRIDE_UNIT = 16
# Element type -> (name, bits in global memory).
_TYPES = {
    0: ("u8", 8),
    1: ("u16", 16),
    2: ("u32", 32),
    3: ("s32", 32),
    4: ("u64", 64),
    5: ("s64", 64),
    6: ("f16", 16),
    7: ("f32", 32),
    8: ("f32.ftz", 32),
    9: ("f64", 64),
    10: ("bf16", 16),
    11: ("b4x16", 4),
    12: ("b4x16_p64", 4),
    13: ("b6x16_p32", 6),
}
_TF32 = {"f32": "tf32", "f32.ftz": "tf32.ftz"}
_INTERLEAVE = {0: "none", 1: "16B", 2: "32B"}
_SWIZZLE = {0: 0, 1: 32, 2: 64, 3: 128}
# Swizzle atom -> (bytes moved as one, whether its halves change places).
_ATOM = {0: (16, False), 1: (32, False), 2: (32, True), 3: (64, False)}
_L2 = {0: 0, 1: 64, 2: 128, 3: 256}


class TensorMapError(ValueError):
    """The bytes are no tensor map that we know."""


def decode_tensor_map(raw: bytes) -> TensorMap:
    """The tensor map that the bytes mean; `raw` is a kernel parameter or memory, 64 bytes or more.

    TensorMapError if the bytes are not a tiled tensor map, or use a field that we do not know.
    """
    if len(raw) < _USED:
        raise TensorMapError(f"a tensor map has {BYTES} bytes, not {len(raw)}")
    words = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, _USED, 8)]
    head = words[1]
    kind = _bits(head, 0, 4)
    if kind not in _TILED:
        raise TensorMapError(
            f"the bytes are no tiled tensor map: its kind is {kind}, must be 0 or 2 (im2col maps "
            "are not supported)"
        )
    rank = _bits(head, 4, 3) + 1
    if rank > 5:
        raise TensorMapError(f"a tensor map of {rank} dimensions: must be 1 to 5")
    name, bits = _known(_TYPES, "element type", _bits(head, 7, 4))
    if _bits(head, 16, 1):
        name = _known(_TF32, "element type read as tf32", name)
    atom, flip = _ATOM[_bits(head, 19, 2)]
    high = words[3] >> 32
    low = (words[1] >> 32, *_halves(words[2]), words[3] & 0xFFFFFFFF)
    strides = tuple(
        (each | _bits(high, 4 * i, 4) << 32) * _STRIDE_UNIT for i, each in enumerate(low)
    )
    sizes = (*_halves(words[4]), *_halves(words[5]), words[6] & 0xFFFFFFFF)
    boxes = (_bits(words[6], 56, 8), *(_bits(words[7], 8 * i, 8) for i in range(4)))
    steps = tuple(_bits(words[6], 32 + 3 * i, 3) + 1 for i in range(5))
    return TensorMap(
        address=words[0],
        dtype=name,
        element_bits=bits,
        sizes=tuple(size + 1 for size in sizes[:rank]),
        strides=strides[: rank - 1],
        box=tuple(box + 1 for box in boxes[:rank]),
        element_strides=steps[:rank],
        interleave=_known(_INTERLEAVE, "interleave", _bits(head, 11, 2)),
        swizzle=_SWIZZLE[_bits(head, 13, 2)],
        swizzle_atom=atom,
        swizzle_flip=flip,
        l2_promotion=_L2[_bits(head, 17, 2)],
        oob_nan=bool(_bits(head, 15, 1)),
    )


def _bits(word: int, at: int, count: int) -> int:
    return word >> at & (1 << count) - 1


def _halves(word: int) -> tuple[int, int]:
    return word & 0xFFFFFFFF, word >> 32


def _known(table: dict[_K, _V], what: str, value: _K) -> _V:
    if value not in table:
        raise TensorMapError(f"{what} {value} of a tensor map is not known")
    return table[value]


def encode_tensor_map(tensor_map: TensorMap) -> bytes:
    """The 128 bytes of a tiled tensor map, as the driver encodes them.

    ValueError for what the driver refuses: an address or stride that is no multiple of 16 bytes, a
    size or box out of range (CUDA driver API, `cuTensorMapEncodeTiled`).
    """
    rank = tensor_map.rank
    if tensor_map.address % _STRIDE_UNIT or any(s % _STRIDE_UNIT for s in tensor_map.strides):
        raise ValueError("address and strides of a tensor map are multiples of 16 bytes")
    if any(not 1 <= each <= 1 << 32 for each in tensor_map.sizes):
        raise ValueError(f"sizes {tensor_map.sizes} of a tensor map: each must be 1 to 2^32")
    if any(not 1 <= each <= 256 for each in tensor_map.box):
        raise ValueError(f"box {tensor_map.box} of a tensor map: each must be 1 to 256")
    plain = {narrow: wide for wide, narrow in _TF32.items()}
    stored = plain.get(tensor_map.dtype, tensor_map.dtype)
    kind = next(number for number, (name, _) in _TYPES.items() if name == stored)
    atom = tensor_map.swizzle_atom, tensor_map.swizzle_flip
    head = (
        rank - 1 << 4
        | kind << 7
        | _number(_INTERLEAVE, tensor_map.interleave) << 11
        | _number(_SWIZZLE, tensor_map.swizzle) << 13
        | tensor_map.oob_nan << 15
        | (stored != tensor_map.dtype) << 16
        | _number(_L2, tensor_map.l2_promotion) << 17
        | _number(_ATOM, atom) << 19
    )
    units = [stride // _STRIDE_UNIT for stride in tensor_map.strides]
    units += [0] * (4 - len(units))
    high = sum((unit >> 32) << 4 * i for i, unit in enumerate(units))
    low = [unit & 0xFFFFFFFF for unit in units]
    sizes = [size - 1 for size in tensor_map.sizes] + [0] * (5 - rank)
    boxes = [box - 1 for box in tensor_map.box] + [0] * (5 - rank)
    steps = sum(step - 1 << 3 * i for i, step in enumerate(tensor_map.element_strides))
    words = (
        tensor_map.address,
        head | low[0] << 32,
        low[1] | low[2] << 32,
        low[3] | high << 32,
        sizes[0] | sizes[1] << 32,
        sizes[2] | sizes[3] << 32,
        sizes[4] | steps << 32 | boxes[0] << 56,
        sum(box << 8 * i for i, box in enumerate(boxes[1:])),
    )
    return b"".join(word.to_bytes(8, "little") for word in words).ljust(BYTES, b"\0")


def _number(table: dict[int, _V], value: _V) -> int:
    return next(number for number, each in table.items() if each == value)
