"""Small models that several tests use."""

import onnx
from onnx import TensorProto, helper


def double() -> onnx.ModelProto:
    """y = x + x, of [n, 3] float32."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
