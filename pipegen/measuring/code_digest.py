# SPDX-License-Identifier: Apache-2.0
"""A digest of a module's code: comments, docstrings and layout do not count."""

import ast
import hashlib
import io
import tokenize
from pathlib import Path


def code_digest(path: Path) -> str:
    """The first 12 hex digits of the SHA-256 of the code.

    Worked out on the text, not on the syntax tree, so that every Python version gives the same.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            docstring = node.body[0]
            for row in range(docstring.lineno - 1, docstring.end_lineno or docstring.lineno):
                lines[row] = ""
    return hashlib.sha256("".join("".join(lines).split()).encode()).hexdigest()[:12]
