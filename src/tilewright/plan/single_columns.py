"""Contractions of which a factor has no loop of the result for itself, such as a product with a
vector, as a unit takes them that multiplies matrices: a vector is a matrix of one column.

    for i:                                        for j (once), i:
      for k: Y[i] += X[i, k] * V[k]         ->      for k: Y[j, i] += X[i, k] * V[j, k]

What the unit does along its other columns is thrown away. A product that is no sum is one of one
term, along a loop of both factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.analyze.nests import Nest, guarded_factors, nests
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, const
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    Block,
    For,
    Kernel,
    Stmt,
    Store,
    loads,
    map_block,
    map_inner_blocks,
)
from tilewright.ir.substitute import rewrite, variables
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, made, reads_alone, sizes_of

COLUMN, TERM = "column", "term"  # the loops, of one iteration


def with_single_columns(kernel: Kernel) -> UnitForm | None:
    """The kernel with a loop of one iteration for each factor of its only contraction that shares
    all of its loops of the result with the other one, and for a product that is no sum; None where
    there is none of these."""
    every = nests(kernel.body)
    sums = [n for n in every if n.update is not None]
    if len(sums) != 1 or sum(not isinstance(s, Alloc) for s in kernel.body) > len(every):
        return None
    added = _axes(kernel, sums[0])
    return _Columns(kernel, every, added).form() if added else None


def _axes(kernel: Kernel, nest: Nest) -> dict[Buffer, tuple[str, ...]]:
    """The axes that factors get: a column where one has no loop of the result alone, and a term
    where they are not added up."""
    update = nest.update
    pair = guarded_factors(update.value) if update is not None else None
    if update is None or update.op is not BinaryOp.ADD or pair is None:
        return {}
    alone = all(reads_alone(kernel, update, x.buffer) for x in pair)
    if not alone or pair[0].buffer == pair[1].buffer:
        return {}
    if not all(x.buffer in kernel.inputs for x in pair):
        return {}
    axes = {x.var for x in nest.axes}
    a, b = (axes & {v for i in x.indices for v in variables(i)} for x in pair)
    if a == b and not nest.reduce:
        return {}  # a call for each element would take longer than anything else
    term = () if nest.reduce else (TERM,)
    columns = (a <= b, b <= a)
    return {x.buffer: (*term, COLUMN) if own else term
            for x, own in zip(pair, columns, strict=True) if own or term}  # fmt: skip


class _Columns:
    """`added` are the axes that factors get; what is made of the sums has a column for each."""

    def __init__(
        self, kernel: Kernel, every: Sequence[Nest], added: Mapping[Buffer, tuple[str, ...]]
    ) -> None:
        self.kernel, self.every, self.added = kernel, every, added
        self.names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
        self.vectors = [b for b, axes in added.items() if COLUMN in axes]
        # Arrays with more axes: the factors, then what is made of them.
        self.new = {
            b: _longer(b, axes.count(COLUMN), axes.count(TERM)) for b, axes in added.items()
        }

    def form(self) -> UnitForm:
        """The kernel, and how its arrays are made."""
        body: list[Stmt] = []
        for stmt in self.kernel.body:
            nest = next((n for n in self.every if n.stmt is stmt), None)
            if nest is not None and any(
                x.buffer in self.new for w in nest.writes for x in loads(w.value)
            ):
                self.new[nest.buffer] = _longer(nest.buffer, len(self.vectors))
                stmt = self._with_loops(stmt)
            body.append(stmt)
        new = self.new
        kernel = self.kernel.with_(
            inputs=tuple(new.get(b, b) for b in self.kernel.inputs),
            outputs=tuple(new.get(b, b) for b in self.kernel.outputs),
            body=tuple(
                Alloc(new.get(s.buffer, s.buffer)) if isinstance(s, Alloc) else s for s in body
            ),
        )
        results = {b.name: _first(b, new[b]) for b in self.kernel.outputs if b in new}
        arrays = {
            b.name: _with_axes(b, new[b], axes.count(COLUMN)) for b, axes in self.added.items()
        }
        return UnitForm(kernel, arrays, results)

    def _with_loops(self, stmt: Stmt) -> Stmt:
        """A nest within a loop for each vector, along which that lies, and all that is made of
        sums."""
        columns = {b: Var(fresh(COLUMN, self.names)) for b in self.vectors}
        term = Var(fresh(TERM, self.names))

        def place(buffer: Buffer, indices: tuple[Expr, ...]) -> Load:
            if buffer not in self.new:
                return Load(buffer, indices)
            if buffer not in self.added:
                return Load(self.new[buffer], (*columns.values(), *indices))
            axes = self.added[buffer]
            column = (columns[buffer],) if COLUMN in axes else ()
            return Load(self.new[buffer], (*column, *indices, *([term] if TERM in axes else [])))

        def read(e: Expr) -> Expr:
            return place(e.buffer, e.indices) if isinstance(e, Load) else e

        def changed(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, (Store, Accumulate)):
                return map_inner_blocks(stmt, lambda block: map_block(block, changed))
            at, value = place(stmt.buffer, stmt.indices), rewrite(stmt.value, read)
            written = stmt.with_(buffer=at.buffer, indices=at.indices, value=value)
            return For(term, 1, (written,)) if term in variables(value) else written

        body: Block = (changed(stmt),)
        for v in columns.values():
            body = (For(v, 1, body),)
        return body[0]


def _longer(buffer: Buffer, columns: int, terms: int = 0) -> Buffer:
    return buffer.with_(shape=(*(1,) * columns, *buffer.shape, *(1,) * terms))


def _with_axes(vector: Buffer, longer: Buffer, columns: int) -> MadeArray:
    axes = slice(columns, columns + len(vector.shape))
    name = f"{vector.name}_column"
    return made(name, sizes_of(longer), [vector], lambda *at: Load(vector, at[axes]))


def _first(result: Buffer, columns: Buffer) -> MadeArray:
    before = (const(0),) * (len(columns.shape) - len(result.shape))
    name = f"{result.name}_vector"
    return made(name, sizes_of(result), [columns], lambda *at: Load(columns, (*before, *at)))
