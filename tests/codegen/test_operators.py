"""Every scalar operator, for every type, on edge values: machine code against ir/scalar.py, one
element at a time and in the lanes of vectors."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from edge_values import edges, identical, units_apart, wide
from function_cases import CASES
from native import build

from tilewright.base.dtype import DTYPES, DType, bool_, f32, f64, i32
from tilewright.ir.expr import (
    TESTS,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Expr,
    Unary,
    UnaryOp,
    Var,
    const,
)
from tilewright.ir.loop import For, If, Kernel, LoopKind, Store
from tilewright.ir.scalar import apply_binary, apply_bitcast, apply_cast, apply_compare, apply_unary
from tilewright.ir.verify.expr import BINARY_TAKES, UNARY_TAKES
from tilewright.target.target import Target
from tilewright.targets import cpu

LANES = 8
TYPES = tuple(DTYPES.values())
TARGETS = {"host": cpu.host(threads=1), "avx2": cpu.cpu("avx2")}

# Functions that are not exact, with the error promised in units of the last place of f32
# (docs/semantics.md): what numpy's own f64 functions are off by is within it, too.
ULPS: dict[UnaryOp | BinaryOp, float] = {
    op: CASES[op.value].bound
    for op in (*UnaryOp, *BinaryOp)
    if op.value in CASES and op is not UnaryOp.SQRT
}


def kernel(values: dict[str, Expr], inputs: tuple[Buffer, ...], n: int, lanes: int) -> Kernel:
    """y_name[i] = value, for each value and all i: plain loops, or `lanes` at a time with the last
    vector masked."""
    outputs = tuple(Buffer(f"y_{name}", e.dtype, (n,)) for name, e in values.items())
    i, o, lane = INDEX, Var("o"), Var("l")
    body = tuple(Store(b, (i,), e) for b, e in zip(outputs, values.values(), strict=True))
    plain = Kernel("edges", inputs, outputs, (For(i, n, body),))
    if lanes == 1:
        return plain
    guarded = If(o * lanes + lane < n, _moved(body, o * lanes + lane))
    inner = For(lane, lanes, (guarded,), LoopKind.VECTORIZE)
    return plain.with_(body=(For(o, -(-n // lanes), (inner,)),))


INDEX = Var("i")


def _moved(body: tuple[Store, ...], at: Expr) -> tuple[Store, ...]:
    def visit(e: object) -> object:
        return at if e == INDEX else e.map(visit) if isinstance(e, Expr) else e

    return tuple(s.with_(indices=(at,), value=visit(s.value)) for s in body)


@functools.cache
def target(name: str) -> Target:
    return TARGETS[name]


def run(values: dict[str, Expr], arrays: dict[Buffer, np.ndarray], where: str, lanes: int):
    """The value of every expression, by name."""
    n = next(iter(arrays.values())).size
    made = build(kernel(values, tuple(arrays), n, lanes), target(where))
    return dict(zip(values, made([*arrays.values()]), strict=True))


def report(name: str, bad: np.ndarray, found: np.ndarray, wanted: np.ndarray, *args) -> list[str]:
    lines = []
    for k in np.flatnonzero(bad)[:5]:
        shown = ", ".join(str(a[k]) for a in args)
        lines.append(f"{name}({shown}): {found[k]}, not {wanted[k]}")
    return lines


each = pytest.mark.parametrize
where = each("where, lanes", [("host", 1), ("host", LANES), ("avx2", LANES)], ids=str)


@pytest.mark.sampled(3)
@where
@each("t", TYPES, ids=str)
def test_unary(t: DType, where: str, lanes: int):
    a = edges(t)
    x = Buffer("x", t, a.shape)
    ops = [op for op in UnaryOp if t.kind in UNARY_TAKES[op]]
    found = run({op.value: Unary(op, x[INDEX]) for op in ops}, {x: a}, where, lanes)
    problems = []
    for op in ops:
        got = found[op.value]
        assert got.dtype == (bool_ if op in TESTS else t).numpy
        problems += check(op, t, got, lambda v, op=op: apply_unary(op, v), a)
    assert not problems, "\n".join(problems)


@pytest.mark.sampled(3)
@where
@each("t", TYPES, ids=str)
def test_binary(t: DType, where: str, lanes: int):
    pairs = np.array(list(itertools.product(range(edges(t).size), repeat=2)))
    a, b = edges(t)[pairs[:, 0]], edges(t)[pairs[:, 1]]
    x, y = Buffer("x", t, a.shape), Buffer("y", t, b.shape)
    ops = [op for op in BinaryOp if t.kind in BINARY_TAKES[op]]
    values = {op.value: Binary(op, x[INDEX], y[INDEX]) for op in ops}
    found = run(values, {x: a, y: b}, where, lanes)
    problems = []
    for op in ops:
        problems += check(op, t, found[op.value], lambda *v, op=op: apply_binary(op, *v), a, b)
    assert not problems, "\n".join(problems)


def check(op: UnaryOp | BinaryOp, t: DType, got: np.ndarray, reference, *args) -> list[str]:
    """Problems of one operator's results: exact operators to the bit (which zero is the smaller
    is left open), functions within their error."""
    wanted = reference(*args)
    if op not in ULPS or not t.is_float:
        zeros = op not in (BinaryOp.MIN, BinaryOp.MAX)
        return report(op.value, ~identical(got, wanted, zeros=zeros), got, wanted, *args)
    with np.errstate(all="ignore"):
        exact = reference(*(wide(v) for v in args))  # f64: exact enough for narrower types
    allowed = {f32: CASES[op.value].allowed(args), f64: 4}.get(t, 1)
    near = units_apart(got, exact) <= allowed
    return report(op.value, ~near, got, exact, *args)


@where
@each("t", TYPES, ids=str)
def test_compare(t: DType, where: str, lanes: int):
    pairs = np.array(list(itertools.product(range(edges(t).size), repeat=2)))
    a, b = edges(t)[pairs[:, 0]], edges(t)[pairs[:, 1]]
    x, y = Buffer("x", t, a.shape), Buffer("y", t, b.shape)
    values = {op.name: Compare(op, x[INDEX], y[INDEX]) for op in CompareOp}
    found = run(values, {x: a, y: b}, where, lanes)
    for op in CompareOp:
        wanted = apply_compare(op, a, b)
        bad = found[op.name] != wanted
        assert not bad.any(), report(op.value, bad, found[op.name], wanted, a, b)


@where
@each("t", TYPES, ids=str)
def test_casts(t: DType, where: str, lanes: int):
    """To every type, by value and (where the widths are equal) by bits."""
    more = np.array([15.5, -8.5, 255.4, 256.0, 3e9, -3e9, 1e19, 2.0**63, 65520.0, 0.6, -0.6])
    a = edges(t)
    if t.is_float:
        with np.errstate(all="ignore"):
            a = np.concatenate([a, more.astype(t.numpy)])
    x = Buffer("x", t, a.shape)
    same = [u for u in TYPES if u.bits == t.bits and bool_ not in (t, u)]
    values: dict[str, Expr] = {u.name: Cast(u, x[INDEX]) for u in TYPES}
    values |= {f"bits_{u.name}": Bitcast(u, x[INDEX]) for u in same}
    values |= {f"both_{u.name}": Cast(i32, Bitcast(u, x[INDEX])) for u in same}
    found = run(values, {x: a}, where, lanes)
    problems = []
    for u in TYPES:
        got, wanted = found[u.name], apply_cast(a, u)
        problems += report(f"{t} to {u}", ~identical(got, wanted), got, wanted, a)
    for u in same:
        got, wanted = found[f"bits_{u.name}"], apply_bitcast(a, u)
        problems += report(f"{t} as {u}", ~identical(got, wanted), got, wanted, a)
        got, wanted = found[f"both_{u.name}"], apply_cast(wanted, i32)
        problems += report(f"{t} as {u} to i32", ~identical(got, wanted), got, wanted, a)
    assert not problems, "\n".join(problems)


@pytest.mark.sampled(2)
@where
@each("t", [t for t in TYPES if t.is_float], ids=str)
def test_constant_operands(t: DType, where: str, lanes: int):
    """min, max and powers with one operand known while compiling."""
    a = edges(t)
    x = Buffer("x", t, a.shape)
    values, wanted = {}, {}
    for op in (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.POW):
        for k, c in enumerate((0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, np.inf, np.nan)):
            fixed = np.full_like(a, c)
            values[f"{op.value}_{k}"] = Binary(op, x[INDEX], const(c, t))
            wanted[f"{op.value}_{k}"] = op, (a, fixed)
            values[f"{op.value}_{k}_first"] = Binary(op, const(c, t), x[INDEX])
            wanted[f"{op.value}_{k}_first"] = op, (fixed, a)
    found = run(values, {x: a}, where, lanes)
    problems = []
    for name, (op, args) in wanted.items():
        problems += check(op, t, found[name], lambda *v, op=op: apply_binary(op, *v), *args)
    assert not problems, "\n".join(problems)
