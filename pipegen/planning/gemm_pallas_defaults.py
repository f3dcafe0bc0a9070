# SPDX-License-Identifier: Apache-2.0
"""Defaults of the Pallas Hopper GEMMs, in place on a description's data."""

from typing import Any

from pipegen.arithmetic import accumulator_registers
from pipegen.planning.gemm_defaults import fill_gemm
from pipegen.planning.release import fill_release

WGMMA_ROWS = 64
# Three warpgroups: 64 rows each; and as wide as ptxas allows in a block of 512 threads (PG204).
TILE_OF_THREE = {"m": 192, "n": 192}
# Accumulators that three consumer warpgroups have room for when a thread that loads holds the usual
# 56 registers: (512 - 56) / 3 = 152, of which 32 are for the rest. Holding 32 it leaves them 160.
ROOM_OF_THREE = 120
PRODUCER_OF_THREE = 32


def fill_gemm_pallas(data: dict[str, Any]) -> None:
    """What all GEMMs have, and then the split, the memory thread and the release distance."""
    roles, tile = data["role"], data["tile"]
    consumer = roles["consumer"]
    specialized = data["kernel"]["style"] != "emit-pipeline"
    if specialized:
        _fill_warpgroups(roles["producer"], consumer, tile)
    fill_gemm(data)
    warpgroups = consumer["warpgroups"]
    if specialized:
        if consumer["split"] is None and warpgroups > 1:
            consumer["split"] = "m" if tile["m"] % (WGMMA_ROWS * warpgroups) == 0 else "n"
        if roles["producer"]["memory_thread_idx"] is None:
            roles["producer"]["memory_thread_idx"] = warpgroups
    # One warpgroup leaves a wgmma in flight, so that the tensor core is never without; of several,
    # one computes while another waits.
    fill_release(data, 0 if warpgroups > 1 else 1)


def _fill_warpgroups(
    producer: dict[str, Any], consumer: dict[str, Any], tile: dict[str, Any]
) -> None:
    """Consumer warpgroups where the tile or the split tells, and the tile of three."""
    if consumer["warpgroups"] is None and consumer["split"] == "n":
        consumer["warpgroups"] = 2
    elif consumer["warpgroups"] is None and tile["m"] in (192, 384):
        consumer["warpgroups"] = 3
    if consumer["warpgroups"] == 3:
        rows = 2 * WGMMA_ROWS if consumer["split"] == "n" else TILE_OF_THREE["m"]
        tile["m"] = rows if tile["m"] is None else tile["m"]
        tile["n"] = TILE_OF_THREE["n"] if tile["n"] is None else tile["n"]
        accumulators = accumulator_registers(tile["m"], tile["n"], 3)
        if producer["registers"] is None and accumulators > ROOM_OF_THREE:
            producer["registers"] = PRODUCER_OF_THREE
