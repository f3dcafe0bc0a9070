# SPDX-License-Identifier: Apache-2.0
"""A Pallas module's call in the emulator, kept, and made again on a GPU.

For `emulated_against_gpu.py`: what the module's public function got and returned in its own check.
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Call = tuple[dict[str, np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]


def record(
    path: Path, arch: str, op: str, sizes: Mapping[str, int], sms: int
) -> tuple[list[Call], list[str]]:
    """The calls of a module's own check in the emulator, arguments and results, and the codes of
    what was found. SystemExit if the numbers are wrong."""
    from pipegen.emulator.finding_docs import code_of
    from pipegen.emulator.machine import run
    from pipegen.emulator.mosaic.emitted import PallasModule
    from pipegen.emulator.session import capturing

    calls: list[Call] = []
    codes: set[str] = set()

    def execute(launch: Any) -> None:
        codes.update(code_of(finding.kind) for finding in run(launch).findings)

    with capturing(execute, arch, sms, str(path), "pallas") as session:
        emitted = PallasModule(path, session)
        module = sys.modules[f"pipegen_emulated_{path.stem}"]
        setattr(module, op, recording(getattr(module, op), calls))
        checked = emitted.check(list(sizes.values()))
    if not checked.passed or not calls:
        raise SystemExit(checked.said or f"{op} was not called")
    return calls, sorted(codes)


def recording(function: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    """The function, which also keeps its arguments and results as arrays of numpy."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any) -> Any:
        given = signature.bind(*args).arguments
        result = function(*args)
        results = result if isinstance(result, (list, tuple)) else [result]
        calls.append(({name: np.asarray(each) for name, each in given.items()}, kept(results)))
        return result

    return called


def kept(results: Any) -> list[np.ndarray[Any, Any]]:
    """Results as arrays of numpy."""
    return [np.asarray(each) for each in results]


def save(target: Path, facts: dict[str, Any], call: Call) -> None:
    """Write a call: bytes of each array, and in `facts` its type and shape."""
    arguments, results = call
    every = {**arguments, **{f"result {n}": each for n, each in enumerate(results)}}
    described = {
        name: {"dtype": each.dtype.name, "shape": each.shape} for name, each in every.items()
    }
    np.savez_compressed(
        target,
        facts=json.dumps({**facts, "arrays": described}),
        **{name: np.frombuffer(each.tobytes(), np.uint8) for name, each in every.items()},
    )


def read(path: Path) -> tuple[dict[str, Any], Call]:
    """What `save` wrote."""
    import jax.numpy as jnp

    with np.load(path) as saved:
        facts = json.loads(str(saved["facts"]))
        every = {
            name: np.frombuffer(saved[name].tobytes(), jnp.dtype(each["dtype"])).reshape(
                each["shape"]
            )
            for name, each in facts["arrays"].items()
        }
    results = [each for name, each in every.items() if name.startswith("result ")]
    return facts, ({n: e for n, e in every.items() if not n.startswith("result ")}, results)


def again(function: Callable[..., Any], call: Call) -> list[np.ndarray[Any, Any]]:
    """The function's results for the same arguments, on jax's default device."""
    import jax.numpy as jnp

    result = function(*(jnp.asarray(each) for each in call[0].values()))
    return kept(result if isinstance(result, (list, tuple)) else [result])
