# SPDX-License-Identifier: Apache-2.0
"""As much of torch as the measuring process needs, on NumPy: tests of it without a GPU.

    python tests/fake_torch.py        the measuring process, with this in torch's place

Every type is float32, a graph is a list of calls, an event is a moment. What a launch in a capture
does is recorded and not done, as on a GPU.
"""

import os
import sys
import time
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads that spin on a busy machine look like a hang

import numpy as np

RECORDING = []
TYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "int32", "uint8")


class Tensor(np.ndarray):
    """An array with torch's names."""

    is_cuda = True

    def double(self):
        return self.astype(np.float64).view(Tensor)

    def float(self):
        return self

    def to(self, dtype):
        return self

    def norm(self):
        return np.sqrt((np.asarray(self) ** 2).sum()).view(np.ndarray)

    def numel(self):
        return self.size

    def element_size(self):
        return self.itemsize

    def data_ptr(self):
        return self.ctypes.data

    @property
    def mT(self):
        return self.swapaxes(-1, -2)


def tensor(array):
    return np.asarray(array, np.float32).view(Tensor)


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


class Graph:
    def __init__(self):
        self.calls = []

    def replay(self):
        for call in self.calls:
            call()


class Stream:
    def wait_stream(self, other):
        pass


@contextmanager
def graph(into):
    RECORDING.append(into.calls)
    yield
    RECORDING.pop()


@contextmanager
def stream(_):
    yield


def launch(call):
    """What a kernel's launch does: it is recorded in a capture, and done outside."""
    if RECORDING:
        RECORDING[-1].append(call)
    else:
        call()


def mm(a, b, out):
    launch(lambda: np.matmul(a, b, out=out))


def fake():
    """The module."""
    torch = ModuleType("torch")
    torch.Tensor, torch.dtype = Tensor, SimpleNamespace
    for name in TYPES:
        setattr(torch, name, SimpleNamespace(itemsize=2, name=name))
    generator = np.random.default_rng(0)
    torch.randn = lambda *shape, device=None: tensor(
        generator.standard_normal(shape[0] if isinstance(shape[0], tuple) else shape)
    )
    torch.full = lambda shape, value, device=None: tensor(np.full(shape, value))

    def empty(*shape, device=None, dtype=None):
        return tensor(np.empty(shape[0] if isinstance(shape[0], tuple) else shape))

    torch.empty, torch.mm = empty, mm
    torch.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
    torch.cuda = SimpleNamespace(
        synchronize=lambda: None,
        empty_cache=lambda: None,
        is_available=lambda: True,
        get_device_name=lambda: "NumPy",
        get_device_capability=lambda: (9, 0),
        get_device_properties=lambda _: SimpleNamespace(L2_cache_size=1 << 20),
        Event=Event,
        Stream=Stream,
        CUDAGraph=Graph,
        current_stream=Stream,
        stream=stream,
        graph=graph,
    )
    torch.launch = launch
    return torch


if __name__ == "__main__":
    sys.modules["torch"] = fake()
    from pipegen.measuring.worker import serve

    serve()
