# SPDX-License-Identifier: Apache-2.0
"""Names of a custom graph must name something.

What it checks
    That there is a pipeline, a tensor that is read and one that is written; that each edge is
    "FROM -> TO"; that shapes are of M and N; that roles, held tensors and expected results have
    names that the description gives.

Why
    A graph is made of its names. One that leads nowhere would leave a role or a tensor out,
    silently.

Example
    edge = "load > compute", or [role.compute] where no edge leads to compute.

Use instead
    The name that the message proposes.
"""

import ast
import keyword
from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_word
from pipegen.planning.custom.reading import (
    MOVERS,
    held_names,
    kind_of,
    multiplies,
    shape_of,
    words_of,
)

# Names of the emitted file that a tensor, a ring or a role would hide, and those that only a role's
# function or only a tensor's argument would.
TAKEN = frozenset(
    (
        "thread",
        "columns",
        "cute",
        "cutlass",
        "cuda",
        "cudart",
        "pipeline",
        "memory",
        "cpasync",
        "primitives",
        "array",
        "sys",
        "os",
        "argparse",
        "functools",
        "custom",
        "custom_kernel",
        "launch",
        "check",
        "main",
        "reference",
        "operand",
        "sizes",
        "part_of",
        "make_part",
        "load_part",
        "store_part",
        "add_rows",
        "store_kept",
        "load_kept",
        "send_kept",
        "at_peer",
        "of_peer",
        "partition_tma",
        "copy_async",
        "copy_global",
        "load_global",
        "store_global",
        "stages_layout",
        "tile_layout",
        "compile_custom",
        "max_blocks",
        "torch",
        "range",
        "int",
        "str",
        "max",
        "min",
        "len",
        "zip",
        "set",
        "bool",
        "print",
        "map",
    )
)
TAKEN_BY_ROLES = frozenset(
    (
        "first",
        "step",
        "panel",
        "panels",
        "tile",
        "tiles",
        "storage",
        "group",
        "stores",
        "thread_idx",
        "turns",
        "index",
        "rank",
        "peer",
        "warp_idx",
    )
)
TAKEN_BY_TENSORS = frozenset(
    (
        "load",
        "store",
        "rows",
        "numbers",
        "gmem",
        "problem",
        "stream",
        "panels",
        "tiles",
        "values",
        "row_values",
        "m",
        "n",
        "i",
        "j",
        "inputs",
        "outputs",
    )
)


def check(description: KernelDescription) -> Iterator[Problem]:
    words = words_of(description)
    yield from words.problems
    if not description.pipeline:
        yield Problem(
            "a custom kernel is made of rings between roles, and there is none",
            "pipeline.tiles",
            allowed="[pipeline.NAME] with an edge",
            nearest='pipeline.tiles.edge = "load -> store"',
        )
    for end, example in (("read", "load"), ("write", "store")):
        if not any(getattr(tensor, end) for tensor in description.tensor.values()):
            yield Problem(
                f"no role {end}s a tensor: nothing would come of the kernel",
                f"tensor.{'x' if end == 'read' else 'out'}",
                allowed=f"[tensor.NAME] with {end} = ROLE",
                nearest=f'tensor.{"x" if end == "read" else "out"}.{end} = "{example}"',
            )
    if description.tensor and not any(
        multiplies(description) or shape_of(tensor.shape) == ("M", "N")
        for tensor in description.tensor.values()
    ):
        name, tensor = next(iter(description.tensor.items()))
        yield Problem(
            "some tensor must have rows and columns: the kernel takes M and N from it",
            f"tensor.{name}.shape",
            tensor.shape,
            '"M, N"',
            '"M, N"',
        )
    yield from _names(description)
    if words.problems:
        return
    yield from _held(description)
    yield from _texts(description)


def _names(description: KernelDescription) -> Iterator[Problem]:
    """Names that the emitted file can use as they are."""
    ends = words_of(description)
    for section, names in (
        ("tensor", list(description.tensor)),
        ("pipeline", list(description.pipeline)),
        ("role", ends.roles()),
    ):
        for name in names:
            plain = name.isascii() and name.isidentifier() and name == name.lower()
            others = {
                "role": {*description.tensor, *description.pipeline},
            }.get(section, set())
            hidden = TAKEN | (TAKEN_BY_ROLES if section == "role" else TAKEN_BY_TENSORS)
            if not plain or name.startswith("_") or keyword.iskeyword(name) or name in hidden:
                why = "the emitted kernel needs a name of its own in lower case"
            elif len(name) > 20:
                why = f"is {len(name)} characters long; a table of the kernel has 20"
            elif name in others:
                why = "is also the name of a tensor or a pipeline"
            else:
                continue
            yield Problem(
                why,
                f"{section}.{name}",
                allowed="letters, digits and underscores, no keyword, no name of the kernel's own",
                nearest=f"{section}.my_{name.strip('_').lower()[:12] or section}",
            )


def _held(description: KernelDescription) -> Iterator[Problem]:
    """What a stage of a mover's ring holds."""
    words = words_of(description)
    fed = {target for _, targets in words.edges.values() for target in targets}
    for name, (sources, _) in words.edges.items():
        readable = [tensor for source in sources for tensor in words.reads.get(source, ())]
        movers = [source for source in sources if kind_of(description, words, source) in MOVERS]
        entry = description.pipeline[name]
        if any(source in fed for source in movers):
            continue  # rule PG271: no mover takes a ring
        if not movers:
            if entry.holds is not None:
                yield Problem(
                    "threads write the stage: it holds what their body makes",
                    f"pipeline.{name}.holds",
                    entry.holds,
                    "no value",
                    "leave the key out",
                )
            continue
        for key in ("dtype", "shape"):
            if getattr(entry, key) is not None:
                yield Problem(
                    "a copy changes neither type nor shape: they are the tensor's",
                    f"pipeline.{name}.{key}",
                    getattr(entry, key),
                    "no value",
                    "leave the key out",
                )
        held = held_names(description, words, name)
        unknown = [tensor for tensor in held if tensor not in readable]
        if unknown or not held:
            yield Problem(
                f"no source of {name} reads {listing(unknown) or 'a tensor that is left for it'}",
                f"pipeline.{name}.holds",
                entry.holds or listing(held),
                listing(readable) or "tensors that its sources read",
                nearest_word(unknown[0] if unknown else name, readable) or '"x"',
            )


def _texts(description: KernelDescription) -> Iterator[Problem]:
    """Bodies and expectations are Python."""
    for name, role in description.role.items():
        for key in ("body", "turn", "finish"):
            text = getattr(role, key)
            if text is not None and (fault := _fault(text, "exec")):
                yield Problem(fault, f"role.{name}.{key}", text, "Python statements", "return")
    for name, tensor in description.tensor.items():
        if tensor.expect is not None and (fault := _fault(tensor.expect, "eval")):
            yield Problem(
                fault, f"tensor.{name}.expect", tensor.expect, "one torch expression", '"x"'
            )


def _fault(text: str, mode: str) -> str:
    """Why a text is no Python; empty if it is."""
    try:
        tree = ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is no Python: {error}"
    if mode == "exec" and not getattr(tree, "body", None):
        return "says nothing"
    return "" if text.isprintable() or "\n" in text else "has characters that nobody sees"
