# SPDX-License-Identifier: Apache-2.0
"""Columns of TMEM."""

from pipegen.hardware import TMEM_COLUMNS_MAX, TMEM_COLUMNS_MIN


def tmem_columns(buffers: int, tile_n: int) -> int:
    """TMEM columns of `buffers` f32 accumulators of `tile_n` columns, as they are allocated:
    a power of two from 32 (PTX, "tcgen05.alloc"). More than 512 cannot be had."""
    columns = TMEM_COLUMNS_MIN
    while columns < buffers * tile_n:
        columns *= 2
    return columns


def most_accumulators(tile_n: int) -> int:
    """f32 accumulators of `tile_n` columns that fit in TMEM."""
    return TMEM_COLUMNS_MAX // tile_n
