# SPDX-License-Identifier: Apache-2.0
"""Which modules may find their DSL imported already, as if they had imported it themselves."""

import ast
import re
import sys
from collections.abc import Iterable

# What every module of a backend imports. Only what a module imports itself is imported for it: a
# name that it forgot must stay missing.
IMPORTS = {
    "cute": ("cutlass",),
    "cute-ts": ("cutlass", "cutlass.experimental.task_scheduling.task_manager"),
    "pallas": ("jax", "jax.experimental.pallas.mosaic_gpu"),
}
_PACKAGES = {"cuda", "cutlass", "jax", "jaxlib", "numpy"}
# An import statement that is not inside of anything.
_IMPORT = re.compile(r"^(?:import|from)\s[^(\n]*(?:\([^)]*\))?.*$", re.MULTILINE)


def imports_first(text: str, backend: str, variables: Iterable[str]) -> bool:
    """Whether a module may find its DSL imported: nothing it does before could change the import.

    Before and between its imports there may only be a default for a variable that is set anyway
    (`variables`), and it imports only its DSL, numpy, and the standard library. A file beside it
    that hides one of these is the caller's to look for.
    """
    if not (lines := list(_IMPORT.finditer(text))):
        return False
    try:
        body = ast.parse(text[: lines[-1].end()]).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                return False
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif not _is_harmless(node, set(variables)):
            return False
    if not {name.partition(".")[0] for name in names} <= _PACKAGES | sys.stdlib_module_names:
        return False
    return all(
        any(f"{name}.".startswith(f"{each}.") for name in names) for each in IMPORTS[backend]
    )


def _is_harmless(node: ast.stmt, variables: set[str]) -> bool:
    """A docstring, or `if __name__ == "__main__":` with defaults for variables that are set."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=test, body=body, orelse=[]):
            if ast.unparse(test) != "__name__ == '__main__'":
                return False
            return all(_set_variable(each) in variables for each in body)
    return False


def _set_variable(node: ast.stmt) -> str | None:
    """The variable of `os.environ.setdefault("NAME", …)`."""
    match node:
        case ast.Expr(
            value=ast.Call(func=function, args=[ast.Constant(str(name)), ast.Constant()])
        ):
            return name if ast.unparse(function) == "os.environ.setdefault" else None
    return None
