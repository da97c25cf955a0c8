"""What the compiler decides for some thousand programs is what was written down (decisions.py)."""

from __future__ import annotations

import pytest
from decisions import written
from decisions_table import CORPORA

PARTS = [(name, k) for name, c in CORPORA.items() for k in range(0, c.count, c.part)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name,first", PARTS)
def test_as_written(name: str, first: int):
    corpus, was = CORPORA[name], written(name)
    for i in range(first, min(first + corpus.part, corpus.count)):
        assert corpus.make(i).line == was[i], (
            f"another decision than in tests/decisions/{name}.txt: see `python"
            f" tools/write_decisions.py {name} {i}` before and after the change; `make decisions`"
            " writes it down"
        )


def test_every_line_is_a_program():
    assert {n: len(written(n)) for n in CORPORA} == {n: c.count for n, c in CORPORA.items()}
