# SPDX-License-Identifier: Apache-2.0
"""torch's functions of numbers, on numpy arrays: those that a reference is likely to be made of.

Each has torch's name and arguments (`dim`, `keepdim`), takes numpy arrays and gives one. A tensor
offers them as methods, the stand-in for torch as functions, as torch does both.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipegen.emulator.tensors.dtypes import Array

Dims = int | tuple[int, ...] | None


def _reduced(numpy_function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Array, dim: Dims = None, keepdim: bool = False) -> Any:
        return numpy_function(x, axis=dim, keepdims=keepdim)

    return reduce


def _spread(numpy_function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Array, dim: Dims = None, keepdim: bool = False, correction: int = 1) -> Any:
        return numpy_function(x, axis=dim, keepdims=keepdim, ddof=correction)

    return reduce


def _softmax(x: Array, dim: int) -> Array:
    raised = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return np.asarray(raised / np.sum(raised, axis=dim, keepdims=True))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[float])(x))


def _pad(x: Array, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """torch.nn.functional.pad: pairs from the last dimension on; a negative one cuts off."""
    if mode != "constant":
        raise AttributeError(
            f"the emulator's stand-in for torch pads with a constant, not {mode!r}"
        )
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    grown = np.pad(x, [(max(0, a), max(0, b)) for a, b in pairs], constant_values=value)
    cut = tuple(
        slice(max(0, -a), size - max(0, -b))
        for (a, b), size in zip(pairs, grown.shape, strict=True)
    )
    return grown[cut]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("abs", "ceil", "cos", "exp", "floor", "log", "log2")},
    **{name: getattr(np, name) for name in ("maximum", "minimum", "round", "sign", "sin", "sqrt")},
    **{name: getattr(np, name) for name in ("square", "tanh", "trunc", "where", "isnan", "isinf")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "neg": np.negative,
    "pow": np.power,
    "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "clamp": lambda x, min=None, max=None: np.clip(x, min, max),
    "softmax": _softmax,
    "pad": _pad,
    "sum": _reduced(np.sum),
    "mean": _reduced(np.mean),
    "prod": _reduced(np.prod),
    "amax": _reduced(np.max),
    "amin": _reduced(np.min),
    "all": _reduced(np.all),
    "any": _reduced(np.any),
    "argmax": _reduced(np.argmax),
    "argmin": _reduced(np.argmin),
    "var": _spread(np.var),
    "std": _spread(np.std),
    "cumsum": lambda x, dim: np.cumsum(x, axis=dim),
    "cumprod": lambda x, dim: np.cumprod(x, axis=dim),
    "flip": lambda x, dims: np.flip(x, axis=dims),
    "roll": lambda x, shifts, dims=None: np.roll(x, shifts, axis=dims),
    "outer": np.outer,
    "matmul": np.matmul,
    "einsum": np.einsum,
}
