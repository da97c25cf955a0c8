"""Reading the expressions of a kernel's source.

A number without a type (a literal, a constant from outside) is a Python number until it meets an
operand that has one; `Choice` is such a number that depends on a condition.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import BufferType, DType, Kind, bool_, index
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    DRAM,
    BinaryOp,
    Bitcast,
    Buffer,
    CompareOp,
    Dim,
    Expr,
    Load,
    Unary,
    UnaryOp,
    as_dim,
    binary,
    cast,
    compare,
    const,
    constant_value,
    select,
    unary,
)
from tilewright.ir.kernel_source import MISSING, FunctionSource
from tilewright.ir.kernel_words import BINARY, FUNCTIONS, LOOPS, UNARY
from tilewright.ir.verify_expr import BINARY_TAKES, UNARY_TAKES


@dataclass(frozen=True)
class Choice:
    """One of two numbers without a type."""

    cond: Expr
    a: Value
    b: Value


Value = Expr | int | float | bool | Choice


class KernelExprReader(FunctionSource):
    """Reads expressions. `scalars` are loop variables and names for expressions, `variables` the
    buffers of one element that stand behind other names, `buffers` the arrays."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.scalars: dict[str, Any] = {}
        self.variables: dict[str, Buffer] = {}

    # ---------------------------------------------------------- values

    def value(self, node: ast.AST) -> Value:
        read = _READ.get(type(node))
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
            shown = "this number" if isinstance(value, Choice) else f"{value}"
            raise self.refuse(at, f"{shown} has no type here", f"give it one: f32({shown})")
        if isinstance(value, Choice):
            return select(value.cond, *(self.convert(at, v, dtype) for v in (value.a, value.b)))
        return self._number(at, value, dtype)

    def _number(self, at: ast.AST, value: int | float | bool, dtype: DType) -> Expr:
        fits = isinstance(value, bool) == (dtype.kind is Kind.BOOL)
        if dtype.is_integer and isinstance(value, float):
            fits = False
        try:
            result = const(value, dtype) if fits else None
        except (CompileError, OverflowError):
            result = None
        if result is None or (math.isfinite(value) and not math.isfinite(result.value)):
            raise self.refuse(at, f"{value} is not a value of {dtype}", _range_of(dtype))
        return result

    def condition(self, node: ast.AST) -> Expr | bool:
        """What is true or false; a bool is decided now."""
        value = self.value(node)
        if isinstance(value, bool) or (isinstance(value, Expr) and value.dtype == bool_):
            return value
        kind = f"of type {value.dtype}" if isinstance(value, Expr) else "a number"
        raise self.refuse(node, f"a condition is true or false, and this is {kind}", "… != 0")

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
                raise self.refuse(node, "this is no array", "all subscripts in one: A[i, j]")
            if name in self.scalars or self.captured(owner) is not MISSING:
                hint = "subscripts are for parameters and local(…) arrays"
                raise self.refuse(node, f"{ast.unparse(owner)} is no array of the kernel", hint)
            raise self.unknown(node, "array", ast.unparse(owner), list(self.buffers))
        buffer = self.buffers[name]
        slices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(slices) != len(buffer.shape):
            what = f"{len(slices)} subscripts for an array of {len(buffer.shape)} dimensions"
            raise self.refuse(node, what, f"it is {buffer}")
        pairs = zip(slices, buffer.shape, strict=True)
        return buffer, tuple(self._subscript(s, n, buffer) for s, n in pairs)

    def _subscript(self, node: ast.AST, n: Dim, buffer: Buffer) -> Expr:
        e = self.expr(node)
        if not e.dtype.is_integer:
            raise self.refuse(node, f"a subscript is of type {e.dtype}", "i64(…)")
        value = constant_value(e)
        if value is not None and (value < 0 or (isinstance(n, int) and value >= n)):
            hint = f"subscripts count from 0; the last one is {as_dim(cast(index, e) * 0 + n - 1)}"
            raise self.refuse(node, f"{value} is outside of {buffer}", hint)
        return cast(index, e)

    def dim(self, node: ast.AST) -> Dim:
        """A number of iterations or elements."""
        e = self.expr(node)
        if e.dtype != index:
            raise self.refuse(node, f"a size is of type {e.dtype}, not {index}", f"{index}(…)")
        if any(isinstance(x, Load) for x in e.walk()):
            hint = "loop to the greatest number, with an `if` in the body"
            raise self.refuse(node, "the number of iterations is read from memory", hint)
        return as_dim(e)

    def dtype(self, node: ast.AST) -> DType:
        found = self.captured(node)
        if isinstance(found, DType):
            return found
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
            raise self.refuse(at, f"{what} of {dtype}: it takes {names}", "convert: f32(…)")


