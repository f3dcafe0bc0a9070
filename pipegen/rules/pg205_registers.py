# SPDX-License-Identifier: Apache-2.0
"""The register split must be one that setmaxnreg can make.

What it checks
    Warpgroups of each role; register counts that are multiples of 8 from 24 to 256; and that all
    roles together ask for no more than the launch allocated. On sm_100a, that nothing is asked for.

Why
    setmaxnreg.inc waits until the pool holds enough registers. If the roles ask for more than the
    block was given, it waits for ever (PTX ISA, "setmaxnreg"). The Blackwell GEMM has one warp for
    the loads, one for the MMAs and four for the epilogue, and no register changes hands: the
    accumulator is in TMEM.

Example
    Three warpgroups start with 168 registers a thread, 504 together: 40 + 2 * 240 = 520 hangs.
    In Pallas, 48 for the memory warpgroup makes Mosaic GPU ask for 48 + 2 * 232 = 512: seen to
    hang on an H200 (jax 0.11.2). Four consumer warpgroups there start with 96 registers a thread,
    480 together, and Mosaic GPU asks for at least 24 + 4 * 120 = 504.

Use instead
    Leave registers out: pipegen fills in 40 for the producer (56 in Pallas) and the most that
    remains for the consumers.
"""

from collections.abc import Iterator

from pipegen.arithmetic import (
    consumer_registers,
    launch_registers,
    pallas_consumer_registers,
    setmaxnreg_valid,
)
from pipegen.description import KernelDescription, Role
from pipegen.errors import Problem, listing, nearest_number
from pipegen.hardware import (
    HARDWARE,
    SETMAXNREG_MAX,
    SETMAXNREG_MIN,
    SETMAXNREG_STEP,
    WARPGROUP,
    Hardware,
)
from pipegen.planning.gemm_defaults import blackwell_warpgroups
from pipegen.planning.turns import takes_turns
from pipegen.vocabulary import ONE_STREAM_STYLES

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    if description.kernel.arch == "sm_100a":
        yield from _fixed_warps(description)
        return
    producer, consumer = description.role.get("producer"), description.role.get("consumer")
    if producer is None or consumer is None:
        return
    found = list(_counts(description, producer, consumer))
    if found or description.kernel.style in ONE_STREAM_STYLES:
        yield from found
        return
    yield from _split(description, producer, consumer)


def _fixed_warps(description: KernelDescription) -> Iterator[Problem]:
    """Roles that are so many warps of the template, with the registers that the compiler takes."""
    kernel, tiles = description.kernel, description.scheduler.tiles
    for name, warpgroups in blackwell_warpgroups(kernel.backend, tiles).items():
        role = description.role.get(name)
        if role is None:
            continue
        if role.warpgroups != warpgroups:
            yield Problem(
                f"the template's {name} role is {'4 warps' if warpgroups else '1 warp'}",
                f"role.{name}.warpgroups",
                role.warpgroups,
                str(warpgroups),
                str(warpgroups),
            )
        if role.registers is not None:
            yield Problem(
                "no register changes hands: the accumulator is in TMEM",
                f"role.{name}.registers",
                role.registers,
                "no value",
                "leave the key out",
            )


def _counts(description: KernelDescription, producer: Role, consumer: Role) -> Iterator[Problem]:
    """Warpgroups that the template has, and registers that setmaxnreg takes."""
    sequential = description.kernel.style in ONE_STREAM_STYLES
    pallas = description.kernel.backend == "pallas"
    # The most that one thread of a role can get in a block of this size.
    hardware = HARDWARE[description.kernel.arch]
    highest = consumer_registers(1, max(1, consumer.warpgroups or 1), SETMAXNREG_MIN, hardware)
    several = (1, 2, 3) if pallas else (1, 2)
    producers, consumers = ((0,), (1,)) if sequential else ((1,), several)
    if takes_turns(description):
        consumers = (consumer.warpgroups or 0,)  # rule PG230 says more about it
    for role, entry, allowed in (
        ("producer", producer, producers),
        ("consumer", consumer, consumers),
    ):
        registers = entry.registers
        if entry.warpgroups not in allowed:
            why = f"the template is written for {listing(allowed)} {role} warpgroup(s)"
            if pallas and role == "consumer" and (entry.warpgroups or 0) > max(several):
                why = _too_many_warpgroups(entry.warpgroups or 0, hardware) or why
            yield Problem(
                why,
                f"role.{role}.warpgroups",
                entry.warpgroups,
                listing(allowed),
                str(min(allowed, key=lambda a: abs(a - (entry.warpgroups or 0)))),
            )
        elif sequential and registers is not None:
            yield Problem(
                "one warpgroup loads and computes: no register changes hands",
                f"role.{role}.registers",
                registers,
                "no value",
                "leave the key out",
            )
        elif registers is not None and not setmaxnreg_valid(registers):
            yield Problem(
                "setmaxnreg takes no such count",
                f"role.{role}.registers",
                registers,
                f"multiples of {SETMAXNREG_STEP} from {SETMAXNREG_MIN} to {SETMAXNREG_MAX}",
                nearest_number(registers, range(SETMAXNREG_MIN, highest + 1, SETMAXNREG_STEP)),
            )


def _too_many_warpgroups(consumers: int, hardware: Hardware) -> str:
    """Why no split of the registers serves so many consumers in Pallas; empty if one does."""
    warpgroups = 1 + consumers
    start = launch_registers(WARPGROUP * warpgroups, hardware)
    least = SETMAXNREG_MIN + consumers * pallas_consumer_registers(SETMAXNREG_MIN, consumers)
    if least <= start * warpgroups:
        return ""
    return (
        f"{warpgroups} warpgroups start with {start} registers a thread, {start * warpgroups} "
        f"together; emit_pipeline_warp_specialized asks for {least} or more "
        f"({SETMAXNREG_MIN} + {consumers} * {pallas_consumer_registers(SETMAXNREG_MIN, consumers)})"
        " and would wait for ever"
    )


def _split(description: KernelDescription, producer: Role, consumer: Role) -> Iterator[Problem]:
    """All roles together against what the launch allocated."""
    pallas = description.kernel.backend == "pallas"
    consumers = consumer.warpgroups or 1
    given, loads = consumer.registers or 0, producer.registers or 0
    if pallas and given != pallas_consumer_registers(loads, consumers):
        derived = pallas_consumer_registers(loads, consumers)
        yield Problem(
            f"emit_pipeline_warp_specialized gives each consumer thread (512 - {loads}) / "
            f"{consumers} registers, whatever is asked for",
            "role.consumer.registers",
            given,
            str(derived),
            str(derived),
        )
        return
    warpgroups = 1 + consumers
    start = launch_registers(WARPGROUP * warpgroups, HARDWARE[description.kernel.arch])
    pool = start * warpgroups
    asked = loads + consumers * given
    if asked <= pool:
        return
    why = (
        f"{warpgroups} warpgroups start with {start} registers a thread, {pool} together; "
        f"{loads} + {consumers} * {given} = {asked} would wait for ever"
    )
    if pallas:
        fitting = [
            count
            for count in range(SETMAXNREG_MIN, 129, SETMAXNREG_STEP)
            if count + consumers * pallas_consumer_registers(count, consumers) <= pool
        ]
        yield Problem(
            why,
            "role.producer.registers",
            loads,
            listing(fitting),
            nearest_number(loads, fitting),
        )
        return
    most = (pool - loads) // consumers // SETMAXNREG_STEP * SETMAXNREG_STEP
    yield Problem(
        why, "role.consumer.registers", given, f"at most {most}", nearest_number(given, [most])
    )
