"""A model's kernel as instructions of chips are matched with it: no axes of one element, and what
is cheap to compute again computed where it is read.

    for n in range(1):                                      for o, h, w:
        pad[n, c, …] = select(inside, x[n, c, …], 0)   ->       sum[o, h, w] +=
        …                                                           select(inside, x[c, …], 0) · …

An axis of one element is no axis of an instruction's, and a batch of one is no loop. The arrays are
the same bytes: a row-major array without such axes lies in memory as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tilewright.analyze.accesses import accesses
from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import rewrite_accesses, simplify_block, substitute_block
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import index
from tilewright.ir.expr import Buffer, Expr, Load, Var, const
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    Kernel,
    Stmt,
    Store,
    map_block,
    map_exprs,
    map_inner_blocks,
    walk_statements,
)
from tilewright.ir.substitute import rewrite, substitute, variables


@dataclass(frozen=True)
class DeviceForm:
    """A kernel, and which axes its parameters have kept, by name."""

    kernel: Kernel
    axes: Mapping[str, tuple[int, ...]]


def device_forms(kernel: Kernel) -> Iterator[DeviceForm]:
    """The kernel in that form: without axes of one element but those that are summed over (a
    picture of one channel), then with all of its axes (a product with one row)."""
    body = _inlined(kernel.body)
    plain = without_unit_axes(kernel.with_(body=body))
    if all(plain.axes[b.name] for b in kernel.outputs):  # else sums would have no loops around them
        yield plain
    if any(n == 1 for b in kernel.params for n in b.shape):
        whole = kernel.with_(body=map_block(body, _along_results))
        yield DeviceForm(whole, {b.name: tuple(range(len(b.shape))) for b in kernel.params})


def _inlined(body: Block) -> Block:
    """The block with what a single store defines computed where it is read. Subscripts stay as they
    are: loops of one iteration are still in them."""
    local = {x.buffer for x in walk_statements(body) if isinstance(x, Alloc)}
    for buffer in local:
        found = [n for n in nests(body) if n.buffer == buffer]
        if len(found) != 1 or found[0].update is not None or len(found[0].writes) != 1:
            continue
        if found[0].store.indices == tuple(x.var for x in found[0].axes):
            body = _without(body, found[0])
    return body


def _without(body: Block, nest: Nest) -> Block:
    axes = [x.var for x in nest.axes]

    def value(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != nest.buffer:
            return e
        return substitute(nest.store.value, dict(zip(axes, e.indices, strict=True)))

    def visit(stmt: Stmt) -> Stmt | None:
        if stmt is nest.stmt or (isinstance(stmt, Alloc) and stmt.buffer == nest.buffer):
            return None
        stmt = map_inner_blocks(stmt, lambda b: map_block(b, visit))
        return map_exprs(stmt, lambda e: rewrite(e, value))

    return map_block(body, visit)


def _along_results(stmt: Stmt, units: tuple[Var, ...] = ()) -> Stmt:
    """A write that reads an operand at 0, along an axis of one element, reads it where the result's
    loop of one iteration is that nothing else of the operand follows."""
    if isinstance(stmt, For):
        inside = (*units, stmt.var) if stmt.extent == 1 else units
        return map_inner_blocks(stmt, lambda b: map_block(b, lambda x: _along_results(x, inside)))
    if not isinstance(stmt, (Store, Accumulate)):
        return stmt
    own = set().union(*map(variables, stmt.indices))

    def along(e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e
        shown = set().union(*map(variables, e.indices))
        left = iter([u for u in units if u in own and u not in shown])
        pairs = zip(e.indices, e.buffer.shape, strict=True)
        return Load(
            e.buffer, tuple(next(left, i) if n == 1 and not variables(i) else i for i, n in pairs)
        )

    return map_exprs(stmt, lambda e: rewrite(e, along))


def without_unit_axes(kernel: Kernel) -> DeviceForm:
    """The kernel without loops of one iteration, but for sums, and without the axes of one element
    that no loop goes along."""
    summed = {x.var for nest in nests(kernel.body) if nest.update for x in nest.reduce}
    body = map_block(kernel.body, lambda stmt: _without_unit_loops(stmt, summed))
    local = {x.buffer for x in walk_statements(body) if isinstance(x, Alloc)}
    new: dict[Buffer, Buffer] = {}
    axes: dict[str, tuple[int, ...]] = {}
    for buffer in (*kernel.params, *local):
        along = _axes_with_loops(body, buffer)
        kept = tuple(d for d, n in enumerate(buffer.shape) if n != 1 or d in along)
        axes[buffer.name] = kept
        if len(kept) == len(buffer.shape):
            continue
        new[buffer] = buffer.with_(shape=tuple(buffer.shape[d] for d in kept) or (1,))

        def place(at: tuple[Expr, ...], kept: tuple[int, ...] = kept) -> tuple[Expr, ...]:
            return tuple(at[d] for d in kept) or (const(0, index),)

        body = rewrite_accesses(body, buffer, new[buffer], place)
    extents = {x.var: x.extent for x in walk_statements(body) if isinstance(x, For)}
    plain = kernel.with_(
        inputs=tuple(new.get(b, b) for b in kernel.inputs),
        outputs=tuple(new.get(b, b) for b in kernel.outputs),
        body=simplify_block(body, Simplifier(extents, keep_units=True)),
    )
    return DeviceForm(plain, axes)


def _axes_with_loops(body: Block, buffer: Buffer) -> set[int]:
    """The axes of a buffer along which some access moves."""
    return {
        d
        for access in accesses(body)
        if access.buffer == buffer
        for d, i in enumerate(access.indices)
        if variables(i)
    }


def _without_unit_loops(stmt: Stmt, kept: Collection[Var]) -> Stmt | Block:
    stmt = map_inner_blocks(
        stmt, lambda b: map_block(b, lambda inner: _without_unit_loops(inner, kept))
    )
    if isinstance(stmt, For) and stmt.extent == 1 and stmt.var not in kept:
        return substitute_block(stmt.body, {stmt.var: const(0, index)})
    return stmt
