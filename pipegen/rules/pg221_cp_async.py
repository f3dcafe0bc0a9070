# SPDX-License-Identifier: Apache-2.0
"""A GEMM that loads by cp.async copies rows of K, 128 bytes a stage, for its own CTA.

What it checks
    With pipeline.mainloop.producer = "cp_async", layout.gather or a layout.alignment below 16:
    16-bit operands, both K-major; tile.k = 64; cluster.shape = [1, 1].

Why
    A thread's copy is up to 16 contiguous bytes, which it must put where wgmma reads them: rows of
    128 bytes with the 128-byte swizzle. Rows of K are contiguous in a K-major operand only; of an
    M-major one each element would be a copy. Multicast is a mode of TMA loads (PTX ISA,
    "cp.async.bulk.tensor", .multicast::cluster): a cp.async writes SMEM of its own CTA, and the
    CTAs of a cluster would share nothing. fp8 would need the promotion of short sums, which this
    template does not have.

Example
    layout.gather = true with layout.a = "m". layout.alignment = 8 with cluster.shape = [2, 1].

Use instead
    A stored (T, K), B stored (N, K), bf16 or f16; for fp8, M- or N-major operands and clusters the
    GEMM that loads by TMA, which is the default.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.hardware import SWIZZLE_BYTES
from pipegen.vocabulary import DTYPE


def check(description: KernelDescription) -> Iterator[Problem]:
    dtype, layout, tile = description.dtype, description.layout, description.tile
    for operand in ("a", "b") if dtype.a != dtype.b else ("a",):
        word = getattr(dtype, operand)
        if DTYPE[word].bits != 16:
            yield Problem(
                "the template that loads by cp.async has 16-bit operands",
                f"dtype.{operand}",
                word,
                '"bf16", "f16"',
                '"bf16"',
            )
    for operand, rows in (("a", "(L, T, K)" if layout.gather else "(L, M, K)"), ("b", "(L, N, K)")):
        major = getattr(layout, operand)
        if major != "k":
            yield Problem(
                f"cp.async copies rows of K, so {operand.upper()} must be stored {rows}",
                f"layout.{operand}",
                major,
                '"k"',
                '"k"',
            )
    depth = SWIZZLE_BYTES * 8 // DTYPE[dtype.a].bits
    if tile.k != depth and DTYPE[dtype.a].bits == 16:
        yield Problem(
            f"threads copy rows of {SWIZZLE_BYTES} bytes, the width of the swizzle",
            "tile.k",
            tile.k,
            str(depth),
            str(depth),
        )
    if description.cluster.shape not in (None, (1, 1)):
        yield Problem(
            "cp.async writes SMEM of its own CTA, so the CTAs of a cluster would share nothing",
            "cluster.shape",
            description.cluster.shape,
            "[1, 1]",
            "[1, 1]",
        )
