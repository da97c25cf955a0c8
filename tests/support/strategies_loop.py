"""Random kernels that are well-defined: they read only what is written, subscripts are in range,
and no order of a reduction changes a result."""

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
    as_expr,
    ceil_div,
    const,
)
from tilewright.ir.loop import Accumulate, Alloc, Block, For, If, Kernel, LoopKind, Stmt, Store
from tilewright.ir.tensor import neutral

Body = Callable[[Scope], Block]


@st.composite
def kernels(
    draw: Callable[..., Any],
    *,
    dtypes: Sequence[DType] = COMMON_DTYPES,
    symbolic: bool = True,
    kinds: bool = True,
    parts: int = 3,
) -> Kernel:
    """A kernel of up to `parts` loop nests: maps, reductions, scatters, guarded tiles, local
    buffers. `symbolic` allows symbols as extents, `kinds` parallel, vector and unrolled loops.
    `arrays` and `symbol_values` of strategies.py make what to run it with."""
    return random_kernel(Draws(draw), dtypes, symbolic, kinds, parts)


def random_kernel(
    d: Draws, dtypes: Sequence[DType], symbolic: bool = True, kinds: bool = True, parts: int = 3
) -> Kernel:
    """The same, from any draws."""
    return _Maker(d, dtypes, symbolic, kinds).kernel(parts)


class _Maker:
    def __init__(self, d: Draws, dtypes: Sequence[DType], symbolic: bool, kinds: bool) -> None:
        self.d, self.dtypes, self.kinds = d, dtypes, kinds
        self.symbols = (Symbol("n", 1, SYMBOL_MAX), Symbol("m")) if symbolic else ()
        self.names = 0
        self.scope = Scope(d, dtypes)

    def kernel(self, parts: int) -> Kernel:
        inputs = tuple(self.buffer("x") for _ in self.d.times(3))
        self.scope.buffers = dict.fromkeys(inputs, INPUT_BOUND)
        body: list[Stmt] = []
        made: list[Buffer] = []
        for _ in self.d.times(parts):
            buffer = self.buffer("y")
            body += self.d.pick(_FORMS)(self, buffer)
            made.append(buffer)
        last = self.d.int(0, len(made) - 1)  # this one is an output for certain
        outputs = [b for i, b in enumerate(made) if i == last or self.d.chance(2)]
        allocs = tuple(Alloc(b) for b in made if b not in outputs)
        return Kernel("random", inputs, tuple(outputs), (*allocs, *body))

    # ---------------------------------------------------------- parts

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def dim(self) -> Dim:
        choice = self.d.int(0, 9)
        if choice < 6 or not self.symbols:
            return 1 + choice % 5
        symbol = self.d.pick(self.symbols)
        if choice < 9:
            return symbol
        return self.d.pick((as_dim(symbol + 1), as_dim(symbol * 2)))

    def buffer(self, stem: str, dtype: DType | None = None) -> Buffer:
        shape = tuple(self.dim() for _ in range(self.d.int(0, 2)))
        return Buffer(self.fresh(stem), dtype or self.d.pick(self.dtypes), shape)

    def value(self, scope: Scope, dtype: DType, limit: int | None = None) -> tuple[Expr, int]:
        if self.d.chance(6) and limit is None:
            guarded = scope.guarded(dtype)
            if guarded is not None:
                return guarded, INPUT_BOUND if not dtype.is_float else exact_limit(dtype)
        return scope.value(dtype, self.d.int(0, 2), limit)

    def place(self, buffer: Buffer, variables: Sequence[Expr]) -> tuple[Expr, ...]:
        """Each variable as a subscript, counting up or down."""
        return tuple(
            as_expr(n) - 1 - v if self.d.chance(5) else v
            for v, n in zip(variables, buffer.shape, strict=True)
        )

    def nest(self, extents: Sequence[Dim], body: Callable[[Scope, list[Var]], Block]) -> Block:
        """Loops of these extents, in any order, whose iterations are independent."""
        variables = [Var(self.fresh("i")) for _ in extents]
        scope = self.scope.inside(dict(zip(variables, extents, strict=True)))
        block = body(scope, variables)
        order = list(range(len(extents)))
        if len(order) > 1 and self.d.chance(3):
            order.reverse()
        plain = self.kinds and not any(isinstance(s, Alloc) for s in block)
        for depth, which in enumerate(order):
            kind = self.kind(extents[which], depth == 0 and plain, depth == len(order) - 1)
            block = (For(variables[which], extents[which], block, kind),)
        return block

    def kind(self, extent: Dim, innermost: bool, outermost: bool) -> LoopKind:
        options = [LoopKind.SERIAL] * 3
        if self.kinds and isinstance(extent, int):
            options.append(LoopKind.UNROLL)
        if innermost and isinstance(extent, int):
            options.append(LoopKind.VECTORIZE)
        if self.kinds and outermost:
            options.append(LoopKind.PARALLEL)
        return self.d.pick(options)

    def combiner(self, dtype: DType, count: int) -> tuple[BinaryOp, int | None]:
        """An operator for `count` values, and the bound that keeps their combination exact."""
        ops = list(_COMBINERS if dtype.is_float or dtype == bool_ else _INTEGER_COMBINERS)
        op = self.d.pick(ops)
        if not dtype.is_float or op in (BinaryOp.MIN, BinaryOp.MAX):
            return op, None
        limit = exact_limit(dtype)
        if op is BinaryOp.ADD and limit // (count + 1) >= 1:
            return op, limit // (count + 1)
        fits = op is BinaryOp.MUL and 2**count <= limit
        return (op, 2) if fits else (BinaryOp.MAX, None)

    def done(self, buffer: Buffer, limit: int | None = None) -> None:
        """The buffer is written: it may be read, and holds nothing larger than is exact."""
        self.scope.buffers[buffer] = limit or (exact_limit(buffer.dtype) if _float(buffer) else 0)


