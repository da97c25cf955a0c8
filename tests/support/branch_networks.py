"""Small seeded networks of convolutions, quantised for chips."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright


class Network:
    """A small float network, seeded."""

    def __init__(self, channels: int, side: int = 6) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = (1, channels, side, side)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, before: int, channels: int, size: int = 1) -> str:
        shape = (channels, before, size, size)
        name = f"w{len(self.weights)}"
        array = self.random.normal(size=shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return self.op("Relu", self.op("Conv", x, name, pads=[size // 2] * 4))

    def quantised(self, *outputs: str) -> tuple[onnx.ModelProto, np.ndarray]:
        """The network with scales that are powers of two, and an input."""
        infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        results = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs]
        graph = helper.make_graph(self.nodes, "branches", infos, results, self.weights)
        opset = [helper.make_opsetid("", 17)]
        x = self.random.normal(size=self.shape).astype(np.float32)
        model = helper.make_model(graph, opset_imports=opset, ir_version=9)
        return tilewright.quantize(model, {"x": x}, scheme="pow2").model, x
