"""Maxima over windows whose picture a matrix unit brings: products with the identity, one for each
phase of the windows' steps, leave its elements where an instruction that combines rows takes them.

    Y[o, w] = -128                    T0[o, w] = 0;  for k: T0[o, w] += X[k, 2 * w] * I[o, k]
    for s in 3: Y[o, w] max=     ->   T1[o, w] = 0;  for k: T1[o, w] += X[k, 2 * w + 1] * I[o, k]
      X[o, 2 * w + s]                 T[o, w] = T1[o, w];  for s in 2: T[o, w] max= T0[o, w + s]
                                      Y[o, w] = cast(i8, T[o, w])

The picture comes once, to the unit's memory, by the queue for operands and in its own type; the
unit takes a row in a cycle, whatever the step from one to the next, where a load into the
accumulators takes as long as the memory outside gives the row, on the queue that also works on it.
The phases are those of window_phases.py, for which the host would have to make arrays. Channels are
in blocks of the unit's columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.analyze.nests import Nest, nests
from tilewright.ir.expr import BinaryOp, Buffer, Expr, Load, Var, cast, const
from tilewright.ir.loop import (
    Accumulate,
    Alloc,
    For,
    Kernel,
    Stmt,
    Store,
    map_block,
    map_inner_blocks,
)
from tilewright.ir.substitute import rewrite, substitute
from tilewright.ir.tensor import Axis, Stage
from tilewright.plan.create_loops import stage_loops
from tilewright.plan.diagonal import follow
from tilewright.plan.fit_operators import row_instructions
from tilewright.plan.residual_products import columns_first, diagonal_matrix
from tilewright.plan.unit_form import UnitForm, fresh, in_blocks, of_blocks, sizes_of
from tilewright.plan.units import Unit, square_axes, units
from tilewright.plan.window_phases import Phases, Windows, windows_of
from tilewright.target.target import Target


def window_product_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel in that form, for each loop of the result that can be the columns of a unit that
    multiplies by square matrices; none where it is anything but maxima, or minima, over windows
    that move by several elements."""
    sums = [n for n in nests(kernel.body) if n.update is not None]
    windows = windows_of(kernel, sums[0]) if len(sums) == 1 and row_instructions(target) else None
    if windows is None or windows.update.op not in (BinaryOp.MAX, BinaryOp.MIN):
        return
    for unit in units(target):
        square = square_axes(unit)
        if unit.whole or square is None or not _takes(unit, windows):
            continue
        for loop in windows.nest.axes:
            found = _in_blocks(kernel, windows.nest, loop, unit.size(square[0]))
            if found is not None:
                yield _Products(*found, unit, square).form()


def _takes(unit: Unit, windows: Windows) -> bool:
    """Whether a unit leaves elements as they are when it multiplies them by 1."""
    element, factor, total = (x.buffer.dtype for x in (unit.left, unit.right, unit.result))
    return (
        element == windows.read.dtype
        and factor.is_integer
        and total.is_integer
        and total.is_signed
        and total.bits > element.bits
    )


