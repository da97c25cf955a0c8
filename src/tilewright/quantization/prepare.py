"""A float model in the form that is quantised: no local functions, constants as arrays, nodes of
constants alone computed, and normalizations and additions of constants within convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from onnx import NodeProto, inliner, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from tilewright.base.errors import ModelError
from tilewright.frontends.onnx.load import LoadedModel
from tilewright.frontends.onnx.tensor import Files, to_array
from tilewright.quantization.network import (
    FLOAT,
    Names,
    Network,
    Taken,
    attribute,
    float_attribute,
    int_attribute,
    set_attribute,
)

OLDEST = 13  # the opset from which QuantizeLinear knows channels
OLDEST_IR = 4  # the version of the format from which weights need not be inputs
QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
# Computed while quantising where all operands are constants: what stands between a weight as it is
# stored and as it is multiplied.
COMPUTED = frozenset(
    {"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Cast", "Mul", "Add"}
    | {"Sub", "Div", "Sqrt", "Reciprocal", "Neg", "Slice", "Concat"}
)
CONSTANTS = {"f4": ("value_float", "value_floats"), "i8": ("value_int", "value_ints")}
LARGEST_COMPUTED = 1 << 26  # elements
LARGEST_INFERRED = 1 << 12  # of constants whose contents shape inference may want to see


def prepare(loaded: LoadedModel) -> Network:
    """The model as a Network; ModelError where it cannot be quantised at all."""
    model = _of_known_opset(_without_functions(_copy(loaded)))
    _refuse_quantised(model)
    network = _network(model)
    _compute_constants(network)
    _write_sums(network)
    _scale_products(network)
    _fold(network)
    network.drop_unread()
    network.kinds = _kinds(network)
    _name_nodes(network)
    return network


# ---------------------------------------------------------------- reading


def _copy(loaded: LoadedModel) -> onnx.ModelProto:
    """The model with all weights in it, wherever they lie."""
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            array = to_array(tensor, loaded.files, f"initializer {tensor.name!r}")
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, order="C"), tensor.name))
    return model


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    if not model.functions:
        return model
    inlined: onnx.ModelProto = inliner.inline_local_functions(model)
    return inlined


def _of_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version == 0:
        raise ModelError("the model uses no operators of ONNX: there is nothing to quantise")
    if version < OLDEST:
        try:
            model = version_converter.convert_version(model, OLDEST)
        except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(
                f"the model is of opset {version}, and cannot be converted to {OLDEST}, the first"
                f" with scales for channels: {str(error).splitlines()[0]}",
                hint=f"export it again with opset {OLDEST} or later",
            ) from None
    model.ir_version = max(model.ir_version, OLDEST_IR)
    return model


def _refuse_quantised(model: onnx.ModelProto) -> None:
    for n in model.graph.node:
        if n.op_type in QUANTISED or n.op_type.startswith("QLinear") or "Integer" in n.op_type:
            raise ModelError(
                f"the model is quantised already: node {n.name or n.output[0]!r} is a {n.op_type}",
                hint="give the float model that it was made from",
            )


def _network(model: onnx.ModelProto) -> Network:
    graph = model.graph
    constants = {t.name: to_array(t, Files(), f"initializer {t.name!r}") for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    nodes = list(graph.node)
    header = onnx.ModelProto()
    header.CopyFrom(model)
    for field in ("node", "initializer", "input", "value_info"):
        header.graph.ClearField(field)
    header.graph.input.extend(inputs)
    return Network(header, nodes, constants)


def _kinds(network: Network) -> dict[str, int]:
    """Element types of all values that shape inference knows them of; outputs get the types
    that the model does not say."""
    large = {name: a for name, a in network.constants.items() if a.size > LARGEST_INFERRED}
    small = {name: a for name, a in network.constants.items() if name not in large}
    model = replace(network, constants=small).proto()
    for name, array in large.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (RuntimeError, ValueError):
        graph = network.header.graph
    for given, found in zip(network.header.graph.output, graph.output, strict=True):
        if not given.type.tensor_type.HasField("shape") and found.HasField("type"):
            given.CopyFrom(found)
    infos = (*graph.input, *graph.output, *graph.value_info)
    kinds = {i.name: i.type.tensor_type.elem_type for i in infos if i.type.HasField("tensor_type")}
    of_floats = {name for name, a in network.constants.items() if a.dtype == np.float32}
    return kinds | dict.fromkeys(of_floats, FLOAT)


def _name_nodes(network: Network) -> None:
    """Gives every node a name of its own, by which reports and options know it."""
    taken = Taken(n.name for n in network.nodes)
    seen: set[str] = set()
    for n in network.nodes:
        if not n.name or n.name in seen:
            n.name = taken.fresh(n.name or next((o for o in n.output if o), n.op_type))
        seen.add(n.name)


# ---------------------------------------------------------------- constants


def _compute_constants(network: Network) -> None:
    """Computes the nodes whose operands are all constants."""
    known, left = network.constants, []
    for n in network.nodes:
        value = _constant_of(n) if n.op_type == "Constant" else _computed(n, network)
        if value is None or n.output[0] in network.outputs:
            left.append(n)
        else:
            known[n.output[0]] = value
    network.nodes = left


def _constant_of(node: NodeProto) -> np.ndarray | None:
    (given, *_) = node.attribute or (None,)
    if given is None:
        return None
    if given.name == "value":
        return to_array(given.t, Files(), f"constant {node.output[0]!r}")
    for kind, names in CONSTANTS.items():
        if given.name in names:
            return np.asarray(onnx.helper.get_attribute_value(given), kind)
    return None


def _computed(node: NodeProto, network: Network) -> np.ndarray | None:
    known = network.constants
    if node.op_type not in COMPUTED or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return None
    names = [name for name in node.input if name]
    if not names or not all(name in known for name in names):
        return None
    if sum(known[name].size for name in names) > LARGEST_COMPUTED:
        return None
    alone = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node],
            "constant",
            [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names)],
            [onnx.helper.make_empty_tensor_value_info(node.output[0])],
        ),
        opset_imports=network.header.opset_import,
    )
    try:
        (value,) = ReferenceEvaluator(alone).run(None, {name: known[name] for name in names})
    except Exception:  # noqa: BLE001 (a third party's evaluator; the node stays, and is imported)
        return None
    return np.asarray(value)


# ---------------------------------------------------------------- folding


def _write_sums(network: Network) -> None:
    """A Sum of two operands is an addition."""
    for n in network.nodes:
        if n.op_type == "Sum" and len(n.input) == 2:
            n.op_type = "Add"


def _scale_products(network: Network) -> None:
    """Gemm's factors become part of its constants."""
    names = Names(network)
    for n in network.nodes:
        if n.op_type != "Gemm":
            continue
        for key, index in (("alpha", 1), ("beta", 2)):
            factor = np.float32(float_attribute(n, key, 1.0))
            if factor == 1 or len(n.input) <= index or n.input[index] not in network.constants:
                continue
            name = names.fresh(f"{n.input[index]}.{key}")
            network.constants[name] = network.constants[n.input[index]] * factor
            n.input[index] = name
            set_attribute(n, key, 1.0)


