# SPDX-License-Identifier: Apache-2.0
"""A user's kernel and its test, as `pipegen emulate FILE --entry NAME` takes them."""

import os

import cutlass
import numpy as np
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 64


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, beyond: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(out) + beyond:
        out[index] = a[index] + b[index]


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, beyond: cutlass.Constexpr):
    blocks = cute.ceil_div(cute.size(out), THREADS)
    add_kernel(a, b, out, beyond).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1))


def arrays():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(100, np.float32) for _ in range(2))
    return a, b, np.full(100, np.nan, np.float32)


def check_add() -> None:
    a, b, out = arrays()
    add(*map(from_dlpack, (a, b, out)), 0)
    np.testing.assert_array_equal(out, a + b)


def wrong() -> bool:
    a, b, out = arrays()
    add(*map(from_dlpack, (a, b, out)), 0)
    return np.array_equal(out, a - b)


def beyond() -> None:
    a, b, out = arrays()
    add(*map(from_dlpack, (a, b, out)), 1)


def nothing() -> None:
    """Launches no kernel."""


def wants(size):
    """Cannot be called without arguments."""


def context_manager() -> None:
    """What a user writes in a test of their own; run as a script, without `pipegen emulate`."""
    import pytest
    from cutlass.base_dsl.common import DSLCudaRuntimeError

    import pipegen

    a, b, out = arrays()
    with pipegen.emulator(arch="sm_90a", sms=2) as emulated:
        assert emulated.device.sms == 2
        add(*map(from_dlpack, (a, b, out)), 0)
        compiled = cute.compile(add, *map(from_dlpack, (a, b, out)), 0)
        first = out.copy()
        out[:] = 0
        compiled(*map(from_dlpack, (a, b, out)))
        assert len(emulated.launches) == len(emulated.results) == 2
        launch, _ = emulated.launches
        assert [buffer.name for buffer in launch.buffers] == ["a", "b", "out"]
        assert [buffer.bytes for buffer in launch.buffers] == [400] * 3
        with (
            pytest.raises(pipegen.InputError, match="one at a time"),
            pipegen.emulator(arch="sm_90a"),
        ):
            pass
        with pytest.raises(pipegen.EmulationError, match="PG340 out-of-bounds"):
            add(*map(from_dlpack, (a, b, out)), 1)
    np.testing.assert_array_equal(first, a + b)
    np.testing.assert_array_equal(out[:100], a + b)
    # Compiled in the emulator, and called after it: it must fail, not run on some GPU.
    with pytest.raises(DSLCudaRuntimeError, match="NotSupported"):
        compiled(*map(from_dlpack, (a, b, out)))
    print("all of it held")


if __name__ == "__main__":
    os.environ["CUTE_DSL_ARCH"] = "sm_90a"
    context_manager()
