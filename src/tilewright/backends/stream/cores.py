"""Streams that several cores run at the same time, each on its own part of the arrays.

    core 0: load from 0x0000; …; store to 0x8000
    core 1: load from 0x0400; …; store to 0x8100      the same instructions, other addresses

What lies in a memory that cores share is moved by another number of bytes for each of them. Cores
do not wait for each other: no byte that one of them writes may be touched by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.backends.stream.addresses import ALIGN
from tilewright.backends.stream.boxes import Boxes
from tilewright.backends.stream.faults import Fault, FaultKind, lines, name_of, use_line
from tilewright.backends.stream.stream import Site, Stream
from tilewright.backends.stream.touched import Touched
from tilewright.ir.expr import Buffer
from tilewright.ir.instruction import Hazard
from tilewright.runtime import stream_functions as native
from tilewright.target.target import Target


def on_cores(stream: Stream, target: Target, moved: Mapping[Buffer, np.ndarray]) -> Stream:
    """A stream of one core as several cores of a chip run it. `moved` says of each parameter how
    many bytes further its part lies for each of them [cores]. Other buffers in memories that they
    share have a place for each core; constants are there once."""
    cores = len(next(iter(moved.values())))
    none = np.zeros(cores, np.int64)
    own, sizes = _places_of_own(stream, target, moved)

    def shift(site: Site, operand: int) -> np.ndarray:
        buffer, memory = site.call.regions[operand].buffer, site.memories[operand]
        if buffer in moved or buffer in stream.constants:
            return moved.get(buffer, none)
        return np.arange(cores) * own.get(memory, 0)

    shifts = np.zeros((cores, len(stream.sites), stream.addresses.shape[1]), np.int64)
    for k, site in enumerate(stream.sites):
        for o in range(len(site.memories)):
            shifts[:, k, o] = shift(site, o)
    return replace(stream, target=target, sizes=sizes, shifts=shifts)


def _places_of_own(
    stream: Stream, target: Target, moved: Mapping[Buffer, np.ndarray]
) -> tuple[dict[str, int], dict[str, int]]:
    """How many bytes apart the places lie that cores have in memories that they share, and how much
    all use of each memory."""
    cores = len(next(iter(moved.values())))
    apart: dict[str, int] = {}
    sizes = dict(stream.sizes)
    held = {p.memory for b, p in stream.places.items() if b not in {*moved, *stream.constants}}
    for memory in (m for m in target.memories if m.shared_by > 1 and m.name in held):
        used = stream.sizes[memory.name]
        own = -(-used // ALIGN) * ALIGN if memory.size is None else memory.size // target.cores
        apart[memory.name], sizes[memory.name] = own, (cores - 1) * own + used
    return apart, sizes


def core_stream(stream: Stream, core: int) -> Stream:
    """The stream of one core, with the addresses that it has."""
    if stream.shifts is None:
        return stream
    addresses = stream.addresses + stream.shifts[core][stream.site]
    return replace(stream, addresses=addresses, shifts=None)


def check_cores(stream: Stream, found: Boxes) -> Fault | None:
    """The first instruction of a core that touches a byte which another core writes, or writes one
    that another touches; None if there is none. `found` is what one core touches."""
    if stream.shifts is None:
        return None
    n, cores = len(stream), stream.cores
    every = _boxes_of_all(stream, found)
    memories = []
    for cut in every.cuts:
        last = np.full(cut.count, -1, np.int32), np.full((cut.count, cores), -1, np.int32)
        memories.append(native.Cells(*cut.members, *last))
    need, own = np.empty((cores * n, cores), np.int32), np.empty((cores * n, len(Hazard)), np.int32)
    kinds = np.zeros(cores * n, np.uint8)
    of_core = np.repeat(np.arange(cores, dtype=np.int32), n)
    native.dependences(
        cores * n, cores, of_core, every.arrays, native.array(native.Cells, memories),
        native.Needs(need, own, kinds),
    )  # fmt: skip
    wrong = np.flatnonzero((need >= 0).any(1))
    if not len(wrong):
        return None
    row, other = int(wrong[0]), int(need[wrong[0]].max())
    box = next(iter(found.of(row % n)))
    text = lines(
        f"{name_of(stream, row % n)} on core {row // n}, touches what"
        f" {name_of(stream, other % n)} on core {other // n}, touches, one of them writing",
        use_line(found, box, writes=bool(found.touched.writes[box])),
    )
    return Fault(FaultKind.RACE, (row % n, other % n), text)


def _boxes_of_all(stream: Stream, found: Boxes) -> Boxes:
    """What all cores touch of the memories that they share: the rows of each core behind those of
    the one before."""
    assert stream.shifts is not None
    t, n = found.touched, len(stream)
    shared = np.array([m.shared_by > 1 for m in stream.target.memories])
    here = np.flatnonzero(shared[t.memory])
    operand = np.array([-1 if u.operand is None else u.operand for u in t.uses] or [-1])[
        t.use[here]
    ]
    site = stream.site[t.row[here]]
    rows, starts = [], []
    for core, shift in enumerate(stream.shifts):
        rows.append(t.row[here] + core * n)
        starts.append(t.start[here] + np.where(operand >= 0, shift[site, operand], 0))
    row, start = (np.ascontiguousarray(np.concatenate(x), np.int64) for x in (rows, starts))

    def again(column: np.ndarray) -> np.ndarray:
        repeated = np.tile(column[here], (stream.cores, *[1] * (column.ndim - 1)))
        return np.ascontiguousarray(repeated)

    memory, extents, steps = again(t.memory), again(t.extents), again(t.steps)
    reads, writes = (again(x.astype(np.uint8)) for x in (t.reads, t.writes))
    arrays = native.BoxArrays(
        len(row), extents.shape[1], row, memory, start, extents, steps, reads, writes
    )
    granules = np.zeros(len(shared), np.int64)
    native.normalize(arrays, granules)
    every = Touched(
        row, memory, start, extents, steps, again(t.reads), again(t.writes), again(t.exact),
        again(t.use), t.uses,
    )  # fmt: skip
    first = np.searchsorted(row, np.arange(stream.cores * n + 1)).astype(np.int64)
    return Boxes(stream, every, np.maximum(granules, 1), first, arrays)
