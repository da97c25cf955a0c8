"""Values of several lanes: what vector loops are made of once `lower/vectorize.py` has decided.

    expr += Lane(count) | Masked(mask, load) | Branch(cond, a, b) | Across(op, a)
          | Shuffle(operands, places) | Lookup(entries, dtype, at)

An expression has as many lanes as the widest of its operands, and an operand of one lane has the
same value in all of them. A read or a write whose subscript has several lanes happens lane by lane,
in the order of the lanes; at `x[i + lane(8)]` it is one of eight consecutive elements. A select
evaluates both of its sides here, in all lanes.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.dtype import DType, bool_, index
from tilewright.base.identifiers import format_number, identifier
from tilewright.base.node import enter_record, known_record, node
from tilewright.ir.expr import FORMAT, Binary, BinaryOp, Expr, Load, const, format_expr


@node
class Lane(Expr):
    """The numbers of the lanes: 0, 1, … count - 1."""

    count: int
    dtype = index


@node
class Masked(Expr):
    """A read in the lanes in which `mask` holds; 0 in the others, which read nothing."""

    mask: Expr
    load: Load

    def __post_init__(self) -> None:
        self._set_type(self.load.dtype)


@node
class Branch(Expr):
    """`a` if `cond`, which has one lane, and else `b`; only the chosen side is evaluated."""

    cond: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        self._set_type(self.a.dtype)


@node
class Across(Expr):
    """All lanes of `a`, combined into one value in any order."""

    op: BinaryOp
    a: Expr

    def __post_init__(self) -> None:
        self._set_type(self.a.dtype)


@node
class Shuffle(Expr):
    """Lane i is the lane `places[i]` of the operands (one or two of equal lanes), counted through
    from the first operand's first lane."""

    operands: tuple[Expr, ...]
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        self._set_type(self.operands[0].dtype)


@node
class Lookup(Expr):
    """The entry of a table of constants at a place, an i32, counted modulo the number of entries,
    which is a power of 2. Each lane looks up its own: vectors whose registers hold the table do
    that with one instruction (VectorUnit.table)."""

    entries: tuple[float, ...]
    dtype: DType
    at: Expr

    def __new__(cls, entries: tuple[float, ...], dtype: DType, at: Expr) -> Lookup:
        key = (cls, repr(entries), dtype, at)  # -0.0 differs from 0.0
        found = known_record(key)
        return enter_record(key, cls, (entries, dtype, at)) if found is None else found


def lanes_of(e: Expr) -> int:
    """The number of lanes of an expression."""
    try:
        return e._lanes
    except AttributeError:
        found = _count_lanes(e)
        object.__setattr__(e, "_lanes", found)
        return found


def _count_lanes(e: Expr) -> int:
    if isinstance(e, Lane):
        return e.count
    if isinstance(e, Shuffle):
        return len(e.places)
    if isinstance(e, Across):
        return 1
    return max((lanes_of(c) for c in e.children() if isinstance(c, Expr)), default=1)


def some_lane(mask: Expr) -> Expr:
    """Whether a mask holds in any lane."""
    return Across(BinaryOp.OR, mask)


def one_lane(e: Expr, lane: int) -> Expr:
    """The value in one lane."""
    return e if lanes_of(e) == 1 else Shuffle((e,), (lane,))


def spread(e: Expr, count: int) -> Expr:
    """The value in `count` lanes."""
    return e if lanes_of(e) == count else Shuffle((e,), (0,) * count)


def consecutive(subscript: Expr) -> Expr | None:
    """The subscript of the first lane, where those of the others follow it one by one."""
    if isinstance(subscript, Lane):
        return const(0)
    if isinstance(subscript, Binary) and subscript.op is BinaryOp.ADD:
        first = subscript.a if isinstance(subscript.b, Lane) else None
        return first if first is not None and lanes_of(first) == 1 else None
    return None


def both(mask: Expr | None, cond: Expr) -> Expr:
    """The mask of the lanes in which both hold; no mask is one that holds everywhere."""
    assert cond.dtype == bool_
    return cond if mask is None else Binary(BinaryOp.AND, mask, cond)


def _format_shuffle(e: Shuffle) -> tuple[str, int]:
    operands = ", ".join(map(format_expr, e.operands))
    return f"shuffle([{operands}], {list(e.places)})", 9


def _format_lookup(e: Lookup) -> tuple[str, int]:
    entries = ", ".join(format_number(x, e.dtype) for x in e.entries)
    return f"lookup({e.dtype}, [{entries}], {e.at})", 9


_FORMATS: dict[type[Expr], Any] = {
    Lane: lambda e: (f"lane({e.count})", 9),
    Masked: lambda e: (f"masked({e.mask}, {e.load})", 9),
    Branch: lambda e: (f"branch({e.cond}, {e.a}, {e.b})", 9),
    Across: lambda e: (f"across({identifier(e.op.value)}, {e.a})", 9),
    Shuffle: _format_shuffle,
    Lookup: _format_lookup,
}
FORMAT |= _FORMATS
