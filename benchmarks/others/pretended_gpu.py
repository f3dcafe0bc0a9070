# SPDX-License-Identifier: Apache-2.0
"""Lets code that asks torch for a GPU run on a machine that has none: its tensors are the CPU's.

For programs of others that are to run unmodified. A request for a "cuda" tensor gets one of the
CPU, a copy to the GPU is a copy, and what asks about the device is answered.
"""

import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


def _is_gpu(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.split(":")[0] == "cuda"


class _OnCpu(TorchFunctionMode):
    """Rewrites the devices in calls of torch."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if function is torch.Tensor.is_cuda.__get__:
            return True
        if name in ("cuda", "cpu") and args and isinstance(args[0], torch.Tensor):
            return args[0].clone()
        moved = _is_gpu(kwargs.get("device")) or any(map(_is_gpu, args))
        args = tuple(_CPU if _is_gpu(each) else each for each in args)
        if _is_gpu(kwargs.get("device")):
            kwargs = {**kwargs, "device": _CPU}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        result = function(*args, **kwargs)
        if moved and name == "to" and result is args[0]:
            return result.clone()
        return result


class _Event:
    """A CUDA event: nothing is measured here."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: "_Event") -> float:
        return 1.0


@contextmanager
def pretended_gpu(capability: tuple[int, int], sms: int) -> Iterator[None]:
    """While this lasts, torch says that it has one GPU with so many SMs."""
    stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    properties = types.SimpleNamespace(
        multi_processor_count=sms,
        major=capability[0],
        minor=capability[1],
        name="emulated",
        L2_cache_size=50 << 20,
        total_memory=80 << 30,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "Stream": lambda *args, **kwargs: stream,
        "Event": _Event,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda seed: None,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: "emulated",
    }
    custom_op = torch.library.custom_op

    def without_device(*args: Any, **options: Any) -> Any:
        """An operator that is only for the GPU is for the CPU's tensors."""
        return custom_op(*args, **{**options, "device_types": None})

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.library, "custom_op", without_device))
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(_OnCpu())
        yield
