# SPDX-License-Identifier: Apache-2.0
"""Tensor maps are decoded, and encoded, as the CUDA driver of an H200 encodes them."""

import struct
from pathlib import Path

import pytest

from pipegen.emulator.launch import TensorMap
from pipegen.emulator.tensor_map import TensorMapError, decode_tensor_map, encode_tensor_map

_DRIVER = Path(__file__).parent / "references" / "tensor_maps_h200.txt"
_ADDRESS = 0x7FBCD0800000
_SIZES = 1000, 300, 5, 7, 9
_STRIDES = 2016, 604800, 4838400, 38707200
_BOX = 64, 2, 3, 4, 5
_ROUND_STRIDES = 2048, 2048 * 300, 2048 * 300 * 8, 2048 * 300 * 64
# cuTensorMapEncodeTiled's CUtensorMapDataType, in the order of its numbers.
_TYPES = (
    *(("u8", 8), ("u16", 16), ("u32", 32), ("s32", 32), ("u64", 64), ("s64", 64), ("f16", 16)),
    *(("f32", 32), ("f64", 64), ("bf16", 16), ("f32.ftz", 32), ("tf32", 32), ("tf32.ftz", 32)),
)


def _words(name: str) -> bytes:
    """The driver's bytes for a case; what is after the first 64 must not matter."""
    lines = dict(line.split(": ") for line in _DRIVER.read_text().splitlines() if line[0] != "#")
    words = [int(word, 16) for word in lines[name].split()]
    return struct.pack("<8Q", *words) + b"\xa5" * 64


def _map(**fields: object) -> TensorMap:
    """A bf16 matrix of 1000 x 300 in boxes of 16 x 16, with some fields otherwise."""
    given = {
        "address": _ADDRESS,
        "dtype": "bf16",
        "element_bits": 16,
        "sizes": (1000, 300),
        "strides": (2016,),
        "box": (16, 16),
        "element_strides": (1, 1),
    }
    return TensorMap(**(given | fields))  # type: ignore[arg-type]


def _ranked(rank: int, **fields: object) -> TensorMap:
    given = {
        "sizes": _SIZES[:rank],
        "strides": _STRIDES[: rank - 1],
        "box": _BOX[:rank],
        "element_strides": (1,) * rank,
    }
    return _map(**(given | fields))


def _typed(number: int) -> TensorMap:
    name, bits = _TYPES[number]
    box = (2 if bits == 64 else 16, 16)
    return _map(dtype=name, element_bits=bits, sizes=(1024, 300), strides=(128 * bits,), box=box)


def _longest_stride(index: int) -> TensorMap:
    strides = list(_ROUND_STRIDES)
    strides[index] = 2**40 - 16
    return _ranked(5, strides=tuple(strides))


def _interleaved(word: str, swizzle: int) -> TensorMap:
    return _map(
        sizes=(1024, 300, 5),
        strides=_ROUND_STRIDES[:2],
        box=(16, 16, 2),
        element_strides=(1, 1, 1),
        interleave=word,
        swizzle=swizzle,
    )


_BOX_WITH_STEPS = (64, 8, 3, 4, 5)
_U8 = {"dtype": "u8", "element_bits": 8}
CASES = {
    **{f"rank{rank}": _ranked(rank) for rank in range(1, 6)},
    **{f"dtype{number}": _typed(number) for number in range(len(_TYPES))},
    **{f"sw{code}": _map(swizzle=span) for code, span in ((1, 32), (2, 64), (3, 128))},
    **{f"l2 {code}": _map(l2_promotion=span) for code, span in ((1, 64), (2, 128), (3, 256))},
    **{f"max stride {index}": _longest_stride(index) for index in range(4)},
    "oob 1": _map(oob_nan=True),
    "il 1": _interleaved("16B", 0),
    "il 2": _interleaved("32B", 32),
    "es5": _ranked(5, box=_BOX_WITH_STEPS, element_strides=(2, 3, 4, 5, 6)),
    "es8 5": _ranked(5, box=_BOX_WITH_STEPS, element_strides=(1, 8, 7, 2, 3)),
    "big size": _map(**_U8, sizes=(2**32, 2**20), strides=(2**32,), box=(64, 2)),
    "box 256": _map(**_U8, sizes=(1024, 300), strides=(1024,), box=(256, 256)),
    "all": _ranked(
        5,
        dtype="tf32",
        element_bits=32,
        strides=(4000, 1200000, 9600000, 76800000),
        box=(32, 2, 3, 4, 5),
        swizzle=128,
        l2_promotion=256,
        oob_nan=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_map_of_the_driver_is_decoded(name: str) -> None:
    """Every field, from the bytes that a real driver wrote for known arguments."""
    assert decode_tensor_map(_words(name)) == CASES[name]


@pytest.mark.parametrize("name", CASES)
def test_a_map_is_encoded_as_the_driver_does(name: str) -> None:
    """The same 64 bytes; what is after them means nothing."""
    raw = encode_tensor_map(CASES[name])
    assert len(raw) == 128
    assert raw[:64] == _words(name)[:64]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"address": _ADDRESS + 8}, "multiples of 16 bytes"),
        ({"strides": (2008,)}, "multiples of 16 bytes"),
        ({"sizes": (0, 300)}, "each must be 1 to 2"),
        ({"box": (16, 257)}, "each must be 1 to 256"),
    ],
)
def test_a_map_that_the_driver_refuses_is_not_encoded(fields: dict[str, object], said: str) -> None:
    """Its limits (CUDA driver API, cuTensorMapEncodeTiled)."""
    with pytest.raises(ValueError, match=said):
        encode_tensor_map(_map(**fields))


def test_each_stored_map_is_a_case() -> None:
    """A case that is left out would be checked by nothing."""
    names = {line.split(":")[0] for line in _DRIVER.read_text().splitlines() if line[0] != "#"}
    assert names == set(CASES)


def test_the_bytes_of_a_box_are_those_of_smem() -> None:
    """Packed types fill 16 B with 16 elements; an element stride leaves elements out."""
    assert _map().box_bytes == 16 * 16 * 2
    assert _map(dtype="b4x16", element_bits=4, box=(128, 4)).box_bytes == 256
    assert _map(dtype="b4x16_p64", element_bits=4, box=(128, 4)).box_bytes == 512
    assert _map(dtype="b6x16_p32", element_bits=6, box=(128, 4)).box_bytes == 512
    assert _map(box=(16, 5), element_strides=(1, 2)).box_bytes == 16 * 3 * 2


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\0" * 63, "has 128 bytes, not 63"),
        (struct.pack("<8Q", 16, 0x511, 0, 0, 0, 0, 0, 0), "its kind is 1"),
        (struct.pack("<8Q", 16, 0x570, 0, 0, 0, 0, 0, 0), "of 8 dimensions"),
        (struct.pack("<8Q", 16, 0x790, 0, 0, 0, 0, 0, 0), "element type 15"),
        (struct.pack("<8Q", 16, 0x1D10, 0, 0, 0, 0, 0, 0), "interleave 3"),
        (struct.pack("<8Q", 16, 0x10510, 0, 0, 0, 0, 0, 0), "read as tf32 bf16"),
    ],
)
def test_bytes_that_are_no_map_are_refused(raw: bytes, said: str) -> None:
    """A guess would let a kernel copy from anywhere."""
    with pytest.raises(TensorMapError, match=said):
        decode_tensor_map(raw)
