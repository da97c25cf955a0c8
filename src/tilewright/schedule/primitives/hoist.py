"""The primitive that does once what every iteration would do again: hoist."""

from __future__ import annotations

from tilewright.analyze.accesses import accesses
from tilewright.analyze.rewrite import uses
from tilewright.ir.expr import Buffer
from tilewright.ir.loop import Alloc, Block, buffers_written, expressions, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.loops import plain_loop
from tilewright.schedule.trace.steps import Loop


@primitive
def hoist(state: State, buffer: Buffer, loop: Loop) -> None:
    """Fills a buffer before a loop whose every iteration fills it with the same.

        for i: P = alloc([8]); for j: P[j] = X[j] * 2;  … P[…] …
    ->  P = alloc([8]); for j: P[j] = X[j] * 2
        for i: … P[…] …

    Legal when the loop's body allocates the buffer, statements there fill it, and neither these nor
    anything that they read changes from iteration to iteration.
    """
    target = plain_loop(state, loop)
    if Alloc(buffer) not in target.body:
        refuse(f"{loop} does not allocate {buffer.name} in its body", state)
    fill = tuple(s for s in target.body if buffer in buffers_written((s,)))
    if not fill:
        refuse(f"no statement writes {buffer.name}", state)
    inside = [e for s in walk_statements(fill) for e in expressions(s)]
    if any(target.var in variables(e) for e in inside):
        refuse(f"{buffer.name} is different in each iteration of {loop}", state)
    others = sorted(b.name for b in buffers_written(fill) - {buffer, *_allocated(fill)})
    if others:
        refuse(f"what computes {buffer.name} computes {', '.join(others)} as well", state)
    last = max(i for i, s in enumerate(target.body) if s in fill)
    before = (s for s in target.body[:last] if s not in fill and not isinstance(s, Alloc))
    if any(uses(s, buffer) for s in before):
        refuse(f"{buffer.name} is used before it is filled", state)
    read = {a.buffer for a in accesses(fill) if not a.writes} - {buffer, *_allocated(fill)}
    changed = read & (buffers_written(target.body) | {*_allocated((target,))})
    if changed:
        names = ", ".join(sorted(b.name for b in changed))
        refuse(f"{buffer.name} is computed of {names}, which the loop changes", state)
    kept = tuple(s for s in target.body if s not in fill and s != Alloc(buffer))
    state.replace(target, (Alloc(buffer), *fill, target.with_(body=kept)))


def _allocated(block: Block) -> list[Buffer]:
    return [s.buffer for s in walk_statements(block) if isinstance(s, Alloc)]
