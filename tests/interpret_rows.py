# SPDX-License-Identifier: Apache-2.0
"""Runs a Pallas stream or reduce module in JAX's CPU interpreter, with race detection.

    python tests/interpret_rows.py MODULE

The interpreter knows no predicated store (jax 0.11 and 0.12), and a pipeline with out_specs makes
one each step. The module itself says SKIP there; here the store's predicate is looked at in Python.
"""

import functools
import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


def predicated_stores() -> None:
    """Lets the interpreter leave out a store whose predicate is false."""
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

    store = gpu_callbacks.copy_smem_to_gmem

    def with_predicate(*, token, predicate, **arguments):
        if predicate is not None and not bool(np.asarray(predicate)):
            return token
        return store(token=token, predicate=None, **arguments)

    gpu_callbacks.copy_smem_to_gmem = with_predicate


def interpret_size(module) -> tuple[int, int]:
    """Rows and columns with tails, several tiles for each of a few blocks."""
    if hasattr(module, "MAX_COLUMNS"):
        return 4 * module.TILE_M + 3, module.MAX_COLUMNS - module.ROW_STEP // 4 - 3
    return 2 * module.TILE_M + 5, 2 * module.TILE_N + 33


def main(path: Path) -> int:
    if not hasattr(plgpu, "InterpretGPUParams"):
        print(f"SKIP jax {jax.__version__} has no public interpreter, 0.11 has")
        return 0
    jax.config.update("jax_platforms", "cpu")
    predicated_stores()
    spec = importlib.util.spec_from_file_location("module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    interpret = plgpu.InterpretGPUParams(detect_races=True)
    run = functools.partial(module.launch, sm_count=2, interpret=interpret)
    return 0 if module.check(run, *interpret_size(module)) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
