# SPDX-License-Identifier: Apache-2.0
"""The kernel description: a typed model of the TOML file, with the same names in Python.

Only shapes and types are checked here. Whether a kernel can be built from a description is decided
by the rules (`pipegen.rules`), which see it with all defaults filled in.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from pipegen.description_sections import Order as Order
from pipegen.description_sections import Section, Whole, alias, pair
from pipegen.description_sections import Tensor as Tensor
from pipegen.vocabulary import (
    ARCH_ALIASES,
    CONSUMER_ALIASES,
    PRODUCER_ALIASES,
    WALK_ALIASES,
    AccumulatorName,
    Arch,
    Backend,
    ConsumerKind,
    DtypeName,
    Op,
    ProducerKind,
    RoleKind,
    Style,
    Walk,
)


class Kernel(Section):
    """`[kernel]`: what to write, and for which machine."""

    op: Op = Field(description="What the kernel computes.")
    backend: Backend = Field(description="The DSL of the emitted module.")
    arch: Annotated[Arch, alias(ARCH_ALIASES)] = Field(description="GPU architecture.")
    name: str | None = Field(
        default=None, description="Python name of the module; the file's name by default."
    )
    style: Style | None = Field(
        default=None,
        description=(
            "How the pipeline is written. cute: participants (default), explicit-state. "
            "pallas: warp-specialized (default), emit-pipeline, pallas-call."
        ),
    )


class Dtypes(Section):
    """`[dtype]`: element types of the operands, the accumulator and the output."""

    a: DtypeName = Field(default="bf16", description="Element type of A (stream: of x).")
    b: DtypeName | None = Field(
        default=None,
        description="Element type of B (stream: of y); A's by default, i8 in a mixed_gemm.",
    )
    acc: AccumulatorName | None = Field(
        default=None, description="Accumulator type: f32, or i32 for i8 operands of a gemm."
    )
    out: DtypeName | None = Field(
        default=None,
        description="Output type; A's by default, bf16 for fp8 operands, i32 for i8 ones.",
    )
    promote_every: Whole | Literal["auto"] = Field(
        default="auto",
        description=(
            "fp8 only: K tiles after which the tensor core's short accumulator is added to an f32 "
            "one; 0: never. auto: 4 if the output is f32, else 0."
        ),
    )
    scale_group: Whole = Field(
        default=0,
        description=(
            "mixed_gemm only: elements of K that share a scale of B; 0: one for an output channel."
        ),
    )


class Layout(Section):
    """`[layout]`: the dimension that is contiguous in memory (the major) of each operand."""

    a: Literal["k", "m"] = Field(
        default="k", description='"k": A is stored (L, M, K); "m": (L, K, M).'
    )
    b: Literal["k", "n"] = Field(
        default="k", description='"k": B is stored (L, N, K); "n": (L, K, N).'
    )
    gather: bool = Field(
        default=False,
        description="Rows of A (stream: of the input) are taken through an int32 index tensor.",
    )
    alignment: Literal[16, 8, 4] = Field(
        default=16, description="Bytes to which the rows that cp.async loads are aligned."
    )


class Tile(Section):
    """`[tile]`: the CTA tile in elements."""

    m: Whole | None = Field(default=None, description="Rows of the output tile.")
    n: Whole | None = Field(
        default=None, description="Columns of the output tile; reduce: of the longest row."
    )
    k: Whole | None = Field(default=None, description="Depth of one stage.")
    p: Whole | None = Field(default=None, description="custom only: columns of a second product.")


class Cluster(Section):
    """`[cluster]`: CTAs along M and N that share loads by multicast, and the tcgen05 CTA group."""

    shape: Annotated[tuple[Whole, Whole], BeforeValidator(pair)] | None = Field(
        default=None, description="CTAs of a cluster along M and along N."
    )
    cta_group: Whole = Field(default=1, description="2: tcgen05 CTA pairs, one MMA in two CTAs.")


class Pipeline(Section):
    """`[pipeline.NAME]`: overrides for one pipeline of the op's graph."""

    producer: Annotated[ProducerKind, alias(PRODUCER_ALIASES)] | None = Field(
        default=None, description="Who fills a stage."
    )
    consumer: Annotated[ConsumerKind, alias(CONSUMER_ALIASES)] | None = Field(
        default=None, description="Who empties a stage."
    )
    stages: Whole | Literal["auto"] = Field(
        default="auto", description='Ring buffer depth; "auto" fills SMEM.'
    )
    try_ahead: bool = Field(
        default=False,
        description=(
            "try_acquire and try_wait a stage ahead, with other work in between; cute-ts: before "
            "each acquire and wait."
        ),
    )
    defer_sync: bool = Field(
        default=False,
        description="Barriers are published by an init arrive and wait, with set-up in between.",
    )
    expected_tx: bool = Field(
        default=False,
        description="Bytes are armed at each acquire: tiles outside the matrix are not loaded.",
    )
    advance_on_wait: bool = Field(
        default=True,
        description="cute-ts, a GEMM on sm_90a: wait ahead of the release; false: stage by stage.",
    )
    lanes: Whole = Field(
        default=1,
        description="cute-ts, stream: interleaved lanes, one for each consumer warp; 1: none.",
    )
    in_flight: Whole | None = Field(
        default=None,
        description="Pallas: wgmma that are not awaited when their step ends.",
    )
    delay_release: Whole | None = Field(
        default=None,
        description="Pallas: steps that a stage is kept after its own; in_flight by default.",
    )
    out_specs: bool = Field(
        default=False,
        description=(
            "pallas, [pipeline.epilogue] of stream and reduce: the pipeline itself writes back, "
            "through its out_specs; false: the step stores, which several warpgroups can."
        ),
    )
    edge: str | None = Field(
        default=None,
        description='custom only: the roles it connects, "load -> sum, copy".',
    )
    holds: str | None = Field(
        default=None,
        description="custom only: the tensors whose tiles a stage holds, with commas between.",
    )
    dtype: DtypeName | None = Field(
        default=None, description="custom only: element type of a stage that a body writes."
    )
    shape: str | None = Field(
        default=None, description='custom only: "M, N", or "M": one stage for a panel of rows.'
    )
    credits: Whole | None = Field(
        default=None,
        description="custom only: stages full of zeros at first, of a ring that leads back.",
    )
    multicast: bool | None = Field(
        default=None,
        description="custom only: the two CTAs of a cluster each load a half for both.",
    )
    peer: bool | None = Field(
        default=None,
        description="custom only: the stages are the cluster's other CTA's, whose roles take them.",
    )


