# SPDX-License-Identifier: Apache-2.0
"""An option must be one that the kernel's template writes.

What it checks
    tiles, work_tiles, consumers, split_k, gather, alignment, try_ahead, defer_sync, expected_tx,
    advance_on_wait, lanes, integration and the producer's warps: each at its usual value, or at one
    that the template lists.

Why
    A template states what it does and branches on nothing. An option that it was not written for
    would be ignored, silently.

Example
    scheduler.tiles = "clc" with arch = "sm_90a": cluster launch control begins with Blackwell.

Use instead
    A value that the message allows, or leave the key out.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, assignments, listing, toml_literal
from pipegen.planning.variants import conflicts, option_value, template_of
from pipegen.selection_table import kernels
from pipegen.vocabulary import OPTIONS

GENERAL = True

# What the architecture itself does not have.
ABSENT = {
    ("scheduler.tiles", "sm_90a"): "cluster launch control, which hands out tiles, begins with "
    "sm_100a",
    ("pipeline.mainloop.expected_tx", "sm_90a"): "bytes for each acquire exist on PipelineTmaUmma "
    "only, which begins with sm_100a",
}


def check(description: KernelDescription) -> Iterator[Problem]:
    template = template_of(description)
    if template is None:
        return
    kernel = description.kernel
    for option, usual in OPTIONS.items():
        value = option_value(description, option)
        allowed = template.values(option)
        if value in allowed or option == "cluster.cta_group":  # rule PG402 says more about it
            continue
        variants = kernels()[kernel.op, kernel.backend, kernel.arch, str(kernel.style)]
        offered = {choice for variant in variants for choice in variant.values(option)}
        if option == "scheduler.split_k" and len(offered) > 1 and value not in offered:
            continue  # a number out of range: rule PG404 says which
        why = f"the {kernel.op} on {kernel.arch} that comes nearest has no such option"
        if any(value in variant.values(option) for variant in variants):
            why = f"it does not go with {assignments(conflicts(description, option))}"
        elif elsewhere := _elsewhere(description, option, value):
            why += f"; {elsewhere} has it"
        why = ABSENT.get((option, kernel.arch), why)
        yield Problem(
            why,
            option,
            value,
            listing(toml_literal(word) for word in allowed),
            toml_literal(usual if usual in allowed else allowed[0]),
        )


def _elsewhere(description: KernelDescription, option: str, value: object) -> str:
    """Where a kernel has the option: the op in another style, else on another architecture, else
    another op on this one."""
    kernel = description.kernel
    having = {
        (op, arch, style)
        for (op, backend, arch, style), variants in kernels().items()
        if backend == kernel.backend and any(value in each.values(option) for each in variants)
    }
    for op, arch, style in sorted(having, key=lambda each: (each[1] != kernel.arch, each)):
        if op == kernel.op:
            return f"that on {arch}" if arch != kernel.arch else f'style = "{style}"'
    return next((f"a {op} on {arch}" for op, arch, _ in sorted(having) if arch == kernel.arch), "")
