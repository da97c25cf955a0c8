"""What every function of floats promises, and how results are measured: in units of the last place.

The references are numpy's and the C library's functions of f64 (and mpmath, which tests compare
with them): never our own code. tools/ulp.py goes through all floats, tests through samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from native import NativeKernel, build

from tilewright.base.dtype import DType, f32, from_numpy
from tilewright.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Unary,
    UnaryOp,
    Var,
    cast,
    const,
    minimum,
)
from tilewright.ir.loop import For, Kernel, LoopKind, Store
from tilewright.ops import activation
from tilewright.ops.common import widened
from tilewright.target.target import Target

try:
    from scipy.special import erf, erfc
except ImportError:  # only the exhaustive run needs it to be fast
    erf = np.vectorize(math.erf, otypes=[np.float64])
    erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True)
class Case:
    """A function: how a kernel says it, the reference, and how far f32 results may be off in units
    of the last place: `bound` is promised (docs/semantics.md), `seen` is the most that any of all
    2**32 floats is off (docs/accuracy.md), rounded up. `mirror` is f(-x) / f(x), where that is 1 or
    -1 for all x. Where the bound grows with the operand, by `slope` times its square, what is seen
    grows along with it."""

    name: str
    expr: Callable[..., Expr]
    exact: Callable[..., np.ndarray]
    bound: float
    seen: float
    mirror: int = 0
    operands: int = 1
    slope: float = 0.0

    @property
    def promised(self) -> str:
        return f"{self.bound:g}" + (f" + {self.slope:g} x²" if self.slope else "")

    def allowed(self, operands: tuple[np.ndarray, ...]) -> np.ndarray:
        """What is promised of each result of f32."""
        with np.errstate(invalid="ignore"):  # NaN becomes an f64
            square = np.nan_to_num(operands[0].astype(np.float64)).clip(-1e3, 1e3) ** 2
        return self.bound + self.slope * square

    def off(
        self, operands: tuple[np.ndarray, ...], found: np.ndarray, exact: np.ndarray
    ) -> np.ndarray:
        """How far results are off in units of the last place, by a bound that does not grow."""
        off = units_off(found, exact)
        short = found.dtype != np.float32
        return off if short or not self.slope else off * (self.bound / self.allowed(operands))


def _op(name: str) -> Callable[..., Expr]:
    op = UnaryOp(name)
    return lambda x: Unary(op, x)


def _wide(formula: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """A formula as operators compute it: in f32 for shorter floats, rounded once."""
    return lambda x: cast(x.dtype, formula(cast(widened(x.dtype), x)))


def _decay(x: Expr) -> Expr:
    """What says itself that it is at most 1, as in a softmax."""
    return Unary(UnaryOp.EXP, minimum(const(0, x.dtype), x))


def _rsqrt(x: Expr) -> Expr:
    return const(1, x.dtype) / Unary(UnaryOp.SQRT, x)


def _power(exponent: float, seen: float) -> Case:
    """pow by a constant, which is a product, or one of square roots."""

    def power_of_x(x: Expr) -> Expr:
        return Binary(BinaryOp.POW, x, const(float(exponent), x.dtype))

    def exact(x: np.ndarray) -> np.ndarray:
        if exponent != round(exponent):  # as C has it: -0.0 and -inf have powers
            no_number = (x < 0) & np.isfinite(x)
            return np.where(no_number, np.nan, np.power(np.abs(x), exponent))
        power = math.prod([x] * abs(round(exponent)))
        return power if exponent > 0 else 1 / power

    name = f"pow_{exponent}" if exponent > 0 else f"pow_minus_{-exponent}"
    mirror = {0: 1, 1: -1}.get(exponent % 2, 0)
    return Case(name, power_of_x, exact, 4, seen, mirror)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def _gelu(x: np.ndarray) -> np.ndarray:
    """x erfc(-x / sqrt(2)) / 2, where the argument's rounding counts by its slope."""
    far = -np.sqrt(np.longdouble(0.5)) * np.clip(x, -64.0, 64.0)
    near = far.astype(np.float64)
    lost = (far - near).astype(np.float64)
    share = erfc(near) - lost * 2 / np.sqrt(np.pi) * np.exp(-near * near)
    return np.maximum(x, -64.0) / 2 * share


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


