# SPDX-License-Identifier: Apache-2.0
"""Defaults of the mixed GEMMs, in place on a description's data."""

from typing import Any

from pipegen.arithmetic import consumer_registers, pallas_consumer_registers
from pipegen.hardware import HARDWARE
from pipegen.planning.gemm_defaults import BLACKWELL_WARPGROUPS, PRODUCER_REGISTERS
from pipegen.planning.smem_mixed import depths
from pipegen.vocabulary import DTYPE

# Registers of Mosaic GPU's producer: with 56, a GEMM's, it spills in some mixed GEMMs, and with 64
# its consumers would ask for more than there is (rule PG205).
PALLAS_PRODUCER = 72
FEW_TOKENS = 64


def fill_mixed(data: dict[str, Any]) -> None:
    """Types, tile, cluster, raster group and roles of a mixed GEMM."""
    kernel, dtype, tile = data["kernel"], data["dtype"], data["tile"]
    dtype["b"] = dtype["b"] or "i8"
    dtype["out"] = dtype["out"] or dtype["a"]
    if dtype["promote_every"] == "auto":
        dtype["promote_every"] = 0
    pallas = kernel["backend"] == "pallas"
    if tile["m"] is None:
        # Converted weights serve so many tokens: Mosaic GPU's conversion takes longer.
        tile["m"] = 256 if pallas else 128
    if tile["n"] is None:
        # Narrow tiles give every SM a share of the weights, where there are few tokens.
        tile["n"] = 64 if pallas and tile["m"] <= FEW_TOKENS else 128
    if tile["k"] is None:
        tile["k"] = _depth(kernel["backend"], dtype, tile["m"])
    if data["cluster"]["shape"] is None:
        data["cluster"]["shape"] = (1, 1)
    if data["scheduler"]["raster_group"] is None:
        data["scheduler"]["raster_group"] = 8
    roles = data["role"]
    if kernel["arch"] == "sm_100a":
        for name, warpgroups in BLACKWELL_WARPGROUPS.items():
            if name in roles and roles[name]["warpgroups"] is None:
                roles[name]["warpgroups"] = warpgroups
        return
    producer, consumer = roles["producer"], roles["consumer"]
    if producer["warpgroups"] is None:
        producer["warpgroups"] = 1
    if consumer["warpgroups"] is None:
        # 64 channels to a warpgroup: a narrow tile has work for one.
        consumer["warpgroups"] = 2 if tile["n"] % 128 == 0 else 1
    if producer["registers"] is None:
        usual = PRODUCER_REGISTERS[kernel["backend"]]
        producer["registers"] = PALLAS_PRODUCER if pallas else usual
    if consumer["registers"] is None and 1 <= consumer["warpgroups"] <= 3:
        if pallas:
            consumer["registers"] = pallas_consumer_registers(
                producer["registers"], consumer["warpgroups"]
            )
        else:
            consumer["registers"] = consumer_registers(
                1, consumer["warpgroups"], producer["registers"], HARDWARE[kernel["arch"]]
            )


def _depth(backend: str, dtype: dict[str, Any], tokens: int) -> int:
    """128 of K, or the most below it that divides a group of scales.

    In Pallas 64 for many tokens, whose A takes the most of a stage, and 256 or 512 for few: a stage
    costs a wait for wgmma, which it must be worth.
    """
    most = 128
    if backend == "pallas":
        most = 512 if tokens <= 16 else 256 if tokens <= FEW_TOKENS else 64
    group = dtype["scale_group"]
    every = depths(backend, DTYPE[dtype["b"]].bits)
    return max((k for k in every if k <= most and group % k == 0), default=most)
