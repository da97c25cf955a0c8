"""The primitive that turns loops into instructions: tensorize."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.rewrite import uses
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import (
    Alloc,
    Block,
    Call,
    For,
    Stmt,
    map_block,
    map_inner_blocks,
    walk_statements,
)
from tilewright.schedule.core.state import State, primitive, refuse
from tilewright.schedule.match.binding import MatchStage, Obstacles, perfect_nest, statements
from tilewright.schedule.match.cut_axes import Cutting, cost_of
from tilewright.schedule.match.match import Matcher
from tilewright.schedule.match.unify import meant
from tilewright.schedule.primitives.stages import blocks
from tilewright.schedule.trace.steps import Loop

WAYS = 8  # direct matches, besides those that come before `way`, that are ranked by cost
DEEPEST = 99  # progress of a match: further than any that fails at a value


@primitive
def tensorize(state: State, loop: Loop, instruction: Instruction, way: int = 0) -> None:
    """Replaces a loop nest by calls of an instruction that means the same.

        for i in 16: for j in 16: for k in 64: C[i, j] += A[i, k] * B[k, j]
    ->  for k_o in 4: gemm(A[_0, k_o*16 + _1], B[k_o*16 + _0, _1], C[_0, _1])

    The nest's loops are cut into the instruction's axes and put innermost where they are longer. If
    there are several ways to do that, they are numbered, those that need no cutting first, the
    cheapest of them before the others. Legal when what is then innermost matches
    the instruction's body: statements in order, loops one to one, values up to commutativity,
    operands in the right memory with the right strides, fields within their limits. An instruction
    of several nests takes those beside it, too.

    Fields are found from how often loops run, from steps and offsets of subscripts, from bounds of
    conditions and from numbers; they may depend on the loops around. Conditions on single loops
    make an axis shorter, and guarded reads match an instruction's own padding.
    """
    target = state.for_(loop)
    if way < 0:
        refuse(f"the ways are numbered from 0, and there is no number {way}", state)
    obstacles = Obstacles()
    found = _direct(state, target, instruction, way + WAYS, obstacles)
    if len(found) > 1:
        found.sort(key=lambda x: cost_of(x[1]))
    if way < len(found):
        _put(state, *found[way])
        return
    count = len(found)
    if way == 0:
        _check_nested(target, instruction, obstacles)
    known = {call for _, call in found}
    for outermost, call in Cutting(state, target, instruction, obstacles).calls():
        if call in known:
            continue
        if count == way:
            _put(state, (state.for_(outermost),), call)
            return
        known.add(call)
        count += 1
    if count:
        ways = "is 1 way" if count == 1 else f"are {count} ways"
        refuse(f"there {ways} to make {instruction.name} of {loop}, counted from 0", state)
    refuse(f"the nest of {loop} is no {instruction.name}: {obstacles}", state)


def _direct(
    state: State, target: For, instruction: Instruction, most: int, obstacles: Obstacles
) -> list[tuple[Block, Stmt]]:
    """Returns up to `most` distinct calls equivalent to the loop, or to it and adjacent statements
    if the instruction has several nests."""
    found: dict[Stmt, Block] = {}
    for window in _statement_windows(state, target, instruction):
        matcher = Matcher(instruction, state.simplifier)
        for call in matcher.calls(window):
            found.setdefault(call, window)
            if len(found) == most:
                break
        obstacles.join(matcher.obstacles)
    return [(window, call) for call, window in found.items()][:most]


def _statement_windows(state: State, target: For, instruction: Instruction) -> Iterator[Block]:
    """Yields the runs of statements around a loop that can be an instruction's, the longest first,
    each with the allocations of buffers that no other statement uses."""
    count = len(meant(instruction.body))
    if count == 1:
        yield (target,)
        return
    home = next(b for b in blocks(state.kernel.body) if any(s is target for s in b))
    rest = [s for s in home if not isinstance(s, Alloc)]
    here = next(k for k, s in enumerate(rest) if s is target)
    ends = ((start, start + n) for n in range(count, 0, -1) for start in range(here, here - n, -1))
    for start, stop in ends:
        if start < 0 or stop > len(rest):
            continue
        window, others = rest[start:stop], [*rest[:start], *rest[stop:]]
        own = [
            s
            for s in home
            if isinstance(s, Alloc) and not any(uses(other, s.buffer) for other in others)
        ]
        yield (*own, *window)


def _put(state: State, old: Block, new: Stmt) -> None:
    """Replaces the first statement of `old` by `new` and deletes the others; allocates dummy
    buffers for operands that the call does not use."""
    first = next(s for s in old if not isinstance(s, Alloc))
    gone = {id(s) for s in old if s is not first}

    def visit(stmt: Stmt) -> Stmt | None:
        if stmt is first:
            return new
        if id(stmt) in gone:
            return None
        return map_inner_blocks(stmt, lambda b: map_block(b, visit))

    state.set_body(map_block(state.kernel.body, visit))
    known = {*state.kernel.params, *state.allocations()}
    (call,) = (s for s in walk_statements((new,)) if isinstance(s, Call))
    for region in call.regions:
        if region.buffer not in known:
            known.add(region.buffer)
            state.set_body((Alloc(region.buffer), *state.kernel.body))


def _check_nested(target: For, instruction: Instruction, obstacles: Obstacles) -> None:
    """Says what is in the way of an instruction of one statement, if that is more than one."""
    nest, body = perfect_nest(target)
    _, wanted = perfect_nest(instruction.body[0])
    if len(statements(body)) > 1 and len(wanted) == 1:
        inside = f"inside {nest[-1].var} stand {len(statements(body))} statements"
        obstacles.add(MatchStage.VALUES, DEEPEST, f"its loops are not perfectly nested: {inside}")
