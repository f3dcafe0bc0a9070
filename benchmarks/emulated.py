# SPDX-License-Identifier: Apache-2.0
"""Runs emitted CuTe modules in pipegen's emulator, each in a process of its own.

    python benchmarks/emulated.py generated/cute/*sm100*.py --json benchmarks/emulated.json

One size each, at which its rings wrap, and asynchronous work that ends as late as is legal; what
`pipegen verify` adds are more sizes and schedules. Needs no GPU. Exit code 1 if one is not right.
What the file says of other modules stays, if it is of the same version of the DSL.
"""

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
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


def merged(old: dict[str, Any], results: list[dict[str, Any]], dsl: str) -> list[dict[str, Any]]:
    """These results, and the file's own of other modules; those of another DSL are dropped."""
    kept = old.get("results", []) if old.get("nvidia-cutlass-dsl") == dsl else []
    by_name = {each["module"]: each for each in (*kept, *results)}
    return list(by_name.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="write all figures here")
    parser.add_argument("--limit", type=float, default=240, help="seconds a module may take")
    arguments = parser.parse_args()
    results = []
    for module in arguments.modules:
        results.append(emulate(module, arguments.limit))
        print("PASS" if results[-1]["passed"] else "FAIL", module.name, flush=True)
    dsl = version("nvidia-cutlass-dsl")
    old = json.loads(arguments.json.read_text("utf-8")) if arguments.json.exists() else {}
    report = {
        "command": "python benchmarks/emulated.py MODULE… --json benchmarks/emulated.json",
        "date": datetime.now(UTC).date().isoformat(),
        "nvidia-cutlass-dsl": dsl,
        "results": merged(old, results, dsl),
    }
    arguments.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
