# SPDX-License-Identifier: Apache-2.0
"""A tensor in host memory with torch's spelling, which says that it is on a GPU.

It has what the self-check of an emitted module uses. What it lacks is named by the error.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipegen.emulator.tensors.dtypes import DTYPES, Array, DType, dtype_of
from pipegen.emulator.tensors.functions import FUNCTIONS

# Where a GPU's allocator begins its blocks (CUDA C++ Programming Guide, "Device Memory Accesses").
ALIGNMENT = 256


def aligned_empty(shape: Sequence[int], storage: "np.dtype[Any]") -> Array:
    """An array at a multiple of ALIGNMENT; its elements are whatever was there."""
    count = int(np.prod(shape, dtype=np.int64)) * storage.itemsize
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count].view(storage).reshape(shape)


class Tensor:
    """`stored`: the bits as `dtype` stores them; views share memory with what they view."""

    # numpy must leave `array + tensor` to the tensor.
    __array_ufunc__ = None

    def __init__(self, stored: Array, dtype: DType, device: int = 0, rng: Any = None) -> None:
        self.stored = stored
        self.dtype = dtype
        self._device = device
        self._rng = rng

    @classmethod
    def of(
        cls, values: Any, dtype: DType | None = None, device: int = 0, rng: Any = None
    ) -> "Tensor":
        """A new tensor in memory of its own, aligned as a GPU's; the numbers are rounded."""
        numbers = np.asarray(values)
        wanted = dtype or dtype_of(numbers)
        stored = aligned_empty(numbers.shape, wanted.storage)
        stored[...] = wanted.store(numbers)
        return cls(stored, wanted, device, rng)

    # ---- What a launcher reads -------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored.shape)

    def stride(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(stride // self.stored.itemsize for stride in self.stored.strides)

    def data_ptr(self) -> int:
        return int(self.stored.ctypes.data)

    def get_device(self) -> int:
        return self._device

    def element_size(self) -> int:
        return int(self.stored.itemsize)

    # ---- Numbers ---------------------------------------------------------------------------------

    @property
    def numbers(self) -> Array:
        """What the bits mean, as numpy numbers."""
        return self.dtype.decode(self.stored)

    def to(self, dtype: DType) -> "Tensor":
        return self if dtype == self.dtype else self._new(self.numbers, dtype)

    def double(self) -> "Tensor":
        return self.to(DTYPES["float64"])

    def float(self) -> "Tensor":
        return self.to(DTYPES["float32"])

    def long(self) -> "Tensor":
        return self.to(DTYPES["int64"])

    def item(self) -> Any:
        return self.numbers.item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        return len(self.stored)

    def __repr__(self) -> str:
        return f"Tensor({self.numbers!r}, {self.dtype})"

    # ---- Filling ---------------------------------------------------------------------------------

    def fill_(self, value: Any) -> "Tensor":
        self.stored[...] = self.dtype.store(np.asarray(value))
        return self

    def copy_(self, other: "Tensor") -> "Tensor":
        self.stored[...] = other.to(self.dtype).stored
        return self

    def random_(self, low: int, high: int) -> "Tensor":
        """Integers from low to high - 1."""
        self.stored[...] = self.dtype.store(self._rng.integers(low, high, self.shape))
        return self

    def uniform_(self, low: Any, high: Any) -> "Tensor":
        self.stored[...] = self.dtype.store(self._rng.uniform(low, high, self.shape))
        return self

    def new_tensor(self, values: Any) -> "Tensor":
        return self._new(np.asarray(values), self.dtype)

    # ---- Views and shapes ------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> "Tensor":
        return self._view(self.stored[_index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers = value.numbers if isinstance(value, Tensor) else np.asarray(value)
        self.stored[_index(key)] = self.dtype.store(numbers)

    @property
    def T(self) -> "Tensor":
        """The transpose of a matrix."""
        return self._view(self.stored.T)

    @property
    def mT(self) -> "Tensor":
        return self._view(self.stored.swapaxes(-1, -2))

    def unsqueeze(self, dim: int) -> "Tensor":
        return self._view(np.expand_dims(self.stored, dim))

    def expand(self, *shape: Any) -> "Tensor":
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._view(np.broadcast_to(self.stored, tuple(wanted)))

    def flatten(self, start: int = 0) -> "Tensor":
        kept = self.shape[: start % max(1, len(self.shape))]
        return self._view(self.stored.reshape((*kept, -1)))

    def gather(self, dim: int, index: "Tensor") -> "Tensor":
        return self._view(np.take_along_axis(self.stored, index.stored, dim))

    def repeat_interleave(self, repeats: int, dim: int) -> "Tensor":
        return self._view(np.repeat(self.stored, repeats, dim))

    # ---- Arithmetic ------------------------------------------------------------------------------

    def norm(self) -> "Tensor":
        return self._new(np.sqrt(np.sum(np.square(self.numbers))))

    def topk(self, count: int, dim: int = -1) -> tuple["Tensor", "Tensor"]:
        """(values, indices) of the largest, largest first."""
        numbers = self.numbers
        order = np.flip(np.argsort(numbers, axis=dim, kind="stable"), axis=dim)
        index = np.take(order, np.arange(count), axis=dim)
        return self._new(np.take_along_axis(numbers, index, dim)), self._new(index)

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return self._new(self.numbers @ other.numbers)

    def __neg__(self) -> "Tensor":
        return self._new(-self.numbers, self.dtype)

    def __invert__(self) -> "Tensor":
        return self._new(~self.numbers, self.dtype)

    def __eq__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return self._binary(operator.eq, other)

    def __ne__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return self._binary(operator.ne, other)

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS:
            return lambda *args, **kwargs: apply(name, self, *args, **kwargs)
        raise AttributeError(
            f"the emulator's tensors have no `{name}`: they offer what the self-checks of emitted "
            "modules use of torch"
        )

    def _binary(self, operation: Callable[[Any, Any], Any], other: Any) -> "Tensor":
        right = other.numbers if isinstance(other, Tensor) else other
        result = operation(self.numbers, right)
        # Where numpy has the type, numpy's promotion is torch's for what checks do; a bf16 stays.
        same = self.dtype.encode is not None and not isinstance(other, Tensor)
        return self._new(result, self.dtype if same and result.dtype != np.bool_ else None)

    def _new(self, numbers: Any, dtype: DType | None = None) -> "Tensor":
        return Tensor.of(numbers, dtype, self._device, self._rng)

    def _view(self, stored: Array) -> "Tensor":
        return Tensor(np.asarray(stored), self.dtype, self._device, self._rng)


def apply(name: str, *args: Any, **kwargs: Any) -> Tensor:
    """One of torch's functions; the result is on the device of the first tensor among `args`."""
    numbers = [each.numbers if isinstance(each, Tensor) else each for each in args]
    first = next(each for each in args if isinstance(each, Tensor))
    return first._new(FUNCTIONS[name](*numbers, **kwargs))


def _operator(
    operation: Callable[[Any, Any], Any], turned: bool
) -> Callable[[Tensor, Any], Tensor]:
    if turned:
        return lambda self, other: self._binary(lambda left, right: operation(right, left), other)
    return lambda self, other: self._binary(operation, other)


_BOTH_SIDES = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "rshift", "lshift")
for _name in (*_BOTH_SIDES, "and", "or", "xor"):
    _operation = getattr(operator, f"__{_name}__")
    setattr(Tensor, f"__{_name}__", _operator(_operation, turned=False))
    setattr(Tensor, f"__r{_name}__", _operator(_operation, turned=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{_name}__", _operator(getattr(operator, f"__{_name}__"), turned=False))


def _index(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_index(item) for item in key)
    return key.stored if isinstance(key, Tensor) else key
