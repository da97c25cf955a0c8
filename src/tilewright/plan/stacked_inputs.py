"""Inputs that are other arrays one after the other, as these arrays again: a sum of two arrays adds
up along an axis that both share, but nobody has to put them into one array for that.

    S_local[t, …] = S[t, …]    ->    S_local[0, …] = X[…];  S_local[1, …] = Y[…]

So a chip reads each where it lies, and an addition can follow what made its operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Expr, Load, constant_value
from tilewright.ir.loop import Call, Kernel, Stmt, map_block, map_exprs, map_inner_blocks
from tilewright.ir.substitute import rewrite, variables
from tilewright.ir.tensor_type import Layout
from tilewright.ops.movement import flatten_index, split_index
from tilewright.plan.borders import Border, Borders
from tilewright.plan.unit_form import MadeArray, UnitForm, made, one_of, sizes_of
from tilewright.plan.unit_plan import nest_with
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

Stacks = Mapping[str, tuple[str, ...]]  # by an input's name: the array at each place of its axis 0


def stacks_of(form: UnitForm) -> Stacks:
    """The inputs of a form that are other arrays one after the other. Arrays that the form reads
    besides, or in two inputs, are not counted."""
    found = {b.name: form.made[b.name].stacked for b in form.kernel.inputs if b.name in form.made}
    names = [n for several in found.values() for n in {*several}]
    names += [b.name for b in form.kernel.params]
    return {k: v for k, v in found.items() if v and all(names.count(n) == 1 for n in v)}


def bring_apart(s: Schedule, local: Buffer, name: str) -> list[Loop]:
    """Makes a nest for each of the arrays in a stacked input of that name, of the one that copies
    them to `local`; returns their outermost loops. ScheduleError where it does not copy all."""
    nest = nest_with(s, local)
    assert isinstance(nest.store.value, Load)
    at = nest.store.value.indices[0]
    over = [x for x in nest.axes if x.var in variables(at)]
    if len(over) != 1 or over[0].extent != sizes_of(s.buffer(name))[0]:
        raise ScheduleError(
            f"{local.name} does not have all parts of {name}",
            program=s.kernel,
            hint="a tile that adds up all of them does",
        )
    loop, others = Loop(over[0].var), [Loop(x.var) for x in nest.axes if x is not over[0]]
    s.reorder(loop, *others)
    parts = []
    while isinstance(n := s.for_(loop).extent, int) and n > 1:
        parts.append(s.peel(loop, 1))
    return [*parts, loop]


def order_of(places: np.ndarray, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of an array of this shape from outside inwards, of which the elements lie at these
    places; None where they are not at equal distances along each."""
    if places.size != math.prod(shape):
        return None
    held = places.reshape(shape)
    along = [np.moveaxis(held, d, 0)[:2].reshape(min(n, 2), -1)[:, 0] for d, n in enumerate(shape)]
    steps = [int(ends[-1] - ends[0]) for ends in along]
    at = np.tensordot(steps, np.indices(shape), 1)
    if not np.array_equal(held - held.flat[0], at):
        return None
    return tuple(sorted(range(len(shape)), key=lambda d: -steps[d]))


# ---------------------------------------------------------------- in programs


def with_sources(kernel: Kernel, stacks: Stacks) -> Kernel:
    """The kernel of the arrays that stacked inputs are made of. ScheduleError where an instruction
    takes two of them at once."""
    for name, sources in stacks.items():
        (stack,) = (b for b in kernel.inputs if b.name == name)
        if stack.shape[0] != len(sources):
            raise ScheduleError(
                f"{name} is filled up to {stack.shape[0]} parts, and is made of {len(sources)}",
                program=kernel,
                hint="a unit that takes one of them at a time does not need more",
            )
        parts = [stack.with_(name=n, shape=stack.shape[1:]) for n in sources]
        new = tuple(dict.fromkeys(parts))
        inputs = (x for b in kernel.inputs for x in (new if b == stack else (b,)))
        body = map_block(kernel.body, partial(_of_parts, stack=stack, parts=parts))
        kernel = kernel.with_(inputs=tuple(inputs), body=body)
    return kernel


