"""Quantise an ONNX model to int8: scales are powers of two, one for each tensor.

    python examples/quantise.py MODEL.onnx INPUTS.npz OUTPUT.onnx

INPUTS.npz has an array for each input of the model, by its name (or one array alone); it is what
the model is calibrated with. Convolutions and linear layers get int8 operands and int32 biases, as
pairs of QuantizeLinear and DequantizeLinear around them, with zero points of 0. What is written
runs everywhere; chips whose units take int8 and shift their sums do these layers themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

import tilewright

PRODUCTS = ("Conv", "Gemm", "MatMul")
KEPT = ("Relu", "Clip")  # belong to what comes before them
Arrays = dict[str, np.ndarray]


def main() -> None:
    """Read, calibrate, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    model = onnx.load(options.model)
    with np.load(options.inputs) as held:
        names = [i.name for i in inputs_of(model)]
        arrays = {n: held[n] if n in held else held[held.files[0]] for n in names}
    onnx.save(quantise(model, arrays), options.output)


def quantise(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with int8 convolutions and linear layers, calibrated on these inputs."""
    model = fold_normalizations(model)
    quantised = list(dict.fromkeys(tensors_to_quantise(model)))
    ranges = {n: float(np.abs(a).max()) for n, a in values_of(model, quantised, inputs).items()}
    scales = {name: power_of_two(most) for name, most in ranges.items()}
    return _Writer(model, scales).write()


def power_of_two(most: float) -> float:
    """The least power of two of which 127 come to `most`."""
    return float(2.0 ** np.ceil(np.log2(most / 127))) if most > 0 else 1.0


def inputs_of(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are not weights."""
    weights = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in weights]


# ---------------------------------------------------------------- normalizations


def fold_normalizations(model: onnx.ModelProto) -> onnx.ModelProto:
    """Batch normalizations behind convolutions as their weights and biases."""
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    graph = folded.graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    makers = {name: n for n in graph.node for name in n.output}
    gone = []
    for n in graph.node:
        before = makers.get(n.input[0]) if n.op_type == "BatchNormalization" else None
        if before is None or before.op_type != "Conv":
            continue
        scale, shift, mean, variance = (weights[name] for name in n.input[1:5])
        epsilon = next((a.f for a in n.attribute if a.name == "epsilon"), 1e-5)
        factor = (scale / np.sqrt(variance + epsilon)).astype(np.float32)
        bias = weights[before.input[2]] if len(before.input) > 2 else np.float32(0)
        kernel = weights[before.input[1]]
        names = [f"{before.output[0]}.weight", f"{before.output[0]}.bias"]
        weights[names[0]] = kernel * factor.reshape(-1, *[1] * (kernel.ndim - 1))
        weights[names[1]] = ((bias - mean) * factor + shift).astype(np.float32)
        before.input[1:] = names
        before.output[0] = n.output[0]
        gone.append(n)
    for n in gone:
        graph.node.remove(n)
    used = {name for n in graph.node for name in n.input}
    del graph.initializer[:]
    graph.initializer.extend(
        numpy_helper.from_array(a, name) for name, a in weights.items() if name in used
    )
    return folded


# ---------------------------------------------------------------- calibration


def tensors_to_quantise(model: onnx.ModelProto) -> Iterator[str]:
    """What products and additions read and make, limits behind them included."""
    weights = {t.name for t in model.graph.initializer}
    users: dict[str, list[onnx.NodeProto]] = {}
    for n in model.graph.node:
        for name in n.input:
            users.setdefault(name, []).append(n)
    yield from (i.name for i in inputs_of(model))
    for n in model.graph.node:
        if n.op_type not in (*PRODUCTS, "Add"):
            continue
        yield from (name for name in n.input[:2] if name not in weights and name not in made(model))
        name = n.output[0]
        while len(behind := users.get(name, [])) == 1 and behind[0].op_type in KEPT:
            name = behind[0].output[0]
        yield name
    yield from (
        name
        for n in model.graph.node
        if n.op_type in PRODUCTS
        for name in n.input[:2]
        if makers_of(model).get(name) == "GlobalAveragePool"
    )


def made(model: onnx.ModelProto) -> set[str]:
    """The tensors that nodes make."""
    return {name for n in model.graph.node for name in n.output}


