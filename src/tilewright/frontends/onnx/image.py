"""ONNX's image operators: Resize, Upsample, GridSample, RoiAlign.

Resizing is separable and its sizes are known: along each axis every output element is a weighted
sum of a few input elements. Which ones, and their weights, are tables worked out here; the graph
gathers and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.context import FIX_DIMS, Importer, NodeContext, axis_of, one_of
from tilewright.frontends.onnx.node import OnnxNode
from tilewright.ir.dims import canonical
from tilewright.ir.expr import Dim, as_expr
from tilewright.ir.graph import Value
from tilewright.ops.common import widened

FEW_TAPS = 4  # elements that one is made of
LARGEST = 1 << 16  # elements of an axis that tables are made for

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@dataclass(frozen=True)
class Rules:
    """How coordinates and weights follow from sizes: the node's attributes."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


@dataclass(frozen=True)
class Stretch:
    """One axis: its extent before and after, the exact factor, and the part of it that is meant."""

    size: int
    result: int
    scale: float
    region: tuple[float, float] | None


# ---------------------------------------------------------------- tables


def positions(rules: Rules, s: Stretch) -> np.ndarray:
    """Where each output element lies among the input's."""
    y, exact = np.arange(s.result, dtype=np.float64), s.scale * s.size
    half_pixel = (y + 0.5) / s.scale - 0.5
    if rules.coordinates == "asymmetric":
        return y / s.scale
    if rules.coordinates == "align_corners":
        return y * 0 if exact == 1 else y * (s.size - 1) / (exact - 1)
    if rules.coordinates == "pytorch_half_pixel":
        return y * 0 - 0.5 if exact == 1 else half_pixel
    if rules.coordinates == "half_pixel_symmetric":
        return s.size / 2 * (1 - s.result / exact) + half_pixel
    if rules.coordinates == "tf_crop_and_resize":
        if s.region is None:
            raise ModelError("roi is missing")
        start, end = s.region
        inner = (end - start) * (s.size - 1)
        first = start * (s.size - 1)
        return first + (y * 0 + inner / 2 if exact == 1 else y * inner / (exact - 1))
    return half_pixel


def taps(rules: Rules, s: Stretch) -> tuple[np.ndarray, np.ndarray]:
    """For each output element the input elements that it is made of, and their weights."""
    at = positions(rules, s)
    whole = at == np.floor(at)
    ratio = np.where(whole, 1.0, at - np.floor(at))  # the left neighbour's: never 0
    weights = np.stack([_WEIGHTS[rules.mode](rules, r, s.scale) for r in ratio])
    count = weights.shape[1]
    if count % 2:
        first = np.ceil(at - 0.5).astype(np.int64) - (count - 1) // 2
    else:
        first = np.ceil(at).astype(np.int64) - count // 2
    places = first[:, None] + np.arange(count)
    if rules.exclude_outside:
        inside = (places >= 0) & (places < s.size)
        weights = np.where(inside, weights, 0.0)
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-30)
    return np.clip(places, 0, s.size - 1), weights


def _nearest_weights(rules: Rules, ratio: float, scale: float) -> np.ndarray:
    if ratio == 1.0:
        return np.array([0.0, 1.0])
    if rules.nearest == "simple":  # what Upsample and the first Resize do
        right = scale < 1
    else:
        right = {
            "round_prefer_floor": ratio > 0.5,
            "round_prefer_ceil": ratio >= 0.5,
            "floor": False,
            "ceil": True,
        }[rules.nearest]
    return np.array([0.0, 1.0] if right else [1.0, 0.0])


def _linear_weights(rules: Rules, ratio: float, scale: float) -> np.ndarray:
    if not rules.antialias:
        return np.array([1 - ratio, ratio])
    scale = min(scale, 1.0)
    start = math.floor(-1 / scale) + 1
    distance = (np.arange(start, 2 - start) - ratio) * scale
    weights = np.clip(1 - np.abs(distance), 0, 1)
    shares: np.ndarray = weights / weights.sum()
    return shares


def _cubic_weights(rules: Rules, ratio: float, scale: float) -> np.ndarray:
    scale = min(scale, 1.0) if rules.antialias else 1.0
    start = math.floor(-2 / scale) + 1
    x, a = np.abs(scale * (np.arange(start, 2 - start) - ratio)), rules.cubic
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    weights = np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))
    return weights / weights.sum() if rules.antialias else weights


_WEIGHTS: dict[str, Callable[[Rules, float, float], np.ndarray]] = {
    "nearest": _nearest_weights,
    "linear": _linear_weights,
    "cubic": _cubic_weights,
}


# ---------------------------------------------------------------- Resize


