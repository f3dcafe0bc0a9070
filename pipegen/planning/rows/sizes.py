# SPDX-License-Identifier: Apache-2.0
"""How the Pallas kernels `stream` and `reduce` use their SMEM and split a tile. Sizes in bytes.

Read in jax 0.10.2 to 0.12.0.1 and checked against the compiled kernels' sizes: Mosaic GPU places
each array at a multiple of 1024, then the barriers, 8 B each. Functions take a description with its
defaults filled in.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from pipegen.arithmetic import align_up, tile_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MBARRIER_BYTES, SWIZZLE_128B_ALIGNMENT, VECTOR_BYTES, WARP
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 2  # one is read while the next is loaded
STORE_BUFFERS = 2  # one is written while another is stored
# A tile is copied in pieces of so many bytes a row: full lines, and what N is padded to.
PIECE_BYTES = 128
# What Mosaic GPU keeps in SMEM for a reduction across warps, whether or not there is one
# (`reduction_scratch_bytes` of plgpu.CompilerParams: 4 B for each thread of each of 4 warps).
REDUCTION_SCRATCH = 128 * 4 * 4


@dataclass(frozen=True)
class RowSizes:
    """A tile's parts and what fits in a block's SMEM.

    `wg_m` rows of a tile belong to each consumer warpgroup, which reads them with `vector` elements
    a lane at once; `row_warps` of its warps share a row. `y_bytes` is 0 where there is no y, or
    where the weight of a reduction stays in SMEM: that is `weight_bytes`. `tile_out_bytes` are the
    store buffers of all warpgroups together, one each.
    """

    warpgroups: int
    wg_m: int
    row_warps: int
    vector: int
    blocks: int
    capacity: int
    x_bytes: int
    y_bytes: int
    weight_bytes: int
    scratch_bytes: int
    tile_out_bytes: int
    barriers_a_stage: int
    stages: int
    buffers: int

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of the ring."""
        return self.x_bytes + self.y_bytes

    @property
    def barriers(self) -> int:
        """Barriers of a block: the ring's, and one for the weight."""
        return self.barriers_a_stage * self.stages + (1 if self.weight_bytes else 0)

    @property
    def total_bytes(self) -> int:
        """Bytes of a block's SMEM."""
        arrays = (
            self.stages * self.x_bytes,
            self.stages * self.y_bytes,
            self.weight_bytes,
            self.buffers * self.tile_out_bytes,
            self.scratch_bytes,
        )
        placed = sum(align_up(size, SWIZZLE_128B_ALIGNMENT) for size in arrays)
        return placed + MBARRIER_BYTES * self.barriers


def is_warp_specialized(description: KernelDescription) -> bool:
    """Whether a warpgroup of its own loads."""
    return description.kernel.style == "warp-specialized"


def has_out_specs(description: KernelDescription) -> bool:
    """Whether the pipeline writes back, through its out_specs."""
    epilogue = description.pipeline.get("epilogue")
    return epilogue is not None and epilogue.out_specs


def blocks_of(description: KernelDescription) -> int | Literal["auto"]:
    """CTAs on an SM, as described."""
    if description.kernel.op == "reduce":
        return description.reduce.blocks_per_sm
    return description.stream.blocks_per_sm


def element_types(description: KernelDescription) -> dict[str, str]:
    """The element types that the kernel moves, by their key in [dtype]."""
    dtype, stream, reduce = description.dtype, description.stream, description.reduce
    two = stream.y != "none" if description.kernel.op == "stream" else reduce.body == "rmsnorm"
    both = {"a": dtype.a, "b": str(dtype.b), "out": str(dtype.out)}
    return {key: word for key, word in both.items() if two or key != "b"}


def widest(description: KernelDescription) -> int:
    """Bytes of an element of the widest type."""
    return max(DTYPE[word].bytes for word in element_types(description).values())


