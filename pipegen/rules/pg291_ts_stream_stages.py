# SPDX-License-Identifier: Apache-2.0
"""A Task Scheduling stream's two rings must fit in its block's share of an SM, in whole lanes.

What it checks
    stream.blocks_per_sm, pipeline.mainloop.stages (the ring of inputs) and pipeline.epilogue.stages
    (the ring of outputs): at least 2 inputs and 1 output, multiples of the lanes, all of it in the
    SMEM that so many blocks leave to each.

Why
    With one stage nothing is loaded while a tile is read. Each lane walks over its own stages:
    Task Scheduling refuses an interleave_stride that does not divide num_stages. Too much SMEM
    fails at launch, or lets fewer blocks run at once than the grid counts on.

Example
    stages = 20 for tiles of 16384 B: 11 fit. stages = 12 with lanes = 8.

Use instead
    stages = "auto", or a number that the message gives.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, auto_or, listing, nearest_number
from pipegen.hardware import HARDWARE
from pipegen.planning.task_scheduling.stream_sizes import FEWEST_STAGES, ts_stream_sizes
from pipegen.rules.pg290_ts_stream_tile import rows_of

DERIVED = True
BLOCKS_MAX = 8


def check(description: KernelDescription) -> Iterator[Problem]:
    asked = description.stream.blocks_per_sm
    # None or fewer has no sizes: those of one tell what is allowed.
    sizes = ts_stream_sizes(_with_blocks(description, max(1, int(asked))), "auto", "auto")
    if sizes is None:
        return
    hardware = HARDWARE[description.kernel.arch]
    most_blocks = hardware.max_threads_per_sm // sizes.threads
    blocks = [b for b in range(1, min(BLOCKS_MAX, most_blocks) + 1) if _fits(description, b)]
    if not blocks:
        parts, columns = (1 if sizes.lanes > 1 else sizes.warps), description.tile.n or 0
        rows = [m for m in rows_of(description, parts, columns) if _fits(description, 1, m)]
        why = f"the rings' fewest stages do not fit in {sizes.capacity} B"
        yield Problem(why, "tile.m", description.tile.m, listing(rows), str(max(rows)))
        return
    if asked not in blocks:
        why = "so many blocks leave each too little SMEM, or are more threads than an SM holds"
        near = nearest_number(int(asked), blocks)
        yield Problem(why, "stream.blocks_per_sm", asked, f'"auto", {listing(blocks)}', near)
        return
    yield from _stages(description, sizes.lanes)


def _stages(description: KernelDescription, lanes: int) -> Iterator[Problem]:
    """The outputs beside the fewest inputs, then the inputs beside the outputs."""
    fewest = max(FEWEST_STAGES, lanes)
    outputs, inputs = (
        description.pipeline["epilogue"].stages,
        description.pipeline["mainloop"].stages,
    )
    beside = ts_stream_sizes(description, inputs=fewest, outputs=lanes)
    if beside is None:
        return
    choices = []
    for count in range(lanes, beside.capacity // beside.out_bytes + 1, lanes):
        sizes = ts_stream_sizes(description, inputs=fewest, outputs=count)
        if sizes is not None and sizes.fits:
            choices.append(count)
    lanes_word = f", multiples of the {lanes} lanes" if lanes > 1 else ""
    if outputs != "auto" and outputs not in choices:
        why = f"stages of {beside.out_bytes} B beside {fewest} of inputs{lanes_word}"
        near = nearest_number(outputs, choices)
        allowed = f'"auto", {listing(choices)}'
        yield Problem(why, "pipeline.epilogue.stages", outputs, allowed, near)
        return
    deepest = ts_stream_sizes(description, inputs="auto")
    if inputs == "auto" or deepest is None:
        return
    choices = list(range(fewest if lanes == 1 else lanes, deepest.inputs + 1, lanes))
    if inputs not in choices:
        why = f"stages of {beside.in_bytes} B beside the outputs in {beside.capacity} B of SMEM"
        near = nearest_number(inputs, choices)
        allowed = auto_or(choices[0], choices[-1])
        allowed += f" in steps of {lanes}" if lanes > 1 else ""
        yield Problem(f"{why}{lanes_word}", "pipeline.mainloop.stages", inputs, allowed, near)


def _fits(description: KernelDescription, blocks: int, rows: int | None = None) -> bool:
    """Whether the fewest stages fit with so many blocks on an SM (and rows of a tile)."""
    tried = _with_blocks(description, blocks)
    if rows is not None:
        tile = description.tile.model_copy(update={"m": rows})
        tried = tried.model_copy(update={"tile": tile})
    lanes = description.pipeline["mainloop"].lanes
    sizes = ts_stream_sizes(tried, inputs=max(FEWEST_STAGES, lanes), outputs=lanes)
    return sizes is not None and sizes.fits


def _with_blocks(description: KernelDescription, blocks: int) -> KernelDescription:
    """The description with so many blocks on an SM."""
    stream = description.stream.model_copy(update={"blocks_per_sm": blocks})
    return description.model_copy(update={"stream": stream})
