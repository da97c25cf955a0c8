"""Streams from rows: instructions with the numbers that they are given, without a program. This is
what a decoder has, and what tries an instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.analyze.accesses import accesses
from tilewright.backends.stream.footprint import footprint
from tilewright.backends.stream.stream import Site, Stream
from tilewright.backends.stream.touched import touched
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_dim, evaluate_expr
from tilewright.ir.expr import Buffer, Expr, Select, Var, as_expr, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Call, symbols
from tilewright.target.iterations import list_extent
from tilewright.target.target import Target

FLAT = 1 << 40  # elements of a memory, as far as a region knows


@dataclass(eq=False)
class Rows:
    """n instructions: their positions in the target [n]; fields, addresses and the beginnings of
    lists as a Stream has them; for each row with a list its entries [count, operands with a list],
    which say where these operands are, in bytes."""

    kinds: np.ndarray
    fields: np.ndarray
    addresses: np.ndarray
    lists: np.ndarray
    entries: dict[int, np.ndarray]

    @staticmethod
    def empty(target: Target, kinds: np.ndarray) -> Rows:
        """Rows of these instructions, all numbers 0."""
        n = len(kinds)
        fields = max((len(i.fields) for i in target.instructions), default=0)
        operands = max((len(i.operands) for i in target.instructions), default=0)
        return Rows(
            kinds,
            np.zeros((n, fields), np.int64),
            np.zeros((n, operands), np.int64),
            np.full(n, -1, np.int64),
            {},
        )


def stream_of_rows(target: Target, rows: Rows, sizes: Mapping[str, int] | None = None) -> Stream:
    """The stream of these instructions, in memories of these sizes, or of as many bytes as are
    touched. CompileError where fields are not within their limits."""
    sites: list[Site] = []
    site = np.zeros(len(rows.kinds), np.int32)
    rows = replace(rows, addresses=rows.addresses.copy())
    for k in np.unique(rows.kinds):
        instruction = target.instructions[k]
        ours = np.flatnonzero(rows.kinds == k)
        _check_fields(instruction, ours, rows.fields)
        pattern, patterns = _patterns(instruction, ours, rows)
        columns = _shaping(instruction)
        shapes = np.column_stack([pattern, rows.fields[ours][:, columns]])
        distinct, which = np.unique(shapes, axis=0, return_inverse=True)
        site[ours] = len(sites) + which.reshape(-1)
        names = [instruction.fields[c].name for c in columns]
        for chosen, *values in distinct.tolist():
            known = dict(zip(names, values, strict=True))
            sites.append(_site(instruction, known, patterns[chosen]))
    stream = Stream(
        target, tuple(sites), site, rows.fields, rows.addresses, {}, sizes or {}, rows.lists
    )
    return stream if sizes is not None else replace(stream, sizes=_touched_sizes(stream))


def _patterns(
    instruction: Instruction, ours: np.ndarray, rows: Rows
) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """How the lists of an instruction's rows move its operands, in bytes from the first entry, and
    which of these patterns each row has; also puts the operands where the first entry leads."""
    listed = [c for c, o in enumerate(instruction.operands) if instruction.listed(o) is not None]
    if not listed:
        return np.zeros(len(ours), np.int64), [None]
    pattern = np.zeros(len(ours), np.int64)
    numbers: dict[bytes, int] = {}
    patterns: list[np.ndarray | None] = []
    for at, row in enumerate(ours.tolist()):
        entries = rows.entries[row]
        rows.addresses[row, listed] = entries[0]
        moves = entries - entries[0]
        pattern[at] = numbers.setdefault(moves.tobytes(), len(numbers))
        if len(patterns) < len(numbers):
            patterns.append(moves)
    return pattern, patterns


def _check_fields(instruction: Instruction, ours: np.ndarray, fields: np.ndarray) -> None:
    for c, f in enumerate(instruction.fields):
        values = fields[ours, c]
        wrong = (values < f.low) | (values > f.high) | (values % f.multiple != 0)
        if wrong.any():
            first = int(np.argmax(wrong))
            steps = f" in steps of {f.multiple}" if f.multiple > 1 else ""
            raise CompileError(
                f"{instruction.name}, instruction {ours[first]}: {f.name} is {values[first]}, and "
                f"goes from {f.low} to {f.high}{steps}"
            )
    values = {f.symbol: fields[ours, c] for c, f in enumerate(instruction.fields)}
    for condition in instruction.limits:
        holds = np.broadcast_to(evaluate_expr(condition, values, {}), (len(ours),))
        if not holds.all():
            first = ours[np.argmin(holds)]
            raise CompileError(
                f"{instruction.name}, instruction {first}: its limit {condition} does not hold"
            )


def _shaping(instruction: Instruction) -> list[int]:
    """The fields that say how operands step in memory, and how long lists are: calls with other
    values of them are other sites."""
    names = {f for _, _, f in instruction.strides}
    extents = [list_extent(instruction)]
    for o in instruction.operands:
        extents += [n for d, n in enumerate(o.shape) if _gives_step(instruction, o, d)]
    names |= {e.name for n in extents if n is not None for e in symbols(as_expr(n))}
    return [c for c, f in enumerate(instruction.fields) if f.name in names]


def _site(instruction: Instruction, values: Mapping[str, int], moves: np.ndarray | None) -> Site:
    """A call whose operands lie in memories as these fields say, and as a list moves them."""
    regions, steps, entries = [], [], []
    column = 0
    for o in instruction.operands:
        listed = instruction.listed(o)
        steps.append(operand_steps(instruction, o, values))
        position: Expr = const(0)
        for d, step in enumerate(steps[-1]):
            position = position + as_expr(axis(d)) * (step // o.dtype.bytes)
        entry = None
        if listed is not None and moves is not None:
            entry = _table(axis(listed), moves[:, column] // o.dtype.bytes)
            position = position + entry
            column += 1
        entries.append(entry)
        regions.append(Region(Buffer(o.memory, o.dtype, (FLAT,), o.memory), (position,)))
    given = tuple(const(values[f.name]) if f.name in values else f.symbol
                  for f in instruction.fields)  # fmt: skip
    call = Call(instruction, tuple(regions), given)
    memories = tuple(o.memory for o in instruction.operands)
    return Site(call, memories, tuple(steps), tuple(entries))


def operand_steps(
    instruction: Instruction, operand: Buffer, values: Mapping[str, int]
) -> tuple[int, ...]:
    """Bytes of memory that a step along each axis of an operand is, for these values of the fields
    that carry strides or stand in shapes; 0 along an axis whose steps are listed. Without either an
    axis is contiguous."""
    steps = []
    contiguous = operand.dtype.bytes
    for d in reversed(range(len(operand.shape))):
        carrier = instruction.carrier(operand, d)
        if instruction.listed(operand) == d:
            steps.append(0)
        elif carrier is not None:
            steps.append(values[carrier.name] * operand.dtype.bytes)
        else:
            steps.append(contiguous)
        if _gives_step(instruction, operand, d):
            contiguous *= evaluate_dim(operand.shape[d], values)
    return tuple(reversed(steps))


def _gives_step(instruction: Instruction, operand: Buffer, d: int) -> bool:
    """Whether the extent of axis d is in the step of an axis before it: of one that is
    contiguous."""
    return any(
        instruction.carrier(operand, e) is None and instruction.listed(operand) != e
        for e in range(d)
    )


def _table(at: Var, values: np.ndarray, first: int = 0) -> Expr:
    """values[at - first] as arithmetic: evenly spaced numbers are a product, others are cut in
    two."""
    step = int(values[1] - values[0]) if len(values) > 1 else 0
    if (np.diff(values) == step).all():
        return as_expr(at) * step + (int(values[0]) - step * first)
    half = len(values) // 2
    left = _table(at, values[:half], first)
    return Select(at < first + half, left, _table(at, values[half:], first + half))


def operand_extents(target: Target, rows: Rows) -> list[list[tuple[int, ...]]]:
    """How far along its axes each operand of each row is used [n][operands][axes]: wholly by a
    black box; 1 along an axis whose steps are listed, for that is what an entry stands for."""
    found: list[list[tuple[int, ...]]] = [[] for _ in rows.kinds]
    for k in np.unique(rows.kinds):
        instruction = target.instructions[k]
        ours = np.flatnonzero(rows.kinds == k)
        fields = {f.symbol: rows.fields[ours, c] for c, f in enumerate(instruction.fields)}
        for o in instruction.operands:
            ends = operand_ends(instruction, o, fields, len(ours))
            for row, end in zip(ours.tolist(), ends.tolist(), strict=True):
                found[row].append(tuple(end))
    return found


def operand_ends(
    instruction: Instruction, operand: Buffer, fields: Mapping[Expr, np.ndarray], n: int
) -> np.ndarray:
    """Behind the greatest subscripts of an operand [n, axes]; at least 1."""
    if instruction.black_box is not None:
        columns = {f.name: fields[f.symbol] for f in instruction.fields}
        shape = instruction.shapes(columns)[instruction.operands.index(operand)]
        return np.stack([np.broadcast_to(d, (n,)) for d in shape], axis=1)
    ends = np.ones((n, len(operand.shape)), np.int64)
    for access in accesses(instruction.body):
        if access.buffer == operand:
            found = footprint(access, dict(fields), n)
            for d, first in enumerate(found.first):
                moves = (np.maximum(0, (a.count - 1) * a.strides[d]) for a in found.axes)
                last = first + sum(moves, np.zeros(n, np.int64))
                ends[:, d] = np.maximum(ends[:, d], np.where(found.active, last + 1, 1))
    listed = instruction.listed(operand)
    if listed is not None:
        ends[:, listed] = 1
    return ends


def _touched_sizes(stream: Stream) -> dict[str, int]:
    """The bytes of each memory up to the last that is touched."""
    if not len(stream):
        return {}
    boxes = touched(stream)
    ends = boxes.start + np.maximum(0, (boxes.extents - 1) * boxes.steps).sum(axis=1) + 1
    names = [m.name for m in stream.target.memories]
    return {names[k]: int(ends[boxes.memory == k].max()) for k in np.unique(boxes.memory)}
