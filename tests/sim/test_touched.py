"""What instructions touch, as boxes, against their meaning run in Python."""

import itertools

import numpy as np
import pytest
from handmade import stream_of
from stream_cases import CASES
from stream_judge import MEMORY, Judge
from test_epilogues import CHIPS

from tilewright import cast, dims, grid, i8, i32, reduce, select, u8
from tilewright.codegen.touched import touched
from tilewright.ir.kernel_words import out
from tilewright.sim.boxes import Boxes, boxes
from tilewright.sim.waits import no_waits
from tilewright.target.describe import Range, TargetBuilder, flag, view
from tilewright.target.target import Target
from tilewright.targets.tiny import tiny

M = "m"
SIZE = 1 << 16
SMALL = Range(1, 5)


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
        values = {f.name: int(rng.integers(f.low, min(f.high, 64) + 1)) for f in instruction.fields}
        where = [
            4096 * (2 * k + 1) + 4 * int(rng.integers(0, 64))
            for k in range(len(instruction.operands))
        ]
        found.append((name, values, where))
    return stream_of(target, found, {m.name: SIZE for m in target.memories})


def bytes_by_row(b: Boxes, row: int, writes: bool) -> set[int]:
    t = b.touched
    flags = t.writes if writes else t.reads
    found = [b.bytes_of(k) + MEMORY * t.memory[k] for k in b.of(row) if flags[k]]
    return set(np.concatenate([np.zeros(0, np.int64), *found]).tolist())


INSTRUCTIONS = [
    (name, i.name)
    for name, target in {"windows": windows, "tiny": tiny, **CHIPS}.items()
    for i in target().instructions
]


@pytest.mark.parametrize("chip, name", INSTRUCTIONS)
def test_boxes_are_what_is_touched(chip: str, name: str):
    target = {"windows": windows, "tiny": tiny, **CHIPS}[chip]()
    s = random_stream(target, name, np.random.default_rng(0))
    names = [f.name for f in s.sites[0].instruction.fields]
    b, judge = boxes(s), Judge(s, no_waits(s))
    for row, (reads, writes) in enumerate(judge.effects):
        found = bytes_by_row(b, row, writes=False), bytes_by_row(b, row, writes=True)
        mine, theirs = found[0] | found[1], set(reads.tolist()) | set(writes.tolist())
        exact = all(b.touched.exact[k] for k in b.of(row))
        fields = dict(zip(names, s.fields[row].tolist(), strict=False))
        gaps = name == "conv" and fields["stride"] == 2 and min(fields["H"], fields["W"]) < 2
        assert exact == (name != "triangle" and not gaps)
        assert mine == theirs if exact else mine >= theirs
        assert found[1] == set(writes.tolist())
        assert found[0] <= set(reads.tolist()) or not exact


def test_what_an_instruction_wrote_itself_is_not_read():
    """A sum that starts at 0 depends on nothing; one that goes on does."""
    target = windows()
    fields = {"oh": 2, "ow": 2, "kh": 1, "stride": 1, "pad": 0, "H": 4, "W": 4}
    rows = [("conv", {**fields, "more": more}, (0, 1024, 2048)) for more in (0, 1)]
    t = touched(stream_of(target, rows, {"m": SIZE}))
    sums = [k for k in range(len(t.row)) if t.start[k] >= 2048]
    assert [(int(t.row[k]), bool(t.reads[k]), bool(t.writes[k])) for k in sums] == [
        (0, False, True), (1, True, True),
    ]  # fmt: skip
    rows = [("twice", {"n": 3, "first": 0}, (0, 1024))]
    t = touched(stream_of(target, rows, {"m": SIZE}))
    flags = zip(t.start.tolist(), t.reads.tolist(), t.writes.tolist(), strict=True)
    assert list(flags) == [(1024, True, False), (0, False, True)]


@pytest.mark.parametrize("name", ["vta", "tiny, window", "in place, small"])
def test_streams_of_kernels(name: str):
    """Lists of micro-operations and all."""
    s = CASES[name].build().stream
    b, judge = boxes(s), Judge(s, no_waits(s))
    for row, (reads, writes) in enumerate(judge.effects):
        assert bytes_by_row(b, row, writes=True) == set(writes.tolist())
        touches = bytes_by_row(b, row, writes=False) | set(writes.tolist())
        assert touches == set(reads.tolist()) | set(writes.tolist())


def test_normal_form():
    """Rows that follow each other are one run; axes that overlap are one axis."""
    target = windows()
    fields = {"oh": 5, "ow": 5, "kh": 3, "stride": 1, "pad": 1, "more": 0, "H": 5, "W": 5}
    b = boxes(stream_of(target, [("conv", fields, (0, 1024, 2048))], {"m": SIZE}))
    t = b.touched
    shapes = {(int(t.start[k]), *t.extents[k].tolist()) for k in range(len(b))}
    ones = [1] * (t.extents.shape[1] - 1)
    assert shapes == {(0, *ones, 100), (1024, *ones, 72), (2048, *ones, 200)}
    assert b.granules.tolist() == [4]


def test_lists_of_offsets_as_axes():
    """A list that leads along even series is one box; any other is one for each entry."""
    base = CASES["vta"].build().stream
    site = next(s for s in base.sites if s.entries > 1)
    entries = [np.unique(x) for x in site.offsets if x is not None]
    assert any(len(x) > 1 for x in entries)
    row = int(base.rows(base.sites.index(site))[0])
    b = boxes(base)
    operands = [b.touched.uses[b.touched.use[k]].operand for k in b.of(row)]
    for operand, group in itertools.groupby(sorted(o for o in operands if o is not None)):
        series = np.diff(np.unique(site.offsets[operand]))
        if len(np.unique(series)) == 1:
            assert len(list(group)) == 1
