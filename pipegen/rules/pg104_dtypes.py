# SPDX-License-Identifier: Apache-2.0
"""The tensor core must have an instruction for the operand types, and the epilogue for the output.

What it checks
    That a and b are types that one wgmma or tcgen05.mma takes together, that acc is the type in
    which it sums them, and that out can be stored.

Why
    wgmma.mma_async takes bf16 with bf16, f16 with f16, tf32 with tf32, any two fp8 types, and s8
    with s8, whose sums are s32 (PTX ISA, "wgmma.mma_async", table of data types). So does
    tcgen05.mma, as kind::f16, kind::tf32 and kind::f8f6f4 (PTX ISA, "tcgen05.mma", kinds). There is
    no conversion inside a GEMM. Hopper's Pallas templates write all of them (f32 is read as tf32),
    Blackwell's all but tf32, which Mosaic GPU's tcgen05_mma does not have; the others have 16-bit
    and fp8 operands.

Example
    a = "bf16", b = "f16".

Use instead
    The same 16-bit type for both, or e4m3 / e5m2 in any mix; op = "mixed_gemm" for integer weights
    with 16-bit activations.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.planning.defaults import accumulator_of
from pipegen.vocabulary import DTYPE

OPERANDS = ("bf16", "f16", "e4m3", "e5m2")
# What a template takes beyond those, by backend and architecture.
FURTHER_OPERANDS = {("pallas", "sm_90a"): ("f32", "i8"), ("pallas", "sm_100a"): ("i8",)}
# What Mosaic GPU does not compile (jax 0.10.2 to 0.12.0.1, jax/experimental/mosaic/gpu/tcgen05.py).
NOT_IN_MOSAIC = {("sm_100a", "f32"): "Mosaic GPU's tcgen05_mma has no kind::tf32"}
OUTPUTS = ("f32", "bf16", "f16")
OUTPUTS_OF_INTEGERS = ("i32", *OUTPUTS)


def check(description: KernelDescription) -> Iterator[Problem]:
    dtype = description.dtype
    instruction = "wgmma" if description.kernel.arch == "sm_90a" else "tcgen05"
    kernel = description.kernel
    operands = (*OPERANDS, *FURTHER_OPERANDS.get((kernel.backend, kernel.arch), ()))
    for operand in ("a", "b"):
        value = getattr(dtype, operand)
        if value not in operands:
            why = f"{instruction} has no {value} operand in this template"
            if kernel.backend == "pallas":
                why = NOT_IN_MOSAIC.get((kernel.arch, value), why)
            yield Problem(
                why,
                f"dtype.{operand}",
                value,
                listing(f'"{word}"' for word in operands),
                '"bf16"',
            )
            return
    fp8 = DTYPE[dtype.a].fp8 and DTYPE[str(dtype.b)].fp8
    # Mosaic GPU refuses two kinds of fp8 up to jax 0.10.2.
    mixes = fp8 and description.kernel.backend != "pallas"
    if dtype.a != dtype.b and not mixes:
        refuses = "jax 0.10.2" if fp8 else instruction
        mixable = DTYPE[dtype.a].fp8 and description.kernel.backend != "pallas"
        yield Problem(
            f'{refuses} takes no {dtype.b} beside a = "{dtype.a}"',
            "dtype.b",
            dtype.b,
            '"e4m3", "e5m2"' if mixable else f'"{dtype.a}"',
            f'"{dtype.a}"',
        )
    acc = accumulator_of(kernel.op, dtype.a)
    if dtype.acc != acc:
        yield Problem(
            f"the tensor core sums {dtype.a} products as {acc}",
            "dtype.acc",
            dtype.acc,
            f'"{acc}"',
            f'"{acc}"',
        )
    outputs = OUTPUTS_OF_INTEGERS if acc == "i32" else OUTPUTS
    if dtype.out not in outputs:
        yield Problem(
            "the epilogue stores no such type",
            "dtype.out",
            dtype.out,
            listing(f'"{word}"' for word in outputs),
            '"bf16"',
        )
