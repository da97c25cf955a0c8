"""How much a model computes: multiply-accumulates of its convolutions, matrix products and LSTMs.

Direct algorithms are counted: Winograd or FFT convolutions may need less. Everything else
(activations, normalizations, pooling) is left out, as is usual: it is bound by memory, not by
arithmetic.
"""

from collections.abc import Callable
from math import prod

import onnx
from onnx import helper, shape_inference

Shape = tuple[int, ...]


def count_macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of one run. Every dimension must be a number (see `fix_dimensions`)."""
    shapes = value_shapes(model)
    return sum(
        rule(node, shapes)
        for node in model.graph.node
        if (rule := RULES.get(node.op_type)) is not None
    )


def count_weights(model: onnx.ModelProto) -> int:
    """Elements of all initializers."""
    return sum(prod(tensor.dims) for tensor in model.graph.initializer)


def value_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """The shape of every value that onnx's shape inference knows in numbers."""
    graph = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def fix_dimensions(model: onnx.ModelProto, **dims: int) -> onnx.ModelProto:
    """A copy with each symbolic input dimension `name` set to `dims[name]`."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    return fixed


def _convolution(node: onnx.NodeProto, shapes: dict[str, Shape]) -> int:
    _, inputs, *window = shapes[node.input[1]]  # [outputs, inputs / groups, *window]
    return prod(shapes[node.output[0]]) * inputs * prod(window)


def _matrix_product(node: onnx.NodeProto, shapes: dict[str, Shape]) -> int:
    return prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]


def _gemm(node: onnx.NodeProto, shapes: dict[str, Shape]) -> int:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return (
        prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if attributes.get("transA") else 1]
    )


def _lstm(node: onnx.NodeProto, shapes: dict[str, Shape]) -> int:
    steps, batch, inputs = shapes[node.input[0]]
    directions, gates, hidden = shapes[node.input[2]]
    return steps * batch * directions * gates * (inputs + hidden)


RULES: dict[str, Callable[[onnx.NodeProto, dict[str, Shape]], int]] = {
    "Conv": _convolution,
    "MatMul": _matrix_product,
    "Gemm": _gemm,
    "LSTM": _lstm,
}
