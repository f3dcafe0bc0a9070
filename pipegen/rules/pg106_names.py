# SPDX-License-Identifier: Apache-2.0
"""Overrides must name a pipeline or a role that the op has.

What it checks
    The names after [pipeline.] and [role.].

Why
    An override of a pipeline that the op does not have would do nothing, silently.

Example
    [pipeline.main] in a gemm, whose pipelines are mainloop and epilogue.

Use instead
    The name in the message; `pipegen plan FILE` lists the op's pipelines and roles.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_word
from pipegen.planning.defaults import graph_of
from pipegen.planning.families import family_of

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
                nearest = nearest_word(name, names) or names[0]
                yield Problem(
                    f'a {kernel.op} on {kernel.arch} has no {section} "{name}"',
                    f"{section}.{name}",
                    allowed=listing(names),
                    nearest=nearest,
                )
