"""Functions as arithmetic: what they look like, how exact they are, what they give at the edges."""

from __future__ import annotations

import functools
import textwrap

import numpy as np
import pytest
from fit_functions import FITS, error_of
from function_cases import (
    CASES,
    Case,
    compiled,
    exact_results,
    padded,
    samples,
    stratified,
    units_off,
)
from native import build

from tilewright.base.dtype import DType, bf16, f16, f32
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Unary,
    UnaryOp,
    Var,
    const,
    maximum,
    minimum,
)
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import Kernel, Store
from tilewright.ir.text.loop import parse_kernel
from tilewright.lower import (
    math_arc,
    math_erf,
    math_exp,
    math_log,
    math_pow,
    math_table,
    math_trig,
)
from tilewright.lower.expand_math import BINARY, UNARY, expand_math
from tilewright.targets import cpu

LEVELS = {"host": cpu.host(threads=1), "avx2": cpu.cpu("avx2"), "sse2": cpu.cpu("sse2")}
TYPES = (f32, f16, bf16)
each = pytest.mark.parametrize
INF, NAN = float("inf"), float("nan")


def expanded(value: Expr, *inputs: Buffer) -> Kernel:
    y = Buffer("y", value.dtype, (4,))
    return expand_math(Kernel("k", inputs, (y,), (Store(y, (const(0),), value),)))


X = Buffer("x", f32, (4,))
H = Buffer("h", f16, (4,))


def test_text_of_exp():
    kernel = expanded(Unary(UnaryOp.EXP, X[0]), X)
    assert str(kernel) == textwrap.dedent(
        """\
        def k(x: f32[4], y: out(f32[4])):
            e0 = let(min(f32(89.0), max(f32(-104.0), x[0])))
            e1 = let(e0 * f32(1.442695) + f32(12583166.0))
            e2 = let(e1 - f32(12583166.0))
            e3 = let(e0 - e2 * f32(0.6933594) - e2 * f32(-0.00021219444))
            e4 = let(e3 * e3)
            e5 = let(bitcast(i32, e1))
            e6 = let(e5 >> i32(1))
            e7 = let(bitcast(f32, e6 << i32(23)))
            y[0] = (((((f32(0.0013939681) * e3 + f32(0.008368996)) * e4 + \
(f32(0.041666415) * e3 + f32(0.16666518))) * e3 + f32(0.5)) * e4 + e3) * e7 + e7) * \
bitcast(f32, e5 - e6 << i32(23))"""
    )
    assert parse_kernel(str(kernel)) == kernel


@each(
    "operand, clamps",
    [
        (X[0], 1),
        (minimum(const(0, f32), X[0]), 0),
        (minimum(X[0], const(-1, f32)), 0),
        (minimum(X[0], const(1, f32)), 1),
        (maximum(X[0], const(-1, f32)), 1),
        (-Unary(UnaryOp.ABS, X[0]), 0),
        (Unary(UnaryOp.ABS, -X[0]), 1),
        (-X[0], 1),
        (minimum(const(0, f16), H[0]), 0),
    ],
)
def test_exp_at_most_1_cannot_overflow(operand: Expr, clamps: int):
    """It has no upper limit then, and one power of two instead of two."""
    buffer = H if operand.dtype == f16 else X
    text = str(expanded(Unary(UnaryOp.EXP, operand), buffer))
    assert text.count("89.0") == clamps
    assert text.count("<< i32(23)") == 1 + clamps


def test_text_of_short_floats():
    """f16 is computed in f32; a square is a product."""
    kernel = expanded(Binary(BinaryOp.POW, H[0], const(2.0, f16)), H)
    assert str(kernel) == textwrap.dedent(
        """\
        def k(h: f16[4], y: out(f16[4])):
            y[0] = cast(f16, cast(f32, h[0]) * cast(f32, h[0]))"""
    )


@each("op", [*UNARY, *BINARY], ids=lambda op: op.value)
def test_the_text_parses_and_means_the_function(op):
    """Interpreted in numpy, one operator at a time, an expansion is the function."""
    values = np.array([0.3, -0.7, 1.5, 3e30], np.float32)
    i = Var("i")
    value = Unary(op, X[i]) if op in UNARY else Binary(op, X[i], X[i])
    case = CASES[op.value]
    kernel = parse_kernel(str(expanded_loop(value)))
    (found,) = interpret(kernel, [values])
    operands = (values,) * case.operands
    assert case.off(operands, found, exact_results(case, operands)).max() <= case.bound


