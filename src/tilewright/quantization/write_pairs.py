"""A network with pairs of QuantizeLinear and DequantizeLinear: the model that is quantised, and the
one that finds out what each layer alone loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from onnx import NodeProto, helper

from tilewright.quantization.layers import Kind, Layer, Plan
from tilewright.quantization.network import Names, Network, Taken, copy_of, set_attribute
from tilewright.quantization.prepare import bias_of, channel_axis, vector
from tilewright.quantization.scales import Scale, Scheme, Weights, quantise_weights

Rename = Callable[[str], str]


@dataclass(frozen=True)
class Quantisation:
    """All that was decided: the scales of values, but of sums that stay wide, and the biases of
    products (None where one is computed, or has more than a number for each channel), by the name
    of the node."""

    network: Network
    plan: Plan
    scheme: Scheme
    scales: Mapping[str, Scale]
    biases: Mapping[str, np.ndarray | None]
    known: dict[str, Weights] = field(default_factory=dict, compare=False)  # what was computed

    def with_biases(self, biases: Mapping[str, np.ndarray | None]) -> Quantisation:
        """The same with other biases, on which steps of weights depend."""
        return replace(self, biases=biases, known={})

    def data_step(self, layer: Layer) -> float:
        """The step of what a layer's weight is multiplied by."""
        return self.scales[layer.operands[0]].step

    def weights(self, layer: Layer) -> Weights:
        """A layer's constant in integers."""
        name = layer.node.name
        if name not in self.known:
            self.known[name] = self._weights(layer)
        return self.known[name]

    def _weights(self, layer: Layer) -> Weights:
        assert layer.weight is not None
        array = self.network.constants[layer.weight]
        is_weight = layer.kind is Kind.PRODUCT and layer.node.input[1] == layer.weight
        if not is_weight:
            return quantise_weights(array, None, self.scheme)
        bias = self.biases.get(layer.node.name)
        in_steps = None if bias is None else np.abs(bias) / self.data_step(layer)
        return quantise_weights(array, channel_axis(layer.node, array.ndim), self.scheme, in_steps)


def first_biases(network: Network, plan: Plan) -> dict[str, np.ndarray | None]:
    """The biases as the float model has them."""
    return {x.node.name: _bias(network, x) for x in plan.layers if x.kind is Kind.PRODUCT}


def _bias(network: Network, layer: Layer) -> np.ndarray | None:
    n = layer.node
    if layer.weight is None or n.input[1] != layer.weight:
        return None
    if n.op_type != "MatMul":
        return bias_of(network, n)
    if layer.bias is None:
        return None
    count = network.constants[layer.weight].shape[-1]
    return vector(network.constants[layer.bias], count, -1)


@dataclass(frozen=True)
class Written:
    """The quantised model, and what values are called in it that come from pairs."""

    network: Network
    back: Mapping[str, str]


def write_model(q: Quantisation) -> Written:
    """The quantised model."""
    writer = _Writer(q)
    return Written(writer.model(), writer.back)


@dataclass(frozen=True)
class Trial:
    """Values of the network of trials that belong to a layer: what it makes in floats and what it
    makes of operands and constants that are quantised, at its sums (products only) and at its
    result, there with the result quantised as well."""

    layer: Layer
    sums: tuple[str, str] | None
    results: tuple[tuple[str, str], ...]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return self.results if self.sums is None else (*self.results, self.sums)


def write_trials(q: Quantisation) -> tuple[Network, list[Trial]]:
    """The float model with every layer beside it once more, quantised, on the floats' operands."""
    writer = _Writer(q)
    return writer.trials()


