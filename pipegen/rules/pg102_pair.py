# SPDX-License-Identifier: Apache-2.0
"""Producer and consumer of each pipeline must be a pair that the kernel's template connects.

What it checks
    That the pair has a row in the selection table for the architecture and backend, and that the
    op's template is written for it.

Why
    The pair decides the pipeline class: how many arrivals fill and empty a stage, and which of
    them the hardware makes. A class for another pair deadlocks or races.

Example
    producer = "tma", consumer = "umma" on sm_90a: tcgen05 does not exist on Hopper.

Use instead
    The pair that the message names; `pipegen table` shows all.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, assignments
from pipegen.planning.defaults import graph_of
from pipegen.planning.variants import conflicts, same_pair
from pipegen.selection import Refusal, select
from pipegen.selection_table import kernels

GENERAL = True


def check(description: KernelDescription) -> Iterator[Problem]:
    kernel = description.kernel
    for name, (producer, consumer) in graph_of(description).items():
        asked = description.pipeline[name]
        pair = (str(asked.producer), str(asked.consumer))
        if same_pair(pair, (producer, consumer), kernel.arch):
            continue
        end, value, default = "producer", str(asked.producer), producer
        if asked.producer == producer:
            end, value, default = "consumer", str(asked.consumer), consumer
        found = select(
            str(asked.producer),
            str(asked.consumer),
            arch=kernel.arch,
            backend=kernel.backend,
            cta_group=2 if description.cluster.cta_group == 2 and kernel.arch != "sm_90a" else 1,
        )
        if isinstance(found, Refusal):
            message = f"no pipeline connects {asked.producer} to {asked.consumer}: {found.reason}"
        elif _written(description, name, pair):
            others = conflicts(description, f"pipeline.{name}.{end}")
            message = f"{found.cls} does not go with {assignments(others)}"
        else:
            message = (
                f"{asked.producer} to {asked.consumer} is {found.cls}, and no template of "
                f'op "{kernel.op}" on {kernel.arch} uses it yet'
            )
        key = f"pipeline.{name}.{end}"
        yield Problem(message, key, value, f"{producer} -> {consumer}", f'"{default}"')


def _written(description: KernelDescription, name: str, pair: tuple[str, str]) -> bool:
    """Whether some template of the op connects the pair, though not this description's."""
    kernel = description.kernel
    return any(
        same_pair(pair, (producer, consumer), kernel.arch)
        for variant in kernels()[kernel.op, kernel.backend, kernel.arch, str(kernel.style)]
        for pipeline, producer, consumer in variant.pipelines
        if pipeline == name
    )
