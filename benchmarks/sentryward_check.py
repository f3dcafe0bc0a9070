# SPDX-License-Identifier: Apache-2.0
"""A second opinion on Blackwell kernels: `sentryward`, a static verifier of PTX.

    pip install sentryward
    python benchmarks/sentryward_check.py MODULE… --json benchmarks/sentryward.json
    python benchmarks/sentryward_check.py --mutants MODULE --json …

Each module is compiled and its launch captured at the size at which `pipegen emulate` runs it, or
with --smallest at one tile; the captured PTX and launch go to sentryward, and its verdict is kept.
--mutants does so with the broken kernels of tests/emulator/mutants.py, of which pipegen's machine
finds every one. Needs no GPU.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "emulator")]

from sentryward_input import kernel_input, simplified  # noqa: E402

Told = dict[str, Any]


def verdict(launch: Any, command: list[str], limit: float) -> Told:
    """What sentryward says of a launch."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, given = Path(folder) / "kernel.ptx", Path(folder) / "input.json"
        ptx.write_text(simplified(launch.ptx))
        given.write_text(json.dumps(kernel_input(launch)))
        started = time.perf_counter()
        arguments = [str(ptx), "--input", str(given), "--timeout", str(limit)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return {"result": "tool_failure", "why": [done.stderr[-300:]], "seconds": round(seconds, 1)}
    why = list(dict.fromkeys(each["code"] for each in said["diagnostics"]))
    checks = {key: said["checks"][key] for key in ("synchronization", "memory")}
    return {"result": said["result"], **checks, "why": why[:5], "seconds": round(seconds, 1)}


def capture(module: Path, smallest: bool, execute: Callable[[dict[str, int], Any], None]) -> None:
    """Call `execute` with the sizes and each launch of a module, whose arrays live that long."""
    from pipegen.description_file import load_description
    from pipegen.emulator.cases import default_case, verify_cases
    from pipegen.emulator.emitted import EmittedModule
    from pipegen.emulator.session import capturing
    from pipegen.planning import plan

    made = plan(load_description(module.with_suffix(".toml")))
    case = verify_cases(made)[0] if smallest else default_case(made)
    execute_case = functools.partial(execute, case.sizes)
    with capturing(execute_case, arch="sm_100a", sms=case.sms) as session:
        EmittedModule(module, session).check(tuple(case.sizes.values()), seed=0)


def of_module(module: Path, smallest: bool, command: list[str], limit: float) -> list[Told]:
    """The verdicts on a module's launches."""
    found: list[Told] = []

    def execute(sizes: dict[str, int], launch: Any) -> None:
        found.append({"module": module.name, "sizes": sizes, **verdict(launch, command, limit)})

    capture(module, smallest, execute)
    return found


def of_mutants(module: Path, smallest: bool, command: list[str], limit: float) -> list[Told]:
    """The verdicts on the broken kernels made from a module, and what pipegen's machine finds."""
    import mutants

    from pipegen.emulator.machine import Limits, run

    found: list[Told] = []

    def execute(sizes: dict[str, int], launch: Any) -> None:
        for mutant in mutants.BLACKWELL_GEMM:
            try:
                broken = replace(launch, ptx=mutant.change(launch.ptx))
            except AssertionError:
                continue  # the place that it breaks is not in this kernel
            ours = run(broken, seed=1, limits=Limits(instructions=1_000_000)).findings
            told = {
                "mutant": mutant.name,
                "module": module.name,
                "sizes": sizes,
                "pipegen": sorted({finding.kind for finding in ours}),
                **verdict(broken, command, limit),
            }
            print(told["result"], mutant.name, told["why"], file=sys.stderr, flush=True)
            found.append(told)

    capture(module, smallest, execute)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--mutants", action="store_true", help="the broken kernels of a module")
    parser.add_argument("--smallest", action="store_true", help="one K tile for each output tile")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--limit", type=float, default=120, help="seconds a kernel may take")
    parser.add_argument(
        "--command", default="sentryward", help="how it is started, if it has its own environment"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ |= {"CUTE_DSL_ARCH": "sm_100a", "CUTE_DSL_LINEINFO": "1"}
    command = arguments.command.split()
    if arguments.one:
        sys.stdout = sys.stderr  # a module's self-check writes to it
        check = of_mutants if arguments.mutants else of_module
        told = check(arguments.modules[0], arguments.smallest, command, arguments.limit)
        print(json.dumps(told), file=sys.__stdout__)
        return 0
    results: list[Told] = []
    for module in arguments.modules:
        again = [sys.executable, __file__, "--one", str(module), "--command", arguments.command]
        again += ["--limit", str(arguments.limit)]
        again += ["--mutants"] * arguments.mutants + ["--smallest"] * arguments.smallest
        done = subprocess.run(again, stdout=subprocess.PIPE, text=True, check=False)
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            found = [{"module": module.name, "result": "not captured"}]
        results += found
        for each in found:
            print(each["result"], each["module"], each.get("why", ""), flush=True)
        if arguments.json is not None:
            report = {
                "command": "python benchmarks/sentryward_check.py MODULE… --json …",
                "date": datetime.now(UTC).date().isoformat(),
                "sentryward": _version(command),
                "nvidia-cutlass-dsl": version("nvidia-cutlass-dsl"),
                "limit": arguments.limit,
                "results": results,
            }
            text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
            arguments.json.write_text(text, "utf-8")
    return 0


def _version(command: list[str]) -> str:
    """The version of sentryward, in this environment or in that of the command."""
    try:
        return version("sentryward")
    except PackageNotFoundError:
        python = Path(command[0]).with_name("python")
        asked = "from importlib.metadata import version; print(version('sentryward'))"
        done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
