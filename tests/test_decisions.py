"""What the compiler decides for some hundred programs is what was written down (decisions.py)."""

from __future__ import annotations

import pytest
from decisions import CORPORA, written

SPLIT = 8  # of a second: what a change breaks is found by few of them
PARTS = [(n, k) for n, c in CORPORA.items() for k in range(0, c.count, max(1, c.part // SPLIT))]


@pytest.mark.parametrize("name,first", PARTS)
def test_as_written(name: str, first: int):
    corpus, was = CORPORA[name], written(name)
    for i in range(first, min(first + max(1, corpus.part // SPLIT), corpus.count)):
        assert corpus.make(i).line == was[i], (
            f"another decision than in tests/decisions/{name}.txt: see `python "
            f"tests/support/decisions.py {name} {i}` before and after the change; "
            "`make decisions` writes it down"
        )


def test_every_line_is_a_program():
    assert {n: len(written(n)) for n in CORPORA} == {n: c.count for n, c in CORPORA.items()}