def _of_parts(stmt: Stmt, stack: Buffer, parts: Sequence[Buffer]) -> Stmt:
    """A statement that reads the parts of a stacked array instead."""
    if isinstance(stmt, Call):
        return _call_of_parts(stmt, stack, parts)

    def read(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != stack:
            return e
        at = constant_value(e.indices[0])
        found = [Load(p, e.indices[1:]) for p in parts]
        return one_of(e.indices[0], found) if at is None else found[int(at)]

    stmt = map_exprs(stmt, lambda e: rewrite(e, read))
    inner = partial(_of_parts, stack=stack, parts=parts)
    return map_inner_blocks(stmt, lambda b: map_block(b, inner))


def _call_of_parts(call: Call, stack: Buffer, parts: Sequence[Buffer]) -> Stmt:
    """An instruction that brings one part. ScheduleError for one that takes several."""
    places = {constant_value(r.indices[0]) for r in call.regions if r.buffer == stack}
    if not places:
        return call
    (place, *others) = places
    if place is None or others:
        raise ScheduleError(
            f"one {call.instruction.name} takes several parts of {stack.name}",
            program=call,
            hint="each has a place of its own in memory",
        )
    (new,) = rewrite_accesses((call,), stack, parts[int(place)], lambda at: at[1:])
    return new


# ---------------------------------------------------------------- in forms


def form_of_sources(form: UnitForm, stacks: Stacks) -> UnitForm:
    """A form whose inputs are the arrays that stacked ones are made of."""
    arrays = {name: array for name, array in form.made.items() if name not in stacks}
    for b in form.kernel.inputs:
        if b.name in stacks:
            sources = form.made[b.name].program
            assert sources is not None
            shapes = {x.name: sizes_of(x) for x in sources.inputs}
            arrays |= dict(_parts(stacks[b.name], shapes, sizes_of(b)[1:], b))
    return replace(form, kernel=with_sources(form.kernel, stacks), made=arrays)


def _parts(
    names: tuple[str, ...], shapes: Mapping[str, tuple[int, ...]], shape: tuple[int, ...], b: Buffer
) -> Iterator[tuple[str, MadeArray]]:
    """Yields how arrays are made that have their elements in order, in another shape."""
    for name in names:
        source = Buffer(name, b.dtype, shapes[name])
        if shapes[name] == shape:
            continue

        def element(*at: Expr, source: Buffer = source) -> Expr:
            return Load(source, tuple(split_index(flatten_index(at, shape), source.shape)))

        yield name, made(name, shape, [source], element)


def layouts_of_sources(layouts: Mapping[str, Layout], stacks: Stacks) -> dict[str, Layout]:
    """The layouts of the arrays that stacked inputs are made of. ScheduleError where such an input
    does not have them one after the other in memory."""
    found = {name: x for name, x in layouts.items() if name not in stacks}
    for name in stacks:
        layout = layouts.get(name)
        if layout is None:
            continue
        if layout.order[0] != 0 or any(d == 0 for d, _ in layout.blocks):
            raise ScheduleError(
                f"{name} would have its parts mixed in memory", hint="another order would not"
            )
        part = Layout(
            tuple(d - 1 for d in layout.order[1:]), tuple((d - 1, n) for d, n in layout.blocks)
        )
        found |= dict.fromkeys(stacks[name], part)
    return found


def borders_of_sources(borders: Borders, stacks: Stacks) -> dict[str, Border]:
    """The borders of the arrays that stacked inputs are made of."""
    found = {name: x for name, x in borders.items() if name not in stacks}
    for name in stacks:
        if name in borders:
            part = replace(borders[name], before=borders[name].before[1:])
            found |= dict.fromkeys(stacks[name], part)
    return found
