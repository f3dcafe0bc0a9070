# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/mixed_gemm_*.py.j2 write, beyond the plan's numbers."""

from dataclasses import dataclass
from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import SWIZZLE_BYTES
from pipegen.planning.gemm_sm90_cute_template import TMA_ALIGNMENT, swizzle
from pipegen.planning.smem_budget import SmemBudget
from pipegen.vocabulary import DTYPE


@dataclass(frozen=True)
class Weights:
    """How a kernel reads its weights: two side by side along K, as one unsigned number."""

    name: str
    pair_cutlass: str
    pair_bytes: int
    torch: str
    note: str
    columns: str


WEIGHTS: dict[str, Weights] = {
    "i8": Weights("i8", "Uint16", 2, "int8", "", "K"),
    "i4": Weights("i4", "Uint8", 1, "uint8", ", two a byte", "K / 2"),
}


@dataclass(frozen=True)
class Magic:
    """Numbers by which small integers become floats: `base` has a last place of 1.

    `bits` is base + 8 twice, `minus` the same negative, `one` is 1 twice, as 16-bit floats.
    """

    base: int
    bits: str
    minus: str
    one: str


# bf16 has 8 significant bits: from 128 on its last place is 1. f16 has 11: from 1024 on.
MAGIC: dict[str, Magic] = {
    "bf16": Magic(128, "0x43084308", "0xC308C308", "0x3F803F80"),
    "f16": Magic(1024, "0x64086408", "0xE408E408", "0x3C003C00"),
}


def mixed_values(description: KernelDescription, budget: SmemBudget) -> dict[str, Any]:
    """The fields of both templates for a description with its defaults filled in."""
    tile, dtype = description.tile, description.dtype
    k = tile.k or 0
    cluster_m, cluster_n = description.cluster.shape or (1, 1)
    a, b, out = DTYPE[dtype.a], DTYPE[str(dtype.b)], DTYPE[str(dtype.out)]
    weights, magic = WEIGHTS[b.name], MAGIC[a.name]
    row_bytes = k * b.bits // 8
    epi_m, epi_n = budget.epi_tile_mn
    grouped = dtype.scale_group > 0
    return {
        "a": a,
        "out": out,
        "weights": weights,
        "scale_group": dtype.scale_group,
        "cluster_m": cluster_m,
        "cluster_n": cluster_n,
        "ahead": f"at most {budget.split.stages} stages ahead",
        "tolerance": tolerance(description),
        "row_pairs": k // 2,
        "row_bytes": row_bytes,
        "chunk_pairs": TMA_ALIGNMENT // weights.pair_bytes,
        "chunks": row_bytes // TMA_ALIGNMENT,
        "swizzle_rows": SWIZZLE_BYTES // row_bytes,
        "epi_tile_m": epi_m,
        "epi_tile_n": epi_n,
        "epi_subtiles": budget.subtiles,
        "a_align": TMA_ALIGNMENT // a.bytes,
        "out_align": TMA_ALIGNMENT // out.bytes,
        "a_swizzle": swizzle("K", k * a.bytes),
        "b_swizzle": swizzle("K", row_bytes),
        "out_swizzle": swizzle("MN", epi_n * out.bytes),
        "per_channel": not grouped,
        "grouped": grouped,
        # What `convert` does with the weights as floats: they may still have to be scaled.
        "result": "value =" if grouped else "return",
        "a_multicast": cluster_n > 1,
        "b_multicast": cluster_m > 1,
        "clustered": cluster_m * cluster_n > 1,
        # Scales are never shared: each CTA of a cluster loads its own.
        "plain_load": cluster_m == 1 or cluster_n == 1 or grouped,
        "i8_bf16": b.name == "i8" and a.name == "bf16",
        "i8_f16": b.name == "i8" and a.name == "f16",
        "i4": b.name == "i4",
        "magic": magic,
        "i4_bias": magic.base + 8,
    }


def tolerance(description: KernelDescription) -> str:
    """The relative error that the module's own check allows: the output's rounding, or that of
    scaled weights, which a kernel with groups rounds to A's type."""
    dtype = description.dtype
    exact = dtype.out == "f32" and not (dtype.scale_group and dtype.a == "bf16")
    return "1e-3" if exact else "1e-2"
