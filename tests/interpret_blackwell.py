# SPDX-License-Identifier: Apache-2.0
"""Runs emitted Pallas modules in jax's GPU interpreter, as tests ask for it: a program of its own,
for an interpreter that need not be the one that runs the tests.

Reads a JSON list of jobs, writes a JSON list of results. A job:
  text       source of the module
  size       M, N, K, L
  constants  module constants to change, by name
  blocks     CTAs (clusters) that share the tiles. To a kernel that takes them by cluster launch
             control a loop of ours hands them out: the interpreter grants no query. 0 leaves it so
"""

import contextlib
import functools
import io
import json
import os
import sys
import types

os.environ["NPROC"] = "64"  # XLA's threads: every warp that waits takes one


def hand_out(plgpu, lax, blocks):
    """Lets `blocks` CTAs share what one CTA a tile would do; returns what undoes it."""
    kernel, loop = plgpu.kernel, plgpu.dynamic_scheduling_loop
    tiles = []

    def fewer_blocks(*arguments, grid, **others):
        tiles.append(grid[0])
        return kernel(*arguments, grid=(min(blocks, grid[0]),), **others)

    def every_other_tile(grid_names, *, thread_axis, init_carry):
        assert thread_axis == "warpgroup"

        def decorator(body):
            first, step = lax.axis_index(grid_names[0]), min(blocks, tiles[-1])

            def one_tile(count, carry):
                index = (first + count * step,)
                return body(plgpu_loop_info(index=index, local_index=count), carry=carry)

            return lax.fori_loop(0, (tiles[-1] - 1 - first + step) // step, one_tile, init_carry)

        return decorator

    plgpu_loop_info = functools.partial(types.SimpleNamespace, num_local_steps=None)
    plgpu.kernel, plgpu.dynamic_scheduling_loop = fewer_blocks, every_other_tile

    def undo():
        plgpu.kernel, plgpu.dynamic_scheduling_loop = kernel, loop

    return undo


def run(job):
    """One job's result: whether the numbers are right, races, and what was raised."""
    from jax import lax
    from jax.experimental.pallas import mosaic_gpu as plgpu

    module = types.ModuleType("job")
    exec(compile(job["text"], "job.py", "exec"), module.__dict__)
    for name, value in job.get("constants", {}).items():
        assert hasattr(module, name), name
        setattr(module, name, value)
    blocks = job.get("blocks", 0)
    clc = "dynamic_scheduling_loop" in job["text"]
    undo = hand_out(plgpu, lax, blocks) if blocks and clc else lambda: None
    parameters = {"inline_mgpu": "ignore"} if clc else {}
    interpret = plgpu.InterpretGPUParams(detect_races=True, **parameters)
    ctas = getattr(module, "CLUSTER_M", 1) * getattr(module, "CLUSTER_N", 1)
    arguments = {} if clc else {"sm_count": (blocks or 2) * ctas}
    printed, error, passed = io.StringIO(), "", False
    try:
        with contextlib.redirect_stdout(printed):
            launch = functools.partial(module.launch, interpret=interpret, **arguments)
            passed = module.check(launch, *job["size"])
    except Exception as raised:  # whatever it is, the test must see it
        error = f"{type(raised).__name__}: {raised}"
    finally:
        undo()
    races = printed.getvalue().count("RACE DETECTED")
    return {"passed": passed, "races": races, "error": error}


def main() -> int:
    import jax

    jax.config.update("jax_platforms", "cpu")
    results = []
    for job in json.load(sys.stdin):
        results.append(run(job))
        if results[-1]["error"]:
            break  # the interpreter's state is not to be relied on
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
