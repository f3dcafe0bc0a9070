# SPDX-License-Identifier: Apache-2.0
"""Checks and times the emitted Hopper modules on this machine's GPU.

    python benchmarks/hopper.py verify generated/*/*.py --json benchmarks/hopper_verify.json
    python benchmarks/hopper.py speed generated/cute/gemm_sm90_c2x1.py --json hopper_speed.json
    python benchmarks/tiles.py TILES generated/cute/gemm_sm90_c2x1.toml --tile 128,256,64 ...
    python benchmarks/hopper.py speed generated/cute/gemm_sm90_c2x1.py --tiles TILES

The form with --tiles times the same kernel with each of the tiles and reports the best for each
size. `speed MODULE --against hopper_matmul_mgpu` times JAX's own Hopper GEMM in the same rounds,
several configurations of it, and compares with the fastest one too.
With --together N, N modules load at once, and still take turns on the GPU when they are timed.
Modules for other GPUs (by their header) are skipped. Each module runs in a process of its own with
a time limit: a kernel that hangs is a failure, and the rest goes on. Exit code 1 if anything
failed. Needs torch, and the modules' DSL. The measuring is pipegen's own (`pipegen.measuring`,
`pipegen bench`); this script keeps the form of the results that `tables.py` reads.
"""

import argparse
import json
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from pipegen.measuring.bench import bench_shape
from pipegen.measuring.machine import machine
from pipegen.measuring.peers import usual_peer
from pipegen.measuring.process import GpuMeasurer, WorkerDied, WorkerRefused
from pipegen.measuring.protocol import Entrant
from pipegen.measuring.rows import table_row
from pipegen.measuring.shapes import parse_shape
from pipegen.vendor.header import read_header

SHAPES = ("4096,4096,4096", "8192,8192,8192", "4096,14336,4096")
ROUNDS, TURN_SECONDS = 30, 0.025


def verify(module: Path, limit: float) -> dict[str, Any]:
    """The module's rows, or why there are none."""
    measurer = GpuMeasurer()
    try:
        return {"module": module.name, "failed": "", **measurer.verify(module, limit)}
    except (WorkerDied, WorkerRefused) as error:
        return failed(module, str(error))


def speed(
    modules: list[Path], shapes: list[str], peers: list[str], rounds: int, limit: float, turn: Path
) -> dict[str, Any]:
    """The rows of one kernel, of which `modules` are the tiles; the first one's name is theirs."""
    module = modules[0]
    entrants = [Entrant(path.stem, path) for path in modules]
    rows, tiles = [], {path.stem: path.stem.rpartition("__")[2] for path in modules}
    with GpuMeasurer(limit) as measurer:
        measurer.load(entrants)
        for word in shapes:
            shape = parse_shape(word)
            with one_at_a_time(turn):
                row = bench_shape(measurer, entrants, shape, peers, rounds, TURN_SECONDS)
            if "best" not in row or set(row["peers"]) != set(peers):
                return failed(module, f"{word}: {row['out']}")
            rows.append(table_row(row, peers[0], tiles))
        facts = measurer.loaded[module.stem]
    return {
        "module": module.name,
        "failed": "",
        **{key: facts[key] for key in ("out_type", "code", "peer", "unit")},
        "clock": rows[0]["clock"],
        "rows": rows,
    }


@contextmanager
def one_at_a_time(turn: Path):
    """Holds a file's lock: several of these may load together, and one has the GPU."""
    import fcntl

    with turn.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def for_hopper(module: Path) -> bool:
    """Whether the module's header names Hopper, or the module has none."""
    header = re.search(r"^# pipegen: .* \| (\w+)$", module.read_text("utf-8"), re.MULTILINE)
    return header is None or header[1] == "sm_90a"


def failed(module: Path, reason: str) -> dict[str, Any]:
    """A module without results: the reason and its last words."""
    return {"module": module.name, "failed": reason, "output": "", "rows": []}


