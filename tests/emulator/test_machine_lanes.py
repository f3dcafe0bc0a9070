# SPDX-License-Identifier: Apache-2.0
"""Instructions of a warp's lanes, against Python's own arithmetic."""

import random
import struct

import numpy as np
import pytest
from small_kernels import launch_of, store_by_lane

from pipegen.emulator.machine import run
from pipegen.emulator.machine.formats import encode, fp8_values

M32 = 2**32 - 1


def signed(value: int) -> int:
    return value - 2**32 if value >> 31 else value


def cut_division(a: int, b: int) -> int:
    return int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


BINARY = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: signed(a) * signed(b) >> 32,
    "div.s32": lambda a, b: cut_division(signed(a), signed(b)),
    "div.u32": lambda a, b: a // b,
    "rem.s32": lambda a, b: signed(a) - cut_division(signed(a), signed(b)) * signed(b),
    "min.s32": lambda a, b: min(signed(a), signed(b)),
    "max.u32": max,
    "and.b32": lambda a, b: a & b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: signed(a) >> min(b, 31),
}


@pytest.mark.parametrize("opcode", BINARY)
@pytest.mark.parametrize("uniform", ["lanes", "first", "second", "both"])
def test_integers(opcode, uniform):
    """Lanes with their own values and lanes that agree take different ways in the machine."""
    draw = random.Random(opcode + uniform)
    small = opcode.startswith("sh")
    a = [draw.choice([0, 1, 7, M32, 2**31, draw.getrandbits(32)]) for _ in range(32)]
    b = [draw.randint(0, 40) if small else draw.getrandbits(draw.choice([3, 32])) | 1] * 32
    if uniform in ("lanes", "first"):
        b = [draw.randint(0, 40) if small else draw.getrandbits(32) | 1 for _ in range(32)]
    if uniform in ("first", "both"):
        a = [a[0]] * 32
    left, right = np.array(a, np.uint32), np.array(b, np.uint32)
    out = np.zeros(32, np.uint32)
    of_lane = "mul.wide.u32 %d5, %r1, 4; add.s64 %d6, %d1, %d5; add.s64 %d7, %d2, %d5;"
    first = f"mov.b32 %r2, {a[0]};" if uniform in ("first", "both") else "ld.global.b32 %r2, [%d6];"
    second = (
        f"mov.b32 %r3, {b[0]};" if uniform in ("second", "both") else ("ld.global.b32 %r3, [%d7];")
    )
    body = f"mov.u32 %r1, %tid.x; {of_lane} {first} {second} {opcode} %r4, %r2, %r3;"
    result = run(launch_of(body + store_by_lane("%r4"), out, left, right))
    assert result.findings == ()
    assert out.tolist() == [BINARY[opcode](x, y) & M32 for x, y in zip(a, b, strict=True)]


def test_lanes_part_and_meet_again():
    """A loop with another number of rounds in each lane, and a branch in its body."""
    body = """
    mov.u32 %r1, %tid.x;
    mov.b32 %r2, 0;
    mov.b32 %r3, 0;
AGAIN:
    setp.ge.u32 %p1, %r3, %r1;
    @%p1 bra DONE;
    and.b32 %r4, %r3, 1;
    setp.eq.b32 %p2, %r4, 0;
    @%p2 bra EVEN;
    add.s32 %r2, %r2, 100;
    bra NEXT;
EVEN:
    add.s32 %r2, %r2, %r3;
NEXT:
    add.s32 %r3, %r3, 1;
    bra AGAIN;
DONE:
    @!%p1 add.s32 %r2, %r2, 5;
    vote.sync.ballot.b32 %r5, %p1, -1;
    setp.eq.b32 %p3, %r5, -1;
    @%p3 add.s32 %r2, %r2, 1000;
"""
    out = np.zeros(32, np.uint32)
    run(launch_of(body + store_by_lane("%r2"), out))
    expected = [sum(100 if n % 2 else n for n in range(lane)) + 1000 for lane in range(32)]
    assert out.tolist() == expected


def test_lanes_that_end_early_leave_the_others_running():
    body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 20; @%p1 ret; mov.b32 %r2, 7;"
    out = np.zeros(32, np.uint32)
    run(launch_of(body + store_by_lane("%r2"), out))
    assert out.tolist() == [0] * 20 + [7] * 12


def test_elect_shuffle_and_permute():
    body = """
    mov.u32 %r1, %tid.x;
    elect.sync %r2|%p1, -1;
    selp.b32 %r3, 1, 0, %p1;
    shfl.sync.bfly.b32 %r4, %r1, 5, 31, -1;
    shfl.sync.down.b32 %r5|%p2, %r1, 30, 31, -1;
    selp.b32 %r6, 1, 0, %p2;
    prmt.b32 %r7, %r4, 0x11223344, 0x7410;
    shl.b32 %r3, %r3, 16; shl.b32 %r6, %r6, 17;
    or.b32 %r8, %r3, %r6; or.b32 %r8, %r8, %r5; xor.b32 %r8, %r8, %r7;
"""
    out = np.zeros(32, np.uint32)
    run(launch_of(body + store_by_lane("%r8"), out))
    for lane in range(32):
        down = lane + 30 if lane < 2 else lane
        word = (1 << 16 if lane == 0 else 0) | (1 << 17 if lane < 2 else 0) | down
        assert out[lane] == word ^ (0x11_00_00_00 | 0x44 << 16 | (lane ^ 5))


