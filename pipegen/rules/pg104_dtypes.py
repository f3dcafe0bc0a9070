# SPDX-License-Identifier: Apache-2.0
"""The tensor core must have an instruction for the operand types, and the epilogue for the output.

What it checks
    That a and b are types that one wgmma or tcgen05.mma takes together, and that out can be stored.

Why
    wgmma.mma_async takes bf16 with bf16, f16 with f16, tf32 with tf32, and any two fp8 types
    (PTX ISA, "wgmma.mma_async", table of data types). So does tcgen05.mma, as kind::f16, kind::tf32
    and kind::f8f6f4 (PTX ISA, "tcgen05.mma", kinds). There is no conversion inside a GEMM.

Example
    a = "bf16", b = "f16".

Use instead
    The same 16-bit type for both, or e4m3 / e5m2 in any mix; op = "mixed_gemm" for the rest.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.vocabulary import DTYPE

OPERANDS = {
    "cute": ("bf16", "f16", "e4m3", "e5m2"),
    "cute-ts": ("bf16", "f16", "e4m3", "e5m2"),
    "pallas": ("bf16", "f16", "e4m3", "e5m2"),
}
# Mosaic GPU's tcgen05_mma adds up integers too, and has no kind::tf32 in jax 0.10.2 to 0.12.0.1.
TCGEN05_PALLAS = (*OPERANDS["pallas"], "i8")
OUTPUTS = ("f32", "bf16", "f16")


def check(description: KernelDescription) -> Iterator[Problem]:
    dtype = description.dtype
    instruction = "wgmma" if description.kernel.arch == "sm_90a" else "tcgen05"
    pallas = description.kernel.backend == "pallas"
    operands = OPERANDS[description.kernel.backend]
    operands = TCGEN05_PALLAS if pallas and instruction == "tcgen05" else operands
    for operand in ("a", "b"):
        value = getattr(dtype, operand)
        if value not in operands:
            why = f"{instruction} has no {value} operand in this template"
            if pallas and instruction == "tcgen05" and value == "f32":
                why = "Mosaic GPU's tcgen05_mma has no kind::tf32 (jax 0.10.2 to 0.12.0.1)"
            yield Problem(
                why,
                f"dtype.{operand}",
                value,
                listing(f'"{word}"' for word in operands),
                '"bf16"',
            )
            return
    fp8 = DTYPE[dtype.a].bits == 8 and DTYPE[str(dtype.b)].bits == 8
    fp8 = fp8 and "i8" not in (dtype.a, dtype.b)
    # Mosaic GPU refuses two kinds of fp8 up to jax 0.10.2.
    mixes = fp8 and not pallas
    if dtype.a != dtype.b and not mixes:
        refuses = "jax 0.10.2" if fp8 else instruction
        mixable = DTYPE[dtype.a].bits == 8 and not pallas
        yield Problem(
            f'{refuses} takes no {dtype.b} beside a = "{dtype.a}"',
            "dtype.b",
            dtype.b,
            '"e4m3", "e5m2"' if mixable else f'"{dtype.a}"',
            f'"{dtype.a}"',
        )
    if dtype.out not in OUTPUTS:
        yield Problem(
            "the epilogue stores no such type",
            "dtype.out",
            dtype.out,
            listing(f'"{word}"' for word in OUTPUTS),
            '"bf16"',
        )