CASES = {
    case.name: case
    for case in (
        Case("exp", _op("exp"), np.exp, 2, 1.1),
        Case("exp_to_1", _decay, lambda x: np.exp(np.minimum(x, 0)), 2, 1.1),
        Case("expm1", _op("expm1"), np.expm1, 4, 1.7),
        Case("log", _op("log"), np.log, 2, 0.9),
        Case("log1p", _op("log1p"), np.log1p, 4, 1.5),
        Case("sin", _op("sin"), np.sin, 2, 1.7, -1),
        Case("cos", _op("cos"), np.cos, 2, 1.7, 1),
        Case("tan", _op("tan"), np.tan, 4, 3.7, -1),
        Case("asin", _op("asin"), np.arcsin, 4, 2.4, -1),
        Case("acos", _op("acos"), np.arccos, 4, 1.5),
        Case("atan", _op("atan"), np.arctan, 2, 1.5, -1),
        Case("sinh", _op("sinh"), np.sinh, 4, 1.7, -1),
        Case("cosh", _op("cosh"), np.cosh, 4, 1.5, 1),
        Case("tanh", _op("tanh"), np.tanh, 2, 1.95, -1),
        Case("asinh", _op("asinh"), np.arcsinh, 4, 2.0, -1),
        Case("acosh", _op("acosh"), np.arccosh, 4, 2.6),
        Case("atanh", _op("atanh"), np.arctanh, 4, 2.5, -1),
        Case("erf", _op("erf"), erf, 2, 1.95, -1),
        Case("erfc", _op("erfc"), erfc, 4, 3.9),
        Case("sqrt", _op("sqrt"), np.sqrt, 0.5, 0.5),
        Case("rsqrt", _wide(_rsqrt), lambda x: 1 / np.sqrt(x), 2, 1.6),
        Case("sigmoid", _op("sigmoid"), _sigmoid, 2, 1.95),
        Case("gelu", _op("gelu"), _gelu, 8, 7.0, slope=1.5),
        Case("softplus", _wide(activation.softplus), _softplus, 4, 1.8),
        Case("pow", lambda x, y: Binary(BinaryOp.POW, x, y), np.power, 4, 0.6, operands=2),
        Case("atan2", lambda y, x: Binary(BinaryOp.ATAN2, y, x), np.arctan2, 4, 2, operands=2),
        *(_power(n, s) for n, s in {2: 0.5, 3: 1.3, 4: 2.0, -1: 0.5}.items()),
        *(_power(n, s) for n, s in {-2: 2.0, -3: 3.5, -4: 3.5}.items()),
        *(_power(n, s) for n, s in {0.25: 0.9, 0.5: 0.6, 0.75: 2.5}.items()),
        *(_power(n, s) for n, s in {-0.25: 2.0, -0.5: 1.6, -0.75: 4.0}.items()),
    )
}


# ---------------------------------------------------------------- running


