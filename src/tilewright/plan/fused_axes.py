"""Neighbouring axes as one: for units that take their rows from a memory outside, where a call
cannot go beyond the end of an axis.

    for y, x, o:                                     for y_x, o:
      for k:                                   ->      for k:
        Y[y, x, o] += X[y, x, k] * W[o, k]               Y[y_x, o] += X[y_x, k] * W[o, k]

Arrays are as they were, element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import simplify_block
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.loop import Alloc, For, Kernel, Stmt, loads, map_block, walk_statements
from tilewright.ir.substitute import rewrite, variables
from tilewright.ir.tensor import Axis, Stage
from tilewright.plan.create_loops import stage_loops
from tilewright.plan.diagonal import without_single_terms
from tilewright.plan.unit_form import MadeArray, UnitForm, fresh, made, sizes_of
from tilewright.plan.units import units
from tilewright.target.target import Target


def takes_rows_outside(target: Target) -> bool:
    """Whether a unit reads its operands where parameters lie."""
    return any(target.memory(u.left.buffer.memory).size is None for u in units(target))


def fused_form(kernel: Kernel) -> UnitForm | None:
    """The kernel with axes of its result as one wherever all that it reads and writes has them next
    to each other; None where nothing can be."""
    arrays: dict[Buffer, Buffer] = {b: b for b in kernel.params}
    new = _without_guards(kernel.with_(body=map_block(kernel.body, without_single_terms)))
    count = 0
    while (found := _next_pair(new)) is not None:
        new, fused = _with_one_axis(new, found)
        arrays = {old: fused.get(b, b) for old, b in arrays.items()}
        count += 1
    if not count:
        return None
    changed = {old: b for old, b in arrays.items() if old != b}
    inputs = {b.name: _reshaped(old, b) for old, b in changed.items() if old in kernel.inputs}
    results = {b.name: _reshaped(b, old) for old, b in changed.items() if old in kernel.outputs}
    return UnitForm(new, inputs, results)


def _without_guards(kernel: Kernel) -> Kernel:
    """The kernel without conditions that always hold."""
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    simplifier = Simplifier({x.var: x.extent for x in loops}, keep_units=True)
    return kernel.with_(body=simplify_block(kernel.body, simplifier))


def _reshaped(source: Buffer, wanted: Buffer) -> MadeArray:
    """An array of another shape with the same elements, one after the other."""
    shape, sizes = sizes_of(wanted), sizes_of(source)

    def value(*at: Expr) -> Expr:
        place: Expr = at[0]
        for i, n in zip(at[1:], shape[1:], strict=True):
            place = place * n + i
        places: list[Expr] = []
        for n in reversed(sizes[1:]):
            places.insert(0, place % n)
            place = place // n
        return Load(source, (place, *places))

    return made(f"{wanted.name}_fused", shape, [source], value)


Places = tuple[int, int]  # of two axes, of which the second becomes a part of the first


@dataclass
class _Pair:
    """Two axes of arrays, and the loops that go along them in each nest."""

    axes: dict[Buffer, Places] = field(default_factory=dict)
    loops: dict[int, tuple[For, For]] = field(default_factory=dict)  # by the number of the nest


def _next_pair(kernel: Kernel) -> _Pair | None:
    """The innermost axes of the result that can be one."""
    every = nests(kernel.body)
    if len(kernel.outputs) != 1 or any(not _is_perfect(n) for n in every):
        return None
    (result,) = kernel.outputs
    ways = (_follow(kernel, every, result, (d, d + 1)) for d in reversed(range(_pairs(result))))
    return next((found for found in ways if found is not None), None)


def _pairs(buffer: Buffer) -> int:
    return max(0, len(buffer.shape) - 1)


def _is_perfect(nest: Nest) -> bool:
    """Whether a nest stores, or begins and adds up."""
    return len(nest.writes) == 1 + (nest.update is not None)


def _follow(kernel: Kernel, every: Sequence[Nest], buffer: Buffer, places: Places) -> _Pair | None:
    """All axes and loops that have to be one if two axes of a buffer are; None where some cannot
    be: those of a parameter have to be neighbours."""
    found = _Pair()
    left = [(buffer, places)]
    while left:
        buffer, places = left.pop()
        apart = places[1] != places[0] + 1
        if found.axes.setdefault(buffer, places) != places or (apart and buffer in kernel.params):
            return None
        for number, nest in enumerate(every):
            for access in (x for x in _accesses(nest) if x.buffer == buffer):
                pair = _loops_of(nest, access, places)
                if pair is None or found.loops.setdefault(number, pair) != pair:
                    return None
        for number, pair in found.loops.items():
            more = _axes_of(every[number], pair)
            if more is None:
                return None
            left += [x for x in more if x not in left and found.axes.get(x[0]) != x[1]]
    return found


def _accesses(nest: Nest) -> Iterator[Load]:
    for write in nest.writes:
        yield Load(write.buffer, write.indices)
        yield from loads(write.value)


def _loops_of(nest: Nest, access: Load, places: Places) -> tuple[For, For] | None:
    """The loops that go through the whole of two axes of an access."""
    loops = {x.var: x for x in nest.axes}
    found = [loops.get(i) for d in places if isinstance(i := access.indices[d], Var)]
    sizes = tuple(access.buffer.shape[d] for d in places)
    if len(found) < len(places):
        return None
    outer, inner = found
    if outer is None or inner is None or outer is inner:
        return None
    return (outer, inner) if (outer.extent, inner.extent) == sizes else None


def _axes_of(nest: Nest, pair: tuple[For, For]) -> list[tuple[Buffer, Places]] | None:
    """The axes along which two loops go in every access that has one of them; None where they go
    along others with them, or a value depends on where it is."""
    both = [x.var for x in pair]
    found = []
    for access in _accesses(nest):
        along = [d for d, i in enumerate(access.indices) if {*both} & variables(i)]
        if not along:
            continue
        if {access.indices[d] for d in along} != {*both} or len(along) != len(both):
            return None
        first, second = (access.indices.index(v) for v in both)
        found.append((access.buffer, (first, second)))
    values = [rewrite(w.value, lambda e: Load(e.buffer, ()) if isinstance(e, Load) else e)
              for w in nest.writes]  # fmt: skip
    return None if any({*both} & variables(v) for v in values) else found


def _with_one_axis(kernel: Kernel, pair: _Pair) -> tuple[Kernel, dict[Buffer, Buffer]]:
    """The kernel with those axes as one, and its buffers with them."""
    names = {x.name for x in kernel.walk() if isinstance(x, (Var, Buffer))}
    new = {b: b.with_(shape=_joined(b.shape, d)) for b, d in pair.axes.items()}
    by_statement = {id(n.stmt): (n, k) for k, n in enumerate(nests(kernel.body))}
    body: list[Stmt] = []
    for stmt in kernel.body:
        nest, number = by_statement.get(id(stmt), (None, 0))
        if isinstance(stmt, Alloc):
            body.append(Alloc(new.get(stmt.buffer, stmt.buffer)))
        elif nest is not None and number in pair.loops:
            body += _fused_nest(nest, pair.loops[number], new, names)
        else:
            body.append(stmt)
    fused = kernel.with_(
        inputs=tuple(new.get(b, b) for b in kernel.inputs),
        outputs=tuple(new.get(b, b) for b in kernel.outputs),
        body=tuple(body),
    )
    return fused, new


def _joined(shape: Sequence[object], places: Places) -> tuple[int, ...]:
    first, second = places
    sizes = [n for n in shape if isinstance(n, int)]
    sizes[first] *= sizes[second]
    return (*sizes[:second], *sizes[second + 1 :])


def _fused_nest(
    nest: Nest, pair: tuple[For, For], new: dict[Buffer, Buffer], names: set[str]
) -> tuple[Stmt, ...]:
    """A nest with one loop for two."""
    outer, inner = pair
    size = math.prod(x.extent for x in pair if isinstance(x.extent, int))
    var = Var(fresh(f"{outer.var.name}_{inner.var.name}", names))
    axes = []
    for x in nest.axes:
        if x is outer:
            axes.append(Axis(var, size))
        elif x is not inner:
            axes.append(Axis(x.var, x.extent))

    def fused(e: Expr) -> Expr:
        return Load(new.get(e.buffer, e.buffer), _at(e.indices)) if isinstance(e, Load) else e

    def _at(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(var if i == outer.var else i for i in indices if i != inner.var)

    buffer, indices = new.get(nest.buffer, nest.buffer), _at(nest.store.indices)
    stage = Stage(buffer, tuple(axes), indices, rewrite(nest.writes[-1].value, fused))
    if nest.update is not None:
        over = tuple(Axis(x.var, x.extent) for x in nest.reduce)
        first = rewrite(nest.store.value, fused)
        stage = stage.with_(reduce=over, op=nest.update.op, init=first)
    return stage_loops(stage)
