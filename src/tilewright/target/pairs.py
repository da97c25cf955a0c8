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

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tilewright.base.node import Node, field_names
from tilewright.ir.expr import BinaryOp, Buffer, CompareOp, Const, Expr, Symbol, Var, compare, const
from tilewright.ir.instruction import COST_TERMS, Field, Instruction
from tilewright.ir.loop import (
    Accumulate,
    Block,
    If,
    Stmt,
    Store,
    loads,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute

FLAG = "adds"  # 0: the pair begins sums


def pairs_of(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """The pairs among a chip's instructions: two of one queue that are alike but for their names,
    their time, and what one of them begins with."""
    names = {i.name for i in instructions}
    for begin in instructions:
        if begin.micro_ops is not None or begin.black_box is not None:
            continue
        flag = Symbol(_unused(FLAG, {f.name for f in begin.fields}), 0, 1)
        body = _under_flag(begin.body, flag)
        if body is None:
            continue
        wanted = _structure(begin, _without_conditions(body))
        for other in instructions:
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


def _under_flag(body: Block, flag: Symbol) -> Block | None:
    """A meaning that begins a sum with a number, where it does that only if a flag is 0; None if it
    begins none. An integer that a single product is stored to is begun with 0."""
    written = [s for s in walk_statements(body) if isinstance(s, (Store, Accumulate))]
    sums = {s.buffer for s in written if isinstance(s, Accumulate) and s.op is BinaryOp.ADD}
    first = next((s for s in written if isinstance(s, Store)), None)
    if first is None or len(written) > 2 or written[0] is not first:
        return None
    if any(x.buffer == first.buffer for x in loads(first.value)):
        return None
    begins = compare(CompareOp.EQ, flag, 0)
    if first.buffer in sums and isinstance(first.value, Const):
        new: Block = (If(begins, (first,)),)
    elif not sums and len(written) == 1 and first.buffer.dtype.is_integer:
        zero = first.with_(value=const(0, first.buffer.dtype))
        added = Accumulate(first.buffer, first.indices, BinaryOp.ADD, first.value)
        new = If(begins, (zero,)), added
    else:
        return None
    return _changed(body, lambda s: new if s is first else None)


def _without_conditions(body: Block) -> Block:
    return _changed(body, lambda s: () if isinstance(s, If) else None)


def _changed(block: Block, change: Any) -> Block:
    def visit(stmt: Stmt) -> Stmt | Block:
        found: Block | None = change(stmt)
        return map_inner_blocks(stmt, lambda b: map_block(b, visit)) if found is None else found

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
    micro_ops = i.micro_ops is not None or i.black_box is not None
    operands, described, limits = map(visit, (i.operands, i.fields, i.limits))
    return operands, described, visit(body), limits, strides, apart, micro_ops
