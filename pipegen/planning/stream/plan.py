# SPDX-License-Identifier: Apache-2.0
"""Plan of the stream kernels that TMA feeds: TMA -> threads, and threads -> GMEM or TMA store."""

from pipegen.arithmetic import tma_consumer_arrive_count
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, WARP
from pipegen.planning.blocks import grid_numbers, tiles_asked
from pipegen.planning.formulas import quotient, stages_or_given
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.planning.stream.sizes import StreamSizes, filled_stages, most_stages, stream_sizes
from pipegen.planning.stream.template import template_values
from pipegen.vocabulary import DTYPE


def plan_stream_tma(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    sizes = stream_sizes(description)
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
        stage_limit(description, sizes),
        template_values(description, sizes),
    )


def producers_of(description: KernelDescription) -> int:
    """Warps that load: one, or one for x and one for y."""
    return description.role["producer"].warps


def tx_count_of(description: KernelDescription, sizes: StreamSizes) -> int:
    """What each acquire arms: each producer warp the bytes of its own tile, all alike (PG213)."""
    return sizes.stage_bytes // producers_of(description)


def pipelines_of(description: KernelDescription, sizes: StreamSizes) -> tuple[PipelinePlan, ...]:
    """The mainloop, and the epilogue where TMA stores."""
    cluster = description.cluster.shape or (1, 1)
    tiles = "a tile of x" if description.stream.y == "none" else "a tile of x and one of y"
    mainloop = PipelinePlan(
        name="mainloop",
        producer="tma",
        consumer="thread",
        construct="PipelineTmaAsync",
        stages=sizes.stages,
        stage_bytes=sizes.stage_bytes,
        tx_count=tx_count_of(description, sizes),
        full_arrive_count=producers_of(description),
        empty_arrive_count=tma_consumer_arrive_count(sizes.warps, cluster),
        filled_by=f"TMA loads of {tiles}",
        emptied_by="one lane of each consumer warp, once the warp's part is in registers",
    )
    if not sizes.buffers:
        return (mainloop,)
    epilogue = PipelinePlan(
        name="epilogue",
        producer="thread",
        consumer="tma_store",
        construct="PipelineTmaStore",
        stages=sizes.buffers,
        stage_bytes=sizes.tile_out_bytes // sizes.warps,
        tx_count=None,
        full_arrive_count=None,
        empty_arrive_count=None,
        filled_by="the lanes of one consumer warp, its rows of a tile",
        emptied_by="the warp's TMA store, once it has read the buffer",
    )
    return mainloop, epilogue


