# SPDX-License-Identifier: Apache-2.0
"""How far the result of a Pallas module may be from its reference, by what rounds it.

Two figures. `tolerance` bounds the relative error in the Frobenius norm, in which a lost fragment
of a large result is nothing. `worst` bounds the largest error of an element, in units that
`worst_reason` names; a lost fragment is there a whole unit or more.
"""

from pipegen.vocabulary import Dtype

# Of the largest of 4096 * 4096 elements with a normal distribution, in units of their rms.
LARGEST = 6
# Of scales from 0.5 to 1.5, over their rms.
LARGEST_SCALE = 1.5
PRECISION = {"bf16": 8, "f16": 11}  # significant bits: rounding errs by up to 2**-bits
# tolerance and worst of a result of which rounding is the largest error.
LIMIT = {"bf16": ("1e-2", "3e-2"), "f16": ("2e-3", "5e-3")}
SCALED_LIMIT = {"bf16": "5e-2", "f16": "1e-2"}
ROW_LIMIT = {"bf16": "1e-2", "f16": "2e-3", "f32": "1e-5"}


def words(tolerance: str, worst: str, reason: str) -> dict[str, str]:
    """The fields that the templates read."""
    return {"tolerance": tolerance, "worst": worst, "worst_reason": reason}


def figure(value: float, digits: int = 0) -> str:
    """A number as people write it: 3e-2."""
    return f"{value:.{digits}e}".replace("e-0", "e-")


def rounding(out: Dtype, size: float) -> str:
    """What rounding does to an element of so many rms."""
    bits = PRECISION[out.name]
    most = f"{size:g} / 2**{bits} = {figure(size / 2**bits, 1)}"
    return f"{out.name} rounds {size:g} rms by up to {most}"


def of_sums(tolerance: str) -> dict[str, str]:
    """Where the sum's own error counts most: an element's grows with it."""
    reason = f"an element of {LARGEST} rms may be {LARGEST} times as far off"
    return words(tolerance, figure(LARGEST * float(tolerance)), reason)


def gemm_limits(a: Dtype, b: Dtype, out: Dtype, tolerance: str) -> dict[str, str]:
    """Of a product of matrices with random elements; `tolerance` is for its sums."""
    if out.integer:
        return words(tolerance, "0.0", "whole numbers are exact")
    if out.name == "f32" or a.fp8 or b.fp8 or a.name == "f32":
        return of_sums(tolerance)
    return words(*LIMIT[out.name], rounding(out, LARGEST))


def mixed_limits(out: Dtype, tolerance: str) -> dict[str, str]:
    """Of a mixed GEMM: scales make some channels larger; scaled weights may be rounded, too."""
    if out.name == "f32":
        return of_sums(tolerance)
    reason = rounding(out, LARGEST * LARGEST_SCALE)
    return words(LIMIT[out.name][0], SCALED_LIMIT[out.name], reason)


def stream_limits(x: str, out: Dtype, *, alone: bool) -> dict[str, str]:
    """Of an elementwise kernel as emitted: x itself, or a sum."""
    if alone and x == out.name:
        return words("0.0", "0.0", "a copy is exact; an f that rounds needs more")
    if out.name == "f32":
        return words(
            "1e-6", "2e-6", f"f32 rounds {LARGEST} rms by up to {LARGEST} / 2**24 = 3.6e-7"
        )
    return words(*LIMIT[out.name], rounding(out, LARGEST))


def row_limits(out: Dtype) -> dict[str, str]:
    """Of rows that differ in scale: an element's error over its row's largest element."""
    bits = PRECISION.get(out.name, 24)
    reason = f"{out.name} rounds that one by up to 2**-{bits} = {figure(2**-bits, 1)}"
    tolerance = LIMIT[out.name][0] if out.name in LIMIT else "1e-5"
    return words(tolerance, ROW_LIMIT[out.name], reason)


def custom_limits(*, f32: bool) -> dict[str, str]:
    """Of bodies that are not known: 16-bit types may round on the way to the result, too."""
    if f32:
        return words("1e-5", "1e-5", "f32 rounds by up to 2**-24 at each step")
    return words("1e-2", "2e-2", "bf16 rounds by up to 2**-8 at each step")


def product_limits(*, f32: bool) -> dict[str, str]:
    """Of products whose bodies are not known, over the largest element of a result."""
    if f32:
        return words("1e-3", "2e-3", "tensor cores round the sums of each step")
    return words("1e-2", "2e-2", "bf16 rounds by up to 2**-8 at each step")