def _in_blocks(
    kernel: Kernel, nest: Nest, loop: For, size: int
) -> tuple[UnitForm, Windows, Var] | None:
    """The kernel with a loop of the nest, and all that goes along with it, as two: over blocks of
    this size and within one; with the nest's windows then, and its inner loop. None where arrays do
    not follow the loop, or blocks do not fill it."""
    along = follow(kernel, loop.var)
    if along is None or along.extent % size:
        return None
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    new = {b: _split(b, d, size) for b, d in along.places.items()}
    inside = {
        v: tuple(Var(fresh(f"{v.name}_{part}", names)) for part in ("block", "lane"))
        for v in sorted(along.loops, key=str)
    }

    def place(buffer: Buffer, indices: Sequence[Expr]) -> tuple[Buffer, tuple[Expr, ...]]:
        if buffer not in new:
            return buffer, tuple(indices)
        d = along.places[buffer]
        var = indices[d]
        assert isinstance(var, Var)
        return new[buffer], (*indices[:d], *inside[var], *indices[d + 1 :])

    def moved(e: Expr) -> Expr:
        return Load(*place(e.buffer, e.indices)) if isinstance(e, Load) else e

    def changed(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Alloc):
            return Alloc(new.get(stmt.buffer, stmt.buffer))
        if isinstance(stmt, (Store, Accumulate)):
            buffer, indices = place(stmt.buffer, stmt.indices)
            return stmt.with_(buffer=buffer, indices=indices, value=rewrite(stmt.value, moved))
        stmt = map_inner_blocks(stmt, lambda inner: map_block(inner, changed))
        if isinstance(stmt, For) and stmt.var in inside:
            block, lane = inside[stmt.var]
            return For(block, along.extent // size, (For(lane, size, stmt.body),))
        return stmt

    blocked = kernel.with_(
        inputs=tuple(new.get(b, b) for b in kernel.inputs),
        outputs=tuple(new.get(b, b) for b in kernel.outputs),
        body=map_block(kernel.body, changed),
    )
    arrays, results = (
        {b.name: change(b, new[b], along.places[b]) for b in given if b in new}
        for change, given in ((in_blocks, kernel.inputs), (of_blocks, kernel.outputs))
    )
    again = next(n for n in nests(blocked.body) if n.update is not None)
    found = windows_of(blocked, again)
    lane = inside[loop.var][1]
    return None if found is None else (UnitForm(blocked, arrays, results), found, lane)


def _split(buffer: Buffer, axis: int, size: int) -> Buffer:
    n = sizes_of(buffer)[axis]
    shape = (*buffer.shape[:axis], n // size, size, *buffer.shape[axis + 1 :])
    return buffer.with_(shape=shape)


class _Products(Phases):
    """The windows of a kernel in blocks, of phases that a unit brings: row by row along a loop."""

    def __init__(
        self, blocked: UnitForm, windows: Windows, lane: Var, unit: Unit, square: tuple[Var, Var]
    ) -> None:
        super().__init__(blocked.kernel, windows, unit.result.buffer.dtype)
        self.blocked, self.unit, self.square = blocked, unit, square
        self.brought: list[Stmt] = []  # products, which come first: their operands are free then
        self.lane = [x.var for x in self.nest.axes].index(lane)
        size = unit.size(square[0])
        self.identity = Buffer(
            self.builder.fresh("identity"), unit.right.buffer.dtype, (size, size)
        )

    def form(self) -> UnitForm:
        """The kernel in that form."""
        sums = self.computed(())
        axes = self.axes(())
        places = tuple(a.var for a in axes)
        names = dict(zip((x.var for x in self.nest.axes), places, strict=True))
        at = tuple(substitute(i, names) for i in self.nest.store.indices)
        value = cast(self.nest.buffer.dtype, Load(sums, places))
        result = stage_loops(Stage(self.nest.buffer, tuple(axes), at, value))
        self.body = [*self.brought, *self.body, *result]
        inputs = (*self.kernel.inputs, self.identity)
        kernel = self.kernel.with_(inputs=inputs, body=self.replaced())
        arrays = {self.identity.name: diagonal_matrix(self.identity, 1)}
        return replace(self.blocked, kernel=kernel, made={**self.blocked.made, **arrays})

    def input(self, phases: Sequence[int]) -> Buffer:
        """The array of the elements of a phase of every side, in the unit's accumulators."""
        axes = self.axes(phases)
        term = Axis(Var(self.builder.fresh("term")), self.unit.size(self.square[1]))
        lane = axes[self.lane].var
        element = self.element_of(phases, [a.var for a in axes])
        entry = (lane, term.var) if columns_first(self.unit, self.square) else (term.var, lane)
        value = cast(self.kind, substitute(element, {lane: term.var})) * cast(
            self.kind, Load(self.identity, entry)
        )
        array, places = self.array(phases), tuple(a.var for a in axes)
        start = const(0, self.kind)
        stage = Stage(array, tuple(axes), places, value, (term,), BinaryOp.ADD, start)
        self.brought += [Alloc(array), *stage_loops(stage)]
        return array
