"""What the instructions of a stream read and write: boxes of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.analyze.accesses import Access, accesses
from tilewright.codegen.footprint import Footprint, footprint
from tilewright.codegen.stream import Site, Stream
from tilewright.ir.expr import Var
from tilewright.ir.loop import For, Stmt
from tilewright.ir.substitute import variables

LIST = -1  # in place of an operand's number: the list of micro-operations


@dataclass(frozen=True)
class Use:
    """How a call of the program uses an operand: which statement of the instruction's meaning
    reads it, and which one writes it."""

    site: int
    operand: int
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
    return in_order([p for k in range(len(stream.sites)) for p in site_parts(stream, k)])


def site_parts(stream: Stream, k: int) -> list[Part]:
    """What the instructions of site k read and write."""
    numbers = {m.name: n for n, m in enumerate(stream.target.memories)}
    site = stream.sites[k]
    found = [
        part
        for o in range(len(site.instruction.operands))
        for part in _parts(stream, k, o, numbers[site.memories[o]])
    ]
    kind = site.instruction.micro_ops
    if site.entries and kind is not None:
        found.append(_list_part(stream, k, numbers[kind.memory], kind.bytes))
    return found


def in_order(parts: Sequence[Part]) -> Touched:
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
class Part:
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

    def same_box(self, other: Part) -> bool:
        pairs = (
            (self.start, other.start),
            (self.extents, other.extents),
            (self.steps, other.steps),
        )
        return all(np.array_equal(a, b) for a, b in pairs)


def _parts(stream: Stream, k: int, o: int, memory: int) -> list[Part]:
    """The uses of operand o of site k; of one box there is one."""
    site = stream.sites[k]
    operand = site.instruction.operands[o]
    rows = stream.rows(k)
    fields = {f.symbol: stream.fields[rows, c] for c, f in enumerate(site.instruction.fields)}
    found: list[tuple[Access, Part]] = []
    merged: list[Part] = []
    for access in accesses(site.instruction.body):
        if access.buffer != operand:
            continue
        shape = footprint(access, fields, len(rows))
        part = _part(Use(k, o, None, None), access, shape, site, stream.addresses[rows, o], rows)
        part = replace(part, memory=memory)
        for earlier, theirs in found:
            if _precedes(earlier, access) and theirs.same_box(part):
                part.reads[theirs.writes & theirs.exact] = False
        found.append((access, part))
        same = next((m for m in merged if m.same_box(part)), None)
        if same is None:
            merged.append(part)
        else:
            merged[merged.index(same)] = _merge(same, part)
    offsets = site.offsets[o]
    if offsets is None:
        return merged
    return [replace(p, start=p.start + x) for p in merged for x in np.unique(offsets)]


def _list_part(stream: Stream, k: int, memory: int, width: int) -> Part:
    """The lists of micro-operations that the calls of site k read."""
    rows = stream.rows(k)
    n = len(rows)
    extents = np.tile([stream.sites[k].entries, width], (n, 1))
    steps = np.tile([width, 1], (n, 1))
    yes, no = np.ones(n, bool), np.zeros(n, bool)
    start = stream.lists[rows] * width
    use = Use(k, LIST, None, None)
    return Part(use, rows, memory, start, extents, steps, yes, no, yes)


def _part(
    use: Use, access: Access, shape: Footprint, site: Site, addresses: np.ndarray, rows: np.ndarray
) -> Part:
    n, steps = len(rows), site.steps[use.operand]
    width = site.instruction.operands[use.operand].dtype.bytes
    start = addresses + sum((f * s for f, s in zip(shape.first, steps, strict=True)), 0)
    listed = site.instruction.listed(site.instruction.operands[use.operand])
    axes = [a for a in shape.axes if listed is None or not a.moves[listed].any()]
    moves = [sum((m * s for m, s in zip(a.moves, steps, strict=True)), 0) for a in axes]
    extents = [*(a.count for a in axes), np.full(n, width)]
    reads = shape.active & (not access.writes or access.op is not None)
    writes = shape.active & access.writes
    use = replace(
        use,
        reader=access.stmt if not access.writes or access.op is not None else None,
        writer=access.stmt if access.writes else None,
    )
    return Part(
        use, rows, 0, start, np.stack(extents, 1), np.stack([*moves, np.ones(n, np.int64)], 1),
        reads, writes, shape.exact,
    )  # fmt: skip


def _merge(a: Part, b: Part) -> Part:
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
