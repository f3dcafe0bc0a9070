# SPDX-License-Identifier: Apache-2.0
"""Plan of the stream kernels in Task Scheduling: TMA -> threads -> TMA store."""

from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, VECTOR_BYTES, WARP
from pipegen.planning.formulas import stages_or_given
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.smem_sm100 import ANSWER_BYTES
from pipegen.planning.stream.template import ARCHITECTURE, AT_MOST, tensors_of
from pipegen.planning.task_scheduling.layout import layout_numbers
from pipegen.planning.task_scheduling.stream_sizes import TsStreamSizes, ts_stream_sizes
from pipegen.planning.task_scheduling.words import (
    FULL_BARRIER_WIDTH,
    arrives_word,
    dependency_words,
    import_words,
    option_words,
    queue_words,
)
from pipegen.vocabulary import DTYPE


def plan_ts_stream(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    sizes = ts_stream_sizes(description)
    if sizes is None:
        raise ValueError(f"no sizes to plan with: {description.tile=}")
    pipelines = _pipelines(sizes)
    return Plan(
        name,
        given,
        description,
        template,
        pipelines,
        _roles(sizes),
        _numbers(given, description, sizes),
        _stage_limit(description, sizes),
        _words(description, sizes, {pipeline.name: pipeline for pipeline in pipelines}),
    )


def _pipelines(sizes: TsStreamSizes) -> tuple[PipelinePlan, ...]:
    compute = WARP if sizes.lanes > 1 else WARP * sizes.warps
    inputs = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="thread",
        construct="TmaAsync",
        stages=sizes.inputs,
        stage_bytes=sizes.in_bytes,
        tx_count=sizes.in_bytes,
        full_arrive_count=1,
        empty_arrive_count=1 if sizes.lanes > 1 else sizes.warps,
        filled_by="a TMA load of one tile",
        emptied_by="one lane of each warp that reads it, once its part is in registers",
    )
    outputs = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="AsyncAsync",
        stages=sizes.outputs,
        stage_bytes=sizes.out_bytes,
        tx_count=None,
        full_arrive_count=compute,
        empty_arrive_count=WARP,
        filled_by="the compute warps, a tile of results",
        emptied_by="the store warp, once the TMA store has read it",
    )
    if not sizes.answers:
        return inputs, outputs
    answers = PipelinePlan(
        name="scheduler",
        producer="clc",
        consumer="thread",
        construct="ClcFetchAsync",
        stages=sizes.answers,
        stage_bytes=ANSWER_BYTES,
        tx_count=ANSWER_BYTES,
        full_arrive_count=1,
        empty_arrive_count=sizes.threads,
        filled_by="the answer to a query",
        emptied_by="every thread that has read it",
    )
    return inputs, outputs, answers