def roles_of(description: KernelDescription, sizes: StreamSizes) -> tuple[RolePlan, ...]:
    """Producers and consumers; neither changes its registers."""
    producers = producers_of(description)
    loads = "one warp each loads x and y" if producers == 2 else "one warp issues all TMA loads"
    does = f"reads a tile, applies f, stores {'by TMA' if sizes.buffers else 'to GMEM'}"
    return (
        RolePlan("producer", 0, WARP * producers, 0, loads),
        RolePlan("consumer", sizes.warps // 4, WARP * sizes.warps, 0, does),
    )


def stage_limit(description: KernelDescription, sizes: StreamSizes) -> str:
    """What keeps the ring from being deeper."""
    taken = sizes.buffers * sizes.tile_out_bytes
    most = most_stages(sizes.capacity - taken, sizes.stage_bytes)
    if sizes.stages == filled_stages(description) and sizes.stages < most:
        return f"a block's tiles ({tiles_asked(description)}); {most} would fit"
    if description.pipeline["mainloop"].stages == "auto":
        beside = " and the store buffers" if sizes.buffers else ""
        return (
            f"SMEM: {sizes.stages + 1} stages of {sizes.stage_bytes} B{beside} would exceed "
            f"{sizes.capacity} B"
        )
    return f"the description ({sizes.stages}); {most} would fit"


def cluster_grid(cluster_m: int, blocks: int) -> Number:
    """The persistent grid of clusters along M."""
    return Number(
        "grid",
        "persistent",
        "blocks",
        f"{cluster_m} * min(tiles // {cluster_m}, SMs // {cluster_m} * {blocks})",
        "a fixed stride over tiles: as many blocks as the GPU runs at once",
    )


def stage_formula(description: KernelDescription, sizes: StreamSizes) -> str:
    """Where a ring's stages come from, if they were not given."""
    barriers, stores = sizes.barrier_bytes, f"{sizes.buffers} * {sizes.tile_out_bytes}"
    taken = barriers + sizes.buffers * sizes.tile_out_bytes
    if sizes.stages == filled_stages(description):
        few = sizes.stages > (tiles_asked(description) or 0)
        return "the fewest" if few else "as many as a block has tiles"
    return quotient(
        sizes.capacity,
        sizes.stage_bytes,
        sizes.stages,
        (f"{barriers} - {stores}" if sizes.buffers else str(barriers), taken),
    )


def numbers_of(
    given: KernelDescription, description: KernelDescription, sizes: StreamSizes
) -> tuple[Number, ...]:
    """Every derived number with its formula."""
    hardware = HARDWARE[description.kernel.arch]
    tile, dtype, y = description.tile, description.dtype, description.stream.y
    cluster_m, _ = cluster = description.cluster.shape or (1, 1)
    producers = producers_of(description)
    tx_count = tx_count_of(description, sizes)
    x_formula = f"{tile.m} * {tile.n} * {DTYPE[dtype.a].bytes}"
    y_element = DTYPE[str(dtype.b)].bytes
    y_formula = f"{tile.n} * {y_element}" if y == "row" else f"{tile.m} * {tile.n} * {y_element}"
    both = producers == 1 and y != "none"
    arrivals = f"{sizes.warps} consumer warps"
    if cluster_m > 1:
        arrivals += f" * {cluster_m} CTAs that share y"
    smem_formula = f"{sizes.barrier_bytes} + {sizes.stages} * {sizes.stage_bytes}"
    if sizes.buffers:
        smem_formula += f" + {sizes.buffers} * {sizes.tile_out_bytes}"
    threads = WARP * (sizes.warps + producers)
    return (
        Number("x_tile_bytes", sizes.x_bytes, "B", x_formula, "dense tile of x"),
        *(
            (Number("y_tile_bytes", sizes.y_bytes, "B", y_formula, f"dense tile of y, a {y}"),)
            if y != "none"
            else ()
        ),
        Number(
            "tx_count",
            tx_count,
            "B",
            f"{x_formula} + {y_formula}" if both else x_formula,
            "PTX ISA, mbarrier complete-tx; armed by each producer warp (PipelineTmaAsync)",
        ),
        Number(
            "mainloop_full_arrive_count",
            producers,
            "arrivals",
            f"{producers} producer {'warps' if producers > 1 else 'warp'}",
            "cutlass.pipeline.PipelineTmaAsync.producer_acquire: one lane of each warp that calls",
        ),
        Number(
            "mainloop_empty_arrive_count",
            tma_consumer_arrive_count(sizes.warps, cluster),
            "arrivals",
            arrivals,
            "cutlass.pipeline.PipelineTmaAsync.consumer_release: one lane a warp and partner",
        ),
        Number("warp_m", sizes.warp_m, "rows", f"{tile.m} / {sizes.warps}", "of a consumer warp"),
        Number("vector", sizes.vector, "elements", f"{tile.n} / {WARP}", "of a lane in a row"),
        Number("threads", threads, "threads", f"{WARP} * ({sizes.warps} + {producers})", "a CTA"),
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
            stages_or_given(given, "mainloop", stage_formula(description, sizes)),
            "as many as fit",
        ),
        Number(
            "smem_bytes",
            sizes.total_bytes,
            "B",
            smem_formula,
            f"at most {sizes.capacity} B a block",
        ),
        Number(
            "blocks_per_sm",
            sizes.blocks,
            "blocks",
            str(sizes.blocks),
            "the SMEM of an SM is divided by it",
        ),
        *(
            grid_numbers(tiles_asked(description), sizes.blocks)
            if cluster_m == 1
            else (cluster_grid(cluster_m, sizes.blocks),)
        ),
    )
