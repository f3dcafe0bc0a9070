# SPDX-License-Identifier: Apache-2.0
"""The kernel's name must be a Python module name.

What it checks
    That kernel.name is a Python identifier, is no keyword, does not start with an underscore, and
    is no module that the kernel or Python itself imports.

Why
    The name becomes the file NAME.py, which is imported.

Example
    name = "my-gemm" or name = "class".

Use instead
    Letters, digits and underscores, not starting with a digit: my_gemm, class_.
"""

import keyword
import re
import sys
from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem

# The emitted docstring shows `python NAME.py --compile-only` within 100 columns.
LONGEST = 60
# The emitted file imports some of these, and its users the rest.
SHADOWED = frozenset({"cuda", "cupy", "cutlass", "jax", "numpy", "torch", *sys.stdlib_module_names})

ALWAYS = True


def check(description: KernelDescription) -> Iterator[Problem]:
    name = description.kernel.name
    if name is None:
        return
    if not name.isascii() or not name.isidentifier() or name.startswith("_"):
        message = "is no Python module name"
    elif keyword.iskeyword(name) or keyword.issoftkeyword(name):
        message = "is a Python keyword"
    elif len(name) > LONGEST:
        message = f"is {len(name)} characters long"
    elif name in SHADOWED:
        message = f"would hide the module {name} from the kernel itself"
    else:
        return
    yield Problem(
        message,
        "kernel.name",
        name,
        "ASCII letters, digits and underscores, first a letter, at most 60, no keyword or module",
        f'"{nearest_identifier(name)}"',
    )


def nearest_identifier(name: str) -> str:
    """A valid module name that resembles `name`."""
    word = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:LONGEST] or "kernel"
    if word[0].isdigit():
        word = f"kernel_{word}"[:LONGEST]
    taken = keyword.iskeyword(word) or keyword.issoftkeyword(word) or word in SHADOWED
    return f"{word}_" if taken else word
