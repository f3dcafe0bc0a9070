# SPDX-License-Identifier: Apache-2.0
"""A mixed GEMM's accumulator and converted weights must fit in registers or in TMEM.

What it checks
    On sm_90a, that the accumulator and three groups of weights (two under way in wgmmas, one that
    comes next) fit in a consumer thread's registers; in Pallas, whose wgmmas of a stage are awaited
    together, the accumulator and all weights of a stage. On sm_100a, that two accumulators and at
    least two converted tiles fit in 512 TMEM columns; pipeline.transform.stages within what is
    left; pipeline.accumulator.stages: 2; pipeline.weights.stages: as many as the mainloop has.

Why
    What does not fit spills to local memory between wgmmas, which serializes them, silently. TMEM
    that is not there cannot be allocated. With one converted tile the transform warps would wait
    for the tensor core, and it for them.

Example
    m = 256 with n = 256 on sm_90a; m = 256 on sm_100a, whose two accumulators take all of TMEM.

Use instead
    A smaller tile.m; on sm_100a 192 with k = 64, or 128 with k = 128.
"""

from collections.abc import Iterator

from pipegen.arithmetic import accumulator_registers
from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or, listing
from pipegen.hardware import (
    HARDWARE,
    SETMAXNREG_MAX,
    SETMAXNREG_STEP,
    TMEM_COLUMNS_MAX,
    WARPGROUP,
)
from pipegen.planning.mixed_sm90_cute import GROUP_REGISTERS
from pipegen.planning.smem_mixed import (
    ACCUMULATORS,
    depths,
    most_transform_stages,
    transform_columns,
)
from pipegen.rules.pg204_accumulator import few_registers
from pipegen.rules.pg252_mixed_tile import TOKENS
from pipegen.vocabulary import DTYPE

# Groups that a thread holds: two under way, and the pairs of the next.
HELD_GROUPS = 3
OVERHEAD = 40
PALLAS_OVERHEAD = 32
FEWEST_TRANSFORM_STAGES = 2

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    if description.kernel.arch == "sm_100a":
        yield from _tmem(description)
        return
    if description.kernel.backend == "pallas":
        yield from _pallas(description)
        return
    consumer = description.role["consumer"]
    m, n, warpgroups = description.tile.m, description.tile.n, consumer.warpgroups
    if not m or not n or not warpgroups:
        return
    held = consumer.registers or HARDWARE[description.kernel.arch].max_registers_per_thread
    fitting = [tokens for tokens in TOKENS if registers(tokens, n, warpgroups) <= held]
    if m in fitting:
        return
    if not fitting:
        accumulator = accumulator_registers(n, m, warpgroups)
        wanted = -(-registers(m, n, warpgroups) // SETMAXNREG_STEP) * SETMAXNREG_STEP
        if wanted <= SETMAXNREG_MAX:
            others = registers(m, n, warpgroups) - accumulator
            yield few_registers(held, wanted, accumulator, others)
            return
    yield Problem(
        f"an accumulator of {m} x {n} and three groups of weights "
        f"take {registers(m, n, warpgroups)} registers of each consumer thread, which holds {held}",
        "tile.m",
        m,
        f"at most {fitting[-1]} with n = {n}" if fitting else "a smaller tile.n",
        str(fitting[-1]) if fitting else "",
    )


def registers(m: int, n: int, warpgroups: int) -> int:
    """Registers of a consumer thread: accumulator, weights converted and to convert, the rest."""
    return accumulator_registers(n, m, warpgroups) + HELD_GROUPS * GROUP_REGISTERS + OVERHEAD


def _pallas(description: KernelDescription) -> Iterator[Problem]:
    consumer, tile = description.role["consumer"], description.tile
    m, n, k, warpgroups = tile.m, tile.n, tile.k, consumer.warpgroups
    if not m or not n or not k or not warpgroups:
        return
    held = consumer.registers or HARDWARE[description.kernel.arch].max_registers_per_thread

    def taken(tokens: int, depth: int) -> int:
        weights = n * depth // (2 * WARPGROUP * warpgroups)  # two 16-bit weights a register
        return accumulator_registers(n, tokens, warpgroups) + weights + PALLAS_OVERHEAD

    if taken(m, k) <= held:
        return
    why = (
        f"an accumulator of {m} x {n} and {k} of K of converted weights take {taken(m, k)} "
        f"registers of each consumer thread, which holds {held}"
    )
    every = depths("pallas", DTYPE[str(description.dtype.b)].bits)
    fitting = [depth for depth in every if depth < k and taken(m, depth) <= held]
    if fitting:
        allowed = f"{listing(fitting)} with this m and n"
        yield Problem(why, "tile.k", k, allowed, str(fitting[-1]))
        return
    tokens = [each for each in TOKENS if each < m and taken(each, k) <= held]
    yield Problem(
        why,
        "tile.m",
        m,
        f"at most {tokens[-1]} with this n and k" if tokens else "a smaller tile.n or tile.k",
        str(tokens[-1]) if tokens else "",
    )


def _tmem(description: KernelDescription) -> Iterator[Problem]:
    m, k = description.tile.m, description.tile.k
    if not m or not k:
        return
    most = most_transform_stages(description)
    if most < FEWEST_TRANSFORM_STAGES:
        left = TMEM_COLUMNS_MAX - FEWEST_TRANSFORM_STAGES * transform_columns(description)
        tokens = left // ACCUMULATORS // 16 * 16
        yield Problem(
            f"{ACCUMULATORS} accumulators of {m} columns and {FEWEST_TRANSFORM_STAGES} converted "
            f"tiles of {transform_columns(description)} exceed TMEM's {TMEM_COLUMNS_MAX} columns",
            "tile.m",
            m,
            f"at most {tokens} with k = {k}",
            str(tokens),
        )
        return
    pipelines = description.pipeline
    stages = pipelines["transform"].stages
    if stages != "auto" and not FEWEST_TRANSFORM_STAGES <= stages <= most:
        yield Problem(
            f"beside the accumulators TMEM holds {most} converted tiles, and one would not overlap",
            "pipeline.transform.stages",
            stages,
            auto_or(FEWEST_TRANSFORM_STAGES, most),
            str(min(most, max(FEWEST_TRANSFORM_STAGES, stages))),
        )
    for name, allowed, why in (
        ("accumulator", ("auto", ACCUMULATORS), "the epilogue reads one while the other is filled"),
        ("weights", ("auto",), "the weights' ring is as deep as the mainloop's"),
    ):
        stages = pipelines[name].stages
        if stages not in allowed:
            words = [f'"{word}"' if word == "auto" else word for word in allowed]
            yield Problem(why, f"pipeline.{name}.stages", stages, listing(words), str(words[-1]))
