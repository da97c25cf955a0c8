"""Kernels whose guarded reads are one number outside of an input: the same kernel, of inputs with
that number around them.

    X: i8[8, 8]                                         X: i8[10, 10]
    Y[i, j] += select(inside, X[i + r - 1, …], 0) * …   ->   Y[i, j] += X[i + r, …] * …

For units that do not guard reads themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analyze.accesses import Access
from tilewright.analyze.dependence import possible
from tilewright.analyze.nests import nests
from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Cast, Const, Expr, Load, Select, UnaryOp, unary
from tilewright.ir.loop import (
    Block,
    For,
    Kernel,
    Stmt,
    expressions,
    map_block,
    map_exprs,
    sub_blocks,
    walk_statements,
)
from tilewright.ir.substitute import substitute
from tilewright.plan.normal_form import normal_form
from tilewright.plan.units import is_contraction_alone, mappings, products_among_rows, units
from tilewright.target.target import Target


@dataclass(frozen=True)
class Border:
    """What lies around an input: how many elements before the first, along each axis, and what
    they are, like those behind the last."""

    before: tuple[int, ...]
    fill: float = 0


Borders = Mapping[str, Border]  # of inputs, by name


def choose_borders(kernel: Kernel, target: Target) -> tuple[Kernel, Borders]:
    """The kernel in its normal form; where no unit takes it without the guards of reads, with what
    they give around its inputs instead."""
    kernel = normal_form(kernel)
    every = itertools.product(nests(kernel.body), units(target))
    taken = any(True for nest, unit in every for _ in mappings(nest, unit))
    taken = taken and not products_among_rows(kernel)  # of which others are guarded
    return (kernel, {}) if taken else with_borders(kernel)


def with_borders(kernel: Kernel, only: Collection[str] | None = None) -> tuple[Kernel, Borders]:
    """The kernel without the guards of reads that give one number just outside of an input, and
    what its inputs hold around their own elements; as it is where there are no such reads. Other
    inputs than those of `only`, by name, are left as they are."""
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    s = Simplifier({x.var: x.extent for x in loops}, keep_units=True)
    inputs = [b for b in kernel.inputs if only is None or b.name in only]
    found = [g for g in _guarded(kernel.body, ()) if g.load.buffer in inputs]
    found = [g for g in found if g.is_for_bounds(s)]
    fills = {b: {g.fill for g in found if g.load.buffer == b} for b in kernel.inputs}
    if is_contraction_alone(kernel):  # whose loops may be filled up with 0s
        found = [g for g in found if fills[g.load.buffer] == {0}]
    found = [g for g in found if len(fills[g.load.buffer]) == 1]
    if not found:
        return kernel, {}
    plain = {g.select: g.plain for g in found}
    body = map_block(kernel.body, lambda stmt: map_exprs(stmt, lambda e: substitute(e, plain)))
    borders: dict[str, Border] = {}
    inputs = list(kernel.inputs)
    for buffer in dict.fromkeys(g.load.buffer for g in found):
        before, after = _border(buffer, [g.load for g in found if g.load.buffer == buffer], s)
        sizes = zip(before, buffer.shape, after, strict=True)
        wider = buffer.with_(shape=tuple(b + n + a for b, n, a in sizes))

        def place(at: tuple[Expr, ...], by: tuple[int, ...] = before) -> tuple[Expr, ...]:
            return tuple(s(i + b) for i, b in zip(at, by, strict=True))

        body = rewrite_accesses(body, buffer, wider, place)
        (fill,) = fills[buffer]
        borders[buffer.name] = Border(before, fill)
        inputs[inputs.index(buffer)] = wider
    return kernel.with_(inputs=tuple(inputs), body=body), borders


@dataclass(frozen=True)
class _Guarded:
    """A read that is one number unless conditions hold, the loops and the statement that it is
    in."""

    select: Select
    load: Load
    conditions: tuple[Expr, ...]
    plain: Expr
    fill: float
    loops: tuple[For, ...]
    stmt: Stmt

    def is_for_bounds(self, s: Simplifier) -> bool:
        """Whether the read has bounds, and the conditions hold wherever it is inside of them."""
        inside: list[Expr] = []
        for i, n in zip(self.load.indices, self.load.buffer.shape, strict=True):
            if None in s.bounds(i) or not isinstance(n, int):
                return False
            inside += [i >= 0, i < n]
        read = Access(self.load.buffer, self.load.indices, False, None, self.stmt, self.loops, ())
        return not any(possible(read, s, *inside, unary(UnaryOp.NOT, c)) for c in self.conditions)


def _guarded(block: Block, loops: tuple[For, ...]) -> Iterator[_Guarded]:
    for stmt in block:
        for e in expressions(stmt):
            for x in e.walk():
                if isinstance(x, Select) and (found := _read_of(x)) is not None:
                    yield _Guarded(x, *found, loops, stmt)
        inside = (*loops, stmt) if isinstance(stmt, For) else loops
        for inner in sub_blocks(stmt):
            yield from _guarded(inner, inside)


def _read_of(e: Expr) -> tuple[Load, tuple[Expr, ...], Expr, float] | None:
    """The read of a value that is one number unless some conditions hold, these, the value without,
    and that number, of the read's own type (0 is one of each)."""
    if isinstance(e, Load):
        return e, (), e, 0
    if isinstance(e, Cast):
        inner = _read_of(e.a)
        return inner and (inner[0], inner[1], e.with_(a=inner[2]), inner[3])
    if isinstance(e, Select) and isinstance(e.b, Const):
        inner = _read_of(e.a)
        if inner is None or (inner[1] and inner[3] != e.b.value) or not _holds(inner[0], e.b):
            return None
        return inner[0], (e.cond, *inner[1]), inner[2], e.b.value
    return None


def _holds(read: Load, fill: Const) -> bool:
    """Whether what is read could be that number, and would then be converted to it."""
    return fill.value == 0 or (
        read.dtype.is_integer and read.dtype.min <= fill.value <= read.dtype.max
    )


def _border(
    buffer: Buffer, reads: Sequence[Load], s: Simplifier
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How far reads go beyond each axis of a buffer, before and after."""
    before: list[int] = []
    after: list[int] = []
    for d, n in enumerate(map(int, buffer.shape)):
        bounds = [s.bounds(x.indices[d]) for x in reads]  # is_for_bounds: there are some
        before.append(max([0, *(-low for low, _ in bounds if low is not None)]))
        after.append(max([0, *(high - n + 1 for _, high in bounds if high is not None)]))
    return tuple(before), tuple(after)
