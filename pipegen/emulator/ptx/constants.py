# SPDX-License-Identifier: Apache-2.0
"""Constant expressions of integers in PTX (PTX ISA, "Constant Expressions").

Operators and their order are those of C, and of the operators here those of Python too.
"""

import ast
import operator

_OPERATORS = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def constant(text: str) -> int | None:
    """The value of a constant expression of integers, or None if it is none."""

    def value(node: ast.expr) -> int | None:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.USub):
            inner = value(node.operand)
            if inner is None:
                return None
            return ~inner if isinstance(node.op, ast.Invert) else -inner
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = value(node.left), value(node.right)
            both = left is not None and right is not None
            return _OPERATORS[type(node.op)](left, right) if both else None
        return None

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        return None
