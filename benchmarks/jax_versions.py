# SPDX-License-Identifier: Apache-2.0
"""Compiles and interprets the emitted Pallas modules under several jax versions, without a GPU.

    python benchmarks/jax_versions.py PYTHON...       writes jax_versions.json and README.md's table
    python benchmarks/jax_versions.py --table         the table alone, from the results
    python benchmarks/jax_versions.py --check         exit code 1 if the table is another

Each PYTHON is the interpreter of an environment with pipegen's dependencies, jax and its CUDA
plug-in. What was measured of the same code with the same jax is kept, so that a second run is
quick; `--anew` measures everything.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipegen.measuring.code_digest import code_digest

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import environments  # noqa: E402
from interpretable import MODULES, beyond, case  # noqa: E402

RESULTS, README = ROOT / "benchmarks" / "jax_versions.json", ROOT / "README.md"
BEGIN, END = "<!-- jax versions -->\n", "<!-- /jax versions -->"
# What CI does where both Pythons are installed: tests/test_generated.py compiles with the first,
# tests/test_interpreted.py interprets with both. That test compares CI's verdicts with these.
CI = {
    "0.10.2": "compiled; one module of each template interpreted",
    "0.12.0.1": "all interpreted",
}


def compiled(python: str) -> dict[str, Any]:
    """What `pipegen check` says of every module, by file name."""
    done = subprocess.run(
        [python, "-m", "pipegen", "check", "--format", "json", str(MODULES[0].parent)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    entries = json.loads(done.stdout)["modules"]
    return {Path(entry["path"]).name: entry["compile"] for entry in entries}


def interpreted(python: str, paths: list[Path]) -> dict[str, dict[str, Any]]:
    """The interpreter's verdict on each module, by file name."""
    with tempfile.TemporaryDirectory() as folder:
        results = environments.interpret(python, map(case, paths), Path(folder))
    return {Path(result["module"]).name: result for result in results}


def measure(python: str, known: dict[str, Any]) -> dict[str, Any]:
    """Every module under one jax; `known` are results to keep where the code is the same."""
    version = environments.jax_version(python)
    digests = {path.name: code_digest(path) for path in MODULES}
    todo = [path for path in MODULES if known.get(path.name, {}).get("code") != digests[path.name]]
    compiles = compiled(python) if todo else {}
    runs = interpreted(python, [path for path in todo if not beyond(path, version)])
    found = {name: known[name] for name in digests if name in known}
    for path in todo:
        reason = beyond(path, version)
        entry = compiles[path.name]
        found[path.name] = {
            "code": digests[path.name],
            "compiled": entry["status"],
            "registers": entry["registers"],
            "spill_bytes": entry["spill_bytes"],
            "smem_bytes": entry["smem_bytes"],
            "tmem_columns": entry["tmem_columns"],
            "interpreted": reason or runs[path.name]["verdict"],
        }
    return dict(sorted(found.items()))


def table(results: dict[str, Any]) -> str:
    """The markdown between the markers."""
    lines = [
        "| jax | Python | compiled to a cubin | interpreted: right, no race | in CI |",
        "| --- | --- | --- | --- | --- |",
    ]
    notes: dict[str, None] = {}
    for name, modules in results.items():
        jax, python = (word.split()[1] for word in name.split(", "))
        well = [entry["compiled"] in ("ok", "spills") for entry in modules.values()]
        passed = [entry["interpreted"] == "pass" for entry in modules.values()]
        cells = (f"{sum(each)} of {len(each)}" for each in (well, passed))
        lines.append(f"| {jax} | {python} | {' | '.join(cells)} | {CI.get(jax, 'no, by hand')} |")
        for module, entry in modules.items():
            if entry["compiled"] == "spills":
                notes[f"`{module}` spills {entry['spill_bytes']} B with jax {jax}."] = None
        beyond_it = {entry["interpreted"] for entry in modules.values() if entry["compiled"]}
        for reason in sorted(beyond_it - {"pass"}):
            count = sum(entry["interpreted"] == reason for entry in modules.values())
            notes[f"jax {jax}, {count} modules: {reason}."] = None
        refused = sum(entry["compiled"] == "error" for entry in modules.values())
        if refused:
            notes[f"jax {jax}: {refused} modules stand behind `pl.pallas_call`, for 0.10."] = None
    return "\n".join([*lines, "", *notes]) + "\n"


def with_table(text: str, results: dict[str, Any]) -> str:
    """README.md's text with the table of the results."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + table(results) + END + tail


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--table", action="store_true", help="write the table alone")
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--anew", action="store_true", help="keep no result")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text("utf-8"))
    for python in arguments.pythons:
        jax = ".".join(map(str, environments.jax_version(python)))
        version = subprocess.run(
            [python, "-c", "import platform; print(platform.python_version())"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        name = f"jax {jax}, Python {version}"
        results[name] = measure(python, {} if arguments.anew else results.get(name, {}))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = README.read_text("utf-8")
    wanted = with_table(text, results)
    if arguments.check:
        return 0 if wanted == text else 1
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
