# SPDX-License-Identifier: Apache-2.0
"""Cluster launch control keeps a few answers.

What it checks
    pipeline.scheduler.stages: 1 to 4; in Pallas 2.

Why
    A stage is an answer of 16 bytes: the next tile, or that none is left. With two, the loads of a
    tile begin while the tile before is still being stored. Every further one takes a tile from the
    queue earlier than need be, and the last CTAs wait for those that took too many.

Example
    stages = 16.

Use instead
    stages = "auto", which is 2: all that plgpu.dynamic_scheduling_loop has.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem

MOST = 4
PALLAS = 2  # slots of plgpu.dynamic_scheduling_loop (jax 0.10.2 to 0.12.0.1, helpers.py)


def check(description: KernelDescription) -> Iterator[Problem]:
    scheduler = description.pipeline.get("scheduler")
    if scheduler is None or scheduler.stages == "auto":
        return
    if description.kernel.backend == "pallas":
        if scheduler.stages != PALLAS:
            yield Problem(
                f"plgpu.dynamic_scheduling_loop keeps {PALLAS} answers",
                "pipeline.scheduler.stages",
                scheduler.stages,
                f'"auto" or {PALLAS}',
                str(PALLAS),
            )
        return
    if 1 <= scheduler.stages <= MOST:
        return
    yield Problem(
        "each answer that waits is a tile taken from the queue early",
        "pipeline.scheduler.stages",
        scheduler.stages,
        f'"auto" or 1 to {MOST}',
        str(min(MOST, max(1, scheduler.stages))),
    )
