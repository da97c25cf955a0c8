"""Operators that find indices out of range and integers divided by zero.

Which elements of an operand are such follows from the tensor expression of the operator that they
are given to, as `wrapped_index` and `BinaryOp.DIV` and its like stand there: `lookups` finds them.
`find_fault` looks for the first one, in a kernel; `guard` hands its operand on, or says in an error
what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.dtype import i64
from tilewright.base.errors import CheckError
from tilewright.ir.dims import canonical, limits
from tilewright.ir.evaluate import evaluate_expr, op_program
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Dim,
    Expr,
    Load,
    Var,
    as_expr,
    binary,
    cast,
    const,
    maximum,
    select,
)
from tilewright.ir.graph import Graph, GraphNode
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.substitute import substitute
from tilewright.ir.tensor import Axis, Builder, Item, Stage
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import require, wrapped_index
from tilewright.ops.movement import flatten_index, split_index

DIVISIONS = (BinaryOp.DIV, BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.REM)
INDEX, DIVISOR = "index", "divisor"
HEAD = 3  # numbers of a fault before the subscripts
SHOWN = 3  # sources of a fault
NOWHERE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Lookup:
    """Where an operator uses an element of its operand as an index into `extent` elements, or as a
    divisor (extent 0): of `operand` the element at `subscripts`, for all values of `axes`. It is
    used along other axes, too, and not at all where one of those has no elements: `beside` are the
    extents that can be 0."""

    kind: str
    operand: Buffer
    subscripts: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    extent: Dim
    beside: tuple[Dim, ...]

    def at(self, place: Sequence[Expr]) -> tuple[Expr, ...]:
        """The operand's subscripts for values of the axes."""
        known: dict[Expr, Expr] = dict(zip((a.var for a in self.axes), place, strict=True))
        return tuple(substitute(s, known) for s in self.subscripts)


def lookups(n: GraphNode) -> list[Lookup]:
    """All of a node's, each once."""
    if n.op.compute is None or not any(v.dtype.is_integer for v in n.inputs):
        return []
    program = op_program(n.op, n.attrs, _buffers(n))
    return list(dict.fromkeys(_in_items(program.items, ())))


def _buffers(n: GraphNode) -> list[Buffer]:
    return [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]


def _in_items(items: Sequence[Item], around: tuple[Axis, ...]) -> Iterator[Lookup]:
    for item in items:
        if isinstance(item, Stage):
            axes = (*around, *item.axes, *item.reduce)
            for root in (*item.indices, item.value):
                yield from (found for e in root.walk() for found in _lookup(e, axes))
        else:
            yield from _in_items(item.items, (*around, item.step))


def _lookup(e: object, axes: tuple[Axis, ...]) -> Iterator[Lookup]:
    """The lookup that an expression is, if it is one."""
    indexed = wrapped_index(e) if isinstance(e, Expr) else None
    if indexed is not None:
        read, extent, kind = indexed[0], indexed[1], INDEX
    elif isinstance(e, Binary) and e.op in DIVISIONS and e.dtype.is_integer:
        read, extent, kind = e.b, 0, DIVISOR
    else:
        return
    while isinstance(read, Cast):
        read = read.a
    if isinstance(read, Load):
        used = {v for i in read.indices for v in i.walk() if isinstance(v, Var)}
        own = tuple(a for a in axes if a.var in used)
        beside = [canonical(a.extent) for a in axes if a.var not in used]
        empty = tuple(dict.fromkeys(d for d in beside if (limits(d)[0] or 0) < 1))
        yield Lookup(kind, read.buffer, read.indices, own, extent, empty)


def is_right(lookup: Lookup, array: np.ndarray) -> bool:
    """Whether an operand that holds `array` has no fault, whatever the symbols are. An axis that is
    pointed along has an element at least: a call without any is refused, or looks nothing up."""
    extents = [a.extent for a in lookup.axes if isinstance(a.extent, int)]
    if len(extents) < len(lookup.axes):
        return False
    grid: dict[Expr, Any] = dict(
        zip((a.var for a in lookup.axes), np.indices(extents), strict=True)
    )
    found = array[tuple(evaluate_expr(s, grid, {}) for s in lookup.subscripts)]
    found = found.astype(np.int64)
    if lookup.kind == DIVISOR:
        return bool(np.all(found != 0))
    least = max(1, limits(canonical(lookup.extent))[0] or 0)
    return bool(np.all((found >= -least) & (found < least)))


# ---------------------------------------------------------------- find_fault


@dataclass(frozen=True, slots=True)
class FindFaultAttrs(Attrs):
    body: Graph = attr(doc="a graph of one node, whose operand is looked at")
    lookup: int = attr(0, doc="which of the node's lookups", low=0)


def _found(attrs: FindFaultAttrs) -> Lookup:
    return lookups(attrs.body.nodes[0])[attrs.lookup]


