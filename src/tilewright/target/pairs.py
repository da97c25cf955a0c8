"""Pairs of instructions of which one begins sums and the other adds to them, each as one
instruction with a flag, which planners take like any other:

    multiply:      c[m, n] = 0; for k in 8: c[m, n] += a[m, k] * b[k, n]
    multiply_add:               for k in 8: c[m, n] += a[m, k] * b[k, n]
->  multiply_or_multiply_add:
        if adds == 0: c[m, n] = 0
        for k in 8: c[m, n] += a[m, k] * b[k, n]

A stream has the one or the other, as the flag says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from tilewright.base.node import Node, field_names
from tilewright.ir.expr import BinaryOp, Buffer, CompareOp, Const, Expr, Symbol, Var, compare, const
from tilewright.ir.instruction import COST_TERMS, Field, Instruction
from tilewright.ir.loop import (
    Accumulate,
    Block,
    For,
    If,
    Stmt,
    Store,
    loads,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute
from tilewright.target.target import Target

FLAG = "adds"  # 0: the pair begins sums


def selectable(target: Target) -> tuple[Instruction, ...]:
    """What calls in a schedule may be of: a chip's instructions, and pairs of those in queues."""
    queued = {q.name for q in target.queues}
    return *target.instructions, *_pairs(tuple(i for i in target.instructions if i.queue in queued))


@lru_cache(maxsize=64)
def _pairs(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """The pairs among instructions: two of one queue that are alike but for their names, their
    time, and what one of them begins with."""
    return tuple(_find_pairs(instructions))


def _find_pairs(instructions: tuple[Instruction, ...]) -> Iterator[Instruction]:
    names = {i.name for i in instructions}
    plain = [i for i in instructions if i.micro_ops is None and i.black_box is None]
    for begin in plain:
        flag = Symbol(_unused(FLAG, {f.name for f in begin.fields}), 0, 1)
        parts = _parts(begin.body)
        if parts is None:
            continue
        first, zero, rest = parts
        wanted = _structure(begin, _replaced(begin.body, first, rest))
        under_flag = If(compare(CompareOp.EQ, flag, 0), (zero,))
        body = _replaced(begin.body, first, (under_flag, *rest))
        for other in plain:
            if other.queue == begin.queue and _structure(other, other.body) == wanted:
                name = _unused(f"{begin.name}_or_{other.name}", names)
                yield _pair(name, begin, other, body, flag)


def _pair(
    name: str, begin: Instruction, other: Instruction, body: Block, flag: Symbol
) -> Instruction:
    """Its time is that of the instruction that adds: of a long sum, that is most of it."""
    mine, others = ([f.symbol for f in i.fields] for i in (begin, other))
    names = dict(zip(others, mine, strict=True))

    def renamed(term: Any) -> Any:
        return substitute(term, names) if isinstance(term, Expr) else term

    cost = other.cost.map_terms(renamed, *COST_TERMS)
    return begin.with_(
        name=name, fields=(*begin.fields, Field(flag, 0, 1)),
        body=body, cost=cost, file="", lines=(), pair=(begin, other),
    )  # fmt: skip


def _unused(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _parts(body: Block) -> tuple[Store, Store, Block] | None:
    """The statement of a meaning that begins sums with a number, the same without what it adds to
    them at once, and that; None where it begins none. An integer that a single product is stored to
    is begun with 0."""
    written = [s for s in walk_statements(body) if isinstance(s, (Store, Accumulate))]
    first = next(iter(written), None)
    if not isinstance(first, Store) or any(x.buffer == first.buffer for x in loads(first.value)):
        return None
    others = written[1:]
    if len(others) == 1 and isinstance(first.value, Const):
        (update,) = others
        added = isinstance(update, Accumulate) and update.op is BinaryOp.ADD
        return (first, first, ()) if added and update.buffer == first.buffer else None
    if others or not first.buffer.dtype.is_integer:
        return None
    zero = first.with_(value=const(0, first.buffer.dtype))
    return first, zero, (Accumulate(first.buffer, first.indices, BinaryOp.ADD, first.value),)


def _replaced(block: Block, old: Stmt, new: Block) -> Block:
    """A meaning with other statements for one, without loops that have nothing left to do."""

    def visit(stmt: Stmt) -> Stmt | Block:
        if stmt is old:
            return new
        found = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return () if isinstance(found, For) and not found.body else found

    return map_block(block, visit)


def _structure(i: Instruction, body: Block) -> object:
    """All that an instruction is but for its time, with numbers in the place of names, in the order
    in which they come."""
    numbers: dict[Node, int] = {}

    def visit(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(visit, x))
        if not isinstance(x, Node):
            return x
        named = isinstance(x, (Buffer, Var, Symbol))
        number = numbers.setdefault(x, len(numbers)) if named else None
        kind: Any = type(x)
        values = (getattr(x, n) for n in field_names(kind) if not (named and n == "name"))
        return kind.__name__, number, *map(visit, values)

    names = {b.name: k for k, b in enumerate(i.operands)}
    fields = {f.name: k for k, f in enumerate(i.fields)}
    strides = sorted((names[b], d, fields[f]) for b, d, f in i.strides)
    apart = sorted((names[b], n) for b, n in i.distances)
    operands, described, limits = map(visit, (i.operands, i.fields, i.limits))
    return operands, described, visit(body), limits, strides, apart
