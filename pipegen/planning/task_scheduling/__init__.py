# SPDX-License-Identifier: Apache-2.0
"""Kernels in CUTLASS' Task Scheduling: resources, schedules and tasks (backend cute-ts)."""
