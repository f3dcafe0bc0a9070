# SPDX-License-Identifier: Apache-2.0
"""Whether a module computes what its reference says: fresh random data, float64, twice."""

from typing import Any

import torch

from pipegen.measuring.operators import TOLERANCE, WORST, Operator, Size, worst_error


def errors(
    kernel: Operator, outputs: list[torch.Tensor], wanted: list[torch.Tensor]
) -> tuple[float, float, bool]:
    """The largest relative error of an output, the worst of an element, and whether both will do.

    NaN compares as False, also where it is not the largest.
    """
    by_row = getattr(kernel, "by_row", False)
    pairs = [(out.double(), want) for out, want in zip(outputs, wanted, strict=True)]
    norms = [((out - want).norm() / want.norm()).item() for out, want in pairs]
    elements = [worst_error(out, want, by_row=by_row) for out, want in pairs]
    limit = getattr(kernel, "tolerance", TOLERANCE[kernel.out_type])
    worst_limit = getattr(kernel, "worst", WORST[kernel.out_type])
    right = all(error < limit for error in norms)
    right = right and all(worst < worst_limit for worst in elements)
    return max(norms), max(elements), right


def verify(kernel: Operator) -> list[dict[str, Any]]:
    """Each size once against float64, and once more for the same bits."""
    rows = []
    for what, size in kernel.sizes():
        operands = kernel.operands(size)
        outputs = kernel.run(operands, size)
        again = kernel.run(operands, size)
        torch.cuda.synchronize()
        error, worst, right = errors(kernel, outputs, kernel.reference(operands))
        same = all(
            torch.equal(out.view(torch.uint8), twin.view(torch.uint8))
            for out, twin in zip(outputs, again, strict=True)
        )
        rows.append(
            {
                "what": what,
                **size,
                "error": error,
                "worst": worst,
                "same_bits": same,
                "passed": right and same,
            }
        )
    return rows


def fault(kernel: Operator, operands: list[Any], size: Size, wanted: list[torch.Tensor]) -> str:
    """Why a module must not be timed at this size; empty if it is right."""
    outputs = kernel.run(operands, size)
    torch.cuda.synchronize()
    return wrong(kernel, outputs, wanted)


def wrong(kernel: Operator, outputs: list[torch.Tensor], wanted: list[torch.Tensor]) -> str:
    """What is wrong with these outputs, in words; empty if nothing is."""
    shapes = [tuple(out.shape) for out in outputs]
    if shapes != [tuple(want.shape) for want in wanted]:
        return f"wrong: results of {shapes}, not {[tuple(want.shape) for want in wanted]}"
    error, worst, right = errors(kernel, outputs, wanted)
    return "" if right else f"wrong: relative error {error:.1e}, worst element {worst:.1e}"
