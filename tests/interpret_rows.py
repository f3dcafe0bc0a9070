# SPDX-License-Identifier: Apache-2.0
"""Runs a Pallas stream or reduce module whose pipeline has out_specs in JAX's interpreter.

Such a module says SKIP to `--interpret`: the interpreter knows no predicated store. interpreters.py
lends it one.
"""

import functools
from types import ModuleType

from jax.experimental.pallas import mosaic_gpu as plgpu


def interpret_size(module: ModuleType) -> tuple[int, int]:
    """Rows and columns with tails, several tiles for each of a few blocks."""
    if hasattr(module, "MAX_COLUMNS"):
        return 4 * module.TILE_M + 3, module.MAX_COLUMNS - module.ROW_STEP // 4 - 3
    return 2 * module.TILE_M + 5, 2 * module.TILE_N + 33


def run(module: ModuleType) -> int:
    """What the module's `--interpret` would return: 0 if its numbers are right."""
    interpret = plgpu.InterpretGPUParams(detect_races=True)
    launch = functools.partial(module.launch, sm_count=2, interpret=interpret)
    return 0 if module.check(launch, *interpret_size(module)) else 1
