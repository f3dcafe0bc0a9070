# SPDX-License-Identifier: Apache-2.0
"""Which template writes a description: by its pairs and its options. Pure functions."""

from collections.abc import Iterable
from typing import Any

from pipegen.description import KernelDescription
from pipegen.selection_table import Template, kernels
from pipegen.vocabulary import OPTIONS, default_style

_ENDS = ("producer", "consumer")


def template_of(description: KernelDescription) -> Template | None:
    """The template that writes the description, or the one that comes nearest to it.

    None if none writes the op for the backend, architecture and style (rule PG101 says so). Of
    several that write it, the first; rules PG102 and PG108 name what the nearest does not have.
    """
    kernel = description.kernel
    style = kernel.style or default_style(kernel.op, kernel.backend)
    variants = kernels().get((kernel.op, kernel.backend, kernel.arch, style), ())
    return min(variants, key=lambda variant: _distance(variant, description), default=None)


def _distance(template: Template, description: KernelDescription) -> tuple[int, int]:
    """How far a template is: of two with as many misfits, the one that has the pairs is nearer."""
    return misfits(template, description), _other_pairs(template, description)


def misfits(template: Template, description: KernelDescription) -> int:
    """How many things that the description asks for the template does not have."""
    graph = [name for name, _, _ in template.pipelines]
    own = template.op == "custom"  # the graph is the description's
    count = 0 if own else sum(name not in graph for name in description.pipeline)
    count += _other_pairs(template, description)
    count += own and _has_kind(template, description) != bool(template.kinds)
    return count + sum(
        option_value(description, option) not in template.values(option) for option in OPTIONS
    )


def _has_kind(template: Template, description: KernelDescription) -> bool:
    """Whether a role is of a kind that the template is there for, or that another one is."""
    kinds = {kind for each in kernels().values() for one in each for kind in one.kinds}
    return any(role.kind in kinds for role in description.role.values())


def _other_pairs(template: Template, description: KernelDescription) -> int:
    """Pipelines of the template that are asked to connect something else."""
    graph = {name: (producer, consumer) for name, producer, consumer in template.pipelines}
    return sum(
        not same_pair(asked_pair(description, name, pair), pair, description.kernel.arch)
        for name, pair in graph.items()
    )


def conflicts(description: KernelDescription, key: str) -> dict[str, object]:
    """Keys, with their values, that no template of the op has together with `key`.

    Options first: where there are any, a pair may only be what the nearest template filled in.
    """
    kernel = description.kernel
    style = kernel.style or default_style(kernel.op, kernel.backend)
    variants = kernels().get((kernel.op, kernel.backend, kernel.arch, style), ())
    ends = [f"pipeline.{name}.{end}" for name in description.pipeline for end in _ENDS]
    given = {each: option_value(description, each) for each in (*OPTIONS, *ends)}

    def apart(others: Iterable[str]) -> dict[str, object]:
        found = {}
        for other in others:
            if other == key or given[other] in (None, OPTIONS.get(other)):
                continue
            both = _only(description, {key: given[key], other: given[other]})
            if all(misfits(variant, both) for variant in variants):
                found[other] = given[other]
        return found

    return apart(OPTIONS) or apart(ends)


def _only(description: KernelDescription, values: dict[str, object]) -> KernelDescription:
    """A description of the same kernel that says nothing but these keys."""
    data: dict[str, Any] = {"kernel": description.kernel.model_dump()}
    for key, value in values.items():
        *sections, leaf = key.split(".")
        table = data
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = value
    return KernelDescription.model_validate(data)


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
    if description.kernel.op == "custom" and option.startswith(("pipeline.", "role.")):
        return OPTIONS[option]  # a ring or a role of the user's own that has such a name
    for part in option.split("."):
        if isinstance(value, dict):
            if part not in value:
                return OPTIONS[option]
            value = value[part]
        else:
            value = getattr(value, part)
    return value
