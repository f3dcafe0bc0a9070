# SPDX-License-Identifier: Apache-2.0
"""Emitted `gemm` modules: out[l] = A[l] @ B[l].T, from the CuTe DSL and from Pallas.

With `layout.gather`, out[l] = A[l, index[l]] @ B[l].T; the operands are then A, B and the index.
"""

from pathlib import Path

import torch

from pipegen.measuring.operators import (
    FP8_WORST,
    TF32_TOLERANCE,
    TOLERANCE,
    TORCH,
    WORST,
    Call,
    Size,
    description,
    load,
    output_of,
    poisoned,
)
from pipegen.measuring.operators.jax_arrays import compile_launch, from_jax, jax_launcher, to_jax

PEER = "cuBLAS (torch.mm)"
FP8 = {"e4m3", "e5m2"}
UNIT = "TFLOP/s"


class Operator:
    """One GEMM module with its types and majors."""

    def __init__(self, path: Path) -> None:
        text = description(path)
        self.pallas = text["kernel"]["backend"] == "pallas"
        # A JAX call cannot be captured, and few rows take less time than its launch.
        self.clock = "device" if self.pallas else "graph"
        dtype, layout = text.get("dtype", {}), text.get("layout", {})
        self.a_type = dtype.get("a", "bf16")
        self.b_type = dtype.get("b", self.a_type)
        usual = {"e4m3": "bf16", "e5m2": "bf16", "i8": "i32"}.get(self.a_type, self.a_type)
        self.out_type = dtype.get("out", usual)
        exact = TOLERANCE[self.out_type]
        self.tolerance = max(exact, TF32_TOLERANCE) if self.a_type == "f32" else exact
        self.worst = FP8_WORST if {self.a_type, self.b_type} & FP8 else WORST[self.out_type]
        self.a_major, self.b_major = layout.get("a", "k"), layout.get("b", "k")
        self.gather: bool = layout.get("gather", False)
        self.alignment: int = layout.get("alignment", 16)
        self.module = load(path)
        self.tile = tuple(getattr(self.module, f"TILE_{mode}") for mode in "MNK")
        self.cluster = tuple(getattr(self.module, f"CLUSTER_{mode}", 1) for mode in "MN")
        self.stages: int = self.module.MAINLOOP_STAGES
        self.split_k: int = getattr(self.module, "SPLIT_K", 1)

    def operands(self, size: Size) -> list[torch.Tensor]:
        """A (L, M, K) and B (L, N, K), stored as the kernel wants them; the index of a gather."""
        m, n, k, batches = size["m"], size["n"], size["k"], size["l"]
        if self.gather:
            # As many rows as M: about a third of them is never taken, and others more than once.
            index = torch.randint(m, (batches, m), device="cuda", dtype=torch.int32)
        a_shape = (batches, m, k) if self.a_major == "k" else (batches, k, m)
        b_shape = (batches, n, k) if self.b_major == "k" else (batches, k, n)
        a, b = random(a_shape, self.a_type), random(b_shape, self.b_type)
        return [a, b, index] if self.gather else [a, b]

    def reference(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The product in float64."""
        a, b = self.gathered(operands)
        left = a.double() if self.a_major == "k" else a.double().mT
        right = b.double().mT if self.b_major == "k" else b.double()
        return [left @ right]

    def gathered(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """A and B, with A's rows picked out where the kernel does so."""
        if not self.gather:
            return operands
        a, b, index = operands
        return [a.gather(1, index.long().unsqueeze(-1).expand(-1, -1, a.shape[2])), b]

    def run(self, operands: list[torch.Tensor], size: Size) -> list[torch.Tensor]:
        """The product by the kernel, in memory that held NaN before."""
        a, b, *index = operands
        if not self.pallas:
            out = poisoned((size["l"], size["m"], size["n"]), TORCH[self.out_type])
            self.module.gemm(a, *index, b, out)
            return [out]
        left, right = to_jax(a), to_jax(b)
        # XLA chooses the output's buffer, and takes the one that was freed last: a run on NaN
        # fills it (and every other buffer of the call) with NaN.
        # Integers have none: another product takes its place.
        spoiled = self.module.gemm(~left if a.dtype == torch.int8 else left * float("nan"), right)
        spoiled.block_until_ready()
        total = spoiled.astype("float32").sum()
        assert a.dtype == torch.int8 or bool(total != total)
        spoiled.delete()
        return [from_jax(self.module.gemm(left, right), TORCH[self.out_type])]

    def compile_for(self, operands: list[torch.Tensor]) -> None:
        """Compile a Pallas module for operands like these."""
        compile_launch(self.module, [to_jax(each) for each in operands])

    def launcher(self, operands: list[torch.Tensor], size: Size) -> tuple[Call, Call]:
        """One launch, and the wait for all."""
        if not self.pallas:
            a, b, *index = (operand[0] for operand in operands)
            out = output_of(operands, (size["m"], size["n"]), self.out_type)
            return lambda: self.module.gemm(a, *index, b, out), torch.cuda.synchronize
        # As `run` calls it, with L: another rank would be another compilation.
        (call,), wait = jax_launcher(self.module.gemm, [[to_jax(each) for each in operands]])
        return call, wait

    def peer(self, operands: list[torch.Tensor], size: Size) -> Call:
        """torch.mm on the same operands, f32 as tf32; a gather's rows are picked out before.

        It has no integers and no 8-bit floats: torch._int_mm and torch._scaled_mm, which are
        cuBLAS too. fp8 with the sums that wgmma itself makes, as the kernels here.
        """
        a, b = (operand[0] for operand in self.gathered(operands))
        if self.a_type == "i8":
            return lambda: torch._int_mm(a, b.mT)
        if {self.a_type, self.b_type} & FP8:
            one = torch.ones((), device="cuda")
            out_type = TORCH[self.out_type]
            return lambda: torch._scaled_mm(
                a, b.mT, one, one, out_dtype=out_type, use_fast_accum=True
            )
        torch.backends.cuda.matmul.allow_tf32 = True
        out = torch.empty(size["m"], size["n"], device="cuda", dtype=TORCH[self.a_type])
        left = a if self.a_major == "k" else a.mT
        right = b.mT if self.b_major == "k" else b
        return lambda: torch.mm(left, right, out=out)

    def work(self, size: Size) -> int:
        """Floating point operations."""
        return 2 * size["m"] * size["n"] * size["k"] * size["l"]

    def sizes(self) -> list[tuple[str, Size]]:
        """From the module's tile, cluster and stages."""
        tm, tn, tk = self.tile
        cm, cn = self.cluster
        s = self.stages
        align = 16  # elements: 16-byte rows for every type that we have
        chosen = [
            ("one tile", tm, tn, tk * s, 1),
            ("one cluster of tiles", tm * cm, tn * cn, tk * 2, 1),
            ("fewer tiles than SMs", tm * 3, tn * 5, tk * 7, 1),
            ("several tiles a CTA", tm * 26, tn * 14, tk * 5, 1),
            ("K of one tile", tm * 2, tn * 2, tk, 1),
            ("K of stages - 1 tiles", tm * 2, tn * 2, tk * max(1, s - 1), 1),
            ("K of stages tiles", tm * 2, tn * 2, tk * s, 1),
            ("K of stages + 1 tiles", tm * 2, tn * 2, tk * (s + 1), 1),
            ("K of 2 stages + 1 tiles", tm * 2, tn * 2, tk * (2 * s + 1), 1),
            ("batch of 3", tm * 2, tn * 3, tk * 3, 3),
            ("large", 4096, 4096, 4096, 1),
        ]
        if not getattr(self.module, "DIVISIBLE_ONLY", False):
            chosen += [
                ("tail in M", tm * 3 + align, tn * 2, tk * 4, 1),
                ("tail in N", tm * 2, tn * 3 + align, tk * 4, 1),
                ("tail in K", tm * 2, tn * 2, tk * 4 + align, 1),
                ("tails everywhere, batch of 3", tm + align, tn - align, tk * 3 - align, 3),
                ("smaller than a tile", align, align, align, 1),
                ("odd M", tm + 1 if self.a_major == "k" else tm + align, tn, tk * 2, 1),
            ]
        if self.split_k > 1:
            long = tk * self.split_k * (2 * s + 1) + align
            chosen += [
                ("fewer K tiles than CTAs", tm * 2, tn * 2, tk * (self.split_k - 1), 1),
                ("K tiles of CTAs + 1", tm * 2, tn * 2, tk * (self.split_k + 1), 1),
                ("two laps in every CTA", tm + align, tn * 3, long, 2),
            ]
        if self.alignment < 16:
            row = self.alignment // 2  # elements of a copy
            chosen += [
                ("rows of one copy more", tm * 2, tn * 2, tk * 3 + row, 1),
                ("rows of one copy less, batch of 3", tm + 1, tn * 2, tk * s * 2 - row, 3),
                ("one copy a row", tm, tn, row, 1),
            ]
        return [(what, {"m": m, "n": n, "k": k, "l": batch}) for what, m, n, k, batch in chosen]


def random(shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Random numbers of a type: normal ones, or any that an integer can hold."""
    if name == "i8":
        return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
    return torch.randn(shape, device="cuda").to(TORCH[name])
