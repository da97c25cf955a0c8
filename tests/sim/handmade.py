"""Streams row by row, without a compiler, and a chip on which anything can depend on anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from sync_chips import KINDS

from tilewright import grid, u8
from tilewright.codegen.stream import Site, Stream
from tilewright.ir.expr import Buffer, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.kernel_words import out
from tilewright.ir.loop import Call
from tilewright.target.describe import Range, TargetBuilder, cost
from tilewright.target.target import Target

QUEUES = ("load", "compute", "store")
BYTES = 256  # of the chip's memory

Row = tuple[str, Mapping[str, int], Sequence[int]]  # instruction, fields, addresses


def stream_of(target: Target, rows: Sequence[Row], sizes: Mapping[str, int]) -> Stream:
    """These instructions; memories are `sizes` bytes large."""
    known = {i.name: i for i in target.instructions}
    names = list(dict.fromkeys(name for name, _, _ in rows))
    sites = tuple(_site(known[name]) for name in names)
    width = max([0, *(len(s.instruction.fields) for s in sites)])
    operands = max([0, *(len(s.memories) for s in sites)])
    fields = np.zeros((len(rows), width), np.int64)
    addresses = np.zeros((len(rows), operands), np.int64)
    for k, (name, values, where) in enumerate(rows):
        instruction = known[name]
        fields[k, : len(instruction.fields)] = [values[f.name] for f in instruction.fields]
        addresses[k, : len(where)] = where
    site = np.array([names.index(name) for name, _, _ in rows], np.int32)
    lists = np.full(len(rows), -1, np.int64)
    return Stream(target, sites, site, fields, addresses, {}, dict(sizes), lists)


def _site(instruction: Instruction) -> Site:
    regions = tuple(
        Region(
            Buffer(f"of_{b.name}", b.dtype, b.shape, b.memory),
            tuple(map(axis, range(len(b.shape)))),
        )
        for b in instruction.operands
    )
    fields = tuple(const(f.low) for f in instruction.fields)
    memories = tuple(b.memory for b in instruction.operands)
    steps = tuple((0,) * len(b.shape) for b in instruction.operands)
    return Site(Call(instruction, regions, fields), memories, steps, (None,) * len(memories))


def copier(kind: str, depth: int = 64, **parts: Callable[[TargetBuilder], None]) -> Target:
    """Three queues with an instruction each that copies 1 to 64 bytes of one memory."""
    t = TargetBuilder("copier", clock=1e9)
    t.memory("m", BYTES)
    t.queues(*QUEUES, depth=depth)
    KINDS[kind](t)
    for queue in QUEUES:

        @t.instruction(queue, name=f"{queue}_copy")
        def copy(src: u8[64] @ M, dst: out(u8[64] @ M), n: Range(1, 64)):
            for i in grid(n):
                dst[i] = src[i]
            cost(busy=n, latency=7)

    return t.build()


M = "m"


def random_rows(rng: np.random.Generator, count: int) -> list[Row]:
    """Copies between random places, of which some are alike; source and destination lie apart."""
    rows: list[Row] = []
    while len(rows) < count:
        n = int(rng.choice([4, 8, 16, 24]))
        source, to = (int(8 * rng.integers(0, (BYTES - n) // 8 + 1)) for _ in range(2))
        if abs(source - to) >= n:
            queue = QUEUES[rng.integers(len(QUEUES))]
            rows.append((f"{queue}_copy", {"n": n}, (source, to)))
    return rows
