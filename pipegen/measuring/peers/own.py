# SPDX-License-Identifier: Apache-2.0
"""A function of the user's own, `MODULE:FUNCTION`: it takes what the module's function reads.

For a GEMM `function(a, b)` with torch tensors (M, K) and (N, K), as they are stored; it returns the
result, or a tuple of results. It must be possible to capture it in a CUDA graph, or it has an
attribute `clock = "device"` (CUPTI) or `"host"`.
"""

import importlib
import sys
from functools import partial
from typing import Any

from pipegen.measuring.clocks import CLOCKS, Entry
from pipegen.measuring.operators import Operator, Size


def entries(name: str, operator: Operator, sets: list[list[Any]], size: Size) -> dict[str, Entry]:
    """One entry of the function that `name` names; the current folder is searched, too."""
    home, _, word = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    function = getattr(importlib.import_module(home), word)
    clock = getattr(function, "clock", "graph")
    if clock not in CLOCKS:
        raise ValueError(f"{name}.clock = {clock!r}: must be one of {', '.join(CLOCKS)}")
    batched = hasattr(operator, "a_major")
    calls = [
        partial(function, *(each[0] if batched else each for each in operands)) for operands in sets
    ]
    first = calls[0]()
    results = [*first] if isinstance(first, tuple | list) else [first]
    return {
        "": Entry(calls, clock=clock, result=lambda: [r[None] if batched else r for r in results])
    }
