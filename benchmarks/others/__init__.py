# SPDX-License-Identifier: Apache-2.0
"""Kernels that others wrote, run in the emulator: what benchmarks/emulate_others.py needs."""