def resize(ctx: NodeContext, node: OnnxNode) -> Value:
    """Resize (10: scales, 11: roi, scales or sizes, 13, 18: axes, antialias, 19)."""
    x = node.input(0)
    mode = one_of(node, "mode", "nearest", ("nearest", "linear", "cubic"))
    if node.opset < 11:
        rules = Rules(mode, "asymmetric", "simple", -0.75, False, False, 0.0)
        scales = ctx.need(node.input(1), "scales")
        return _stretch_all(ctx, x, rules, _by_scales(x, range(x.type.rank), scales, None))
    rules = Rules(
        mode,
        one_of(node, "coordinate_transformation_mode", "half_pixel", COORDINATES),
        node.string("nearest_mode", "round_prefer_floor"),
        node.float("cubic_coeff_a", -0.75),
        node.flag("antialias"),
        node.flag("exclude_outside"),
        node.float("extrapolation_value", 0.0),
    )
    if rules.antialias and mode == "nearest":
        raise ModelError("antialias does not go with mode nearest")
    rank = x.type.rank
    axes = [axis_of(a, rank) for a in node.ints("axes", tuple(range(rank)))]
    region = _region(ctx, node, len(axes)) if "crop" in rules.coordinates else None
    by, to = (_given(ctx, node, i) for i in (2, 3))
    if by is not None and to is None:
        found = _by_scales(x, axes, by, region)
    elif to is not None and by is None:
        policy = node.string("keep_aspect_ratio_policy", "stretch")
        found = _by_sizes(x, axes, to, region, policy)
    else:
        raise ModelError("it needs scales or sizes, not both")
    return _stretch_all(ctx, x, rules, found)


def upsample(ctx: NodeContext, node: OnnxNode) -> Value:
    """Upsample (7: attribute, 9: input)."""
    x = node.input(0)
    mode = one_of(node, "mode", "nearest", ("nearest", "linear"))
    scales = node.floats("scales") if node.opset < 9 else ctx.need(node.input(1), "scales")
    rules = Rules(mode, "asymmetric", "simple", -0.75, False, False, 0.0)
    found = _by_scales(x, range(x.type.rank), np.asarray(scales, np.float32), None)
    return _stretch_all(ctx, x, rules, found)


def _given(ctx: NodeContext, node: OnnxNode, position: int) -> np.ndarray | None:
    """An input's contents; an empty tensor counts as left out."""
    value = node.optional(position)
    if value is None or 0 in value.shape:
        return None
    return ctx.need(value, "scales" if position == 2 else "sizes")


def _region(ctx: NodeContext, node: OnnxNode, count: int) -> np.ndarray:
    roi = node.optional(1)
    array = np.zeros(0) if roi is None else ctx.need(roi, "roi").astype(np.float64)
    if array.shape != (2 * count,):
        raise ModelError(f"roi has {array.size} elements for {count} axes")
    return array.reshape(2, count)


Found = dict[int, tuple[float, Dim | None, tuple[float, float] | None]]  # axis: scale, size, region


def _by_scales(
    x: Value, axes: Sequence[int], scales: np.ndarray, region: np.ndarray | None
) -> Found:
    if np.shape(scales) != (len(axes),):
        raise ModelError(f"{np.size(scales)} scales for {len(axes)} axes")
    if not np.all(np.asarray(scales) > 0):
        raise ModelError(f"scales {np.asarray(scales).tolist()} must be positive")
    return {
        axis: (float(scales[i]), None, None if region is None else tuple(region[:, i].tolist()))
        for i, axis in enumerate(axes)
    }