Fold = Callable[[Network, NodeProto, NodeProto, Names], bool]


def _fold(network: Network) -> None:
    """Merges what follows convolutions and linear layers into their weights and biases."""
    names = Names(network)
    outputs = set(network.outputs)
    makers, readers = network.makers(), network.readers()
    left: list[NodeProto] = []
    for n in network.nodes:
        before = next((makers[i] for i in n.input[:2] if i in makers), None)
        fold = _FOLDS.get(n.op_type)
        is_alone = (
            fold is not None
            and before is not None
            and before.op_type in ("Conv", "ConvTranspose", "Gemm")
            and len(before.output) == len([o for o in n.output if o]) == 1
            and before.output[0] not in outputs
            and len(readers[before.output[0]]) == 1
            and before.input[1] in network.constants
        )
        if is_alone and fold is not None and before is not None and fold(network, before, n, names):
            before.output[0] = n.output[0]
            makers[n.output[0]] = before
        else:
            left.append(n)
    network.nodes = left


def channel_axis(product: NodeProto, rank: int) -> int:
    """Which axis of a weight its output channels are on."""
    if product.op_type == "Conv":
        return 0
    if product.op_type == "ConvTranspose":
        return 1
    if product.op_type == "Gemm":
        return 0 if attribute(product, "transB", 0) else 1
    return rank - 1


