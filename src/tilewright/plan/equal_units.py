"""Equal units, each behind a queue of its own: calls of one are shared out among all of them.

    for i in 8: for k in 4: cube_0(A[i, k], B[k], C[i])
->  for i in 4: for k in 4: cube_0(A[2*i, k], B[k], C[2*i]); cube_1(A[2*i + 1, k], B[k], C[2*i + 1])

They take turns from call to call, so that none waits for room in its queue while another is idle.
What they share out is results: a sum stays with one of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import Expr, const
from tilewright.ir.instruction import Instruction, Region
from tilewright.ir.loop import Block, Call, For, Kernel, Stmt, buffers_written, map_block
from tilewright.ir.loop import map_inner_blocks as map_inner
from tilewright.ir.substitute import substitute, variables
from tilewright.target.pairs import selectable
from tilewright.target.target import Target


def equal_instructions(target: Target, one: Instruction) -> list[Instruction]:
    """An instruction, and those of other queues that are the same but for their names, if those
    queues can wait for the same others."""

    def meaning(i: Instruction) -> Instruction:
        pair = None if i.pair is None else tuple(map(meaning, i.pair))
        return i.with_(name="", queue="", doc="", file="", lines=(), pair=pair)

    def links(queue: str, other: str) -> set[str]:
        return {*target.waits_for(queue)} - {queue, other}

    alike = [
        i
        for i in selectable(target)
        if meaning(i) == meaning(one) and links(i.queue, one.queue) == links(one.queue, i.queue)
    ]
    found = {i.queue: i for i in reversed(alike)}
    return [one, *(i for queue, i in reversed(found.items()) if queue != one.queue)]


def share_calls(kernel: Kernel, target: Target, unit: Instruction) -> Kernel:
    """The kernel whose calls of a unit are shared out among all that are equal to it, nest by
    nest, where its results can be."""
    several = equal_instructions(target, unit)
    if len(several) == 1:
        return kernel

    def visit(stmt: Stmt) -> Stmt | Block:
        loops, call = _nest(stmt)
        if call is not None and call.instruction == unit:
            return _shared(loops, call, several)
        return map_inner(stmt, lambda block: map_block(block, visit))

    return kernel.with_(body=map_block(kernel.body, visit))


def _nest(stmt: Stmt) -> tuple[list[For], Call | None]:
    """Loops that stand alone in each other around a call; None for anything else."""
    loops: list[For] = []
    while isinstance(stmt, For) and len(stmt.body) == 1:
        loops.append(stmt)
        stmt = stmt.body[0]
    return loops, stmt if isinstance(stmt, Call) else None


def _shared(loops: Sequence[For], call: Call, several: Sequence[Instruction]) -> Block:
    """A nest whose iterations go to equal instructions in turn: as many of one loop, or of several,
    as there are instructions; where no loops have so many, those of the loop that leaves fewest
    idle, and what is left of it behind them. The nest itself where that is one iteration."""
    written = buffers_written((call,))
    moving = {
        v
        for region in call.regions
        if region.buffer in written
        for i in region.indices
        for v in variables(i)
    }
    counts = [x.extent if x.var in moving and isinstance(x.extent, int) else 1 for x in loops]
    factors, left = [], len(several)
    for n in counts:
        factors.append(math.gcd(left, n))
        left //= factors[-1]
    if left == 1:
        return _in_turn(loops, factors, call, several)
    k = int(np.argmax(at_once(np.array(counts), len(several))))
    if counts[k] == 1:
        return _around(loops, (call,))
    return _around(loops[:k], _parts(loops[k], loops[k + 1 :], call, several))


def at_once(results: np.ndarray, units: int) -> np.ndarray:
    """How many of so many equal units work at a time, where each does one result after another."""
    return np.asarray(results / -(-results // units))


def _parts(loop: For, inner: Sequence[For], call: Call, several: Sequence[Instruction]) -> Block:
    """A loop's iterations in whole turns of all instructions, and what is left of them."""
    assert isinstance(loop.extent, int)
    whole, rest = divmod(loop.extent, len(several))
    block: Block = ()
    if whole:
        turns = loop.with_(extent=whole * len(several))
        block = _in_turn((turns, *inner), [len(several), *(1 for _ in inner)], call, several)
    if rest:
        last = _renamed(call, {loop.var: loop.var + whole * len(several)})
        one = loop.with_(extent=rest)
        block += _in_turn((one, *inner), [rest, *(1 for _ in inner)], last, several)
    return block


def _in_turn(
    loops: Sequence[For], factors: Sequence[int], call: Call, several: Sequence[Instruction]
) -> Block:
    """A nest of which so many iterations of each loop are calls beside each other."""
    calls = []
    for n, turn in enumerate(itertools.product(*map(range, factors))):
        names: dict[Expr, Expr] = {
            x.var: x.var * f + t if f > 1 else x.var
            for x, f, t in zip(loops, factors, turn, strict=True)
        }
        calls.append(_renamed(call, names).with_(instruction=several[n]))
    shorter = [
        x.with_(extent=x.extent // f) if isinstance(x.extent, int) else x
        for x, f in zip(loops, factors, strict=True)
    ]
    return _around([x for x in shorter if x.extent != 1], _without_single(shorter, calls))


def _without_single(loops: Sequence[For], calls: Sequence[Call]) -> Block:
    """Calls where loops of one iteration are at their start."""
    once: dict[Expr, Expr] = {x.var: const(0) for x in loops if x.extent == 1}
    return tuple(_renamed(call, once) for call in calls)


def _renamed(call: Call, names: dict[Expr, Expr]) -> Call:
    regions = tuple(
        Region(r.buffer, tuple(substitute(i, names) for i in r.indices)) for r in call.regions
    )
    return call.with_(regions=regions, fields=tuple(substitute(e, names) for e in call.fields))


def _around(loops: Sequence[For], body: Block) -> Block:
    for loop in reversed(loops):
        body = (loop.with_(body=body),)
    return body
