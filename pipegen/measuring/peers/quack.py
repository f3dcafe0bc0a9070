# SPDX-License-Identifier: Apache-2.0
"""QuACK's GEMM, tuned by itself: its first call for a size takes 5 to 40 s, before it is timed."""

from functools import partial
from typing import Any

import torch

from pipegen.measuring.clocks import Entry
from pipegen.measuring.operators import TORCH, Operator, Size


def entries(name: str, operator: Operator, sets: list[list[Any]], size: Size) -> dict[str, Entry]:
    """One entry. It takes A (M, K) and B (K, N) by their strides."""
    from quack.gemm_interface import gemm

    kernel: Any = operator
    calls, outs = [], []
    for a, b, *_ in sets:
        left = a[0] if kernel.a_major == "k" else a[0].mT
        right = b[0].mT if kernel.b_major == "k" else b[0]
        outs.append(torch.empty(size["m"], size["n"], device="cuda", dtype=TORCH[kernel.out_type]))
        calls.append(partial(gemm, left, right, out=outs[-1]))
    calls[0]()
    return {"": Entry(calls, result=lambda: [outs[0][None]])}