def makers_of(model: onnx.ModelProto) -> dict[str, str]:
    """The operator that makes each tensor; changes of shape are looked through."""
    found: dict[str, str] = {}
    for n in model.graph.node:
        through = n.op_type in ("Flatten", "Reshape", "Squeeze")
        for name in n.output:
            found[name] = found.get(n.input[0], "") if through else n.op_type
    return found


def values_of(model: onnx.ModelProto, names: list[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
    """What these tensors of a model hold, for some inputs."""
    given = {name: a for name, a in inputs.items() if name in names}
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched = shape_inference.infer_shapes(watched)
    del watched.graph.output[:]
    watched.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in names
        if name not in given
    )
    return given | tilewright.compile(watched).run(dict(inputs))


# ---------------------------------------------------------------- writing


class _Writer:
    """The nodes of a model with pairs of QuantizeLinear and DequantizeLinear between them."""

    def __init__(self, model: onnx.ModelProto, scales: Mapping[str, float]) -> None:
        self.model, self.scales = model, scales
        self.weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: Arrays = {}

    def write(self) -> onnx.ModelProto:
        outputs = {o.name for o in self.model.graph.output}
        for i in inputs_of(self.model):
            self._pair(i.name, i.name)
        for n in self.model.graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(n)
            copy.input[:] = self._operands(n)
            self.nodes.append(copy)
            for k, name in enumerate(n.output):
                if name in self.scales:
                    if name in outputs:
                        copy.output[k] = f"{name}.float"
                    self._pair(copy.output[k], name)
        graph = helper.make_graph(
            self.nodes,
            self.model.graph.name,
            inputs_of(self.model),
            self.model.graph.output,
            [numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", max(13, self.model.opset_import[0].version))]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=min(self.model.ir_version, 10)
        )

    def _pair(self, source: str, name: str) -> None:
        """A tensor as int8, and back: `name.back`, or `name` itself where that is another."""
        back = name if source != name else f"{name}.back"
        step = self._constant(f"{name}.scale", np.float32(self.scales[name]))
        zero = self._constant("zero", np.int8(0))
        self._node("QuantizeLinear", [source, step, zero], f"{name}.int8")
        self._node("DequantizeLinear", [f"{name}.int8", step, zero], back)

    def _operands(self, n: onnx.NodeProto) -> list[str]:
        names = [self._value(name) for name in n.input]
        if n.op_type in PRODUCTS and n.input[1] in self.weights:
            names[1] = self._weight(n.input[1])
            if len(n.input) > 2 and n.input[2] in self.weights:
                names[2] = self._bias(n)
        return names

    def _value(self, name: str) -> str:
        if name in self.weights:
            return self._constant(name, self.weights[name])
        own_pair = name in self.scales and name not in {o.name for o in self.model.graph.output}
        return f"{name}.back" if own_pair else name

    def _weight(self, name: str) -> str:
        array = self.weights[name]
        scale = power_of_two(float(np.abs(array).max()))
        self.constants.pop(name, None)
        numbers = np.clip(np.round(array / scale), -127, 127).astype(np.int8)
        return self._dequantised(name, numbers, scale, np.int8(0))

    def _bias(self, n: onnx.NodeProto) -> str:
        step = self.scales.get(n.input[0], self._scale_before(n.input[0]))
        weight = self.weights[n.input[1]]
        scale = step * power_of_two(float(np.abs(weight).max()))
        self.constants.pop(n.input[2], None)
        numbers = np.round(self.weights[n.input[2]] / scale).astype(np.int32)
        return self._dequantised(n.input[2], numbers, scale, np.int32(0))

    def _scale_before(self, name: str) -> float:
        """The scale of a tensor that is moved, or pooled by its greatest elements."""
        makers = {out: n for n in self.model.graph.node for out in n.output}
        while name not in self.scales:
            name = makers[name].input[0]
        return self.scales[name]

    def _dequantised(self, name: str, numbers: np.ndarray, scale: float, zero: np.generic) -> str:
        inputs = [
            self._constant(f"{name}.int", numbers),
            self._constant(f"{name}.scale", np.float32(scale)),
            self._constant(f"zero_{zero.dtype}", zero),
        ]
        if f"{name}.back" not in {out for m in self.nodes for out in m.output}:
            self._node("DequantizeLinear", inputs, f"{name}.back")
        return f"{name}.back"

    def _constant(self, name: str, array: np.ndarray | np.generic) -> str:
        self.constants[name] = np.asarray(array)
        return name

    def _node(self, kind: str, inputs: list[str], output: str) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output))


if __name__ == "__main__":
    main()
