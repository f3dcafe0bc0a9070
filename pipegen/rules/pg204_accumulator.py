# SPDX-License-Identifier: Apache-2.0
"""The accumulator must fit: in the consumers' registers, on sm_100a in TMEM.

What it checks
    On sm_90a, tile.m * tile.n / (128 * consumer warpgroups) registers, twice that with promotion
    (dtype.promote_every), plus 40 for addresses and counters (in Pallas 32, 24 in emit-pipeline),
    against what a consumer thread holds. In ping-pong one warpgroup holds the tile: tile.m * tile.n
    / 128. In Pallas also tile.n alone: one wgmma's registers against those of the launch.
    On sm_100a, pipeline.accumulator.stages of tile.n columns against TMEM's 512, and at least 2.

Why
    wgmma keeps its accumulator in registers. What does not fit spills to local memory between
    wgmmas, which serializes them: several times slower, and silent. ptxas holds the whole kernel to
    the registers of the launch, 65536 / threads, wherever a single instruction needs more: with 512
    threads, 128, it refuses a wgmma of N = 256 whose thread would have 160 after setmaxnreg
    ("Insufficient registers (128) to compile instruction"). tcgen05 keeps it in TMEM, which
    is allocated in powers of two from 32 to 512 columns (PTX ISA, "tcgen05.alloc"); with one buffer
    the tensor core would wait for each epilogue.

Example
    256 x 256 with two consumer warpgroups: 256 registers a thread, and a thread has at most 255.

Use instead
    A smaller n, or role.consumer.warpgroups = 2. On sm_100a pipeline.accumulator.stages = "auto",
    which is 2.
"""

from collections.abc import Iterator

from pipegen.arithmetic import accumulator_registers, launch_registers, most_accumulators
from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or
from pipegen.hardware import HARDWARE, SETMAXNREG_STEP, TMEM_COLUMNS_MAX, WARPGROUP
from pipegen.planning.smem_sm100 import ACCUMULATORS
from pipegen.planning.turns import TURN_WARPGROUPS, takes_turns, tile_warpgroups
from pipegen.vocabulary import ONE_STREAM_STYLES

# Registers beside the accumulator. In the CuTe DSL 4.8.1, of 232, 192 + 40 do and 208 + 24 spill.
# In Pallas, of 152, 128 + 24 spill, and of 224, 192 + 32 do not (jax 0.10.2 to 0.12.0.1).
OVERHEAD = {
    "participants": 40,
    "explicit-state": 40,
    "warp-specialized": 32,
    "emit-pipeline": 24,
    "pallas-call": 24,
}
# Registers of a thread beside one wgmma's accumulator, as ptxas counts them: 154 - 128.
INSTRUCTION_REGISTERS = 26

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    if description.kernel.arch == "sm_100a":
        yield from _tmem(description)
        return
    consumer = description.role.get("consumer")
    m, n = description.tile.m, description.tile.n
    if consumer is None or not consumer.warpgroups or not m or not n:
        return
    if takes_turns(description) and consumer.warpgroups != TURN_WARPGROUPS:
        return  # rule PG230 says it; the registers would be those of a launch of another size
    sharing = tile_warpgroups(description, consumer.warpgroups)
    held = consumer.registers or HARDWARE[description.kernel.arch].max_registers_per_thread
    accumulators = 2 if description.dtype.promote_every else 1
    needed = accumulators * accumulator_registers(m, n, sharing)
    overhead = OVERHEAD[str(description.kernel.style)]
    if needed + overhead <= held:
        yield from _one_instruction(description, consumer.warpgroups)
        return
    room = (held - overhead) // accumulators
    most = room * 128 * sharing // m // 16 * 16
    smallest = accumulators * accumulator_registers(64 * sharing, 16, sharing) + overhead
    if held < smallest and description.kernel.backend == "pallas":
        return  # rule PG205 names the count that Mosaic GPU derives
    if held < smallest:  # no tile would do: the count was given, and is what must change
        wanted = -(-(needed + overhead) // SETMAXNREG_STEP) * SETMAXNREG_STEP
        yield few_registers(held, wanted, needed, overhead)
        return
    yield Problem(
        f"{'two accumulators' if accumulators == 2 else 'an accumulator'} of {m} x {n} "
        f"take{'' if accumulators == 2 else 's'} {needed} registers of each consumer thread "
        f"({accumulators} * {m} * {n} / (128 * {sharing})) "
        f"and {overhead} more for the rest; "
        f"a consumer thread holds {held}",
        "tile.n",
        n,
        f"at most {most} with m = {m}" if most >= 16 else "a smaller tile.m",
        str(most) if most >= 16 else "",
    )


def _one_instruction(description: KernelDescription, warpgroups: int) -> Iterator[Problem]:
    """One wgmma, against the registers that each thread of the block starts with."""
    if description.kernel.backend != "pallas" or not 1 <= warpgroups <= 3:
        return  # rule PG205 says more about the count
    shared = warpgroups if description.role["consumer"].split == "n" else 1
    n = (description.tile.n or 0) // shared
    loads = 0 if description.kernel.style in ONE_STREAM_STYLES else 1
    threads = WARPGROUP * (warpgroups + loads)
    start = launch_registers(threads, HARDWARE[description.kernel.arch])
    if n // 2 + INSTRUCTION_REGISTERS <= start:
        return
    most = (start - INSTRUCTION_REGISTERS) * 2 // 16 * 16 * shared
    yield Problem(
        f"a block of {threads} threads starts with {start} registers a thread, and ptxas takes no "
        f"wgmma there that needs more: N = {n} needs {n // 2} + {INSTRUCTION_REGISTERS}",
        "tile.n",
        description.tile.n,
        f"at most {most} with {warpgroups} consumer warpgroups",
        str(most),
    )


def few_registers(held: int, wanted: int, accumulator: int, others: int) -> Problem:
    """So few registers were asked for that a tile of no size fits."""
    return Problem(
        f"the accumulator takes {accumulator} registers of each consumer thread, and the rest "
        f"{others}",
        "role.consumer.registers",
        held,
        f"multiples of {SETMAXNREG_STEP} from {wanted}",
        str(wanted),
    )


def _tmem(description: KernelDescription) -> Iterator[Problem]:
    """The accumulators' columns, against those of TMEM."""
    accumulator, n = description.pipeline.get("accumulator"), description.tile.n
    if accumulator is None or accumulator.stages == "auto" or not n:
        return
    stages, most = accumulator.stages, most_accumulators(n)
    if ACCUMULATORS <= stages <= most:
        return
    yield Problem(
        (
            f"{stages} accumulators of {n} columns exceed TMEM's {TMEM_COLUMNS_MAX}"
            if stages > most
            else "the epilogue reads one accumulator while the tensor core fills the next"
        ),
        "pipeline.accumulator.stages",
        stages,
        auto_or(ACCUMULATORS, most),
        str(min(most, max(ACCUMULATORS, stages))),
    )
