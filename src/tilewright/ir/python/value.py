"""The values of a kernel's source: expressions, and numbers that have no type yet.

A number without a type (a literal, a constant from outside) is a Python number until it meets an
operand that has one; `Choice` is such a number that depends on a condition.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.dtype import BufferType, DType, Kind, bool_, index
from tilewright.base.errors import CompileError
from tilewright.ir.arguments import number
from tilewright.ir.expr import (
    DRAM,
    Buffer,
    Dim,
    Expr,
    Load,
    as_dim,
    cast,
    const,
    constant_value,
    select,
)
from tilewright.ir.python.source import MISSING, FunctionSource


@dataclass(frozen=True)
class NumberChoice:
    """One of two numbers without a type."""

    cond: Expr
    a: Value
    b: Value


Value = Expr | int | float | bool | NumberChoice


class ValueReader(FunctionSource):
    """Reads values. `scalars` are loop variables and names for expressions, `variables` the
    buffers of one element that stand behind other names, `buffers` the arrays."""

    readers: ClassVar[dict[type, Callable[[Any, Any], Value]]]  # by kind of Python expression

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self.scalars: dict[str, Any] = {}
        self.variables: dict[str, Buffer] = {}

    # ---------------------------------------------------------- values

    def value(self, node: ast.AST) -> Value:
        read = self.readers.get(type(node))
        if read is None:
            raise self.refuse(node, *_REFUSED.get(type(node), ("this is no expression here",)))
        return read(self, node)

    def expr(self, node: ast.AST) -> Expr:
        """A value that has a type; a whole number is an index."""
        value = self.value(node)
        if isinstance(value, bool):
            return const(value, bool_)
        return self.convert(node, value, index if isinstance(value, int) else None)

    def convert(self, at: ast.AST, value: Value, dtype: DType | None) -> Expr:
        """`value` as an expression of this type; None: it must have one."""
        if isinstance(value, Expr):
            if dtype is not None and value.dtype != dtype:
                what = f"this is of type {value.dtype}, not {dtype}"
                raise self.refuse(at, what, f"convert it: {dtype}(…)")
            return value
        if dtype is None:
            shown, form = ("this", "…") if isinstance(value, NumberChoice) else (value, value)
            raise self.refuse(at, f"{shown} has no type here", f"give it one: f32({form})")
        if isinstance(value, NumberChoice):
            return select(value.cond, *(self.convert(at, v, dtype) for v in (value.a, value.b)))
        try:
            return number(value, dtype)
        except CompileError as error:
            raise self.refuse(at, error.what, _values_of(dtype, value)) from None

    def condition(self, node: ast.AST) -> Expr | bool:
        """What is true or false; a bool is decided now."""
        value = self.value(node)
        if isinstance(value, bool) or (isinstance(value, Expr) and value.dtype == bool_):
            return value
        kind = f"of type {value.dtype}" if isinstance(value, Expr) else "a number"
        raise self.refuse(
            node, f"a condition is true or false, and this is {kind}", "compare it: … != 0"
        )

    def pair(self, at: ast.AST, a: Value, b: Value) -> tuple[Expr, Expr]:
        """Two operands of one type; a number takes the other's."""
        if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype != b.dtype:
            hint = f"convert one of them: {a.dtype}(…) or {b.dtype}(…)"
            raise self.refuse(at, f"the operands are {a.dtype} and {b.dtype}", hint)
        dtype = next((v.dtype for v in (a, b) if isinstance(v, Expr)), None)
        return self.convert(at, a, dtype), self.convert(at, b, dtype)

    # ---------------------------------------------------------- elements and types

    def place(self, node: ast.AST) -> tuple[Buffer, tuple[Expr, ...]]:
        """x[i, j]: the array and the element's subscripts."""
        assert isinstance(node, ast.Subscript)
        owner = node.value
        name = owner.id if isinstance(owner, ast.Name) else None
        if name in self.variables:
            raise self.refuse(node, f"{name} is one value, not an array", f"{name} alone")
        if name is None or name not in self.buffers:
            if isinstance(owner, ast.Subscript):
                raise self.refuse(node, "this is no array", "write all subscripts in one: A[i, j]")
            if name in self.scalars or self.captured(owner) is not MISSING:
                hint = "subscripts are for parameters and local(…) arrays"
                raise self.refuse(node, f"{ast.unparse(owner)} is no array of the kernel", hint)
            raise self.unknown(node, "array", ast.unparse(owner), list(self.buffers))
        buffer = self.buffers[name]
        slices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(slices) != len(buffer.shape):
            what = f"{len(slices)} subscript{'s' * (len(slices) != 1)} for {buffer}"
            raise self.refuse(node, what, "write one for each dimension")
        pairs = zip(slices, buffer.shape, strict=True)
        return buffer, tuple(self._subscript(s, n, buffer) for s, n in pairs)

    def _subscript(self, node: ast.AST, n: Dim, buffer: Buffer) -> Expr:
        e = self.expr(node)
        if not e.dtype.is_integer:
            raise self.refuse(node, f"a subscript is of type {e.dtype}", "convert it: i64(…)")
        value = constant_value(e)
        if value is not None and (value < 0 or (isinstance(n, int) and value >= n)):
            hint = f"subscripts count from 0; the last one is {as_dim(const(0) + n - 1)}"
            raise self.refuse(node, f"{value} is outside of {buffer}", hint)
        return cast(index, e)

    def array_alone(self, name: str) -> tuple[str, str]:
        """What to say where an array stands and one value should."""
        at = ", ".join("ijklmnopqrstuvwxyz"[: len(self.buffers[name].shape)]) or "()"
        return f"{name} is an array", f"write one of its elements: {name}[{at}]"

    def dim(self, node: ast.AST) -> Dim:
        """A number of iterations or elements."""
        e = self.expr(node)
        if any(isinstance(x, Load) for x in e.walk()):
            hint = "loop to its greatest value, with an `if` in the body"
            raise self.refuse(node, "a number of iterations is read from memory", hint)
        if e.dtype != index:
            hint = f"convert it: {index}(…)"
            raise self.refuse(node, f"a size is of type {e.dtype}, not {index}", hint)
        return as_dim(e)

    def dtype(self, node: ast.AST) -> DType:
        found = self.captured(node)
        if isinstance(found, DType) or found is bool:
            return bool_ if found is bool else found
        if found is MISSING:
            return super().dtype(node)
        raise self.refuse(node, f"{ast.unparse(node)} is no type", "f32, i8, …")

    def buffer_type(self, node: ast.AST) -> tuple[DType, tuple[Dim, ...], str]:
        found = self.captured(node)
        if isinstance(found, BufferType):
            return found.dtype, found.shape, found.memory or DRAM
        return super().buffer_type(node)

    def takes(self, at: ast.AST, what: str, kinds: frozenset[Kind], dtype: DType) -> None:
        """Refuses an operator on operands of a type that it does not take."""
        if dtype.kind not in kinds:
            names = " or ".join(k.value for k in Kind if k in kinds)
            hint = f"convert it: {'f32' if Kind.FLOAT in kinds else 'i32'}(…)"
            raise self.refuse(at, f"{what} of {dtype}: it takes {names}", hint)


def _values_of(dtype: DType, value: float) -> str:
    if dtype.kind is Kind.BOOL:
        return "write True or False"
    if isinstance(value, bool):
        return "write a number"
    kind = "whole numbers" if dtype.is_integer else "numbers"
    return f"it holds {kind} from {dtype.min} to {dtype.max}"


_REFUSED = {
    ast.Slice: ("a slice stands for many elements", "loop over them: for i in range(n): …"),
    ast.Lambda: ("kernels have no functions inside", "write its expression where it is used"),
    ast.ListComp: ("kernels have no lists", "write t = local(f32[n]), and fill it in a loop"),
    ast.List: ("kernels have no lists", "write t = local(f32[n]), and fill it in a loop"),
    ast.Tuple: ("kernels have no tuples", "write one value for each name"),
    ast.GeneratorExp: ("kernels have no generators", "write a loop that accumulates: t += …"),
    ast.NamedExpr: ("an expression assigns nothing", "assign on a line before"),
    ast.Starred: ("kernels have no lists", "write each argument by itself"),
}
