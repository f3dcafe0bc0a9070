# SPDX-License-Identifier: Apache-2.0
"""Runs compiled kernels on the CPU: captures their launches, and executes their PTX.

    with pipegen.emulator(arch="sm_90a"):
        my_host_function(a, b, out)          # numpy arrays, or torch tensors on the CPU
    with pipegen.emulator(arch="sm_90a", dsl="pallas"):
        out = my_jax_function(a, b)          # jax on the CPU, its Pallas kernels in the emulator

The package is also the function: `pipegen.emulator(...)` is `pipegen.emulator.session.emulator`.
"""

import sys
import types
from typing import Any


class _Package(types.ModuleType):
    """A package that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Late: the capture needs numpy and ctypes, and starting pipegen must need neither.
        from pipegen.emulator.session import emulator

        return emulator(*args, **kwargs)


sys.modules[__name__].__class__ = _Package
