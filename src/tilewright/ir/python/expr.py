"""Reading the expressions of a kernel's source: one function for each kind of Python expression."""

from __future__ import annotations

import ast
import math
import operator
import types
from collections.abc import Callable
from typing import Any

from tilewright.base.dtype import DType, bool_
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    BinaryOp,
    Bitcast,
    CompareOp,
    Expr,
    Load,
    Opaque,
    Unary,
    UnaryOp,
    binary,
    cast,
    compare,
    select,
    unary,
)
from tilewright.ir.python.inline import inlined
from tilewright.ir.python.source import MISSING
from tilewright.ir.python.value import NumberChoice, Value, ValueReader
from tilewright.ir.python.words import BINARY, FUNCTIONS, LOOPS, UNARY
from tilewright.ir.verify.expr import BINARY_TAKES, UNARY_TAKES

# ---------------------------------------------------------------- names and numbers


def _read_constant(r: ValueReader, node: ast.Constant) -> Value:
    if isinstance(node.value, (bool, int, float)):
        return node.value
    raise r.refuse(node, f"{node.value!r} is no number", "a number, True or False")


def _read_name(r: ValueReader, node: ast.Name) -> Value:
    name = node.id
    if name in r.scalars:
        found: Value = r.scalars[name]
        return found
    if name in r.variables:
        return Load(r.variables[name], ())
    if name in r.buffers:
        raise r.refuse(node, *r.array_alone(name))
    if name in r.assigned:
        hint = "a name lives to the end of the block that first assigns it: assign it before"
        raise r.refuse(node, f"{name} has no value here", hint)
    return _read_outside(r, node)


def _read_outside(r: ValueReader, node: ast.Name | ast.Attribute) -> Value:
    found = r.captured(node)
    if found is not MISSING:
        return r.value_of(node, found)
    base: ast.expr = node
    while isinstance(base, ast.Attribute):
        base = base.value
    if isinstance(base, ast.Name) and base.id in r.assigned:
        raise r.refuse(node, "attributes of arrays are not known here", "name the dims: f32[M, N]")
    known = [*r.scalars, *r.variables, *r.buffers]
    raise r.unknown(node, "name", ast.unparse(node), known)


# ---------------------------------------------------------------- operators


