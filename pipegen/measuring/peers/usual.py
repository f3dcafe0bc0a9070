# SPDX-License-Identifier: Apache-2.0
"""torch's own operation for the op, on the same operands: cuBLAS for a product."""

from typing import Any

from pipegen.measuring.clocks import Entry
from pipegen.measuring.operators import Operator, Size


def entries(name: str, operator: Operator, sets: list[list[Any]], size: Size) -> dict[str, Entry]:
    """The adapter's `peer`, with each set of operands."""
    calls = [operator.peer(operands, size) for operands in sets]
    return {"": Entry(calls, clock="host" if operator.clock == "host" else "graph")}