def _float(buffer: Buffer) -> bool:
    return buffer.dtype.is_float


# ---------------------------------------------------------------- forms of a loop nest


def _map(m: _Maker, buffer: Buffer) -> Block:
    """for i: y[i] = value"""
    bound = 0

    def body(scope: Scope, variables: list[Var]) -> Block:
        nonlocal bound
        value, bound = m.value(scope, buffer.dtype)
        return (Store(buffer, m.place(buffer, variables), value, nontemporal=m.d.chance(4)),)

    block = m.nest(buffer.shape, body)
    m.done(buffer, bound)
    return block


def _branches(m: _Maker, buffer: Buffer) -> Block:
    """for i: if c: y[i] = value else: y[i] = value"""

    def body(scope: Scope, variables: list[Var]) -> Block:
        place = m.place(buffer, variables)
        cond = scope.condition(m.d.int(0, 2))
        yes, no = m.value(scope, buffer.dtype)[0], m.value(scope, buffer.dtype)[0]
        return (If(cond, (Store(buffer, place, yes),), (Store(buffer, place, no),)),)

    block = m.nest(buffer.shape, body)
    m.done(buffer)
    return block


def _reduce(m: _Maker, buffer: Buffer) -> Block:
    """for i: y[i] = init; for k: y[i] op= value"""
    over = [m.dim() for _ in range(m.d.int(1, 2))]
    count = 1
    for extent in over:
        count *= largest(extent)
    op, limit = m.combiner(buffer.dtype, count)

    def body(scope: Scope, variables: list[Var]) -> Block:
        place = m.place(buffer, variables)
        inner = [Var(m.fresh("k")) for _ in over]
        deep = scope.inside(dict(zip(inner, over, strict=True)))
        value = m.value(deep, buffer.dtype, limit or exact_limit(buffer.dtype))[0]
        block: Block = (Accumulate(buffer, place, op, value),)
        if m.d.chance(5):
            block = (If(deep.condition(1), block),)
        for var, extent in zip(inner, over, strict=True):
            unrolled = m.kinds and isinstance(extent, int) and m.d.chance(4)
            kind = LoopKind.UNROLL if unrolled else LoopKind.SERIAL
            block = (For(var, extent, block, kind),)
        return (Store(buffer, place, _start(m, op, buffer.dtype)), *block)

    block = m.nest(buffer.shape, body)
    m.done(buffer)
    return block


