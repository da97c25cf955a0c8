"""Streams from rows: instructions with the numbers that they are given, without a program. This is
what a decoder has, and what tries an instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.codegen.stream import Site, Stream, touched
from tilewright.ir.expr import Buffer, Dim, Expr, as_expr, const, constant_value
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Call
from tilewright.target.target import Target


def stream_of_rows(
    target: Target,
    kinds: np.ndarray,
    fields: np.ndarray,
    addresses: np.ndarray,
    sizes: Mapping[str, int] | None = None,
) -> Stream:
    """The stream of n instructions: kinds [n] are positions in `target.instructions`, fields [n, …]
    and addresses [n, …] as a Stream has them, further columns unused. Memories have `sizes`, or as
    many bytes as are touched. CompileError where a field is not within its limits."""
    sites: list[Site] = []
    site = np.zeros(len(kinds), np.int32)
    for k in np.unique(kinds):
        instruction = target.instructions[k]
        rows = np.flatnonzero(kinds == k)
        _check_fields(instruction, rows, fields)
        carriers = sorted({f for _, _, f in instruction.strides})
        names = [f.name for f in instruction.fields]
        columns = [names.index(f) for f in carriers]
        strides, which = np.unique(fields[np.ix_(rows, columns)], axis=0, return_inverse=True)
        site[rows] = len(sites) + which.reshape(-1)
        for values in strides:
            sites.append(_site(instruction, dict(zip(carriers, map(int, values), strict=True))))
    stream = Stream(target, tuple(sites), site, fields, addresses, {}, sizes or {})
    return stream if sizes is not None else replace(stream, sizes=_touched_sizes(stream))


def _check_fields(instruction: Instruction, rows: np.ndarray, fields: np.ndarray) -> None:
    for c, f in enumerate(instruction.fields):
        values = fields[rows, c]
        wrong = (values < f.low) | (values > f.high) | (values % f.multiple != 0)
        if wrong.any():
            first = int(np.argmax(wrong))
            steps = f" in steps of {f.multiple}" if f.multiple > 1 else ""
            raise CompileError(
                f"instruction {rows[first]}, {instruction.name}: {f.name} is {values[first]}, and "
                f"goes from {f.low} to {f.high}{steps}"
            )


def _site(instruction: Instruction, strides: Mapping[str, int]) -> Site:
    """A call whose operands lie in memories as these strides say."""
    steps = tuple(operand_steps(instruction, o, strides) for o in instruction.operands)
    regions = tuple(_region(o, s) for o, s in zip(instruction.operands, steps, strict=True))
    values = tuple(
        const(strides[f.name]) if f.name in strides else f.symbol for f in instruction.fields
    )
    call = Call(instruction, regions, values)
    return Site(call, tuple(o.memory for o in instruction.operands), steps)


def operand_steps(
    instruction: Instruction, operand: Buffer, strides: Mapping[str, int]
) -> tuple[int, ...]:
    """Bytes of memory that a step along each axis of an operand is, for these values of the fields
    that carry strides; without one an axis is contiguous."""
    carried = {d: f for name, d, f in instruction.strides if name == operand.name}
    steps = []
    contiguous = 1
    for d in reversed(range(len(operand.shape))):
        step = strides[carried[d]] if d in carried else contiguous
        steps.append(step * operand.dtype.bytes)
        contiguous *= _number(operand.shape[d])
    return tuple(reversed(steps))


def _number(extent: Dim) -> int:
    return int(constant_value(as_expr(extent)) or 0)


def _region(operand: Buffer, steps: tuple[int, ...]) -> Region:
    """The operand's elements from the start of its memory on."""
    memory = Buffer(operand.memory, operand.dtype, (1 << 40,), operand.memory)
    position: Expr = const(0)
    for d, step in enumerate(steps):
        position = position + as_expr(axis(d)) * (step // operand.dtype.bytes)
    return Region(memory, (position,))


def _touched_sizes(stream: Stream) -> dict[str, int]:
    """The bytes of each memory up to the last that is touched."""
    if not len(stream):
        return {}
    boxes = touched(stream)
    reach = np.maximum(0, (boxes.extents - 1) * boxes.steps).sum(axis=1)
    ends = boxes.start + reach + boxes.width
    names = [m.name for m in stream.target.memories]
    return {names[k]: int(ends[boxes.memory == k].max()) for k in np.unique(boxes.memory)}
