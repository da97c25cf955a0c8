"""Reads across rows, turned in registers.

A vector loop whose lanes read with a stride gathers element by element. Where its body reads a
whole square, as the unrolled copies of a transposition do,

    for i (vectorize, 16):  … X[i, j] … X[i, j + 1] … … X[i, j + 15] …

the rows are read as vectors instead, and shuffled into the columns: first in squares of 128 bits,
which shuffles of all x86 and Arm vectors do in one instruction each, then squares of squares.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analyze.linear import Linear, add
from tilewright.backends.native.expr import ExprEmitter
from tilewright.backends.native.text import Function, LLVMValue, memory_type
from tilewright.ir.expr import Expr, Load, Select
from tilewright.ir.loop import Accumulate, Block, Store, buffers_written

PART = 16  # bytes within which shuffles are cheap


def emit_columns(e: ExprEmitter, body: Block, width: int) -> dict[Load, LLVMValue]:
    """Reads the squares that a vector loop's body reads for certain; the value of each such read.
    `width` is the bytes of a register."""
    assert e.lanes is not None
    n = e.lanes.count
    if e.mask is not None or n < 2 or n & (n - 1):
        return {}
    columns: dict[Load, LLVMValue] = {}
    for reads in _strided(e, body, width):
        for first in sorted(reads):
            run = [reads.get(first + i) for i in range(n)]
            if any(load is None or load in columns for load in run):
                continue
            for load, value in zip(run, _read_square(e, reads[first]), strict=True):
                assert load is not None
                columns[load] = value
    return columns


def _strided(e: ExprEmitter, body: Block, width: int) -> Iterator[dict[int, Load]]:
    """Reads with a stride, by offset; one group for all that differ in nothing else."""
    assert e.lanes is not None
    groups: dict[object, dict[int, Load]] = {}
    written = buffers_written(body)
    for load in dict.fromkeys(x for s in body for x in _certain(s)):
        if load.buffer in written or load.buffer.dtype.bytes * e.lanes.count > width:
            continue
        if not all(e.is_pure(i) for i in load.indices):
            continue
        parts = e.split_lanes(e.position(load.buffer, load.indices))
        if parts is not None and parts[0] not in (0, 1):
            step, rest = parts
            key = (load.buffer, step, frozenset((a, k) for a, k in rest.items() if a is not None))
            groups.setdefault(key, {})[rest.get(None, 0)] = load
    yield from groups.values()


def _certain(s: object) -> Iterator[Load]:
    """The reads of a statement of the body that happen whatever the data."""
    if isinstance(s, (Store, Accumulate)):
        for e in (*s.indices, s.value):
            yield from _loads(e)


def _loads(e: Expr) -> Iterator[Load]:
    if isinstance(e, Load):
        yield e
    if isinstance(e, Select):
        return
    for child in e.children():
        if isinstance(child, Expr):
            yield from _loads(child)


def _read_square(e: ExprEmitter, corner: Load) -> list[LLVMValue]:
    """Columns of the square of which the first lane's first element is at `corner`."""
    assert e.lanes is not None
    n, buffer = e.lanes.count, corner.buffer
    parts = e.split_lanes(e.position(buffer, corner.indices))
    assert parts is not None
    step, rest = parts
    kind = f"<{n} x {memory_type(buffer.dtype)}>"
    rows = []
    for lane in range(n):
        at: Linear = add(rest, {None: step * lane})
        row = f"load {kind}, ptr {e.address(buffer, at)}, align {buffer.dtype.bytes}"
        rows.append(e.f.let(row))
    part = max(1, min(n, PART // buffer.dtype.bytes))
    refs = transpose(e.f, kind, rows, part)
    return [e.from_memory(LLVMValue(ref, buffer.dtype, n)) for ref in refs]


def transpose(f: Function, kind: str, rows: list[str], part: int) -> list[str]:
    """The columns of a square of n vectors of n elements; shuffles stay within `part` elements as
    far as possible."""
    n = len(rows)
    groups = [_within_parts(f, kind, rows[i : i + part], 1, part) for i in range(0, n, part)]
    columns = [""] * n
    for i, members in enumerate(zip(*groups, strict=True)):
        for p, ref in enumerate(_across_parts(f, kind, list(members), part)):
            columns[p * part + i] = ref
    return columns


def _within_parts(f: Function, kind: str, rows: list[str], unit: int, part: int) -> list[str]:
    """Row i of the result holds, in each part, element i of that part of every row."""
    if len(rows) == 1:
        return rows
    halves: list[list[str]] = [[], []]
    n = int(kind[1:].split()[0])
    for a, b in zip(rows[::2], rows[1::2], strict=True):
        for half, out in enumerate(halves):
            places = []
            for start in range(0, n, part):
                for i in range(part // 2 // unit):
                    at = start + half * part // 2 + i * unit
                    places += [*range(at, at + unit), *range(n + at, n + at + unit)]
            out.append(_shuffle(f, kind, a, b, places))
    return [x for half in halves for x in _within_parts(f, kind, half, 2 * unit, part)]


def _across_parts(f: Function, kind: str, rows: list[str], part: int) -> list[str]:
    """Row p of the result is made of part p of every row."""
    if len(rows) == 1:
        return rows
    n = int(kind[1:].split()[0])
    halves: list[list[str]] = []
    for odd in (0, 1):
        starts = range(odd * part, 2 * n, 2 * part)
        places = [i for start in starts for i in range(start, start + part)]
        pairs = zip(rows[::2], rows[1::2], strict=True)
        some = [_shuffle(f, kind, a, b, places) for a, b in pairs]
        halves.append(_across_parts(f, kind, some, part))
    return [x for pair in zip(*halves, strict=True) for x in pair]


def _shuffle(f: Function, kind: str, a: str, b: str, places: list[int]) -> str:
    mask = ", ".join(f"i32 {p}" for p in places)
    return f.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(places)} x i32> <{mask}>")
