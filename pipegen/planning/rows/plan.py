# SPDX-License-Identifier: Apache-2.0
"""Plan of the Pallas kernels `stream` and `reduce`: TMA -> threads -> TMA store."""

from pipegen.arithmetic import pallas_consumer_registers
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP, WARPGROUP
from pipegen.planning.blocks import grid_numbers, tiles_asked
from pipegen.planning.formulas import aligned_sum, product, quotient, stages_or_given
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.rows.reduce_template import reduce_values
from pipegen.planning.rows.sizes import (
    PIECE_BYTES,
    RowSizes,
    element_types,
    has_out_specs,
    is_warp_specialized,
    row_sizes,
    with_values,
)
from pipegen.planning.rows.template import stream_values
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.vocabulary import DTYPE

# What Mosaic GPU's own example values leave to a warpgroup that only issues copies.
PRODUCER_REGISTERS = 40
# Tiles of a block, by style: the best of those tried on an H200, whose times are in
# benchmarks/hopper_speed_pallas_rows.json. A fixed share of all tiles for each block was slower, as
# 0.91 against 0.97 of a copy in a warp-specialized reduce (see pipegen.planning.blocks).
TILES_PER_BLOCK = {"emit-pipeline": 4, "warp-specialized": 4}  # of rmsnorm
TILES_PER_STREAM_BLOCK = {"emit-pipeline": 2, "warp-specialized": 3}
TILES_PER_SOFTMAX_BLOCK = {"emit-pipeline": 4, "warp-specialized": 8}


def plan_rows(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    sizes = row_sizes(description)
    if sizes is None:
        raise ValueError(f"no sizes to plan with: {description.tile=}")
    words = reduce_values if description.kernel.op == "reduce" else stream_values
    return Plan(
        name,
        given,
        description,
        template,
        pipelines_of(description, sizes),
        roles_of(description, sizes),
        numbers_of(given, description, sizes),
        stage_limit(description, sizes),
        words(description, sizes),
    )


def pipelines_of(description: KernelDescription, sizes: RowSizes) -> tuple[PipelinePlan, ...]:
    """The mainloop, and the epilogue, which is part of the same construct where it has out_specs.

    Arrivals were read in the PTX of all three jax versions (Warpgroup semantics): every thread of
    the issuing warpgroup for each copy, every thread of each consumer warpgroup.
    """
    specialized, out_specs = is_warp_specialized(description), has_out_specs(description)
    construct = "plgpu.emit_pipeline_warp_specialized" if specialized else "plgpu.emit_pipeline"
    copies = 2 if sizes.y_bytes else 1
    tiles = "a tile of x and one of y" if copies == 2 else "a tile of x"
    emptied = "every consumer thread, at the end of its step"
    mainloop = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="thread",
        construct=construct,
        stages=sizes.stages,
        stage_bytes=sizes.stage_bytes,
        tx_count=sizes.stage_bytes,
        full_arrive_count=copies * WARPGROUP,
        empty_arrive_count=sizes.warpgroups * WARPGROUP if specialized else None,
        filled_by=f"TMA loads of {tiles}",
        emptied_by=emptied if specialized else "the warpgroup itself: it loads after each step",
    )
    epilogue = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct=f"{construct} (out_specs)" if out_specs else "plgpu.copy_smem_to_gmem",
        stages=sizes.buffers,
        stage_bytes=sizes.tile_out_bytes // sizes.warpgroups,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by="a consumer warpgroup, its rows of a tile",
        emptied_by="the TMA store, once it has read the buffer",
    )
    return mainloop, epilogue


def roles_of(description: KernelDescription, sizes: RowSizes) -> tuple[RolePlan, ...]:
    """The warpgroups that compute, and the one that loads, if there is one."""
    warpgroups, threads = sizes.warpgroups, WARPGROUP * sizes.warpgroups
    if not is_warp_specialized(description):
        return (RolePlan("consumer", 1, threads, 0, "loads by TMA, computes, stores by TMA"),)
    registers = pallas_consumer_registers(PRODUCER_REGISTERS, warpgroups)
    return (
        RolePlan("producer", 1, WARPGROUP, PRODUCER_REGISTERS, "one thread issues all TMA loads"),
        RolePlan("consumer", warpgroups, threads, registers, "computes, and stores by TMA"),
    )


def tiles_per_block(description: KernelDescription) -> int:
    """The tiles of a block where the description leaves them open."""
    if description.kernel.op == "stream":
        return TILES_PER_STREAM_BLOCK[str(description.kernel.style)]
    if description.reduce.body == "softmax":
        return TILES_PER_SOFTMAX_BLOCK[str(description.kernel.style)]
    return TILES_PER_BLOCK[str(description.kernel.style)]


def stage_limit(description: KernelDescription, sizes: RowSizes) -> str:
    """What keeps the ring from being deeper."""
    if description.pipeline["mainloop"].stages == "auto":
        if sizes.stages == MOST_STAGES:
            return f"jax: at most {MOST_STAGES} barriers in a group, one for each stage"
        beside = ", each with a store buffer," if has_out_specs(description) else ""
        return (
            f"SMEM: {sizes.stages + 1} stages of {sizes.stage_bytes} B{beside} would exceed "
            f"{sizes.capacity} B"
        )
    most = row_sizes(with_values(description, mainloop="auto"))
    return f"the description ({sizes.stages}); {most.stages if most else 0} would fit"


def smem_parts(sizes: RowSizes) -> list[tuple[str, int]]:
    """The arrays of a block, as parts of a sum."""
    rings = [product(sizes.stages, size) for size in (sizes.x_bytes, sizes.y_bytes) if size]
    weight = [(str(sizes.weight_bytes), sizes.weight_bytes)] if sizes.weight_bytes else []
    stores = [product(sizes.buffers, sizes.tile_out_bytes)]
    scratch = [(str(sizes.scratch_bytes), sizes.scratch_bytes)] if sizes.scratch_bytes else []
    return [*rings, *weight, *stores, *scratch]


