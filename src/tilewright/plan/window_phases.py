"""Reductions over windows that move by several elements, of an array for each phase of a step.

    Y[w] = -128                                   Y[w] = X1[w]
    for s in 3: Y[w] max= X[2 * w + s]     ->     for s in 2: Y[w] max= X0[w + s]

X0 has the even elements of X, X1 the odd ones. Neighbours are then neighbours for an instruction as
well, and the phase of which a window has one element is where its result lies: nothing is copied. A
window over a box is taken apart, as in `separate_windows.py`: the phases of its last side first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from tilewright.analyze.linear import linear
from tilewright.analyze.nests import Nest, nests
from tilewright.base.dtype import DType
from tilewright.ir.expr import DRAM, Buffer, Expr, Load, Var, binary, cast, const
from tilewright.ir.loop import Accumulate, Alloc, For, Kernel, Stmt, loads
from tilewright.ir.substitute import substitute, variables
from tilewright.ir.tensor import Axis, Builder, Stage, neutral
from tilewright.plan.create_loops import stage_loops
from tilewright.plan.fit_operators import row_instructions
from tilewright.plan.unit_form import MadeArray, UnitForm, converted, made, reads_alone
from tilewright.target.target import Target

MOST = 9  # arrays: a tile has a part of each of them at once


def window_forms(kernel: Kernel, target: Target) -> Iterator[UnitForm]:
    """The kernel with such arrays for the input of a reduction over windows, where the target's
    instructions combine rows."""
    for nest in nests(kernel.body) if row_instructions(target) else ():
        windows = windows_of(kernel, nest)
        if windows is not None:
            yield Phases(kernel, windows, nest.buffer.dtype).form()


@dataclass(frozen=True)
class _Side:
    """A side of a window: result w has the elements `step * w + s` for all s < size."""

    along: Var  # w
    step: int
    size: int
    over: Var  # s

    def elements(self, phase: int) -> int:
        """How many elements of a window are of a phase."""
        return -(-(self.size - phase) // self.step)

    @property
    def phases(self) -> range:
        return range(min(self.step, self.size))

    @property
    def own(self) -> bool:
        """Whether there is a phase of which a window has one element, which no other has."""
        return any(self.elements(p) == 1 for p in self.phases)


@dataclass(frozen=True)
class Windows:
    """A reduction over windows of an input, with their sides, outermost first."""

    nest: Nest
    update: Accumulate
    read: Load
    element: Expr  # what is read, with what stands for it in a border
    sides: tuple[_Side, ...]


def windows_of(kernel: Kernel, nest: Nest) -> Windows | None:
    """The windows of a reduction, if each side moves by several elements and has a phase with one
    element; None for others. Elements come in another order, which sums of floats are not for."""
    update = nest.update
    if update is None or len(nest.writes) != 2 or nest.buffer.dtype.is_float:
        return None
    element = converted(update.value)
    reads = list(loads(element))
    if len(reads) != 1 or reads[0].buffer not in kernel.inputs:
        return None
    (read,) = reads
    if not reads_alone(kernel, update, read.buffer) or element.dtype != read.buffer.dtype:
        return None
    if nest.store.value != neutral(update.op, nest.buffer.dtype):
        return None
    sides = [_side_of(nest, x, read) for x in nest.reduce]
    found = tuple(x for x in sides if x is not None and x.own)
    used = [v for i in read.indices for v in variables(i)]
    every = {x.var for x in (*nest.axes, *nest.reduce)}
    numbers = all(isinstance(x.extent, int) for x in nest.axes)
    if not found or len(found) < len(sides) or not numbers:
        return None
    if math.prod(len(x.phases) for x in found) > MOST:
        return None
    if len(used) != len(every) or set(used) != every:  # loops of different subscripts
        return None
    return Windows(nest, update, read, element, found)


def _side_of(nest: Nest, loop: For, read: Load) -> _Side | None:
    """The side of a window that a loop of the reduction goes along, if windows move along it."""
    along = [linear(i) for i in read.indices if loop.var in variables(i)]
    if len(along) != 1 or not isinstance(loop.extent, int) or along[0].get(loop.var) != 1:
        return None
    steps = [(v, k) for v, k in along[0].items() if isinstance(v, Var) and v != loop.var]
    if len(steps) != 1 or steps[0][1] < 2:
        return None
    return _Side(*steps[0], loop.extent, loop.var)


class Phases:
    """The reduction of one window, of arrays for its phases; `kind` is the type in which maxima are
    taken."""

    def __init__(self, kernel: Kernel, windows: Windows, kind: DType) -> None:
        self.kernel, self.windows = kernel, windows
        self.nest, self.op, self.kind = windows.nest, windows.update.op, kind
        self.read = windows.read
        self.builder = Builder({x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))})
        self.arrays: dict[str, MadeArray] = {}
        self.inputs: list[Buffer] = []
        self.body: list[Stmt] = []

    def form(self) -> UnitForm:
        """The kernel in that form."""
        self.computed(())
        others = (b for b in self.kernel.inputs if b != self.read.buffer)
        kernel = self.kernel.with_(inputs=(*self.inputs, *others), body=self.replaced())
        return UnitForm(kernel, self.arrays)

    def replaced(self) -> tuple[Stmt, ...]:
        """The kernel's body with what is computed here in the place of the reduction."""
        body: list[Stmt] = []
        for stmt in self.kernel.body:
            body += self.body if stmt is self.nest.stmt else [stmt]
        return tuple(body)

    def _extents(self, phases: Sequence[int]) -> tuple[int, ...]:
        """What an array has along each loop of the result, which is of these phases of the first
        sides, and of whole windows along the others."""
        sides = zip(self.windows.sides, phases, strict=False)
        more = {side.along: side.elements(p) - 1 for side, p in sides}
        return tuple(int(x.extent) + more.get(x.var, 0) for x in self.nest.axes)

    def computed(self, phases: tuple[int, ...]) -> Buffer:
        """The array of what windows have in these phases of the first sides; computes it."""
        if len(phases) == len(self.windows.sides):
            return self.input(phases)
        side = self.windows.sides[len(phases)]
        parts = [(side.elements(p), self.computed((*phases, p))) for p in side.phases]
        axes = self.axes(phases)
        places: tuple[Expr, ...] = tuple(a.var for a in axes)
        single = (self._element(b, places) for n, b in parts if n == 1)
        value = reduce(partial(binary, self.op), single)
        several = [(n, b) for n, b in parts if n > 1]
        if not several:
            return self._stage(phases, axes, value)
        k = [x.var for x in self.nest.axes].index(side.along)
        for number, (n, b) in enumerate(several, start=1):
            over = Axis(Var(self.builder.fresh(side.over.name)), n)
            at = (*places[:k], places[k] + over.var, *places[k + 1 :])
            last = number == len(several)
            array = self._stage(phases, axes, value, self._element(b, at), over, last=last)
            if not last:
                axes = self.axes(phases)
                places = tuple(a.var for a in axes)
                value = Load(array, places)
        return array

    def axes(self, phases: Sequence[int]) -> list[Axis]:
        """Loops through such an array."""
        names = (x.var.name for x in self.nest.axes)
        return [
            Axis(Var(self.builder.fresh(name)), n)
            for name, n in zip(names, self._extents(phases), strict=True)
        ]

    def array(self, phases: Sequence[int]) -> Buffer:
        """An array of its own for such phases, which is yet to be allocated."""
        name = self.builder.fresh(f"{self.nest.buffer.name}_phase")
        return Buffer(name, self.kind, self._extents(phases), DRAM)

    def _element(self, array: Buffer, places: Sequence[Expr]) -> Expr:
        return cast(self.kind, Load(array, tuple(places)))

    def element_of(self, phases: Sequence[int], places: Sequence[Expr]) -> Expr:
        """The element of a picture that is of these phases of all sides, by its places there."""
        names = dict(zip((x.var for x in self.nest.axes), places, strict=True))
        sides = zip(self.windows.sides, phases, strict=True)
        return substitute(self.windows.element, {**names, **{s.over: const(p) for s, p in sides}})

    def _stage(
        self, phases: Sequence[int], axes: Sequence[Axis], value: Expr,
        element: Expr | None = None, over: Axis | None = None, *, last: bool = True,
    ) -> Buffer:  # fmt: skip
        """Computes an array: a value, or what begins with it and goes on with elements."""
        result = self.nest.buffer
        places: tuple[Expr, ...] = tuple(a.var for a in axes)
        whole = last and not phases and self.kind == result.dtype
        array = result if whole else self.array(phases)
        at = places
        if not whole:
            self.body.append(Alloc(array))
        else:
            names = dict(zip((x.var for x in self.nest.axes), places, strict=True))
            at = tuple(substitute(i, names) for i in self.nest.store.indices)
        stage = Stage(array, tuple(axes), at, value)
        if element is not None and over is not None:
            stage = Stage(array, tuple(axes), at, element, (over,), self.op, value)
        self.body += stage_loops(stage)
        return array

    def input(self, phases: Sequence[int]) -> Buffer:
        """The array of the elements of a phase of every side."""
        name = self.builder.fresh(f"{self.read.buffer.name}_{'_'.join(map(str, phases))}")

        def value(*at: Expr) -> Expr:
            return self.element_of(phases, at)

        shape = self._extents(phases)
        self.arrays[name] = made(f"{name}_phase", shape, [self.read.buffer], value)
        array = self.read.buffer.with_(name=name, shape=shape)
        self.inputs.append(array)
        return array