def _roles(sizes: TsStreamSizes) -> tuple[RolePlan, ...]:
    does = "each warp has tiles of its own" if sizes.lanes > 1 else "each warp has rows of a tile"
    scheduler = RolePlan("scheduler", 0, WARP, 0, "one warp asks for the next tiles")
    return (
        RolePlan("compute", sizes.warps // 4, WARP * sizes.warps, 0, f"{does}; applies f"),
        RolePlan("load", 0, WARP, 0, "one warp issues all TMA loads"),
        RolePlan("store", 0, WARP, 0, "one warp issues all TMA stores"),
        *([scheduler] if sizes.answers else []),
    )


def _stage_limit(description: KernelDescription, sizes: TsStreamSizes) -> str:
    if description.pipeline["mainloop"].stages == "auto":
        more = sizes.inputs + sizes.lanes
        return (
            f"SMEM: {more} stages of {sizes.in_bytes} B and {sizes.outputs} of {sizes.out_bytes} B "
            f"would exceed {sizes.capacity} B"
        )
    most = ts_stream_sizes(description, inputs="auto")
    assert most is not None  # the sizes themselves are there
    return f"the description ({sizes.inputs}); {most.inputs} would fit"


def _numbers(
    given: KernelDescription, description: KernelDescription, sizes: TsStreamSizes
) -> tuple[Number, ...]:
    hardware = HARDWARE[description.kernel.arch]
    tile, dtype, lanes = description.tile, description.dtype, sizes.lanes
    inputs, outputs, *_ = _pipelines(sizes)
    tx_formula = f"{tile.m} * {tile.n} * {DTYPE[dtype.a].bytes}"
    beside = f"{sizes.outputs} * {sizes.out_bytes} and the barriers"
    in_lanes = f", in {lanes}s" if lanes > 1 else ""
    warps = f"{sizes.warps} + 1 + 1{' + 1' if sizes.answers else ''}"
    why = "task_scheduling: AsyncAsync, every thread of a task arrives"
    stored = stages_or_given(given, "epilogue", f"{sizes.outputs // lanes} * {lanes}")
    answers = (
        (
            Number(
                "scheduler_empty_arrive_count",
                sizes.threads,
                "arrivals",
                f"{WARP} * ({warps})",
                "task_scheduling: ClcFetchAsync, every thread of a task arrives",
            ),
        )
        if sizes.answers
        else ()
    )
    return (
        Number(
            "tx_count", sizes.in_bytes, "B", tx_formula, "PTX ISA, mbarrier complete-tx; a tile"
        ),
        Number(
            "mainloop_empty_arrive_count",
            inputs.empty_arrive_count or 0,
            "arrivals",
            "1 warp that has the stage's lane" if lanes > 1 else f"{sizes.warps} compute warps",
            "task_scheduling: TmaAsync, one lane of each warp releases",
        ),
        Number(
            "epilogue_full_arrive_count",
            outputs.full_arrive_count or 0,
            "arrivals",
            f"{WARP} * 1" if lanes > 1 else f"{WARP} * {sizes.warps}",
            why,
        ),
        Number("epilogue_empty_arrive_count", WARP, "arrivals", f"{WARP} * 1", why),
        *answers,
        Number(
            "warp_m",
            sizes.warp_m,
            "rows",
            f"{tile.m} / {1 if lanes > 1 else sizes.warps}",
            "of a compute warp",
        ),
        Number("vector", sizes.vector, "elements", f"{tile.n} / {WARP}", "of a lane in a row"),
        Number("threads", sizes.threads, "threads", f"{WARP} * ({warps})", "a CTA"),
        Number(
            "smem_capacity",
            sizes.capacity,
            "B",
            f"{hardware.smem_per_sm} // {sizes.blocks} - {hardware.smem_reserved_per_block}",
            "CUDA, Compute Capabilities: SMEM of an SM, and what it reserves for each block",
        ),
        Number(
            "mainloop_stages",
            sizes.inputs,
            "stages",
            stages_or_given(
                given,
                "mainloop",
                f"as many stages of {sizes.in_bytes} B as fit beside {beside}{in_lanes}",
            ),
            "as many as fit",
        ),
        Number("epilogue_buffers", sizes.outputs, "stages", stored, "of the outputs"),
        *layout_numbers(sizes.layout, sizes.capacity, hardware.arch),
        Number("blocks_per_sm", sizes.blocks, "blocks", str(sizes.blocks), "share an SM's SMEM"),
        Number(
            "grid",
            "dynamic" if sizes.answers else "persistent",
            "blocks",
            "tiles" if sizes.answers else f"min(tiles, SMs * {sizes.blocks})",
            "cluster launch control" if sizes.answers else "as many as the GPU runs at once",
        ),
    )


def _words(
    description: KernelDescription, sizes: TsStreamSizes, pipelines: dict[str, PipelinePlan]
) -> dict[str, object]:
    kernel, y = description.kernel, description.stream.y
    x_type, y_type, out_type = (
        DTYPE[str(word)]
        for word in (description.dtype.a, description.dtype.b, description.dtype.out)
    )
    architecture, gpus, capability_major = ARCHITECTURE[kernel.arch]
    clc = description.scheduler.tiles == "clc"
    queue = clc or description.scheduler.work_tiles
    alone, interleaved = y == "none", sizes.lanes > 1
    pdl = description.integration.pdl
    out_align = VECTOR_BYTES // out_type.bytes
    edges = {
        "inputs": ["tiles"],
        "outputs": ["inputs", "tiles"] if queue else ["inputs"],
        **({"tiles": ["tiles"]} if clc else {}),
    }
    full = f"1 arrive + {sizes.in_bytes} B".ljust(FULL_BARRIER_WIDTH)
    what = "Which tile a CTA takes next: "
    what += "the hardware hands them out." if clc else "the CTAs of the grid take them in turn."
    tensors = tensors_of(y)
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": capability_major,
        "compiled_only": kernel.arch == "sm_100a",
        "x": x_type,
        "y": y_type,
        "out": out_type,
        "loaded_types": x_type.name if alone else f"{x_type.name}, {y_type.name}",
        "x_align": VECTOR_BYTES // x_type.bytes,
        "y_align": VECTOR_BYTES // y_type.bytes,
        "out_align": out_align,
        "tolerance": "1e-5" if out_type.name == "f32" else "1e-2",
        "alignment": VECTOR_BYTES,
        "stride_bytes": f" ({VECTOR_BYTES} bytes)",
        "check_sizes": f"(TILE_M, TILE_N), (1, {out_align}), (1001, 1000), (333, 4104), "
        "(8192, 8192)",
        "consumer_warps": sizes.warps,
        "last_compute_warp": sizes.warps - 1,
        "load_warp": sizes.warps,
        "store_warp": sizes.warps + 1,
        "scheduler_warp": sizes.warps + 2,
        "warp_rows": "1 row" if sizes.warp_m == 1 else f"{sizes.warp_m} rows",
        "filled_by": "one compute warp" if interleaved else "all compute warps",
        "full_barrier": full,
        "full_title": "full barrier".ljust(FULL_BARRIER_WIDTH),
        "epi_full": arrives_word(pipelines["epilogue"].full_arrive_count),
        "smem_limit": f"{sizes.capacity} B of SMEM a block",
        "lanes": sizes.lanes,
        "load_domain": "first, num_tiles, step",
        "compute_domain": (
            "first + warp_idx * step, num_tiles, LANES * step"
            if interleaved
            else "first, num_tiles, step"
        ),
        "compute_reads": "[tiles, inputs]" if queue else "[inputs]",
        "load_reads": "[tiles, grid_before]" if pdl else "[tiles]",
        "load_writes": "[inputs, grid_after]" if pdl else "[inputs]",
        "dependencies": dependency_words(edges, pdl),
        "tensors": tensors,
        "numbers_packed": 3 + 2 * len(tensors),
        "kernel_arguments": "tma_x, tma_out" if alone else "tma_x, tma_y, tma_out",
        "swizzled": False,
        "smem_align": f"assumed_align={128}",
        "first_index": "index, _, _",
        "next_index": "step, _, _",
        "block_index": "block",
        "multicast_query": "False",
        "tiles_parameters": "tiles_n, pipeline_config" if clc else "tiles, tiles_n",
        "alone": alone,
        "y_matrix": not alone,
        "y_row": False,
        "has_y": not alone,
        "gather": False,
        "clustered": False,
        "narrow_loads": False,
        "at_once": AT_MOST,
        "tma_store": True,
        "static": not clc,
        "clc": clc,
        "grid_stride": not queue,
        "work_tiles": queue,
        "static_queue": queue and not clc,
        "interleaved": interleaved,
        "together": not interleaved,
        **queue_words(what, (("m", "row of tiles"), ("n", "column of tiles")), ("tiles_n",)),
        **option_words(description),
        **import_words(description, auxiliary=False, queue=queue),
    }