def show(task: str, result: dict[str, Any]) -> bool:
    """Print one module's rows; return whether all is well."""
    name = result["module"]
    if result["failed"]:
        print(f"FAIL {name}: {result['failed']}\n{result['output']}")
        return False
    if task == "verify":
        wrong = [row for row in result["rows"] if not row["passed"]]
        worst = max(row["error"] for row in result["rows"])
        word = "FAIL" if wrong else "PASS"
        print(f"{word} {name}: {len(result['rows'])} sizes, worst relative error {worst:.2e}")
        for row in wrong:
            print(f"     {row}")
        return not wrong
    for row in result["rows"]:
        size = f"{row['m']}x{row['n']}x{row['k']}"
        print(
            f"{name:<44} {size:<18} {row['tile']:<12} {row['rate']:7.2f} {result['unit']}, "
            f"{result['peer']} {row['peer_rate']:7.2f}, ratio {row['ratio']:.3f} "
            f"({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
        )
        if other := row.get("against"):
            print(
                f"{'':<44} {size:<18} {other['peer']} {other['rate']:7.2f}, "
                f"ratio {other['ratio']:.3f} ({other['ratio_low']:.3f} to "
                f"{other['ratio_high']:.3f}), its fastest: {other['configuration']}"
            )
    return True


def command_of(arguments: argparse.Namespace) -> str:
    """The command that repeats a run, without this machine's paths; whole folders as *.py."""
    words = ["python benchmarks/hopper.py", arguments.task]
    folders: dict[Path, list[Path]] = {}
    for module in arguments.modules:
        folders.setdefault(module.parent, []).append(module)
    for folder, modules in folders.items():
        whole = set(modules) == set(folder.glob("*.py"))
        words += [f"{folder}/*.py"] if whole else [str(module) for module in modules]
    words += [f"--shape {shape}" for shape in arguments.shape or ()]
    words += [f"--against {arguments.against}"] if arguments.against else []
    if arguments.tiles:
        tiles = {path.stem.rpartition("__")[2] for path in arguments.tiles.glob("*.py")}
        words.append(f"--tiles TILES (benchmarks/tiles.py: {', '.join(sorted(tiles))})")
    if arguments.task == "speed" and (arguments.rounds, arguments.together) != (30, 1):
        words.append(f"--rounds {arguments.rounds} --together {arguments.together}")
    return " ".join([*words, f"--json benchmarks/{arguments.json.name}" if arguments.json else ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["verify", "speed"])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument(
        "--limit",
        type=float,
        default=180,
        help="seconds a module (verify) or a step of it may take",
    )
    parser.add_argument("--jobs", type=int, default=4, help="modules checked at once (verify)")
    parser.add_argument("--rounds", type=int, default=30, help="interleaved rounds (speed)")
    parser.add_argument("--together", type=int, default=1, help="modules loaded at once (speed)")
    parser.add_argument("--shape", action="append", help="M,N,K to time; may be repeated")
    parser.add_argument("--tiles", type=Path, help="folder of the modules with other tiles")
    parser.add_argument("--against", help="a further peer of a GEMM: hopper_matmul_mgpu")
    arguments = parser.parse_args()
    modules = [module for module in arguments.modules if for_hopper(module)]
    for module in arguments.modules:
        if module not in modules:
            print(f"SKIP {module.name}: not for Hopper")
    # Nothing else runs on the GPU while we time.
    jobs = arguments.jobs if arguments.task == "verify" else arguments.together

    def work(module: Path) -> dict[str, Any]:
        if arguments.task == "verify":
            return verify(module, arguments.limit)
        found = sorted(arguments.tiles.glob(f"{module.stem}__*.py")) if arguments.tiles else []
        header = read_header(module.read_text("utf-8"))
        peers = [usual_peer(header.op if header else "gemm")]
        peers += [arguments.against] if arguments.against else []
        return speed(
            found or [module], arguments.shape or list(SHAPES), peers, arguments.rounds,
            arguments.limit, Path(turn.name),
        )  # fmt: skip

    report: dict[str, Any] = {
        "command": command_of(arguments),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "results": [],
    }
    well = True
    with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(work, modules):
            well &= show(arguments.task, result)
            sys.stdout.flush()
            report["results"].append(result)
            if arguments.json:
                # After each module: a time limit from outside costs the rest, not these.
                arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