def _range_of(dtype: DType) -> str:
    if dtype.kind is Kind.BOOL:
        return "True or False"
    kind = "whole numbers " if dtype.is_integer else ""
    return f"{kind}from {dtype.min} to {dtype.max}" if kind else "a number that it can hold"


# ---------------------------------------------------------------- names and numbers


def _read_constant(r: KernelExprReader, node: ast.Constant) -> Value:
    if isinstance(node.value, (bool, int, float)):
        return node.value
    raise r.refuse(node, f"{node.value!r} is no number", "a number, True or False")


def _read_name(r: KernelExprReader, node: ast.Name) -> Value:
    name = node.id
    if name in r.scalars:
        return r.scalars[name]
    if name in r.variables:
        return Load(r.variables[name], ())
    if name in r.buffers:
        at = ", ".join("ijklmnopqrstuvwxyz"[: len(r.buffers[name].shape)]) or "()"
        raise r.refuse(node, f"{name} is an array", f"one of its elements: {name}[{at}]")
    if name in r.assigned:
        hint = "a name lives to the end of the block that first assigns it: assign it before"
        raise r.refuse(node, f"{name} has no value here", hint)
    return _read_outside(r, node)


def _read_outside(r: KernelExprReader, node: ast.Name | ast.Attribute) -> Value:
    found = r.captured(node)
    if found is not MISSING:
        return r.value_of(node, found)
    base = node
    while isinstance(base, ast.Attribute):
        base = base.value
    if isinstance(base, ast.Name) and base.id in r.assigned:
        raise r.refuse(node, "attributes of arrays are not known here", "name the dims: f32[M, N]")
    known = [*r.scalars, *r.variables, *r.buffers]
    raise r.unknown(node, "name", ast.unparse(node), known)


# ---------------------------------------------------------------- operators