def test_floats_are_rounded_to_nearest_even():
    numbers = np.array([1.00390625, 1.01171875, -3.0e38, 1e-40] * 8, np.float32)
    out = np.zeros(32, np.uint32)
    body = """
    mov.u32 %r1, %tid.x; mul.wide.u32 %d5, %r1, 4; add.s64 %d6, %d1, %d5;
    ld.global.b32 %r2, [%d6];
    cvt.rn.bf16x2.f32 %r3, %r2, 0f3F800000;
"""
    run(launch_of(body + store_by_lane("%r3"), out, numbers))
    # 1 + 2^-8 is half way between 1 and 1 + 2^-7: to even, 1. 1 + 3 * 2^-8 goes to 1 + 2^-6.
    assert [hex(x) for x in out[:2]] == ["0x3f803f80", "0x3f823f80"]
    assert out[2] >> 16 == 0xFF62  # -3.0e38


@pytest.mark.parametrize(
    ("word", "added", "expected"),
    [
        # 1 + 2^-30 lies between two f32; so does 1 - 2^-60 times itself, though f64 cannot hold it.
        ("rn", 2.0**-30, 1.0),
        ("rm", 2.0**-30, 1.0),
        ("rp", 2.0**-30, np.nextafter(np.float32(1), np.float32(2))),
        ("rm", -(2.0**-60), np.nextafter(np.float32(1), np.float32(0))),
        ("rp", 2.0**-60, np.nextafter(np.float32(1), np.float32(2))),
        ("rp", -(2.0**-60), 1.0),
    ],
)
def test_fma_is_rounded_in_a_direction(word, added, expected):
    out = np.zeros(32, np.float32)
    number = struct.unpack("<I", struct.pack("<f", added))[0]
    body = f"fma.{word}.f32 %r2, 0f3F800000, 0f3F800000, 0f{number:08X};"
    run(launch_of(body + store_by_lane("%r2"), out))
    assert (out == np.float32(expected)).all()


def test_a_conversion_can_keep_a_number_between_0_and_1():
    numbers = np.array([-1.5, 0.25, 7.0, np.nan] * 8, np.float32)
    out = np.zeros(32, np.float32)
    body = """
    mov.u32 %r1, %tid.x; mul.wide.u32 %d5, %r1, 4; add.s64 %d6, %d1, %d5;
    ld.global.b32 %r2, [%d6];
    cvt.sat.f32.f32 %r3, %r2;
"""
    run(launch_of(body + store_by_lane("%r3"), out, numbers))
    assert out[:4].tolist() == [0.0, 0.25, 1.0, 0.0]


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_8_bit_floats_round_to_the_nearest_of_their_numbers(kind):
    table = fp8_values(kind)
    finite = table[np.isfinite(table)].astype(np.float64)
    draw = np.random.default_rng(1)
    numbers = np.concatenate([finite, draw.normal(0, 1, 500), draw.normal(0, 100, 500)])
    coded = encode(numbers.astype(np.float32), kind, saturate=True)
    error = np.abs(table[coded] - numbers)
    best = np.abs(finite[:, None] - np.clip(numbers, finite.min(), finite.max())).min(axis=0)
    inside = np.abs(numbers) <= finite.max()
    np.testing.assert_allclose(error[inside], best[inside], rtol=1e-6)


def test_accesses_outside_the_arrays_are_told_and_do_no_harm():
    out = np.zeros(20, np.uint32)
    result = run(launch_of("mov.b32 %r2, 9;" + store_by_lane("%r2"), out))
    assert [f.kind for f in result.findings] == ["out-of-bounds"]
    assert "after the end of array0" in result.findings[0].message
    assert out.tolist() == [9] * 20


def test_atomics_take_each_lane():
    out = np.zeros(2, np.float32)
    body = """
    add.s64 %d5, %d0, 4;
    red.global.add.f32 [%d0], 0f3F000000;
    mov.u32 %r1, %tid.x;
    atom.global.add.u32 %r2, [%d5], 2;
"""
    run(launch_of(body, out, threads=64))
    assert out[0] == 32.0
    assert struct.unpack("<I", out[1].tobytes())[0] == 128


def test_two_clusters_that_write_the_same_bytes_are_told():
    out = np.zeros(64, np.uint32)
    both = launch_of("mov.b32 %r2, 9;" + store_by_lane("%r2"), out, ctas=2)
    assert [f.kind for f in run(both).findings] == ["race"]
    own = "mov.u32 %r3, %ctaid.x; mul.wide.u32 %d6, %r3, 128; add.s64 %d0, %d0, %d6;"
    apart = launch_of(own + "mov.b32 %r2, 9;" + store_by_lane("%r2"), out, ctas=2)
    assert run(apart).findings == ()
    assert out.tolist() == [9] * 64
