"""One text in Python syntax, read by Python's parser, and errors that point into it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tilewright.base.errors import CompileError, did_you_mean
from tilewright.base.identifiers import name_of

P = ParamSpec("P")
R = TypeVar("R")


def reads_text(parse: Callable[P, R]) -> Callable[P, R]:
    """For the functions that read a whole text: one that is nested too deeply is an error too."""

    @functools.wraps(parse)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return parse(*args, **kwargs)
        except (RecursionError, MemoryError):
            what = "an expression or block of the text is nested too deeply"
            raise CompileError(what, hint="split it into several statements") from None

    return guarded


class Source:
    """A text that holds one function definition, `function`."""

    def __init__(self, text: str) -> None:
        self.lines = re.split(r"\r\n|\r|\n", text)
        self.function = self._only_function(self._parse(text))

    def _parse(self, text: str) -> ast.Module:
        try:
            return ast.parse(text)
        except SyntaxError as error:
            line, column = error.lineno or 1, (error.offset or 1) - 1
            raise self._at(line, column, "this is not Python syntax", error.msg) from None
        except ValueError as error:  # a null byte
            raise CompileError("the text cannot be read", hint=str(error)) from None

    def _only_function(self, module: ast.Module) -> ast.FunctionDef:
        if not module.body:
            raise CompileError("the text is empty", hint="expected one function: def name(...):")
        first, *more = module.body
        if more or not isinstance(first, ast.FunctionDef):
            odd = more[0] if isinstance(first, ast.FunctionDef) else first
            raise self.error(odd, "there is more here than one function", "def name(...):")
        return first

    def error(self, at: ast.AST, what: str, expected: str | None = None) -> CompileError:
        """The error to raise when what stands at `at` is wrong."""
        line, offset = getattr(at, "lineno", 1), getattr(at, "col_offset", 0)
        column = len(self.lines[line - 1].encode()[:offset].decode(errors="replace"))
        return self._at(line, column, what, f"expected {expected}" if expected else None)

    def unknown(self, at: ast.AST, what: str, name: str, known: list[str]) -> CompileError:
        """The error for a name that stands for nothing."""
        error = self.error(at, f"there is no {what} called {name!r} here")
        error.hint = did_you_mean(name, known)
        return error

    def _at(self, line: int, column: int, what: str, hint: str | None) -> CompileError:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        inner = len(text) - len(text.lstrip())
        shown = f"{text.strip()}\n{' ' * (column - inner)}^"
        return CompileError(f"{self.where(line)}: {what}", program=shown, hint=hint)

    def where(self, line: int) -> str:
        """How errors call a line of the text."""
        return f"line {line}"

    # ---------------------------------------------------------- small parts, checked

    def identifier(self, node: ast.AST, what: str) -> str:
        """The text of a bare name."""
        if not isinstance(node, ast.Name):
            raise self.error(node, f"this is not {what}", f"{what}, which is a plain name")
        return node.id

    def name(self, node: ast.AST, what: str) -> str:
        """The name that a bare name stands for."""
        return name_of(self.identifier(node, what))

    def call(self, node: ast.AST, expected: str) -> tuple[str, ast.Call]:
        """A call of a plain name, and that name."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise self.error(node, "this is not a call", expected)
        return node.func.id, node

    def arguments(self, call: ast.Call, form: str, fewest: int, most: int) -> list[ast.expr]:
        """The positional arguments; `form` shows the call as it should be."""
        if not fewest <= len(call.args) <= most:
            raise self.error(call, f"{len(call.args)} arguments do not fit", form)
        return call.args

    def keywords(self, call: ast.Call, form: str) -> dict[str, ast.expr]:
        """The keyword arguments, by identifier."""
        found: dict[str, ast.expr] = {}
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in found:
                raise self.error(keyword, "a keyword argument is wrong here, or repeated", form)
            found[keyword.arg] = keyword.value
        return found

    def no_keywords(self, call: ast.Call, form: str) -> None:
        if call.keywords:
            raise self.error(call.keywords[0], "this takes no keyword arguments", form)

    def string(self, node: ast.AST, what: str) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self.error(node, f"this is not {what}", f"{what}, a string in quotes")
        return node.value

    def integer(self, node: ast.AST, what: str) -> int:
        value = number(node)
        if type(value) is not int:
            raise self.error(node, f"this is not {what}", f"{what}, an integer")
        return value

    def items(self, node: ast.AST, what: str) -> list[ast.expr]:
        """The elements of a tuple or list."""
        if not isinstance(node, (ast.Tuple, ast.List)):
            raise self.error(node, f"this is not {what}", f"{what}, in parentheses")
        return node.elts

    def parameters(self, function: ast.FunctionDef) -> list[ast.arg]:
        """The parameters of a plain function."""
        a = function.args
        odd = [*a.posonlyargs, *a.kwonlyargs, *a.defaults, *filter(None, (a.vararg, a.kwarg))]
        if odd or function.decorator_list:
            at = (odd or function.decorator_list)[0]
            raise self.error(at, "a function has plain parameters only", "name: type, …")
        return a.args


def number(node: ast.AST) -> int | float | bool | None:
    """The value of a literal, `inf` or `nan`, negated or not; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return float(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand)
        return None if value is None or isinstance(value, bool) else -value
    return None
