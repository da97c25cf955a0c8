"""Operators with all of their options, against plain loops: recurrent ones step by step, updates
one after another, windows that reach beyond the end."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from op_cases import case, run, sigmoid

from tilewright.base.dtype import f32, f64, i32, i64
from tilewright.base.errors import ModelError
from tilewright.ir.evaluate import evaluate_program, op_program
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.table import OPS

# ---------------------------------------------------------------- recurrent operators

FUNCTIONS = {
    "sigmoid": lambda x, a, b: sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
STEPS, BATCH, HIDDEN = 5, 3, 2
LENGTHS = np.array([5, 2, 0], np.int32)


class Loop:
    """One sequence after another, one step after another."""

    def __init__(self, attrs: dict, lengths: np.ndarray | None) -> None:
        self.attrs, self.lengths = attrs, lengths

    def function(self, which: int, x: np.ndarray, *, clipped: bool = True) -> np.ndarray:
        a = self.attrs
        if clipped and a.get("clip") is not None:
            x = np.clip(x, -a["clip"], a["clip"])
        return FUNCTIONS[a["activations"][which]](x, a["alphas"][which], a["betas"][which])

    def run(self, xw: np.ndarray, states: list[np.ndarray], step) -> list[np.ndarray]:
        y = np.zeros((*xw.shape[:2], HIDDEN))
        last = [s.copy() for s in states]
        for b in range(xw.shape[1]):
            count = xw.shape[0] if self.lengths is None else int(self.lengths[b])
            times = range(count)
            for t in reversed(times) if self.attrs.get("reverse") else times:
                new = step(xw[t, b], *(s[b] for s in last))
                for s, n in zip(last, new, strict=True):
                    s[b] = n
                y[t, b] = new[0]
        return [y, *last]


def lstm(loop: Loop, xw, rt, h0, c0, peep=None):
    a = loop.attrs

    def step(x, h, c):
        i, o, f, g = np.split(x + h @ rt, 4)
        pi, po, pf = np.split(peep, 3) if peep is not None else (0, 0, 0)
        entering = loop.function(0, i + pi * c)
        kept = 1 - entering if a.get("input_forget") else loop.function(0, f + pf * c)
        new = kept * c + entering * loop.function(1, g)
        out = loop.function(0, o + po * new)
        return out * loop.function(2, new, clipped=False), new

    return loop.run(xw, [h0, c0], step)


def gru(loop: Loop, xw, rt, h0, bias=None):
    n = HIDDEN

    def step(x, h):
        z, r = (loop.function(0, (x + h @ rt)[k * n : k * n + n]) for k in range(2))
        if bias is None:
            inner = (r * h) @ rt[:, 2 * n :]
        else:
            inner = r * (h @ rt[:, 2 * n :] + bias)
        return ((1 - z) * loop.function(1, x[2 * n :] + inner) + z * h,)

    return loop.run(xw, [h0], step)


def rnn(loop: Loop, xw, rt, h0):
    return loop.run(xw, [h0], lambda x, h: (loop.function(0, x + h @ rt),))


KINDS = {"lstm": (lstm, 4, 2, 3), "gru": (gru, 3, 1, 2), "rnn": (rnn, 1, 1, 1)}
OPTIONS: dict[str, tuple[dict, ...]] = {
    "lstm": ({}, {"peepholes": True}, {"input_forget": True}, {"peepholes": True, "clip": 0.4}),
    "gru": ({}, {"reset_after": True}, {"reset_after": True, "clip": 0.3}),
    "rnn": ({}, {"clip": 0.5}),
}
WAYS = [
    (name, own, reverse, lengths)
    for name, options in OPTIONS.items()
    for own in options
    for reverse, lengths in itertools.product((False, True), repeat=2)
]


def compare(name: str, attrs: dict, lengths: np.ndarray | None) -> None:
    definition, gates, states, _ = KINDS[name]
    rng = np.random.default_rng(3)
    shapes = [(STEPS, BATCH, gates * HIDDEN), (HIDDEN, gates * HIDDEN)]
    shapes += [(BATCH, HIDDEN)] * states
    shapes += [(3 * HIDDEN,)] if attrs.get("peepholes") else []
    shapes += [(HIDDEN,)] if attrs.get("reset_after") else []
    arrays = [rng.standard_normal(shape) for shape in shapes]
    op = OPS[name]
    made = op.make_attrs(lengths=lengths is not None, **attrs)
    types = [TensorType(f64, a.shape) for a in arrays]
    given = list(arrays)
    if lengths is not None:
        types, given = [*types, TensorType(i32, lengths.shape)], [*arrays, lengths]
    assert [t.shape for t in op.infer(made, types)][1:] == [(BATCH, HIDDEN)] * states
    buffers = [Buffer(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
    found = evaluate_program(op_program(op, made, buffers), given, {})
    wanted = definition(Loop(attrs, lengths), *arrays)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name, own, reverse, ends", WAYS, ids=str)
def test_recurrent(name: str, own: dict, reverse: bool, ends: bool):
    functions = ("hardsigmoid", "softsign", "elu")[: KINDS[name][3]]
    attrs = {"activations": functions, "alphas": (0.3, 0.0, 0.7)[: len(functions)],
             "betas": (0.4, 0.0, 0.0)[: len(functions)], "reverse": reverse, **own}  # fmt: skip
    compare(name, attrs, LENGTHS if ends else None)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_a_recurrence(function: str):
    compare("rnn", {"activations": (function,), "alphas": (0.6,), "betas": (0.8,)}, None)


# ---------------------------------------------------------------- updates

COMBINE = {
    "none": lambda old, new: new, "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new, "min": min, "max": max,
}  # fmt: skip


def updated(x: np.ndarray, places: np.ndarray, updates: np.ndarray, combine) -> np.ndarray:
    """One slice after another."""
    out = x.copy()
    for at in np.ndindex(*places.shape[:-1]):
        place = tuple(places[at])
        for rest in np.ndindex(*out[place].shape):
            here = (*place, *rest)
            out[here] = combine(out[here], updates[(*at, *rest)])
    return out


LEADS = [(), (3,), (2, 3), (2, 1, 2)]


@pytest.mark.parametrize("lead, depth", list(itertools.product(LEADS, (1, 2))))
def test_updates_of_slices(lead: tuple[int, ...], depth: int):
    """In as many axes as there are; places that occur twice; places from the end."""
    rng = np.random.default_rng(len(lead))
    x = rng.integers(0, 50, (3, 2, 2)).astype(np.int32)
    places = np.stack([rng.integers(-n, n, lead) for n in x.shape[:depth]], axis=-1)
    updates = rng.integers(0, 50, (*lead, *x.shape[depth:])).astype(np.int32)
    for reduction, combine in COMBINE.items():
        attrs = {} if reduction == "none" else {"reduction": reduction}
        (found,) = run(case("scatter_nd", x, places, updates, expected=None, **attrs), False)
        np.testing.assert_array_equal(found, updated(x, places, updates, combine))


@pytest.mark.parametrize("axis, reduction", list(itertools.product(range(3), COMBINE)))
def test_updates_of_elements(axis: int, reduction: str):
    rng = np.random.default_rng(axis)
    x = rng.integers(0, 50, (3, 4, 2)).astype(np.int32)
    shape = tuple(5 if a == axis else n - 1 for a, n in enumerate(x.shape))
    places = rng.integers(-x.shape[axis], x.shape[axis], shape)
    updates = rng.integers(0, 50, shape).astype(np.int32)
    wanted = x.copy()
    for at in np.ndindex(*shape):
        place = (*at[:axis], places[at], *at[axis + 1 :])
        wanted[place] = COMBINE[reduction](wanted[place], updates[at])
    attrs = {} if reduction == "none" else {"reduction": reduction}
    call = case("scatter_elements", x, places, updates, expected=None, axis=axis, **attrs)
    np.testing.assert_array_equal(run(call, False)[0], wanted)


@pytest.mark.parametrize("name", ["gather_elements", "scatter_elements"])
def test_more_indices_than_there_are_elements(name: str):
    """Along the axis there may be more; along others not, also where sizes have no number."""
    n, op = Symbol("n"), OPS[name]
    for axis, other in ((0, 1), (1, 0)):
        for more, refused in ((0, False), (1, True)):
            for size in (4, n):
                places = [9, 9]
                places[other] = size + more
                data = [3, 3]
                data[other] = size
                types = [TensorType(f32, data), TensorType(i64, places)]
                types += [TensorType(f32, places)] * (name == "scatter_elements")
                if not refused:
                    op.infer(op.make_attrs(axis=axis), types)
                    continue
                with pytest.raises(ModelError) as error:
                    op.infer(op.make_attrs(axis=axis), types)
                assert f"indices along axis {other}" in str(error.value)


# ---------------------------------------------------------------- windows

POOLS = {
    "max_pool": lambda window, count: max(window, default=-math.inf),
    "average_pool": lambda window, count: sum(window) / count if count else math.nan,
}


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_windows_along_one_axis(name: str, ceil: bool):
    """Windows begin in the data or the padding before it; all sizes, strides and dilations."""
    sizes = itertools.product((4, 7), (1, 2, 3), (1, 2, 3), (1, 2), (0, 1), (0, 1))
    for size, kernel, stride, dilation, before, after in sizes:
        width = (kernel - 1) * dilation + 1
        if max(before, after) >= kernel or size + before + after < width:
            continue
        spare = size + before + after - width
        count = spare // stride + 1
        if ceil:
            count = -(-spare // stride) + 1
            count -= (count - 1) * stride >= size + before
        x = np.arange(1.0, size + 1)[::-1] * (-1) ** np.arange(size)
        wanted = []
        for k in range(count):
            at = [k * stride - before + j * dilation for j in range(kernel)]
            wanted.append(POOLS[name]([x[p] for p in at if 0 <= p < size],
                                      sum(0 <= p < size for p in at)))  # fmt: skip
        found = run(
            case(name, x.astype(np.float32).reshape(1, 1, size), expected=None, kernel=(kernel,),
                 strides=(stride,), dilations=(dilation,), pads_begin=(before,), pads_end=(after,),
                 ceil=ceil),
            False,
        )[0]  # fmt: skip
        np.testing.assert_allclose(found[0, 0], wanted, rtol=1e-6)


# ---------------------------------------------------------------- functions of numpy


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_different_elements_in_the_order_they_come(axis: int | None):
    x = np.array([[3, 1, 3, 2], [2, 1, 2, 3], [3, 1, 3, 2]], np.int32)
    call = case("unique", x, expected=None, axis=axis, sorted=False, count=Symbol("c"))
    values, first, inverse, counts = run(call, False)
    items = list(x.reshape(-1)) if axis is None else [tuple(r) for r in np.moveaxis(x, axis, 0)]
    seen = list(dict.fromkeys(items))
    kept = list(values) if axis is None else [tuple(r) for r in np.moveaxis(values, axis, 0)]
    assert kept == seen
    assert list(first) == [items.index(v) for v in seen]
    assert list(inverse) == [seen.index(v) for v in items]
    assert list(counts) == [items.count(v) for v in seen]


def test_more_than_there_are():
    op = OPS["top_k"]
    attrs = op.make_attrs(k=3, axis=0, largest=True)
    with pytest.raises(ModelError, match="top_k: 3 elements of an axis with 2"):
        op.evaluate(attrs, [np.zeros(2, np.float32)])
    values, places = op.evaluate(attrs, [np.array([1, 5, 5], np.float32)])
    assert (values.tolist(), places.tolist()) == ([5, 5, 1], [1, 2, 0])


def test_no_dimensions():
    op = OPS["dims"]
    for values in ((), (4,), (Symbol("n"), 7, 2)):
        attrs = op.make_attrs(values=values)
        (kind,) = op.infer(attrs, [])
        (found,) = evaluate_program(op_program(op, attrs, []), [], {"n": 9})
        assert (kind.shape, found.tolist()) == (
            (len(values),),
            [9 if v == Symbol("n") else v for v in values],
        )
