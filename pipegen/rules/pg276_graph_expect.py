# SPDX-License-Identifier: Apache-2.0
"""A custom kernel with a body of its own must say what it should write.

What it checks
    That every written tensor has `expect` as soon as some role has a body, a ring leads back, or
    two CTAs each sum their tiles of one panel; that `expect` names only
    tensors that are read, and that nothing is expected of a tensor that is read.

Why
    The emitted module compares what it writes with float64. With identity bodies pipegen knows what
    that is; of a body of your own only you do.

Example
    body = "store_part(load_part(x, SCALE_WARPS, thread) * 2.0, y, SCALE_WARPS, thread)" without
    tensor.out.expect = "x * 2".

Use instead
    One torch expression of the tensors that are read, which are float64 there.
"""

import ast
from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing
from pipegen.planning.custom.graph import Graph
from pipegen.planning.custom.reading import read_graph

# What an expression may call beside its library.
BUILTINS = ("sum", "range", "min", "max", "len")


def check(description: KernelDescription) -> Iterator[Problem]:
    graph = read_graph(description)
    if graph is None:
        return
    read = [part.name for part in graph.tensors if part.name not in graph.written]
    unknown_why = _why(graph)
    for name, tensor in description.tensor.items():
        key = f"tensor.{name}.expect"
        if tensor.expect is None:
            if unknown_why and name in graph.written:
                yield Problem(
                    f"{unknown_why}, so only you know what {name} should be",
                    f"tensor.{name}",
                    allowed=f"expect = an expression of {listing(read)}",
                    nearest=f'{key} = "{read[0] if read else "x"}"',
                )
        elif name not in graph.written:
            yield Problem(
                "it is read, not written", key, tensor.expect, "no value", "leave the key out"
            )
        else:
            used = names_in(tensor.expect)
            library = "torch" if description.kernel.backend == "cute" else "np"
            unknown = sorted(used - {*read, library, *BUILTINS})
            if unknown:
                yield Problem(
                    f"no tensor {unknown[0]} is read",
                    key,
                    tensor.expect,
                    listing([*read, library]),
                    f'"{read[0]}"' if read else "",
                )


def _why(graph: Graph) -> str:
    """Why pipegen does not know what the graph writes; empty if it does."""
    for role in graph.roles:
        if role.body or role.finish:
            return f"{role.name} has a body of its own"
        if role.kept and graph.cluster == (1, 2):
            return f"{role.name} of each CTA sums its tiles of a panel that two have"
    back = next((ring for ring in graph.rings if ring.credits), None)
    return f"{back.name} leads back" if back else ""


def names_in(text: str) -> set[str]:
    """The names that an expression takes from outside; none if it is no Python (rule PG270)."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}  # by "for k in ..."
    return {name.id for name in names} - bound
