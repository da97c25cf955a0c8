"""Contractions for units of a fixed number of rows whose arrays have no room for more: loops that
are no multiple of it run over blocks that overlap. What several blocks make is the same.

    for x in 28: T[x] = ...          for b in 2, l in 16: T[b, l] = ... of 12 * b + l
    for x in 28: Y[x + 1] = T[x]     for b in 2, l in 16: Y[12 * b + l + 1] = T[b, l]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, nests
from tilewright.ir.expr import Buffer, Expr, Load, Var
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
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.plan.unit_form import UnitForm, fresh
from tilewright.plan.units import is_row, units
from tilewright.target.target import Target

MORE = 2  # times as many blocks as are needed, at most


def overlapping_forms(kernel: Kernel, target: Target, *, inputs: bool) -> Iterator[UnitForm]:
    """The kernel with overlapping blocks along a loop of its only contraction that cannot be filled
    up, for each number of rows that units have: as its result has a border, or `inputs` may have no
    room behind their rows."""
    every = nests(kernel.body)
    sums = [n for n in every if n.update is not None]
    if len(sums) != 1 or len(every) != 2 or sums[0].buffer in kernel.params:
        return
    nest, after = sums[0], next(n for n in every if n.update is None)
    reads = {x.indices for x in loads(after.store.value) if x.buffer == nest.buffer}
    if len(reads) != 1:
        return
    (read,) = reads
    for size in _rows(target):
        for d, (v, w) in enumerate(zip(nest.store.indices, read, strict=True)):
            loops = [next((x for x in n.axes if x.var == i), None)
                     for n, i in ((nest, v), (after, w))]  # fmt: skip
            bordered = any(w in variables(i) and i != w for i in after.store.indices
                           if isinstance(w, Var))  # fmt: skip
            if (bordered or inputs) and None not in loops and loops[0] is not None:
                blocks = _blocks(loops[0].extent, size)
                if blocks is not None:
                    yield UnitForm(_Blocks(kernel, nest, after, d, (v, w), *blocks, size).form())


def _rows(target: Target) -> list[int]:
    """How many rows units have that have a fixed number."""
    found = [u.loops[v].extent for u in units(target) for v in u.fixed if is_row(u, v)]
    return list(dict.fromkeys(n for n in found if isinstance(n, int)))


def _blocks(extent: object, size: int) -> tuple[int, int] | None:
    """In how many blocks a loop is cut, and how far those are apart; None where it is a multiple of
    their size, or in none."""
    if not isinstance(extent, int) or extent <= size or extent % size == 0:
        return None
    least = -(-extent // size)
    found = (n for n in range(least, MORE * least + 1) if (extent - size) % (n - 1) == 0)
    count = next(found, None)
    return None if count is None else (count, (extent - size) // (count - 1))


@dataclass(frozen=True)
class _Blocks:
    """`loops` are those of the contraction and of what follows it, along axis `d` of the sums: as
    many blocks of `size`, so far `apart`."""

    kernel: Kernel
    nest: Nest
    after: Nest
    d: int
    loops: tuple[Expr, Expr]
    count: int
    apart: int
    size: int

    def form(self) -> Kernel:
        names = {x.name for x in self.kernel.walk() if isinstance(x, (Var, Buffer))}
        sums, d = self.nest.buffer, self.d
        shape = (*sums.shape[:d], self.count, self.size, *sums.shape[d + 1 :])
        new = sums.with_(shape=shape)
        body: list[Stmt] = []
        for stmt in self.kernel.body:
            if isinstance(stmt, Alloc) and stmt.buffer == sums:
                stmt = Alloc(new)
            for nest, v in zip((self.nest, self.after), self.loops, strict=True):
                if stmt is nest.stmt:
                    stmt = self._cut(stmt, v, new, names)
            body.append(stmt)
        return self.kernel.with_(body=tuple(body))

    def _cut(self, stmt: Stmt, v: Expr, new: Buffer, names: set[str]) -> Stmt:
        """A nest with two loops in the place of one."""
        assert isinstance(v, Var)
        block, row = (Var(fresh(f"{v.name}_{part}", names)) for part in ("block", "row"))
        there: dict[Expr, Expr] = {v: block * self.apart + row}
        d = self.d

        def place(buffer: Buffer, indices: tuple[Expr, ...]) -> Load:
            if buffer == self.nest.buffer:
                return Load(new, (*indices[:d], block, row, *indices[d + 1 :]))
            return Load(buffer, tuple(substitute(i, there) for i in indices))

        def read(e: Expr) -> Expr:
            return place(e.buffer, e.indices) if isinstance(e, Load) else e

        def changed(stmt: Stmt) -> Stmt:
            if isinstance(stmt, (Store, Accumulate)):
                at, value = place(stmt.buffer, stmt.indices), rewrite(stmt.value, read)
                value = substitute(value, there)
                return stmt.with_(buffer=at.buffer, indices=at.indices, value=value)
            stmt = map_inner_blocks(stmt, lambda inner: map_block(inner, changed))
            if isinstance(stmt, For) and stmt.var == v:
                inner: Block = (For(row, self.size, stmt.body),)
                return For(block, self.count, inner)
            return stmt

        return changed(stmt)