def stages_formula(description: KernelDescription, sizes: RowSizes) -> str:
    """How many stages fit."""
    a_barrier = 8 * sizes.barriers_a_stage
    each = sizes.stage_bytes + a_barrier
    if sizes.stages == MOST_STAGES:
        return str(MOST_STAGES)
    stores = sizes.buffers * sizes.tile_out_bytes
    if has_out_specs(description):
        each, stores = each + sizes.tile_out_bytes, 0
    taken = stores + sizes.weight_bytes + sizes.scratch_bytes + (8 if sizes.weight_bytes else 0)
    return quotient(sizes.capacity, each, sizes.stages, (str(taken), taken) if taken else ("", 0))


def numbers_of(
    given: KernelDescription, description: KernelDescription, sizes: RowSizes
) -> tuple[Number, ...]:
    """Every derived number with its formula."""
    hardware, tile = HARDWARE[description.kernel.arch], description.tile
    types = {key: DTYPE[word] for key, word in element_types(description).items()}
    specialized, reduces = is_warp_specialized(description), description.kernel.op == "reduce"
    copies, warpgroups = 2 if sizes.y_bytes else 1, sizes.warpgroups
    narrowest = min(dtype.bytes for dtype in types.values())
    threads = WARPGROUP * (warpgroups + (1 if specialized else 0))
    y_rows = f"{tile.m} * " if description.stream.y == "matrix" else ""
    numbers = [
        Number(
            "x_tile_bytes",
            sizes.x_bytes,
            "B",
            f"{tile.m} * {tile.n} * {types['a'].bytes}",
            "dense tile of x",
        )
    ]
    if sizes.y_bytes:
        numbers.append(
            Number(
                "y_tile_bytes",
                sizes.y_bytes,
                "B",
                f"{y_rows}{tile.n} * {types['b'].bytes}",
                f"dense tile of y, a {description.stream.y}",
            )
        )
    if sizes.weight_bytes:
        numbers.append(
            Number(
                "weight_bytes",
                sizes.weight_bytes,
                "B",
                f"{tile.n} * {types['b'].bytes}",
                "the weight of every column, loaded once",
            )
        )
    numbers += [
        Number(
            "tx_count",
            sizes.stage_bytes,
            "B",
            f"{sizes.x_bytes} + {sizes.y_bytes}" if sizes.y_bytes else str(sizes.x_bytes),
            "armed by the copies themselves, each for its own bytes",
        ),
        Number(
            "mainloop_full_arrive_count",
            copies * WARPGROUP,
            "arrivals",
            f"{copies} * 128",
            "the issuing warpgroup's threads, for each copy of a stage (read in the PTX)",
        ),
        Number("wg_m", sizes.wg_m, "rows", f"{tile.m} / {warpgroups}", "of a consumer warpgroup"),
        Number(
            "vector",
            sizes.vector,
            "elements",
            f"16 B / {16 // sizes.vector} B" if reduces else f"{tile.n} / {WARP}",
            "that a lane reads or writes at once",
        ),
        Number(
            "thread_elements",
            sizes.wg_m * (tile.n or 0) // WARPGROUP,
            "elements a thread",
            f"{sizes.wg_m} * {tile.n} / 128",
            "in f32 registers at once",
        ),
        Number(
            "piece_columns",
            PIECE_BYTES // narrowest,
            "columns",
            f"{PIECE_BYTES} B / {narrowest} B",
            "N is padded to a multiple: TMA copies pieces of 128 B of a row",
        ),
        Number(
            "threads",
            threads,
            "threads",
            f"128 * {warpgroups}" + (" + 128" if specialized else ""),
            "a Pallas thread is a warpgroup",
        ),
        Number(
            "smem_capacity",
            sizes.capacity,
            "B",
            f"{hardware.smem_per_sm} // {sizes.blocks} - {hardware.smem_reserved_per_block}",
            "CUDA, Compute Capabilities: SMEM of an SM, and what it reserves for each block",
        ),
        Number(
            "mainloop_stages",
            sizes.stages,
            "stages",
            stages_or_given(given, "mainloop", stages_formula(description, sizes)),
            "max_concurrent_steps: as many as fit",
        ),
        Number(
            "smem_bytes",
            sizes.total_bytes,
            "B",
            f"{aligned_sum(*smem_parts(sizes))} + {8 * sizes.barriers}",
            f"at most {sizes.capacity} B a block",
        ),
        Number(
            "blocks_per_sm",
            sizes.blocks,
            "blocks",
            str(sizes.blocks),
            "the SMEM of an SM is divided by it",
        ),
    ]
    each = tiles_asked(description) or tiles_per_block(description)
    numbers += grid_numbers(each, sizes.blocks)
    if specialized:
        numbers += [
            Number(
                "mainloop_empty_arrive_count",
                warpgroups * WARPGROUP,
                "arrivals",
                f"{warpgroups} * 128",
                "all consumer threads (the PTX)",
            ),
            Number(
                "producer_registers",
                PRODUCER_REGISTERS,
                "registers a thread",
                str(PRODUCER_REGISTERS),
                "setmaxnreg",
            ),
            Number(
                "consumer_registers",
                pallas_consumer_registers(PRODUCER_REGISTERS, warpgroups),
                "registers a thread",
                f"min(256, (512 - {PRODUCER_REGISTERS}) // {warpgroups} // 8 * 8)",
                "the rest of 512 for each lane of a warpgroup (jax, mosaic_gpu/pipeline.py)",
            ),
        ]
    return tuple(numbers)
