"""Matching, second step: which loop of the program is which axis of the instruction.

A loop can be an axis if it moves the same operands. Of what is left, pairs are ruled out that stand
in one subscript of the instruction and not in one of the program; so few mappings are looked at,
however deep a nest is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewright.ir.expr import Buffer, Dim, Expr, Symbol, Var, const, constant_value
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For
from tilewright.ir.substitute import variables
from tilewright.schedule.match.binding import (
    Binding,
    Element,
    MatchStage,
    NestPair,
    Obstacles,
    outside,
)

SURPLUS = -1  # as progress: there are too many loops, and some must be cut off

Chosen = tuple[tuple[For, For | None], ...]  # axes, with the loop of each


class Assigner:
    """Assigns loops to axes, for what unify.py has paired."""

    def __init__(self, instruction: Instruction, obstacles: Obstacles) -> None:
        self.instruction, self.obstacles = instruction, obstacles

    def assign(self, b: Binding, nests: Sequence[NestPair] | None = None) -> Iterator[Binding]:
        """Every way to give the axes of nests (all of them) a loop, or none to an axis of one."""
        nests = b.nests if nests is None else nests
        if not nests:
            yield b
            return
        nest, *rest = nests
        surplus = len(nest.loops) - len(nest.axes)
        if surplus > 0:
            names = ", ".join(x.var.name for x in nest.loops)
            what = f"{len(nest.loops)} nested loops ({names})"
            self._no(f"{what}, and {self.instruction} has {len(nest.axes)}", SURPLUS)
            return
        for chosen in self.choices(nest, b, -surplus):
            found = self._bound(chosen, nest, b)
            if found is not None:
                yield from self.assign(found, rest)

    def choices(self, nest: NestPair, b: Binding, without: int) -> Iterator[Chosen]:
        """Every way to give each axis of a nest a loop of its own that moves what it moves; none to
        `without` of them."""
        candidates = []
        for axis in nest.axes:
            loops = [x for x in nest.loops if alike(axis, x, b.elements, self.instruction)]
            candidates.append([*loops, None] if without else loops)
            if not candidates[-1]:
                self._no(self._why_none(axis, b.elements))
        yield from self._choose(nest.axes, candidates, _Sharing(b, self._is_free), without, ())

    def _choose(
        self,
        axes: Sequence[For],
        candidates: Sequence[Sequence[For | None]],
        sharing: _Sharing,
        without: int,
        chosen: Chosen,
    ) -> Iterator[Chosen]:
        if not axes:
            yield chosen
            return
        taken = {id(x) for _, x in chosen}
        for loop in candidates[0]:
            left = without - (loop is None)
            if left < 0 or (loop is not None and id(loop) in taken):
                continue
            if loop is None or sharing.fits(axes[0], loop, chosen):
                one = (*chosen, (axes[0], loop))
                yield from self._choose(axes[1:], candidates[1:], sharing, left, one)

    def _is_free(self, operand: Buffer) -> bool:
        """Whether loops of one subscript may be several axes: of an operand, whose steps fields
        carry, or which are as far apart as the operand's own."""
        return operand in self.instruction.operands

    def _bound(self, chosen: Chosen, nest: NestPair, b: Binding) -> Binding | None:
        """What is known with these loops as axes; None where one has too many iterations, or too
        few."""
        fields = dict(b.fields)
        for axis, loop in chosen:
            if not self._fits(axis, loop, nest, fields):
                return None
        loops = tuple((axis.var, loop) for axis, loop in chosen)
        return replace(b, loops=(*b.loops, *loops), fields=tuple(fields.items()))

    def _fits(
        self, axis: For, loop: For | None, nest: NestPair, fields: dict[Symbol, Expr]
    ) -> bool:
        """Checks the number of iterations, as far as no condition changes it; `fields` then has
        that of the axis."""
        extent: Dim = 1 if loop is None else loop.extent
        name = "a single step" if loop is None else f"loop {loop.var.name}"
        free = loop is not None and any(loop.var in variables(c) for c in nest.conditions)
        known = None if free else constant_value(extent)
        if isinstance(axis.extent, int):
            if known is not None and known != axis.extent:
                self._no(f"axis {axis.var.name} is {axis.extent}, {name} is {extent}")
                return False
        elif not isinstance(axis.extent, Symbol):
            self._no(f"axis {axis.var.name} has the extent {axis.extent}")
            return False
        elif known is not None:
            limits = self.instruction.field(axis.extent.name)
            if not limits.admits(int(known)):
                self._no(f"{outside(limits, known)} (for {name})")
                return False
            other = fields.setdefault(axis.extent, const(int(known)))
            if other != const(int(known)):
                self._no(f"{limits.name} would be {other} and {known} (for {name})")
                return False
        return True

    def _why_none(self, axis: For, elements: Sequence[Element]) -> str:
        moved = [theirs for o, ours, theirs, _ in elements if _moves(axis.var, ours)]
        names = " and ".join(dict.fromkeys(x.name for x in moved))
        others = [theirs for o, ours, theirs, _ in elements if theirs not in moved]
        other = " or ".join(dict.fromkeys(x.name for x in others))
        also = f" without {other}" if other else ""
        return f"no loop moves {names}{also}, as axis {axis.var.name} does"

    def _no(self, reason: str, progress: int = 0) -> None:
        self.obstacles.add(MatchStage.LOOPS, progress, reason)


