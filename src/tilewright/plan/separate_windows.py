"""Windows that slide share work: a reduction over a box becomes one along each of its sides.

    Y[h, w] = max over k, q of X[h + k, w + q]

reads k * q elements for each result. Neighbours have rows of their windows in common, so that

    T[i, w] = max over q of X[i, w + q]
    Y[h, w] = max over k of T[h + k, w]

does the same with k + q. Operators of reductions are associative and commutative: sums of floats
are added up in another order, as a reduction may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilewright.analyze.linear import linear, step_along
from tilewright.ir.expr import Buffer, Expr, Load, Symbol, Var
from tilewright.ir.substitute import substitute, variables
from tilewright.ir.tensor import Axis, Builder, Item, Stage, TensorProgram, neutral

LEAST_GAIN = 1.5  # times fewer steps, from which an intermediate result is worth its memory
IN_PLACE_GAIN = 0.75  # where it needs none, and begins with an element: a step less than counted


def separate_windows(program: TensorProgram) -> TensorProgram:
    """The program with reductions over boxes taken apart where that saves work."""
    names = Builder({x.name for x in program.walk() if isinstance(x, (Var, Buffer, Symbol))})
    items: list[Item] = []
    for item in program.items:
        items += separate_stage(item, names) if isinstance(item, Stage) else [item]
    return program if len(items) == len(program.items) else program.with_(items=tuple(items))


def separate_stage(stage: Stage, names: Builder, least_gain: float = LEAST_GAIN) -> list[Item]:
    """The stage, or the passes that do the same, of which the last computes its buffer, if they
    take so many times fewer steps."""
    load, sides = stage.value, _sides(stage)
    if sides is None or len(sides) < 2:
        return [stage]
    assert isinstance(load, Load)
    *_, (position, side) = sorted(sides.items(), key=lambda s: stage.reduce.index(s[1]))
    axes = []  # of the first pass: along the other sides, all that the source has
    for p, i in enumerate(load.indices):
        whole = p in sides and p != position
        extent = load.buffer.shape[p] if whole else _axis_of(i, stage.axes).extent
        axes.append(Axis(Var(names.fresh(f"{_axis_of(i, stage.axes).var.name}_at")), extent))
    rest = tuple(r for r in stage.reduce if r != side)
    gain = _steps((*stage.axes, *stage.reduce)) / max(
        1, _steps((*axes, side)) + _steps((*stage.axes, *rest))
    )
    if gain < least_gain:
        return [stage]
    slid = _axis_of(load.indices[position], stage.axes).var
    along = Axis(Var(names.fresh(side.var.name)), side.extent)
    moved = substitute(load.indices[position], {slid: axes[position].var, side.var: along.var})
    read = Load(load.buffer, tuple(moved if p == position else a.var for p, a in enumerate(axes)))
    name = names.fresh(f"{stage.buffer.name}_{slid.name}")
    buffer = Buffer(name, stage.buffer.dtype, tuple(a.extent for a in axes))
    places = tuple(a.var for a in axes)
    assert stage.op is not None
    first = Stage(
        buffer, tuple(axes), places, read, (along,), stage.op, neutral(stage.op, read.dtype)
    )
    again = Load(buffer, tuple(slid if p == position else i for p, i in enumerate(load.indices)))
    return [first, *separate_stage(stage.with_(value=again, reduce=rest), names, least_gain)]


def _sides(stage: Stage) -> dict[int, Axis] | None:
    """The subscripts along which a window slides, with the reduction's axis along that side; None
    for what is no reduction over a box of a buffer of which the sizes are known."""
    load, found = stage.value, dict[int, Axis]()
    if stage.op is None or not isinstance(load, Load) or load.buffer == stage.buffer:
        return None
    extents = (*load.buffer.shape, *(a.extent for a in (*stage.axes, *stage.reduce)))
    if not all(isinstance(n, int) for n in extents):
        return None
    own = {a.var: a for a in stage.axes}
    over = {a.var: a for a in stage.reduce}
    for p, i in enumerate(load.indices):
        used = variables(i)
        sides = [over[v] for v in used if v in over]
        if len(used - set(over)) != 1 or len(sides) > 1 or not used <= {*own, *over}:
            return None
        if not sides and not isinstance(i, Var):
            return None
        if any(not isinstance(step_along(linear(i), v), int) for v in used):
            return None
        if sides:
            found[p] = sides[0]
    once = [v for i in load.indices for v in variables(i)]
    return found if len(once) == len(set(once)) == len(own) + len(over) else None


def _axis_of(e: Expr, axes: Iterable[Axis]) -> Axis:
    return next(a for a in axes if a.var in variables(e))


def _steps(axes: Iterable[Axis]) -> int:
    return math.prod(int(a.extent) for a in axes)
