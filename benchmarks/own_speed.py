# SPDX-License-Identifier: Apache-2.0
"""How long pipegen itself takes: start-up, table, new, generate for 100 descriptions, check.

    python benchmarks/own_speed.py --json benchmarks/own_speed.json

Each is run several times in a process of its own; the least processor time counts, which depends
less on what else runs than the clock on the wall, and is shown beside it. `check` compiles four
modules on one core, once without and once with what the first run kept. Needs the CuTe DSL for
`check`, and no GPU. tests/test_house.py counts what the commands import: that shows a regression at
once, and on every machine.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("black", "click", "jinja2", "pydantic", "rich", "nvidia-cutlass-dsl")
DESCRIPTIONS, CHECKED = 100, 4
IMPORTS = "import sys, pipegen.cli\ntry: pipegen.cli.main({words!r})\nexcept SystemExit: pass\n"
COUNT = IMPORTS + "print('IMPORTED', sum(n.partition('.')[0] == 'pipegen' for n in sys.modules))"


def once(words: list[str], folder: Path) -> dict[str, float]:
    """Seconds of one call: of the processor, and on the wall."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pipegen", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"pipegen {' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_seconds": round(cpu, 3), "wall_seconds": round(wall, 3)}


def least(words: list[str], folder: Path, times: int) -> dict[str, float]:
    """The call that took the processor the shortest."""
    return min((once(words, folder) for _ in range(times)), key=lambda each: each["cpu_seconds"])


def imported(words: list[str], folder: Path) -> int:
    """Modules of pipegen's own that a call imports."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(words=words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout.splitlines()[-1].split()[1])


def measured(folder: Path, times: int) -> dict[str, Any]:
    """All figures; the calls work in `folder`."""
    new = ["new", "k", "--op", "gemm", "--backend", "cute", "--arch", "sm_90a", "--dry-run"]
    found: dict[str, Any] = {}
    for name, words in {"--help": ["--help"], "table": ["table"], "new": new}.items():
        found[name] = {**least(words, folder, times), "imported": imported(words, folder)}
    (folder / "many").mkdir()
    for path in sorted((ROOT / "generated").glob("*/*.toml"))[:DESCRIPTIONS]:
        shutil.copy(path, folder / "many")
    found[f"generate {DESCRIPTIONS} descriptions"] = once(["generate", "many"], folder)
    (folder / "few").mkdir()
    for path in sorted((ROOT / "generated" / "cute").glob("gemm_sm90_c*.*"))[: 2 * CHECKED]:
        shutil.copy(path, folder / "few")
    check = ["check", "few", "--jobs", "1"]
    found[f"check {CHECKED} modules, cold"] = once(check, folder)
    found[f"check {CHECKED} modules, warm"] = least(check, folder, times)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--times", type=int, default=5, help="runs of each short call")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Path(folder), arguments.times)
    for name, row in figures.items():
        extra = f", {row['imported']} modules of its own" if "imported" in row else ""
        print(f"{name:<32} {row['cpu_seconds']:7.2f} s CPU {row['wall_seconds']:7.2f} s{extra}")
    if arguments.json:
        versions = {"python": platform.python_version()}
        for package in PACKAGES:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                versions[package] = "not installed"
        report = {
            "command": "python benchmarks/own_speed.py --json benchmarks/own_speed.json "
            f"--times {arguments.times}",
            "date": datetime.now(UTC).date().isoformat(),
            "machine": {
                "processor": processor(),
                "cores": os.cpu_count(),
                "load_average": round(load, 1),  # above the cores: wall times are too long
                **versions,
            },
            "figures": figures,
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    sys.exit(main())