class _Writer:
    def __init__(self, q: Quantisation) -> None:
        self.q = q
        self.names = Names(q.network)
        self.nodes_taken = Taken(n.name for n in q.network.nodes)
        self.nodes: list[NodeProto] = []
        self.constants = dict(q.network.constants)
        self.made = q.plan.made
        self.back: dict[str, str] = {}  # values as they come from their pairs
        self.known: dict[object, str] = {}  # constants that were written, by what they are

    # ---------------------------------------------------------- the whole

    def model(self) -> Network:
        q, outputs = self.q, set(self.q.network.outputs)
        layers = {id(n): x for x in q.plan.layers for n in x.nodes}
        for name in q.network.inputs:
            self._pair_if_wanted(name)
        for n in q.network.nodes:
            layer = layers.get(id(n))
            if layer is None:
                self._float(n)
            elif n is layer.node:  # the tail comes with it
                renamed = {r: self.names.fresh(f"{r}.float") for r in layer.results if r in outputs}
                self._layer(layer, partial(_renamed, renamed))
                for r in layer.results:
                    self._pair(renamed.get(r, r), r, keeps_name=r in renamed)
        return self._network()

    def _float(self, n: NodeProto) -> None:
        """A node that stays; it reads floats as quantised layers leave them."""
        copy = copy_of(n)
        copy.input[:] = [self.back[i] if i in self.made else i for i in n.input]
        self.nodes.append(copy)
        for name in n.output:
            self._pair_if_wanted(name)

    def _pair_if_wanted(self, name: str) -> None:
        if name in self.q.scales and name not in self.made:
            self._pair(name, name)

    def trials(self) -> tuple[Network, list[Trial]]:
        q = self.q
        layers = {id(x.nodes[-1]): x for x in q.plan.layers}
        found = []
        for name in q.network.inputs:
            self._pair_if_wanted(name)
        for n in q.network.nodes:
            self.nodes.append(copy_of(n))
            for name in n.output:
                self._pair_if_wanted(name)
            if id(n) in layers:
                found.append(self._trial(layers[id(n)]))
                for r in layers[id(n)].results:
                    self._pair(r, r)
        return self._network(), found

    def _trial(self, layer: Layer) -> Trial:
        alone = {o: self.names.fresh(f"{o}.alone") for n in layer.nodes for o in n.output if o}
        self._layer(layer, partial(_renamed, alone), ".alone")
        results = tuple((r, self._pair(alone[r], r, names=f"{r}.alone")) for r in layer.results)
        sums = (layer.sums, alone[layer.sums]) if layer.kind is Kind.PRODUCT else None
        return Trial(layer, sums, results)

    def _network(self) -> Network:
        made = replace(self.q.network, nodes=self.nodes, constants=self.constants)
        made.drop_unread()
        return made

    # ---------------------------------------------------------- pairs

    def _pair(self, source: str, name: str, *, keeps_name: bool = False, names: str = "") -> str:
        """A value as integers, and back. The scale is that of `name`; what comes back is called so
        with `keeps_name`, and is read in its place unless the pair has other `names`. Sums that
        stay wide have no scale, and are left as they are."""
        names = names or name
        if name not in self.q.scales:
            if names == name:
                self.back[name] = source
            return source
        scale = self.q.scales[name]
        step = self._scalar(np.float32(scale.step), f"{name}.scale")
        zero = self._scalar(scale.zero, "zero" if scale.zero == 0 else f"{name}.zero")
        whole = self.names.fresh(f"{names}.{scale.zero.dtype}")
        back = name if keeps_name else self.names.fresh(f"{names}.back")
        self._node("QuantizeLinear", [source, step, zero], whole)
        self._node("DequantizeLinear", [whole, step, zero], back, name=f"{names}.back")
        if names == name:
            self.back[name] = back
        return back

    def _scalar(self, number: np.generic, name: str) -> str:
        return self._constant((number.dtype.str, number.item()), np.asarray(number), name)

    def _constant(self, key: object, array: np.ndarray, name: str) -> str:
        if key not in self.known:
            self.known[key] = self.names.fresh(name)
            self.constants[self.known[key]] = array
        return self.known[key]

    def _node(
        self, kind: str, inputs: list[str], output: str, axis: int | None = None, name: str = ""
    ) -> None:
        name = self.nodes_taken.fresh(name or output)
        made = helper.make_node(kind, inputs, [output], name=name)
        if axis is not None:
            set_attribute(made, "axis", axis)
        self.nodes.append(made)

    # ---------------------------------------------------------- layers

    def _layer(self, layer: Layer, rename: Rename, suffix: str = "") -> None:
        """A layer's nodes, on operands from pairs, with results that have no pair yet."""
        inside = {o for n in layer.nodes for o in n.output}
        for n in layer.nodes:
            copy = copy_of(n)
            copy.name = self.nodes_taken.fresh(f"{n.name}{suffix}") if suffix else n.name
            copy.input[:] = [
                rename(i) if i in inside else self.back[i] if i in layer.operands else i
                for i in n.input
            ]
            copy.output[:] = [rename(o) if o else o for o in n.output]
            if n is layer.node and layer.weight is not None:
                self._weight(layer, copy)
            elif n.op_type == "Add" and layer.has_own_addition:
                bias = self.q.biases[layer.node.name]
                assert bias is not None, "an addition that is a layer's own has a number a channel"
                made = self._bias(layer, bias, self.q.weights(layer))
                copy.input[:] = [made if i == layer.bias else i for i in copy.input]
            if n.op_type == "Clip" and self.q.scheme.shifts:
                self._limits(layer, copy)
            self.nodes.append(copy)

    def _weight(self, layer: Layer, copy: NodeProto) -> None:
        """The weight and the bias as integers, behind which they are floats again."""
        assert layer.weight is not None
        weights = self.q.weights(layer)
        made = self._dequantised(layer.weight, weights.numbers, weights)
        copy.input[:] = [made if i == layer.weight else i for i in copy.input]
        if layer.kind is not Kind.PRODUCT or layer.node.op_type == "MatMul":
            return
        bias = self.q.biases.get(layer.node.name)
        if bias is not None and (layer.bias is not None or bias.any()):
            copy.input[:] = [*copy.input[:2], self._bias(layer, bias, weights)]

    def _bias(self, layer: Layer, bias: np.ndarray, weights: Weights) -> str:
        """In steps of data and weight together, of which there is one for each output channel."""
        step = np.float32(self.q.data_step(layer)) * weights.step
        if step.ndim:
            step = np.tile(step, len(bias) // len(step))
        numbers = np.clip(np.round(bias.astype(np.float64) / step), -(2**31), 2**31 - 1)
        name = layer.bias or f"{layer.node.output[0]}.bias"
        made = Weights(numbers.astype(np.int32), step.astype(np.float32), 0)
        return self._dequantised(name, made.numbers, made)

    def _dequantised(self, name: str, numbers: np.ndarray, weights: Weights) -> str:
        """A constant of integers, as floats."""
        step = weights.step
        key = (name, numbers.dtype.str, weights.axis, step.tobytes(), numbers.tobytes())
        if key in self.known:
            return self.known[key]
        whole = self.names.fresh(f"{name}.int")
        scale = self.names.fresh(f"{name}.scale")
        self.constants |= {whole: numbers, scale: step}
        inputs = [whole, scale]
        if numbers.dtype == np.int8:
            zeros = np.zeros(step.shape, np.int8)
            inputs.append(self._constant(("zeros", zeros.shape), zeros, "zeros"))
        back = self.names.fresh(f"{name}.back")
        self._node("DequantizeLinear", inputs, back, weights.axis if step.ndim else None)
        self.known[key] = back
        return back

    def _limits(self, layer: Layer, copy: NodeProto) -> None:
        """Limits as the integers of the result know them: what is rounded afterwards is the same,
        and the limits lie on the grid of the result's steps."""
        scale = self.q.scales[layer.results[0]]
        for k, name in enumerate(copy.input[1:], 1):
            if not name:
                continue
            limit = float(self.q.network.constants[name].reshape(()))
            whole = np.clip(np.round(limit / scale.step), scale.low / scale.step, 127)
            number = np.float32(whole * scale.step)
            copy.input[k] = self._scalar(number, f"{name}.limit")


def _renamed(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)
