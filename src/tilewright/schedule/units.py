"""What a chip's instructions are good for: contracting two operands into a third, or moving data;
and which loops of a program can be an instruction's axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analyze.nests import Nest, factors
from tilewright.ir.expr import BinaryOp, Expr, Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import Accumulate, For, Store, walk_statements
from tilewright.ir.substitute import variables
from tilewright.target.target import Target


@dataclass(frozen=True)
class Unit:
    """An instruction that contracts: its accumulation, and the operands it multiplies."""

    instruction: Instruction
    update: Accumulate
    left: Load
    right: Load

    @property
    def loops(self) -> dict[Var, For]:
        """The axes, by variable."""
        found = (s for s in walk_statements(self.instruction.body) if isinstance(s, For))
        return {s.var: s for s in found}

    def size(self, axis: Var) -> int:
        extent = self.loops[axis].extent
        return extent if isinstance(extent, int) else 0


@dataclass(frozen=True)
class Mapping:
    """Which loop of the program each axis of a unit is; `swapped` when the program's first factor
    is the unit's second operand."""

    unit: Unit
    axes: tuple[tuple[Var, For], ...]
    swapped: bool

    @property
    def waste(self) -> float:
        """Work the unit does for each piece wanted: 1 where all axes divide."""
        total = 1.0
        for axis, loop in self.axes:
            size = self.unit.size(axis)
            if not isinstance(loop.extent, int) or size == 0 or loop.extent == 0:
                return float("inf")
            total *= -(-loop.extent // size) * size / loop.extent
        return total


def units(target: Target) -> Iterator[Unit]:
    """The target's instructions that contract two operands into a third."""
    for instruction in target.instructions:
        for stmt in walk_statements(instruction.body):
            if isinstance(stmt, Accumulate) and stmt.op is BinaryOp.ADD:
                pair = factors(stmt.value)
                if pair is not None:
                    yield Unit(instruction, stmt, *pair)


def copies(target: Target, source: str, destination: str) -> Iterator[Instruction]:
    """The target's instructions that move data from one memory to another."""
    for instruction in target.instructions:
        stores = [s for s in walk_statements(instruction.body) if isinstance(s, Store)]
        moved = [(s.value.buffer, s.buffer) for s in stores if isinstance(s.value, Load)]
        if [(a.memory, b.memory) for a, b in moved] == [(source, destination)]:
            yield instruction


def mappings(nest: Nest, unit: Unit) -> Iterator[Mapping]:
    """All ways to give every axis of a unit a loop of the program that plays the same part: in the
    same operands, and summed over or not."""
    pair = factors(nest.update.value) if nest.update is not None else None
    if nest.update is None or pair is None or pair[0].buffer == pair[1].buffer:
        return
    for swapped in (False, True):
        data, weight = pair[::-1] if swapped else pair
        candidates = []
        for axis in unit.loops:
            wanted = _parts(axis, unit.left, unit.right, unit.update.indices)
            fits = [
                loop
                for loop in (*nest.axes, *nest.reduce)
                if _parts(loop.var, data, weight, nest.update.indices) == wanted
            ]
            candidates.append([(axis, loop) for loop in fits])
        for chosen in itertools.product(*candidates):
            if len({loop.var for _, loop in chosen}) == len(chosen):
                yield Mapping(unit, tuple(chosen), swapped)


def _parts(var: Var, left: Load, right: Load, result: Sequence[Expr]) -> tuple[bool, bool, bool]:
    """Whether a loop moves the first factor, the second, the result."""
    a, b, c = (any(var in variables(i) for i in x) for x in (left.indices, right.indices, result))
    return a, b, c
