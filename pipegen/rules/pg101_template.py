# SPDX-License-Identifier: Apache-2.0
"""A template must exist for what the description asks for.

What it checks
    That op, backend, architecture and style together name a kernel that pipegen can write.

Why
    The selection table is wider than the set of templates: a row may name the right class for a
    pair long before there is a kernel around it. Writing a nearby kernel instead would be a guess.

Example
    op = "gemm", backend = "cute-ts", arch = "sm_90a": no template yet.

Use instead
    One of the combinations that the message lists, or `pipegen select` for the class alone.
"""

from collections.abc import Iterable, Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.selection_table import kernels
from pipegen.vocabulary import STYLES

ALWAYS = True


def check(description: KernelDescription) -> Iterator[Problem]:
    kernel = description.kernel
    wanted = (kernel.op, kernel.backend, kernel.arch, kernel.style)
    if wanted in kernels():
        return
    if kernel.style not in STYLES[kernel.backend]:
        yield Problem(
            f'the backend "{kernel.backend}" has no such style',
            "kernel.style",
            kernel.style,
            listing(f'"{style}"' for style in STYLES[kernel.backend]),
            f'"{STYLES[kernel.backend][0]}"',
        )
        return
    choices = [" / ".join(key) for key in kernels()]
    yield Problem(
        f'no template writes op "{kernel.op}" for backend "{kernel.backend}" on {kernel.arch} in '
        f'style "{kernel.style}" yet',
        "kernel.op",
        kernel.op,
        f"(op / backend / arch / style) {listing(choices)}",
        " / ".join(max(kernels(), key=lambda key: _likeness(key, wanted))),
    )


def _likeness(key: Iterable[str], wanted: Iterable[str | None]) -> tuple[bool, ...]:
    """How near a kernel is: the op counts most, then the GPU that one has, backend and style."""
    op, backend, arch, style = (a == b for a, b in zip(key, wanted, strict=True))
    return op, arch, backend, style
