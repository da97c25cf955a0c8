"""Lists of micro-operations for the calls of a stream that need them: made, placed in the memory
that holds them, and loaded before they are used.

Calls whose operands are at the same places share a list. Lists fill their memory one after the
other; when it is full, they start from its beginning again, and all that are needed from there on
are loaded in one go. What must wait for those loads follows like for any other operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.backends.stream.addresses import ALIGN, Place
from tilewright.backends.stream.encode import encode_entries
from tilewright.backends.stream.stream import Site, Stream
from tilewright.base.errors import TargetError
from tilewright.ir.expr import Buffer, Load, Symbol, const
from tilewright.ir.instruction import Instruction, MicroOps, Region, axis
from tilewright.ir.loop import Call, For, Store, walk_statements
from tilewright.target.encoding_faults import fit_faults
from tilewright.target.target import Target

List = tuple[tuple[int, ...], ...]  # an entry: the operands' addresses, in bytes
Units = tuple[int, ...]  # bytes that the numbers of an entry count: equal ones may share a list


@dataclass(frozen=True)
class Filling:
    """Lists that are in memory at the same time: loaded before row `row` of the stream."""

    row: int
    first: int  # of all entries, counted over all fillings
    entries: int


def place_lists(stream: Stream) -> Stream:
    """The stream with its lists, and the instructions that load them; as it is if it has none."""
    listed = (s.instruction.micro_ops for s in stream.sites if s.entries)
    kinds = {kind.with_(axes=()) for kind in listed if kind is not None}
    for kind in sorted(kinds, key=lambda k: k.memory):
        stream = _place(stream, kind)
    return stream


def _place(stream: Stream, kind: MicroOps) -> Stream:
    size = stream.target.memory(kind.memory).size
    room = (size or 1 << 62) // kind.bytes
    at = stream.lists.copy()
    readers = [_Reader(stream.target, s.instruction) for s in stream.sites]
    known: dict[tuple[int, ...], tuple[Units, List]] = {}  # by what a list follows from
    resident: dict[tuple[Units, List], int] = {}
    fillings: list[Filling] = []
    made: list[bytes] = []
    total = used = 0
    rows = _rows(stream, kind)
    sources = np.column_stack([stream.site[rows], stream.addresses[rows]]).tolist()
    for row, source in zip(rows, map(tuple, sources), strict=True):
        reader = readers[source[0]]
        key = known.get(source)
        if key is None:
            key = known[source] = reader.units, micro_operations(stream, row)
        if key not in resident:
            found = key[1]
            if len(found) > room:
                raise TargetError(
                    f"an instruction needs {len(found)} micro-operations, and {kind.memory} "
                    f"holds {room}",
                    hint="make tiles smaller",
                )
            if not fillings or used + len(found) > room:
                fillings.append(
                    Filling(int(row) if fillings else 0, total, 0)
                )  # the first: at once
                resident, used = {}, 0
            resident[key] = used
            made.append(reader.bits(found))
            used, total = used + len(found), total + len(found)
            fillings[-1] = replace(fillings[-1], entries=used)
        at[row] = resident[key]
    with_lists = replace(stream, lists=at)
    return _load(with_lists, kind, fillings, b"".join(made))


def _rows(stream: Stream, kind: MicroOps) -> np.ndarray:
    ours = [
        k
        for k, s in enumerate(stream.sites)
        if s.entries
        and s.instruction.micro_ops is not None
        and s.instruction.micro_ops.memory == kind.memory
    ]
    return np.flatnonzero(np.isin(stream.site, ours))


def micro_operations(stream: Stream, row: int) -> List:
    """The entries of an instruction's list: where each operand with a listed axis is."""
    site = stream.sites[stream.site[row]]
    columns = [
        stream.addresses[row, o] + moves
        for o, moves in enumerate(site.offsets)
        if moves is not None
    ]
    return tuple(zip(*(c.tolist() for c in columns), strict=True))


class _Reader:
    """How an instruction reads its list. Where the description has no bits for that, or too few,
    there is no chip that does: lists are then zeros."""

    def __init__(self, target: Target, instruction: Instruction) -> None:
        self.target, self.instruction = target, instruction
        entry = target.entry(instruction)
        self.encodes = entry is not None and not fit_faults(target, instruction)
        self.units: Units = tuple(p.unit for p in entry.parts) if entry is not None else ()

    def bits(self, found: List) -> bytes:
        """A list as the chip has it in memory."""
        if not self.encodes:
            kind = self.instruction.micro_ops
            return bytes(len(found) * kind.bytes) if kind is not None else b""
        return encode_entries(self.target, self.instruction, np.array(found, np.int64)).tobytes()


