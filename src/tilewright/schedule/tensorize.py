"""The primitive that turns loops into instructions: tensorize."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Buffer, Symbol, as_expr, constant_value
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Call, For, Write, walk_statements
from tilewright.ir.substitute import variables
from tilewright.schedule.loops import reorder, split
from tilewright.schedule.match import Matcher, Pairs, Stage, perfect_nest
from tilewright.schedule.state import Loop, State, primitive, refuse


@primitive
def tensorize(state: State, loop: Loop, instruction: Instruction, way: int = 0) -> None:
    """Replaces a loop nest by calls of an instruction that means the same.

        for i in 16: for j in 16: for k in 64: C[i, j] += A[i, k] * B[k, j]
    ->  for k_o in 4: gemm(A[_0, k_o*16 + _1], B[k_o*16 + _0, _1], C[_0, _1])

    The nest's loops are cut into the instruction's axes and put innermost where they are longer. If
    there are several ways to do that, they are numbered, the cheapest first. Legal when what is
    then innermost matches the instruction's body: loops one to one, values up to commutativity,
    operands in the right memory with the right strides, fields within their limits.
    """
    target = state.for_(loop)
    if way < 0:
        refuse(f"the ways are numbered from 0, and there is no number {way}", state)
    matcher = Matcher(instruction, state.simplifier)
    found = sorted(_distinct(matcher.calls((target,)), way + WAYS), key=_cycles)
    if way < len(found):
        state.replace(target, found[way])
        return
    obstacle, count = matcher.obstacle, len(found)
    nest, body = perfect_nest(target)
    if len(body) > 1 and len(perfect_nest(instruction.body[0])[1]) == 1:
        inside = f"inside {nest[-1].var} stand {len(body)} statements"
        obstacle = Stage.LOOPS, f"its loops are not perfectly nested: {inside}"
    before = state.kernel
    for mapping in mappings(state, target, instruction):
        for cut in _cuts(mapping, instruction):
            refusal = _apply(state, target, cut, instruction)
            if refusal is None and count == way:
                return
            if refusal is None:
                state.kernel = before
                count += 1
                break
            obstacle = max(obstacle, refusal, key=lambda r: r[0])
    if count:
        refuse(f"there are {count} ways to make {instruction.name} of {loop}, from 0", state)
    refuse(f"the nest of {loop} is no {instruction.name}: {obstacle[1]}", state)


def _cycles(call: Call) -> int:
    """What a call costs, as far as its fields are known: bytes count as cycles."""
    instruction = call.instruction
    fields = zip(instruction.fields, call.fields, strict=True)
    env = {f.symbol: np.int64(constant_value(v) or f.low) for f, v in fields}
    cost = instruction.cost
    return sum(int(evaluate_expr(as_expr(x), env, {})) for x in (cost.busy, cost.bytes))


def _distinct(calls: Iterator[Call], most: int) -> list[Call]:
    """The first different calls."""
    found: dict[Call, None] = {}
    for call in calls:
        found[call] = None
        if len(found) == most:
            break
    return list(found)


WAYS = 8  # that are compared


# ---------------------------------------------------------------- cutting loops into axes


Mapping = tuple[tuple[For, For], ...]  # (axis of the instruction, loop), outermost axis first
Cut = tuple[tuple[For, int], ...]  # (loop, iterations of it that are an axis)


def mappings(state: State, target: For, instruction: Instruction) -> list[Mapping]:
    """Every way to give each axis of an instruction a loop of a perfect nest that moves the same
    operands and is long enough; those that need least reordering first."""
    nest, body = perfect_nest(target)
    axes = [s for s in walk_statements(instruction.body) if isinstance(s, For)]
    updates = [s for s in walk_statements(instruction.body) if isinstance(s, Write)]
    if len(body) != 1 or not updates:
        return []
    found: dict[Mapping, None] = {}
    for pairs in Matcher(instruction, state.simplifier).pairs(updates[-1], body[0]):
        candidates = [
            [
                (axis, loop)
                for loop in nest
                if _alike(axis, loop, pairs, instruction) and _sizes(axis, loop, instruction)
            ]
            for axis in axes
        ]
        for chosen in itertools.product(*candidates):
            if len({loop.var for _, loop in chosen}) == len(chosen):
                found[chosen] = None
    order = [loop.var for loop in nest]

    def inversions(mapping: Mapping) -> int:
        places = [order.index(loop.var) for _, loop in mapping]
        return sum(a > b for a, b in itertools.combinations(places, 2))

    return sorted(found, key=inversions)


def _cuts(mapping: Mapping, instruction: Instruction) -> list[Cut]:
    """The sizes that the axes can have, the largest calls first."""
    options = [[(loop, size) for size in _sizes(axis, loop, instruction)] for axis, loop in mapping]
    return sorted(itertools.product(*options), key=lambda cut: -math.prod(n for _, n in cut))


def _alike(axis: For, loop: For, pairs: Pairs, instruction: Instruction) -> bool:
    """Whether a loop moves the elements that an axis moves; those that may stay in place (a step of
    0) need not be moved."""
    for operand, ours, _, theirs in pairs:
        moved = [d for d, i in enumerate(ours) if axis.var in variables(i)]
        moves = any(loop.var in variables(i) for i in theirs)
        may_stay = all(_may_stay(instruction, operand, d) for d in moved)
        if moves != bool(moved) and (moves or not may_stay):
            return False
    return True


def _may_stay(instruction: Instruction, operand: Buffer, d: int) -> bool:
    """Whether an operand may be the same all along an axis."""
    carrier = instruction.carrier(operand, d)
    return instruction.listed(operand) == d or (carrier is not None and carrier.admits(0))


def _sizes(axis: For, loop: For, instruction: Instruction) -> list[int]:
    """How many iterations of a loop a call can take along an axis."""
    extent = constant_value(as_expr(loop.extent))
    if extent is None:
        return []
    if isinstance(axis.extent, int):
        return [axis.extent] if extent % axis.extent == 0 else []
    if not isinstance(axis.extent, Symbol):
        return []
    limits = instruction.field(axis.extent.name)
    sizes = range(min(limits.high, int(extent)), max(limits.low, 1) - 1, -1)
    return [n for n in sizes if int(extent) % n == 0 and limits.admits(n)]


def _apply(
    state: State, target: For, cut: Cut, instruction: Instruction
) -> tuple[Stage, str] | None:
    """Cuts the loops, puts the axes innermost and matches; or says what is in the way, and leaves
    the program as it was."""
    before = state.kernel
    nest, _ = perfect_nest(target)
    outer, inner = [Loop(x.var) for x in nest], []
    try:
        for loop, size in cut:
            handle = Loop(loop.var)
            if loop.extent == size:
                outer.remove(handle)
                inner.append(handle)
            else:
                rest, part = split(state, handle, size)
                outer[outer.index(handle)] = rest
                inner.append(part)
        reorder(state, *outer, *inner)
    except ScheduleError as error:
        state.kernel = before
        return Stage.VALUES, error.what
    matched = state.for_(inner[0])
    matcher = Matcher(instruction, state.simplifier)
    call = next(matcher.calls((matched,)), None)
    if call is None:
        state.kernel = before
        return matcher.obstacle
    state.replace(matched, call)
    return None
