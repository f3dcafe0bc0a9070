# SPDX-License-Identifier: Apache-2.0
"""How a GEMM's SMEM is used: what a stage and a store buffer take, and how many there can be.

All sizes in bytes. Functions take a description with its defaults filled in.
"""

from typing import Literal

from pipegen.arithmetic import (
    fewest_store_buffers,
    operand_stage_bytes,
    order_barrier_bytes,
    smem_bytes,
    split_smem,
    tile_bytes,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_mixed import mixed_budget
from pipegen.planning.smem_mixed_pallas import mixed_pallas_budget
from pipegen.planning.smem_pallas import pallas_budget
from pipegen.planning.smem_pallas_call import is_pallas_call, pallas_call_budget
from pipegen.planning.smem_sm100 import cta_group_of, scheduler_bytes, tmem_bytes
from pipegen.planning.smem_sm100_pallas import pallas_sm100_budget
from pipegen.planning.turns import TURN_STAGES, TURN_WARPGROUPS, takes_turns, tile_warpgroups
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 2
MAX_STORE_BUFFERS = 4
# Columns of one epilogue store: 64 B of bf16 or 128 B of f32, enough for full TMA speed, and few
# enough that four buffers leave the ring its stages.
EPILOGUE_COLUMNS = (32, 16)


def epilogue_tile(
    tile_m: int, tile_n: int, warpgroups: int, choices: tuple[int, ...] = EPILOGUE_COLUMNS
) -> tuple[int, int]:
    """Rows and columns that the consumers hand to TMA at once: 64 rows for each warpgroup."""
    columns = next((c for c in choices if tile_n % c == 0), tile_n)
    return min(tile_m, 64 * warpgroups), columns


def smem_of(description: KernelDescription) -> SmemBudget | None:
    """The budget of a GEMM; None where the description has no sizes to compute with."""
    tile, roles = description.tile, description.role
    consumer = roles.get("epilogue" if description.kernel.arch == "sm_100a" else "consumer")
    m, n, k = tile.m or 0, tile.n or 0, tile.k or 0
    warpgroups = (consumer.warpgroups if consumer else 0) or 0
    pipelines = description.pipeline
    if (
        min(m, n, k) < 8
        or not 1 <= warpgroups <= m
        or not {"mainloop", "epilogue"} <= pipelines.keys()
    ):
        return None
    if is_pallas_call(description):
        return pallas_call_budget(description)
    if description.kernel.backend == "pallas":
        if description.kernel.op == "mixed_gemm":
            return mixed_pallas_budget(description)
        blackwell = description.kernel.arch == "sm_100a"
        return (pallas_sm100_budget if blackwell else pallas_budget)(description)
    if description.kernel.op == "mixed_gemm":
        return mixed_budget(description, warpgroups)
    return cute_budget(description, warpgroups)


def cute_budget(description: KernelDescription, warpgroups: int) -> SmemBudget:
    """The SMEM budget of a CuTe DSL GEMM: barriers, the ring, and the consumers' store buffers."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    pipelines = description.pipeline
    a_bits, b_bits = DTYPE[description.dtype.a].bits, DTYPE[str(description.dtype.b)].bits
    tmem = description.kernel.arch == "sm_100a"
    # In a pair each CTA holds half of the B tile.
    rows = n // cta_group_of(description) if tmem else n
    a_bytes, b_bytes = operand_stage_bytes((m, rows, k), a_bits, b_bits)
    # A warpgroup reads 64 rows of wgmma's accumulator, but all 128 lanes of TMEM.
    sharing = 2 * warpgroups if tmem else tile_warpgroups(description, warpgroups)
    split_k = description.scheduler.split_k
    # The CTAs of split K share the tile by its subtiles: the narrowest ones are shared best.
    epi_m, epi_n = epilogue_tile(m, n, sharing, EPILOGUE_COLUMNS[-1 if split_k > 1 else 0 :])
    other_bytes = (
        tmem_bytes(description) + scheduler_bytes(description) if tmem else turn_bytes(description)
    )
    buffer_bytes = tile_bytes(epi_m, epi_n, DTYPE[str(description.dtype.out)].bits)
    subtiles = -(-(-(-m // epi_m) * -(-n // epi_n)) // max(1, split_k))
    capacity = HARDWARE[description.kernel.arch].smem_per_block
    stages, buffers = pipelines["mainloop"].stages, pipelines["epilogue"].stages
    operands = (a_bytes, b_bytes)
    # In ping-pong each warpgroup has buffers of its own: they are counted in pairs.
    together = (TURN_WARPGROUPS if takes_turns(description) else 1) * buffer_bytes
    split = split_smem(
        capacity,
        operands,
        together,
        subtiles,
        MAX_STORE_BUFFERS,
        None if stages == "auto" else stages,
        None if buffers == "auto" else buffers,
        other_bytes,
    )
    fewest = fewest_store_buffers(subtiles)
    fitting = range(fewest, min(subtiles, capacity // together) + 1)
    choices = tuple(
        b
        for b in fitting
        if smem_bytes(operands, together, max(split.stages, FEWEST_STAGES), b, other_bytes)
        <= capacity
    )
    return SmemBudget(
        capacity=capacity,
        a_bytes=a_bytes,
        b_bytes=b_bytes,
        buffer_bytes=buffer_bytes,
        epi_tile_mn=(epi_m, epi_n),
        subtiles=subtiles,
        split=split,
        buffer_choices=choices,
    )


def turn_bytes(description: KernelDescription) -> int:
    """SMEM beside the mainloop's barriers on sm_90a: the barriers of turns, if there are any."""
    return order_barrier_bytes(TURN_STAGES, TURN_WARPGROUPS) if takes_turns(description) else 0


def with_stages(
    description: KernelDescription,
    mainloop: int | Literal["auto"] | None = None,
    epilogue: int | Literal["auto"] | None = None,
) -> KernelDescription:
    """The same description with other stages of one of its pipelines; None leaves them."""
    pipelines = dict(description.pipeline)
    for name, stages in (("mainloop", mainloop), ("epilogue", epilogue)):
        if stages is not None and name in pipelines:
            pipelines[name] = pipelines[name].model_copy(update={"stages": stages})
    return description.model_copy(update={"pipeline": pipelines})


def stage_range(description: KernelDescription) -> tuple[int, int]:
    """The fewest and the most mainloop stages that work with the description's store buffers."""
    budget = smem_of(with_stages(description, mainloop="auto"))
    return FEWEST_STAGES, budget.split.stages if budget else 0
