"""Vector loops become operations on vectors, and subscripts positions in flat buffers.

The last pass before code: what it leaves is spelled as it stands, in LLVM's IR or in C. Of a vector
loop

    for j in vectorize(8):
        if i * 8 + j < n:
            y[i * 8 + j] = x[i * 8 + j] + b[i]

the body stays, with explicit lanes (ir/lanes.py): conditions become masks,

    masked(i * 8 + lane(8) < n, y[i * 8 + lane(8)], masked(…, x[i * 8 + lane(8)]) + b[i])

writes to one element become reductions across the lanes, and lanes that may meet at an element take
turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.analyze.linear import Linear
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import CompileError
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    as_dim,
    as_expr,
)
from tilewright.ir.instruction import Region
from tilewright.ir.lanes import (
    Across,
    Lane,
    Masked,
    Shuffle,
    both,
    lanes_of,
    one_lane,
    some_lane,
    spread,
)
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    Call,
    For,
    If,
    Kernel,
    LoopKind,
    Pieces,
    Prefetch,
    Stmt,
    Store,
    buffers_written,
    walk_statements,
)
from tilewright.ir.tensor import neutral
from tilewright.lower.lane_values import LaneValues
from tilewright.lower.positions import divides, flat, flat_kernel
from tilewright.lower.squares import columns
from tilewright.target.target import Target

LEAST = 16  # bytes: the shortest vector register


def vectorize(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with explicit lanes and flat buffers."""
    loops = (s for s in walk_statements(kernel.body) if isinstance(s, For))
    vectorizer = _Vectorizer(Simplifier({s.var: s.extent for s in loops}), target)
    return flat_kernel(kernel).with_(body=vectorizer.block(kernel.body, None))


