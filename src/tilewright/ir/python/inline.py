"""Helpers of kernels: Python functions of one expression, read where a kernel calls them.

    def shift(a, b):
        return a >> b if b >= 0 else a << -b

`shift(x[i], 3)` in a kernel stands for that expression of its arguments.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import types

from tilewright.ir.python.source import MISSING
from tilewright.ir.python.value import ValueReader

FORM = "a helper is one expression: def name(a, b): return …"


def inlined(r: ValueReader, node: ast.Call, function: types.FunctionType) -> ast.expr:
    """The expression that a call of a helper stands for, in the kernel's own names and numbers."""
    name = function.__name__
    source = _definition(function)
    body = [] if source is None else source.body
    if ast.get_docstring(source) if source is not None else False:
        body = body[1:]
    if source is None or len(body) != 1 or not isinstance(body[0], ast.Return) or not body[0].value:
        hint = f"write it out; {FORM}"
        raise r.refuse(node, f"{name} is Python's, which runs no part of a kernel", hint)
    names = [a.arg for a in source.args.args]
    plain = ast.arguments([], source.args.args, None, [], [], None, [])
    if ast.dump(source.args) != ast.dump(plain):
        raise r.refuse(node, f"{name} has parameters that are not plain", FORM)
    r.no_keywords(node, f"{name}({', '.join(names)})")
    given = r.arguments(node, f"{name}({', '.join(names)})", len(names), len(names))
    found = _Substitution(r, node, function, dict(zip(names, given, strict=True)))
    expression: ast.expr = found.visit(copy.deepcopy(body[0].value))
    for part in ast.walk(expression):
        if not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return expression


def _definition(function: types.FunctionType) -> ast.FunctionDef | None:
    try:
        text = textwrap.dedent(inspect.getsource(function))
        (found,) = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return found if isinstance(found, ast.FunctionDef) else None


class _Substitution(ast.NodeTransformer):
    """Arguments in the place of parameters; what else a helper names must be a number, or the same
    in the kernel."""

    def __init__(
        self,
        r: ValueReader,
        call: ast.Call,
        function: types.FunctionType,
        arguments: dict[str, ast.expr],
    ) -> None:
        self.r, self.call, self.arguments = r, call, arguments
        self.name = function.__name__
        outside = inspect.getclosurevars(function)
        self.known = {**outside.builtins, **outside.globals, **outside.nonlocals}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if "lineno" in node._attributes:
            ast.copy_location(node, self.call)
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.arguments:
            return self.arguments[node.id]
        value = self.known.get(node.id, MISSING)
        if isinstance(value, (bool, int, float)):
            return ast.copy_location(ast.Constant(value), self.call)
        if value is MISSING or self.r.captured(node) is not value:
            raise self.r.refuse(
                self.call, f"{self.name} uses {node.id}, which the kernel does not know",
                "a helper's names are its parameters, numbers, and what the kernel's file has too",
            )  # fmt: skip
        return ast.copy_location(node, self.call)
