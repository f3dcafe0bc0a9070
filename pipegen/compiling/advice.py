# SPDX-License-Identifier: Apache-2.0
"""What to change in a description whose kernel spills registers. Pure functions of the text."""

import tomllib
from collections.abc import Iterator

from pydantic import ValidationError

from pipegen.arithmetic import accumulator_registers, launch_registers, pallas_consumer_registers
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, SETMAXNREG_STEP, WARPGROUP
from pipegen.planning.defaults import resolve
from pipegen.planning.gemm_defaults import PRODUCER_REGISTERS
from pipegen.vendor.header import read_header

# Registers that a memory warpgroup of Mosaic GPU may be given: index arithmetic needs no more.
_MOST_MEMORY_REGISTERS = 88
_GENERAL = "a smaller tile, more warpgroups, or another split of the registers between the roles"


def spill_advice(text: str) -> str:
    """What may help a module that spills: keys of its description, the likeliest first.

    Read from the description in the module's header; general words where there is none.
    """
    description = _description(text)
    found = list(_changes(description)) if description else []
    return f"What may help: {'; '.join(found) or _GENERAL}"


def _description(text: str) -> KernelDescription | None:
    """The description in a module's header, with its defaults; None if there is no such."""
    header = read_header(text)
    if header is None:
        return None
    try:
        return resolve(KernelDescription.model_validate(tomllib.loads(header.description)))
    except (tomllib.TOMLDecodeError, ValidationError):
        return None


def _changes(description: KernelDescription) -> Iterator[str]:
    """Changes of one key each."""
    tile = description.tile
    consumer = description.role.get("consumer")
    warpgroups = (consumer.warpgroups if consumer else None) or 1
    m, n = tile.m or 0, tile.n or 0
    if description.kernel.backend == "pallas":
        yield from _memory_registers(description, warpgroups)
    if description.kernel.arch == "sm_90a" and m and n > 16:
        held = accumulator_registers(m, n, warpgroups)
        narrower = max(16, n // 2 // 16 * 16)
        yield f"tile.n = {narrower}, now {n}: the accumulator takes {held} registers of a thread"
        more = warpgroups + 1
        if description.kernel.style == "warp-specialized" and m % (64 * more) == 0:
            yield (
                f"role.consumer.warpgroups = {more}, now {warpgroups}: each holds "
                f"{accumulator_registers(m, n, more)} registers of the accumulator"
            )


def _memory_registers(description: KernelDescription, consumers: int) -> Iterator[str]:
    """Other counts for the memory warpgroup, that jax and the launch's pool allow."""
    producer = description.role.get("producer")
    now = producer.registers if producer else None
    if now is None:
        return
    pool = (1 + consumers) * launch_registers(
        WARPGROUP * (1 + consumers), HARDWARE[description.kernel.arch]
    )
    fitting = [
        count
        for count in range(SETMAXNREG_STEP * 3, _MOST_MEMORY_REGISTERS + 1, SETMAXNREG_STEP)
        if count + consumers * pallas_consumer_registers(count, consumers) <= pool
    ]
    usual = PRODUCER_REGISTERS["pallas"]
    higher = [count for count in fitting if count > now]
    if now < usual and higher:
        best = min(higher, key=lambda count: abs(count - usual))
        yield (
            f"role.producer.registers = {best} (memory_registers), now {now}: the memory "
            "warpgroup's index arithmetic"
        )
        return
    around = [str(c) for c in (*[c for c in fitting if c < now][-1:], *higher[:1])]
    if around:
        yield (
            f"role.producer.registers = {' or '.join(around)} (memory_registers), now {now}: what "
            "one role gains the other loses"
        )