class _Vectorizer:
    """Rewrites statements; `mask` is of the lanes that run, None where all do."""

    def __init__(self, simplifier: Simplifier, target: Target) -> None:
        self.values = LaneValues(simplifier)
        self.target = target
        self.line = max(m.line for m in target.memories)  # of the caches
        self.level = 0  # of the loops around
        self.held = 0  # buffers of what is computed once for several statements

    def block(self, block: Block, mask: Expr | None) -> Block:
        return tuple(new for s in block for new in _STATEMENTS[type(s)](self, s, mask))

    # ---------------------------------------------------------- loops and conditions

    def loop(self, s: For, mask: Expr | None) -> Block:
        extent = self.extent(s.extent)
        self.level += 1
        self.values.positions.depth[s.var] = self.level
        if s.kind is LoopKind.VECTORIZE and isinstance(extent, int) and extent > 1:
            if self.values.lane is not None:
                raise CompileError(f"vector loop {s.var} stands in another one", program=s)
            body = self.lanes(s, extent)
        else:
            parallel = s.kind is LoopKind.PARALLEL and self.target.cores > 1
            kind = Pieces(self.target.tasks) if parallel else LoopKind.SERIAL
            body = (For(s.var, extent, self.block(s.body, mask), kind),)
        self.level -= 1
        return body

    def lanes(self, s: For, count: int) -> Block:
        """The body of a vector loop, in its lanes."""
        self.values.enter(s.var, count)
        self.values.columns = columns(self.values, s.body, self.target.vectors.bytes)
        body = self.block(s.body, None)
        self.values.enter(None, 1)
        return body

    def extent(self, extent: Dim) -> Dim:
        whole = as_expr(extent)
        self.values.begin(None, whole)
        found = self.values(whole, None)
        if lanes_of(found) > 1:
            raise CompileError(f"{extent} differs from lane to lane")
        return as_dim(found)

    def condition(self, s: If, mask: Expr | None) -> Block:
        self.values.begin(mask, s.cond)
        cond = self.values(s.cond, mask)
        if lanes_of(cond) == 1:
            return (If(cond, self.block(s.body, mask), self.block(s.orelse, mask)),)
        before: Block = ()
        if _reads(cond, buffers_written((*s.body, *s.orelse))):  # asked once, before they are
            before, cond = self.hold(cond)
        other = both(mask, Unary(UnaryOp.NOT, cond))
        return (*before, *self.block(s.body, both(mask, cond)), *self.block(s.orelse, other))

    def hold(self, value: Expr) -> tuple[Block, Expr]:
        """Statements that compute a value once, and what it is called behind them."""
        count = lanes_of(value)
        place = Lane(count) if count > 1 else as_expr(0)
        buffer = Buffer(f"held.{self.held}", value.dtype, (count,))
        self.held += 1
        return (Alloc(buffer), Store(buffer, (place,), value)), Load(buffer, (place,))

    # ---------------------------------------------------------- writes

    def store(self, s: Store, mask: Expr | None) -> Block:
        values = self.values
        values.begin(mask, *s.indices, s.value)
        runs = self.runs_of(s) if mask is None else None
        if runs is not None:
            return self.store_runs(s, *runs)
        place = values.place(s.buffer, s.indices, mask)
        value = values(s.value, mask)
        if lanes_of(place) == 1 and mask is None:
            value = one_lane(value, lanes_of(value) - 1)  # the last stays
        past = s.nontemporal and mask is None and self.is_aligned(s)
        return (Store(flat(s.buffer), (place,), value, past, mask),)

    def runs_of(self, s: Store) -> tuple[int, list[Linear]] | None:
        """The runs of lanes that a store has consecutive elements for, if not for all of them."""
        step, _ = self.values.split(self.values.positions.of(s.buffer, s.indices))
        return None if step is not None else self.values.runs(s.buffer, s.indices)

    def store_runs(self, s: Store, size: int, begin: list[Linear]) -> Block:
        """A store for each run of lanes that have consecutive elements."""
        before: Block = ()
        value = spread(self.values(s.value, None), self.values.count)
        if _reads(value, {s.buffer}):
            before, value = self.hold(value)
        places = [Binary(BinaryOp.ADD, self.values.address(at), Lane(size)) for at in begin]
        parts = [
            Store(flat(s.buffer), (at,), Shuffle((value,), tuple(range(k, k + size))))
            for k, at in zip(range(0, self.values.count, size), places, strict=True)
        ]
        return (*before, *parts)

    def is_aligned(self, s: Store) -> bool:
        """Whether lanes store to an aligned part of a line, if their buffer begins at one."""
        step, rest = self.values.split(self.values.positions.of(s.buffer, s.indices))
        if step != 1 or self.values.lane is None:
            return False
        return alignment(s.buffer, rest, self.values.count, self.line) is not None

    def accumulate(self, s: Accumulate, mask: Expr | None) -> Block:
        values, buffer = self.values, flat(s.buffer)
        step, _ = values.split(values.positions.of(s.buffer, s.indices))
        values.begin(mask, *s.indices, s.value)
        value = values(s.value, mask)
        if values.lane is not None and step is None:
            return self.take_turns(s, value, mask)
        place = (values.place(s.buffer, s.indices, mask),)
        if values.lane is not None and step == 0:
            add = Accumulate(buffer, place, s.op, self.combined(s, value, mask))
            there = mask is None or values.in_bounds(Load(s.buffer, s.indices))
            return (add,) if mask is None or there else (If(some_lane(mask), (add,)),)
        if mask is None:
            return (Accumulate(buffer, place, s.op, value),)
        old = Masked(mask, Load(buffer, place))
        return (Store(buffer, place, Binary(s.op, old, value), mask=mask),)

    def combined(self, s: Accumulate, value: Expr, mask: Expr | None) -> Expr:
        """The lanes' contributions to one element, as one value."""
        if mask is not None:
            value = Select(mask, value, neutral(s.op, value.dtype))
        return Across(s.op, spread(value, self.values.count))

    def take_turns(self, s: Accumulate, value: Expr, mask: Expr | None) -> Block:
        """Lanes that may meet at one element: one after the other."""
        place = self.values.place(s.buffer, s.indices, mask)
        before, held = self.hold(value)
        more, at = self.hold(place)
        turns: list[Stmt] = [*before, *more]
        if mask is not None:
            more, mask = self.hold(mask)
            turns += more
        for lane in range(self.values.count):
            one, here = one_lane(held, lane), (one_lane(at, lane),)
            turn: Stmt = Accumulate(flat(s.buffer), here, s.op, one)
            turns.append(turn if mask is None else If(one_lane(mask, lane), (turn,)))
        return tuple(turns)

    # ---------------------------------------------------------- other statements

    def prefetch(self, s: Prefetch, mask: Expr | None) -> Block:
        """Lanes fetch together what they read: nothing is done for one of them."""
        if self.values.lane is not None:
            return ()
        self.values.begin(None, *s.indices)
        place = self.values.place(s.buffer, s.indices, None)
        return (s.with_(buffer=flat(s.buffer), indices=(place,)),)

    def call(self, s: Call, mask: Expr | None) -> Block:
        if self.values.lane is not None:
            raise CompileError(f"{s.instruction.name} stands in a vector loop", program=s)
        self.values.begin(None, *(i for r in s.regions for i in r.indices), *s.fields)
        regions = tuple(
            Region(flat(r.buffer), (self.values.place(r.buffer, r.indices, None),))
            for r in s.regions
        )
        return (Call(s.instruction, regions, tuple(self.values(f, None) for f in s.fields)),)


def alignment(buffer: Buffer, at: Linear, lanes: int, line: int) -> int | None:
    """Of a vector at a position of a buffer that begins at a cache line; None if it may lie across
    the parts in which it would be stored."""
    size = lanes * buffer.dtype.bytes
    align = min(line, size & -size)
    return align if align >= LEAST and divides(align // buffer.dtype.bytes, at) else None


def _reads(e: Expr, buffers: set[Buffer]) -> bool:
    """Whether an expression with flat buffers reads any of these."""
    names = {b.name for b in buffers}
    return any(isinstance(x, Load) and x.buffer.name in names for x in e.walk())


_STATEMENTS: dict[type[Stmt], Callable[[_Vectorizer, Any, Expr | None], Block]] = {
    For: _Vectorizer.loop,
    If: _Vectorizer.condition,
    Alloc: lambda v, s, mask: (Alloc(flat(s.buffer)),),
    Store: _Vectorizer.store,
    Accumulate: _Vectorizer.accumulate,
    Prefetch: _Vectorizer.prefetch,
    Call: _Vectorizer.call,
}