def expanded_loop(value: Expr) -> Kernel:
    text = "def k(x: f32[4], y: out(f32[4])):\n    for i in range(4):\n        y[i] = x[i]"
    kernel = parse_kernel(text)
    (loop,) = kernel.body
    (store,) = loop.body
    return expand_math(kernel.with_(body=(loop.with_(body=(store.with_(value=value),)),)))


# ---------------------------------------------------------------- how exact


@functools.cache
def results(name: str, dtype: DType, level: str) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Samples of the operands, and what machine code gives."""
    case = CASES[name]
    operands = padded(samples(case, dtype) if dtype is f32 else _all(case, dtype))
    found = np.empty_like(operands[0])
    compiled(case, dtype, found.size, LEVELS[level]).fill(operands, [found])
    return operands, found


def _all(case: Case, dtype: DType) -> tuple[np.ndarray, ...]:
    """Every number of 16 bits; of two operands, samples."""
    if case.operands > 1:
        return samples(case, dtype)
    return (np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy),)


@each("level", LEVELS)
@each("name", CASES)
def test_f32_is_as_exact_as_was_seen(name: str, level: str):
    """Of 100,000 samples none is further off than any float was in the exhaustive run."""
    case = CASES[name]
    operands, found = results(name, f32, level)
    assert found.size >= 100_000
    off = case.off(operands, found, exact_results(case, operands))
    k = int(off.argmax())
    shown = [float(a[k]) for a in operands]
    assert off[k] <= case.seen <= case.bound, f"{name}{shown} = {found[k]}, off by {off[k]}"


@each("dtype", [f16, bf16], ids=str)
@each("name", CASES)
def test_short_floats_are_rounded_once(name: str, dtype: DType):
    case = CASES[name]
    operands, found = results(name, dtype, "host")
    off = units_off(found, exact_results(case, operands))
    k = int(off.argmax())
    assert off[k] <= 0.501, f"{name}{[float(a[k]) for a in operands]} = {found[k]}"


@each("name", [c.name for c in CASES.values() if c.mirror])
def test_mirror_images(name: str):
    """f(-x) is f(x) or -f(x), to the bit."""
    case = CASES[name]
    (x,), found = results(name, f32, "host")
    image = np.empty_like(found)
    compiled(case, f32, x.size, LEVELS["host"]).fill([-x], [image])
    image = image if case.mirror > 0 else -image
    nan = np.isnan(found)
    assert np.array_equal(nan, np.isnan(image))
    assert np.array_equal(found[~nan].view(np.int32), image[~nan].view(np.int32))


@each("level", LEVELS)
def test_ranges(level: str):
    for name, low, high in (("tanh", -1, 1), ("erf", -1, 1), ("sin", -1, 1), ("cos", -1, 1)):
        found = results(name, f32, level)[1]
        assert low <= np.nanmin(found)
        assert np.nanmax(found) <= high
    for name in ("exp", "sigmoid", "softplus"):
        assert np.nanmin(results(name, f32, level)[1]) >= 0


@each("name", ["tanh", "erf", "exp", "sigmoid", "atan", "log"])
def test_neighbours_do_not_go_back_by_more_than_they_are_off(name: str):
    """Along consecutive floats in ranges where functions change their formula."""
    case = CASES[name]
    for start in (4e-4, 0.34, 0.624, 0.999, 3.9, 9.9):
        first = np.array(start, np.float32).view(np.int32)
        x = (first + np.arange(1 << 12)).astype(np.int32).view(np.float32)
        found = np.empty_like(x)
        compiled(case, f32, x.size, LEVELS["host"]).fill([x], [found])
        unit = np.abs(np.spacing(found[:-1]))
        assert (np.diff(found) >= -2 * unit).all()


def test_the_reference_itself():
    """numpy's f64 against mpmath: what is measured is ours, not the reference's."""
    mp = pytest.importorskip("mpmath")
    mp.mp.dps = 60
    special = {"rsqrt": lambda v: 1 / mp.sqrt(v), "sigmoid": lambda v: 1 / (1 + mp.exp(-v))}
    special |= {"softplus": lambda v: mp.log1p(mp.exp(v)), "pow": mp.power}
    special |= {"gelu": lambda v: v * mp.ncdf(v), "exp_to_1": lambda v: mp.exp(min(v, 0))}
    exponents = (2, 3, 4, -1, -2, -3, -4, 0.25, 0.5, 0.75, -0.25, -0.5, -0.75)
    powers = {f"pow_{n}".replace("-", "minus_"): n for n in exponents}
    special |= {name: (lambda v, n=n: v**n) for name, n in powers.items()}
    for name, case in CASES.items():
        function = special.get(name) or getattr(mp, name)
        operands = tuple(a[::1511] for a in samples(case, f32))
        exact = exact_results(case, operands)
        for values, wanted in zip(zip(*operands, strict=True), exact, strict=True):
            if not 1e-45 < abs(wanted) < 4e38 or not np.isfinite(values).all():
                continue
            right = function(*(mp.mpf(float(v)) for v in values))
            assert abs(right - wanted) <= abs(right) * 2.0**-45, (name, values)


# ---------------------------------------------------------------- polynomials

POLYNOMIALS = {
    "exp": (math_exp._EXP, 2**-28.0),
    "tanh": (math_exp._TANH, 2**-24.6),
    "exp2_f32": (math_exp._EXP2, 2**-28.2),
    "exp2_short": (math_table._EXP2, 2**-23.3),
    "sinh": (math_exp._SINH, 2**-31.4),
    "log": (math_log._LOG, 2**-30.1),
    "erf": (math_erf._ERF, 2**-24.5),
    "erf_far": (math_erf._ERF_FAR, 2**-25.0),
    "erfc": (math_erf._ERFC, 2**-25.28),
    "sin": (math_trig._SIN, 2**-27.7),
    "cos": (math_trig._COS, 2**-32.8),
    "atan": (math_arc._ATAN, 2**-28.3),
    "asin": (math_arc._ASIN, 2**-27.4),
    "log2": (math_pow._LOG2, 2**-37.6),
    "exp2": (math_pow._EXP2, 2**-34.3),
}


@each("name", FITS)
def test_polynomials_are_the_fitted_ones(name: str):
    """A coefficient that is off in its sixth digit, or the seventh, makes this error greater."""
    coefficients, error = POLYNOMIALS[name]
    assert error_of(FITS[name], list(reversed(coefficients))) <= error


# ---------------------------------------------------------------- edges

EDGES = {  # of f32: operands, then what C says
    "exp": [((-INF,), 0.0), ((INF,), INF), ((88.72284,), INF), ((-104.0,), 0.0), ((-0.0,), 1.0)],
    "expm1": [((-0.0,), -0.0), ((-INF,), -1.0), ((INF,), INF), ((1e-40,), 1e-40)],
    "log": [((0.0,), -INF), ((-0.0,), -INF), ((-1.0,), NAN), ((INF,), INF), ((1.0,), 0.0)],
    "log1p": [((-1.0,), -INF), ((-2.0,), NAN), ((-0.0,), -0.0), ((INF,), INF), ((-INF,), NAN)],
    "sin": [((-0.0,), -0.0), ((INF,), NAN), ((-INF,), NAN), ((1e-40,), 1e-40)],
    "cos": [((0.0,), 1.0), ((INF,), NAN), ((-INF,), NAN)],
    "tan": [((-0.0,), -0.0), ((INF,), NAN), ((1e-40,), 1e-40)],
    "asin": [((-0.0,), -0.0), ((1.5,), NAN), ((1e-40,), 1e-40)],
    "acos": [((1.0,), 0.0), ((1.5,), NAN), ((-1.5,), NAN)],
    "atan": [((-0.0,), -0.0), ((1e-40,), 1e-40)],
    "sinh": [((-0.0,), -0.0), ((-INF,), -INF), ((1e-40,), 1e-40)],
    "cosh": [((-INF,), INF), ((-0.0,), 1.0)],
    "tanh": [((-0.0,), -0.0), ((INF,), 1.0), ((-INF,), -1.0), ((1e-40,), 1e-40)],
    "asinh": [((-0.0,), -0.0), ((-INF,), -INF), ((1e-40,), 1e-40)],
    "acosh": [((1.0,), 0.0), ((0.5,), NAN), ((-5.0,), NAN), ((INF,), INF), ((-INF,), NAN)],
    "atanh": [((-0.0,), -0.0), ((1.0,), INF), ((-1.0,), -INF), ((2.0,), NAN), ((INF,), NAN)],
    "erf": [((-0.0,), -0.0), ((INF,), 1.0), ((-INF,), -1.0)],
    "gelu": [((-INF,), -0.0), ((INF,), INF), ((-0.0,), -0.0), ((0.0,), 0.0), ((3e38,), 3e38)],
    "pow": [
        *(((x, 0.0), 1.0) for x in (0.0, -0.0, -2.0, INF, -INF, NAN)),
        *(((1.0, y), 1.0) for y in (INF, -INF, NAN, -3.5)),
        *(((-1.0, y), 1.0) for y in (INF, -INF)),
        *(((0.0, 3.0), 0.0), ((-0.0, 3.0), -0.0), ((-0.0, 2.0), 0.0), ((-0.0, 2.5), 0.0)),
        *(((0.0, -3.0), INF), ((-0.0, -3.0), -INF), ((-0.0, -2.5), INF), ((0.0, -INF), INF)),
        *(((-8.0, 1 / 3), NAN), ((-2.0, 3.0), -8.0), ((-2.0, 2.0), 4.0), ((-2.0, -3.0), -0.125)),
        *(((-INF, 3.0), -INF), ((-INF, 2.0), INF), ((-INF, -3.0), -0.0), ((-INF, 2.5), INF)),
        *(((0.5, INF), 0.0), ((0.5, -INF), INF), ((2.0, INF), INF), ((2.0, -INF), 0.0)),
        *(((-0.5, INF), 0.0), ((-2.0, INF), INF), ((-3.0, 1e30), INF), ((2.0, NAN), NAN)),
    ],
    "atan2": [
        *(((0.0, 1.0), 0.0), ((-0.0, 1.0), -0.0), ((0.0, 0.0), 0.0), ((-0.0, 0.0), -0.0)),
        *(((0.0, -0.0), np.pi), ((-0.0, -0.0), -np.pi), ((0.0, -1.0), np.pi)),
        *(((1.0, 0.0), np.pi / 2), ((-1.0, -0.0), -np.pi / 2), ((INF, 1.0), np.pi / 2)),
        *(((INF, INF), np.pi / 4), ((-INF, INF), -np.pi / 4), ((INF, -INF), 3 * np.pi / 4)),
        *(((1.0, INF), 0.0), ((-1.0, INF), -0.0), ((1.0, -INF), np.pi), ((NAN, 1.0), NAN)),
        *(((1.0, NAN), NAN), ((NAN, INF), NAN), ((1e-40, 1.0), 1e-40)),
    ],
}


@each("level", LEVELS)
@each("name", EDGES)
def test_edges(name: str, level: str):
    rows = EDGES[name] + [((NAN,) * CASES[name].operands, NAN)]
    columns = zip(*(arguments for arguments, _ in rows), strict=True)
    operands = padded(tuple(np.array(a, np.float32) for a in columns))
    found = np.empty_like(operands[0])
    compiled(CASES[name], f32, found.size, LEVELS[level]).fill(operands, [found])
    for (args, wanted), got in zip(rows, found, strict=False):
        wanted = np.float32(wanted)
        same = got == wanted and np.signbit(got) == np.signbit(wanted)
        if abs(wanted) in (np.float32(np.pi / 4), np.float32(3 * np.pi / 4)):
            same = abs(got - wanted) <= 2 * np.spacing(abs(wanted))
        assert same or (np.isnan(got) and np.isnan(wanted)), f"{name}{args} = {got}, not {wanted}"


# ---------------------------------------------------------------- vectors


@each("name", CASES)
def test_no_lane_calls_a_library(name: str):
    for target in LEVELS.values():
        text = compiled(CASES[name], f32, 64, target).llvm
        calls = [s for s in text.splitlines() if "call " in s and "@llvm." not in s]
        assert calls == []


def test_functions_of_f64_are_the_librarys():
    kernel = parse_kernel(
        "def k(x: f64[4], y: out(f64[4])):\n    for i in range(4):\n        y[i] = exp(x[i])"
    )
    assert expand_math(kernel) == kernel


@each("dtype", ["f32", "f64"])
def test_sigmoid_is_small_before_it_is_0(dtype: str):
    """By machine code and by the interpreter, as far as there are subnormal numbers."""
    kernel = parse_kernel(
        f"def k(x: {dtype}[8], y: out({dtype}[8])):\n"
        "    for i in range(8):\n        y[i] = sigmoid(x[i])"
    )
    x = np.array([-103, -88, -20, -1, 0, 1, 20, 103], dtype.replace("f", "float"))
    x = np.where(x < -20, x * 7.2, x) if dtype == "f64" else x
    wanted = exact_results(CASES["sigmoid"], (x,))
    for (found,) in (interpret(kernel, [x]), build(kernel, LEVELS["host"])([x])):
        np.testing.assert_allclose(found, wanted.astype(x.dtype), rtol=2e-7, atol=0)


def test_large_arguments_are_reduced_under_a_condition():
    """The integer arithmetic of arguments above 2**23 runs only where a lane has one."""
    text = compiled(CASES["sin"], f32, 64, cpu.cpu("avx512")).llvm
    assert "@llvm.vector.reduce.or" in text
    head = text[: text.index("@llvm.vector.reduce.or")]
    assert "mul <16 x i64>" not in head


def test_samples_go_through_all_exponents():
    values = stratified(f32, 3)
    exponents = (values.view(np.uint32) >> 23).astype(int)
    assert set(exponents.tolist()) == set(range(512))
