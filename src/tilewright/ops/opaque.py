"""Operators without a loop form, run on the host by numpy: sorting, selecting, data-dependent
shapes.

A dimension that depends on data is a symbol of the node's own, given as an attribute (`count`); it
gets its value when the node has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtype import bool_, i64
from tilewright.base.errors import ModelError
from tilewright.ir.dims import limits, tensor_type
from tilewright.ir.expr import Dim
from tilewright.ir.op import Attrs, Category, Evaluate, Infer, Op, attr
from tilewright.ir.tensor_type import TensorType
from tilewright.ops.common import NoAttrs, normalize_axis, require

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True, slots=True)
class TopKAttrs(Attrs):
    k: int = attr(doc="how many elements are taken along the axis", low=0)
    axis: int = attr(-1, doc="the axis; negative ones count from the end")
    largest: bool = attr(True, doc="take the greatest elements, not the least")


@dataclass(frozen=True, slots=True)
class CountAttrs(Attrs):
    count: Dim = attr(doc="the symbol for how many were found")


@dataclass(frozen=True, slots=True)
class CompressAttrs(Attrs):
    count: Dim = attr(doc="the symbol for how many were kept")
    axis: int | None = attr(None, doc="the axis along which is chosen; none: in the flat tensor")


@dataclass(frozen=True, slots=True)
class UniqueAttrs(Attrs):
    count: Dim = attr(doc="the symbol for how many different elements there are")
    axis: int | None = attr(None, doc="compare slices along this axis; none: elements")
    sorted: bool = attr(True, doc="in ascending order, not in that of their first appearance")


@dataclass(frozen=True, slots=True)
class SuppressAttrs(Attrs):
    count: Dim = attr(doc="the symbol for how many boxes are kept")
    most: int = attr(0, doc="how many are kept at most for each batch and class", low=0)
    overlap: float = attr(0.0, doc="a box is dropped when it overlaps a better one by more")
    score: float | None = attr(None, doc="boxes with this score or less are dropped")
    center: bool = attr(False, doc="boxes are x, y, width, height; else two opposite corners y, x")


# ---------------------------------------------------------------- order


def infer_top_k(attrs: TopKAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    """The types of the elements that are taken and of their places."""
    (x,) = types
    require(x.rank > 0, "top_k: a scalar has no axis")
    axis = normalize_axis("top_k", attrs.axis, x.rank)
    most = limits(x.shape[axis])[1]
    require(
        most is None or attrs.k <= most,
        f"top_k: {attrs.k} elements of an axis with {x.shape[axis]}",
    )
    shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
    return [tensor_type(x.dtype, shape), tensor_type(i64, shape)]


def _evaluate_top_k(attrs: TopKAttrs, inputs: Arrays) -> Arrays:
    """Sorted; of equal elements the first comes first."""
    (x,) = inputs
    if attrs.k > x.shape[attrs.axis]:
        raise ModelError(f"top_k: {attrs.k} elements of an axis with {x.shape[attrs.axis]}")
    if attrs.largest:  # a stable descending order: the ascending one of the reversed axis, reversed
        order = np.flip(np.argsort(np.flip(x, attrs.axis), attrs.axis, kind="stable"), attrs.axis)
        order = x.shape[attrs.axis] - 1 - order
    else:
        order = np.argsort(x, attrs.axis, kind="stable")
    places = np.take(order, np.arange(attrs.k), attrs.axis)
    return np.take_along_axis(x, places, attrs.axis), places.astype(np.int64)


# ---------------------------------------------------------------- selection


def _infer_nonzero(attrs: CountAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    return [tensor_type(i64, (types[0].rank, attrs.count))]


def _evaluate_nonzero(attrs: CountAttrs, inputs: Arrays) -> Arrays:
    places = np.nonzero(np.atleast_1d(inputs[0]))
    rows = np.array(places, np.int64)
    return (rows if inputs[0].ndim else rows[:0],)


def _infer_compress(attrs: CompressAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    x, condition = types
    require(
        condition.dtype == bool_ and condition.rank == 1,
        f"compress: the condition is {condition}, not a vector of bool",
    )
    if attrs.axis is None:
        return [tensor_type(x.dtype, (attrs.count,))]
    axis = normalize_axis("compress", attrs.axis, x.rank)
    return [tensor_type(x.dtype, (*x.shape[:axis], attrs.count, *x.shape[axis + 1 :]))]


def _evaluate_compress(attrs: CompressAttrs, inputs: Arrays) -> Arrays:
    x, condition = inputs
    extent = x.size if attrs.axis is None else x.shape[attrs.axis]
    return (np.compress(condition[:extent], x, attrs.axis),)


def _infer_unique(attrs: UniqueAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    counts = tensor_type(i64, (attrs.count,))
    if attrs.axis is None:
        inverse = tensor_type(i64, (_total(x),))
        return [tensor_type(x.dtype, (attrs.count,)), counts, inverse, counts]
    axis = normalize_axis("unique", attrs.axis, x.rank)
    shape = (*x.shape[:axis], attrs.count, *x.shape[axis + 1 :])
    return [tensor_type(x.dtype, shape), counts, tensor_type(i64, (x.shape[axis],)), counts]


def _total(x: TensorType) -> Dim:
    total: Dim = 1
    for dim in x.shape:
        total = total * dim
    return total


def _evaluate_unique(attrs: UniqueAttrs, inputs: Arrays) -> Arrays:
    """The different elements, where each first stands, which one each element is, how often."""
    (x,) = inputs
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=attrs.axis
    )
    inverse = inverse.reshape(-1)
    if not attrs.sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = np.take(values, order, 0 if attrs.axis is None else attrs.axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return (values, *(a.astype(np.int64) for a in (first, inverse, counts)))


# ---------------------------------------------------------------- boxes


def _infer_suppress(attrs: SuppressAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    boxes, scores = types
    fits = boxes.rank == scores.rank == 3 and boxes.shape[2] == 4
    require(
        fits and (boxes.shape[0], boxes.shape[1]) == (scores.shape[0], scores.shape[2]),
        f"suppress: boxes {boxes} with scores {scores}, which must be [batches, boxes, 4] and "
        "[batches, classes, boxes]",
    )
    return [tensor_type(i64, (attrs.count, 3))]


def _evaluate_suppress(attrs: SuppressAttrs, inputs: Arrays) -> Arrays:
    """Rows batch, class, box: for each class the best boxes that overlap no better one."""
    boxes, scores = inputs
    rows: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        own, corners = scores[batch, kind], _corners(boxes[batch], attrs.center)
        kept: list[int] = []
        for box in np.argsort(-own, kind="stable"):
            if len(kept) == attrs.most or (attrs.score is not None and own[box] <= attrs.score):
                break
            if all(_overlap(corners[box], corners[k]) <= attrs.overlap for k in kept):
                kept.append(int(box))
        rows += [(batch, kind, box) for box in kept]
    return (np.array(rows, np.int64).reshape(-1, 3),)


def _corners(boxes: np.ndarray, center: bool) -> np.ndarray:
    """y1, x1, y2, x2 with y1 <= y2 and x1 <= x2."""
    if center:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], axis=1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], axis=1)


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """The intersection's area over the union's."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    union = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - shared
    return shared / union if union > 0 else 0.0


