"""Arithmetic that ends in smaller elements, in front of what moves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graph_cases import Maker, check_valid
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtype import DType, bool_, f32, i8, i32
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, Value
from tilewright.optimize.narrow_moves import narrow_moves

POOL = {"kernel": (2, 2), "strides": (1, 1), "dilations": (1, 1)}
POOL |= {"pads_begin": (1, 0), "pads_end": (0, 1)}


def dequantised(m: Maker, x: Value, scale: float, zero: int = 0) -> Value:
    """As imported: the zero point is a constant that is converted."""
    wide = m.op("cast", x, to=f32)
    if zero:
        wide = m.op("sub", wide, m.op("cast", m.constant(np.int8(zero)), to=f32))
    return m.op("mul", wide, m.constant(np.float32(scale)))


def quantised(m: Maker, x: Value, scale: float, zero: int = 0) -> Value:
    total = m.op("round", m.op("div", x, m.constant(np.float32(scale))))
    if zero:
        total = m.op("add", total, m.constant(np.float32(zero)))
    return m.op("cast", m.op("clip", total, low=-128.0, high=127.0), to=i8)


def narrowed(m: Maker, *outputs: Value, seed: int = 0) -> Graph:
    """The graph after the pass, which computes the same to the bit."""
    before = m.graph(*outputs)
    after = narrow_moves(before)
    check_valid(after)
    rng = np.random.default_rng(seed)
    given_ = [
        rng.integers(-128, 128, v.shape).astype(np.int8)
        if v.dtype == i8
        else (rng.standard_normal(v.shape) * 9).astype(v.dtype.numpy)
        for v in before.inputs
    ]
    for a, b in zip(evaluate_graph(before, given_), evaluate_graph(after, given_), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    return after


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("zero", [0, 3, -128])
def test_a_concatenation_of_bytes_with_one_scale_is_one_of_bytes(zero: int):
    m = Maker()
    parts = [dequantised(m, m.input(1, c, 3, 3, dtype=i8), 0.1, zero) for c in (2, 5)]
    after = narrowed(m, quantised(m, m.op("concat", *parts, axis=1), 0.1, zero))
    assert names(after) == ["concat"]


def test_a_part_with_another_scale_is_quantised_again():
    m = Maker()
    scales = {2: 0.1, 5: 0.05}
    parts = [dequantised(m, m.input(1, c, 3, 3, dtype=i8), s) for c, s in scales.items()]
    after = narrowed(m, quantised(m, m.op("concat", *parts, axis=1), 0.1))
    assert names(after).count("round") == 1
    (concat,) = (n for n in after.nodes if n.op.name == "concat")
    assert concat.outputs[0].dtype == i8


def test_moves_behind_moves_and_a_constant_part():
    m = Maker()
    x = m.op("transpose", m.input(3, 4), perm=(1, 0))
    y = m.op("reshape", m.input(8), shape=(2, 4))
    part = m.constant(np.linspace(-3, 3, 4, dtype=np.float32).reshape(1, 4))
    both = m.op("concat", m.op("reshape", x, shape=(3, 4)), y, part, axis=0)
    after = narrowed(m, quantised(m, both, 0.05))
    moved = [n for n in after.nodes if n.op.name in ("transpose", "reshape", "concat")]
    assert [n.outputs[0].dtype for n in moved] == [i8] * 4


@pytest.mark.parametrize("scale, kind", [(0.1, i8), (-0.1, f32)])
def test_the_greatest_of_windows_where_the_order_stays(scale: float, kind: object):
    m = Maker()
    x = m.op("concat", *[dequantised(m, m.input(1, 2, 4, 5, dtype=i8), 0.1) for _ in "ab"], axis=1)
    after = narrowed(m, quantised(m, m.op("max_pool", x, **POOL), scale))
    (pool,) = (n for n in after.nodes if n.op.name == "max_pool")
    assert pool.inputs[0].dtype == kind


def test_the_greatest_of_floats_may_be_nan():
    """Which is some byte, and not the greatest."""
    m = Maker()
    after = narrowed(m, quantised(m, m.op("max_pool", m.input(1, 2, 4, 5), **POOL), 0.1))
    (pool,) = (n for n in after.nodes if n.op.name == "max_pool")
    assert pool.inputs[0].dtype == f32


@pytest.mark.parametrize("to", [bool_, i8], ids=str)
def test_a_conversion_that_cuts_off_stays_behind_the_greatest(to: DType):
    """Of -3 and 0 the greatest is not true; of 300 and 100 it is not that of the last bits."""
    m = Maker()
    wide = m.op("cast", m.input(1, 1, 4, 5, dtype=i8), to=i32)
    scaled = m.op("mul", wide, m.constant(np.int32(3)))
    after = narrowed(m, m.op("cast", m.op("max_pool", scaled, **POOL), to=to))
    (pool,) = (n for n in after.nodes if n.op.name == "max_pool")
    assert pool.inputs[0].dtype == i32


def test_one_value_many_times():
    """Every value is narrowed once, and not once for every way to it."""
    m = Maker()
    x = dequantised(m, m.input(1, 1, 2, 2, dtype=i8), 0.1)
    halves = {"kernel": (2, 1), "strides": (2, 1), "dilations": (1, 1)}
    halves |= {"pads_begin": (0, 0), "pads_end": (0, 0)}
    for _ in range(16):
        x = m.op("max_pool", m.op("concat", x, x, axis=2), **halves)
    assert len(narrowed(m, quantised(m, x, 0.2)).nodes) < 64


def test_what_others_read_stays():
    m = Maker()
    both = m.op("concat", m.input(2, 3), m.input(2, 4), axis=1)
    after = narrowed(m, quantised(m, both, 0.1), m.op("relu", both))
    (concat,) = (n for n in after.nodes if n.op.name == "concat")
    assert concat.outputs[0].dtype == f32


@pytest.mark.parametrize("zero_rank", [2, 3])
def test_a_number_of_more_axes_than_what_is_moved_stays_behind(zero_rank: int):
    """In front of the reshape it would give the result other axes."""
    m = Maker()
    moved = m.op("reshape", m.input(6), shape=(1, 2, 3))
    total = m.op("add", moved, m.constant(np.full((1,) * zero_rank, 3.0, np.float32)))
    after = narrowed(m, m.op("cast", m.op("clip", total, low=-8.0, high=8.0), to=i8))
    reshape = next(n for n in after.nodes if n.op.name == "reshape")
    assert reshape.inputs[0].dtype == f32


def test_larger_elements_are_made_behind():
    m = Maker()
    both = m.op("concat", m.input(2, 3, dtype=i8), m.input(2, 4, dtype=i8), axis=1)
    assert names(narrowed(m, m.op("cast", both, to=i32))) == ["concat", "cast"]


def test_sizes_that_are_known_late():
    n = Symbol("n", 1, 64)
    m = Maker()
    parts = [dequantised(m, m.input(n, c, dtype=i8), 0.1) for c in (2, 3)]
    after = narrow_moves(m.graph(quantised(m, m.op("concat", *parts, axis=1), 0.1)))
    assert names(after) == ["concat"]


STEPS: dict[str, dict[str, Any]] = {
    "concat": {"axis": 1},
    "transpose": {"perm": (0, 1, 3, 2)},
    "reshape": {},
    "max_pool": POOL,
    "relu": {},
    "floor": {},
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=6), st.integers(0, 99), st.data())
def test_random_chains(steps: list[str], seed: int, data: st.DataObject):
    """Moves and arithmetic in any order, before bytes and behind them, some read twice."""
    m = Maker()
    values = [dequantised(m, m.input(1, 2, 4, 4, dtype=i8), 0.25, 2), m.input(1, 3, 4, 4)]
    for kind in steps:
        x = data.draw(st.sampled_from(values))
        if kind == "concat":
            fits = [v for v in values if (v.shape[0], *v.shape[2:]) == (1, *x.shape[2:])]
            values.append(m.op(kind, x, data.draw(st.sampled_from(fits)), **STEPS[kind]))
        elif kind == "reshape":
            n, c, h, w = x.shape
            values.append(m.op(kind, x, shape=(n, c, w, h)))
        else:
            values.append(m.op(kind, x, **STEPS[kind]))
    scale = data.draw(st.sampled_from((0.25, 0.1, -0.5)))
    narrowed(m, quantised(m, values[-1], scale, data.draw(st.sampled_from((0, 2)))), seed=seed)
