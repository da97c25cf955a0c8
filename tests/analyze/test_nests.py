"""Loop nests: what they compute, and how they step through memory."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import kernels, symbol_values

from tilewright.analyze.accesses import accesses
from tilewright.analyze.nests import factors, is_cheap, nest_of, nests, stride
from tilewright.analyze.simplify import Simplifier
from tilewright.base.dtype import f32, i64
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Buffer, Cast, Symbol, Unary, UnaryOp, Var
from tilewright.ir.interpret import scalar
from tilewright.ir.loop import For, Kernel, symbols, walk_statements
from tilewright.ir.text.loop import parse_kernel

I, J, K, N = Var("i"), Var("j"), Var("k"), Symbol("n")
X = Buffer("x", f32, (4, 6))


@settings(max_examples=200)
@given(kernel=kernels(), data=st.data())
def test_strides(kernel: Kernel, data: st.DataObject):
    """When a loop's variable goes up by one, the position goes up by the stride."""
    values = data.draw(symbol_values(symbols(kernel)))
    loops = [s for s in walk_statements(kernel.body) if isinstance(s, For)]
    s = Simplifier({x.var: x.extent for x in loops})
    for access in accesses(kernel.body):
        for loop in access.loops:
            step = stride(access.buffer, access.indices, loop.var, s)
            if step is not None and evaluate_dim(loop.extent, values) > 1:
                places = [_position(access, loop, i, values) for i in (0, 1)]
                assert None in places or places[1] - places[0] == step, (access, loop.var, step)


def _position(access, loop: For, i: int, values: dict[str, int]) -> int | None:
    """Where an access lies at an iteration, all other loops at 0; None if that is in memory."""
    env = {s: np.int64(values[s.name]) for s in symbols(loop)}
    env |= {s: np.int64(values[s.name]) for d in access.buffer.shape for s in _symbols(d)}
    env |= {s: np.int64(values[s.name]) for d in access.indices for s in _symbols(d)}
    env |= {x.var: np.int64(0) for x in access.loops} | {loop.var: np.int64(i)}
    at = 0
    try:
        for index, n in zip(access.indices, access.buffer.shape, strict=True):
            at = at * evaluate_dim(n, values) + int(scalar(index, env, {}))
    except KeyError:
        return None
    return at


def _symbols(e: object) -> list[Symbol]:
    return [x for x in getattr(e, "walk", list)() if isinstance(x, Symbol)]


@pytest.mark.parametrize(
    "indices, var, step",
    [
        ((I, J), J, 1),
        ((I, J), I, 6),
        ((I, J), K, 0),
        ((I, 5 - J), J, -1),
        ((I, J // 2), J, None),
        ((I // 6, I % 6), I, 1),
        ((J, I * 2), I, 2),
    ],
    ids=str,
)
def test_stride(indices, var, step):
    assert stride(X, indices, var, Simplifier({I: 24, J: 6, K: 3})) == step


def test_stride_is_none_where_it_is_symbolic_or_in_memory():
    rows = Buffer("y", f32, (4, N))
    places = Buffer("p", i64, (4,))
    assert stride(rows, (I, J), I, Simplifier({I: 4, J: N})) is None
    assert stride(rows, (I, J), J, Simplifier({I: 4, J: N})) == 1
    assert stride(X, (places[I], J), I, Simplifier({I: 4, J: 6})) is None


def read(text: str) -> Kernel:
    return parse_kernel(textwrap.dedent(text).strip())


def test_a_nest():
    kernel = read(
        """
        def k(x: f32[4, 8], y: out(f32[4]), z: out(f32[4])):
            for i in range(4):
                y[i] = f32(0.0)
                for u in range(1):
                    for r in range(8):
                        y[i] += x[i, r]
            for j in range(4):
                z[j] = y[j]
                y[j] = f32(1.0)
        """
    )
    first, second = kernel.body
    nest = nest_of(first)
    assert nest is not None
    assert nest.buffer.name == "y"
    assert [str(w) for w in nest.writes] == ["y[i] = f32(0.0)", "y[i] += x[i, r]"]
    assert [x.var.name for x in nest.axes] == ["i", "u"]
    assert [x.var.name for x in nest.reduce] == ["r"]
    assert nest.update is nest.writes[1]
    assert nest.store is nest.writes[0]
    assert nest_of(second) is None
    assert [n.buffer.name for n in nests(kernel.body)] == ["y"]


def test_factors_of_a_product():
    product = Cast(f32, X[I, J]) * X[J, I]
    assert factors(product) == (X[I, J], X[J, I])
    assert factors(X[I, J] * 2.0) is None
    assert factors(X[I, J] + X[J, I]) is None


def test_what_is_cheap():
    assert is_cheap(X[I, J] * 2.0 + Unary(UnaryOp.ABS, X[I, J]))
    assert is_cheap(X[I // 2, J % 2])
    assert not is_cheap(Unary(UnaryOp.EXP, X[I, J]))
    assert not is_cheap(X[I, J] / 2.0)
