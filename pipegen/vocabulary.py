# SPDX-License-Identifier: Apache-2.0
"""The closed sets of words of a kernel description, and each DSL's spelling of them."""

from dataclasses import dataclass
from typing import Literal, get_args

Op = Literal["stream", "gemm", "mixed_gemm", "gemm_rowsum", "reduce", "custom"]
Backend = Literal["cute", "cute-ts", "pallas"]
Arch = Literal["sm_90a", "sm_100a"]
Style = Literal[
    "participants", "explicit-state", "emit-pipeline", "warp-specialized", "pallas-call"
]
ProducerKind = Literal["thread", "cp_async", "tma", "umma", "clc"]
ConsumerKind = Literal["thread", "wgmma", "umma", "umma+thread", "tma_store"]
RoleKind = Literal["tma", "cp_async", "thread", "tma_store", "wgmma", "umma"]
Walk = Literal["parallel", "sequential"]
DtypeName = Literal["bf16", "f16", "f32", "e4m3", "e5m2", "i8", "i4", "i32"]
AccumulatorName = Literal["f32", "i32"]

OPS: tuple[str, ...] = get_args(Op)
BACKENDS: tuple[str, ...] = get_args(Backend)
ARCHS: tuple[str, ...] = get_args(Arch)
PRODUCERS: tuple[str, ...] = get_args(ProducerKind)
CONSUMERS: tuple[str, ...] = get_args(ConsumerKind)
DTYPES: tuple[str, ...] = get_args(DtypeName)

# What a description can ask for beyond pairs and sizes, with the usual value of each. A template
# lists the other values that it writes (selection.toml); rule PG108 refuses the rest.
OPTIONS: dict[str, object] = {
    "cluster.cta_group": 1,
    "scheduler.tiles": "static",
    "scheduler.work_tiles": False,
    "scheduler.consumers": "cooperative",
    "scheduler.split_k": 1,
    "layout.gather": False,
    "layout.alignment": 16,
    "pipeline.mainloop.try_ahead": False,
    "pipeline.mainloop.defer_sync": False,
    "pipeline.mainloop.expected_tx": False,
    "pipeline.mainloop.advance_on_wait": True,
    "pipeline.mainloop.lanes": 1,
    "pipeline.epilogue.out_specs": False,
    "role.producer.warps": 1,
    "stream.y": "none",
    "reduce.body": "rmsnorm",
    "integration.torch": False,
    "integration.jax": False,
    "integration.pdl": False,
}

# The first style of a backend is its default, but for ops that only move bytes: see default_style.
STYLES: dict[str, tuple[str, ...]] = {
    "cute": ("participants", "explicit-state"),
    "cute-ts": ("participants",),
    "pallas": ("warp-specialized", "emit-pipeline", "pallas-call"),
}


def default_style(op: str, backend: str) -> str:
    """The style of a description that names none.

    Where nothing but bytes moves, small blocks that share an SM were faster on an H200 than one
    block with a warpgroup for its loads (benchmarks/hopper_speed_pallas_rows.json).
    """
    return (
        "emit-pipeline"
        if backend == "pallas" and op in ("stream", "reduce")
        else STYLES[backend][0]
    )


# Pallas styles in which one warpgroup loads and computes.
ONE_STREAM_STYLES = ("emit-pipeline", "pallas-call")

# Words that users bring along, and ours for the same thing.
CONSUMER_ALIASES: dict[str, str] = {"tcgen05": "umma"}
PRODUCER_ALIASES: dict[str, str] = {"tcgen05": "umma"}
# Pallas for TPUs says arbitrary.
WALK_ALIASES: dict[str, str] = {"arbitrary": "sequential"}
# What other libraries call our element types; an error proposes ours.
WORD_OF: dict[str, str] = {
    "bfloat16": "bf16",
    "fp16": "f16",
    "float16": "f16",
    "half": "f16",
    "fp32": "f32",
    "float32": "f32",
    "tf32": "f32",
    "fp8": "e4m3",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "i8",
    "s8": "i8",
    "int4": "i4",
    "s4": "i4",
    "int32": "i32",
    "s32": "i32",
}
ARCH_ALIASES: dict[str, str] = {
    "sm90": "sm_90a",
    "sm_90": "sm_90a",
    "sm90a": "sm_90a",
    "hopper": "sm_90a",
    "h100": "sm_90a",
    "h200": "sm_90a",
    "sm100": "sm_100a",
    "sm_100": "sm_100a",
    "sm100a": "sm_100a",
    "blackwell": "sm_100a",
    "b200": "sm_100a",
}


@dataclass(frozen=True)
class Dtype:
    """One element type: its size in bits, and its name in each library."""

    name: str
    bits: int
    cutlass: str
    jax: str
    torch: str

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def fp8(self) -> bool:
        """Whether it is one of the 8-bit floats."""
        return self.name in ("e4m3", "e5m2")

    @property
    def integer(self) -> bool:
        """Whether it holds whole numbers."""
        return self.name.startswith("i")


DTYPE: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("bf16", 16, "BFloat16", "bfloat16", "bfloat16"),
        Dtype("f16", 16, "Float16", "float16", "float16"),
        Dtype("f32", 32, "Float32", "float32", "float32"),
        Dtype("e4m3", 8, "Float8E4M3FN", "float8_e4m3fn", "float8_e4m3fn"),
        Dtype("e5m2", 8, "Float8E5M2", "float8_e5m2", "float8_e5m2"),
        Dtype("i8", 8, "Int8", "int8", "int8"),
        # Two a byte: torch has no array of them, jax has.
        Dtype("i4", 4, "Int4", "int4", "uint8"),
        Dtype("i32", 32, "Int32", "int32", "int32"),
    )
}