# ---------------------------------------------------------------- loading


def _load(stream: Stream, kind: MicroOps, fillings: Sequence[Filling], contents: bytes) -> Stream:
    """Puts the loads of every filling into the stream."""
    loader = list_loader(stream.target, kind)
    (source, _), most = loader.operands, _most(loader)
    element = source.dtype.bytes
    each = kind.bytes // element
    most_held = max(f.entries for f in fillings)
    held = Buffer("micro_ops", source.dtype, (len(contents) // element,), source.memory)
    there = Buffer("micro_ops_local", source.dtype, (most_held * each,), kind.memory)
    offset = -(-stream.sizes.get(source.memory, 0) // ALIGN) * ALIGN
    sizes = {
        **stream.sizes,
        source.memory: offset + len(contents),
        kind.memory: most_held * kind.bytes,
    }
    sites, sources = list(stream.sites), []
    rows: list[tuple[int, int, int, tuple[int, int]]] = []
    for filling in fillings:
        for start in range(0, filling.entries * each, most):
            count = min(most, filling.entries * each - start)
            site = _site(loader, held, there, count)
            if count not in sources:
                sources.append(count)
                sites.append(site)
            number = len(stream.sites) + sources.index(count)
            begins = offset + filling.first * kind.bytes + start * element
            rows.append((filling.row, number, count, (begins, start * element)))
    new = {held: Place(source.memory, offset), there: Place(kind.memory, 0)}
    places = {**stream.places, **new}
    constants = {**stream.constants, held: np.frombuffer(contents, source.dtype.numpy)}
    grown = replace(stream, sites=tuple(sites), places=places, sizes=sizes, constants=constants)
    return _insert(grown, rows)


def _insert(stream: Stream, rows: Sequence[tuple[int, int, int, tuple[int, int]]]) -> Stream:
    """New instructions before those of given numbers: (before, site, field, addresses)."""
    before = [r[0] for r in rows]
    fields = np.zeros((len(rows), max(1, stream.fields.shape[1])), np.int64)
    addresses = np.zeros((len(rows), max(2, stream.addresses.shape[1])), np.int64)
    fields[:, 0] = [r[2] for r in rows]
    addresses[:, :2] = [r[3] for r in rows]
    return replace(
        stream,
        site=np.insert(stream.site, before, [r[1] for r in rows]),
        fields=np.insert(_as_wide(stream.fields, fields), before, fields, axis=0),
        addresses=np.insert(_as_wide(stream.addresses, addresses), before, addresses, axis=0),
        lists=np.insert(stream.lists, before, -1),
    )


def _as_wide(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    out = np.zeros((len(rows), like.shape[1]), np.int64)
    out[:, : rows.shape[1]] = rows
    return out


def list_loader(target: Target, kind: MicroOps) -> Instruction:
    """The instruction that loads lists: copies a row of elements, as many as a field says."""
    for instruction in target.instructions:
        body = instruction.body
        loops = [s for s in walk_statements(body) if isinstance(s, For)]
        stores = [s for s in walk_statements(body) if isinstance(s, Store)]
        if len(loops) != 1 or len(stores) != 1 or len(instruction.fields) != 1:
            continue
        (loop,), (store,) = loops, stores
        copies = isinstance(store.value, Load) and store.value.indices == store.indices
        if copies and store.buffer.memory == kind.memory and loop.extent == _count(instruction):
            return instruction
    raise TargetError(
        f"{target.name} has no instruction that loads micro-operations into {kind.memory}",
        hint="describe one that copies a row of elements, with their number as its only field",
    )


def _count(instruction: Instruction) -> Symbol:
    return instruction.fields[0].symbol


def _most(loader: Instruction) -> int:
    return loader.fields[0].high


def _site(loader: Instruction, held: Buffer, there: Buffer, count: int) -> Site:
    regions = (Region(held, (axis(0),)), Region(there, (axis(0),)))
    call = Call(loader, regions, (const(count),))
    step = (held.dtype.bytes,)
    return Site(call, (held.memory, there.memory), (step, step), (None, None))
