"""Streams row by row, without a compiler, and a chip on which anything can depend on anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from sync_chips import KINDS

from tilewright import cast, dims, grid, i8, i32, reduce, select, u8
from tilewright.backends.stream.stream import Site, Stream
from tilewright.ir.expr import Buffer, const
from tilewright.ir.instruction import Instruction, Region, axis
from tilewright.ir.loop import Call
from tilewright.ir.python.words import out
from tilewright.target.describe import Range, TargetBuilder, cost, flag, view
from tilewright.target.target import Target

QUEUES = ("load", "compute", "store")
BYTES = 256  # of the chip's memory
SIZE = 1 << 16  # of the memory of `windows`
M = "m"
SMALL = Range(1, 5)

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


def windows() -> Target:
    """Instructions that touch memory in all the ways we know."""
    t = TargetBuilder("windows", clock=1e9)
    t.memory("m", SIZE)
    (q,) = t.queues("q", depth=8)
    H, W = dims("H W", max=9)

    @t.instruction(q)
    def conv(
        x: i8[H, W, 4] @ M, w: i8[3, 3, 4, 2] @ M, y: out(i32[5, 5, 2] @ M),
        oh: SMALL, ow: SMALL, kh: Range(1, 3), stride: Range(1, 2), pad: Range(0, 2), more: flag,
    ):  # fmt: skip
        """A window that goes beyond the picture, over a tile of it."""
        for i, j, o in grid(oh, ow, 2):
            if more == 0:
                y[i, j, o] = 0
            for r, s, c in reduce(kh, 3, 4):
                if (
                    (i * stride + r - pad >= 0)
                    & (i * stride + r - pad < H)
                    & (j * stride + s - 1 >= 0)
                    & (j * stride + s - 1 < W)
                ):
                    y[i, j, o] += cast(i32, x[i * stride + r - pad, j * stride + s - 1, c]) * cast(
                        i32, w[r, s, c, o]
                    )

    @t.instruction(q)
    def padded(
        src: view(i8[9, 16] @ M, "far"), dst: out(i8[16, 16] @ M),
        rows: Range(1, 9), above: Range(0, 3), below: Range(0, 4), far: Range(16, 40),
    ):  # fmt: skip
        """Rows of zeros above and below."""
        for i, j in grid(rows + above + below, 16):
            dst[i, j] = select((i >= above) & (i < above + rows), src[i - above, j], cast(i8, 0))

    @t.instruction(q)
    def backwards(a: u8[8, 8] @ M, b: out(u8[8, 8] @ M), n: Range(1, 8), step: Range(1, 3)):
        """Every step-th row, from the last to the first; columns crosswise."""
        for i, j in grid(n, 2):
            b[n - 1 - i, j] = a[i, j * step + 1]

    @t.instruction(q)
    def diagonal(a: u8[8, 8] @ M, b: out(u8[8] @ M), n: Range(1, 8)):
        for i in grid(n):
            b[i] = a[i, i]

    @t.instruction(q)
    def triangle(a: u8[8, 8] @ M, b: out(u8[8] @ M), n: Range(1, 8)):
        """Not a box: the boxes are larger than what it touches."""
        for i in grid(n):
            b[i] = cast(u8, 0)
            for j in reduce(i + 1):
                b[i] += a[i, j]

    @t.instruction(q)
    def twice(c: out(i32[8, 4] @ M), b: i32[8, 4] @ M, n: Range(1, 8), first: flag):
        """Writes all of c before it reads it."""
        for i, j in grid(n, 4):
            c[i, j] = b[i, j]
        for i, j in grid(n, 4):
            c[i, j] += 7

    return t.build()


def random_stream(target: Target, name: str, rng: np.random.Generator, rows: int = 40):
    """Random fields; operands far from each other, and from the memory's ends."""
    instruction = next(i for i in target.instructions if i.name == name)
    found = []
    for _ in range(rows):
        values = {
            f.name: int(rng.integers(f.low, min(f.high, max(64, f.low)) + 1))
            for f in instruction.fields
        }
        where = [
            4096 * (2 * k + 1) + 4 * int(rng.integers(0, 64))
            for k in range(len(instruction.operands))
        ]
        found.append((name, values, where))
    return stream_of(target, found, {m.name: SIZE for m in target.memories})
