# SPDX-License-Identifier: Apache-2.0
"""The warpgroup that loads must be one that the pipeline takes.

What it checks
    role.producer.memory_thread_idx of a Pallas kernel with a memory warpgroup: the last warpgroup,
    whose number is that of the consumers. In emit-pipeline none.

Why
    emit_pipeline_warp_specialized has the argument, and refuses every other value: "Memory thread
    must be the last thread" (jax 0.10.2 to 0.12.0.1, mosaic_gpu/pipeline.py). The consumers' index
    among the warpgroups is also the index of their part of the tile and of their store buffers.

Example
    memory_thread_idx = 0 with two consumer warpgroups: 2 is the last.

Use instead
    Leave the key out.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    producer, consumer = description.role.get("producer"), description.role.get("consumer")
    if producer is None or consumer is None or producer.memory_thread_idx is None:
        return
    if description.kernel.style == "emit-pipeline":
        yield Problem(
            "one warpgroup loads and computes: none is for the loads alone",
            "role.producer.memory_thread_idx",
            producer.memory_thread_idx,
            "no value",
            "leave the key out",
        )
        return
    if producer.memory_thread_idx == consumer.warpgroups:
        return
    yield Problem(
        'emit_pipeline_warp_specialized loads in the last warpgroup: jax says "Memory thread must '
        'be the last thread" to any other',
        "role.producer.memory_thread_idx",
        producer.memory_thread_idx,
        f"{consumer.warpgroups}, or no value",
        str(consumer.warpgroups),
    )
