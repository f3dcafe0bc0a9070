# SPDX-License-Identifier: Apache-2.0
"""Fills in what a description leaves out.

The result has no None but the kernel's name, and keys that the op does not have (rule PG215).
"""

from pipegen.description import KernelDescription, Pipeline, Role
from pipegen.planning.families import family_of
from pipegen.planning.variants import template_of
from pipegen.vocabulary import default_style


def graph_of(description: KernelDescription) -> dict[str, tuple[str, str]]:
    """The kernel's pipelines by name, each with its producer and consumer kind.

    Empty if no template writes the op as described (rule PG101 says so).
    """
    template = template_of(description)
    if template is None:
        return {}
    return {name: (producer, consumer) for name, producer, consumer in template.pipelines}


def accumulator_of(op: str, a: str) -> str:
    """The type in which products of `a` are summed: the tensor core knows one for each."""
    return "i32" if op == "gemm" and a == "i8" else "f32"


def resolve(description: KernelDescription) -> KernelDescription:
    """The same description with every default spelled out; `stages = "auto"` stays.

    Never fails on a description that the model accepts: what cannot be built is for the rules.
    Where no template writes the op, only what all ops share is filled in.
    """
    data = description.model_dump()
    kernel = data["kernel"]
    kernel["style"] = kernel["style"] or default_style(kernel["op"], kernel["backend"])
    dtype = data["dtype"]
    dtype["acc"] = dtype["acc"] or accumulator_of(kernel["op"], dtype["a"])
    for name, (producer, consumer) in graph_of(description).items():
        entry = data["pipeline"].setdefault(name, Pipeline().model_dump())
        entry["producer"] = entry["producer"] or producer
        entry["consumer"] = entry["consumer"] or consumer
    family = family_of(description)
    if family is None:
        return KernelDescription.model_validate(data)
    if kernel["op"] == "custom":
        for name, given in description.role.items():
            if "warps" not in given.model_fields_set:
                data["role"][name]["warps"] = 0  # the usual number of the role's kind
    for role in family.roles:
        data["role"].setdefault(role, Role().model_dump())
    family.fill(data)
    return KernelDescription.model_validate(data)
