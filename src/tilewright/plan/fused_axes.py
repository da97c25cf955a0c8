"""Neighbouring axes as one: for units that take their rows from a memory outside, where a call
cannot go beyond the end of an axis, or a number of rows that lines of pictures do not fill; for
tiles of registers, which fill the rows of a whole picture where they leave a rest of each line; and
for vectors along what a reduction keeps, of which the last axis may have few elements.

    for y, x, o:                                     for y_x, o:
      for k:                                   ->      for k:
        Y[y, x, o] += X[y, x, k] * W[o, k]               Y[y_x, o] += X[y_x, k] * W[o, k]

Arrays are as they were, element by element.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.analyze.nests import Nest, nests
from tilewright.analyze.rewrite import simplify_block
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Buffer, Dim, Expr, Load, Var
from tilewright.ir.loop import Alloc, For, Kernel, Stmt, loads, map_block, walk_statements
from tilewright.ir.substitute import rewrite, variables
from tilewright.ir.tensor import Axis, Stage
from tilewright.ir.tensor_type import Layout
from tilewright.plan.create_loops import stage_loops
from tilewright.plan.diagonal import without_single_terms
from tilewright.plan.unit_form import MadeArray, UnitForm, composed, fresh, made, sizes_of
from tilewright.plan.units import is_row, units
from tilewright.target.target import Target


def wants_long_axes(target: Target) -> bool:
    """Whether a unit reads its operands where parameters lie, or takes a number of rows that lines
    of pictures rarely are a multiple of."""
    for unit in units(target):
        (*rows,) = (v for v in unit.fixed if is_row(unit, v))
        fixed = any(isinstance(n := unit.loops[v].extent, int) and n > 1 for v in rows)
        if fixed or target.memory(unit.left.buffer.memory).size is None:
            return True
    return False


def fused_form(form: UnitForm) -> UnitForm | None:
    """A form with axes of its result as one wherever all that it reads and writes has them next to
    each other, or is made by the host in any order; None where nothing can be."""
    found = replace(form, kernel=_simplified(form.kernel))
    count = 0
    while (pair := _next_pair(found)) is not None:
        found = composed(found, _with_one_axis(found.kernel, pair))
        count += 1
    return found if count else None


@dataclass(frozen=True)
class FusedKernel:
    """A kernel with axes as one, and in which places the parameters had them, step by step. Every
    array has the same elements in the same places of memory."""

    kernel: Kernel
    steps: tuple[Mapping[str, Places], ...]

    def fuse_layouts(self, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
        """The layouts of the fused parameters, of those of the kernel that was."""
        found = dict(layouts)
        for places in self.steps:
            for name in places.keys() & found.keys():
                found[name] = _without_axis(found[name], places[name][1])
        return found

    def split_layout(self, name: str, layout: Layout) -> Layout | None:
        """The layout of a parameter of the kernel that was, of that of the fused one; None where an
        axis that became one is cut into blocks."""
        for places in reversed(self.steps):
            if name in places:
                if any(axis == places[name][0] for axis, _ in layout.blocks):
                    return None
                layout = _with_axis(layout, places[name][1])
        return layout


def fuse_rows(kernel: Kernel, layouts: Mapping[str, Layout]) -> FusedKernel | None:
    """A kernel that reduces with axes of its result as one, wherever they are neighbours in all
    that it reads and writes; `layouts` says how parameters lie. None where nothing can be."""
    if not any(n.update is not None for n in nests(kernel.body)):
        return None
    found, arranged, steps = _simplified(kernel), dict(layouts), list[Mapping[str, Places]]()
    while (pair := _next_pair(UnitForm(found), arranged)) is not None:
        steps.append({b.name: d for b, d in pair.axes.items() if b in found.params})
        found, _ = _fused_kernel(found, pair)
        arranged = FusedKernel(found, (steps[-1],)).fuse_layouts(arranged)
    return FusedKernel(found, tuple(steps)) if steps else None


def _without_axis(layout: Layout, axis: int) -> Layout:
    """The layout of an array of which an axis is a part of the one before."""
    order = (a - (a > axis) for a in layout.order if a != axis)
    return Layout(tuple(order), tuple((a - (a > axis), n) for a, n in layout.blocks))


def _with_axis(layout: Layout, axis: int) -> Layout:
    """The layout of an array with an axis of its own that was a part of the one before."""
    order = [a + (a >= axis) for a in layout.order]
    order.insert(order.index(axis - 1) + 1, axis)
    return Layout(tuple(order), tuple((a + (a >= axis), n) for a, n in layout.blocks))


def _are_neighbours(places: Places, layout: Layout | None) -> bool:
    """Whether elements along two axes lie in memory as along one."""
    first, second = places
    if second != first + 1 or layout is None:
        return second == first + 1
    at = layout.order.index(first)
    whole = all(axis not in places for axis, _ in layout.blocks)
    return whole and layout.order[at : at + 2] == places


def _simplified(kernel: Kernel) -> Kernel:
    """The kernel without loops of one iteration and conditions that always hold."""
    kernel = kernel.with_(body=map_block(kernel.body, without_single_terms))
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    simplifier = Simplifier({x.var: x.extent for x in loops}, keep_units=True)
    return kernel.with_(body=simplify_block(kernel.body, simplifier))


Places = tuple[int, int]  # of two axes, of which the second becomes a part of the first


@dataclass
class _Pair:
    """Two axes of arrays, and the loops that go along them in each nest."""

    axes: dict[Buffer, Places] = field(default_factory=dict)
    loops: dict[int, tuple[For, For]] = field(default_factory=dict)  # by the number of the nest


def _next_pair(form: UnitForm, layouts: Mapping[str, Layout] | None = None) -> _Pair | None:
    """The innermost axes of the result that can be one; `layouts` says how parameters lie."""
    kernel = form.kernel
    every = nests(kernel.body)
    if len(kernel.outputs) != 1 or any(not _is_perfect(n) for n in every):
        return None
    (result,) = kernel.outputs
    told = layouts or {}
    fixed = {
        b: told.get(b.name) for b in kernel.params if b.name not in {**form.made, **form.results}
    }
    pairs = itertools.combinations(reversed(range(len(result.shape))), 2)
    ways = (_follow(fixed, every, result, (outer, inner)) for inner, outer in pairs)
    return next((found for found in ways if found is not None), None)


def _is_perfect(nest: Nest) -> bool:
    """Whether a nest stores, or begins and adds up."""
    return len(nest.writes) == 1 + (nest.update is not None)


def _follow(
    fixed: Mapping[Buffer, Layout | None], every: Sequence[Nest], buffer: Buffer, places: Places
) -> _Pair | None:
    """All axes and loops that have to be one if two axes of a buffer are; None where some cannot
    be: those of a parameter that is as it is have to be neighbours."""
    found = _Pair()
    left = [(buffer, places)]
    while left:
        buffer, places = left.pop()
        apart = buffer in fixed and not _are_neighbours(places, fixed[buffer])
        if found.axes.setdefault(buffer, places) != places or apart:
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
    """The loops that go through the whole of two axes of an access, whose sizes are known."""
    loops = {x.var: x for x in nest.axes}
    found = [loops.get(i) for d in places if isinstance(i := access.indices[d], Var)]
    sizes = tuple(access.buffer.shape[d] for d in places)
    if len(found) < len(places):
        return None
    outer, inner = found
    if outer is None or inner is None or outer is inner:
        return None
    known = all(isinstance(n, int) for n in sizes)
    return (outer, inner) if known and (outer.extent, inner.extent) == sizes else None


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


def _with_one_axis(kernel: Kernel, pair: _Pair) -> UnitForm:
    """The kernel with those axes as one, and how arrays are made."""
    fused, new = _fused_kernel(kernel, pair)
    arrays = {b.name: _as_one(b, new[b], pair.axes[b]) for b in kernel.inputs if b in new}
    results = {b.name: _apart(b, new[b], pair.axes[b]) for b in kernel.outputs if b in new}
    return UnitForm(fused, arrays, results)


def _fused_kernel(kernel: Kernel, pair: _Pair) -> tuple[Kernel, dict[Buffer, Buffer]]:
    """The kernel with those axes as one, and its new buffers."""
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


def _as_one(old: Buffer, new: Buffer, places: Places) -> MadeArray:
    """How an array with two axes as one is made."""
    first, second = places
    inner = sizes_of(old)[second]
    one = first - (second < first)  # where it is, once there is no second axis

    def value(*at: Expr) -> Expr:
        index = [*at]
        index[one] = at[one] // inner
        index.insert(second, at[one] % inner)
        return Load(old, tuple(index))

    fused = made(f"{old.name}_fused", sizes_of(new), [old], value)
    return replace(fused, rest_is_unused=True)  # there is none


def _apart(old: Buffer, new: Buffer, places: Places) -> MadeArray:
    """How a result is made of one with two axes as one."""
    first, second = places
    inner = sizes_of(old)[second]

    def value(*at: Expr) -> Expr:
        index = [*at]
        index[first] = at[first] * inner + at[second]
        del index[second]
        return Load(new, tuple(index))

    return made(f"{old.name}_apart", sizes_of(old), [new], value)


def _joined(shape: Sequence[Dim], places: Places) -> tuple[Dim, ...]:
    first, second = places
    sizes = [*shape]
    sizes[first] = math.prod(n for d in places if isinstance(n := sizes[d], int))
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
