"""Models of a few nodes, built in place: what `operator_cases.py` is made of."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 21, 10
FLOAT = TensorProto.FLOAT
Shape = Sequence[int]


def single(
    op: str,
    shape: Shape,
    constants: Sequence[np.ndarray | None] = (),
    *,
    result: int = FLOAT,
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node. Its first operand is the model's input; the others are constants, of
    which None is one that is left out."""
    names = [f"c{k}" if c is not None else "" for k, c in enumerate(constants)]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, ["x", *names], results, **attributes)
    return model_of([node], {"x": shape}, dict(zip(names, constants, strict=True)), result)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Shape],
    constants: dict[str, np.ndarray | None],
    result: int = FLOAT,
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, FLOAT, list(n)) for name, n in inputs.items()]
    made = helper.make_tensor_value_info(nodes[-1].output[0], result, None)
    held = [numpy_helper.from_array(c, name) for name, c in constants.items() if c is not None]
    graph = helper.make_graph(nodes, "operator", given, [made], initializer=held)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    inferred = onnx.shape_inference.infer_shapes(model)
    kind = inferred.graph.output[0].type.tensor_type
    if not kind.HasField("shape"):  # a function: the result is as large as the input
        kind.CopyFrom(inferred.graph.input[0].type.tensor_type)
    return inferred


def random(*shape: int, scale: float = 0.1) -> np.ndarray:
    """Seeded weights: the same for the same shape."""
    generator = np.random.default_rng(list(shape))
    return (generator.standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def convolution(
    channels: int,
    filters: int,
    size: Shape,
    kernel: int | Shape,
    *,
    group: int = 1,
    stride: int = 1,
    dilation: int = 1,
    pads: Shape | None = None,
) -> onnx.ModelProto:
    """A convolution with a bias; without `pads` the picture keeps its size at stride 1."""
    rank = len(size)
    window = [kernel] * rank if isinstance(kernel, int) else list(kernel)
    before = [(k - 1) * dilation // 2 for k in window]
    return single(
        "Conv",
        (1, channels, *size),
        [random(filters, channels // group, *window), random(filters)],
        group=group,
        strides=[stride] * rank,
        dilations=[dilation] * rank,
        pads=[*before, *before] if pads is None else list(pads),
    )


def transposed(
    channels: int, filters: int, size: Shape, kernel: int, stride: int, group: int = 1
) -> onnx.ModelProto:
    """A transposed convolution that makes a picture `stride` times as large."""
    rank = len(size)
    pad = (kernel - stride) // 2
    return single(
        "ConvTranspose",
        (1, channels, *size),
        [random(channels, filters // group, *[kernel] * rank), random(filters)],
        group=group,
        strides=[stride] * rank,
        pads=[pad] * (2 * rank),
    )


def product(left: Shape, right: Shape) -> onnx.ModelProto:
    return single("MatMul", left, [random(*right)])


def product_of_inputs(left: Shape, right: Shape) -> onnx.ModelProto:
    """Both operands are inputs, as in attention."""
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    return model_of([node], {"a": left, "b": right}, {})


def reduced(op: str, shape: Shape, axes: Shape, keep: int = 0) -> onnx.ModelProto:
    return single(op, shape, [whole(*axes)], keepdims=keep)


def rms_norm(n: int, d: int) -> onnx.ModelProto:
    """Root mean square normalisation, as exporters write it."""
    make = helper.make_node
    nodes = [
        make("Pow", ["x", "two"], ["p"]),
        make("ReduceMean", ["p", "axes"], ["m"]),
        make("Add", ["m", "e"], ["a"]),
        make("Sqrt", ["a"], ["s"]),
        make("Div", ["x", "s"], ["d"]),
        make("Mul", ["d", "g"], ["y"]),
    ]
    constants = {
        "two": np.array(2, np.float32),
        "axes": whole(-1),
        "e": np.array(1e-6, np.float32),
        "g": random(d, scale=1.0),
    }
    return model_of(nodes, {"x": (1, n, d)}, dict(constants))


def pool(op: str, shape: Shape, kernel: int, stride: int, pad: int, **more: Any) -> onnx.ModelProto:
    rank = len(shape) - 2
    return single(
        op,
        shape,
        kernel_shape=[kernel] * rank,
        strides=[stride] * rank,
        pads=[pad] * (2 * rank),
        **more,
    )


def resized(shape: Shape, scales: Sequence[float], **attributes: Any) -> onnx.ModelProto:
    return single("Resize", shape, [None, np.array(scales, np.float32)], **attributes)


def joined(shapes: Sequence[Shape], axis: int) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(len(shapes))]
    node = helper.make_node("Concat", names, ["y"], axis=axis)
    return model_of([node], dict(zip(names, shapes, strict=True)), {})


def parted(shape: Shape, axis: int, count: int) -> onnx.ModelProto:
    """Split, and the sum of the parts: the parts alone would be views."""
    names = [f"p{k}" for k in range(count)]
    split = helper.make_node("Split", ["x"], names, axis=axis, num_outputs=count)
    return model_of([split, helper.make_node("Sum", names, ["y"])], {"x": shape}, {})


def chosen(shape: Shape) -> onnx.ModelProto:
    """A mask by a comparison, and what it chooses."""
    make = helper.make_node
    nodes = [make("Greater", ["x", "zero"], ["c"]), make("Where", ["c", "x", "low"], ["y"])]
    constants = {"zero": np.array(0, np.float32), "low": np.array(-1e9, np.float32)}
    return model_of(nodes, {"x": shape}, dict(constants))


def recurrent(op: str, steps: int, inputs: int, hidden: int, direction: str) -> onnx.ModelProto:
    """A recurrent layer over a sequence."""
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 1 + (direction == "bidirectional")
    weights = [random(ways, gates * hidden, n) for n in (inputs, hidden)]
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    return single(
        op,
        (steps, 1, inputs),
        [*weights, random(ways, 2 * gates * hidden)],
        hidden_size=hidden,
        direction=direction,
        **more,
    )