class Role(Section):
    """`[role.NAME]`: overrides for one role (a group of warps with one job)."""

    warpgroups: Whole | None = Field(
        default=None, description="Warpgroups (128 threads) of the role."
    )
    warps: Whole = Field(
        default=1, description="Warps of the role that do its work; 2 producers share a state."
    )
    registers: Whole | None = Field(
        default=None, description="Registers a thread of the role holds after setmaxnreg."
    )
    split: Literal["m", "n"] | None = Field(
        default=None,
        description="Pallas: consumer warpgroups share the tile's rows (m) or its columns (n).",
    )
    memory_thread_idx: Whole | None = Field(
        default=None,
        description="Pallas: which warpgroup loads, counted from 0; the last by default.",
    )
    kind: RoleKind | None = Field(
        default=None,
        description="custom only: what moves its tiles; thread: a body; wgmma, umma: a product.",
    )
    body: str | None = Field(
        default=None, description="custom only: Python text of the body of a stage; the identity."
    )
    start: float | None = Field(
        default=None,
        description="custom only: what results that are kept over a panel begin with; 0.",
    )
    finish: str | None = Field(
        default=None,
        description="custom only: Python text that ends a panel, before what is kept is stored.",
    )
    turn: str | None = Field(
        default=None,
        description="custom only: Python text of a body's ordered part; by default, all of it.",
    )