def function_kernel(case: Case, dtype: DType, count: int, lanes: int) -> Kernel:
    """y[i] = f(x[i]) for `count` elements, a multiple of `lanes`."""
    inputs = tuple(Buffer(f"x{k}", dtype, (count,)) for k in range(case.operands))
    outer, lane = Var("i"), Var("lane")
    at = outer * lanes + lane
    output = Buffer("y", dtype, (count,))
    store = Store(output, (at,), case.expr(*(x[at] for x in inputs)))
    vector = For(lane, lanes, (store,), LoopKind.VECTORIZE)
    return Kernel(case.name, inputs, (output,), (For(outer, count // lanes, (vector,)),))


def compiled(case: Case, dtype: DType, count: int, target: Target) -> NativeKernel:
    """The function's machine code, a vector register at a time."""
    lanes = max(1, target.vector.bytes // 4)
    return build(function_kernel(case, dtype, count, lanes), target)


# ---------------------------------------------------------------- measuring


@functools.cache
def _places(dtype: DType) -> np.ndarray:
    """1 / (unit in the last place) of the type, by the exponent bits of the exact result as f64."""
    info = ml_dtypes.finfo(dtype.numpy)
    exponent = np.clip(np.arange(1 << 11) - 1023, int(info.minexp), int(info.maxexp) - 1)
    return np.ldexp(1.0, int(info.nmant) - exponent)


def units_off(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How far results are from the exact ones (f64), in units of the last place that the exact one
    has in their type. Infinity counts as the power of two beyond the greatest number. 0 where both
    are NaN; infinite where one is."""
    dtype = from_numpy(found.dtype)
    exponent = (exact.view(np.int64) >> 52) & 0x7FF
    with np.errstate(all="ignore"):
        off = np.abs(found.astype(np.float64) - exact) * _places(dtype)[exponent]
    if np.isfinite(off.max()):
        return off
    return _with_infinities(off, found, exact, dtype)


def _with_infinities(
    off: np.ndarray, found: np.ndarray, exact: np.ndarray, dtype: DType
) -> np.ndarray:
    beyond = 2.0 ** float(ml_dtypes.finfo(dtype.numpy).maxexp)
    with np.errstate(all="ignore"):
        limited = np.clip(exact, -beyond, beyond)
        far = np.abs(np.clip(found.astype(np.float64), -beyond, beyond) - limited)
        far *= _places(dtype)[int(np.log2(beyond)) + 1022]
    odd = ~np.isfinite(off) | (np.abs(exact) >= beyond)
    off = np.where(odd, far, off)
    off[np.isnan(found) != np.isnan(exact)] = np.inf
    off[np.isnan(found) & np.isnan(exact)] = 0.0
    return off


# ---------------------------------------------------------------- samples


def stratified(dtype: DType, mantissas: int, seed: int = 0) -> np.ndarray:
    """Of every exponent and sign the ends and `mantissas` numbers between; NaN and infinities."""
    info = ml_dtypes.finfo(dtype.numpy)
    digits, bits = int(info.nmant), dtype.bits
    rng = np.random.default_rng(seed)
    heads = np.arange(1 << (bits - digits), dtype=np.uint64)[:, None] << digits
    tails = rng.integers(0, 1 << digits, (heads.size, mantissas), dtype=np.uint64)
    ends = np.broadcast_to(np.array([0, 1, (1 << digits) - 1], np.uint64), (heads.size, 3))
    codes = (heads | np.concatenate([ends, tails], axis=1)).astype(f"u{bits // 8}")
    return codes.reshape(-1).view(dtype.numpy)


def samples(case: Case, dtype: DType = f32, mantissas: int = 200) -> tuple[np.ndarray, ...]:
    """Operands for every function: stratified ones, and as many where functions bend."""
    values = stratified(dtype, mantissas)
    rng = np.random.default_rng(1)
    near = rng.uniform(-1, 1, values.size) * rng.choice([1, 4, 16, 100], values.size)
    with np.errstate(all="ignore"):
        first = np.concatenate([values, near.astype(dtype.numpy)])
    if case.operands == 1:
        return (first,)
    second = np.concatenate([rng.permutation(values), near[::-1].astype(dtype.numpy)])
    with np.errstate(all="ignore"):
        base = np.exp(rng.uniform(-80, 80, values.size)).astype(dtype.numpy)  # powers are finite
        power = (rng.uniform(-88, 88, values.size) / np.log(base.astype(np.float64))).astype(
            dtype.numpy
        )
        return np.concatenate([first, base]), np.concatenate([second, power.astype(dtype.numpy)])


def padded(arrays: tuple[np.ndarray, ...], multiple: int = 64) -> tuple[np.ndarray, ...]:
    """The arrays with their last elements repeated, to a length that vectors divide."""
    return tuple(np.pad(a, (0, -a.size % multiple), mode="edge") for a in arrays)


def exact_results(case: Case, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """The reference, f64."""
    with np.errstate(all="ignore"):
        return np.asarray(case.exact(*(a.astype(np.float64) for a in arrays)))


def chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of consecutive pieces of at most `size`."""
    for start in range(0, total, size):
        yield start, min(total, start + size)