def _infer_find(attrs: FindFaultAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    found = _found(attrs)
    require(
        (types[0].dtype, types[0].shape) == (found.operand.dtype, found.operand.shape),
        f"find_fault: {types[0]} where the node takes {found.operand}",
    )
    return [TensorType(i64, (HEAD + types[0].rank,))]


def _compute_find(b: Builder, attrs: FindFaultAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """[where, value, extent, subscript, …]: where the first fault is, counted along the lookup's
    axes, or -1 and nothing of use."""
    (x,) = inputs
    found = _found(attrs)
    extents = [a.extent for a in found.axes]

    def read(i: Sequence[Expr]) -> Expr:
        return cast(i64, x[found.at(i)])

    def flat(i: Sequence[Expr]) -> Expr:
        return cast(i64, flatten_index(i, extents))

    def wrong(i: Sequence[Expr]) -> Expr:
        value = read(i)
        fault = value.equals(0)
        if found.kind == INDEX:
            fault = binary(BinaryOp.OR, value < -as_expr(found.extent), value >= found.extent)
        for extent in found.beside:
            fault = binary(BinaryOp.AND, fault, as_expr(extent) > 0)
        return fault

    nowhere, least = const(NOWHERE, i64), const(i64.min, i64)
    where = b.reduce(
        "where", (), BinaryOp.MIN, extents, lambda *i: select(wrong(i), flat(i), nowhere)
    )
    value = b.reduce(
        "value",
        (),
        BinaryOp.MAX,
        extents,
        lambda *i: select(flat(i).equals(where[()]), read(i), least),
    )
    steps = [maximum(as_expr(n), 1) for n in extents]  # nothing is found where one is 0
    numbers = [
        select(where[()].equals(nowhere), const(-1, i64), where[()]),
        value[()],
        cast(i64, as_expr(found.extent)),
        *(cast(i64, i) for i in found.at(split_index(where[()], steps))),
    ]
    return [b.compute("fault", (len(numbers),), lambda k: _choose(k, numbers))]


def _choose(k: Expr, numbers: Sequence[Expr]) -> Expr:
    value = numbers[-1]
    for i in reversed(range(len(numbers) - 1)):
        value = select(k.equals(i), numbers[i], value)
    return value


# ---------------------------------------------------------------- guard


@dataclass(frozen=True, slots=True)
class GuardAttrs(Attrs):
    node: str = attr(doc="the model's name of the node that takes the operand")
    operator: str = attr(doc="that node's operator")
    operand: str = attr(doc="the operand's name, if the model has one for it")
    kinds: tuple[str, ...] = attr(doc="of each fault: an index, or a divisor")
    sources: tuple[str, ...] = attr((), doc="what an operand without a name is computed from")


def _infer_guard(attrs: GuardAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    require(len(types) == 1 + len(attrs.kinds), f"guard: {len(types) - 1} faults")
    return [types[0].with_(layout=None)]


def _evaluate_guard(attrs: GuardAttrs, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    x, *faults = inputs
    for kind, fault in zip(attrs.kinds, faults, strict=True):
        where, value, extent, *subscripts = (int(n) for n in fault)
        if where >= 0:
            raise CheckError(_describe(attrs, kind, value, extent, subscripts), hint=_HINTS[kind])
    return [x]


def _describe(attrs: GuardAttrs, kind: str, value: int, extent: int, at: Sequence[int]) -> str:
    element = attrs.operand + (str(list(at)) if at else "")
    if not attrs.operand:
        names = ", ".join(map(repr, attrs.sources[:SHOWN])) + ", …" * (len(attrs.sources) > SHOWN)
        element = _ONE[kind] + (f" computed from {names}" if names else "")
    what = f"node {attrs.node!r} ({attrs.operator}): {element} is {value}"
    if kind == DIVISOR:
        return f"{what}, and integers cannot be divided by it"
    allowed = f"-{extent} … {extent - 1} are allowed" if extent else "no index is allowed"
    return f"{what}, and the axis that it points along has {extent} elements: {allowed}"


_ONE = {INDEX: "an index", DIVISOR: "a divisor"}
_HINTS = {
    INDEX: "without checks=True the nearest element would have been taken",
    DIVISOR: "without checks=True the result would have been computed as docs/semantics.md says",
}


OPS: tuple[Op, ...] = (
    Op(
        "find_fault",
        FindFaultAttrs,
        _infer_find,
        Category.COMPLEX,
        "where the first index out of range, or divisor of 0, is among a node's operand",
        (1, 1),
        "integers",
        _compute_find,
    ),
    Op(
        "guard",
        GuardAttrs,
        _infer_guard,
        Category.OPAQUE,
        "the first operand, unless faults were found in it: then an error",
        (2, 1 << 30),
        "any; i64 faults",
        evaluate=_evaluate_guard,
    ),
)
