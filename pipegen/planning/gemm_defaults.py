# SPDX-License-Identifier: Apache-2.0
"""Defaults of the GEMMs, in place on a description's data (`KernelDescription.model_dump`)."""

from typing import Any

from pipegen.arithmetic import consumer_registers, pallas_consumer_registers
from pipegen.hardware import HARDWARE, SWIZZLE_BYTES
from pipegen.planning.turns import TURN_WARPGROUPS
from pipegen.vocabulary import DTYPE, ONE_STREAM_STYLES

# K tiles between two promotions: 512 elements of K at 128 a tile. The accumulation of fp8 wgmma
# keeps about 14 bits: 1.1e-3 relative error after 4096 elements on an H200, beyond 1e-3.
PROMOTE_EVERY = 4
# The output's type where it is not that of A.
OUTPUT_OF = {"e4m3": "bf16", "e5m2": "bf16", "i8": "i32", "i4": "i32"}
# Warpgroups of the Blackwell roles: the loads and the MMAs are one warp each.
BLACKWELL_WARPGROUPS = {
    "tma": 0,
    "mma": 0,
    "transform": 1,
    "statistic": 1,
    "epilogue": 1,
    "scheduler": 0,
}
# The same in a Pallas kernel whose warpgroups all take part in a loop over answers.
BLACKWELL_LOOP_WARPGROUPS = {**BLACKWELL_WARPGROUPS, "tma": 1, "mma": 1}
# Accumulator registers of a thread that the default tile takes: half of what ptxas can hold.
ACCUMULATOR_REGISTERS = 128
# Of a thread that issues TMA loads. Mosaic GPU's index arithmetic spills with 40 in some jax
# versions, and with 48 its consumers would ask for more than there is (rule PG205).
PRODUCER_REGISTERS = {"cute": 40, "cute-ts": 40, "pallas": 56}


def fill_gemm(data: dict[str, Any]) -> None:
    """Types, tile, cluster, raster group and roles of a GEMM."""
    kernel, dtype = data["kernel"], data["dtype"]
    style, backend = kernel["style"], kernel["backend"]
    dtype["b"] = dtype["b"] or dtype["a"]
    if dtype["out"] is None:
        dtype["out"] = OUTPUT_OF.get(dtype["a"], dtype["a"])
    if dtype["promote_every"] == "auto":
        short = DTYPE[dtype["a"]].fp8 and dtype["out"] == "f32"
        # wgmma's sums are short; tcgen05 adds up in f32.
        promotes = backend == "cute" and kernel["arch"] == "sm_90a"
        dtype["promote_every"] = PROMOTE_EVERY if short and promotes else 0

    tile = data["tile"]
    asked = data["role"].get("consumer") or {}
    turns = data["scheduler"]["consumers"] == "ping-pong"
    if turns:
        asked = {"warpgroups": 1}  # one warpgroup has the tile to itself
    _fill_tile(tile, asked, style, 2 if dtype["promote_every"] else 1, DTYPE[dtype["a"]].bits)
    if data["cluster"]["shape"] is None:
        # With split K the CTAs of a cluster share a tile already, and the tiles are few.
        whole = backend == "cute" and data["scheduler"]["split_k"] == 1
        wide = whole or data["cluster"]["cta_group"] == 2
        data["cluster"]["shape"] = (2, 1) if wide else (1, 1)
    if data["scheduler"]["raster_group"] is None:
        data["scheduler"]["raster_group"] = 8
    if kernel["arch"] == "sm_100a":
        for name, count in blackwell_warpgroups(backend, data["scheduler"]["tiles"]).items():
            if name in data["role"] and data["role"][name]["warpgroups"] is None:
                data["role"][name]["warpgroups"] = count
        return
    _fill_roles(data["role"], kernel, tile, turns)


def _fill_tile(
    tile: dict[str, Any], consumer: dict[str, Any], style: str, accumulators: int, bits: int
) -> None:
    """128 rows; the widest tile whose accumulators leave a consumer thread its registers; one
    stage row of 128 bytes: the widest swizzle, and the fewest barriers for its bytes."""
    if tile["m"] is None:
        tile["m"] = 128
    warpgroups = consumer.get("warpgroups") or _consumer_warpgroups(tile["m"], style)
    if tile["n"] is None:
        room = ACCUMULATOR_REGISTERS * 128 * min(max(warpgroups, 1), 2)
        tile["n"] = next((n for n in (256, 128) if accumulators * tile["m"] * n <= room), 64)
    if tile["k"] is None:
        tile["k"] = SWIZZLE_BYTES * 8 // bits


def blackwell_warpgroups(backend: str, tiles: str) -> dict[str, int]:
    """Warpgroups of each Blackwell role; 0 for a role of one warp."""
    loops = backend == "pallas" and tiles == "clc"
    return BLACKWELL_LOOP_WARPGROUPS if loops else BLACKWELL_WARPGROUPS


def _consumer_warpgroups(tile_m: int, style: str) -> int:
    # Two warpgroups need 64 rows each for wgmma; a 64-row tile has work for one.
    return 2 if tile_m % 128 == 0 and style not in ONE_STREAM_STYLES else 1


def _fill_roles(
    roles: dict[str, dict[str, Any]], kernel: dict[str, Any], tile: dict[str, int], turns: bool
) -> None:
    producer, consumer = roles["producer"], roles["consumer"]
    if kernel["style"] in ONE_STREAM_STYLES:
        # One warpgroup loads and computes: there is no producer, and nothing to split.
        producer["warpgroups"] = 0 if producer["warpgroups"] is None else producer["warpgroups"]
        consumer["warpgroups"] = consumer["warpgroups"] or 1
        return
    if producer["warpgroups"] is None:
        producer["warpgroups"] = 1
    if consumer["warpgroups"] is None:
        together = _consumer_warpgroups(tile["m"], str(kernel["style"]))
        consumer["warpgroups"] = TURN_WARPGROUPS if turns else together
    if producer["registers"] is None:
        producer["registers"] = PRODUCER_REGISTERS[kernel["backend"]]
    if consumer["registers"] is None and 1 <= consumer["warpgroups"] <= 3:
        if kernel["backend"] == "pallas":
            consumer["registers"] = pallas_consumer_registers(
                producer["registers"], consumer["warpgroups"]
            )
        else:
            consumer["registers"] = consumer_registers(
                1, consumer["warpgroups"], producer["registers"], HARDWARE[kernel["arch"]]
            )
