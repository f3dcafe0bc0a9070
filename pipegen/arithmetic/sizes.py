# SPDX-License-Identifier: Apache-2.0
"""Bytes of tiles and stages."""

from pipegen.hardware import MBARRIER_BYTES


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is at least `value`."""
    return -(-value // alignment) * alignment


def tile_bytes(rows: int, columns: int, element_bits: int) -> int:
    """Bytes of a dense tile."""
    return rows * columns * element_bits // 8


def operand_stage_bytes(
    tile_mnk: tuple[int, int, int], a_bits: int, b_bits: int
) -> tuple[int, int]:
    """Bytes of the A and of the B tile of one stage.

    With multicast each CTA issues a part of the copies, and still receives both whole tiles: the
    sum is also the stage's tx_count (PTX, "mbarrier complete-tx": bytes count where they land).
    """
    m, n, k = tile_mnk
    return tile_bytes(m, k, a_bits), tile_bytes(n, k, b_bits)


def order_barrier_bytes(depth: int, length: int) -> int:
    """Bytes of the mbarriers of a `PipelineOrder`: one for each group and each turn of a round
    (DSL, `PipelineOrder.create`: depth * length)."""
    return depth * length * MBARRIER_BYTES


def ring_barrier_bytes(stages: int) -> int:
    """Bytes of a ring's mbarriers: a full and an empty one for each stage, 8 B each
    (PTX, "Size and alignment of mbarrier object")."""
    return 2 * stages * MBARRIER_BYTES


def exchange_bytes(rows: int, columns: int) -> int:
    """Bytes of a tile's f32 sums, which the CTAs of split K read from each other's SMEM."""
    return tile_bytes(rows, columns, 32)
