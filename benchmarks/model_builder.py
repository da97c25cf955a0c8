"""A small builder of ONNX models: nodes, constants and seeded weights, in the order written.

Values are named by strings, as ONNX names them. Scalars and shapes become `Constant` nodes and
weights become initializers, which is what the PyTorch exporter writes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8

Size = int | str
"""One dimension: a number, or the name of a symbolic dimension."""


class ModelBuilder:
    """Collects one graph. Weights are drawn from one generator, so they depend on `seed` alone."""

    def __init__(self, name: str, *, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._uses: dict[str, int] = {}

    # ---- the interface of the graph -------------------------------------------------------------

    def input(self, name: str, shape: Sequence[Size], dtype: int = TensorProto.FLOAT) -> str:
        """Declare a graph input; returns its name."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[Size]) -> None:
        """Declare `value` a float32 graph output called `name`."""
        for node in self._nodes:
            node.output[:] = [name if out == value else out for out in node.output]
            node.input[:] = [name if used == value else used for used in node.input]
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def build(self) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, initializer=self._weights
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="tilewright-zoo",
        )

    # ---- nodes ----------------------------------------------------------------------------------

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output; returns the output's name."""
        return self.nodes(op, *inputs, outputs=1, **attributes)[0]

    def nodes(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> tuple[str, ...]:
        """Append a node with `outputs` outputs; returns their names."""
        name = self._fresh(op.lower())
        results = (name,) if outputs == 1 else tuple(f"{name}.{i}" for i in range(outputs))
        self._nodes.append(helper.make_node(op, inputs, results, name=name, **attributes))
        return results

    def constant(self, value: float | Sequence[int] | np.ndarray) -> str:
        """A `Constant` node: a float is float32, a sequence of ints is an int64 vector."""
        if isinstance(value, float):
            value = np.array(value, np.float32)
        array = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def sizes_like(self, value: str, sizes: Sequence[Size]) -> str:
        """An int64 vector for Reshape: numbers as they are, symbols from the same axis of `value`.

        With numbers only it is one constant; otherwise it is the chain of Shape, Gather, Unsqueeze
        and Concat that PyTorch exporters write for `x.view(x.size(0), x.size(1), heads, width)`.
        """
        if all(isinstance(size, int) for size in sizes):
            return self.constant([int(size) for size in sizes])
        parts = []
        for axis, size in enumerate(sizes):
            if isinstance(size, int):
                parts.append(self.constant([size]))
            else:
                parts.append(self.node("Unsqueeze", self.size(value, axis), self.constant([0])))
        return self.node("Concat", *parts, axis=0)

    def size(self, value: str, axis: int) -> str:
        """The extent of one axis of `value`, an int64 scalar read at run time."""
        shape = self.node("Shape", value)
        return self.node("Gather", shape, self.constant(np.array(axis, np.int64)), axis=0)

    # ---- weights --------------------------------------------------------------------------------

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initializer; floats are stored as float32."""
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, name: str, shape: Sequence[int], *, std: float, mean: float = 0.0) -> str:
        """Normally distributed weights."""
        array = self.random.standard_normal(tuple(shape), np.float32)
        array *= np.float32(std)
        array += np.float32(mean)
        return self.weight(name, array)

    def uniform(self, name: str, shape: Sequence[int], *, low: float, high: float) -> str:
        """Uniformly distributed weights."""
        array = self.random.random(tuple(shape), np.float32)
        array *= np.float32(high - low)
        array += np.float32(low)
        return self.weight(name, array)

    def _fresh(self, stem: str) -> str:
        number = self._uses.get(stem, 0)
        self._uses[stem] = number + 1
        return f"{stem}_{number}"
