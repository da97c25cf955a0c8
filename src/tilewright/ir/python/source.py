"""A Python function as a text to read: its lines in the user's file, and the values of the names
that it uses from outside."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.python.words import PYTHON, Word
from tilewright.ir.text.expr import ExprReader

MISSING = object()  # a name that stands for nothing


class FunctionSource(ExprReader):
    """The text of one Python function; errors give the place in the user's file."""

    def __init__(self, function: Callable[..., object]) -> None:
        if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
            raise CompileError(
                f"{function!r} is no kernel", hint="put @kernel on a function: def name(A: …): …"
            )
        self.python = function
        self.file = function.__code__.co_filename
        lines, self.first = self._read_lines(function)
        self.indented = lines[0][:1].isspace()
        if self.indented:  # a block of its own, so that Python's parser takes it
            lines, self.first = ["if True:\n", *lines], self.first - 1
        self._cells = dict(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )
        super().__init__("".join(lines))
        self.assigned = _assigned(self.function)  # every name that is the function's own

    def _read_lines(self, function: types.FunctionType) -> tuple[list[str], int]:
        try:
            return inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise CompileError(
                f"the source of {function.__name__} cannot be read",
                hint="kernels are read from their source: define it in a file",
            ) from None

    def _only_function(self, module: ast.Module) -> ast.FunctionDef:
        around = module.body[0]
        (stmt,) = around.body if isinstance(around, ast.If) else module.body
        if not isinstance(stmt, ast.FunctionDef):
            raise self.refuse(
                stmt, "a kernel is a plain function", "write def name(A: f32[N], …): …"
            )
        others = [d for d in stmt.decorator_list if not _says_nothing(d)]
        if len(others) > 1:
            raise self.refuse(others[0], "a kernel has no other decorators", "put @kernel alone")
        stmt.decorator_list = []
        return stmt

    # ---------------------------------------------------------- errors

    def where(self, line: int) -> str:
        return f"{self.file}:{line + self.first - 1}"

    def refuse(self, at: ast.AST, what: str, hint: str | None = None) -> CompileError:
        """The error to raise: what is wrong at `at`, and what to write instead."""
        error = self.error(at, what)
        error.hint = hint
        return error

    # ---------------------------------------------------------- names from outside

    def captured(self, node: ast.AST) -> Any:
        """The Python object that a name, or an attribute of one, stands for outside of the
        function; MISSING for a name that nothing has."""
        if isinstance(node, ast.Attribute):
            owner = self.captured(node.value)
            if owner is MISSING:
                return MISSING
            found = getattr(owner, node.attr, MISSING)
            if found is MISSING:
                what = f"{ast.unparse(node.value)} has no attribute {node.attr!r}"
                raise self.refuse(node, what)
            return found
        if not isinstance(node, ast.Name) or node.id in self.assigned:
            return MISSING
        if node.id in self._cells:
            try:
                return self._cells[node.id].cell_contents
            except ValueError:  # assigned below the kernel
                return MISSING
        return self.python.__globals__.get(node.id, getattr(builtins, node.id, MISSING))

    def value_of(self, node: ast.AST, found: Any) -> Expr | int | float | bool:
        """What an outside object means in an expression."""
        if isinstance(found, np.generic):
            found = found.item()
        if isinstance(found, (bool, int, float)):
            return found
        if isinstance(found, Expr) and not any(isinstance(e, (Var, Load)) for e in found.walk()):
            return found
        kind = type(found).__name__
        hint = "a kernel uses numbers and dims() from outside; arrays are its parameters"
        if isinstance(found, Word) or any(found is f for f in PYTHON.values()):
            kind = "function"
            hint = f"call it: {found.form if isinstance(found, Word) else found.__name__ + '(…)'}"
        raise self.refuse(node, f"{ast.unparse(node)} is a {kind}, not a number", hint)

    def word(self, node: ast.AST) -> Any:
        """What is called: a word's name, or the Python object of another kind that stands there.
        Words need not be imported."""
        found = self.captured(node)
        if found is MISSING:
            return node.id if isinstance(node, ast.Name) and node.id not in self.assigned else node
        if isinstance(found, Word):
            return found.name
        return next((name for name, f in PYTHON.items() if f is found), found)

    def annotation(self, param: ast.arg) -> Any:
        """The value of a parameter's annotation."""
        found = self.python.__annotations__.get(param.arg, MISSING)
        if not isinstance(found, str):
            return found
        values = {n: c.cell_contents for n, c in self._cells.items() if _has_value(c)}
        try:
            return eval(found, self.python.__globals__, values)
        except (NameError, AttributeError, TypeError, SyntaxError, CompileError) as error:
            raise self.refuse(
                param,
                f"the type of {param.arg} cannot be found: {error}",
                "names in annotations that are texts must be the file's own: take out "
                "`from __future__ import annotations`, or use the name in the body too",
            ) from None


def _has_value(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not MISSING
    except ValueError:
        return False


def _assigned(function: ast.FunctionDef) -> set[str]:
    """The names that Python takes to be the function's own: parameters, and what is assigned."""
    found = {a.arg for a in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def outside_names(function: ast.FunctionDef) -> list[ast.expr]:
    """Every name, and attribute of a name, that the body reads."""
    body = [node for stmt in function.body for node in ast.walk(stmt)]
    return [n for n in body if isinstance(n, (ast.Name, ast.Attribute))]


def _says_nothing(decorator: ast.expr) -> bool:
    """`@no_type_check`: to type checkers a parameter's `f32[M, N]` is no type."""
    return getattr(decorator, "attr", getattr(decorator, "id", "")) == "no_type_check"