def _start(m: _Maker, op: BinaryOp, dtype: DType) -> Expr:
    """What a reduction starts from: the neutral element where it is an integer, or another."""
    plain = const(0 if op is BinaryOp.ADD else 1, dtype)
    extreme = dtype.is_float and op in (BinaryOp.MIN, BinaryOp.MAX)
    return plain if extreme or m.d.chance(3) else neutral(op, dtype)


def _scatter(m: _Maker, buffer: Buffer) -> Block:
    """for i: y[i] = init; for k: y[any place] op= value"""
    count = m.d.int(1, 6)
    op, limit = m.combiner(buffer.dtype, count)
    start = _start(m, op, buffer.dtype)
    first = m.nest(buffer.shape, lambda scope, at: (Store(buffer, tuple(at), start),))
    k = Var(m.fresh("k"))
    scope = m.scope.inside({k: count})
    place = tuple(scope.subscript(n) for n in buffer.shape)
    value = m.value(scope, buffer.dtype, limit or exact_limit(buffer.dtype))[0]
    m.done(buffer)
    return (*first, For(k, count, (Accumulate(buffer, place, op, value),)))


def _tiles(m: _Maker, buffer: Buffer) -> Block:
    """for o in ceil(n/f): for i in f: if o*f + i < n: y[o*f + i] = value"""
    if not buffer.shape:
        return _map(m, buffer)
    factor, n = m.d.int(1, 3), buffer.shape[0]
    outer, inner = Var(m.fresh("o")), Var(m.fresh("i"))
    rest = [Var(m.fresh("i")) for _ in buffer.shape[1:]]
    row = outer * factor + inner
    loops = {outer: ceil_div(n, factor), inner: factor}
    loops |= dict(zip(rest, buffer.shape[1:], strict=True))
    value, bound = m.value(m.scope.inside(loops), buffer.dtype)
    block: Block = (Store(buffer, (row, *rest), value),)
    guard: Expr = row < as_expr(n)
    block = (If(guard, block),)
    for var, extent in reversed(loops.items()):
        block = (For(var, extent, block),)
    m.done(buffer, bound)
    return block


def _local(m: _Maker, buffer: Buffer) -> Block:
    """for i: t = alloc; for j: t[j] = value; for j: y[i, j] = value of t"""
    if len(buffer.shape) < 2:
        return _map(m, buffer)
    i, j, k = (Var(m.fresh(v)) for v in "ijk")
    rows, columns = buffer.shape
    local = Buffer(m.fresh("t"), m.d.pick(m.dtypes), (m.dim(),), m.d.pick(("dram", "sram")))
    outer = m.scope.inside({i: rows})
    value, bound = m.value(outer.inside({j: local.shape[0]}), local.dtype)
    fill = For(j, local.shape[0], (Store(local, (j,), value),))
    inner = outer.inside({k: columns})
    inner.buffers = {local: bound, **inner.buffers}
    result, limit = m.value(inner, buffer.dtype)
    use = For(k, columns, (Store(buffer, (i, k), result),))
    m.done(buffer, limit)
    kind = LoopKind.PARALLEL if m.kinds and m.d.chance(4) else LoopKind.SERIAL
    return (For(i, rows, (Alloc(local), fill, use), kind),)


_FORMS: tuple[Callable[[_Maker, Buffer], Block], ...] = (
    _map,
    _reduce,
    _branches,
    _scatter,
    _tiles,
    _local,
)
_COMBINERS = (BinaryOp.ADD, BinaryOp.MAX, BinaryOp.MUL, BinaryOp.MIN)
_INTEGER_COMBINERS = (*_COMBINERS, BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)
