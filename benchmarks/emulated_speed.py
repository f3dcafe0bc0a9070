# SPDX-License-Identifier: Apache-2.0
"""How fast the emulator executes, with data and without: CPU seconds on one core.

    python benchmarks/emulated_speed.py --json benchmarks/emulated_speed.json

Each kernel is captured once, compiled from PTX once (not counted) and run several times with
several seeds; the shortest time counts, since other load only lengthens it. Needs no GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # these belong to this checkout's pipegen

# (module, sizes, SMs): four output tiles of eight K tiles each, and a stream.
KERNELS: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("gemm_sm90_c1x1", (256, 256, 512), 1),
    ("gemm_sm90_c2x1", (512, 256, 512), 2),
    ("gemm_sm90_cp_async", (256, 256, 512), 1),
    ("gemm_sm100_c1x1", (256, 256, 512), 1),
    ("gemm_sm100_pair_c2x1", (512, 256, 512), 2),
    ("gemm_sm100_clc_pair_c2x1", (512, 256, 512), 2),
)


def measured(name: str, sizes: tuple[int, ...], sms: int, runs: int) -> dict[str, Any]:
    """The figures of one kernel."""
    from pipegen.emulator.emitted import EmittedModule
    from pipegen.emulator.machine import run
    from pipegen.emulator.machine.program import program_of
    from pipegen.emulator.session import capturing

    best: dict[bool, float] = {}
    translation = 0.0
    instructions = 0

    def execute(launch: Any) -> None:
        """Of the capture: the launch's arrays live until this returns."""
        nonlocal translation, instructions
        for sync_only in (False, True):
            started = time.process_time()
            program_of(launch.ptx, launch.kernel, sync_only)
            translation = max(translation, time.process_time() - started)
            for seed in range(runs):
                started = time.process_time()
                result = run(launch, seed=seed, sync_only=sync_only)
                seconds = time.process_time() - started
                best[sync_only] = min(seconds, best.get(sync_only, seconds))
                assert not result.findings, result.findings
                instructions = result.instructions

    with capturing(execute, arch=_arch(name), sms=sms) as session:
        EmittedModule(ROOT / "generated" / "cute" / f"{name}.py", session).check(sizes, seed=0)
    return {
        "module": name,
        "sizes": list(sizes),
        "warp_instructions": instructions,
        "seconds": round(best[False], 3),
        "seconds_without_data": round(best[True], 3),
        "times_faster": round(best[False] / best[True], 1),
        "per_second": round(instructions / best[False], -3),
        "per_second_without_data": round(instructions / best[True], -3),
        "translation_seconds": round(translation, 2),
    }


def _arch(name: str) -> str:
    return "sm_90a" if "sm90" in name else "sm_100a"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7, help="of each kernel, with and without data")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        (kernel,) = (each for each in KERNELS if each[0] == arguments.one)
        told = measured(*kernel, arguments.runs)
        print(json.dumps(told), file=sys.stderr)  # a module's self-check writes to stdout
        return 0
    results = []
    for name, _, _ in KERNELS:
        # The DSL reads its target when it is imported; BLAS must not use other cores.
        environment = os.environ | {"CUTE_DSL_ARCH": _arch(name), "CUTE_DSL_LINEINFO": "1"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--one", name, "--runs", str(arguments.runs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        results.append(json.loads(done.stderr.splitlines()[-1]))
        print(results[-1], flush=True)
    if arguments.json is not None:
        report = {
            "command": "python benchmarks/emulated_speed.py --json benchmarks/emulated_speed.json",
            "date": datetime.now(UTC).date().isoformat(),
            "results": results,
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
