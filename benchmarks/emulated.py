# SPDX-License-Identifier: Apache-2.0
"""Runs emitted modules in pipegen's emulator, each in a process of its own.

    python benchmarks/emulated.py generated/cute/*sm100*.py --json benchmarks/emulated.json
    python benchmarks/emulated.py generated/pallas/*.py --json benchmarks/emulated.json --add

One size each, at which its rings wrap, and asynchronous work that ends as late as is legal; what
`pipegen verify` adds are more sizes and schedules. Needs no GPU. Exit code 1 if one is not right.
"""

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from pipegen.measuring.code_digest import code_digest


def emulate(module: Path, limit: float) -> dict[str, Any]:
    """What `pipegen emulate --json` says of a module."""
    command = [sys.executable, "-m", "pipegen", "emulate", str(module), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"module": module.name, "passed": False, "said": f"no end within {limit:.0f} s"}
    return {
        "module": module.name,
        "code": code_digest(module),
        **told(done.stdout, done.returncode),
    }


def told(said: str, code: int) -> dict[str, Any]:
    """The verdict in the command's words: whether all was right, sizes, instructions, seconds."""
    try:
        (trial,) = json.loads(said)
    except ValueError:
        return {"passed": False, "said": said[-1000:]}
    if code or not trial["ok"] or not trial["passed"]:
        return {"passed": False, "said": trial["said"], "faults": trial["faults"]}
    return {
        "passed": True,
        **{key: trial[key] for key in ("sizes", "policy", "instructions")},
        "seconds": round(trial["seconds"], 2),
    }


def merged(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of both, the new ones in the place of the old, by module."""
    found = {result["module"]: result for result in (*before, *now)}
    return [found[name] for name in sorted(found)]


def installed() -> dict[str, str]:
    """The versions of the DSLs that are installed."""
    found = {}
    for name in ("nvidia-cutlass-dsl", "jax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="write all figures here")
    parser.add_argument("--add", action="store_true", help="keep what it says of other modules")
    parser.add_argument("--limit", type=float, default=240, help="seconds a module may take")
    arguments = parser.parse_args()
    before = json.loads(arguments.json.read_text("utf-8"))["results"] if arguments.add else []
    results = []
    for module in arguments.modules:
        results.append(emulate(module, arguments.limit))
        print("PASS" if results[-1]["passed"] else "FAIL", module.name, flush=True)
    report = {
        "command": "python benchmarks/emulated.py MODULE… --json benchmarks/emulated.json --add",
        "date": datetime.now(UTC).date().isoformat(),
        **installed(),
        "results": merged(before, results),
    }
    arguments.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
