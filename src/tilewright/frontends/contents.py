"""Tensors whose elements are dimensions: evaluating an operator on them while importing.

Exporters compute shapes in the graph (Shape, Gather, Concat, Mul, Where …). The elements of these
small integer tensors are numbers or symbolic dimensions, and the operators' own tensor expressions
say what happens to them: `evaluate_symbolic` runs a tensor program element by element, with
constants folded and symbols kept. What needs a symbol's value is `Unknown`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType, from_numpy
from tilewright.ir.dims import canonical, greatest, least, limits
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Dim,
    Expr,
    Load,
    Select,
    Symbol,
    Unary,
    UnaryOp,
    Var,
    as_expr,
    const,
)
from tilewright.ir.scalar import apply_binary, apply_bitcast, apply_cast, apply_compare, apply_unary
from tilewright.ir.tensor import Axis, Item, Stage, TensorProgram

LIMIT = 4096  # elements of a tensor of dimensions

Env = dict[Expr, Expr]
Memory = dict[Buffer, np.ndarray]  # of elements: Const, or a symbolic Expr


class Unknown(Exception):
    """The value depends on what is only known when the program runs."""


def elements(array: np.ndarray) -> np.ndarray:
    """The array's numbers as constants, in an object array; one of elements as it is."""
    if array.dtype == object:
        return array
    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        out[place] = _constant(array[place])
    return out


