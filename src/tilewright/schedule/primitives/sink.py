"""The primitive that makes a nest perfect: sink."""

from __future__ import annotations

from tilewright.analyze.rewrite import uses
from tilewright.ir.expr import Buffer, Expr, as_expr
from tilewright.ir.loop import Alloc, Block, If
from tilewright.ir.substitute import variables
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.primitives.loops import plain_loop
from tilewright.schedule.trace.steps import Loop


@primitive
def sink(state: State, outer: Loop, inner: Loop) -> None:
    """Moves what stands around a loop into its first and its last iteration.

        for i: { A(i); for k in n: B(i, k); C(i) }
    ->  for i: for k in n: { if k == 0: A(i);  B(i, k);  if k == n - 1: C(i) }

    Then the two loops can be fused, and iterations of both overlapped. Always legal when the inner
    loop runs at least once, as often in every iteration, and stands directly in the outer one. A
    buffer that is allocated around it must be needed before or behind it only: multi_buffer moves
    others out.
    """
    target, loop = plain_loop(state, outer), plain_loop(state, inner)
    position = next((n for n, s in enumerate(target.body) if s is loop), None)
    if position is None:
        refuse(f"{inner} does not stand in the body of {outer}", state)
    extent = as_expr(loop.extent)
    if variables(extent) or not state.simplifier.proves(extent >= 1):
        refuse(f"{inner} runs {extent} times, which may be none or differ", state)
    before, after = target.body[:position], target.body[position + 1 :]
    allocated = [s for s in target.body if isinstance(s, Alloc)]
    sides = [_work(before), loop.body, _work(after)]
    for alloc in allocated:
        users = [side for side in sides if _uses(side, alloc.buffer)]
        if len(users) > 1 or sides[1] in users:  # iterations of the loop may share it
            refuse(
                f"{alloc.buffer.name} is needed in more than one iteration of {inner}",
                state,
                "multi_buffer moves it out of the loop",
            )
    body = (
        *allocated,
        *_under(loop.var.equals(0), sides[0]),
        *loop.body,
        *_under(as_expr(loop.var).equals(extent - 1), sides[2]),
    )
    state.replace(target, target.with_(body=(loop.with_(body=body),)))
    state.simplify_all()


def _work(block: Block) -> Block:
    return tuple(s for s in block if not isinstance(s, Alloc))


def _uses(block: Block, buffer: Buffer) -> bool:
    return any(uses(s, buffer) for s in block)


def _under(condition: Expr, block: Block) -> Block:
    """Each statement under the condition, on its own: a pipeline may put them in several stages."""
    return tuple(If(condition, (s,)) for s in block)
