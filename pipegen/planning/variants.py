# SPDX-License-Identifier: Apache-2.0
"""Which template writes a description: by its pairs and its options. Pure functions."""

from pipegen.description import KernelDescription
from pipegen.selection_table import Template, kernels
from pipegen.vocabulary import OPTIONS, STYLES


def template_of(description: KernelDescription) -> Template | None:
    """The template that writes the description, or the one that comes nearest to it.

    None if none writes the op for the backend, architecture and style (rule PG101 says so). Of
    several that write it, the first; rules PG102 and PG108 name what the nearest does not have.
    """
    kernel = description.kernel
    style = kernel.style or STYLES[kernel.backend][0]
    variants = kernels().get((kernel.op, kernel.backend, kernel.arch, style), ())
    return min(variants, key=lambda variant: misfits(variant, description), default=None)


def misfits(template: Template, description: KernelDescription) -> int:
    """How many things that the description asks for the template does not have."""
    graph = {name: (producer, consumer) for name, producer, consumer in template.pipelines}
    count = sum(name not in graph for name in description.pipeline)
    for name, pair in graph.items():
        count += not same_pair(asked_pair(description, name, pair), pair, description.kernel.arch)
    return count + sum(
        option_value(description, option) not in template.values(option) for option in OPTIONS
    )


def asked_pair(
    description: KernelDescription, pipeline: str, usual: tuple[str, str]
) -> tuple[str, str]:
    """Producer and consumer of a pipeline as described; `usual` where nothing is said."""
    asked = description.pipeline.get(pipeline)
    if asked is None:
        return usual
    return asked.producer or usual[0], asked.consumer or usual[1]


def same_pair(asked: tuple[str, str], pair: tuple[str, str], arch: str) -> bool:
    """Whether two pairs are one. On Hopper threads issue wgmma: two words for one consumer."""

    def plain(consumer: str) -> str:
        return "thread" if arch == "sm_90a" and consumer == "wgmma" else consumer

    return asked[0] == pair[0] and plain(asked[1]) == plain(pair[1])


def option_value(description: KernelDescription, option: str) -> object:
    """The value of an option key; the usual one where its section is not described."""
    value: object = description
    for part in option.split("."):
        if isinstance(value, dict):
            if part not in value:
                return OPTIONS[option]
            value = value[part]
        else:
            value = getattr(value, part)
    return value
