# SPDX-License-Identifier: Apache-2.0
"""Emitted `stream` modules: out = x, out = x + y, or out = x[index], over an (M, N) matrix.

From the CuTe DSL and from Pallas, which returns its output in memory that XLA chose.
"""

from pathlib import Path

import torch

from pipegen.measuring.operators import (
    MOVER_CLOCK,
    TORCH,
    Call,
    Size,
    description,
    load,
    output_of,
    poisoned,
)
from pipegen.measuring.operators.jax_arrays import jax_call, jax_run

PEER = "torch (copy_, add or index_select)"
UNIT = "TB/s"


class Operator:
    """One stream module with its types and what its y is."""

    clock = MOVER_CLOCK

    def __init__(self, path: Path) -> None:
        text = description(path)
        self.pallas = text["kernel"]["backend"] == "pallas"
        dtype = text.get("dtype", {})
        self.x_type = dtype.get("a", "bf16")
        self.y_type = dtype.get("b", self.x_type)
        self.out_type = dtype.get("out", self.x_type)
        self.y = text.get("stream", {}).get("y", "none")
        self.gather = text.get("layout", {}).get("gather", False)
        self.alignment = text.get("layout", {}).get("alignment", 16)
        self.module = load(path)
        self.tile = (self.module.TILE_M, self.module.TILE_N)
        self.cluster_m = getattr(self.module, "CLUSTER_M", 1)
        names = vars(self.module)
        # Of the ring that holds x: Task Scheduling calls its resources so.
        self.stages: int = names.get("MAINLOOP_STAGES") or names["INPUT_STAGES"]
        # TMA stores whole 16 bytes; threads store any N, and so does what pads and cuts.
        self.any_n = self.pallas or not {"EPI_STAGES", "OUTPUT_STAGES"} & names.keys()

    def operands(self, size: Size, dense: bool = False) -> list[torch.Tensor]:
        """x (M, N), and y (M, N) or (N,), or an index of M rows; rows no better aligned than the
        module needs them. `dense`: rows of 16 bytes' alignment have nothing between them."""
        m, n = size["m"], size["n"]
        x = matrix(m, n, TORCH[self.x_type], self.alignment, dense)
        if self.gather:
            # Out of order, and most likely with repetitions.
            return [x, torch.randint(m, (m,), dtype=torch.int32, device="cuda")]
        if self.y == "none":
            return [x]
        y = matrix(m if self.y == "matrix" else 1, n, TORCH[self.y_type], self.alignment, dense)
        return [x, y if self.y == "matrix" else y[0]]

    def timed_operands(self, size: Size) -> list[torch.Tensor]:
        """What most have: torch's copy of rows with gaps takes twice the time."""
        return self.operands(size, dense=True)

    def reference(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The copy, the gathered rows or the sum in float64."""
        if self.gather:
            x, index = operands
            return [x.double()[index.long()]]
        return [sum((operand.double() for operand in operands[1:]), operands[0].double())]

    def run(self, operands: list[torch.Tensor], size: Size) -> list[torch.Tensor]:
        """The result, in memory that held NaN before; all around it must still hold NaN."""
        m, n = size["m"], size["n"]
        out_type = TORCH[self.out_type]
        if self.pallas:
            return [jax_run(self.module.stream, operands, out_type)]
        columns = row_length(n, out_type, self.alignment if self.any_n else 16)
        around = poisoned((m + 1, columns), out_type)
        out = around[:m, :n]
        self.module.stream(*operands, out)
        if not (around[m:].isnan().all() and around[:, n:].isnan().all()):
            raise AssertionError(f"wrote beside out: {size}")
        return [out]

    def launcher(self, operands: list[torch.Tensor], size: Size) -> tuple[Call, Call]:
        """One launch, and the wait for all."""
        if self.pallas:
            return jax_call(self.module.stream, operands)
        out = output_of(operands, (size["m"], size["n"]), self.out_type)
        return lambda: self.module.stream(*operands, out), torch.cuda.synchronize

    def peer(self, operands: list[torch.Tensor], size: Size) -> Call:
        """A device copy, or torch.add; torch has nothing faster that moves these bytes."""
        out = torch.empty(size["m"], size["n"], device="cuda", dtype=TORCH[self.out_type])
        if self.gather and self.x_type == self.out_type:
            return lambda: torch.index_select(operands[0], 0, operands[1], out=out)
        if self.y == "matrix":
            return lambda: torch.add(*operands, out=out)
        # torch.add of a row is slower than a copy, which moves as much.
        return lambda: out.copy_(operands[0])

    def contiguous_copy(self, size: Size) -> tuple[Call, int]:
        """A device copy of contiguous bf16 of this size, and the bytes it moves: what the GPU can.

        For rows that begin where they like, torch's copy of the same rows says little: it is slow.
        """
        source = torch.randn(size["m"], size["n"], device="cuda").to(torch.bfloat16)
        target = torch.empty_like(source)
        return lambda: target.copy_(source), 2 * source.numel() * source.element_size()

    def work(self, size: Size) -> int:
        """Bytes read and written."""
        elements = size["m"] * size["n"]
        moved = [TORCH[self.x_type], TORCH[self.out_type]]
        moved += [TORCH[self.y_type]] if self.y == "matrix" else []
        return elements * sum(int(dtype.itemsize) for dtype in moved)

    def sizes(self) -> list[tuple[str, Size]]:
        """From the module's tile, cluster and stages."""
        tm, tn = self.tile
        cm, s = self.cluster_m, self.stages
        many = 2 * 132 * 4  # tiles for every block of any GPU that we know
        chosen = [
            ("one tile", tm, tn),
            ("one cluster of tiles", tm * cm, tn),
            ("fewer tiles than blocks", tm * 3, tn * 5),
            ("several tiles a block", tm * 40, tn * 33),
            ("more than two rings a block", tm * (2 * s + 1) * cm * 8, tn * many // 8),
            ("tail in M", tm * 3 + 1, tn * 2),
            ("tail in N", tm * 2, tn * 3 + 8),
            ("tails everywhere", tm * 5 - 3, tn * 7 - 8),
            ("one row", 1, tn * 9),
            ("smaller than a tile", 3, 8),
            ("large", 8192, 8192),
        ]
        if self.any_n:
            chosen += [
                ("one element", 1, 1),
                ("odd N", tm * 2, tn * 3 + 1),
                ("odd M and N", tm * 4 - 1, tn * 5 - 1),
            ]
        return [(what, {"m": m, "n": n, "k": 1, "l": 1}) for what, m, n in chosen]


def row_length(n: int, dtype: torch.dtype, alignment: int) -> int:
    """More than n: the rows of a matrix begin at multiples of `alignment` bytes, and not
    always at multiples of twice as much, unless these are 16 already."""
    unit = alignment // dtype.itemsize
    return (n // 16 + 1) * 16 if alignment == 16 else (n // unit + 2 | 1) * unit


def matrix(m: int, n: int, dtype: torch.dtype, alignment: int, dense: bool) -> torch.Tensor:
    """A random matrix whose rows are longer than it is, except where that costs much memory.

    `dense` ones are not, as far as their alignment allows it.
    For an alignment below 16 bytes the first row too begins at an odd multiple of it.
    """
    if alignment == 16:
        whole = n % 16 == 0 and (dense or m * n > 2**26)
        columns = n if whole else row_length(n, dtype, alignment)
        return torch.randn(m, columns, device="cuda").to(dtype)[:, :n]
    first = alignment // dtype.itemsize
    columns = row_length(n, dtype, alignment)
    return torch.randn(m, columns, device="cuda").to(dtype)[:, first : first + n]
