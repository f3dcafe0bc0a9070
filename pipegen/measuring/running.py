# SPDX-License-Identifier: Apache-2.0
"""Runs a module's own `main` with a time limit, and reads its verdict."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipegen.compiling.module import Module
from pipegen.compiling.process import Outcome, describe_signal, run

USAGE = 2  # argparse's exit code


@dataclass(frozen=True)
class Run:
    """How a module did: PASS, SKIP, WRONG, HANG or CRASH, and why; what it printed."""

    verdict: str
    why: str
    lines: tuple[str, ...]
    seconds: float
    usage: bool = False


def run_module(module: Module, arguments: list[str], limit: float) -> Run:
    """Run `python MODULE ARGUMENTS…` on this machine's GPU."""
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory(prefix="pipegen-run-") as folder:
        outcome = run(
            [sys.executable, str(module.path.resolve()), *arguments],
            environment,
            Path(folder),
            limit,
        )
    return read_run(outcome, limit)


def read_run(outcome: Outcome, limit: float) -> Run:
    """The verdict of a run that has ended. Pure.

    PASS only if the module says so and nothing failed: one that prints nothing has shown nothing.
    """
    lines = tuple(line.rstrip() for line in outcome.output.splitlines() if line.strip())
    said = [line.partition(" ")[0] for line in lines]

    def ended(verdict: str, why: str, usage: bool = False) -> Run:
        return Run(verdict, why, lines, outcome.seconds, usage)

    code = outcome.returncode
    if code is None:
        return ended("HANG", f"no end within {limit:g} s; it was ended (a deadlock?)")
    if code < 0:
        return ended("CRASH", describe_signal(code))
    if "FAIL" in said:
        return ended("WRONG", f"{said.count('FAIL')} of {_checks(said)} checks failed")
    if code == USAGE:
        return ended("CRASH", "the module does not take these options", True)
    if code:
        return ended("CRASH", f"exit code {code}")
    if "SKIP" in said:
        return ended("SKIP", next(line for line in lines if line.startswith("SKIP"))[5:])
    if "PASS" not in said:
        return ended("WRONG", "it says neither PASS nor FAIL nor SKIP")
    return ended("PASS", f"{_checks(said)} checks passed")


def _checks(said: list[str]) -> int:
    return said.count("PASS") + said.count("FAIL")
