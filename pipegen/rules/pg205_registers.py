# SPDX-License-Identifier: Apache-2.0
"""The register split must be one that setmaxnreg can make.

What it checks
    Warpgroups of each role; register counts that are multiples of 8 from 24 to 256; and that all
    roles together ask for no more than the launch allocated.

Why
    setmaxnreg.inc waits until the pool holds enough registers. If the roles ask for more than the
    block was given, it waits for ever (PTX ISA, "setmaxnreg").

Example
    Three warpgroups start with 168 registers a thread, 504 together: 40 + 2 * 240 = 520 hangs.

Use instead
    Leave registers out: pipegen fills in 40 for the producer and the most that remains.
"""

from collections.abc import Iterator

from pipegen.arithmetic import launch_registers, setmaxnreg_valid
from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.hardware import HARDWARE, WARPGROUP

CONSUMER_WARPGROUPS = (1, 2)

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    producer, consumer = description.role.get("producer"), description.role.get("consumer")
    if producer is None or consumer is None:
        return
    sequential = description.kernel.style == "emit-pipeline"
    producers = (0,) if sequential else (1,)
    for role, entry, allowed in (
        ("producer", producer, producers),
        ("consumer", consumer, CONSUMER_WARPGROUPS),
    ):
        if entry.warpgroups not in allowed:
            yield Problem(
                f"the template is written for {listing(allowed)} {role} warpgroup(s)",
                f"role.{role}.warpgroups",
                entry.warpgroups,
                listing(allowed),
                str(min(allowed, key=lambda a: abs(a - (entry.warpgroups or 0)))),
            )
            return
        if entry.registers is not None and not setmaxnreg_valid(entry.registers):
            nearest = min(256, max(24, round(entry.registers / 8) * 8))
            yield Problem(
                "setmaxnreg takes no such count",
                f"role.{role}.registers",
                entry.registers,
                "multiples of 8 from 24 to 256",
                str(nearest),
            )
            return
    if sequential or producer.registers is None or consumer.registers is None:
        return
    warpgroups = 1 + (consumer.warpgroups or 0)
    start = launch_registers(WARPGROUP * warpgroups, HARDWARE[description.kernel.arch])
    asked = producer.registers + (consumer.warpgroups or 0) * consumer.registers
    if asked > start * warpgroups:
        most = (start * warpgroups - producer.registers) // (consumer.warpgroups or 1) // 8 * 8
        yield Problem(
            f"{warpgroups} warpgroups start with {start} registers a thread, "
            f"{start * warpgroups} together; {producer.registers} + {consumer.warpgroups} * "
            f"{consumer.registers} = {asked} would wait for ever",
            "role.consumer.registers",
            consumer.registers,
            f"at most {most}",
            str(most),
        )
