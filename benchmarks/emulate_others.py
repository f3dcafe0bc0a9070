# SPDX-License-Identifier: Apache-2.0
"""Runs kernels that others wrote, unmodified, in pipegen's emulator, each in a process of its own.

    pip install quack-kernels numpy          (its DSL must be 4.8; brings torch)
    python benchmarks/emulate_others.py --cutlass CHECKOUT --json benchmarks/emulated_others.json

NVIDIA's CuTe DSL examples are called by their own entry points and check themselves against torch;
kernels of quack-kernels are called as a user calls them, and compared here. torch has no GPU: it is
made to say that it has one (others/pretended_gpu.py). CHECKOUT is a clone of NVIDIA's CUTLASS, of
which nothing is copied. Needs no GPU. What cannot be run is reported with the reason.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # these belong to this checkout's pipegen

POLICIES = ("late", "random", "early")
CAPABILITIES = {"sm_90a": (9, 0), "sm_100a": (10, 0)}
Told = dict[str, Any]


class Watched:
    """Executes launches, and keeps what was found and how far results were off."""

    def __init__(self) -> None:
        self.schedule = 0
        self.instructions = 0
        self.launches = 0
        self.error: float | None = None
        self.findings: dict[str, str] = {}

    def execute(self, launch: Any) -> None:
        """Of the emulator: each launch. A finding does not stop the program that is watched."""
        from pipegen.emulator.finding_docs import code_of
        from pipegen.emulator.machine import run

        result = run(launch, seed=self.schedule, late=POLICIES[self.schedule % 3])
        self.instructions += result.instructions
        self.launches += 1
        for finding in result.findings:
            self.findings.setdefault(f"{code_of(finding.kind)} {finding.kind}", finding.message)

    def compare(self, found: Any, right: Any) -> None:
        """Keep the largest difference."""
        import torch

        difference = (found.detach().double() - right.detach().double()).abs().max()
        error = float(torch.nan_to_num(difference, nan=float("inf")))
        self.error = error if self.error is None else max(self.error, error)

    def told(self) -> Told:
        return {
            "launches": self.launches,
            "instructions": self.instructions,
            "max_error": self.error,
            "findings": self.findings,
        }


def run_watched(call: Callable[[Watched], None], arch: str, sms: int, schedules: int) -> Told:
    """`call` under several schedules. A refusal or a failed check is told, not raised."""
    import torch
    from others.pretended_gpu import pretended_gpu

    from pipegen.emulator.session import capturing

    watched = Watched()
    started = time.process_time()
    try:
        with capturing(watched.execute, arch, sms), pretended_gpu(CAPABILITIES[arch], sms):
            for watched.schedule in range(schedules):
                torch.manual_seed(watched.schedule)
                call(watched)
    except AssertionError as error:
        return {"status": "wrong", "said": _shortened(error), **watched.told()}
    except Exception as error:
        return {"status": "refused", "said": _shortened(error), **watched.told()}
    seconds = round(time.process_time() - started, 1)
    return {"status": "right", **watched.told(), "seconds": seconds}


def _shortened(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 400 else text[:400] + "…"


def nvidia_case(name: str, checkout: Path, schedules: int) -> Told:
    """One of NVIDIA's examples."""
    from others import nvidia

    (example,) = (each for each in nvidia.examples() if each.name == name)
    os.environ["CUTE_DSL_ARCH"] = example.arch

    def call(watched: Watched) -> None:
        import cutlass.cute.testing as testing
        import torch

        close, like = torch.testing.assert_close, torch.allclose

        def asserted(found: Any, right: Any, *args: Any, **kwargs: Any) -> None:
            watched.compare(found, right)
            close(found, right, *args, **kwargs)

        def compared(found: Any, right: Any, *args: Any, **kwargs: Any) -> bool:
            watched.compare(found, right)
            assert like(found, right, *args, **kwargs), "torch.allclose says no"
            return True

        with (
            mock.patch.object(torch.testing, "assert_close", asserted),
            mock.patch.object(torch, "allclose", compared),
            mock.patch.object(testing, "benchmark", return_value=1.0),
            redirect_stdout(io.StringIO()),
        ):
            module = nvidia.load(checkout, example.path)
            getattr(module, example.entry)(**nvidia.arguments(example))

    told = run_watched(call, example.arch, example.sms, schedules)
    return {"name": name, "arch": example.arch, "size": example.size, "sms": example.sms, **told}


