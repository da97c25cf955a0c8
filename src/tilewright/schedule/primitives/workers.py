"""The primitive `bind`: loops as the workers of an axis of the target."""

from __future__ import annotations

from tilewright.analyze.dependence import conflict
from tilewright.ir.loop import Bound, For, LoopKind, walk_statements
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.loops import plain_loop
from tilewright.schedule.trace.steps import Loop


@primitive
def bind(state: State, loop: Loop, axis: str) -> None:
    """Makes the iterations of a loop the workers of an axis, such as "thread" or "core".

        for i in n: S(i)   ->   for i in bind(n, axis): S(i)

    Legal when the iterations touch different elements (buffers allocated in the body are each
    worker's own). Loops bound to one axis, one behind the other, are run by the same workers, who
    may share a buffer allocated outside: the barriers between them follow from what they touch
    (lower/place_barriers.py). The axes of a kernel are nested in one order.
    """
    target = plain_loop(state, loop)
    around = state.loops_around(target)
    inner = [s for s in walk_statements(target.body) if isinstance(s, For)]
    if not axis:
        refuse("the axis has no name", state, 'for example "thread"')
    for other in (*around, *inner):
        if other.axis == axis:
            refuse(f"{loop} is inside or around {other.var}, which is bound to {axis}", state)
    if any(s.kind is LoopKind.VECTORIZE for s in around):
        refuse(f"{loop} stands in a vector loop", state)
    parallel = next((s for s in inner if s.kind is LoopKind.PARALLEL), None)
    if parallel is not None:
        refuse(f"parallel loop {parallel.var} would stand in a bound loop", state)
    pair = conflict(target.body, target.var, state.simplifier, concurrent=True)
    if pair is not None:
        refuse(f"the iterations of {loop} are not independent: {pair}", state)
    _check_order(state, axis, {s.axis for s in around}, {s.axis for s in inner})
    state.replace(target, target.with_(kind=Bound(axis)))


def _check_order(state: State, axis: str, outer: set[str | None], inner: set[str | None]) -> None:
    """No axis stands in another one here, and around it elsewhere."""
    for s in walk_statements(state.kernel.body):
        if not isinstance(s, For) or s.axis is None:
            continue
        inside = {x.axis for x in walk_statements(s.body) if isinstance(x, For)}
        if (s.axis == axis and inside & outer - {None}) or (s.axis in inner and axis in inside):
            other = (inside & outer - {None}).pop() if s.axis == axis else s.axis
            what = f"{axis} and {other} are nested the other way in loop {s.var}"
            refuse(what, state, "the axes of a kernel are nested in one order")
