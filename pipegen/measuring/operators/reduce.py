# SPDX-License-Identifier: Apache-2.0
"""Emitted `reduce` modules: each row of an (M, N) matrix by RMS norm or softmax."""

from pathlib import Path

import torch

from pipegen.measuring.operators import MOVER_CLOCK, TORCH, Call, Size, description, load
from pipegen.measuring.operators.jax_arrays import jax_call, jax_run

PEER = "torch (copy_)"
UNIT = "TB/s"


class Operator:
    """One reduce module with its types and its body."""

    clock = MOVER_CLOCK
    by_row = True  # a softmax's rows differ in scale

    def __init__(self, path: Path) -> None:
        text = description(path)
        dtype = text.get("dtype", {})
        self.x_type = dtype.get("a", "bf16")
        self.weight_type = dtype.get("b", self.x_type)
        self.out_type = dtype.get("out", self.x_type)
        self.body = text.get("reduce", {}).get("body", "rmsnorm")
        self.module = load(path)
        self.rows: int = self.module.TILE_M
        self.longest: int = self.module.MAX_COLUMNS
        self.stages: int = self.module.MAINLOOP_STAGES
        self.step: int = self.module.ROW_STEP
        # N is padded to whole steps where a tile is one row, to whole pieces of 128 B elsewhere.
        self.piece: int = getattr(self.module, "PIECE", self.step)

    def operands(self, size: Size) -> list[torch.Tensor]:
        """x (M, N), and the weight (N,) of an RMS norm."""
        x = torch.randn(size["m"], size["n"], device="cuda").to(TORCH[self.x_type])
        if self.body == "softmax":
            return [x]
        return [x, torch.randn(size["n"], device="cuda").to(TORCH[self.weight_type])]

    def reference(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The rows in float64."""
        x, *weight = (operand.double() for operand in operands)
        if self.body == "softmax":
            return [torch.softmax(x, dim=1)]
        scale = (x.square().mean(dim=1, keepdim=True) + self.module.EPSILON).rsqrt()
        return [x * scale * weight[0]]

    def run(self, operands: list[torch.Tensor], size: Size) -> list[torch.Tensor]:
        """The result, in memory that held NaN before."""
        return [jax_run(self.module.reduce, operands, TORCH[self.out_type])]

    def launcher(self, operands: list[torch.Tensor], size: Size) -> tuple[Call, Call]:
        """One launch, and the wait for all."""
        return jax_call(self.module.reduce, operands)

    def peer(self, operands: list[torch.Tensor], size: Size) -> Call:
        """A device copy, which moves as much where the types are alike."""
        out = torch.empty(size["m"], size["n"], device="cuda", dtype=TORCH[self.out_type])
        return lambda: out.copy_(operands[0])

    def others(self, operands: list[torch.Tensor], size: Size) -> dict[str, Call]:
        """What torch has for the same result."""
        x, *weight = operands
        if self.body == "softmax":
            return {"torch.softmax": lambda: torch.softmax(x, dim=1)}
        shape, epsilon = (size["n"],), self.module.EPSILON
        weights = weight[0].to(x.dtype)
        return {"torch rms_norm": lambda: torch.nn.functional.rms_norm(x, shape, weights, epsilon)}

    def work(self, size: Size) -> int:
        """Bytes of x and of the result; the weight is read once."""
        moved = TORCH[self.x_type].itemsize + TORCH[self.out_type].itemsize
        return size["m"] * size["n"] * int(moved)

    def sizes(self) -> list[tuple[str, Size]]:
        """From the module's rows, its longest row and its stages."""
        rows, longest, step, piece = self.rows, self.longest, self.step, self.piece
        blocks = 2 * 132 * 4  # more than any GPU that we know runs at once
        chosen = [
            ("one tile", rows, longest),
            ("fewer tiles than blocks", rows * 3, longest),
            ("several tiles a block", rows * blocks * 3, longest),
            ("more than two rings a block", rows * blocks * (2 * self.stages + 1), step),
            ("tail in M", rows * 7 + 1, longest),
            ("half of the longest row", rows * 5, longest // 2),
            ("one step of a row", rows * 5, step),
            ("a piece less than a row", rows * 9 + 3, longest - piece),
            ("one piece", rows * 9 + 3, piece),
            ("tails everywhere", rows * 13 - 1, longest - 5),
            ("one row", 1, longest),
            ("one element", 1, 1),
            ("rows of one element", rows * 3 + 1, 1),
            ("odd N", rows * 6 + 1, longest // 3 | 1),
            ("large", 8192, longest),
        ]
        return [(what, {"m": m, "n": n, "k": 1, "l": 1}) for what, m, n in chosen]