def as_array(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements as a plain array if all are constants; else as they are."""
    if not all(isinstance(e, Const) for e in values.flat):
        return values
    out = np.empty(values.shape, dtype.numpy)
    for place in np.ndindex(values.shape):
        out[place] = values[place].value
    return out


def as_dims(array: np.ndarray) -> list[Dim]:
    """The elements of an integer tensor, flat, as dimensions."""
    return [canonical(e) if isinstance(e, Expr) else int(e) for e in (array.reshape(-1).tolist())]


def evaluate_symbolic(program: TensorProgram, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a tensor program on arrays of elements; Unknown where one needs a symbol."""
    memory: Memory = {b: elements(a) for b, a in zip(program.inputs, inputs, strict=True)}
    _run(program.items, {}, memory)
    return [as_array(memory[b], b.dtype) for b in program.outputs]


def _run(items: Sequence[Item], env: Env, memory: Memory) -> None:
    for item in items:
        if isinstance(item, Stage):
            _run_stage(item, env, memory)
            continue
        for step in range(_extent(item.step)):
            _run(item.items, {**env, item.step.var: as_expr(step)}, memory)


def _extent(axis: Axis) -> int:
    if not isinstance(axis.extent, int):
        raise Unknown
    return axis.extent


def _indices(axes: Sequence[Axis], env: Env) -> Iterator[Env]:
    extents = [_extent(a) for a in axes]
    if int(np.prod(extents, dtype=object)) > LIMIT:
        raise Unknown
    for values in itertools.product(*map(range, extents)):
        yield {**env, **{a.var: as_expr(v) for a, v in zip(axes, values, strict=True)}}


def _run_stage(stage: Stage, env: Env, memory: Memory) -> None:
    if stage.buffer not in memory:
        shape = [d for d in stage.buffer.shape if isinstance(d, int)]
        if len(shape) != len(stage.buffer.shape):
            raise Unknown
        memory[stage.buffer] = np.empty(shape, object)
    target = memory[stage.buffer]
    for inner in _indices(stage.axes, env):
        place = tuple(_place(i, inner, memory) for i in stage.indices)
        target[place] = _stage_value(stage, inner, memory)


def _stage_value(stage: Stage, env: Env, memory: Memory) -> Expr:
    if stage.op is None:
        return fold(stage.value, env, memory)
    total = fold(stage.start(stage.op), env, memory)
    for inner in _indices(stage.reduce, env):
        total = _fold_binary(stage.op, total, fold(stage.value, inner, memory))
    return total


def _place(e: Expr, env: Env, memory: Memory) -> int:
    value = fold(e, env, memory)
    if not isinstance(value, Const):
        raise Unknown
    return int(value.value)


# ---------------------------------------------------------------- expressions


def fold(e: Expr, env: Env, memory: Memory) -> Expr:
    """The expression's value: a constant, or arithmetic on symbols."""
    return _FOLD[type(e)](e, env, memory)


def _constant(value: Any) -> Const:
    """A numpy scalar as a constant of its type."""
    dtype = from_numpy(value.dtype)
    kind = float if dtype.is_float else int if dtype.is_integer else bool
    return Const(kind(value), dtype)


def _scalar(e: Const) -> Any:
    return np.asarray(e.value, e.dtype.numpy)


def _require_integer(dtype: DType) -> None:
    if not dtype.is_integer or dtype.bits < 32:
        raise Unknown


def _symbolic(e: Expr) -> Expr:
    """An operand of symbolic arithmetic: whole numbers count as dimensions, whatever their type."""
    return _whole(e) if isinstance(e, Const) else e


def _whole(e: Const) -> Const:
    if e.value != int(e.value):
        raise Unknown
    return const(int(e.value))


def _fold_unary(e: Unary, env: Env, memory: Memory) -> Expr:
    a = fold(e.a, env, memory)
    if isinstance(a, Const):
        return _constant(np.asarray(apply_unary(e.op, _scalar(a)))[()])
    if e.op in (UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC):
        return a  # symbolic values are whole
    if e.op is UnaryOp.NEG:
        return as_expr(canonical(-a))
    raise Unknown


def _fold_binary(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        if a.dtype != b.dtype:  # one came out of symbolic arithmetic
            a, b = _whole(a), _whole(b)
        return _constant(np.asarray(apply_binary(op, _scalar(a), _scalar(b)))[()])
    float_division = op is BinaryOp.DIV and any(
        isinstance(e, Const) and e.dtype.is_float for e in (a, b)
    )
    if op not in _EXACT or float_division:
        raise Unknown
    a, b = _symbolic(a), _symbolic(b)
    if op is BinaryOp.DIV:  # towards zero: the floor when nothing is negative
        if _may_be_negative(a) or _may_be_negative(b):
            raise Unknown
        op = BinaryOp.FLOORDIV
    return as_expr(_EXACT[op](canonical(a), canonical(b)))


def _may_be_negative(a: Dim) -> bool:
    low = limits(a)[0]
    return low is None or low < 0


_EXACT: dict[BinaryOp, Callable[[Dim, Dim], Dim]] = {
    BinaryOp.ADD: lambda a, b: canonical(as_expr(a) + b),
    BinaryOp.SUB: lambda a, b: canonical(as_expr(a) - b),
    BinaryOp.MUL: lambda a, b: canonical(as_expr(a) * b),
    BinaryOp.FLOORDIV: lambda a, b: canonical(as_expr(a) // b),
    BinaryOp.DIV: lambda a, b: canonical(as_expr(a) // b),
    BinaryOp.MOD: lambda a, b: canonical(as_expr(a) % b),
    BinaryOp.MIN: least,
    BinaryOp.MAX: greatest,
}


def _fold_compare(e: Compare, env: Env, memory: Memory) -> Expr:
    a, b = fold(e.a, env, memory), fold(e.b, env, memory)
    if isinstance(a, Const) and isinstance(b, Const):
        if a.dtype != b.dtype:
            a, b = _whole(a), _whole(b)
        return _constant(np.asarray(apply_compare(e.op, _scalar(a), _scalar(b)))[()])
    return _constant(np.bool_(decide(e.op, _symbolic(a), _symbolic(b))))


def decide(op: CompareOp, a: Dim, b: Dim) -> bool:
    """Whether a comparison of dimensions holds whatever the symbols' values are."""
    low, high = limits(canonical(as_expr(a) - b))
    if op in (CompareOp.EQ, CompareOp.NE):
        if low == high == 0:
            return op is CompareOp.EQ
        if (low is not None and low > 0) or (high is not None and high < 0):
            return op is CompareOp.NE
        raise Unknown
    if op in (CompareOp.GT, CompareOp.LE):
        return not decide(CompareOp.LE, a, b) if op is CompareOp.GT else decide(CompareOp.GE, b, a)
    if op is CompareOp.LT:
        return not decide(CompareOp.GE, a, b)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    raise Unknown


def _fold_select(e: Select, env: Env, memory: Memory) -> Expr:
    cond = fold(e.cond, env, memory)
    if not isinstance(cond, Const):
        raise Unknown
    return fold(e.a if cond.value else e.b, env, memory)


def _fold_cast(e: Cast, env: Env, memory: Memory) -> Expr:
    a = fold(e.a, env, memory)
    if isinstance(a, Const):
        return _constant(np.asarray(apply_cast(_scalar(a), e.dtype))[()])
    if not e.dtype.is_float:
        _require_integer(e.dtype)
    return a


def _fold_bitcast(e: Bitcast, env: Env, memory: Memory) -> Expr:
    a = fold(e.a, env, memory)
    if not isinstance(a, Const):
        raise Unknown
    return _constant(np.asarray(apply_bitcast(_scalar(a), e.dtype))[()])


def _fold_load(e: Load, env: Env, memory: Memory) -> Expr:
    array = memory[e.buffer]
    place = tuple(_place(i, env, memory) for i in e.indices)
    if any(not 0 <= i < n for i, n in zip(place, array.shape, strict=True)):
        raise Unknown
    found: Expr = array[place]
    return found


_FOLD: dict[type, Callable[[Any, Env, Memory], Expr]] = {
    Const: lambda e, env, memory: e,
    Var: lambda e, env, memory: env[e],
    Symbol: lambda e, env, memory: e,
    Unary: _fold_unary,
    Binary: lambda e, env, memory: _fold_binary(
        e.op, fold(e.a, env, memory), fold(e.b, env, memory)
    ),
    Compare: _fold_compare,
    Select: _fold_select,
    Cast: _fold_cast,
    Bitcast: _fold_bitcast,
    Load: _fold_load,
}
