"""Small models that several tests use."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def double() -> onnx.ModelProto:
    """y = x + x, of [n, 3] float32."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def residual_model(
    exponents, *, both=False, relu=True, kept=False, shape=(4, 5, 5)
) -> onnx.ModelProto:
    """conv(x) + x, or + conv(x) with `both`, all rounded to int8; scales 2**exponents of x, the
    branches and the result. With `kept` a branch is a result, too."""
    nodes, constants = [], [numpy_helper.from_array(np.int8(0), "z")]
    for name, e in zip("xabs", exponents, strict=True):
        constants.append(numpy_helper.from_array(np.float32(2.0**e), f"{name}_scale"))
    rng = np.random.default_rng(0)
    for k in range(2):
        weights = rng.integers(-12, 13, (shape[0], shape[0], 3, 3)) / 64
        constants.append(numpy_helper.from_array(weights.astype(np.float32), f"w{k}"))

    def rounded(value, scale, name):
        nodes.append(
            helper.make_node("QuantizeLinear", [value, f"{scale}_scale", "z"], [f"{name}_q"])
        )
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{name}_q", f"{scale}_scale", "z"], [name])
        )

    nodes.append(helper.make_node("DequantizeLinear", ["input", "x_scale", "z"], ["x"]))
    nodes.append(helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4))
    rounded("c0", "a", "first")
    if both:
        nodes.append(helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4))
        rounded("c1", "b", "second")
    nodes.append(helper.make_node("Add", ["first", "second" if both else "x"], ["sum"]))
    nodes += [helper.make_node("Relu", ["sum"], ["limited"])] if relu else []
    rounded("limited" if relu else "sum", "s", "y")
    outputs = ["y", *(["first_q"] if kept else [])]
    kinds = {"y": TensorProto.FLOAT, "first_q": TensorProto.INT8}
    graph = helper.make_graph(
        nodes, "model",
        [helper.make_tensor_value_info("input", TensorProto.INT8, (1, *shape))],
        [helper.make_tensor_value_info(name, kinds[name], None) for name in outputs],
        constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