def _by_sizes(
    x: Value, axes: Sequence[int], sizes: np.ndarray, region: np.ndarray | None, policy: str
) -> Found:
    if np.shape(sizes) != (len(axes),):
        raise ModelError(f"{np.size(sizes)} sizes for {len(axes)} axes")
    if np.min(sizes) < 0:
        raise ModelError(f"sizes {np.asarray(sizes).tolist()} must be positive")
    found: Found = {}
    known = {a: d for a in axes if isinstance(d := x.shape[a], int) and d > 0}
    if len(known) < len(axes):
        raise ModelError("the input's size is not known", hint=FIX_DIMS)
    ratios = [int(size) / known[a] for a, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        chosen = {"not_larger": min, "not_smaller": max}.get(policy)
        if chosen is None:
            raise ModelError(f"keep_aspect_ratio_policy is {policy!r}")
        ratios = [chosen(ratios)] * len(axes)
        sizes = np.array([int(ratios[0] * known[a] + 0.5) for a in axes])
    for i, axis in enumerate(axes):
        part = None if region is None else tuple(region[:, i].tolist())
        found[axis] = (ratios[i], int(sizes[i]), part)
    return found


def _stretch_all(ctx: NodeContext, x: Value, rules: Rules, found: Found) -> Value:
    """One axis after the other; sums in at least f32."""
    dtype = x.dtype
    exact = rules.mode == "nearest" or dtype.is_float
    if not exact:
        raise ModelError(f"mode {rules.mode} of {dtype}", hint="cast to float before the node")
    out = x if rules.mode == "nearest" else ctx.cast(x, widened(dtype))
    outside: list[tuple[int, np.ndarray]] = []
    # What grows grows last, and along rows before it does across them: fewer elements are touched.
    order = sorted(found, key=lambda a: (found[a][0] > 1, -a if found[a][0] > 1 else a))
    for axis, (scale, size, region) in ((a, found[a]) for a in order):
        if scale == 1.0 and size in (None, x.shape[axis]) and region in (None, (0.0, 1.0)):
            continue
        extent = x.shape[axis]
        if not isinstance(extent, int):
            out = _repeat(ctx, out, axis, rules, scale)
            continue
        result = int(scale * extent) if size is None else size
        if extent == 0 or result == 0:
            raise ModelError(f"axis {axis} of extent {extent} becomes {result}")
        if max(extent, result) > LARGEST:
            raise ModelError(f"axis {axis} of extent {extent} becomes {result}: at most {LARGEST}")
        stretch = Stretch(extent, int(result), scale, region)
        out = _stretch(ctx, out, axis, rules, stretch)
        if rules.coordinates == "tf_crop_and_resize":
            at = positions(rules, stretch)
            outside.append((axis, (at < 0) | (at > extent - 1)))
    for axis, mask in outside:
        if mask.any():
            shape = [-1 if a == axis else 1 for a in range(out.type.rank)]
            where = ctx.constant(mask.reshape(shape))
            out = ctx.emit("where", [where, ctx.scalar(rules.extrapolation, out), out])
    return ctx.cast(out, dtype)


def _stretch(ctx: NodeContext, x: Value, axis: int, rules: Rules, s: Stretch) -> Value:
    """One axis of known size: gathered, weighted and summed. Where it grows, or a tap's places are
    equally far apart, tap after tap: that is element-wise work, and fuses with what is around."""
    places, weights = taps(rules, s)
    if rules.mode == "nearest":
        chosen = places[np.arange(len(places)), weights.argmax(axis=1)]
        return ctx.emit("gather", [x, ctx.constant(chosen)], axis=axis)
    weights, behind = weights.astype(x.dtype.numpy), [1] * (x.type.rank - axis - 1)
    apart = not np.diff(places, 2, axis=0).any()
    if weights.shape[1] <= FEW_TAPS and (s.result >= s.size or apart):
        sum_ = None
        for place, weight in zip(places.T, weights.T, strict=True):
            part = ctx.emit("gather", [x, ctx.constant(place)], axis=axis)
            part = ctx.emit("mul", [part, ctx.constant(weight.reshape(-1, *behind))])
            sum_ = part if sum_ is None else ctx.emit("add", [sum_, part])
        assert sum_ is not None
        return sum_
    rows = ctx.emit("gather", [x, ctx.constant(places)], axis=axis)
    factor = ctx.constant(weights.reshape(*weights.shape, *behind))
    product = ctx.emit("mul", [rows, factor])
    return ctx.emit("reduce_sum", [product], axes=(axis + 1,), keepdims=False)


def _repeat(ctx: NodeContext, x: Value, axis: int, rules: Rules, scale: float) -> Value:
    """An axis of symbolic size, each element several times."""
    floors = rules.nearest in ("simple", "floor") and rules.coordinates == "asymmetric"
    halves = rules.nearest == "round_prefer_floor" and "half_pixel" in rules.coordinates
    if rules.mode != "nearest" or scale != int(scale) or not (floors or halves):
        raise ModelError(
            "the size of an axis is symbolic, and the elements are not just repeated",
            hint=FIX_DIMS,
        )
    factor, shape = int(scale), x.shape
    out = ctx.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    out = ctx.expand(out, [*shape[: axis + 1], factor, *shape[axis + 1 :]])
    merged = canonical(as_expr(shape[axis]) * factor)
    return ctx.reshape(out, [*shape[:axis], merged, *shape[axis + 1 :]])


# ---------------------------------------------------------------- sampling


def grid_sample(ctx: NodeContext, node: OnnxNode) -> Value:
    """GridSample (16: bilinear and bicubic, 20: linear and cubic)."""
    modes = {"bilinear": "linear", "bicubic": "cubic"}
    mode = one_of(node, "mode", "linear", ("nearest", "linear", "cubic", "bilinear", "bicubic"))
    padding = one_of(node, "padding_mode", "zeros", ("zeros", "border", "reflection"))
    x, grid = node.input(0), node.input(1)
    return ctx.emit(
        "grid_sample",
        [x, grid],
        mode=modes.get(mode, mode),
        padding=padding,
        align_corners=node.flag("align_corners"),
    )


def roi_align(ctx: NodeContext, node: OnnxNode) -> Value:
    """RoiAlign (10, 16: coordinate_transformation_mode, 22)."""
    samples = node.int("sampling_ratio", 0)
    if samples < 1:
        raise ModelError(
            "sampling_ratio=0 makes the number of samples depend on the regions",
            hint="export the model with a fixed sampling_ratio",
        )
    half = node.string("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    return ctx.emit(
        "roi_align",
        [node.input(0), node.input(1), node.input(2)],
        height=node.int("output_height", 1),
        width=node.int("output_width", 1),
        samples=samples,
        scale=node.float("spatial_scale", 1.0),
        half_pixel=half and node.opset >= 16,
        mode=one_of(node, "mode", "avg", ("avg", "max")),
    )


IMPORTERS: dict[str, Importer] = {
    "GridSample": grid_sample,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Upsample": upsample,
}
