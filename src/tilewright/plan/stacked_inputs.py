"""Inputs that are other arrays one after the other, as these arrays again: a sum of two arrays adds
up along an axis that both share, but nobody has to put them into one array for that.

    S_local[t, …] = S[t, …]    ->    S_local[0, …] = X[…];  S_local[1, …] = Y[…]

So a chip reads each where it lies, and an addition can follow what made its operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilewright.analyze.accesses import accesses
from tilewright.analyze.rewrite import rewrite_accesses
from tilewright.analyze.simplify import Simplifier
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Buffer, Expr, Load, Var, const, constant_value
from tilewright.ir.instruction import axis
from tilewright.ir.loop import Call, Kernel, Stmt, map_block, map_exprs, map_inner_blocks
from tilewright.ir.substitute import rewrite, substitute, variables
from tilewright.ir.tensor import stages
from tilewright.ir.tensor_type import Layout
from tilewright.plan.borders import Border, Borders
from tilewright.plan.unit_form import MadeArray, Stack, UnitForm, made, one_of, sizes_of
from tilewright.plan.unit_plan import nest_with
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace.steps import Loop

Stacks = Mapping[str, Stack]  # by an input's name


def stacks_of(form: UnitForm) -> Stacks:
    """The inputs of a form that are other arrays one after the other. Arrays that the form reads
    besides, or in two inputs, are not counted."""
    made_ = ((b.name, form.made[b.name].stacked) for b in form.kernel.inputs if b.name in form.made)
    found = {name: stack for name, stack in made_ if stack is not None}
    names = [n for stack in found.values() for n in {*stack.names}]
    names += [b.name for b in form.kernel.params]
    return {k: x for k, x in found.items() if all(names.count(n) == 1 for n in x.names)}


def stacks_in(stacks: Stacks, layouts: Mapping[str, Layout]) -> Stacks:
    """The same of inputs as they lie in memory. ScheduleError where blocks have elements of several
    parts."""
    found = {}
    for name, stack in stacks.items():
        layout = layouts.get(name, Layout(tuple(range(stack.axis + 1))))
        if any(d == stack.axis for d, _ in layout.blocks):
            raise ScheduleError(
                f"{name} would have its parts mixed in memory", hint="another order would not"
            )
        found[name] = replace(stack, axis=layout.order.index(stack.axis))
    return found


def bring_apart(s: Schedule, local: Buffer, stack: Stack) -> list[Loop]:
    """Makes a nest for each of the arrays in a stacked input, of the one that copies them to
    `local`; returns their outermost loops. ScheduleError where it does not copy all."""
    nest = nest_with(s, local)
    assert isinstance(nest.store.value, Load)
    at = nest.store.value.indices[stack.axis]
    over = [x for x in nest.axes if x.var in variables(at)]
    if len(over) != 1 or over[0].extent != stack.extent:
        raise ScheduleError(
            f"{local.name} does not have all parts of {' and '.join(dict.fromkeys(stack.names))}",
            program=s.kernel,
            hint="a tile that adds up all of them does",
        )
    loop, others = Loop(over[0].var), [Loop(x.var) for x in nest.axes if x is not over[0]]
    inner = []
    if stack.run > 1:
        loop, within = s.split(loop, stack.run)
        inner = [within]
    s.reorder(loop, *inner, *others)
    parts = []
    while isinstance(n := s.for_(loop).extent, int) and n > 1:
        parts.append(s.peel(loop, 1))
    return [*parts, loop]


def as_in_part(places: np.ndarray, part: MadeArray | None) -> np.ndarray:
    """Where the elements of a part lie, by places of those of its source, of which it is made; -1
    for what it has beside them."""
    if part is None or part.program is None:
        return places
    return np.where(part.numbers < 0, -1, places.reshape(-1)[part.numbers])


# ---------------------------------------------------------------- in programs


def with_sources(kernel: Kernel, stacks: Stacks) -> Kernel:
    """The kernel of the arrays that stacked inputs are made of. ScheduleError where an instruction
    takes two of them at once."""
    for name, stack in stacks.items():
        (whole,) = (b for b in kernel.inputs if b.name == name)
        if whole.shape[stack.axis] != stack.extent:
            raise ScheduleError(
                f"{name} is filled up to {whole.shape[stack.axis]} along axis {stack.axis}, and"
                f" its parts are {stack.extent}",
                program=kernel,
                hint="a unit that takes one of them at a time does not need more",
            )
        shape = stack.part(whole.shape, stack.run)
        parts = [whole.with_(name=n, shape=shape) for n in stack.names]
        new = tuple(dict.fromkeys(parts))
        inputs = (x for b in kernel.inputs for x in (new if b == whole else (b,)))
        body = map_block(kernel.body, partial(_of_parts, whole=whole, stack=stack, parts=parts))
        kernel = kernel.with_(inputs=tuple(inputs), body=body)
    return kernel


def _of_parts(stmt: Stmt, whole: Buffer, stack: Stack, parts: Sequence[Buffer]) -> Stmt:
    """A statement that reads the parts of a stacked array instead."""
    if isinstance(stmt, Call):
        return _call_of_parts(stmt, whole, stack, parts)

    def read(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != whole:
            return e
        at = e.indices[stack.axis]
        known = constant_value(at)
        if known is not None:
            k, within = divmod(int(known), stack.run)
            return Load(parts[k], stack.part(e.indices, const(within)))
        found = [Load(p, stack.part(e.indices, at % stack.run)) for p in parts]
        return one_of(at // stack.run if stack.run > 1 else at, found)

    stmt = map_exprs(stmt, lambda e: rewrite(e, read))
    inner = partial(_of_parts, whole=whole, stack=stack, parts=parts)
    return map_inner_blocks(stmt, lambda b: map_block(b, inner))


def _call_of_parts(call: Call, whole: Buffer, stack: Stack, parts: Sequence[Buffer]) -> Stmt:
    """An instruction that brings one part. ScheduleError for one that takes several."""
    touched = [a for a in accesses((call,)) if a.buffer == whole]
    if not touched:
        return call
    simplifier = Simplifier({x.var: x.extent for a in touched for x in a.loops})
    ends = [n for a in touched for n in simplifier.bounds(a.indices[stack.axis])]
    of = {None if n is None else n // stack.run for n in ends}
    (k, *others) = of
    if k is None or others:
        raise ScheduleError(
            f"one {call.instruction.name} takes several parts of {whole.name}",
            program=call,
            hint="each has a place of its own in memory",
        )
    # Steps along outer axes are others in a part, and the instruction has those of the whole.
    inside = {axis(n) for n in range(max(len(x.shape) for x in call.instruction.operands))}
    regions = [r for r in call.regions if r.buffer == whole]
    if any(variables(i) & inside for r in regions for i in r.indices[: stack.axis]):
        raise ScheduleError(
            f"one {call.instruction.name} takes places of {whole.name} that lie around its parts",
            program=call,
            hint="in an order in which the parts are outermost it would not",
        )
    first = k * stack.run

    def place(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return stack.part(at, simplifier(at[stack.axis] - first))

    (new,) = rewrite_accesses((call,), whole, parts[k], place)
    return new


# ---------------------------------------------------------------- in forms


def form_of_sources(form: UnitForm, stacks: Stacks) -> UnitForm:
    """A form whose inputs are the arrays that stacked ones are made of."""
    arrays = {name: array for name, array in form.made.items() if name not in stacks}
    for name, stack in stacks.items():
        arrays |= parts_of(form.made[name], stack)
    return replace(form, kernel=with_sources(form.kernel, stacks), made=arrays)


def parts_of(array: MadeArray, stack: Stack) -> dict[str, MadeArray]:
    """How the parts of an array are made, each of one of its sources; those that are as these are
    left out."""
    assert array.program is not None
    (stage,) = stages(array.program.items)
    sources = {b.name: b for b in array.program.inputs}
    shape = stack.part(tuple(int(a.extent) for a in stage.axes), stack.run)
    found = {}
    for k, name in enumerate(stack.names):

        def element(*at: Expr, k: int = k) -> Expr:
            within = at[stack.axis] if stack.run > 1 else const(0)
            before, after = at[: stack.axis], at[stack.axis + (stack.run > 1) :]
            places = (*before, within + k * stack.run, *after)
            names = dict(zip((a.var for a in stage.axes), places, strict=True))
            known = {v: n for v, n in zip(at, shape, strict=True) if isinstance(v, Var)}
            return Simplifier(known)(substitute(stage.value, names))

        part = made(name, shape, [sources[name]], element)
        if not (part.keeps_order and shape == sizes_of(sources[name])):
            found[name] = part
    return found


def layouts_of_sources(layouts: Mapping[str, Layout], stacks: Stacks) -> dict[str, Layout]:
    """The layouts of the arrays that stacked inputs are made of."""
    found = {name: x for name, x in layouts.items() if name not in stacks}
    for name, stack in stacks.items():
        if name in layouts:
            found |= dict.fromkeys(stack.names, _layout_of_part(layouts[name], stack))
    return found


def _layout_of_part(layout: Layout, stack: Stack) -> Layout:
    if stack.run > 1:
        return layout
    gone = stack.axis
    return Layout(
        tuple(d - (d > gone) for d in layout.order if d != gone),
        tuple((d - (d > gone), n) for d, n in layout.blocks),
    )


def borders_of_sources(borders: Borders, stacks: Stacks) -> dict[str, Border]:
    """The borders of the arrays that stacked inputs are made of."""
    found = {name: x for name, x in borders.items() if name not in stacks}
    for name, stack in stacks.items():
        if name in borders:
            before = stack.part(borders[name].before, 0)
            found |= dict.fromkeys(stack.names, replace(borders[name], before=before))
    return found
