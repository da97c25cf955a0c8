"""Looking at loop nests: their loops, what they compute, how they step through memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.linear import step_along
from tilewright.analyze.simplify import Simplifier
from tilewright.base.node import Node
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    product,
)
from tilewright.ir.loop import Accumulate, Block, Call, For, Stmt, Store, Write, walk_statements
from tilewright.ir.substitute import variables


@dataclass(frozen=True)
class Nest:
    """A statement of a block that computes a buffer: its loops, and its writes in order.

    `axes` are the loops of the subscripts of the result, outermost first (loops of one iteration
    that no subscript shows stand among them); `reduce` the others.
    """

    stmt: Stmt
    buffer: Buffer
    writes: tuple[Write, ...]
    axes: tuple[For, ...]
    reduce: tuple[For, ...]

    @property
    def update(self) -> Accumulate | None:
        """The accumulation, if the nest is a reduction."""
        last = self.writes[-1]
        return last if isinstance(last, Accumulate) else None

    @property
    def store(self) -> Write:
        return self.writes[0]


def nest_of(stmt: Stmt) -> Nest | None:
    """What a statement computes; None unless it writes exactly one buffer, without calls."""
    inner = list(walk_statements((stmt,)))
    if any(isinstance(s, Call) for s in inner):
        return None
    writes = tuple(s for s in inner if isinstance(s, (Store, Accumulate)))
    if not writes or len({w.buffer for w in writes}) != 1:
        return None
    used = set().union(*(variables(i) for i in writes[0].indices)) if writes[0].indices else set()
    loops = [s for s in inner if isinstance(s, For)]
    summed = set().union(*(variables(w.value) for w in writes if isinstance(w, Accumulate)))
    axes = tuple(s for s in loops if s.var in used or (s.extent == 1 and s.var not in summed))
    reduce = tuple(s for s in loops if s not in axes)
    return Nest(stmt, writes[0].buffer, writes, axes, reduce)


def nests(block: Block) -> list[Nest]:
    """The nests of a block, in order."""
    found = (nest_of(s) for s in block)
    return [n for n in found if n is not None]


def stride(buffer: Buffer, indices: tuple[Expr, ...], var: Var, s: Simplifier) -> int | None:
    """How many elements the access moves when `var` goes up by one; None if that is not fixed."""
    return step_along(s.position(indices, buffer.shape), var)


def accesses_of(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Every place that a store or accumulation touches: reads (those in subscripts too), then
    the write."""
    if isinstance(stmt, (Store, Accumulate)):
        for e in (*stmt.indices, stmt.value):
            for x in e.walk():
                if isinstance(x, Load):
                    yield x.buffer, x.indices
        yield stmt.buffer, stmt.indices


def factors(e: Expr) -> tuple[Load, Load] | None:
    """The two reads of a product (conversions set aside); None for anything else."""
    if not isinstance(e, Binary) or e.op is not BinaryOp.MUL:
        return None
    a, b = without_casts(e.a), without_casts(e.b)
    return (a, b) if isinstance(a, Load) and isinstance(b, Load) else None


def decoded_factors(e: Expr) -> tuple[Load, Load] | None:
    """Likewise, where one may be decoded: an expression of the read of a large buffer, and of
    others (scales, zero points) that vary with the same loops."""
    if not isinstance(e, Binary) or e.op is not BinaryOp.MUL:
        return None
    a, b = _main_read(e.a), _main_read(e.b)
    plain = any(isinstance(without_casts(x), Load) for x in (e.a, e.b))
    return (a, b) if plain and a is not None and b is not None else None


def _main_read(e: Expr) -> Load | None:
    """The read that an expression is mostly of: the first of the largest buffer."""
    reads = [x for x in e.walk() if isinstance(x, Load)]
    sizes = [n for x in reads if isinstance(n := product(x.buffer.shape), int)]
    if not reads or (len(reads) > 1 and len(sizes) < len(reads)):
        return None
    main = reads[sizes.index(max(sizes))] if len(reads) > 1 else reads[0]
    return main if variables(e) <= variables(main) and is_cheap(e) else None


def guarded_factors(e: Expr) -> tuple[Load, Load] | None:
    """Likewise, where a read may be guarded: 0 outside of a buffer."""
    if not isinstance(e, Binary) or e.op is not BinaryOp.MUL:
        return None
    a, b = _without_guard(e.a), _without_guard(e.b)
    return (a, b) if isinstance(a, Load) and isinstance(b, Load) else None


def without_casts(e: Expr) -> Expr:
    """What an expression converts."""
    while isinstance(e, Cast):
        e = e.a
    return e


def _without_guard(e: Expr) -> Expr:
    e = without_casts(e)
    if isinstance(e, Select) and isinstance(e.b, Const) and e.b.value == 0:
        return without_casts(e.a)
    return e


_CHEAP_UNARY = frozenset(
    {UnaryOp.NEG, UnaryOp.ABS, UnaryOp.NOT, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND}
)
_DEAR_BINARY = frozenset(
    {BinaryOp.DIV, BinaryOp.MOD, BinaryOp.REM, BinaryOp.POW, BinaryOp.ATAN2, BinaryOp.FLOORDIV}
)


def is_cheap(e: Expr) -> bool:
    """Whether computing an expression again costs about as little as reading its result."""
    return all(is_cheap_operator(x) for x in e.walk())


def is_cheap_operator(x: Node) -> bool:
    """Whether an expression's outermost operator takes an instruction or two."""
    if isinstance(x, Unary):
        return x.op in _CHEAP_UNARY
    return not (isinstance(x, Binary) and x.op in _DEAR_BINARY and x.dtype.is_float)
