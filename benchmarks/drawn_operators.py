"""Models of one operator whose sizes and attributes are drawn: shapes that no list names.

    python benchmarks/operators.py --drawn 200 --seed 3

The same seed draws the same models. Sizes are those that networks have, and others beside them; an
operator's floats are at most some millions, its multiply-adds at most 800 million.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random

import onnx
from onnx import helper
from operator_builder import (
    convolution,
    joined,
    model_of,
    pool,
    product,
    product_of_inputs,
    random,
    reduced,
    resized,
    single,
    transposed,
    whole,
)

Model = Callable[[], onnx.ModelProto]
Drawn = tuple[str, Model]

# fmt: off
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 14, 16, 17, 24, 28, 31, 32, 48, 49, 56, 64, 77, 96, 100, 112, 128,
         192, 197, 224, 256, 384, 512, 768, 1000, 1024, 2048)
CHANNELS = (1, 3, 4, 8, 12, 16, 24, 32, 48, 60, 64, 96, 116, 128, 160, 256, 512)
UNARY = ("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Gelu", "HardSwish", "Softplus", "Elu", "Mish",
         "LeakyRelu", "Floor", "Round", "Sin", "Cos", "Abs", "Neg", "Sign", "HardSigmoid", "Selu",
         "Softsign")
# fmt: on
FLOATS, LEAST_FLOATS = 4_000_000, 20_000
PRODUCTS, LEAST_PRODUCTS = 800_000_000, 300_000


def models(count: int, seed: int) -> dict[str, Model]:
    """So many different models by their names, which say what they are."""
    draw, found = Random(seed), dict[str, Model]()
    while len(found) < count:
        name, model = draw.choice(KINDS)(draw)
        found.setdefault(name, model)
    return found


def _shape(draw: Random, least: int, most: int) -> list[int]:
    """Some axes; not too few elements, and not too many."""
    while True:
        shape = [draw.choice(SIZES) for _ in range(draw.randint(least, most))]
        if LEAST_FLOATS <= math.prod(shape) <= FLOATS:
            return shape


def _text(*parts: object) -> str:
    return " ".join("x".join(map(str, p)) if isinstance(p, list) else str(p) for p in parts)


def _picture(draw: Random) -> list[int]:
    rank = draw.choice((1, 2, 2, 2, 3))
    if rank == 2 and draw.random() < 0.3:
        return [draw.choice((7, 14, 28, 56)), draw.choice((7, 14, 28, 56, 100))]
    sides = {
        1: (50, 128, 400, 1000, 4000),
        2: (7, 10, 14, 19, 28, 33, 56, 80, 112),
        3: (4, 8, 16, 20),
    }
    return [draw.choice(sides[rank])] * rank


def _convolution(draw: Random) -> Drawn:
    while True:
        size, channels = _picture(draw), draw.choice(CHANNELS)
        group = draw.choice((1, 1, 1, channels, 2, 4, 8))
        group = group if channels % group == 0 else 1
        filters = draw.choice((channels, channels, 8, 16, 32, 64, 96, 128, 256))
        filters = max(group, filters // group * group)
        kernel, stride = draw.choice((1, 1, 3, 3, 3, 5, 7)), draw.choice((1, 1, 1, 2))
        work = math.prod(size) * kernel ** len(size) * filters * channels // group // stride
        if LEAST_PRODUCTS <= work <= PRODUCTS:
            break
    if draw.random() < 0.15 and kernel >= stride:
        name = _text("drawn transposed", channels, filters, size, f"k{kernel} s{stride} g{group}")
        return name, partial(transposed, channels, filters, size, kernel, stride, group)
    dilation = draw.choice((1, 1, 1, 2))
    name = _text("drawn conv", channels, filters, size, f"k{kernel} s{stride} g{group} d{dilation}")
    more = {"group": group, "stride": stride, "dilation": dilation}
    return name, partial(convolution, channels, filters, size, kernel, **more)


def _product(draw: Random) -> Drawn:
    while True:
        rows, terms, columns = (draw.choice((*SIZES, 3072, 4096)) for _ in range(3))
        batch = draw.choice(([], [], [2], [8], [12], [16]))
        work = rows * terms * columns * math.prod(batch)
        if LEAST_PRODUCTS <= work <= PRODUCTS and rows * columns * math.prod(batch) <= 4 * FLOATS:
            break
    left, right = [*batch, rows, terms], [*batch, terms, columns]
    how = draw.choice(("constant", "inputs", "turned"))
    name = _text("drawn matmul", how, left, "by", right)
    if how == "constant":
        return name, partial(product, left, right[-2:])
    if how == "inputs":
        return name, partial(product_of_inputs, left, right)
    return name, partial(_turned, left, [*batch, columns, terms])


def _turned(left: list[int], right: list[int]) -> onnx.ModelProto:
    """A product whose second operand is transposed, as keys of attention are."""
    order = [*range(len(right) - 2), len(right) - 1, len(right) - 2]
    nodes = [
        helper.make_node("Transpose", ["b"], ["t"], perm=order),
        helper.make_node("MatMul", ["a", "t"], ["y"]),
    ]
    return model_of(nodes, {"a": left, "b": right}, {})


def _reduction(draw: Random) -> Drawn:
    shape = _shape(draw, 2, 4)
    axes = sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape) - 1)))
    op = draw.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"))
    return _text("drawn", op, shape, "along", axes), partial(reduced, op, shape, axes)


def _normalisation(draw: Random) -> Drawn:
    shape = _shape(draw, 3, 4)
    op = draw.choice(("Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization"))
    if op == "InstanceNormalization":
        weights = [random(shape[1]), random(shape[1])]
        return _text("drawn", op, shape), partial(single, op, shape, weights)
    axis = -1 if op == "LayerNormalization" else draw.randrange(len(shape))
    weights = [random(shape[-1])] * 2 if op == "LayerNormalization" else []
    return _text("drawn", op, shape, axis), partial(single, op, shape, weights, axis=axis)


def _elementwise(draw: Random) -> Drawn:
    shape = _shape(draw, 2, 4)
    if draw.random() < 0.6:
        op = draw.choice(UNARY)
        return _text("drawn", op, shape), partial(single, op, shape)
    other = [n if draw.random() < 0.6 else 1 for n in shape][draw.choice((0, 0, 1)) :]
    op = draw.choice(("Add", "Mul", "Sub", "Div", "Max"))
    return _text("drawn", op, shape, other), partial(_of_two, op, shape, other)


def _of_two(op: str, left: list[int], right: list[int]) -> onnx.ModelProto:
    return model_of([helper.make_node(op, ["a", "b"], ["y"])], {"a": left, "b": right}, {})


def _pool(draw: Random) -> Drawn:
    while True:
        shape, kernel = [1, draw.choice(CHANNELS), *_picture(draw)], draw.choice((2, 3, 3, 5, 7))
        pad = draw.choice((0, kernel // 2))
        if min(shape[2:]) + 2 * pad >= kernel and math.prod(shape) <= FLOATS:
            break
    op, stride = draw.choice(("MaxPool", "AveragePool")), draw.choice((1, 2, 2, 3))
    name = _text("drawn", op, shape, f"k{kernel} s{stride} p{pad}")
    return name, partial(pool, op, shape, kernel, stride, pad)


def _resize(draw: Random) -> Drawn:
    shape = [1, draw.choice((3, 16, 64, 128)), *[draw.choice((7, 14, 28, 56, 100))] * 2]
    mode, scale = draw.choice(("nearest", "linear", "cubic")), draw.choice((2, 3))
    name = _text("drawn Resize", shape, mode, scale)
    return name, partial(resized, shape, [1, 1, scale, scale], mode=mode)


def _movement(draw: Random) -> Drawn:
    shape = _shape(draw, 2, 4)
    axis = draw.randrange(len(shape))
    op = draw.choice(("Transpose", "Tile", "Pad", "Gather", "Concat", "Slice"))
    if op == "Transpose":
        order = draw.sample(range(len(shape)), len(shape))
        return _text("drawn", op, shape, order), partial(single, op, shape, perm=order)
    if op == "Tile":
        times = [draw.choice((1, 1, 2, 3)) for _ in shape]
        return _text("drawn", op, shape, times), partial(single, op, shape, [whole(*times)])
    if op == "Pad":
        pads = [draw.choice((0, 1, 2, 3)) for _ in range(2 * len(shape))]
        return _text("drawn", op, shape, pads), partial(single, op, shape, [whole(*pads)])
    if op == "Gather":
        places = whole(*(draw.randrange(shape[axis]) for _ in range(draw.choice((4, shape[axis])))))
        name = _text("drawn", op, shape, f"axis {axis}, {len(places)}")
        return name, partial(single, op, shape, [places], axis=axis)
    if op == "Concat":
        other = [draw.choice((1, 3, 16, n)) if a == axis else n for a, n in enumerate(shape)]
        return _text("drawn", op, shape, other, axis), partial(joined, [shape, other], axis)
    begin, step = shape[axis] // 4, draw.choice((1, 2, 3))
    bounds = [whole(begin), whole(shape[axis]), whole(axis), whole(step)]
    return _text("drawn", op, shape, f"axis {axis} by {step}"), partial(single, op, shape, bounds)


# Contractions are drawn more often: there is more that can go wrong.
KINDS = (
    *[_convolution] * 4,
    *[_product] * 3,
    _reduction,
    _normalisation,
    _elementwise,
    _pool,
    _resize,
    *[_movement] * 2,
)
