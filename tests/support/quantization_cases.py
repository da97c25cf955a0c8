"""Small float networks of every shape that the quantiser has to cope with, and their samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import model, node

SAMPLES = 6


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).normal(size=shape) * scale).astype(np.float32)


def image(*shape: int) -> dict[str, np.ndarray]:
    return {"x": random(SAMPLES, *shape, seed=7)}


Case = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def chain() -> Case:
    """Conv, BatchNormalization, Relu, MaxPool, Conv, Clip, GlobalAveragePool, Flatten, Gemm."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "v", "b"], ["d"], pads=[1] * 4),
        node("Clip", ["d", "low", "high"], ["e"]),
        node("GlobalAveragePool", ["e"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "u", "a"], ["y"], transB=1),
    ]
    constants = {
        "w": random(8, 3, 3, 3, scale=0.3),
        "scale": np.abs(random(8)) + 0.5,
        "shift": random(8, seed=1),
        "mean": random(8, seed=2),
        "variance": np.abs(random(8, seed=3)) + 0.5,
        "v": random(16, 8, 3, 3, scale=0.2),
        "b": random(16),
        "low": np.float32(0.0),
        "high": np.float32(1.3),
        "u": random(5, 16),
        "a": random(5, scale=0.1),
    }
    return model(nodes, {"x": ("n", 3, 8, 8)}, constants=constants), image(3, 8, 8)


