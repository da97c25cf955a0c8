"""Contractions on instructions that multiply several elements for each lane: dot products of bytes
or of short floats, as processors have them.

    for k in 4: acc[j] += data[k] * weight[j, k]      for all lanes j, one instruction

The instruction's lanes are columns of the contraction; the elements that it adds up are neighbours
along one loop of the reduction, in the data and in the weights.

    for k in 4: acc[j] += data[k, j] * weight[j, k]

Depthwise windows have the columns in both operands: the elements that a lane adds up come from
neighbouring places of a picture, whose channels lie in blocks of as many as there are lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analyze.linear import linear, step_along
from tilewright.analyze.nests import Nest, factors, stride
from tilewright.analyze.simplify import Simplifier
from tilewright.ir.expr import Binary, BinaryOp, Const, Dim, Expr, Load, Var
from tilewright.ir.instruction import Instruction
from tilewright.ir.substitute import variables
from tilewright.plan.units import AxisMapping, Unit, mappings, units
from tilewright.target.target import Target


@dataclass(frozen=True)
class DotProduct:
    """An instruction, and which loops it takes: its lanes those of `vector`, and `depth` iterations
    of `along`, of the reduction, which has `extent` of them."""

    instruction: Instruction
    data: Load
    weight: Load
    vector: Var
    along: Var
    extent: int
    depth: int
    in_rows: bool = False  # the data has the lanes, too


def find_dot_product(
    nest: Nest, target: Target, s: Simplifier, *, packed: bool, grouped: bool
) -> DotProduct | None:
    """How a nest can be done with one of the target's dot products; None if it cannot. With
    `packed`, operands are taken to lie in memory as that needs; what is `grouped` has to have whole
    vectors of columns in a group."""
    for unit in units(target):
        for mapping in mappings(nest, unit):
            found = _dot_product(nest, unit, mapping)
            if found is None:
                continue
            extents = {x.var: x.extent for x in nest.axes}
            columns = extents[found.vector]
            if (grouped or found.in_rows) and not _divides(unit.lanes, columns):
                continue
            if found.in_rows:
                if (
                    _rows_can_be_packed(found, columns, s)
                    if packed
                    else _rows_lie_well(found, unit, s)
                ):
                    return found
            elif _can_be_packed(found, columns) if packed else _lies_well(found, s):
                return found
    return None


def _dot_product(nest: Nest, unit: Unit, mapping: AxisMapping) -> DotProduct | None:
    pair = factors(nest.update.value) if nest.update is not None else None
    if pair is None:
        return None
    data, weight = pair[::-1] if mapping.swapped else pair
    kinds = [x.buffer.dtype for x in (data, weight)]
    if kinds != [x.buffer.dtype for x in (unit.left, unit.right)]:
        return None
    if nest.buffer.dtype != unit.result.buffer.dtype or not unit.instruction.native:
        return None
    summed = [(a, loop) for a, loop in mapping.axes if loop in nest.reduce]
    kept = [(a, loop) for a, loop in mapping.axes if loop in nest.axes]
    if len(summed) != 1 or len(kept) != 1:
        return None
    ((axis, along),) = summed
    depth = unit.size(axis)
    vector = kept[0][1]
    if not isinstance(along.extent, int) or along.extent % depth:
        return None
    in_rows = takes_rows(unit)
    kind, extent = unit.instruction, along.extent
    return DotProduct(kind, data, weight, vector.var, along.var, extent, depth, in_rows)


def takes_rows(unit: Unit) -> bool:
    """Whether an instruction's lanes have elements of their own in both operands."""
    kept = set().union(*map(variables, unit.result.indices))
    return kept <= set().union(*map(variables, unit.left.indices))


def position_of(read: Load, var: Var, extent: Dim | None) -> int | None:
    """The subscript that is a variable, or the place that it is in a group of `extent`."""
    for p, i in enumerate(read.indices):
        if i == var:
            return p
        if isinstance(extent, int) and step_along(linear(i), var) == 1:
            around = ((atom, k) for atom, k in linear(i).items() if atom != var)
            if all(isinstance(atom, Var) and k % extent == 0 for atom, k in around):
                return p
    return None


def _can_be_packed(dot: DotProduct, extent: Dim) -> bool:
    """Whether the loops stand for axes of the operands, and not for places in a window; `extent`
    is that of the lanes' loop."""
    summed = (position_of(read, dot.along, dot.extent) for read in (dot.data, dot.weight))
    return None not in (*summed, position_of(dot.weight, dot.vector, extent))


def _lies_well(dot: DotProduct, s: Simplifier) -> bool:
    """Whether the elements that are added up are neighbours, and the weights of lanes come one
    after another."""
    data, weight = dot.data, dot.weight
    if len(weight.indices) < 2 or weight.buffer.shape[-1] != dot.depth:
        return False
    return (
        _is_in_last_block(weight.indices[-1], dot.along)
        and _is_in_last_block(weight.indices[-2], dot.vector)
        and (
            stride(data.buffer, data.indices, dot.along, s) == 1
            or (
                _is_in_last_block(data.indices[-1], dot.along)
                and data.buffer.shape[-1] % dot.depth == 0
            )
        )
    )


def _divides(lanes: int, extent: Dim) -> bool:
    return isinstance(extent, int) and extent % lanes == 0


def _rows_can_be_packed(dot: DotProduct, extent: Dim, s: Simplifier) -> bool:
    """Whether what is added up are neighbours along the last axis of the data, and the lanes are
    another one: what lies in blocks of these is what the instruction takes."""
    data, weight = dot.data, dot.weight
    if not data.indices:
        return False
    at = position_of(data, dot.vector, None)
    if at is None or at == len(data.indices) - 1:
        return False
    return (
        s.linear(data.indices[-1]).get(dot.along) == 1
        and position_of(weight, dot.along, dot.extent) is not None
        and position_of(weight, dot.vector, extent) is not None
    )


def _rows_lie_well(dot: DotProduct, unit: Unit, s: Simplifier) -> bool:
    """Whether the data lies in blocks of the lanes, one for each element that is added up."""
    data, weight = dot.data, dot.weight
    if len(weight.indices) < 2 or weight.buffer.shape[-1] != dot.depth:
        return False
    return (
        _is_in_last_block(weight.indices[-1], dot.along)
        and _is_in_last_block(weight.indices[-2], dot.vector)
        and data.buffer.shape[-1] == unit.lanes
        and _is_in_last_block(data.indices[-1], dot.vector)
        and stride(data.buffer, data.indices, dot.along, s) == unit.lanes
    )


def _is_in_last_block(e: Expr, var: Var) -> bool:
    """Whether a subscript is a loop's variable, or its place in a block."""
    if isinstance(e, Binary) and e.op is BinaryOp.MOD and isinstance(e.b, Const):
        return e.a == var
    return e == var
