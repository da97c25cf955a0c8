"""Random tensor programs that are well-defined: maps, reductions, recurrences, scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from strategies_expr import (
    COMMON_DTYPES,
    INPUT_BOUND,
    SYMBOL_MAX,
    Draws,
    Scope,
    exact_limit,
    largest,
)

from tilewright.base.dtype import DType, bool_
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Symbol,
    Var,
    as_dim,
    binary,
    const,
    select,
)
from tilewright.ir.tensor import Builder, TensorProgram


@st.composite
def tensor_programs(
    draw: Callable[..., Any],
    *,
    dtypes: Sequence[DType] = COMMON_DTYPES,
    symbolic: bool = True,
    parts: int = 3,
) -> TensorProgram:
    """A program of up to `parts` stages and scans over inputs of `dtypes`."""
    return random_tensor_program(Draws(draw), dtypes, symbolic, parts)


def random_tensor_program(
    d: Draws, dtypes: Sequence[DType], symbolic: bool = True, parts: int = 3
) -> TensorProgram:
    """The same, from any draws."""
    return _Maker(d, dtypes, symbolic).program(parts)


class _Maker:
    def __init__(self, d: Draws, dtypes: Sequence[DType], symbolic: bool) -> None:
        self.d, self.dtypes = d, dtypes
        self.symbols = (Symbol("n", 1, SYMBOL_MAX), Symbol("m")) if symbolic else ()
        self.scope = Scope(d, dtypes)
        self.b = Builder({"n", "m"})

    def program(self, parts: int) -> TensorProgram:
        inputs = tuple(
            Buffer(self.b.fresh("x"), self.dtype(), self.shape(2)) for _ in self.d.times(3)
        )
        self.scope.buffers = dict.fromkeys(inputs, INPUT_BOUND)
        made: list[Buffer] = []
        for _ in self.d.times(parts):
            made += self.d.pick(_FORMS)(self)
        last = self.d.int(0, len(made) - 1)  # this one is an output for certain
        outputs = tuple(b for i, b in enumerate(made) if i == last or self.d.chance(2))
        return TensorProgram("random", inputs, self.b.items, outputs)

    # ---------------------------------------------------------- parts

    def dtype(self) -> DType:
        return self.d.pick(self.dtypes)

    def dim(self) -> Dim:
        choice = self.d.int(0, 9)
        if choice < 6 or not self.symbols:
            return 1 + choice % 5
        symbol = self.d.pick(self.symbols)
        return symbol if choice < 9 else as_dim(symbol + 1)

    def shape(self, most: int) -> tuple[Dim, ...]:
        return tuple(self.dim() for _ in range(self.d.int(0, most)))

    def value(
        self, variables: Sequence[Expr], extents: Sequence[Dim], dtype: DType, limit: int
    ) -> Expr:
        """A value of these variables; floats bounded by `limit`."""
        loops = {v: e for v, e in zip(variables, extents, strict=True) if isinstance(v, Var)}
        scope = self.scope.inside(loops)
        if self.d.chance(6) and not dtype.is_float:
            guarded = scope.guarded(dtype)
            if guarded is not None:
                return guarded
        return scope.value(dtype, self.d.int(0, 2), limit)[0]

    def done(self, buffer: Buffer) -> list[Buffer]:
        bound = exact_limit(buffer.dtype) if buffer.dtype.is_float else 0
        self.scope.buffers = {**self.scope.buffers, buffer: bound}
        return [buffer]


def _map(m: _Maker) -> list[Buffer]:
    dtype, shape = m.dtype(), m.shape(3)
    limit = exact_limit(dtype) if dtype.is_float else 0
    return m.done(m.b.compute("map", shape, lambda *i: m.value(i, shape, dtype, limit)))


def _reduce(m: _Maker) -> list[Buffer]:
    dtype, shape = m.dtype(), m.shape(2)
    over = tuple(m.dim() for _ in range(m.d.int(1, 2)))
    if m.d.chance(12):
        over = (0, *over[1:])  # nothing to combine: the first value is the result
    count = 1
    for extent in over:
        count *= largest(extent)
    op, limit = _combiner(m, dtype, count)
    first = m.d.pick((None, const(1, dtype)))
    made = m.b.reduce(
        "reduce",
        shape,
        op,
        over,
        lambda *i: m.value(i, (*shape, *over), dtype, limit),
        init=const(0, dtype) if first is None and _is_extreme(op, dtype) else first,
    )
    return m.done(made)


def _is_extreme(op: BinaryOp, dtype: DType) -> bool:
    """Whether the neutral element is no small integer."""
    return dtype.is_float and op in (BinaryOp.MIN, BinaryOp.MAX)


def _combiner(m: _Maker, dtype: DType, count: int) -> tuple[BinaryOp, int]:
    """An operator for `count` values, and the bound that keeps their combination exact."""
    if not dtype.is_float:
        return m.d.pick(_BOOL if dtype == bool_ else _INTEGER), 0
    op, limit = m.d.pick(_FLOAT), exact_limit(dtype)
    if op is BinaryOp.ADD and limit // (count + 1) >= 1:
        return op, limit // (count + 1)
    return (op, 2) if op is BinaryOp.MUL and 2**count <= limit else (BinaryOp.MAX, limit)


def _running(m: _Maker) -> list[Buffer]:
    """s[i] = s[i] op x[t, i]; y[t, i] = s[i]"""
    dtype, shape, steps = m.dtype(), m.shape(1), m.dim()
    op, limit = _combiner(m, dtype, largest(steps))
    state = m.b.state("state", shape, dtype)
    out = m.b.state("out", (steps, *shape), dtype)

    def body(t: Expr) -> None:
        def value(*i: Expr) -> Expr:
            new = m.value((t, *i), (steps, *shape), dtype, limit)
            return select(t.equals(0), new, binary(op, state[i], new))

        m.b.compute("step", shape, value, into=(state, lambda *i: i))
        m.b.compute("keep", shape, lambda *i: state[i], into=(out, lambda *i: (t, *i)))

    m.b.scan(steps, body)
    return m.done(out)


def _history(m: _Maker) -> list[Buffer]:
    """y[t, i] = op(y[t - 1, i'], x[t, i])"""
    dtype, width, steps = m.dtype(), m.dim(), m.dim()
    op, limit = _combiner(m, dtype, largest(steps))
    out = m.b.state("out", (steps, width), dtype)

    def body(t: Expr) -> None:
        def value(i: Expr) -> Expr:
            new = m.value((t, i), (steps, width), dtype, limit)
            before = m.scope.inside({i: width}).subscript(width, 0)
            return select(t > 0, binary(op, out[t - 1, before], new), new)

        m.b.compute("step", (width,), value, into=(out, lambda i: (t, i)))

    m.b.scan(steps, body)
    return m.done(out)


def _scatter(m: _Maker) -> list[Buffer]:
    """y[i] = first; then for each step y[any place] = op(y[that place], x[t])"""
    dtype, width, steps = m.dtype(), m.dim(), m.d.int(1, 4)
    op, limit = _combiner(m, dtype, steps)
    out = m.b.state("out", (width,), dtype)

    def update(t: Expr) -> None:
        at = m.scope.inside({t: steps}).subscript(width)
        new = m.value((t,), (steps,), dtype, limit)
        m.b.compute("update", (), lambda: binary(op, out[at], new), into=(out, lambda: (at,)))

    def body(_: Expr) -> None:
        m.b.compute("first", (width,), lambda i: const(1, dtype), into=(out, lambda i: (i,)))
        m.b.scan(steps, update)

    m.b.scan(1, body, name="once")
    return m.done(out)


_FORMS: tuple[Callable[[_Maker], list[Buffer]], ...] = (_map, _reduce, _running, _history, _scatter)
_FLOAT = (BinaryOp.ADD, BinaryOp.MAX, BinaryOp.MUL, BinaryOp.MIN)
_INTEGER = (*_FLOAT, BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)
_BOOL = (BinaryOp.OR, BinaryOp.AND, BinaryOp.XOR, BinaryOp.MIN, BinaryOp.MAX)