def residual() -> Case:
    """An input with several readers, and a sum with a limit behind it."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        node("Add", ["c", "x"], ["s"]),
        node("Relu", ["s"], ["r"]),
        node("Conv", ["r", "w"], ["d"], pads=[1] * 4),
        node("Sub", ["d", "r"], ["y"]),
    ]
    weights = {"w": random(4, 4, 3, 3, scale=0.2)}
    return model(nodes, {"x": ("n", 4, 6, 6)}, constants=weights), image(4, 6, 6)


def squeeze_excitation() -> Case:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Sigmoid", ["c"], ["t"]),
        node("Mul", ["c", "t"], ["m"]),
        node("ReduceMean", ["m", "axes"], ["g"], keepdims=1),
        node("Conv", ["g", "v", "b"], ["h"]),
        node("HardSigmoid", ["h"], ["i"]),
        node("Mul", ["m", "i"], ["y"]),
    ]
    constants = {"w": random(8, 4, 1, 1), "v": random(8, 8, 1, 1), "b": random(8)}
    constants["axes"] = np.array([2, 3])
    return model(nodes, {"x": ("n", 4, 5, 5)}, constants=constants), image(4, 5, 5)


def concatenation() -> Case:
    """Of what is alike, and of what is much smaller."""
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Conv", ["x", "v"], ["b"]),
        node("Conv", ["x", "u"], ["c"]),
        node("Concat", ["a", "b", "c"], ["d"], axis=1),
        node("AveragePool", ["d"], ["e"], kernel_shape=[2, 2]),
        node("Conv", ["e", "t"], ["y"]),
    ]
    constants = {"w": random(4, 4, 1, 1), "v": random(4, 4, 1, 1, seed=1)}
    constants |= {"u": random(4, 4, 1, 1, scale=0.01), "t": random(3, 12, 1, 1)}
    return model(nodes, {"x": ("n", 4, 5, 5)}, constants=constants), image(4, 5, 5)


def of_one_dimension() -> Case:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], strides=[2], group=2),
        node("LeakyRelu", ["c"], ["r"], alpha=0.1),
        node("Conv", ["r", "v"], ["d"]),
        node("Transpose", ["d"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["t", "u"], ["y"]),
    ]
    constants = {"w": random(8, 2, 3), "b": random(8), "v": random(6, 8, 2), "u": random(6, 5)}
    return model(nodes, {"x": ("n", 4, 17)}, constants=constants), image(4, 17)


def transposed() -> Case:
    """Groups share scales for channels."""
    nodes = [
        node("ConvTranspose", ["x", "w", "b"], ["c"], strides=[2, 2], group=2),
        node("Relu", ["c"], ["r"]),
        node("ConvTranspose", ["r", "v"], ["y"]),
    ]
    constants = {"w": random(4, 3, 2, 2), "b": random(6), "v": random(6, 3, 3, 3, scale=0.2)}
    return model(nodes, {"x": ("n", 4, 4, 4)}, constants=constants), image(4, 4, 4)


def attention() -> Case:
    """Products of computed matrices, a mask that would leave nothing of what it is added to."""
    nodes = [
        node("MatMul", ["x", "q"], ["a"]),
        node("Add", ["a", "b"], ["ab"]),
        node("MatMul", ["x", "k"], ["c"]),
        node("Transpose", ["c"], ["ct"], perm=[0, 2, 1]),
        node("MatMul", ["ab", "ct"], ["s"]),
        node("Mul", ["s", "eighth"], ["m"]),
        node("Add", ["m", "mask"], ["n"]),
        node("Softmax", ["n"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["o"]),
        node("Add", ["o", "x"], ["z"]),
        node("LayerNormalization", ["z", "one", "zero"], ["l"], axis=-1),
        node("MatMul", ["l", "v"], ["y"]),
    ]
    constants = {"q": random(8, 8), "b": random(8), "k": random(8, 8, seed=1), "v": random(8, 3)}
    constants |= {"one": np.ones(8, np.float32), "zero": random(8, scale=0.1)}
    constants |= {"eighth": np.float32(0.125), "mask": np.triu(np.full((5, 5), -1e9, "f4"), 1)}
    return model(nodes, {"x": ("n", 5, 8)}, constants=constants), image(5, 8)


def with_subgraph() -> Case:
    """An If whose branches read values that are quantised outside."""
    then, otherwise = (
        helper.make_graph(
            [node(kind, ["c", "r"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name, kind in (("then", "Add"), ("otherwise", "Sub"))
    )
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("If", ["flag"], ["i"], then_branch=then, else_branch=otherwise),
        node("Conv", ["i", "v"], ["y"]),
    ]
    constants = {"w": random(4, 3, 1, 1), "v": random(2, 4, 1, 1), "flag": np.array(True)}
    return model(nodes, {"x": ("n", 3, 4, 4)}, constants=constants), image(3, 4, 4)


def old() -> Case:
    """Of a format in which weights are inputs, and an opset without scales for channels; weights
    through a Transpose, a Gemm with factors, and a result that is read and given out."""
    nodes = [
        node("Transpose", ["wt"], ["w"], perm=[1, 0]),
        node("Gemm", ["x", "w", "b"], ["h"], alpha=0.5, beta=2.0),
        node("Relu", ["h"], ["z"]),
        node("Dropout", ["z"], ["d"]),
        node("Gemm", ["d", "v", "c"], ["y"]),
    ]
    constants = {"wt": random(7, 6), "b": random(7), "v": random(7, 3), "c": random(1, 3)}
    found = model(nodes, {"x": ("n", 6)}, ["y", "z"], constants=constants, opset=9)
    found.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape)
        for name, a in constants.items()
    )
    for o, size in zip(found.graph.output, (3, 7), strict=True):
        o.CopyFrom(helper.make_tensor_value_info(o.name, TensorProto.FLOAT, ["n", size]))
    found.ir_version = 3
    return found, image(6)


def with_function() -> Case:
    """Layers within a function of the model's own, by Constant nodes; the input is given out."""
    body = helper.make_function(
        "own", "Layer", ["a"], ["o"],
        [
            node("Constant", [], ["w"], value=helper.make_tensor(
                "w", TensorProto.FLOAT, [4, 4], random(4, 4).ravel())),
            node("MatMul", ["a", "w"], ["m"]),
            node("Relu", ["m"], ["o"]),
        ],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    nodes = [
        node("Layer", ["x"], ["h"], domain="own"),
        node("Layer", ["h"], ["y"], domain="own"),
        node("Identity", ["x"], ["z"]),
    ]
    made = model(nodes, {"x": ("n", 4)}, ["y", "z"], functions=[body], domains={"own": 1})
    return made, image(4)


def moves() -> Case:
    """What moves elements keeps the scale, however many results it has."""
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Split", ["c"], ["a", "b"], axis=1, num_outputs=2),
        node("Pad", ["a", "pads"], ["p"]),
        node("Slice", ["b", "starts", "ends", "axes"], ["s"]),
        node("Resize", ["s", "", "", "sizes"], ["r"], mode="nearest"),
        node("Conv", ["p", "v"], ["d"]),
        node("Conv", ["r", "v"], ["e"]),
        node("Add", ["d", "e"], ["y"]),
    ]
    constants = {
        "w": random(8, 3, 1, 1),
        "v": random(2, 4, 3, 3),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "starts": np.array([1]),
        "ends": np.array([5]),
        "axes": np.array([2]),
        "sizes": np.array([SAMPLES, 4, 8, 8]),
    }
    return model(nodes, {"x": (SAMPLES, 3, 6, 6)}, constants=constants), image(3, 6, 6)


def dead_channels() -> Case:
    """Channels of zeros with a large bias, and a value that is always 0."""
    weight, bias = random(4, 3, 1, 1), random(4)
    weight[1], bias[1] = 0, 100
    weight[2] *= 1e-12
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Conv", ["c", "zeros"], ["o"]),
        node("Conv", ["o", "w4", "b"], ["y"]),
    ]
    constants = {"w": weight, "b": bias, "zeros": np.zeros((4, 4, 1, 1), np.float32)}
    constants["w4"] = random(4, 4, 1, 1)
    return model(nodes, {"x": ("n", 3, 4, 4)}, constants=constants), image(3, 4, 4)


CASES: dict[str, Callable[[], Case]] = {
    f.__name__: f
    for f in (chain, residual, squeeze_excitation, concatenation, of_one_dimension, transposed)
} | {f.__name__: f for f in (attention, with_subgraph, old, with_function, moves, dead_channels)}
