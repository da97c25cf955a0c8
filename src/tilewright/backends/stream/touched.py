"""What the instructions of a stream read and write: boxes of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.analyze.accesses import Access, accesses
from tilewright.backends.stream.footprint import Footprint, footprint
from tilewright.backends.stream.stream import Site, Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Dim, Var, as_expr
from tilewright.ir.instruction import Instruction
from tilewright.ir.loop import For, Stmt
from tilewright.ir.substitute import variables


@dataclass(frozen=True)
class Use:
    """How an instruction uses an operand: which statement of its meaning reads it, and which one
    writes it. Without an operand, how it uses its list of micro-operations."""

    instruction: Instruction
    operand: int | None
    reader: Stmt | None
    writer: Stmt | None


@dataclass(frozen=True, eq=False)
class Touched:
    """m boxes in the order of instructions, of each what it reads before what it writes. A box is
    byte start + sum(i[d] * steps[d]) of a memory for all i[d] < extents[d]; the last axis is the
    bytes of an element. What is read is what others have written: not what the instruction itself
    wrote before. `exact` where every byte is touched for certain; `use` counts `uses`."""

    row: np.ndarray  # [m] the instruction
    memory: np.ndarray  # [m] its number in the target
    start: np.ndarray  # [m] bytes
    extents: np.ndarray  # [m, axes]
    steps: np.ndarray  # [m, axes] bytes
    reads: np.ndarray  # [m] bool
    writes: np.ndarray  # [m] bool
    exact: np.ndarray  # [m] bool
    use: np.ndarray  # [m]
    uses: tuple[Use, ...]


def touched(stream: Stream) -> Touched:
    """What every instruction reads and writes."""
    return in_order(parts_of(stream, range(len(stream.sites))))


def parts_of(stream: Stream, sites: Sequence[int]) -> list[OperandUse]:
    """What the instructions of these sites read and write."""
    return [part for calls in _alike(stream, sites) for part in calls.parts()]


def in_order(parts: Sequence[OperandUse]) -> Touched:
    """Boxes by the instructions that touch them."""
    most = max((p.extents.shape[1] for p in parts), default=1)
    numbered = [np.full(len(p.rows), k) for k, p in enumerate(parts)]
    row = _joined([p.rows for p in parts])
    reads = _joined([p.reads for p in parts]).astype(bool)
    writes = _joined([p.writes for p in parts]).astype(bool)
    order = np.lexsort((writes.astype(int) - reads, row))
    order = order[(reads | writes)[order]]
    columns = (
        row,
        _joined([np.full(len(p.rows), p.memory) for p in parts]),
        _joined([p.start for p in parts]),
        _joined([_wide(p.extents, most, 1) for p in parts], most),
        _joined([_wide(p.steps, most, 0) for p in parts], most),
        reads,
        writes,
        _joined([p.exact for p in parts]).astype(bool),
        _joined(numbered),
    )
    row, memory, start, extents, steps, reads, writes, exact, use = (c[order] for c in columns)
    uses = tuple(p.use for p in parts)
    return Touched(row, memory, start, extents, steps, reads, writes, exact, use, uses)


def _joined(columns: Sequence[np.ndarray], width: int | None = None) -> np.ndarray:
    none = np.zeros((0,) if width is None else (0, width), np.int64)
    return np.concatenate([none, *columns])


def _wide(columns: np.ndarray, width: int, fill: int) -> np.ndarray:
    """With columns of `fill` before the others."""
    out = np.full((len(columns), width), fill, np.int64)
    out[:, width - columns.shape[1] :] = columns
    return out


# ---------------------------------------------------------------- calls that are alike


@dataclass(frozen=True, eq=False)
class OperandUse:
    """One use of an operand, in all rows of some calls; the arrays are columns of Touched."""

    use: Use
    rows: np.ndarray
    memory: int
    start: np.ndarray
    extents: np.ndarray
    steps: np.ndarray
    reads: np.ndarray
    writes: np.ndarray
    exact: np.ndarray

    def same_box(self, other: OperandUse) -> bool:
        pairs = (
            (self.start, other.start),
            (self.extents, other.extents),
            (self.steps, other.steps),
        )
        return all(np.array_equal(a, b) for a, b in pairs)


class _Calls:
    """Rows of one instruction, whose operands lie in the same memories and whose lists of
    micro-operations are the same."""

    def __init__(self, stream: Stream, site: Site, rows: np.ndarray) -> None:
        self.stream, self.site, self.rows = stream, site, rows
        self.instruction = site.instruction
        self.numbers = {m.name: k for k, m in enumerate(stream.target.memories)}
        columns = stream.fields[rows].T
        symbols = (f.symbol for f in self.instruction.fields)
        self.fields = dict(zip(symbols, columns, strict=False))

    def parts(self) -> Iterator[OperandUse]:
        """What all operands and the list are used for."""
        for o in range(len(self.instruction.operands)):
            yield from self._operand(o)
        if self.site.entries:
            yield self._list()

    def _list(self) -> OperandUse:
        """The list of micro-operations, which is read."""
        kind = self.instruction.micro_ops
        assert kind is not None
        n = len(self.rows)
        yes, ones = np.ones(n, bool), np.ones((n, 1), np.int64)
        return OperandUse(
            Use(self.instruction, None, None, None), self.rows, self.numbers[kind.memory],
            self.stream.lists[self.rows] * kind.bytes, ones * (self.site.entries * kind.bytes),
            ones, yes, ~yes, yes,
        )  # fmt: skip

    def _operand(self, o: int) -> list[OperandUse]:
        """The uses of one operand; of one box there is one."""
        operand = _Operand(self, o)
        found: list[tuple[Access, OperandUse]] = []
        merged: list[OperandUse] = []
        for access in accesses(self.instruction.body):
            if access.buffer != operand.formal:
                continue
            for part in operand.parts(access):
                for earlier, theirs in found:
                    if _precedes(earlier, access) and theirs.same_box(part):
                        part.reads[theirs.writes & theirs.exact] = False
                found.append((access, part))
                same = next((i for i, m in enumerate(merged) if m.same_box(part)), None)
                if same is None:
                    merged.append(part)
                else:
                    merged[same] = _merge(merged[same], part)
        return merged


def _alike(stream: Stream, sites: Sequence[int]) -> Iterator[_Calls]:
    """The rows of these sites, calls that are alike together."""
    groups: dict[object, list[int]] = {}
    for k in sites:
        site = stream.sites[k]
        lists = tuple(None if x is None else x.tobytes() for x in site.offsets)
        groups.setdefault((site.instruction, site.memories, lists), []).append(k)
    for numbers in groups.values():
        rows = np.flatnonzero(np.isin(stream.site, numbers))
        yield _Calls(stream, stream.sites[numbers[0]], rows)


class _Operand:
    """One operand of calls: where its subscripts lead in memory."""

    def __init__(self, calls: _Calls, o: int) -> None:
        self.calls, self.number = calls, o
        self.formal = calls.instruction.operands[o]
        self.memory = calls.numbers[calls.site.memories[o]]
        self.start = calls.stream.addresses[calls.rows, o]
        self.listed = calls.instruction.listed(self.formal)
        self.offsets = calls.site.offsets[o] if calls.site.offsets else None
        axes = range(len(self.formal.shape))
        self.steps = [self._bytes(calls.instruction.step(self.formal, d)) for d in axes]

    def _bytes(self, elements: Dim) -> np.ndarray:
        value = evaluate_expr(as_expr(elements), self.calls.fields, {}) * self.formal.dtype.bytes
        return np.broadcast_to(value, self.start.shape)

    def parts(self, access: Access) -> list[OperandUse]:
        """What one access touches: a box, or one for each entry of a list."""
        shape = footprint(access, self.calls.fields, len(self.start))
        counts = [axis.count for axis in shape.axes]
        moves = [self._move(axis.strides) for axis in shape.axes]
        lists: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
        if self.offsets is not None and self.listed is not None:
            for k, axis in enumerate(shape.axes):
                if axis.strides[self.listed].any():
                    counts[k] = np.ones_like(counts[k])
            lists = _as_boxes(self.offsets)
        start = self.start + self._move(shape.first)
        return [self._part(access, shape, start + at, counts, moves, axes) for at, axes in lists]

    def _move(self, subscripts: Sequence[np.ndarray]) -> np.ndarray:
        moves = (i * s for i, s in zip(subscripts, self.steps, strict=True))
        return np.asarray(sum(moves, 0 * self.start))

    def _part(
        self,
        access: Access,
        shape: Footprint,
        start: np.ndarray,
        counts: Sequence[np.ndarray],
        moves: Sequence[np.ndarray],
        axes: Sequence[tuple[int, int]],
    ) -> OperandUse:
        n, reads = len(self.start), not access.writes or access.op is not None
        extents = [*counts, *(np.full(n, c) for c, _ in axes)]
        steps = [*moves, *(np.full(n, step) for _, step in axes)]
        stmt = access.stmt
        return OperandUse(
            Use(
                self.calls.instruction,
                self.number,
                stmt if reads else None,
                stmt if access.writes else None,
            ),
            self.calls.rows,
            self.memory,
            start,
            np.stack([*extents, np.full(n, self.formal.dtype.bytes)], 1),
            np.stack([*steps, np.ones(n, np.int64)], 1),
            shape.active & reads,
            shape.active & access.writes,
            shape.exact,
        )


def _as_boxes(offsets: np.ndarray) -> list[tuple[int, list[tuple[int, int]]]]:
    """Offsets as boxes: (first, axes of it as (count, step)). One box, if they are the sums of a
    few even series; else one for each."""
    places = np.unique(offsets)
    axes: list[tuple[int, int]] = []
    rest = places
    while len(rest) > 1:
        step = int(rest[1] - rest[0])
        odd = np.flatnonzero(np.diff(rest) != step)
        count = int(odd[0]) + 1 if len(odd) else len(rest)
        if len(rest) % count or count == 1:
            return [(int(at), []) for at in places]
        series = rest.reshape(-1, count)
        if np.any(np.diff(series, axis=1) != step):
            return [(int(at), []) for at in places]
        axes.append((count, step))
        rest = series[:, 0]
    return [(int(places[0]), axes)]


def _merge(a: OperandUse, b: OperandUse) -> OperandUse:
    use = replace(a.use, reader=a.use.reader or b.use.reader, writer=a.use.writer or b.use.writer)
    return replace(
        a,
        use=use,
        reads=a.reads | b.reads,
        writes=a.writes | b.writes,
        exact=a.exact & b.exact,
    )


def _precedes(store: Access, read: Access) -> bool:
    """Whether a store of the same elements comes before a read of them: what is read is then the
    instruction's own. In loops around both, each element must be stored in the iteration that
    reads it; or else none of these loops may choose the element."""
    if not store.writes or store.op is not None:
        return False
    shared: set[Var] = set()
    for a, b in zip(store.path, read.path, strict=False):
        if a != b:
            if not (isinstance(a, int) and isinstance(b, int) and a < b):
                return False
            break
        if isinstance(a, For):
            shared.add(a.var)
    choosing = {v for i in (*store.indices, *read.indices) for v in variables(i)}
    return not choosing & shared or store.indices == read.indices
