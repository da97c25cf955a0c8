"""The primitive that leaves out what only adds zeros: skip_zeros."""

from __future__ import annotations

from tilewright.analyze.conditions import at_least_zero, is_place
from tilewright.analyze.linear import Linear, add, constant, to_expr
from tilewright.analyze.nests import without_casts
from tilewright.base.dtype import f32, f64
from tilewright.ir.expr import Binary, BinaryOp, Cast, Expr, Load, Select, Var, all_of, const
from tilewright.ir.loop import Accumulate, For, If, LoopKind, Store, walk_statements
from tilewright.ir.substitute import substitute, variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.stages import definition, nest_loops
from tilewright.schedule.trace.steps import Loop


@primitive
def skip_zeros(state: State, loop: Loop) -> None:
    """Leaves out the iterations of a loop that only add products with padding.

        P = alloc([9]); for h: P[h] = select(1 <= h and h < 8, X[h - 1], 0)
        for k in 3: for c: C[y] += P[y + k] * W[k, c]
    ->  for k in 3: if 1 <= y + k and y + k < 8: for c: C[y] += P[y + k] * W[k, c]

    Legal when the loop does nothing but add products of padded elements with integers, or with
    elements of parameters that are known to be finite: 0 times infinity is not 0.
    """
    target = state.for_(loop)
    for around in (*state.loops_around(target), target):
        if around.kind is LoopKind.VECTORIZE:
            refuse(f"the lanes of {around.var} take part together", state, "skip_zeros comes first")
    inner = [x for x in walk_statements(target.body) if not isinstance(x, For)]
    added = inner[0] if len(inner) == 1 else None
    if not isinstance(added, Accumulate) or added.op is not BinaryOp.ADD:
        refuse(f"{loop} does more than add to one buffer", state)
    if not isinstance(added.value, Binary) or added.value.op is not BinaryOp.MUL:
        refuse(f"{loop} adds {added.value}, which is no product", state)
    a, b = added.value.a, added.value.b
    for padded, other in ((a, b), (b, a)):
        needed = _conditions(state, target, padded)
        if needed:
            _check_finite(state, other)
            state.replace(target, target.with_(body=(If(all_of(*needed), target.body),)))
            state.simplify_all()
            return
    refuse(f"no iteration of {loop} adds nothing but padding", state)


def _conditions(state: State, loop: For, e: Expr) -> list[Expr]:
    """What must hold, for an iteration of a loop, if it is to read anything but padding."""
    read = without_casts(e)
    inside = _inside(state, read) if isinstance(read, Load) else []
    found = []
    within = {x.var for x in walk_statements(loop.body) if isinstance(x, For)}
    for form in inside:
        linear = state.simplifier.linear(form)
        if not any(atom is not None and loop.var in variables(atom) for atom in linear):
            continue
        most = _greatest(state, linear, within)
        if most is not None and not state.simplifier.proves(most >= 0):
            found.append(state.simplifier(most >= 0))
    return found


def _greatest(state: State, linear: Linear, within: set[Var]) -> Expr | None:
    """The most that a linear form comes to in all iterations of some loops."""
    moving: Linear = {
        atom: n for atom, n in linear.items() if atom is not None and variables(atom) & within
    }
    most = state.simplifier.range(moving)[1]
    if most is None:
        return None
    rest = {atom: n for atom, n in linear.items() if atom not in moving}
    return to_expr(add(rest, constant(most)))


def _inside(state: State, read: Load) -> list[Expr]:
    """Expressions that are 0 or more wherever a read is not one of zeros around something; none if
    its buffer is not known to have any."""
    if read.buffer in state.kernel.params:
        return []
    loops, body = nest_loops(definition(state, read.buffer).nest)
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store) or not isinstance(store.value, Select):
        return []
    value, axes = store.value, {x.var for x in loops}
    if store.mask is not None or value.b != const(0, value.dtype) or not is_place(value.cond):
        return []
    at = zip(store.indices, read.indices, strict=True)
    places = {i: place for i, place in at if isinstance(i, Var)}
    forms = at_least_zero(value.cond) or []
    return [substitute(f, places) for f in forms if variables(f) & axes <= set(places)]


def _check_finite(state: State, e: Expr) -> None:
    """A read of integers or finite elements, perhaps as a type that has no fewer numbers."""
    while isinstance(e, Cast) and (e.dtype.is_integer or (e.dtype == f32 and e.a.dtype != f64)):
        e = e.a
    if not isinstance(e, Load):
        refuse(f"{e} may be infinite, and 0 times infinity is not 0", state)
    if e.buffer.dtype.is_float and e.buffer.name not in state.kernel.finite:
        refuse(f"{e.buffer.name} may hold infinities, and 0 times infinity is not 0", state)
