# SPDX-License-Identifier: Apache-2.0
"""Defaults of the mixed GEMMs, in place on a description's data."""

from typing import Any

from pipegen.arithmetic import consumer_registers
from pipegen.hardware import HARDWARE
from pipegen.planning.gemm_defaults import BLACKWELL_WARPGROUPS, PRODUCER_REGISTERS
from pipegen.planning.smem_mixed import depths
from pipegen.vocabulary import DTYPE


def fill_mixed(data: dict[str, Any]) -> None:
    """Types, tile, cluster, raster group and roles of a mixed GEMM."""
    kernel, dtype, tile = data["kernel"], data["dtype"], data["tile"]
    dtype["b"] = dtype["b"] or "i8"
    dtype["out"] = dtype["out"] or dtype["a"]
    if dtype["promote_every"] == "auto":
        dtype["promote_every"] = 0
    if tile["m"] is None:
        tile["m"] = 128
    if tile["n"] is None:
        tile["n"] = 128
    if tile["k"] is None:
        tile["k"] = _depth(DTYPE[dtype["b"]].bits, dtype["scale_group"])
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
        producer["registers"] = PRODUCER_REGISTERS[kernel["backend"]]
    if consumer["registers"] is None and 1 <= consumer["warpgroups"] <= 3:
        consumer["registers"] = consumer_registers(
            1, consumer["warpgroups"], producer["registers"], HARDWARE[kernel["arch"]]
        )


def _depth(weight_bits: int, scale_group: int) -> int:
    """128 of K, or the most below it that divides a group of scales."""
    fitting = [k for k in depths(weight_bits) if k <= 128 and scale_group % k == 0]
    return max(fitting, default=128)