class _Sharing:
    """Which loops stand in one subscript with which: of each operand's subscripts, in the
    instruction and in the program, the variables as bits."""

    def __init__(self, b: Binding, is_free: Callable[[Buffer], bool]) -> None:
        self.bits: dict[str, int] = {}
        self.elements = [
            (is_free(operand), self._masks(ours), self._masks(theirs))
            for operand, ours, _, theirs in b.elements
        ]
        self.bound = [(self._bit(v), self._bit(x.var)) for v, x in b.loops if x is not None]

    def _bit(self, var: Var) -> int:
        return self.bits.setdefault(var.name, 1 << len(self.bits))

    def _masks(self, indices: Sequence[Expr]) -> list[int]:
        return [sum(map(self._bit, variables(i))) for i in indices]

    def fits(self, axis: For, loop: For, chosen: Chosen) -> bool:
        """Whether a loop shares subscripts with those of other axes just where the axes do. An
        operand's steps may be free: then loops may share what axes do not."""
        own, its = self._bit(axis.var), self._bit(loop.var)
        others = list(self.bound)
        for a, x in chosen:
            if x is not None:
                others.append((self.bits[a.var.name], self.bits[x.var.name]))
        for free, ours, theirs in self.elements:
            moved = walked = 0
            for mask in ours:
                moved |= mask if mask & own else 0
            for mask in theirs:
                walked |= mask if mask & its else 0
            for other, its_loop in others if moved or walked else ():
                mine, found = bool(moved & other), bool(walked & its_loop)
                if mine != found and (mine or not free):
                    return False
        return True


def alike(axis: For, loop: For, elements: Sequence[Element], instruction: Instruction) -> bool:
    """Whether a loop moves the elements that an axis moves; those that may stay in place (a step of
    0) need not be moved."""
    for operand, ours, _, theirs in elements:
        moved = [d for d, i in enumerate(ours) if axis.var in variables(i)]
        moves = _moves(loop.var, theirs)
        may_stay = all(_may_stay(instruction, operand, d) for d in moved)
        if moves != bool(moved) and (moves or not may_stay):
            return False
    return True


def _moves(var: Var, indices: Sequence[Expr]) -> bool:
    return any(var in variables(i) for i in indices)


def _may_stay(instruction: Instruction, operand: Buffer, d: int) -> bool:
    """Whether an operand may be the same all along an axis."""
    carrier = instruction.carrier(operand, d)
    return instruction.listed(operand) == d or (carrier is not None and carrier.admits(0))
