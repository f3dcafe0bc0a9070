# SPDX-License-Identifier: Apache-2.0
"""What a module's self-check gets as `torch`: the functions it uses, on seeded numpy numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipegen.emulator.tensors.dtypes import DTYPES, DType
from pipegen.emulator.tensors.functions import FUNCTIONS
from pipegen.emulator.tensors.tensor import Tensor, apply


class TorchLike:
    """The functions and element types of torch that self-checks use.

    `device`: the CUDA device number that its tensors claim. `seed`: of all random numbers; the
    same seed gives the same numbers in the same order.
    """

    def __init__(self, device: int = 0, seed: int = 0) -> None:
        self._device = device
        self._rng = np.random.default_rng(seed)

    def randn(self, *size: Any, device: object = None) -> Tensor:
        return self._new(self._rng.standard_normal(_size(size), np.float32))

    def rand(self, *size: Any, device: object = None) -> Tensor:
        return self._new(self._rng.random(_size(size), np.float32))

    def randint(
        self, low: int, high: Any, size: Any = None, *, dtype: Any = None, device: object = None
    ) -> Tensor:
        """As torch: (high, size) or (low, high, size)."""
        if size is None:
            low, high, size = 0, low, high
        numbers = self._rng.integers(low, high, tuple(size))
        return self._new(numbers, dtype or DTYPES["int64"])

    def full(
        self, size: Sequence[int], value: Any, *, dtype: Any = None, device: object = None
    ) -> Tensor:
        kind = np.float32 if isinstance(value, float) else np.int64
        return self._new(np.full(tuple(size), value, kind), dtype)

    def zeros(self, *size: Any, dtype: Any = None, device: object = None) -> Tensor:
        return self._new(np.zeros(_size(size), np.float32), dtype)

    def full_like(self, tensor: Tensor, value: Any) -> Tensor:
        return self._new(np.full(tensor.shape, value), tensor.dtype)

    def cat(self, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        return self._new(np.concatenate([each.numbers for each in tensors], dim), tensors[0].dtype)

    def equal(self, left: Tensor, right: Tensor) -> bool:
        """Same shape and same numbers; a NaN equals nothing."""
        return left.shape == right.shape and bool(np.array_equal(left.numbers, right.numbers))

    @property
    def nn(self) -> "TorchLike":
        """`torch.nn.functional.NAME` is `torch.NAME` here."""
        return self

    functional = nn

    def __getattr__(self, name: str) -> Any:
        if name in DTYPES:
            return DTYPES[name]
        if name in FUNCTIONS:
            return lambda *args, **kwargs: apply(name, *args, **kwargs)
        raise AttributeError(
            f"the emulator's stand-in for torch has no `torch.{name}`: it offers what the "
            "self-checks of emitted modules use"
        )

    def _new(self, numbers: Any, dtype: DType | None = None) -> Tensor:
        return Tensor.of(numbers, dtype, self._device, self._rng)


def _size(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
