"""What the instructions of a stream read and write: boxes of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.analyze.accesses import Access, accesses
from tilewright.codegen.footprint import Footprint, footprint
from tilewright.codegen.stream import Stream
from tilewright.ir.evaluate import evaluate_expr
from tilewright.ir.expr import Dim, Var, as_expr
from tilewright.ir.loop import For, Stmt
from tilewright.ir.substitute import variables


@dataclass(frozen=True)
class Use:
    """How a call of the program uses an operand: which statement of the instruction's meaning
    reads it, and which one writes it. Without an operand, how it uses its list of
    micro-operations."""

    site: int
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
    numbers = {m.name: k for k, m in enumerate(stream.target.memories)}
    parts = [
        part
        for k, site in enumerate(stream.sites)
        for o in range(len(site.instruction.operands))
        for part in _parts(stream, k, o, numbers[site.memories[o]])
    ]
    parts += [_list_part(stream, k, numbers) for k, s in enumerate(stream.sites) if s.entries]
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
    return Touched(*(c[order] for c in columns), tuple(p.use for p in parts))


def _joined(columns: Sequence[np.ndarray], width: int | None = None) -> np.ndarray:
    none = np.zeros((0,) if width is None else (0, width), np.int64)
    return np.concatenate([none, *columns])


def _wide(columns: np.ndarray, width: int, fill: int) -> np.ndarray:
    """With columns of `fill` before the others."""
    out = np.full((len(columns), width), fill, np.int64)
    out[:, width - columns.shape[1] :] = columns
    return out


# ---------------------------------------------------------------- one operand of a site


@dataclass(frozen=True, eq=False)
class _Part:
    """One use of an operand, in all rows of its site; the arrays are columns of Touched."""

    use: Use
    rows: np.ndarray
    memory: int
    start: np.ndarray
    extents: np.ndarray
    steps: np.ndarray
    reads: np.ndarray
    writes: np.ndarray
    exact: np.ndarray

    def same_box(self, other: _Part) -> bool:
        pairs = (
            (self.start, other.start),
            (self.extents, other.extents),
            (self.steps, other.steps),
        )
        return all(np.array_equal(a, b) for a, b in pairs)


def _list_part(stream: Stream, k: int, numbers: Mapping[str, int]) -> _Part:
    """The list of micro-operations that the instructions of site k read."""
    site, rows = stream.sites[k], stream.rows(k)
    kind = site.instruction.micro_ops
    assert kind is not None
    n = len(rows)
    yes, ones = np.ones(n, bool), np.ones((n, 1), np.int64)
    return _Part(
        Use(k, None, None, None), rows, numbers[kind.memory], stream.lists[rows] * kind.bytes,
        ones * (site.entries * kind.bytes), ones, yes, ~yes, yes,
    )  # fmt: skip


def _parts(stream: Stream, k: int, o: int, memory: int) -> list[_Part]:
    """The uses of operand o of site k; of one box there is one."""
    operand = stream.sites[k].instruction.operands[o]
    used = _Operand(stream, k, o, memory)
    found: list[tuple[Access, _Part]] = []
    merged: list[_Part] = []
    for access in accesses(stream.sites[k].instruction.body):
        if access.buffer != operand:
            continue
        for part in used.parts(access):
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


class _Operand:
    """One operand of one site: where its subscripts lead in memory."""

    def __init__(self, stream: Stream, k: int, o: int, memory: int) -> None:
        site = stream.sites[k]
        instruction = site.instruction
        self.operand = instruction.operands[o]
        self.site, self.number, self.memory = k, o, memory
        self.rows = stream.rows(k)
        self.start = stream.addresses[self.rows, o]
        columns = stream.fields[self.rows].T
        self.fields = {f.symbol: c for f, c in zip(instruction.fields, columns, strict=False)}
        self.listed = instruction.listed(self.operand)
        self.offsets = site.offsets[o] if site.offsets else None
        steps = [instruction.step(self.operand, d) for d in range(len(self.operand.shape))]
        self.steps = [self._bytes(step) for step in steps]

    def _bytes(self, elements: Dim) -> np.ndarray:
        value = evaluate_expr(as_expr(elements), self.fields, {}) * self.operand.dtype.bytes
        return np.broadcast_to(value, self.rows.shape)

    def parts(self, access: Access) -> list[_Part]:
        """What one access touches: a box, or one for each entry of a list."""
        shape = footprint(access, self.fields, len(self.rows))
        counts = [axis.count for axis in shape.axes]
        moves = [self._move(axis.moves) for axis in shape.axes]
        lists: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
        if self.offsets is not None:
            along = [k for k, axis in enumerate(shape.axes) if axis.moves[self.listed].any()]
            for k in along:
                counts[k] = np.ones_like(counts[k])
            lists = _as_boxes(self.offsets)
        start = self.start + self._move(shape.first)
        return [self._part(access, shape, start + at, counts, moves, axes) for at, axes in lists]

    def _move(self, subscripts: Sequence[np.ndarray]) -> np.ndarray:
        return sum((i * s for i, s in zip(subscripts, self.steps, strict=True)), 0 * self.start)

    def _part(
        self,
        access: Access,
        shape: Footprint,
        start: np.ndarray,
        counts: Sequence[np.ndarray],
        moves: Sequence[np.ndarray],
        axes: Sequence[tuple[int, int]],
    ) -> _Part:
        n, reads = len(self.rows), not access.writes or access.op is not None
        extents = [*counts, *(np.full(n, c) for c, _ in axes)]
        steps = [*moves, *(np.full(n, step) for _, step in axes)]
        stmt = access.stmt
        return _Part(
            Use(self.site, self.number, stmt if reads else None, stmt if access.writes else None),
            self.rows,
            self.memory,
            start,
            np.stack([*extents, np.full(n, self.operand.dtype.bytes)], 1),
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


def _merge(a: _Part, b: _Part) -> _Part:
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
