"""The primitive that turns loops into instructions: tensorize."""

from __future__ import annotations

from tilewright.ir.instruction import Instruction
from tilewright.schedule.match import Matcher
from tilewright.schedule.state import Loop, State, primitive, refuse


@primitive
def tensorize(state: State, loop: Loop, instruction: Instruction) -> None:
    """Replaces a loop nest by one call of an instruction that means the same.

        for i in 16: for j in 16: for k in 16: C[i, j] += A[i, k] * B[k, j]
    ->  gemm(A[_0, _1], B[_0, _1], C[_0, _1])

    Legal when the nest matches the instruction's body: loops one to one, values up to
    commutativity, operands in the right memory with the right strides, fields within their limits.
    """
    target = state.for_(loop)
    matcher = Matcher(instruction, state.simplifier)
    call = next(matcher.calls((target,)), None)
    if call is None:
        reasons = "; ".join(matcher.reasons[-3:]) or "nothing fits"
        refuse(f"the nest of {loop} is no {instruction.name}: {reasons}", state)
    state.replace(target, call)
