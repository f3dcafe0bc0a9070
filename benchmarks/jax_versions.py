# SPDX-License-Identifier: Apache-2.0
"""Compiles and interprets the emitted Pallas modules under several jax versions, without a GPU.

    python benchmarks/jax_versions.py --json benchmarks/jax_versions.json PYTHON...

Each PYTHON is the interpreter of an environment with jax and its CUDA plug-in.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from code_digest import code_digest

MODULES = sorted((Path(__file__).parent.parent / "generated" / "pallas").glob("*.py"))
VERSION = "import jax, platform; print(jax.__version__, platform.python_version())"


def run(python: str, *arguments: str) -> str:
    """Everything that a command prints; a time-out is said in its text."""
    environment = {**os.environ, "MOSAIC_GPU_DUMP_PTXAS": "1", "JAX_PLATFORMS": "cpu"}
    try:
        done = subprocess.run(
            [python, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return "no end within 600 s"
    return done.stdout + done.stderr


def examine(python: str, module: Path) -> dict[str, Any]:
    """One module under one jax: compiled, bytes spilled, and what the interpreter says."""
    compiled = run(python, str(module), "--compile-only")
    spills = [int(found) for found in re.findall(r"(\d+) bytes spill stores", compiled)]
    interpreted = run(python, str(module), "--interpret")
    verdict = next((w for w in ("SKIP", "FAIL", "PASS") if w in interpreted), "error")
    return {
        "code": code_digest(module),
        "compiled": "PASS compiles" in compiled,
        "spill_bytes": max(spills, default=None),
        "interpreted": "RACE" if "RACE DETECTED" in interpreted else verdict,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    report: dict[str, Any] = {}
    well = True
    for python in arguments.pythons:
        jax, version = run(python, "-c", VERSION).split()[:2]
        results = {module.name: examine(python, module) for module in MODULES}
        report[f"jax {jax}, Python {version}"] = results
        for name, result in results.items():
            print(jax, name, result)
            well &= result["compiled"] and result["interpreted"] in ("PASS", "SKIP")
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
