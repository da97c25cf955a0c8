"""How few iterations are worth a vector loop in an instruction's meaning."""

import pytest

from tilewright import i32
from tilewright.ir.loop import For, LoopKind, walk_statements
from tilewright.ir.python.words import grid, out, reduce
from tilewright.sim.meaning import meaning, vectorized
from tilewright.target.describe import read_instruction


def three(a: i32[3], b: out(i32[3])):
    for i in grid(3):
        b[i] = a[i]


def four(a: i32[4], b: out(i32[4])):
    for i in grid(4):
        b[i] = a[i]


def product(a: i32[6, 4], b: i32[4, 8], c: out(i32[6, 8])):
    """Rows of two operands lie along j; i moves none by one element."""
    for i, j in grid(6, 8):
        c[i, j] = 0
        for k in reduce(4):
            c[i, j] += a[i, k] * b[k, j]


def turned(a: i32[8, 6], b: out(i32[6, 8])):
    for i, j in grid(6, 8):
        b[i, j] = a[j, i]


def skewed(a: i32[8], b: out(i32[16])):
    """Either loop could be one: the outer reads along a as well, and no write has two."""
    for i, j in grid(8, 8):
        b[i + j] = a[i]


def long(a: i32[130], b: out(i32[130])):
    """No more than 64 lanes: in as many equal parts as that takes."""
    for i in grid(130):
        b[i] = a[i]


def prime(a: i32[67], b: out(i32[67])):
    """In no equal parts: sixteen at a time, and the rest."""
    for i in grid(67):
        b[i] = a[i]


@pytest.mark.parametrize(
    "function, loops",
    [
        (three, []),
        (four, [4]),
        (product, [8]),
        (turned, []),
        (skewed, [8]),
        (long, [26]),
        (prime, [16]),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_lanes(function, loops: list[int]):
    kernel = vectorized(meaning(read_instruction(function)))
    found = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    assert [x.extent for x in found if x.kind is LoopKind.VECTORIZE] == loops
