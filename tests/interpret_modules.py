# SPDX-License-Identifier: Apache-2.0
"""Runs emitted Pallas modules in jax's interpreter: `python interpret_modules.py CASES.json`.

A program of its own, which needs jax and numpy only, so that the tests run it with any Python.
CASES.json is a list of {"module": path, "set": {constant: value}, "through": "main" or "launch"}.
For each case one line of JSON is printed: how it ended, with which jax and Python. A module runs
with the sizes of its own `--interpret`; `set` gives its constants other values first, such as more
stages.
"""

import contextlib
import importlib.util
import io
import json
import logging
import platform
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import interpret_rows
import interpreters
import jax


def load(path: Path, constants: dict[str, Any]) -> ModuleType:
    """The module, with other values of some of its constants."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in constants.items():
        if not hasattr(module, name):
            raise AttributeError(f"{path.name} has no constant {name}")
        setattr(module, name, value)
    return module


def verdict(code: int, said: str, raced: bool) -> str:
    """One word for how a run ended."""
    if raced or "RACE DETECTED" in said:
        return "race"
    if "FAIL" in said or code:
        return "fail"
    return "pass" if "PASS" in said else "skip" if "SKIP" in said else "silent"


def run(case: dict[str, Any]) -> dict[str, Any]:
    """One case: its verdict, and what was said."""
    said, begin = io.StringIO(), time.perf_counter()
    log = logging.StreamHandler(said)
    logging.getLogger().addHandler(log)
    try:
        with contextlib.redirect_stdout(said):
            module = load(Path(case["module"]), case["set"])
            by_launch = case.get("through") == "launch"
            code = interpret_rows.run(module) if by_launch else module.main(["--interpret"])
        word = verdict(code, said.getvalue(), code == 0 and raced(said.getvalue()))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=said)
        word = "race" if "RACE DETECTED" in said.getvalue() else "error"
        interpreters.reset()
    finally:
        logging.getLogger().removeHandler(log)
    return {
        **case,
        "verdict": word,
        "said": said.getvalue()[-2000:],
        "seconds": round(time.perf_counter() - begin, 2),
        "jax": jax.__version__,
        "python": platform.python_version(),
    }


def raced(said: str) -> bool:
    """What the race detector's state says; a module that skipped ran nothing."""
    return "SKIP" not in said and interpreters.races_found()


def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    interpreters.prepare()
    for case in cases:
        print(json.dumps(run(case)), flush=True)


if __name__ == "__main__":
    main()
