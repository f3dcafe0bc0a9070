# SPDX-License-Identifier: Apache-2.0
"""A template must exist for what the description asks for.

What it checks
    That op, backend, architecture and style together name a kernel that pipegen can write.

Why
    The selection table is wider than the set of templates: a row may name the right class for a
    pair long before there is a kernel around it. Writing a nearby kernel instead would be a guess.

Example
    op = "reduce", backend = "cute-ts", arch = "sm_90a": no template yet.

Use instead
    The value that the message names, or `pipegen select` for the class alone.
"""

from collections.abc import Iterable, Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.selection_table import kernels
from pipegen.vocabulary import STYLES

ALWAYS = True
KEYS = ("op", "backend", "arch", "style")


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
    near = max(kernels(), key=lambda key: _likeness(key, wanted))
    # The one key to change: a style follows from its backend, so it is the last to be blamed.
    place = next(at for at in (0, 2, 1, 3) if near[at] != wanted[at])
    others = [at for at in (0, 1, 2) if at < place or place == 1] if place else []
    choices = dict.fromkeys(
        key[place] for key in kernels() if all(key[at] == near[at] for at in others if at != place)
    )
    yield Problem(
        f'no template writes op "{kernel.op}" for backend "{kernel.backend}" on {kernel.arch} in '
        f'style "{kernel.style}" yet',
        f"kernel.{KEYS[place]}",
        wanted[place],
        listing(f'"{word}"' for word in choices),
        f'"{near[place]}"',
    )


def _likeness(key: Iterable[str], wanted: Iterable[str | None]) -> tuple[bool, ...]:
    """How near a kernel is: the op counts most, then the GPU that one has, backend and style."""
    op, backend, arch, style = (a == b for a, b in zip(key, wanted, strict=True))
    return op, arch, backend, style