def channels(product: NodeProto, weight: np.ndarray) -> int:
    """How many output channels a product has."""
    axis = channel_axis(product, weight.ndim)
    groups = int_attribute(product, "group", 1) if product.op_type == "ConvTranspose" else 1
    return int(weight.shape[axis]) * groups


def bias_of(network: Network, product: NodeProto) -> np.ndarray | None:
    """A product's bias, a number for each channel, 0 if it has none; None if it is computed."""
    count = channels(product, network.constants[product.input[1]])
    if len(product.input) < 3 or not product.input[2]:
        return np.zeros(count, np.float32)
    bias = network.constants.get(product.input[2])
    if bias is None or bias.dtype != np.float32:
        return None
    return vector(bias, count, -1)


def vector(array: np.ndarray, count: int, axis: int) -> np.ndarray | None:
    """What broadcasts to an operand with `count` channels on this axis, counted from behind, as a
    number for each of them; None if it is more than that."""
    if array.size == 1:
        return np.full(count, array.reshape(()))
    if array.size != count or array.ndim < -axis or array.shape[axis] != count:
        return None
    return array.reshape(count)


def set_bias(network: Network, product: NodeProto, bias: np.ndarray, name: str) -> None:
    network.constants[name] = bias.astype(np.float32)
    product.input[:] = [*product.input[:2], name]


def _fold_normalization(
    network: Network, product: NodeProto, node: NodeProto, names: Names
) -> bool:
    """Conv, then BatchNormalization."""
    known = network.constants
    if attribute(node, "training_mode", 0) or not all(i in known for i in node.input[1:5]):
        return False
    bias = bias_of(network, product)
    weight = known[product.input[1]]
    if bias is None or weight.dtype != np.float32 or node.input[0] != product.output[0]:
        return False
    scale, shift, mean, variance = (known[i].astype(np.float64) for i in node.input[1:5])
    epsilon = float_attribute(node, "epsilon", 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    if factor.shape != bias.shape:
        return False
    weight = weight * _along(product, weight, factor)
    name = names.fresh(f"{product.output[0]}.weight")
    known[name] = weight.astype(np.float32)
    product.input[1] = name
    set_bias(network, product, (bias - mean) * factor + shift, names.fresh(f"{name}.bias"))
    return True


def _along(product: NodeProto, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """A number for each output channel, in a shape that broadcasts to the weight."""
    axis = channel_axis(product, weight.ndim)
    if product.op_type == "ConvTranspose":  # [inputs, outputs of a group, …]
        per_group = weight.shape[1]
        groups = len(factor) // per_group
        spread = np.repeat(factor.reshape(groups, per_group), weight.shape[0] // groups, axis=0)
        return spread.reshape(*spread.shape, *[1] * (weight.ndim - 2))
    return factor.reshape([-1 if a == axis else 1 for a in range(weight.ndim)])


def _fold_addition(network: Network, product: NodeProto, node: NodeProto, names: Names) -> bool:
    """Conv, then Add of a number for each channel."""
    (other,) = [i for i in node.input if i != product.output[0]] or [""]
    bias, added = bias_of(network, product), network.constants.get(other)
    if bias is None or added is None or added.dtype != np.float32:
        return False
    weight = network.constants[product.input[1]]
    axis = -1 if product.op_type == "Gemm" else 1 - weight.ndim
    more = vector(added, len(bias), axis)
    if more is None or added.ndim > weight.ndim:
        return False
    set_bias(network, product, bias + more, names.fresh(f"{product.output[0]}.bias"))
    return True


_FOLDS: dict[str, Fold] = {"BatchNormalization": _fold_normalization, "Add": _fold_addition}