def quack_case(name: str, schedules: int) -> Told:
    """One kernel of quack-kernels."""
    from others import quack

    arch, _, kernel = name.partition(" ")
    (case,) = (each for each in quack.cases() if (each.arch, each.name) == (arch, kernel))
    os.environ |= {"CUTE_DSL_ARCH": arch, "QUACK_CACHE_ENABLED": "0"}

    def call(watched: Watched) -> None:
        for found, right in case.call():
            watched.compare(found, right)
            tolerance = 2e-2 if found.element_size() < 4 else 1e-4
            assert bool(
                ((found.double() - right.double()).abs() <= tolerance * (1 + right.abs())).all()
            ), f"off by up to {watched.error}"

    told = run_watched(call, arch, case.sms, schedules)
    return {"name": f"quack {kernel}", "arch": arch, "size": case.size, "sms": case.sms, **told}


def every_case(arguments: argparse.Namespace) -> list[list[str]]:
    """The command lines of all cases."""
    from others import nvidia, quack

    found = []
    if arguments.cutlass is not None:
        found += [["--nvidia", each.name] for each in nvidia.examples()]
    if arguments.quack:
        found += [["--quack-case", f"{each.arch} {each.name}"] for each in quack.cases()]
    return [each for each in found if arguments.only in each[1]]


def in_a_process(case: list[str], arguments: argparse.Namespace) -> Told:
    """A case: the DSL reads its target when it is imported."""
    command = [sys.executable, __file__, *case, "--schedules", str(arguments.schedules)]
    if arguments.cutlass is not None:
        command += ["--cutlass", str(arguments.cutlass)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=arguments.limit, check=False
        )
        told: Told = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"name": case[1], "status": "refused", "said": f"no end in {arguments.limit:.0f} s"}
    except (IndexError, ValueError):
        said = " ".join(done.stderr[-400:].split())
        return {"name": case[1], "status": "refused", "said": said}
    return told


def commit_of(checkout: Path) -> str:
    """The commit of a clone, or "unknown" for an unpacked archive."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cutlass", type=Path, help="a checkout of CUTLASS")
    parser.add_argument("--commit", help="its commit, where it is no git repository")
    parser.add_argument("--no-quack", dest="quack", action="store_false")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--schedules", type=int, default=3)
    parser.add_argument("--limit", type=float, default=240, help="seconds a case may take")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--nvidia", help=argparse.SUPPRESS)
    parser.add_argument("--quack-case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.nvidia is not None:
        print(json.dumps(nvidia_case(arguments.nvidia, arguments.cutlass, arguments.schedules)))
        return 0
    if arguments.quack_case is not None:
        print(json.dumps(quack_case(arguments.quack_case, arguments.schedules)))
        return 0
    results: list[Told] = []
    for case in every_case(arguments):
        results.append(in_a_process(case, arguments))
        told = results[-1]
        found = ", ".join(told.get("findings", {})) or told.get("said", "")
        print(told["status"], told["name"], told.get("arch", ""), found, flush=True)
        if arguments.json is not None:
            text = json.dumps(report(arguments, results), indent=1, ensure_ascii=False)
            arguments.json.write_text(text + "\n", "utf-8")
    return 0


def report(arguments: argparse.Namespace, results: list[Told]) -> Told:
    """What is written: the versions of all that took part, and the results."""
    cutlass = arguments.cutlass
    return {
        "command": "python benchmarks/emulate_others.py --cutlass CHECKOUT --json …",
        "date": datetime.now(UTC).date().isoformat(),
        "schedules": arguments.schedules,
        "nvidia-cutlass-dsl": version("nvidia-cutlass-dsl"),
        "quack-kernels": version("quack-kernels"),
        "torch": version("torch"),
        "cutlass": (arguments.commit or commit_of(cutlass)) if cutlass is not None else None,
        "results": results,
    }


if __name__ == "__main__":
    sys.exit(main())
