# SPDX-License-Identifier: Apache-2.0
"""Numbers that were worked out by hand (the derivation stands beside each), then invariants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipegen import arithmetic
from pipegen.hardware import HARDWARE

SM90 = HARDWARE["sm_90a"]


@pytest.mark.parametrize(
    ("tile", "a_bits", "b_bits", "a_bytes", "b_bytes"),
    [
        # A 128 x 64 x 2 B = 16 KiB; B 256 x 64 x 2 B = 32 KiB.
        ((128, 256, 64), 16, 16, 16 * 1024, 32 * 1024),
        # fp8: one byte an element, and K twice as deep for the same 128-byte row.
        ((128, 256, 128), 8, 8, 16 * 1024, 32 * 1024),
        # A 64 x 32 x 2 B = 4 KiB; B 16 x 32 x 2 B = 1 KiB.
        ((64, 16, 32), 16, 16, 4096, 1024),
    ],
)
def test_operand_stage_bytes(tile, a_bits, b_bits, a_bytes, b_bytes):
    assert arithmetic.operand_stage_bytes(tile, a_bits, b_bits) == (a_bytes, b_bytes)


@pytest.mark.parametrize(
    ("warps", "cluster", "arrivals"),
    [
        # Two consumer warpgroups are 8 warps; alone in its cluster a CTA signals itself only.
        (8, (1, 1), 8),
        # [2, 1]: B is shared along M with one more CTA; each of 8 warps signals both.
        (8, (2, 1), 16),
        (8, (1, 2), 16),
        # [2, 2]: itself, its neighbour along M, its neighbour along N; not the one across.
        (8, (2, 2), 24),
        # One consumer warpgroup, 4 warps, [2, 2]: 4 * 3.
        (4, (2, 2), 12),
    ],
)
def test_tma_consumer_arrive_count(warps, cluster, arrivals):
    assert arithmetic.tma_consumer_arrive_count(warps, cluster) == arrivals


def test_split_smem_of_the_default_gemm():
    # 232448 - 1024 (barriers) - 2 * 8192 (store buffers) = 215040; / 49152 = 4.375 -> 4 stages.
    # Left: 232448 - 1024 - 4 * 49152 = 34816; / 8192 = 4.25 -> 4 buffers.
    # Total: 1024 + 196608 + 32768 = 230400. Barriers: 4 full and 4 empty ones, 64 B.
    split = arithmetic.split_smem(232448, (16384, 32768), 8192, 8, 4)
    assert split == arithmetic.SmemSplit(4, 4, 64, 230400)


def test_split_smem_with_f32_output():
    # A buffer is 128 x 32 x 4 B = 16384. 232448 - 1024 - 32768 = 198656; / 49152 = 4.04 -> 4.
    # Left: 34816 / 16384 = 2.1 -> 2 buffers. Total: 1024 + 196608 + 32768.
    split = arithmetic.split_smem(232448, (16384, 32768), 16384, 8, 4)
    assert split == arithmetic.SmemSplit(4, 2, 64, 230400)


def test_split_smem_of_a_tile_that_does_not_fit():
    # 114688 B a stage: (232448 - 1024 - 2 * 8192) / 114688 = 1.87 -> one stage only.
    assert arithmetic.split_smem(232448, (65536, 49152), 8192, 6, 4).stages == 1


def test_split_smem_keeps_what_was_fixed():
    split = arithmetic.split_smem(232448, (16384, 32768), 8192, 8, 4, 3, 2)
    # 1024 + 3 * 49152 + 2 * 8192 = 164864.
    assert (split.stages, split.store_buffers, split.total_bytes) == (3, 2, 164864)


def test_smem_of_rings_that_are_no_multiple_of_1024():
    # Tile 64 x 16 x 16 bf16, 3 stages: A 3 * 2048 = 6144; B 3 * 512 = 1536 -> 2048; one buffer of
    # 64 x 16 x 2 = 2048; barriers 48 -> 1024. 1024 + 6144 + 2048 + 2048 = 11264, as compiled.
    assert arithmetic.smem_bytes((2048, 512), 2048, 3, 1) == 11264


@pytest.mark.parametrize(
    ("m", "n", "warpgroups", "registers"),
    # 128 x 256 / 256 threads = 128; 256 x 256 / 256 = 256 (does not fit); 64 x 128 / 128 = 64.
    [(128, 256, 2, 128), (256, 256, 2, 256), (64, 128, 1, 64), (128, 128, 1, 128)],
)
def test_accumulator_registers(m, n, warpgroups, registers):
    assert arithmetic.accumulator_registers(m, n, warpgroups) == registers


def test_launch_registers():
    # 65536 / 384 = 170.67 -> 168, the next multiple of 8 below. 65536 / 256 = 256.
    assert arithmetic.launch_registers(384, SM90) == 168
    assert arithmetic.launch_registers(256, SM90) == 256
    # 65536 / 512 = 128.
    assert arithmetic.launch_registers(512, SM90) == 128


def test_consumer_registers():
    # Three warpgroups hold 3 * 168 = 504; (504 - 40) / 2 = 232.
    assert arithmetic.consumer_registers(1, 2, 40, SM90) == 232
    # Two hold 2 * 256 = 512; 512 - 40 = 472, capped at 240.
    assert arithmetic.consumer_registers(1, 1, 40, SM90) == 240
    # Four hold 4 * 128 = 512; (512 - 32) / 3 = 160: the split that attention kernels use.
    assert arithmetic.consumer_registers(1, 3, 32, SM90) == 160


@pytest.mark.parametrize(
    ("registers", "valid"),
    [(24, True), (40, True), (256, True), (16, False), (42, False), (264, False)],
)
def test_setmaxnreg_valid(registers, valid):
    assert arithmetic.setmaxnreg_valid(registers) is valid


def test_blocks_per_sm():
    # 384 threads of 168 registers: 12 warps * 5376 = 64512 of 65536: one block by registers.
    assert arithmetic.blocks_per_sm(384, 168, 230400, SM90) == 1
    # 128 threads of 128 registers: 4 warps * 4096 = 16384: 4 by registers; 233472 / (64000 + 1024)
    # = 3.6: 3 by SMEM.
    assert arithmetic.blocks_per_sm(128, 128, 64000, SM90) == 3


operand_sizes = st.integers(1, 120).map(lambda units: units * 512)
buffer_sizes = st.integers(1, 32).map(lambda kib: kib * 1024)


@given(operand_sizes, operand_sizes, buffer_sizes, st.integers(1, 16))
def test_split_smem_fills_and_never_exceeds(a_bytes, b_bytes, buffer_bytes, subtiles):
    capacity = SM90.smem_per_block
    operands = (a_bytes, b_bytes)
    split = arithmetic.split_smem(capacity, operands, buffer_bytes, subtiles, 4)
    if split.stages == 0:
        return
    assert split.total_bytes <= capacity
    fewest = min(2, subtiles)
    assert arithmetic.smem_bytes(operands, buffer_bytes, split.stages + 1, fewest) > capacity
    if split.store_buffers < min(4, subtiles):
        more = split.store_buffers + 1
        assert arithmetic.smem_bytes(operands, buffer_bytes, split.stages, more) > capacity


@given(
    st.sampled_from([1, 2]),
    st.integers(3, 32).map(lambda eights: 8 * eights).filter(lambda r: r <= 128),
)
def test_consumer_registers_never_ask_for_more_than_the_launch_gave(warpgroups, producer):
    consumer = arithmetic.consumer_registers(1, warpgroups, producer, SM90)
    threads = 128 * (1 + warpgroups)
    allocated = arithmetic.launch_registers(threads, SM90) * threads
    assert 128 * (producer + warpgroups * consumer) <= allocated
    assert arithmetic.setmaxnreg_valid(consumer)


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        # A (1, 0) goes along N, B (0, 1) along M; the CTA that lies on both lines counts once.
        (arithmetic.multicast_partners((4, 2)), 5),
        (arithmetic.multicast_partners((4, 2), 2), 3),
        (arithmetic.multicast_partners((4, 2), 1, (1, 0)), 2),
        (arithmetic.multicast_partners((4, 2), 1, (0, 1)), 4),
        (arithmetic.tma_consumer_arrive_count(4, (2, 1), (0, 1)), 8),
        # A pair is one MMA: [4, 2] has 2 x 2 pairs, of which 3 share something with one.
        (arithmetic.umma_consumer_arrive_count((4, 2), 2), 3),
        # One commit and four warps, for each of three partners.
        (arithmetic.multi_consumer_arrive_count(4, (2, 2)), 15),
        (arithmetic.thread_producer_arrive_count(4), 128),
        (arithmetic.thread_producer_arrive_count(4, 2), 256),
        (arithmetic.cp_async_producer_arrive_count(4), 128),
        (arithmetic.elected_consumer_arrive_count(8), 8),
        (arithmetic.elected_consumer_arrive_count(4, 2), 8),
        # Two CTAs of 5 warps that read, two MMA warps, one scheduler: 13 warps.
        (arithmetic.clc_consumer_arrive_count((2, 1), 1, 5, 1), 416),
        (arithmetic.clc_consumer_arrive_count((2, 1), 2, 5, 1), 384),
        (arithmetic.order_arrive_count(4), 128),
    ],
)
def test_arrivals_by_hand(count, wanted):
    assert count == wanted
