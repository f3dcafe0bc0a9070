# SPDX-License-Identifier: Apache-2.0
"""What a Blackwell GEMM keeps in SMEM beside its ring and its store buffers. Sizes in bytes."""

from pipegen.arithmetic import ring_barrier_bytes
from pipegen.description import KernelDescription
from pipegen.hardware import MBARRIER_BYTES

ACCUMULATORS = 2  # one is read by the epilogue while the other is filled
TMEM_ADDRESS_BYTES = 4
ANSWERS = 2  # the loads are up to a tile ahead of the stores
ANSWER_BYTES = 16  # PTX ISA, "clusterlaunchcontrol.try_cancel"


def cta_group_of(description: KernelDescription) -> int:
    """CTAs of a tcgen05 MMA: 1, or 2 for pairs. Other numbers are for rule PG402."""
    return 2 if description.cluster.cta_group == 2 else 1


def accumulators_of(description: KernelDescription) -> int:
    """Accumulators in TMEM."""
    accumulator = description.pipeline.get("accumulator")
    stages = accumulator.stages if accumulator else "auto"
    return ACCUMULATORS if stages == "auto" else stages


def answers_of(description: KernelDescription) -> int:
    """Answers of cluster launch control that can be on their way; 0 where nobody asks."""
    scheduler = description.pipeline.get("scheduler")
    if scheduler is None or description.scheduler.tiles != "clc":
        return 0
    return ANSWERS if scheduler.stages == "auto" else scheduler.stages


def tmem_bytes(description: KernelDescription) -> int:
    """What TMEM needs: the accumulators' barriers, its address, and a pair's barrier for freeing
    it."""
    barriers = ring_barrier_bytes(max(0, accumulators_of(description)))
    pair = MBARRIER_BYTES if cta_group_of(description) == 2 else 0
    return barriers + pair + TMEM_ADDRESS_BYTES


def scheduler_bytes(description: KernelDescription) -> int:
    """The answers of cluster launch control and their barriers."""
    answers = max(0, answers_of(description))
    return ring_barrier_bytes(answers) + ANSWER_BYTES * answers
