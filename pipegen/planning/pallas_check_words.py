# SPDX-License-Identifier: Apache-2.0
"""What the self-check of a Pallas GEMM says about its types: random data, poison and tolerance."""

from typing import Any

from pipegen.vocabulary import Dtype

# Of a type's whole range: NumPy's upper bound is exclusive.
INTEGER_RANGE = {"i8": "-128, 128", "i4": "-8, 8"}


def random_words(dtype: Dtype, sizes: str) -> str:
    """An expression for random numbers of a type, as NumPy draws them; `sizes` are its sizes."""
    if dtype.integer:
        return f"rng.integers({INTEGER_RANGE[dtype.name]}, ({sizes}))"
    return f"rng.standard_normal(({sizes}), np.float32)"


def poison_words(out: Dtype) -> dict[str, Any]:
    """What the output's memory holds before the kernel writes it."""
    if out.integer:
        return {"poison": "-(2**31)", "poison_word": "-2**31", "never_true": ""}
    return {"poison": "jnp.nan", "poison_word": "NaN", "never_true": "  # never true for NaN"}


def tolerance_words(a: Dtype, b: Dtype, out: Dtype) -> str:
    """The relative error that the module's own check allows.

    Integers are exact. wgmma sums fp8 products with about 14 bits, and cuts f32 operands to 11
    significant ones: each of the two is too small by up to 1e-3, 3.5e-4 on average.
    """
    if out.integer:
        return "0.0"
    if out.name != "f32" or a.fp8 or b.fp8:
        return "1e-2"
    return "2e-3" if a.name == "f32" else "1e-3"
