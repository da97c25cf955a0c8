"""What quantised networks are made of, done with less: dequantisation behind what only chooses,
arithmetic between sums and rounding, one kernel for many numbers, roundings as additions."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import Maker, check_valid, expect
from hypothesis import given, settings
from hypothesis import strategies as st
from native import build

import tilewright
from tilewright.base.dtype import DType, f32, i8, i16, i32, u8
from tilewright.ir.evaluate import evaluate_graph, evaluate_program
from tilewright.ir.expr import (
    Buffer,
    Expr,
    Load,
    UnaryOp,
    Var,
    cast,
    const,
    maximum,
    minimum,
    unary,
)
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import For, Kernel, Store
from tilewright.ir.text.tensor import parse_program
from tilewright.lower.expand_math import expand_math
from tilewright.ops.function import CALL, CallAttrs
from tilewright.optimize.fold_rescaling import fold_rescaling
from tilewright.optimize.keep_bytes import keep_bytes
from tilewright.plan.compose_stages import compose_stages
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
POOL = {
    "kernel": (3, 3),
    "strides": (2, 2),
    "dilations": (1, 1),
    "pads_begin": (1, 1),
    "pads_end": (1, 1),
}


def bytes_of(kind: DType, *shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(kind.min, kind.max + 1, shape).astype(kind.numpy)


def same(before: Graph, after: Graph, *inputs: np.ndarray, exact: bool = True) -> None:
    check_valid(after)
    for a, b in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        assert a.dtype == b.dtype
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * float(np.abs(a).max()))


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# ---------------------------------------------------------------- keep_bytes


def dequantised(m: Maker, x: Value, zero: int, scale: float) -> Value:
    wide = m.op("cast", x, to=f32)
    centred = m.op("sub", wide, m.constant(np.float32(zero)))
    return m.op("mul", centred, m.constant(np.float32(scale)))


def quantised(m: Maker, x: Value, zero: int, scale: float, kind: DType) -> Value:
    total = m.op("round", m.op("div", x, m.constant(np.float32(scale))))
    if zero:
        total = m.op("add", total, m.constant(np.float32(zero)))
    limited = m.op("clip", total, low=float(kind.min), high=float(kind.max))
    return m.op("cast", limited, to=kind)


@pytest.mark.parametrize("kind", [u8, i8], ids=str)
@pytest.mark.parametrize("zero", [0, 3, -7])
@pytest.mark.parametrize("ceil", [False, True])
def test_pooling_of_bytes(kind: DType, zero: int, ceil: bool):
    """Pooling between dequantisation and quantisation with the same numbers is pooling of bytes. In
    ceil mode the last windows begin in the picture, and go beyond it."""
    if zero < kind.min:
        pytest.skip("no zero point of this type")
    m = Maker()
    x = m.input(1, 4, 8, 9, dtype=kind)
    pooled = m.op("max_pool", dequantised(m, x, zero, 0.03), **{**POOL, "ceil": ceil})
    before = m.graph(quantised(m, pooled, zero, 0.03, kind))
    after = keep_bytes(before)
    assert names(after) == ["max_pool"]
    same(before, after, bytes_of(kind, 1, 4, 8, 9))


@pytest.mark.parametrize(
    "scale, other, zero", [(0.03, 0.04, 3), (0.03, 0.03, 4), (1e-38, 1e-38, 3)]
)
def test_other_numbers_are_quantised_again(scale: float, other: float, zero: int):
    m = Maker()
    x = m.input(2, 6, dtype=u8)
    y = quantised(m, dequantised(m, x, 3, scale), zero, other, u8)
    before = m.graph(y)
    after = keep_bytes(before)
    assert "round" in names(after)
    same(before, after, bytes_of(u8, 2, 6))


def test_a_negative_scale_turns_the_order_round():
    m = Maker()
    x = m.input(1, 4, 9, 9, dtype=u8)
    before = m.graph(m.op("max_pool", dequantised(m, x, 3, -0.5), **POOL))
    after = keep_bytes(before)
    (pool,) = (n for n in after.nodes if n.op.name == "max_pool")
    assert pool.inputs[0].dtype == f32
    same(before, after, bytes_of(u8, 1, 4, 9, 9))


def test_windows_that_may_be_all_padding():
    m = Maker()
    x = m.input(1, 1, 6, 6, dtype=u8)
    changed = {"kernel": (2, 2), "dilations": (7, 7), "strides": (1, 1)}
    before = m.graph(m.op("max_pool", dequantised(m, x, 3, 0.1), **{**POOL, **changed}))
    after = keep_bytes(before)
    (pool,) = (n for n in after.nodes if n.op.name == "max_pool")
    assert pool.inputs[0].dtype == f32
    same(before, after, bytes_of(u8, 1, 1, 6, 6))


def test_moves_go_first():
    m = Maker()
    x = m.input(2, 3, 4, dtype=i8)
    moved = m.op("transpose", dequantised(m, x, 3, 0.5), perm=(2, 0, 1))
    before = m.graph(m.op("relu", m.op("reshape", moved, shape=(4, 6))))
    after = keep_bytes(before)
    assert names(after) == ["transpose", "reshape", "cast", "sub", "mul", "relu"]
    same(before, after, bytes_of(i8, 2, 3, 4))


# ---------------------------------------------------------------- fold_rescaling


def sums(m: Maker, filters: int = 5) -> tuple[Value, Value]:
    """Bytes, and their product with weights in f32."""
    x = m.input(3, 8, dtype=u8)
    w = m.constant(bytes_of(i8, 8, filters, seed=1))
    total = m.op("sub", m.op("matmul", x, w, wide=True), m.constant(np.arange(filters, dtype="i4")))
    return x, m.op("cast", total, to=f32)


def test_arithmetic_between_sums_and_rounding():
    m = Maker()
    _, y = sums(m)
    y = m.op("mul", y, m.constant(np.linspace(0.1, 0.5, 5)))
    y = m.op("add", y, m.constant(np.linspace(-9, 9, 5)))
    y = m.op("div", m.op("clip", y, low=0.0, high=6.0), m.constant(np.float32(0.02)))
    before = m.graph(y)
    after = fold_rescaling(before)
    assert names(after)[3:] == ["mul", "add", "clip"]
    limits = after.nodes[-1].attrs
    assert (limits.low, round(limits.high, 3)) == (0.0, 300.0)
    same(before, after, bytes_of(u8, 3, 8), exact=False)


def test_factors_that_cancel_out():
    """What is left is the conversion, which then gives the result."""
    m = Maker()
    _, y = sums(m)
    before = m.graph(m.op("mul", m.op("mul", y, m.constant(np.float32(0.25))),
                          m.constant(np.float32(4))))  # fmt: skip
    after = fold_rescaling(before)
    assert names(after)[-1] == "cast"
    same(before, after, bytes_of(u8, 3, 8))


def test_what_is_not_folded():
    """Behind a limit only a positive factor; nothing whose value something else reads."""
    for factor in (np.float32(-2.0), np.linspace(0.5, 1, 5)):
        m = Maker()
        _, y = sums(m)
        y = m.op("relu", m.op("mul", y, m.constant(np.float32(0.1))))
        before = m.graph(m.op("mul", y, m.constant(factor)))
        assert fold_rescaling(before) is before
    m = Maker()
    _, y = sums(m)
    y = m.op("mul", y, m.constant(np.float32(0.1)))
    z = m.op("mul", y, m.constant(np.float32(3)))
    before = m.graph(z, y)
    same(before, fold_rescaling(before), bytes_of(u8, 3, 8))
    assert fold_rescaling(before) is before


# ---------------------------------------------------------------- share_kernels


def calls(graph: Graph) -> list[GraphNode]:
    return [n for n in graph.nodes if n.op is CALL]


def layers(*numbers: tuple[float, float]) -> tuple[Graph, np.ndarray]:
    """Sums along an axis of x * scale + zero, one kernel for each pair."""
    m = Maker()
    x = m.input(4, 32)
    results = []
    for scale, zero in numbers:
        y = m.op("mul", x, m.constant(np.float32(scale)))
        y = m.op("add", y, m.constant(np.float32(zero)))
        y = m.op("reduce_sum", m.op("relu", y), axes=(1,), keepdims=True)
        results.append(y)
    return m.graph(*results), np.random.default_rng(0).standard_normal((4, 32), np.float32)


def test_one_kernel_for_many_numbers():
    graph, x = layers((0.5, 3.0), (0.25, -4.0), (0.125, 3.0), (2.0, 3.0))
    shared = tilewright.compile(graph, target=HOST, until="optimized")
    bodies = [str(n.attrs_of(CallAttrs).body) for n in calls(shared)]
    assert len(set(bodies)) < len(bodies)
    kinds = {v.dtype for n in calls(shared) for v in n.inputs if v.type.rank == 0}
    assert kinds == {f32, i16}  # zero points are whole numbers
    module = tilewright.compile(graph, target=HOST)
    for wanted, found in zip(evaluate_graph(graph, [x]), module(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_equal_numbers_stay_in_the_kernel():
    graph, _ = layers((0.5, 3.0), (0.5, 3.0))
    shared = tilewright.compile(graph, target=HOST, until="optimized")
    assert not any(v.type.rank == 0 for n in calls(shared) for v in n.inputs)


@pytest.mark.parametrize("zero", [-0.0, 1e6, 0.5, np.inf, np.nan])
def test_numbers_that_i16_does_not_hold(zero: float):
    graph, x = layers((0.5, zero), (0.5, 2.0))
    module = tilewright.compile(graph, target=HOST)
    for wanted, found in zip(evaluate_graph(graph, [x]), module(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- roundings


def rounding(value: Expr, kind: DType) -> Kernel:
    x, y, i = Buffer("x", f32, (64,)), Buffer("y", kind, (64,)), Var("i")
    return Kernel("k", (x,), (y,), (For(i, 64, (Store(y, (i,), value),)),))


def clipped(e: Expr, low: float, high: float, kind: DType) -> Expr:
    limits = (const(float(n), f32) for n in (low, high))
    first, second = limits
    return cast(kind, minimum(maximum(e, first), second))


VALUES = np.concatenate(
    [
        np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5]),
        np.array([-128.5, -129.5, 126.5, 127.5, 1e9, -1e9, 3e38, -3e38, 1e-40, 0.49999997, 2**23]),
        np.linspace(-300, 300, 41),
    ]
).astype(np.float32)


@pytest.mark.parametrize("kind", [u8, i8, i16], ids=str)
@pytest.mark.parametrize("zero", [0, 1, 7, -100, 122])
@pytest.mark.parametrize("inner", [None, 0.0, 254.5, -40.0])
def test_rounding_by_an_addition(kind: DType, zero: int, inner: float | None):
    """Equal to rounding, adding, limiting and converting, for all kinds of numbers; also where
    something limits before."""
    x = Load(Buffer("x", f32, (64,)), (Var("i"),))
    y: Expr = x if inner is None else maximum(x, const(inner, f32))
    y = minimum(y, const(254.5, f32)) if inner == 254.5 else y
    e = unary(UnaryOp.ROUND, y)
    if zero:
        e = e + const(float(zero), f32)
    kernel = rounding(clipped(e, kind.min, kind.max, kind), kind)
    expanded = expand_math(kernel)
    assert "bitcast" in str(expanded)
    data = np.resize(VALUES, 64)
    wanted = interpret(kernel, [data])
    np.testing.assert_array_equal(interpret(expanded, [data]), wanted)
    np.testing.assert_array_equal(build(kernel, HOST)([data]), wanted)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=64, max_size=64),
    st.integers(-200, 200),
    st.sampled_from([u8, i8]),
)
def test_rounding_of_random_numbers(numbers: list[float], zero: int, kind: DType):
    x = Load(Buffer("x", f32, (64,)), (Var("i"),))
    e = unary(UnaryOp.ROUND, x) + const(float(zero), f32)
    kernel = rounding(clipped(e, kind.min, kind.max, kind), kind)
    data = np.array(numbers, np.float32)
    wanted = interpret(kernel, [data])
    np.testing.assert_array_equal(interpret(expand_math(kernel), [data]), wanted)


@pytest.mark.parametrize(
    "value",
    [
        lambda x: cast(u8, unary(UnaryOp.ROUND, x)),  # no limits
        lambda x: clipped(unary(UnaryOp.ROUND, x), -1, 255, u8),  # beyond the type
        lambda x: clipped(x, 0, 255, u8),  # not rounded
        lambda x: clipped(unary(UnaryOp.ROUND, x) + const(0.5, f32), 0, 255, u8),  # not whole
        lambda x: clipped(unary(UnaryOp.ROUND, x), 0, 2**23, i32),  # too large
    ],
)
def test_roundings_that_stay(value: object):
    x = Load(Buffer("x", f32, (64,)), (Var("i"),))
    kind = i32 if "i32" in str(value(x).dtype) else u8
    kernel = rounding(value(x), kind)
    assert expand_math(kernel) is kernel


# ---------------------------------------------------------------- compose_stages


def test_stages_that_one_other_reads():
    before = parse_program(
        """