def row_warps_of(rows: int) -> int:
    """Warps of a warpgroup that share a row of its `rows`: few rows have several warps each."""
    return max(1, 4 // max(1, rows))


def row_step(description: KernelDescription, sizes: RowSizes) -> int:
    """Columns that the warps of a row read at once: a tile of a reduction has whole ones."""
    return WARP * (VECTOR_BYTES // widest(description)) * sizes.row_warps


def row_sizes(description: KernelDescription) -> RowSizes | None:
    """The sizes of a description; None where it has none to compute with.

    As many stages as fit beside the store buffers. With out_specs there is a buffer for each stage.
    """
    tile, types = description.tile, element_types(description)
    m, n = tile.m or 0, tile.n or 0
    warpgroups = description.role["consumer"].warpgroups or 0
    blocks = blocks_of(description)
    if min(m, n, warpgroups) < 1 or blocks == "auto" or blocks < 1 or m % warpgroups:
        return None
    hardware = HARDWARE[description.kernel.arch]
    reduces, specialized = description.kernel.op == "reduce", is_warp_specialized(description)
    b_bits = DTYPE[types["b"]].bits if "b" in types else 0
    wg_m = m // warpgroups
    made = RowSizes(
        warpgroups=warpgroups,
        wg_m=wg_m,
        row_warps=row_warps_of(wg_m) if reduces else 1,
        vector=VECTOR_BYTES // widest(description) if reduces else n // WARP,
        blocks=blocks,
        capacity=hardware.smem_per_sm // blocks - hardware.smem_reserved_per_block,
        x_bytes=tile_bytes(m, n, DTYPE[types["a"]].bits),
        y_bytes=(
            0 if reduces else tile_bytes(m if description.stream.y == "matrix" else 1, n, b_bits)
        ),
        weight_bytes=tile_bytes(1, n, b_bits) if reduces else 0,
        scratch_bytes=REDUCTION_SCRATCH if reduces else 0,
        tile_out_bytes=tile_bytes(m, n, DTYPE[types["out"]].bits),
        barriers_a_stage=2 if specialized else 1,
        stages=0,
        buffers=0,
    )
    return fill_smem(description, made)


def fill_smem(description: KernelDescription, made: RowSizes) -> RowSizes:
    """The same sizes with stages and store buffers, as described or as many as fit.

    Of "auto" buffers there are STORE_BUFFERS, or 1 where that leaves too few stages.
    """
    pipelines, out_specs = description.pipeline, has_out_specs(description)
    stages, asked = pipelines["mainloop"].stages, pipelines["epilogue"].stages
    most = min(MOST_STAGES, made.capacity // made.stage_bytes)

    def sized(stages: int, buffers: int) -> RowSizes:
        return replace(made, stages=stages, buffers=stages if out_specs else buffers)

    def deepest(buffers: int) -> RowSizes:
        if stages != "auto":
            return sized(stages, buffers)
        fitting = [s for s in range(1, most + 1) if sized(s, buffers).total_bytes <= made.capacity]
        return sized(max(fitting, default=0), buffers)

    chosen = deepest(STORE_BUFFERS if asked == "auto" else asked)
    roomy = chosen.stages >= FEWEST_STAGES and chosen.total_bytes <= chosen.capacity
    return chosen if roomy or asked != "auto" else deepest(1)


def fits(description: KernelDescription) -> bool:
    """Whether a ring of the fewest stages, or of those described, fits with its buffers."""
    sizes = row_sizes(description)
    return (
        sizes is not None
        and FEWEST_STAGES <= sizes.stages <= MOST_STAGES
        and sizes.buffers >= 1
        and sizes.total_bytes <= sizes.capacity
    )


def with_values(
    description: KernelDescription,
    mainloop: int | Literal["auto"] | None = None,
    epilogue: int | Literal["auto"] | None = None,
    blocks: int | None = None,
    rows: int | None = None,
    columns: int | None = None,
) -> KernelDescription:
    """The same description with other stages, blocks on an SM or tile sizes; None leaves them."""
    pipelines = dict(description.pipeline)
    for name, stages in (("mainloop", mainloop), ("epilogue", epilogue)):
        if stages is not None:
            pipelines[name] = pipelines[name].model_copy(update={"stages": stages})
    sizes = {"m": rows, "n": columns}
    tile = {key: size for key, size in sizes.items() if size is not None}
    update: dict[str, Any] = {
        "pipeline": pipelines,
        "tile": description.tile.model_copy(update=tile),
    }
    if blocks is not None:
        op = description.kernel.op
        section = getattr(description, op)
        update[op] = section.model_copy(update={"blocks_per_sm": blocks})
    return description.model_copy(update=update)