def _read_unary(r: KernelExprReader, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        cond = r.condition(node.operand)
        return not cond if isinstance(cond, bool) else unary(UnaryOp.NOT, cond)
    value = r.value(node.operand)
    if isinstance(node.op, ast.UAdd):
        return value
    op, plain = _UNARY[type(node.op)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _python(r, node, plain, value)
    value = r.convert(node, value, None)
    r.takes(node, op.value, UNARY_TAKES[op], value.dtype)
    return unary(op, value)


_UNARY = {
    ast.USub: (UnaryOp.NEG, operator.neg),
    ast.Invert: (UnaryOp.NOT, operator.invert),
}


def _read_binary(r: KernelExprReader, node: ast.BinOp) -> Value:
    if type(node.op) not in BINARY_OPERATORS:
        raise r.refuse(node, "kernels have no matrix product", "loops over its elements")
    op, plain = BINARY_OPERATORS[type(node.op)]
    a, b = r.value(node.left), r.value(node.right)
    return combine(r, node, op, plain, a, b)


def combine(
    r: KernelExprReader, at: ast.AST, op: BinaryOp, plain: Callable[..., Any], a: Value, b: Value
) -> Value:
    """a op b; `plain` does it for two numbers."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return _python(r, at, plain, a, b)
    left, right = r.pair(at, a, b)
    if plain is operator.truediv and left.dtype.is_integer:
        hint = "a // b rounds down, div(a, b) towards zero; f32(a) / f32(b) has a fraction"
        raise r.refuse(at, f"/ of {left.dtype} is not told how to round", hint)
    r.takes(at, op.value, BINARY_TAKES[op], left.dtype)
    return binary(op, left, right)


def _python(r: KernelExprReader, at: ast.AST, function: Callable[..., Any], *args: Any) -> Value:
    """An operation on Python's numbers, done now."""
    try:
        result = function(*args)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise r.refuse(at, f"this cannot be computed: {error}") from None
    if not isinstance(result, (bool, int, float)):
        raise r.refuse(at, f"this gives {result}, which is no number of a kernel")
    return result


BINARY_OPERATORS: dict[type, tuple[BinaryOp, Callable[..., Any]]] = {
    ast.Add: (BinaryOp.ADD, operator.add),
    ast.Sub: (BinaryOp.SUB, operator.sub),
    ast.Mult: (BinaryOp.MUL, operator.mul),
    ast.Div: (BinaryOp.DIV, operator.truediv),
    ast.FloorDiv: (BinaryOp.FLOORDIV, operator.floordiv),
    ast.Mod: (BinaryOp.MOD, operator.mod),
    ast.Pow: (BinaryOp.POW, operator.pow),
    ast.BitAnd: (BinaryOp.AND, operator.and_),
    ast.BitOr: (BinaryOp.OR, operator.or_),
    ast.BitXor: (BinaryOp.XOR, operator.xor),
    ast.LShift: (BinaryOp.SHL, operator.lshift),
    ast.RShift: (BinaryOp.SHR, operator.rshift),
}


def _read_bool(r: KernelExprReader, node: ast.BoolOp) -> Value:
    """a and b, a or b: b is not evaluated where a decides."""
    is_and = isinstance(node.op, ast.And)
    result: Expr | bool = is_and
    for part in node.values:
        cond = r.condition(part)
        result = _join(result, cond, is_and=is_and)
        if isinstance(result, bool) and result != is_and:
            return result
    return result


def _join(a: Expr | bool, b: Expr | bool, *, is_and: bool) -> Expr | bool:
    if isinstance(a, bool):
        return b if a == is_and else a
    if isinstance(b, bool) and b == is_and:
        return a
    if isinstance(b, Expr) and not any(isinstance(e, Load) for e in b.walk()):
        return binary(BinaryOp.AND if is_and else BinaryOp.OR, a, b)
    return select(a, b, False) if is_and else select(a, True, b)


def _read_compare(r: KernelExprReader, node: ast.Compare) -> Value:
    """a < b, and chains such as 0 <= i < n."""
    result: Expr | bool = True
    left = r.value(node.left)
    for kind, comparator in zip(node.ops, node.comparators, strict=True):
        if type(kind) not in _COMPARE:
            raise r.refuse(node, "kernels have no such comparison", "== != < <= > >=")
        op, plain = _COMPARE[type(kind)]
        right = r.value(comparator)
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            one: Expr | bool = plain(left, right)
        else:
            one = compare(op, *r.pair(node, left, right))
        result = _join(result, one, is_and=True)
        left = right
    return result


_COMPARE: dict[type, tuple[CompareOp, Callable[..., bool]]] = {
    ast.Eq: (CompareOp.EQ, operator.eq),
    ast.NotEq: (CompareOp.NE, operator.ne),
    ast.Lt: (CompareOp.LT, operator.lt),
    ast.LtE: (CompareOp.LE, operator.le),
    ast.Gt: (CompareOp.GT, operator.gt),
    ast.GtE: (CompareOp.GE, operator.ge),
}


def _read_conditional(r: KernelExprReader, node: ast.IfExp) -> Value:
    return _choose(r, node, node.test, node.body, node.orelse)


def _choose(r: KernelExprReader, at: ast.AST, test: ast.AST, yes: ast.AST, no: ast.AST) -> Value:
    cond = r.condition(test)
    if isinstance(cond, bool):
        return r.value(yes if cond else no)
    a, b = r.value(yes), r.value(no)
    if isinstance(a, Expr) or isinstance(b, Expr):
        return select(cond, *r.pair(at, a, b))
    return Choice(cond, a, b)


# ---------------------------------------------------------------- calls


def _read_call(r: KernelExprReader, node: ast.Call) -> Value:
    called = r.word(node.func)
    if isinstance(called, DType) or r.type_named(called) is not None:
        return _convert_to(r, node, called if isinstance(called, DType) else r.type_named(called))
    if not isinstance(called, str) or called not in FUNCTIONS:
        raise _unknown_function(r, node, called)
    count = 1 if called in UNARY else 3 if called == "select" else 2
    form = f"{called}({', '.join(('a', 'b', 'c')[:count])})"
    r.no_keywords(node, form)
    most = len(node.args) if called in ("min", "max") else count
    args = r.arguments(node, form, count, max(count, most))
    if called == "select":
        return _choose(r, node, *args)
    if called in ("cast", "bitcast"):
        return _read_cast(r, node, called, *args)
    if called in UNARY:
        return _call_unary(r, node, UNARY[called], args[0])
    result = r.value(args[0])
    for arg in args[1:]:
        result = combine(r, node, BINARY[called], _PYTHON[called], result, r.value(arg))
    return result


_PYTHON: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "pow": pow,
    "atan2": math.atan2,
    "rem": math.fmod,
    "div": lambda a, b: math.trunc(a / b),
}


def _call_unary(r: KernelExprReader, node: ast.Call, op: UnaryOp, arg: ast.AST) -> Value:
    a = r.value(arg)
    if op is UnaryOp.ABS and isinstance(a, (int, float)):
        return abs(a)
    a = r.convert(arg, a, None)
    r.takes(node, op.value, UNARY_TAKES[op], a.dtype)
    return Unary(op, a)


def _convert_to(r: KernelExprReader, node: ast.Call, dtype: DType) -> Expr:
    """f32(a)"""
    form = f"{dtype}(a)"
    r.no_keywords(node, form)
    (arg,) = r.arguments(node, form, 1, 1)
    value = r.value(arg)
    return cast(dtype, value) if isinstance(value, Expr) else r.convert(arg, value, dtype)


def _read_cast(
    r: KernelExprReader, node: ast.Call, called: str, kind: ast.expr, arg: ast.expr
) -> Expr:
    dtype, a = r.dtype(kind), r.expr(arg)
    if called == "cast":
        return cast(dtype, a)
    if dtype.bits != a.dtype.bits or bool_ in (dtype, a.dtype):
        raise r.refuse(node, f"bitcast of {a.dtype} to {dtype}", "both must have one width")
    return Bitcast(dtype, a)


def _unknown_function(r: KernelExprReader, node: ast.Call, called: Any) -> CompileError:
    shown = ast.unparse(node.func)
    if shown in r.buffers:
        return r.refuse(node, f"{shown} is an array", f"{shown}[…]")
    if called in (int, float, bool):
        return r.refuse(node, f"{shown} does not say how wide", "i32(…), i64(…), f32(…), bool_(…)")
    if called in LOOPS:
        return r.refuse(node, f"{shown} stands outside of a loop's head", f"for i in {shown}(…)")
    if called == "local":
        return r.refuse(node, "local stands inside of an expression", "t = local(f32[16])")
    error = r.unknown(node, "function", shown, list(FUNCTIONS))
    if r.captured(node.func) is not MISSING:
        error.what += ", for it is Python's" if callable(called) else ""
    return error


_READ: dict[type, Callable[[KernelExprReader, Any], Value]] = {
    ast.Constant: _read_constant,
    ast.Name: _read_name,
    ast.Attribute: _read_outside,
    ast.UnaryOp: _read_unary,
    ast.BinOp: _read_binary,
    ast.BoolOp: _read_bool,
    ast.Compare: _read_compare,
    ast.IfExp: _read_conditional,
    ast.Call: _read_call,
    ast.Subscript: lambda r, node: Load(*r.place(node)),
}
_REFUSED = {
    ast.Slice: ("a slice stands for many elements", "a loop over them: for i in range(n): …"),
    ast.Lambda: ("kernels have no functions inside", "its expression itself"),
    ast.ListComp: ("kernels have no lists", "t = local(f32[n]), filled by a loop"),
    ast.List: ("kernels have no lists", "t = local(f32[n]), filled by a loop"),
    ast.Tuple: ("kernels have no tuples", "one value for each name"),
    ast.GeneratorExp: ("kernels have no generators", "a loop that accumulates: t += …"),
    ast.NamedExpr: ("an expression assigns nothing", "an assignment on a line before"),
    ast.Starred: ("kernels have no lists", "each argument by itself"),
}