# ---------------------------------------------------------------- matrices


def _infer_det(attrs: NoAttrs, types: Sequence[TensorType]) -> list[TensorType]:
    (x,) = types
    require(x.dtype.is_float, f"det: takes floats, not {x.dtype}")
    require(x.rank >= 2 and x.shape[-1] == x.shape[-2], f"det: {x} does not hold square matrices")
    return [tensor_type(x.dtype, x.shape[:-2])]


def _evaluate_det(attrs: NoAttrs, inputs: Arrays) -> Arrays:
    x = inputs[0].astype(np.float64)
    return (np.asarray(np.linalg.det(x)).astype(inputs[0].dtype),)


def _host(
    name: str,
    attrs: type[Attrs],
    infer: Infer,
    evaluate: Evaluate,
    doc: str,
    operands: int,
    types: str,
) -> Op:
    arity = (operands, operands)
    return Op(name, attrs, infer, Category.OPAQUE, doc, arity, types, evaluate=evaluate)


OPS: tuple[Op, ...] = (
    _host(
        "top_k",
        TopKAttrs,
        infer_top_k,
        _evaluate_top_k,
        "the greatest (least) elements along an axis in order, and their places",
        1,
        "floats and integers",
    ),
    _host(
        "nonzero",
        CountAttrs,
        _infer_nonzero,
        _evaluate_nonzero,
        "the subscripts of all elements that are not zero, a row for each axis",
        1,
        "any",
    ),
    _host(
        "compress",
        CompressAttrs,
        _infer_compress,
        _evaluate_compress,
        "the slices for which a condition holds",
        2,
        "any; a bool condition",
    ),
    _host(
        "unique",
        UniqueAttrs,
        _infer_unique,
        _evaluate_unique,
        "the different elements; where each first stands, which is which, how often",
        1,
        "any",
    ),
    _host(
        "suppress",
        SuppressAttrs,
        _infer_suppress,
        _evaluate_suppress,
        "non-maximum suppression: of overlapping boxes the best",
        2,
        "floats",
    ),
    _host("det", NoAttrs, _infer_det, _evaluate_det, "determinants of matrices", 1, "floats"),
)
