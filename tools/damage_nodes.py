"""Damage to a model's nodes, and whole parts that no exporter writes."""

from damage_common import (
    EXTREMES,
    TEXTS,
    OnModel,
    Random,
    choose,
    copy_node,
    operators,
)
from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, helper

# ---------------------------------------------------------------- nodes


def change_operator(source: Random, model: ModelProto) -> None:
    node = choose(source, model.graph.node)
    if node is not None:
        node.op_type = source.choice((*operators(), *operators(), *TEXTS))
        if source.random() < 0.1:
            node.domain = source.choice(("ai.onnx.ml", "com.microsoft", *TEXTS))


UNARY = ("Relu", "Neg", "Abs", "Exp", "Log", "Sqrt", "Tanh", "Erf", "Floor", "Sigmoid", "Softplus")
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu", "Greater", "Equal", "Mod")
SIMILAR = (
    *(UNARY, BINARY, ("MaxPool", "AveragePool", "LpPool"), ("Softmax", "LogSoftmax", "Hardmax")),
    *(("ReduceMean", "ReduceSum", "ReduceL2"), ("Squeeze", "Unsqueeze"), ("LSTM", "GRU", "RNN")),
    *(
        ("Gather", "GatherND", "GatherElements"),
        ("Reshape", "Expand", "Tile"),
        ("Conv", "ConvTranspose"),
    ),
)


def change_to_similar(source: Random, model: ModelProto) -> None:
    """Another operator that takes such inputs: often a model that can be run."""
    known = [(n, names) for n in model.graph.node for names in SIMILAR if n.op_type in names]
    chosen = choose(source, known)
    if chosen is not None:
        chosen[0].op_type = source.choice(chosen[1])


def change_attribute(source: Random, model: ModelProto) -> None:
    node = choose(source, [n for n in model.graph.node if n.attribute])
    if node is None:
        return
    attribute = source.choice(node.attribute)
    choice = source.randrange(7)
    if choice == 0:
        attribute.i = source.choice(EXTREMES)
    elif choice == 1 and attribute.ints:
        attribute.ints[source.randrange(len(attribute.ints))] = source.choice(EXTREMES)
    elif choice == 2:
        attribute.ints.append(source.choice(EXTREMES))
    elif choice == 3:
        attribute.type = source.choice((*AttributeProto.AttributeType.values(), 77))
    elif choice == 4:
        attribute.name = source.choice((*TEXTS, "axis", "to", "value"))
    elif choice == 5:
        attribute.f = source.choice((float("nan"), float("inf"), -1.0, 1e-45, 0.0))
        attribute.s = source.choice((b"\xff\xfe", b"", b"SAME_UPPER", b"bilinear"))
    else:
        node.attribute.remove(attribute)


def add_attribute(source: Random, model: ModelProto) -> None:
    node = choose(source, model.graph.node)
    if node is not None:
        name = source.choice(("axis", "axes", "group", "strides", "pads", "perm", "to", "keepdims"))
        extra = [source.choice(EXTREMES) for _ in range(source.randint(0, 5))]
        value = source.choice((source.choice(EXTREMES), extra or [0]))
        node.attribute.append(helper.make_attribute(name, value))


def rewire(source: Random, model: ModelProto) -> None:
    """An input from anywhere: also from later nodes, which makes cycles."""
    node = choose(source, [n for n in model.graph.node if n.input])
    if node is not None:
        known = [o for n in model.graph.node for o in n.output]
        known += [v.name for v in (*model.graph.input, *model.graph.initializer)]
        node.input[source.randrange(len(node.input))] = source.choice((*known, "", "nothing"))


def swap_inputs(source: Random, model: ModelProto) -> None:
    node = choose(source, [n for n in model.graph.node if len(n.input) > 1])
    if node is not None:
        inputs = list(node.input)
        source.shuffle(inputs)
        node.input[:] = inputs


def change_number_of_inputs(source: Random, model: ModelProto) -> None:
    node = choose(source, [n for n in model.graph.node if n.input])
    if node is None:
        return
    if source.random() < 0.5:
        del node.input[source.randrange(len(node.input))]
    else:
        node.input.extend(list(node.input) * source.choice((1, 1, 50)))


def change_outputs(source: Random, model: ModelProto) -> None:
    node, other = choose(source, model.graph.node), choose(source, model.graph.node)
    if node is None or other is None or not node.output or not other.output:
        return
    choice = source.randrange(4)
    if choice == 0:
        node.output[0] = other.output[0]
    elif choice == 1:
        node.output.append(source.choice((*TEXTS, node.output[0], other.output[0])))
    elif choice == 2:
        node.output[0] = source.choice(TEXTS)
    else:
        model.graph.output.add().CopyFrom(model.graph.output[0])


def remove_node(source: Random, model: ModelProto) -> None:
    if model.graph.node:
        del model.graph.node[source.randrange(len(model.graph.node))]


def repeat_node(source: Random, model: ModelProto) -> None:
    if model.graph.node:
        model.graph.node.append(source.choice(model.graph.node))


def shuffle_nodes(source: Random, model: ModelProto) -> None:
    nodes = [copy_node(n) for n in model.graph.node]
    source.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


# ---------------------------------------------------------------- the whole


def change_versions(source: Random, model: ModelProto) -> None:
    choice = source.randrange(4)
    if choice == 0 and model.opset_import:
        model.opset_import[0].version = source.choice((*EXTREMES, 5, 9, 11, 13, 21))
    elif choice == 1:
        del model.opset_import[:]
    elif choice == 2:
        model.opset_import.append(helper.make_opsetid(source.choice(TEXTS), 9))
    else:
        model.ir_version = source.choice(EXTREMES)


def rename(source: Random, model: ModelProto) -> None:
    named = [*model.graph.input, *model.graph.output, *model.graph.initializer, *model.graph.node]
    thing = choose(source, [*named, model.graph])
    if thing is not None:
        thing.name = source.choice(TEXTS)


def drop_field(source: Random, model: ModelProto) -> None:
    """Any field of any message."""
    messages: list[Message] = [model, model.graph, *model.graph.node, *model.graph.initializer]
    messages += [*model.graph.input, *model.graph.output]
    message = source.choice(messages)
    fields = [field.name for field, _ in message.ListFields()]
    if fields:
        message.ClearField(source.choice(fields))


ON_NODES: tuple[OnModel, ...] = (
    *(change_operator, change_to_similar, change_to_similar, change_attribute, change_attribute),
    *(add_attribute, rewire, rewire, swap_inputs, change_number_of_inputs, change_outputs),
    *(remove_node, repeat_node, shuffle_nodes, change_versions, rename, drop_field),
)
