# SPDX-License-Identifier: Apache-2.0
"""Plan of the stream kernels that cp.async or threads feed, without TMA loads."""

from pipegen.arithmetic import (
    cp_async_producer_arrive_count,
    elected_consumer_arrive_count,
    thread_producer_arrive_count,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP
from pipegen.planning.blocks import grid_numbers, tiles_asked
from pipegen.planning.formulas import stages_or_given
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.stream.plan import stage_formula, stage_limit
from pipegen.planning.stream.threads_sizes import ThreadSizes, loaded_types, thread_sizes
from pipegen.planning.stream.threads_template import template_values
from pipegen.vocabulary import DTYPE

# The class, and why its full barrier counts threads, by the kind of producer.
CLASS = {"cp_async": "PipelineCpAsync", "thread": "PipelineAsync"}
COMMIT = {
    "cp_async": "MbarrierArray.arrive_cp_async_mbarrier: each thread, for its own copies (noinc)",
    "thread": "MbarrierArray.arrive_mbarrier: each thread that calls; it publishes its own writes",
}
FILLED_BY = {
    "cp_async": "cp.async of every producer thread, each of which commits every stage",
    "thread": "every producer thread, from its registers; each commits every stage",
}


def plan_stream_threads(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    sizes = thread_sizes(description)
    if sizes is None:
        raise ValueError(f"no sizes to plan with: {description.tile=}")
    return Plan(
        name,
        given,
        description,
        template,
        pipelines_of(description, sizes),
        roles_of(description, sizes),
        numbers_of(given, description, sizes),
        stage_limit(description, sizes.stream),
        template_values(description, sizes),
    )


def full_arrivals(description: KernelDescription, sizes: ThreadSizes) -> int:
    """What fills a stage, by the class."""
    if description.pipeline["mainloop"].producer == "cp_async":
        return cp_async_producer_arrive_count(sizes.producer_warps)
    return thread_producer_arrive_count(sizes.producer_warps)


def pipelines_of(description: KernelDescription, sizes: ThreadSizes) -> tuple[PipelinePlan, ...]:
    """The mainloop, and the epilogue where TMA stores."""
    stream, kind = sizes.stream, str(description.pipeline["mainloop"].producer)
    mainloop = PipelinePlan(
        name="mainloop",
        producer=kind,
        consumer="thread",
        construct=CLASS[kind],
        stages=stream.stages,
        stage_bytes=stream.stage_bytes,
        tx_count=None,
        full_arrive_count=full_arrivals(description, sizes),
        empty_arrive_count=elected_consumer_arrive_count(stream.warps),
        filled_by=FILLED_BY[kind],
        emptied_by="one lane of each consumer warp, once the warp's part is in registers",
    )
    if not stream.buffers:
        return (mainloop,)
    epilogue = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="PipelineTmaStore",
        stages=stream.buffers,
        stage_bytes=stream.tile_out_bytes // stream.warps,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by="the lanes of one consumer warp, its rows of a tile",
        emptied_by="the warp's TMA store, once it has read the buffer",
    )
    return mainloop, epilogue


def roles_of(description: KernelDescription, sizes: ThreadSizes) -> tuple[RolePlan, ...]:
    """Producers and consumers; neither changes its registers."""
    warps, producers = sizes.stream.warps, sizes.producer_warps
    copies = description.pipeline["mainloop"].producer == "cp_async"
    loads = "copy to SMEM by cp.async" if copies else "load into registers, put into SMEM"
    stores = "stores by TMA" if sizes.stream.buffers else "stores to GMEM"
    return (
        RolePlan("producer", producers // 4, WARP * producers, 0, f"{producers} warps {loads}"),
        RolePlan("consumer", warps // 4, WARP * warps, 0, f"reads a tile, applies f, {stores}"),
    )


def vector_formula(description: KernelDescription, sizes: ThreadSizes) -> str:
    """Why a lane accesses so many elements at once: all that it has, or as the rows are aligned."""
    if sizes.pieces == 1:
        return f"{description.tile.n} / {WARP}"
    loaded = max(DTYPE[word].bytes for word in loaded_types(description.model_dump()))
    return f"{description.layout.alignment} / {loaded}"


def numbers_of(
    given: KernelDescription, description: KernelDescription, sizes: ThreadSizes
) -> tuple[Number, ...]:
    """Every derived number with its formula."""
    hardware = HARDWARE[description.kernel.arch]
    tile, dtype, stream = description.tile, description.dtype, sizes.stream
    kind, producers = str(description.pipeline["mainloop"].producer), sizes.producer_warps
    x_formula = f"{tile.m} * {tile.n} * {DTYPE[dtype.a].bytes}"
    y_formula = f"{tile.m} * {tile.n} * {DTYPE[str(dtype.b)].bytes}"
    smem_formula = f"{stream.barrier_bytes} + {stream.stages} * {stream.stage_bytes}"
    if stream.buffers:
        smem_formula += f" + {stream.buffers} * {stream.tile_out_bytes}"
    threads = WARP * (stream.warps + producers)
    most = hardware.smem_per_sm // stream.blocks - hardware.smem_reserved_per_block
    return (
        Number("x_tile_bytes", stream.x_bytes, "B", x_formula, "dense tile of x"),
        *(
            (Number("y_tile_bytes", stream.y_bytes, "B", y_formula, "dense tile of y"),)
            if stream.y_bytes
            else ()
        ),
        Number(
            "mainloop_full_arrive_count",
            full_arrivals(description, sizes),
            "arrivals",
            f"{WARP} * {producers}",
            f"cutlass.pipeline.{CLASS[kind]}.producer_commit, {COMMIT[kind]}",
        ),
        Number(
            "mainloop_empty_arrive_count",
            elected_consumer_arrive_count(stream.warps),
            "arrivals",
            f"{stream.warps} consumer warps",
            "cutlass.pipeline.PipelineAsync.consumer_release arrives in each thread that calls it: "
            "one lane does, for its warp",
        ),
        Number("warp_m", stream.warp_m, "rows", f"{tile.m} / {stream.warps}", "of a consumer warp"),
        Number("producer_m", sizes.producer_m, "rows", f"{tile.m} / {producers}", "of a producer"),
        Number(
            "vector",
            sizes.vector,
            "elements",
            vector_formula(description, sizes),
            "what a lane accesses at once",
        ),
        Number(
            "pieces",
            sizes.pieces,
            "vectors",
            f"{tile.n} / ({WARP} * {sizes.vector})",
            "of a lane in a row of a tile",
        ),
        Number(
            "lane_n",
            sizes.lane_n,
            "columns",
            f"{tile.n} - {WARP - 1} * {sizes.vector}",
            "from a lane's first element to its last",
        ),
        Number("threads", threads, "threads", f"{WARP} * ({stream.warps} + {producers})", "a CTA"),
        Number(
            "smem_capacity",
            most,
            "B",
            f"{hardware.smem_per_sm} // {stream.blocks} - {hardware.smem_reserved_per_block}",
            "CUDA, Compute Capabilities: SMEM of an SM, and what it reserves for each block",
        ),
        Number(
            "mainloop_stages",
            stream.stages,
            "stages",
            stages_or_given(given, "mainloop", stage_formula(description, stream)),
            "as many as fit",
        ),
        Number("smem_bytes", stream.total_bytes, "B", smem_formula, f"at most {most} B a block"),
        (
            Number(
                "bytes_in_flight",
                stream.blocks * stream.stages * stream.stage_bytes,
                "B an SM",
                f"{stream.blocks} * {stream.stages} * {stream.stage_bytes}",
                "what the rings of an SM hold, at most",
            )
            if kind == "cp_async"
            else Number(
                "bytes_in_flight",
                stream.blocks * stream.stage_bytes,
                "B an SM",
                f"{stream.blocks} * {stream.stage_bytes}",
                "one tile of each block, in its producers' registers",
            )
        ),
        Number(
            "blocks_per_sm",
            stream.blocks,
            "blocks",
            str(stream.blocks),
            "the SMEM of an SM is divided by it",
        ),
        *grid_numbers(tiles_asked(description), stream.blocks),
    )
