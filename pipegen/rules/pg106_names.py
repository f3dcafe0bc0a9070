# SPDX-License-Identifier: Apache-2.0
"""Overrides must name a pipeline or a role that the op has.

What it checks
    The names after [pipeline.] and [role.].

Why
    An override of a pipeline that the op does not have would do nothing, silently.

Example
    [pipeline.main] in a gemm, whose pipelines are mainloop and epilogue.

Use instead
    The name in the message, or the option that brings the pipeline; `pipegen plan FILE` lists the
    op's pipelines and roles.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_word, toml_literal
from pipegen.planning.defaults import graph_of
from pipegen.planning.families import family_of
from pipegen.selection_table import kernels
from pipegen.vocabulary import OPTIONS

GENERAL = True


def check(description: KernelDescription) -> Iterator[Problem]:
    kernel = description.kernel
    family = family_of(description)
    known = {
        "pipeline": tuple(graph_of(description)),
        "role": family.roles if family else (),
    }
    for section, names in known.items():
        for name in getattr(description, section):
            if names and name not in names:
                why = f'a {kernel.op} on {kernel.arch} has no {section} "{name}"'
                nearest = nearest_word(name, names) or "leave the table out"
                if section == "pipeline" and (option := _selects(description, name)):
                    why, nearest = f"{why} without {option}", option
                yield Problem(why, f"{section}.{name}", allowed=listing(names), nearest=nearest)


def _selects(description: KernelDescription, pipeline: str) -> str:
    """The option that selects a variant of the kernel that has the pipeline."""
    kernel = description.kernel
    for variant in kernels()[kernel.op, kernel.backend, kernel.arch, str(kernel.style)]:
        if pipeline in (name for name, _, _ in variant.pipelines):
            for option, values in variant.options:
                if OPTIONS[option] not in values:
                    return f"{option} = {toml_literal(values[0])}"
    return ""
