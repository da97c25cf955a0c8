"""What instructions touch, as boxes, against their meaning run in Python."""

import itertools

import numpy as np
import pytest
from epilogue_chips import CHIPS
from handmade_streams import SIZE, random_stream, stream_of, windows
from stream_cases import CASES
from stream_judge import MEMORY, Judge

from tilewright.backends.stream.boxes import Boxes, boxes
from tilewright.backends.stream.touched import touched
from tilewright.backends.stream.waits import no_waits
from tilewright.targets.tiny import tiny


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chip, name", INSTRUCTIONS)
def test_boxes_are_what_is_touched(chip: str, name: str):
    target = {"windows": windows, "tiny": tiny, **CHIPS}[chip]()
    s = random_stream(target, name, np.random.default_rng(1))
    names = [f.name for f in s.sites[0].instruction.fields]
    b, judge = boxes(s), Judge(s, no_waits(s))
    for row, (reads, writes) in enumerate(judge.effects):
        found = bytes_by_row(b, row, writes=False), bytes_by_row(b, row, writes=True)
        mine, theirs = found[0] | found[1], set(reads.tolist()) | set(writes.tolist())
        exact = all(b.touched.exact[k] for k in b.of(row))
        fields = dict(zip(names, s.fields[row].tolist(), strict=False))
        gaps = name == "conv" and fields["stride"] == 2 and min(fields["H"], fields["W"]) < 2
        assert exact != (name == "triangle") or gaps
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
