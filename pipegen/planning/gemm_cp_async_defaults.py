# SPDX-License-Identifier: Apache-2.0
"""Defaults of a GEMM that loads by cp.async, in place on a description's data."""

from typing import Any

from pipegen.arithmetic import consumer_registers, row_copies
from pipegen.hardware import HARDWARE
from pipegen.planning.gemm_defaults import fill_gemm
from pipegen.vocabulary import DTYPE


def fill_gemm_cp_async(data: dict[str, Any]) -> None:
    """Those of a GEMM, but one CTA to a cluster, and registers for the producer's addresses."""
    if data["cluster"]["shape"] is None:
        data["cluster"]["shape"] = (1, 1)
    producer, consumer = data["role"]["producer"], data["role"]["consumer"]
    asked = producer["registers"], consumer["registers"]
    fill_gemm(data)
    tile, bits = data["tile"], DTYPE[data["dtype"]["a"]].bits
    if asked[0] is None:
        copies = row_copies((tile["m"], tile["n"]), bits, data["layout"]["alignment"])
        producer["registers"] = copies.registers
    if asked[1] is None and 1 <= consumer["warpgroups"] <= 3:
        consumer["registers"] = consumer_registers(
            1, consumer["warpgroups"], producer["registers"], HARDWARE[data["kernel"]["arch"]]
        )
