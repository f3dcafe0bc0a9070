# SPDX-License-Identifier: Apache-2.0
"""What the emulator finds wrong with a kernel, and the means to find it."""

from pipegen.emulator.findings.finding import KINDS, Finding, Findings, Place

__all__ = ["KINDS", "Finding", "Findings", "Place"]