def p(x: f32[8], z: f32[4, 8]):
    half = tensor(f32[()])
    define(half[()], f32(0.5))
    a = tensor(f32[8])
    define(a[i], x[i] * half[()], i=8)
    b = tensor(f32[8])
    define(b[j], max(a[j], f32(0.0)), j=8)
    c = tensor(f32[4])
    define(c[k], reduce(add, f32(0.0), z[k, r] * b[r], r=8), k=4)
    d = tensor(f32[4])
    define(d[l], c[l] + half[()], l=4)
    return d
""".strip()
    )
    after = compose_stages(before)
    expect(
        after,
        """
        def p(x: f32[8], z: f32[4, 8]):
            b = tensor(f32[8])
            define(b[j], max(x[j] * f32(0.5), f32(0.0)), j=8)
            c = tensor(f32[4])
            define(c[k], reduce(add, f32(0.0), z[k, r] * b[r], r=8), k=4)
            d = tensor(f32[4])
            define(d[l], c[l] + f32(0.5), l=4)
            return d
        """,
    )
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in ((8,), (4, 8))]
    for a, b in zip(evaluate_program(before, inputs), evaluate_program(after, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_stages_of_what_is_written_again():
    """b reads the first half of a before the second is there, and may not read it later."""
    program = parse_program(
        """
def p(x: f32[8]):
    a = tensor(f32[8])
    define(a[i], x[i], i=8)
    b = tensor(f32[8])
    define(b[j], a[j] + f32(1.0), j=8)
    define(a[7 - k], x[k] * f32(2.0), k=8)
    y = tensor(f32[8])
    define(y[l], b[l] * f32(3.0), l=8)
    return a, y
""".strip()
    )
    x = np.arange(8, dtype=np.float32)
    wanted, found = (evaluate_program(p, [x]) for p in (program, compose_stages(program)))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_stages_that_stay():
    """One that is an output, one that two read, one that a place in memory is left out of."""
    text = """
def p(x: f32[8]):
    a = tensor(f32[8])
    define(a[i], x[i] * f32(2.0), i=8)
    b = tensor(f32[8])
    define(b[j], a[j] + f32(1.0), j=8)
    c = tensor(f32[8])
    define(c[k], b[k] + x[7 - k], k=8)
    d = tensor(f32[8])
    define(d[l], b[l] * b[7 - l], l=8)
    return a, c, d
""".strip()
    program = parse_program(text)
    assert compose_stages(program) is program