def _read_unary(r: ValueReader, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        cond = r.condition(node.operand)
        return not cond if isinstance(cond, bool) else unary(UnaryOp.NOT, cond)
    value = r.value(node.operand)
    if isinstance(node.op, ast.UAdd):
        return value
    sign, op, plain = _UNARY[type(node.op)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _python(r, node, plain, value)
    value = r.convert(node, value, None)
    r.takes(node, sign, UNARY_TAKES[op], value.dtype)
    return unary(op, value)


_UNARY: dict[type, tuple[str, UnaryOp, Callable[[Any], Any]]] = {
    ast.USub: ("-", UnaryOp.NEG, operator.neg),
    ast.Invert: ("~", UnaryOp.NOT, operator.invert),
}


def _read_binary(r: ValueReader, node: ast.BinOp) -> Value:
    if type(node.op) not in BINARY_OPERATORS:
        raise r.refuse(node, "kernels have no matrix product", "write loops over its elements")
    op, plain = BINARY_OPERATORS[type(node.op)]
    a, b = r.value(node.left), r.value(node.right)
    return combine(r, node, op, plain, a, b)


def combine(
    r: ValueReader, at: ast.AST, op: BinaryOp, plain: Callable[..., object], a: Value, b: Value
) -> Value:
    """a op b; `plain` does it for two numbers."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return _python(r, at, plain, a, b)
    left, right = r.pair(at, a, b)
    if plain is operator.truediv and left.dtype.is_integer:
        hint = "a // b rounds down, div(a, b) towards zero; f32(a) / f32(b) has a fraction"
        raise r.refuse(at, f"/ of {left.dtype} does not say how to round", hint)
    r.takes(at, op.value, BINARY_TAKES[op], left.dtype)
    return binary(op, left, right)


def _python(r: ValueReader, at: ast.AST, function: Callable[..., object], *args: object) -> Value:
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


def _read_bool(r: ValueReader, node: ast.BoolOp) -> Value:
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


def _read_compare(r: ValueReader, node: ast.Compare) -> Value:
    """a < b, and chains such as 0 <= i < n."""
    result: Expr | bool = True
    left = r.value(node.left)
    for kind, comparator in zip(node.ops, node.comparators, strict=True):
        if type(kind) not in _COMPARE:
            raise r.refuse(node, "kernels have no such comparison", "compare with == != < <= > >=")
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


def _read_conditional(r: ValueReader, node: ast.IfExp) -> Value:
    return _choose(r, node, node.test, node.body, node.orelse)


def _choose(r: ValueReader, at: ast.AST, test: ast.AST, yes: ast.AST, no: ast.AST) -> Value:
    cond = r.condition(test)
    if isinstance(cond, bool):
        return r.value(yes if cond else no)
    a, b = r.value(yes), r.value(no)
    if isinstance(a, Expr) or isinstance(b, Expr):
        return select(cond, *r.pair(at, a, b))
    return NumberChoice(cond, a, b)


# ---------------------------------------------------------------- calls


def _read_call(r: ValueReader, node: ast.Call) -> Value:
    called = r.word(node.func)
    if isinstance(called, DType) or called is bool:
        return _convert_to(r, node, bool_ if called is bool else called)
    for op, plain in BINARY_OPERATORS.values():
        if called is plain:  # operator.add(a, b)
            r.no_keywords(node, "operator.add(a, b)")
            a, b = (r.value(arg) for arg in r.arguments(node, "operator.add(a, b)", 2, 2))
            return combine(r, node, op, plain, a, b)
    if isinstance(called, types.FunctionType):
        return r.value(inlined(r, node, called))
    if not isinstance(called, str) or called not in FUNCTIONS:
        raise _unknown_function(r, node, called)
    if called == "opaque":
        return _read_opaque(r, node)
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
    "rem": lambda a, b: a - b * math.trunc(a / b),
    "div": lambda a, b: math.trunc(a / b) if isinstance(a + b, int) else a / b,
}


def _call_unary(r: ValueReader, node: ast.Call, op: UnaryOp, arg: ast.AST) -> Value:
    a = r.value(arg)
    if op is UnaryOp.ABS and isinstance(a, (int, float)):
        return abs(a)
    a = r.convert(arg, a, None)
    r.takes(node, op.value, UNARY_TAKES[op], a.dtype)
    return Unary(op, a)


def _convert_to(r: ValueReader, node: ast.Call, dtype: DType) -> Expr:
    """f32(a)"""
    form = f"{dtype}(a)"
    r.no_keywords(node, form)
    (arg,) = r.arguments(node, form, 1, 1)
    value = r.value(arg)
    return cast(dtype, value) if isinstance(value, Expr) else r.convert(arg, value, dtype)


def _read_cast(r: ValueReader, node: ast.Call, called: str, kind: ast.expr, arg: ast.expr) -> Expr:
    dtype, a = r.dtype(kind), r.expr(arg)
    if called == "cast":
        return cast(dtype, a)
    if dtype.bits != a.dtype.bits or bool_ in (dtype, a.dtype):
        raise r.refuse(node, f"bitcast of {a.dtype} to {dtype}", "both must have one width")
    return Bitcast(dtype, a)


def _read_opaque(r: ValueReader, node: ast.Call) -> Expr:
    """opaque("sharpen", i8, a, b)"""
    form = 'opaque("name", i8, a, …)'
    r.no_keywords(node, form)
    name, dtype, *args = r.arguments(node, form, 2, max(2, len(node.args)))
    return Opaque(r.string(name, "a name"), r.dtype(dtype), tuple(map(r.expr, args)))


def _unknown_function(r: ValueReader, node: ast.Call, called: object) -> CompileError:
    shown = ast.unparse(node.func)
    if shown in r.buffers:
        return r.refuse(node, *r.array_alone(shown))
    if called in (int, float):
        return r.refuse(
            node, f"{shown} does not say how wide it is", "i32(…), i64(…), f32(…), f64(…)"
        )
    if called in LOOPS:
        return r.refuse(
            node, f"{shown} stands outside of a loop's head", f"write for i in {shown}(…)"
        )
    if called == "local":
        return r.refuse(node, "local stands inside of an expression", "write t = local(f32[16])")
    if isinstance(called, str) or r.captured(node.func) is MISSING:
        return r.unknown(node, "function", shown, list(FUNCTIONS))
    name = shown.split(".")[-1]
    hint = f"write {name}(…), the kernel language's own" if name in FUNCTIONS else "write it out"
    return r.refuse(node, f"{shown} is Python's, which runs no part of a kernel", hint)


_READERS: dict[type, Callable[[Any, Any], Value]] = {
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


class KernelExprReader(ValueReader):
    """Reads the expressions of a kernel."""

    readers = _READERS
