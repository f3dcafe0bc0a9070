# SPDX-License-Identifier: Apache-2.0
"""Emitted `mixed_gemm` modules: out[l] = A[l] @ (scale[l] * B[l]).T with integer weights B.

The peer multiplies weights that are bf16 or f16 already, twice or four times the bytes: what a
model does that keeps them so. Both take turns among copies of the weights, together beyond L2, as
the layers of a model do; and both launch from CUDA graphs, because few tokens take less time than
a launch from Python.
"""

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from pipegen.measuring.operators import TORCH, Call, Size, description, load, poisoned
from pipegen.measuring.operators.jax_arrays import from_jax, to_jax

PEER = "cuBLAS (torch.mm, 16-bit weights)"
UNIT = "TFLOP/s"
# Bytes of weights, all copies together: several times an H200's L2 of 60 MB.
WEIGHT_BYTES = 256 << 20


class Operator:
    """One mixed GEMM module with its types and groups."""

    clock = "host"  # around graphs: see above
    rotates = True  # launches take turns among copies of the weights already

    def __init__(self, path: Path) -> None:
        text = description(path)
        self.pallas = text["kernel"]["backend"] == "pallas"
        dtype = text.get("dtype", {})
        self.a_type = dtype.get("a", "bf16")
        self.b_type = dtype.get("b", "i8")
        self.out_type = dtype.get("out", self.a_type)
        self.group: int = dtype.get("scale_group", 0)
        self.module = load(path)
        self.tile = tuple(getattr(self.module, f"TILE_{mode}") for mode in "MNK")
        self.cluster = tuple(getattr(self.module, f"CLUSTER_{mode}") for mode in "MN")
        self.stages: int = self.module.MAINLOOP_STAGES

    def operands(self, size: Size) -> list[torch.Tensor]:
        """A (L, M, K); B (L, N, K), or (L, N, K / 2) of two a byte; the scales."""
        m, n, k, batches = size["m"], size["n"], size["k"], size["l"]
        a = torch.randn(batches, m, k, device="cuda").to(TORCH[self.a_type])
        if self.b_type == "i4":
            shape = batches, n, (k + 1) // 2
            b = torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8)
        else:
            b = torch.randint(-128, 128, (batches, n, k), device="cuda", dtype=torch.int8)
        # Sums of 8192 products stay below what an f16 output holds.
        if self.group:
            shape = batches, -(-k // self.group), n
            scale = torch.rand(shape, device="cuda").to(TORCH[self.a_type])
        else:
            scale = torch.rand(batches, n, device="cuda")
        return [a, b, scale]

    def weights(self, operands: list[torch.Tensor]) -> torch.Tensor:
        """The scaled weights (L, N, K) in float64."""
        a, b, scale = operands
        if self.b_type == "i4":
            nibbles = torch.stack([b & 15, b >> 4], -1).flatten(-2)[..., : a.shape[-1]]
            values = (nibbles.double() + 8) % 16 - 8
        else:
            values = b.double()
        if not self.group:
            return scale.double()[..., None] * values
        return scale.double().repeat_interleave(self.group, -2)[..., : a.shape[-1], :].mT * values

    def reference(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The product in float64."""
        return [operands[0].double() @ self.weights(operands).mT]

    def run(self, operands: list[torch.Tensor], size: Size) -> list[torch.Tensor]:
        """The product by the kernel, in memory that held NaN before."""
        if self.pallas:
            a, b, scale = self.as_jax(operands)
            # XLA takes the buffer that was freed last: a run on NaN fills it with NaN.
            spoiled = self.module.mixed_gemm(a * float("nan"), b, scale)
            spoiled.block_until_ready()
            total = spoiled.astype("float32").sum()
            assert bool(total != total)
            spoiled.delete()
            return [from_jax(self.module.mixed_gemm(a, b, scale), TORCH[self.out_type])]
        out = poisoned((size["l"], size["m"], size["n"]), TORCH[self.out_type])
        self.module.mixed_gemm(*operands, out)
        return [out]

    def as_jax(self, operands: list[torch.Tensor]) -> list[Any]:
        """The operands as jax arrays; int4 ones are made of their bytes, the lower bits first."""
        import jax
        import jax.numpy as jnp

        a, b, scale = (to_jax(operand) for operand in operands)
        if self.b_type == "i4":
            pairs = jax.lax.bitcast_convert_type(b, jnp.int4)
            b = pairs.reshape(*b.shape[:-1], -1)[..., : a.shape[-1]]
        return [a, b, scale]

    def launcher(self, operands: list[torch.Tensor], size: Size) -> tuple[Call, Call]:
        """One launch, with the next copy of the weights, and the wait for all."""
        if self.pallas:
            return self.jax_launcher(operands)
        a, b, scale = (operand[0] for operand in operands)
        out = torch.empty(size["m"], size["n"], device="cuda", dtype=TORCH[self.out_type])
        calls = [partial(self.module.mixed_gemm, a, each, scale, out) for each in copies(b)]
        return in_turn(calls), torch.cuda.synchronize

    def jax_launcher(self, operands: list[torch.Tensor]) -> tuple[Call, Call]:
        """As `launcher`. One call in so many launches for all copies: jax has no graph of one."""
        import jax

        a, b, scale = (operand[0] for operand in self.as_jax(operands))
        bytes_of_one = operands[1][0].numel()
        weights = [b, *(b.copy() for _ in range(WEIGHT_BYTES // bytes_of_one))]
        every = jax.jit(lambda a, weights, s: [self.module.mixed_gemm(a, w, s) for w in weights])
        last: list[Any] = [every(a, weights, scale)]
        turn = cycle(range(len(weights)))

        def launch() -> None:
            if next(turn) == 0:
                last[0] = every(a, weights, scale)

        return launch, partial(_wait, last)

    def peer(self, operands: list[torch.Tensor], size: Size) -> Call:
        """torch.mm on 16-bit weights."""
        a = operands[0][0]
        weights = self.weights(operands)[0].to(a.dtype)
        out = torch.empty(size["m"], size["n"], device="cuda", dtype=a.dtype)
        return in_turn([partial(torch.mm, a, each.mT, out=out) for each in copies(weights)])

    def work(self, size: Size) -> int:
        """Floating point operations."""
        return 2 * size["m"] * size["n"] * size["k"] * size["l"]

    def sizes(self) -> list[tuple[str, Size]]:
        """From the module's tile, cluster and stages."""
        tm, tn, tk = self.tile
        cm, cn = self.cluster
        s = self.stages
        chosen = [
            ("one tile", tm, tn, tk, 1),
            ("one cluster of tiles", tm * cm, tn * cn, tk * 2, 1),
            ("fewer tiles than SMs", tm * 3, tn * 5, tk * 7, 1),
            ("several tiles a CTA", tm * 26, tn * 14, tk * 5, 1),
            ("K of stages - 1 tiles", tm * 2, tn * 2, tk * max(1, s - 1), 1),
            ("K of stages tiles", tm * 2, tn * 2, tk * s, 1),
            ("K of stages + 1 tiles", tm * 2, tn * 2, tk * (s + 1), 1),
            ("K of 2 stages + 1 tiles", tm * 2, tn * 2, tk * (2 * s + 1), 1),
            ("batch of 3", tm * 2, tn * 3, tk * 3, 3),
            ("one token", 1, 2048, 4096, 1),
            ("few tokens", 16, 8192, 8192, 1),
            ("many tokens", 4096, 4096, 4096, 1),
            ("tail in M", tm * 3 + 1, tn * 2, tk * 4, 1),
            ("tail in N", tm * 2, tn * 3 + 8, tk * 4, 1),
            ("tail in K", tm * 2, tn * 2, tk * 4 + 32, 1),
            ("tails everywhere, batch of 3", tm + 3, tn - 8, tk * 3 - 32, 3),
            ("smaller than a tile", 5, 8, 32, 1),
        ]
        return [(what, {"m": m, "n": n, "k": k, "l": batch}) for what, m, n, k, batch in chosen]


def in_turn(calls: Sequence[Call]) -> Call:
    """A call that makes one of the calls after the other, each from a CUDA graph."""
    graphs = []
    for call in calls:
        call()  # compiles, and allocates what it needs
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        graphs.append((graph, call))  # the call holds the operands
    turns = cycle(graphs)
    return lambda: next(turns)[0].replay()


def _wait(last: list[Any]) -> None:
    for each in last[0]:
        each.block_until_ready()


def copies(weights: torch.Tensor) -> list[torch.Tensor]:
    """The weights, and as many copies as are beyond L2 together."""
    size = weights.numel() * weights.element_size()
    return [weights, *(weights.clone() for _ in range(WEIGHT_BYTES // size))]
