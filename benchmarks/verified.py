# SPDX-License-Identifier: Apache-2.0
"""Verifies emitted modules with `pipegen verify`, at all its sizes and schedules, and keeps count.

    python benchmarks/verified.py generated/cute/*sm100*.py --json benchmarks/verified.json

A module whose code is the one that was verified, with the DSL's version that is installed, is not
run again, so this goes on where it was stopped; `--again` runs it all the same. Needs no GPU. Exit
code 1 if something was found in a module that was asked for.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from emulated import installed, merged

from pipegen.emulator.verifying import DEFAULT_TIMEOUT
from pipegen.measuring.code_digest import code_digest

Result = dict[str, Any]


def verify(modules: Sequence[Path], jobs: int, limit: float) -> list[Result]:
    """What `pipegen verify` says of modules. SystemExit with its words if it gives no verdicts."""
    command = [sys.executable, "-m", "pipegen", "verify", "--json", "--jobs", str(jobs)]
    command += ["--timeout", str(limit), *map(str, modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return [result_of(said) for said in json.loads(done.stdout)]


def result_of(said: dict[str, Any]) -> Result:
    """One module's figures, of what `pipegen verify --json` says about it."""
    path, trials = Path(said["path"]), said["trials"]
    result = {
        "module": path.name,
        "code": code_digest(path),
        "dsl": dsl_of(path),
        "status": said["status"],
        "runs": len(trials),
        "schedules": len({trial["schedule"] for trial in trials}),
        "sizes": sizes_of(trials),
        "instructions": sum(trial["instructions"] for trial in trials),
        "seconds": round(said["seconds"], 1),
        "findings": findings_of(trials),
    }
    return result | ({"message": said["message"]} if said["message"] else {})


def sizes_of(trials: Sequence[dict[str, Any]]) -> str:
    """Each case's sizes once, as `--shape` takes them, in the order in which they were tried."""
    shapes = (",".join(map(str, trial["sizes"].values())) for trial in trials)
    return " ".join(dict.fromkeys(shapes))


def findings_of(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each code that was found: in how many runs, and what the first one said."""
    runs = Counter(
        code for trial in trials for code in {fault["code"] for fault in trial["faults"]}
    )
    first: dict[str, str] = {}
    for fault in (fault for trial in trials for fault in trial["faults"]):
        first.setdefault(fault["code"], f"{fault['kind']}: {fault['message']}")
    return [{"code": code, "runs": runs[code], "first": text} for code, text in first.items()]


def dsl_of(path: Path) -> str:
    """The DSL of a module and its version, as one text."""
    name = "jax" if path.parent.name == "pallas" else "nvidia-cutlass-dsl"
    return f"{name} {installed().get(name, 'missing')}"


def is_known(module: Path, results: Sequence[Result]) -> bool:
    """Whether the module's code, as it is, has a verdict with the DSL that is installed."""
    now = (module.name, code_digest(module), dsl_of(module))
    verdicts = [each for each in results if each["status"] in ("ok", "finding")]
    return now in [(each["module"], each["code"], each["dsl"]) for each in verdicts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="the figures, which are renewed")
    parser.add_argument("--jobs", type=int, default=2, help="modules at once")
    parser.add_argument("--batch", type=int, default=8, help="modules between two writes")
    parser.add_argument("--limit", type=float, default=DEFAULT_TIMEOUT, help="seconds a module")
    parser.add_argument("--again", action="store_true", help="also what is known already")
    arguments = parser.parse_args()
    results: list[Result] = []
    if arguments.json.exists():
        results = json.loads(arguments.json.read_text("utf-8"))["results"]
    wanted = [m for m in arguments.modules if arguments.again or not is_known(m, results)]
    for start in range(0, len(wanted), arguments.batch):
        now = verify(wanted[start : start + arguments.batch], arguments.jobs, arguments.limit)
        for result in now:
            print(result["status"], result["module"], result["seconds"], flush=True)
        results = merged(results, now)
        report = {
            "command": "python benchmarks/verified.py MODULE… --json benchmarks/verified.json",
            "date": datetime.now(UTC).date().isoformat(),
            "results": results,
        }
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        arguments.json.write_text(text, "utf-8")
    asked = {module.name for module in arguments.modules}
    found = [each for each in results if each["module"] in asked and each["status"] != "ok"]
    for result in found:
        codes = ", ".join(each["code"] for each in result["findings"]) or result["status"]
        print(f"{result['module']}: {codes}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
