"""Normalisations: softmax, layer norm, RMS norm, local response, each a few stages.

Short floats are computed in f32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtype import DType, f32, f64
from tilewright.ir.dims import canonical, tensor_type
from tilewright.ir.expr import (
    BinaryOp,
    Buffer,
    Dim,
    Expr,
    UnaryOp,
    all_of,
    as_expr,
    binary,
    cast,
    const,
    maximum,
    minimum,
    product,
    select,
    unary,
)
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor import Builder
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import (
    as_number,
    axis_names,
    broadcast,
    normalize_axes,
    normalize_axis,
    read_broadcast,
    require,
    require_same_dtype,
    widened,
)
from tilewright.ops.movement import AxisAttrs
from tilewright.ops.reduce import at_reduced, reduce_axes, reduced_shape

LEAST_DECAY = {f32: -87.33, f64: -708.39}  # e**x is a normal number from there


@dataclass(frozen=True, slots=True)
class LayerNormAttrs(Attrs):
    axis: int = attr(-1, doc="the first of the axes that are normalised together")
    epsilon: float = attr(1e-5, doc="added to the variance", low=0)
    statistics: bool = attr(False, doc="also give the mean and 1 / standard deviation")


@dataclass(frozen=True, slots=True)
class RmsNormAttrs(Attrs):
    axis: int = attr(-1, doc="the first of the axes that are normalised together")
    epsilon: float = attr(1e-5, doc="added to the mean square", low=0)


@dataclass(frozen=True, slots=True)
class StandardizeAttrs(Attrs):
    axes: tuple[int, ...] = attr(doc="the axes that are normalised together")
    epsilon: float = attr(1e-5, doc="added to the variance", low=0)


@dataclass(frozen=True, slots=True)
class LrnAttrs(Attrs):
    size: int = attr(doc="how many neighbouring channels are summed over", low=1)
    alpha: float = attr(1e-4, doc="factor of the mean square")
    beta: float = attr(0.75, doc="exponent of the divisor")
    bias: float = attr(1.0, doc="added to the scaled mean square")


def _decay(x: Expr) -> Expr:
    """e**x of an x that is at most 0, which machine code need not keep from overflow. What would be
    no normal number is 0: beside the largest term, which is 1, it counts for nothing, and
    processors may take a hundred cycles for a product by such a number."""
    least = const(LEAST_DECAY[x.dtype], x.dtype)
    limited = minimum(const(0, x.dtype), x)
    power = unary(UnaryOp.EXP, maximum(least, limited))
    return select(limited < least, const(0, x.dtype), power)


# ---------------------------------------------------------------- softmax


def _infer_softmax(name: str) -> Callable[..., list[TensorType]]:
    def infer(attrs: AxisAttrs, types: Sequence[TensorType]) -> list[TensorType]:
        (x,) = types
        require(x.dtype.is_float, f"{name}: takes floats, not {x.dtype}")
        require(x.rank > 0, f"{name}: a scalar has no axis")
        normalize_axis(name, attrs.axis, x.rank)
        return [tensor_type(x.dtype, x.shape)]

    return infer


def _compute_softmax(b: Builder, attrs: AxisAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    axes, wide = [normalize_axis("softmax", attrs.axis, len(x.shape))], widened(x.dtype)
    names = axis_names(len(x.shape))
    most = reduce_axes(b, "most", x.shape, axes, BinaryOp.MAX, lambda *i: cast(wide, x[i]))

    def shifted(*i: Expr) -> Expr:
        return cast(wide, x[i]) - at_reduced(most, i, axes)

    exps = b.compute("exps", x.shape, lambda *i: _decay(shifted(*i)), names=names)
    total = reduce_axes(b, "total", x.shape, axes, BinaryOp.ADD, lambda *i: exps[i])
    scale = b.compute("scale", total.shape, lambda *i: const(1, wide) / total[i])

    def value(*i: Expr) -> Expr:
        return cast(x.dtype, exps[i] * at_reduced(scale, i, axes))

    return [b.compute("softmax", x.shape, value, names=names)]


def _compute_log_softmax(b: Builder, attrs: AxisAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    (x,) = inputs
    axes, wide = [normalize_axis("log_softmax", attrs.axis, len(x.shape))], widened(x.dtype)
    most = reduce_axes(b, "most", x.shape, axes, BinaryOp.MAX, lambda *i: cast(wide, x[i]))

    def shifted(*i: Expr) -> Expr:
        return cast(wide, x[i]) - at_reduced(most, i, axes)

    total = reduce_axes(b, "total", x.shape, axes, BinaryOp.ADD, lambda *i: _decay(shifted(*i)))

    def value(*i: Expr) -> Expr:
        return cast(x.dtype, shifted(*i) - unary(UnaryOp.LOG, at_reduced(total, i, axes)))

    return [b.compute("log_softmax", x.shape, value, names=axis_names(len(x.shape)))]


# ---------------------------------------------------------------- layer norm and kin


@dataclass(frozen=True)
class Moments:
    """Of what is normalised together, kept with extent 1: the mean as rounded, what the rounding
    left, and 1 / sqrt(variance + epsilon)."""

    x: Buffer
    axes: Sequence[int]
    mean: Buffer
    rest: Buffer
    scale: Buffer

    def distance(self, *i: Expr) -> Expr:
        """x - mean, in two steps: the first is exact near the mean."""
        return _distance(self.x, self.mean, i, self.axes) - at_reduced(self.rest, i, self.axes)

    def standardized(self, *i: Expr) -> Expr:
        """(x - mean) / sqrt(variance + epsilon)"""
        return self.distance(*i) * at_reduced(self.scale, i, self.axes)


def _distance(x: Buffer, mean: Buffer, i: Sequence[Expr], axes: Sequence[int]) -> Expr:
    return cast(mean.dtype, x[tuple(i)]) - at_reduced(mean, i, axes)


def _moments(b: Builder, x: Buffer, axes: Sequence[int], epsilon: float) -> Moments:
    """Where the deviation is small beside the mean, the rounding of the mean counts: the mean of
    the distances from it (Chan, Golub and LeVeque's corrected two-pass algorithm, 1983) is taken
    from the variance and from every distance."""
    wide = widened(x.dtype)
    count = as_number(product(tuple(x.shape[a] for a in axes)), wide)
    kept = reduced_shape(x.shape, axes, True)
    names = axis_names(len(x.shape))
    total = reduce_axes(b, "total", x.shape, axes, BinaryOp.ADD, lambda *i: cast(wide, x[i]))
    mean = b.compute("mean", kept, lambda *i: total[i] / count, names=names)

    def distance(*i: Expr) -> Expr:
        return _distance(x, mean, i, axes)

    def square(*i: Expr) -> Expr:
        d = distance(*i)
        return d * d

    def variance(*i: Expr) -> Expr:
        return maximum(squares[i] / count - rest[i] * rest[i], const(0, wide))

    left = reduce_axes(b, "left", x.shape, axes, BinaryOp.ADD, distance)
    rest = b.compute("rest", kept, lambda *i: left[i] / count, names=names)
    squares = reduce_axes(b, "squares", x.shape, axes, BinaryOp.ADD, square)
    return Moments(x, axes, mean, rest, _inverse_root(b, kept, variance, epsilon))


def _inverse_root(
    b: Builder, shape: Sequence[Dim], mean_square: Callable[..., Expr], epsilon: float
) -> Buffer:
    """1 / sqrt(mean square + epsilon)"""

    def value(*i: Expr) -> Expr:
        square = mean_square(*i)
        number = const(epsilon, square.dtype)
        return const(1, square.dtype) / unary(UnaryOp.SQRT, square + number)

    return b.compute("scale", tuple(shape), value, names=axis_names(len(shape)))


def _infer_layer_norm(attrs: LayerNormAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    _check_scaled("layer_norm", attrs.axis, types)
    x = types[0]
    axis = normalize_axis("layer_norm", attrs.axis, x.rank)
    kept = reduced_shape(x.shape, range(axis, x.rank), True)
    wide = tensor_type(widened(x.dtype), kept)
    return [tensor_type(x.dtype, x.shape), *([wide, wide] if attrs.statistics else [])]


def _check_scaled(name: str, axis: int, types: Sequence[TensorType]) -> DType:
    dtype, x = require_same_dtype(name, types), types[0]
    require(dtype.is_float, f"{name}: takes floats, not {dtype}")
    require(x.rank > 0, f"{name}: a scalar has no axis")
    normalize_axis(name, axis, x.rank)
    for t in types[1:]:
        require(
            broadcast([x.shape, t.shape]) == tuple(canonical(d) for d in x.shape),
            f"{name}: an operand {t} does not broadcast to {x}",
        )
    return dtype


def _compute_layer_norm(
    b: Builder, attrs: LayerNormAttrs, inputs: Sequence[Buffer]
) -> list[Buffer]:
    x, wide = inputs[0], widened(inputs[0].dtype)
    axes = range(normalize_axis("layer_norm", attrs.axis, len(x.shape)), len(x.shape))
    moments = _moments(b, x, axes, attrs.epsilon)

    def value(*i: Expr) -> Expr:
        result = moments.standardized(*i) * cast(wide, read_broadcast(inputs[1], i))
        if len(inputs) > 2:
            result = result + cast(wide, read_broadcast(inputs[2], i))
        return cast(x.dtype, result)

    out = b.compute("layer_norm", x.shape, value, names=axis_names(len(x.shape)))
    return [out, *([moments.mean, moments.scale] if attrs.statistics else [])]


def _infer_rms_norm(attrs: RmsNormAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    dtype = _check_scaled("rms_norm", attrs.axis, types)
    return [tensor_type(dtype, types[0].shape)]


def _compute_rms_norm(b: Builder, attrs: RmsNormAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    x, gain = inputs
    wide = widened(x.dtype)
    axes = range(normalize_axis("rms_norm", attrs.axis, len(x.shape)), len(x.shape))

    def square(*i: Expr) -> Expr:
        return cast(wide, x[i]) * cast(wide, x[i])

    squares = reduce_axes(b, "squares", x.shape, axes, BinaryOp.ADD, square)
    count = as_number(product(tuple(x.shape[a] for a in axes)), wide)
    scale = _inverse_root(b, squares.shape, lambda *i: squares[i] / count, attrs.epsilon)

    def value(*i: Expr) -> Expr:
        result = cast(wide, x[i]) * at_reduced(scale, i, axes) * cast(wide, read_broadcast(gain, i))
        return cast(x.dtype, result)

    return [b.compute("rms_norm", x.shape, value, names=axis_names(len(x.shape)))]


def _infer_standardize(attrs: StandardizeAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(x.dtype.is_float, f"standardize: takes floats, not {x.dtype}")
    normalize_axes("standardize", attrs.axes, x.rank)
    return [tensor_type(x.dtype, x.shape)]


def _compute_standardize(
    b: Builder, attrs: StandardizeAttrs, inputs: Sequence[Buffer]
) -> list[Buffer]:
    (x,) = inputs
    moments = _moments(b, x, normalize_axes("standardize", attrs.axes, len(x.shape)), attrs.epsilon)

    def value(*i: Expr) -> Expr:
        return cast(x.dtype, moments.standardized(*i))

    return [b.compute("standardize", x.shape, value, names=axis_names(len(x.shape)))]


# ---------------------------------------------------------------- local response


def _infer_lrn(attrs: LrnAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(x.dtype.is_float, f"lrn: takes floats, not {x.dtype}")
    require(x.rank >= 2, f"lrn: a tensor with {x.rank} dimensions has no channels")
    return [tensor_type(x.dtype, x.shape)]


def _compute_lrn(b: Builder, attrs: LrnAttrs, inputs: Sequence[Buffer]) -> list[Buffer]:
    """Channels c - floor((size - 1) / 2) … c + ceil((size - 1) / 2), those that there are."""
    (x,) = inputs
    wide, before, names = widened(x.dtype), (attrs.size - 1) // 2, axis_names(len(x.shape))

    def square(*i: Expr) -> Expr:
        channel = i[1] + i[-1] - before
        element = cast(wide, x.at(i[0], channel, *i[2:-1]))
        inside = all_of(channel >= 0, channel < as_expr(x.shape[1]))
        return select(inside, element * element, const(0, wide))

    squares = b.reduce("squares", x.shape, BinaryOp.ADD, [attrs.size], square, names=names)

    def value(*i: Expr) -> Expr:
        mean = squares[i] * const(attrs.alpha / attrs.size, wide)
        divisor = binary(BinaryOp.POW, mean + const(attrs.bias, wide), const(attrs.beta, wide))
        return cast(x.dtype, cast(wide, x[i]) / divisor)

    return [b.compute("lrn", x.shape, value, names=names)]


OPS: tuple[Op, ...] = (
    Op(
        "softmax",
        AxisAttrs,
        _infer_softmax("softmax"),
        Category.REDUCTION,
        "exp(x - max) / sum(exp(x - max)) along an axis",
        (1, 1),
        "floats",
        _compute_softmax,
    ),
    Op(
        "log_softmax",
        AxisAttrs,
        _infer_softmax("log_softmax"),
        Category.REDUCTION,
        "the logarithm of softmax along an axis",
        (1, 1),
        "floats",
        _compute_log_softmax,
    ),
    Op(
        "layer_norm",
        LayerNormAttrs,
        _infer_layer_norm,
        Category.REDUCTION,
        "(x - mean) / sqrt(variance + epsilon) over the last axes, times a scale, plus a bias",
        (2, 3),
        "floats",
        _compute_layer_norm,
    ),
    Op(
        "rms_norm",
        RmsNormAttrs,
        _infer_rms_norm,
        Category.REDUCTION,
        "x / sqrt(mean square + epsilon) over the last axes, times a scale",
        (2, 2),
        "floats",
        _compute_rms_norm,
    ),
    Op(
        "standardize",
        StandardizeAttrs,
        _infer_standardize,
        Category.REDUCTION,
        "(x - mean) / sqrt(variance + epsilon) over axes: instance, group and layer norm's core",
        (1, 1),
        "floats",
        _compute_standardize,
    ),
    Op(
        "lrn",
        LrnAttrs,
        _infer_lrn,
        Category.REDUCTION,
        "x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta",
        (1, 1),
        "floats",
        _compute_lrn,
    ),
)