class Scheduler(Section):
    """`[scheduler]`: the order in which a persistent kernel visits output tiles."""

    raster_group: Whole | None = Field(
        default=None,
        description="Tile rows (in clusters) walked together before the next column; for L2 reuse.",
    )
    tiles: Literal["static", "clc"] = Field(
        default="static",
        description="Who hands out tiles: a fixed stride, or cluster launch control (Blackwell).",
    )
    work_tiles: bool = Field(
        default=False,
        description=(
            "cute-ts, stream: tiles come from a WorkQueue, in a loop over work tiles, and not from "
            "a loop with the grid's stride. GEMMs, and tiles = clc, always have one."
        ),
    )
    consumers: Literal["cooperative", "ping-pong"] = Field(
        default="cooperative",
        description="Consumer warpgroups share a tile, or take turns with a tile each.",
    )
    split_k: Whole = Field(
        default=1,
        description="CTAs of a cluster that compute a tile together, each with a part of K.",
    )


class Stream(Section):
    """`[stream]`, for op = "stream": out = f(x) or out = f(x, y) over an (M, N) matrix."""

    y: Literal["none", "matrix", "row"] = Field(
        default="none",
        description="The second input: none, a matrix as x is, or one row that all rows share.",
    )
    blocks_per_sm: Whole | Literal["auto"] = Field(
        default="auto", description="CTAs that share an SM, and so its SMEM."
    )
    tiles_per_block: Whole | Literal["auto"] = Field(
        default="auto",
        description="Tiles of a CTA at most: an SM that is done early gets another CTA. auto: in "
        "CuTe an equal share of all for each CTA that runs at once, in Pallas a few.",
    )


class Reduce(Section):
    """`[reduce]`, for op = "reduce": each row of an (M, N) matrix is reduced, and written anew."""

    body: Literal["rmsnorm", "softmax"] = Field(
        default="rmsnorm",
        description="What is written in the place for your own: rmsnorm with a weight, or softmax.",
    )
    blocks_per_sm: Whole | Literal["auto"] = Field(
        default="auto", description="CTAs that share an SM, and so its SMEM."
    )
    tiles_per_block: Whole | Literal["auto"] = Field(
        default="auto",
        description="Tiles of a CTA at most: an SM that is done early gets another CTA. auto: 4, "
        "and 8 for a warp-specialized softmax.",
    )


class DimensionSemantics(Section):
    """`[dimension_semantics]`, for style = "pallas-call": who walks each dimension of the grid."""

    k: Annotated[Walk, alias(WALK_ALIASES)] | None = Field(
        default=None,
        description="Tiles of K: sequential, the default, if one CTA walks them in a pipeline.",
    )
    tile: Annotated[Walk, alias(WALK_ALIASES)] | None = Field(
        default=None, description="Output tiles: parallel, the default, with a CTA for each."
    )


class Integration(Section):
    """`[integration]`: what the module offers to callers besides its own function."""

    torch: bool = Field(
        default=False,
        description=(
            "torch_op(): a torch.library operator with a fake, which torch.compile traces through."
        ),
    )
    jax: bool = Field(
        default=False,
        description="jax_gemm(a, b): for jax arrays, also inside jax.jit (through cutlass.jax).",
    )
    pdl: bool = Field(
        default=False,
        description=(
            "cute-ts: programmatic dependent launch: the kernel begins while the one before it "
            "ends, waits for it before its first load, and lets the next one begin early."
        ),
    )


class KernelDescription(Section):
    """A whole description: what the TOML file holds.

    Example: `KernelDescription(kernel=Kernel(op="gemm", backend="cute", arch="sm_90a"))`.
    Raises `pydantic.ValidationError` on unknown keys and wrong types; `load_description` turns
    those into `InputError` with one paragraph for each problem.
    """

    pipegen: Literal[1] = Field(default=1, description="Version of the format.")
    kernel: Kernel
    dtype: Dtypes = Dtypes()
    layout: Layout = Layout()
    tile: Tile = Tile()
    cluster: Cluster = Cluster()
    tensor: dict[str, Tensor] = Field(default_factory=dict)
    pipeline: dict[str, Pipeline] = Field(default_factory=dict)
    role: dict[str, Role] = Field(default_factory=dict)
    order: dict[str, Order] = Field(default_factory=dict)
    scheduler: Scheduler = Scheduler()
    stream: Stream = Stream()
    reduce: Reduce = Reduce()
    dimension_semantics: DimensionSemantics = DimensionSemantics()
    integration: Integration = Integration()
