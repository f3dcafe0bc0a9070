# SPDX-License-Identifier: Apache-2.0
"""Executes the PTX of a launch on the CPU. `run(launch)` is all that others need."""

from pipegen.emulator.machine.running import Limits, Policy, Result, run

__all__ = ["Limits", "Policy", "Result", "run"]
