"""Memories cut into cells: of equal size, or between the ends of runs. All is found either way."""

import numpy as np
import pytest
from stream_cases import CASES

from tilewright.backends.stream import boxes as module
from tilewright.backends.stream.boxes import Cut, boxes, dependences
from tilewright.backends.stream.check_waits import check_waits
from tilewright.backends.stream.memory import check_memory
from tilewright.backends.stream.waits import no_waits

SOME = ("tiny, window", "vta", "gemmini", "engine", "chip with events", "chip with interlock")
ALWAYS, NEVER = 0, 1 << 40  # values of FEW: cells between runs, or of equal size


def built(name: str):
    case = CASES[name]
    return case.build(), case.arrays(0)


@pytest.mark.parametrize("name", SOME)
def test_cells_between_runs_say_the_same(name: str, monkeypatch):
    chip, (inputs, outputs) = built(name)
    stream = chip.stream
    found = []
    for few in (ALWAYS, NEVER):
        monkeypatch.setattr(module, "FEW", few)
        b = boxes(stream)
        assert all((cut.bounds is None) == (few == NEVER) for cut in b.cuts if cut.count)
        assert check_memory(stream, (*chip.kernel.inputs, *stream.constants), b) is None
        found.append((dependences(stream, b), str(check_waits(stream, None, no_waits(stream), b))))
        given = [a.copy() for a in outputs]
        chip(*inputs, *given)
        assert chip.replay(*inputs, *given, orders=4) is None
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_cells_that_bytes_lie_in():
    even, cut = Cut(4, 4), Cut(3, 1, np.array([0, 4, 10, 16]))
    assert [even.within(*x) for x in ((0, 16), (4, 8), (5, 6), (7, 9))] == [
        slice(0, 4), slice(1, 2), slice(1, 2), slice(1, 3),
    ]  # fmt: skip
    assert [cut.within(*x) for x in ((0, 16), (4, 10), (5, 6), (9, 11))] == [
        slice(0, 3), slice(1, 2), slice(1, 2), slice(1, 3),
    ]  # fmt: skip
    assert cut.cells_of(np.array([0, 4]), 6) == 2 + 1
