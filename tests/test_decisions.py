"""What the compiler decides for some hundred programs is what was written down (decisions.py)."""

from __future__ import annotations

import pytest
from decisions import CORPORA, written

PART = 20  # entries of a corpus in one test
PARTS = [(name, first) for name, (_, n) in CORPORA.items() for first in range(0, n, PART)]


@pytest.mark.parametrize("corpus,first", PARTS)
def test_as_written(corpus: str, first: int):
    make, count = CORPORA[corpus]
    was = written(corpus)
    for i in range(first, min(first + PART, count)):
        assert make(i).line == was[i], (
            f"another decision than in tests/decisions/{corpus}.txt: see `python tests/decisions.py"
            f" --show {corpus} {i}` before and after the change; `make decisions` writes it down"
        )


def test_every_line_is_a_program():
    assert {name: len(written(name)) for name in CORPORA} == {
        name: count for name, (_, count) in CORPORA.items()
    }
