"""Ways to damage an ONNX model: bytes of the file, or fields of the message.

A mutation takes a source of random numbers and a model and returns the file's new bytes. What it
makes is a function of the seed, so that a case can be made again.
"""

import random
from collections.abc import Callable

import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

Random = random.Random
OnBytes = Callable[[Random, bytearray], None]
OnModel = Callable[[Random, ModelProto], None]

EXTREMES = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 4096, 65537, 10**6),
    *(2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)),
)
TEXTS = ("", " ", "/", "..", "a b", "\n", "\t\x1b[31m", "é", "数", "x" * 5000, "None", "0")
LONG_CHAIN = 300  # nodes
DEEP = (3, 20, 60, 90, 200)  # graphs in graphs


def mutate(seed: int, model: ModelProto, changes: int) -> bytes:
    """The file after some changes; those of fields come first, as they need a whole message."""
    source = random.Random(seed)
    copy = ModelProto()
    copy.CopyFrom(model)
    kinds = [source.random() < 0.7 for _ in range(changes)]
    for _ in range(sum(kinds)):
        source.choice(ON_MODEL)(source, copy)
    data = bytearray(copy.SerializeToString())
    for _ in range(changes - sum(kinds)):
        source.choice(ON_BYTES)(source, data)
    return bytes(data)


# ---------------------------------------------------------------- bytes


def flip_bits(source: Random, data: bytearray) -> None:
    for _ in range(source.randint(1, 20)):
        if data:
            data[_place(source, data)] ^= 1 << source.randrange(8)


def cut_short(source: Random, data: bytearray) -> None:
    del data[source.randrange(len(data) + 1) :]


def cut_out(source: Random, data: bytearray) -> None:
    start = _place(source, data)
    del data[start : start + source.randint(1, 64)]


def repeat_part(source: Random, data: bytearray) -> None:
    start = _place(source, data)
    part = data[start : start + source.randint(1, 256)]
    data[start:start] = part


def insert_noise(source: Random, data: bytearray) -> None:
    start = _place(source, data)
    data[start:start] = source.randbytes(source.randint(1, 64))


def overwrite(source: Random, data: bytearray) -> None:
    start, byte = _place(source, data), source.choice((0, 0x7F, 0x80, 0xFF))
    for i in range(start, min(len(data), start + source.randint(1, 16))):
        data[i] = byte


def _place(source: Random, data: bytearray) -> int:
    """Mostly where the structure is: weights, which fill most of a file, may be anything."""
    size = len(data)
    if size == 0 or source.random() < 0.5:
        return source.randrange(size + 1) if size == 0 else source.randrange(size)
    edge = min(size, 2000)
    return source.choice((source.randrange(edge), size - 1 - source.randrange(edge)))


ON_BYTES: tuple[OnBytes, ...] = (
    *(flip_bits, flip_bits, cut_short, cut_out),
    *(repeat_part, insert_noise, overwrite),
)


# ---------------------------------------------------------------- shapes and types


def change_input_dimension(source: Random, model: ModelProto) -> None:
    values = [*model.graph.input, *model.graph.output]
    dims = [d for v in values for d in v.type.tensor_type.shape.dim]
    if dims:
        dim = source.choice(dims)
        if source.random() < 0.3:
            dim.dim_param = source.choice(("batch", "n", *TEXTS))
        else:
            dim.dim_value = source.choice(EXTREMES)


def change_rank(source: Random, model: ModelProto) -> None:
    value = _choose(source, [*model.graph.input, *model.graph.output])
    if value is None:
        return
    dims = value.type.tensor_type.shape.dim
    if source.random() < 0.5 and dims:
        del dims[source.randrange(len(dims))]
    else:
        for _ in range(source.choice((1, 1, 2, 40))):
            dims.add().dim_value = source.choice(EXTREMES)


def change_element_type(source: Random, model: ModelProto) -> None:
    number = source.choice((*TensorProto.DataType.values(), 99, -1))
    tensor = _choose(source, model.graph.initializer)
    value = _choose(source, [*model.graph.input, *model.graph.output])
    if tensor is not None and source.random() < 0.5:
        tensor.data_type = number
    elif value is not None:
        value.type.tensor_type.elem_type = number


def change_kind_of_input(source: Random, model: ModelProto) -> None:
    value = _choose(source, [*model.graph.input, *model.graph.output])
    if value is not None:
        inner = value.type.tensor_type
        elem = inner.elem_type
        choice = source.randrange(4)
        if choice == 0:
            value.type.sequence_type.elem_type.tensor_type.elem_type = elem
        elif choice == 1:
            value.type.optional_type.elem_type.tensor_type.elem_type = elem
        elif choice == 2:
            inner.ClearField("shape")
        else:
            value.ClearField("type")


# ---------------------------------------------------------------- constants


def change_initializer_shape(source: Random, model: ModelProto) -> None:
    tensor = _choose(source, model.graph.initializer)
    if tensor is None:
        return
    if tensor.dims and source.random() < 0.7:
        tensor.dims[source.randrange(len(tensor.dims))] = source.choice(EXTREMES)
    else:
        tensor.dims.append(source.choice(EXTREMES))


def change_initializer_data(source: Random, model: ModelProto) -> None:
    tensor = _choose(source, [*model.graph.initializer, *_constants(model)])
    if tensor is None:
        return
    raw = bytearray(tensor.raw_data)
    choice = source.randrange(4)
    if choice == 0:
        tensor.raw_data = bytes(raw[: source.randrange(len(raw) + 1)])
    elif choice == 1:
        tensor.raw_data = bytes(raw) + source.randbytes(source.randint(1, 9))
    elif choice == 2:
        tensor.float_data.extend([float("nan"), float("inf"), 1e38])
    else:
        width = min(len(raw), 8)
        if width:
            at = source.randrange(len(raw) - width + 1) & ~7
            number = source.choice(EXTREMES).to_bytes(9, "little", signed=True)[:width]
            raw[at : at + width] = number
            tensor.raw_data = bytes(raw)


def change_small_constant(source: Random, model: ModelProto) -> None:
    """Shapes, axes and the like, which decide how much memory a model takes."""
    tensors = [*model.graph.initializer, *_constants(model)]
    small = [t for t in tensors if t.data_type == TensorProto.INT64 and t.raw_data]
    tensor = _choose(source, small)
    if tensor is not None:
        count = len(tensor.raw_data) // 8
        numbers = [tensor.raw_data[8 * i : 8 * i + 8] for i in range(count)]
        if numbers:
            chosen = source.choice(EXTREMES).to_bytes(8, "little", signed=True)
            numbers[source.randrange(count)] = chosen
            tensor.raw_data = b"".join(numbers)


def move_outside(source: Random, model: ModelProto) -> None:
    """External data that is not there, not ours, or not enough."""
    tensor = _choose(source, model.graph.initializer)
    if tensor is None:
        return
    places = ("/etc/passwd", "../secret", "weights.bin", ".", "", "a/../../b", "nul\0l", "x" * 4096)
    entries = {"location": source.choice(places)}
    for key in ("offset", "length"):
        if source.random() < 0.5:
            entries[key] = source.choice(("0", "-1", "nan", str(2**62), str(2**64), "1e3", ""))
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def make_sparse(source: Random, model: ModelProto) -> None:
    tensor = _choose(source, model.graph.initializer)
    if tensor is not None:
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.dims.extend(source.choice(EXTREMES) for _ in range(source.randint(0, 4)))
        sparse.indices.data_type = TensorProto.INT64
        sparse.indices.dims.append(source.choice(EXTREMES))
        model.graph.initializer.remove(tensor)


# ---------------------------------------------------------------- nodes


def change_operator(source: Random, model: ModelProto) -> None:
    node = _choose(source, _nodes(model))
    if node is not None:
        node.op_type = source.choice((*_operators(), *_operators(), *TEXTS))
        if source.random() < 0.1:
            node.domain = source.choice(("ai.onnx.ml", "com.microsoft", *TEXTS))


def change_attribute(source: Random, model: ModelProto) -> None:
    node = _choose(source, [n for n in _nodes(model) if n.attribute])
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
    node = _choose(source, _nodes(model))
    if node is not None:
        name = source.choice(("axis", "axes", "group", "strides", "pads", "perm", "to", "keepdims"))
        extra = [source.choice(EXTREMES) for _ in range(source.randint(0, 5))]
        value = source.choice((source.choice(EXTREMES), extra or [0]))
        node.attribute.append(helper.make_attribute(name, value))


def rewire(source: Random, model: ModelProto) -> None:
    """An input from anywhere: also from later nodes, which makes cycles."""
    node = _choose(source, [n for n in _nodes(model) if n.input])
    if node is not None:
        known = [o for n in model.graph.node for o in n.output]
        known += [v.name for v in (*model.graph.input, *model.graph.initializer)]
        node.input[source.randrange(len(node.input))] = source.choice((*known, "", "nothing"))


def swap_inputs(source: Random, model: ModelProto) -> None:
    node = _choose(source, [n for n in _nodes(model) if len(n.input) > 1])
    if node is not None:
        inputs = list(node.input)
        source.shuffle(inputs)
        node.input[:] = inputs


def change_number_of_inputs(source: Random, model: ModelProto) -> None:
    node = _choose(source, [n for n in _nodes(model) if n.input])
    if node is None:
        return
    if source.random() < 0.5:
        del node.input[source.randrange(len(node.input))]
    else:
        node.input.extend(list(node.input) * source.choice((1, 1, 50)))


def change_outputs(source: Random, model: ModelProto) -> None:
    node, other = _choose(source, _nodes(model)), _choose(source, _nodes(model))
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
    nodes = [_copy(n) for n in model.graph.node]
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


def append_chain(source: Random, model: ModelProto) -> None:
    """A long chain of small operators behind the first output."""
    if not model.graph.output:
        return
    last = model.graph.output[0].name
    kinds = ("Relu", "Neg", "Sigmoid", "Identity", "Exp", "Softmax")
    kind = source.choice((kinds[:1], kinds))
    for i in range(source.choice((10, LONG_CHAIN))):
        model.graph.node.append(helper.make_node(source.choice(kind), [last], [f"chain{i}"]))
        last = f"chain{i}"
    model.graph.output[0].name = last


def append_growth(source: Random, model: ModelProto) -> None:
    """A value that is far larger than the file."""
    if not model.graph.output:
        return
    sizes = [source.choice((1, 1000, 10**6, 2**31 - 1, 2**40)) for _ in range(source.randint(1, 3))]
    model.graph.initializer.append(
        helper.make_tensor("big", TensorProto.INT64, [len(sizes)], sizes)
    )
    if source.random() < 0.5:
        model.graph.node.append(helper.make_node("ConstantOfShape", ["big"], ["grown"]))
    else:
        model.graph.node.append(
            helper.make_node("Expand", [model.graph.output[0].name, "big"], ["grown"])
        )
    model.graph.output[0].name = "grown"


def append_deep(source: Random, model: ModelProto) -> None:
    """Graphs nested in graphs, or functions that call each other."""
    if not model.graph.output:
        return
    last = model.graph.output[0].name
    if source.random() < 0.5:
        graph = helper.make_graph([helper.make_node("Relu", [last], ["y0"])], "g", [], [_any("y0")])
        for i in range(1, source.choice(DEEP)):
            inner = helper.make_node(
                "If", ["true"], [f"y{i}"], then_branch=graph, else_branch=graph
            )
            graph = helper.make_graph([inner], "g", [], [_any(f"y{i}")])
            if graph.ByteSize() > 1 << 20:
                break
        model.graph.initializer.append(helper.make_tensor("true", TensorProto.BOOL, [], [True]))
        model.graph.node.extend(graph.node)
        model.graph.output[0].name = graph.output[0].name
        return
    count = source.choice((2, 10, 40))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for i in range(count):
        callee = f"f{i - 1}" if i else source.choice(("Relu", f"f{count - 1}"))
        domain = "own" if callee.startswith("f") else ""
        body = [
            helper.make_node(callee, ["x"], ["t"], domain=domain),
            helper.make_node(callee, ["t"], ["y"], domain=domain),
        ]
        model.functions.append(helper.make_function("own", f"f{i}", ["x"], ["y"], body, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(helper.make_node(f"f{count - 1}", [last], ["deep"], domain="own"))
    model.graph.output[0].name = "deep"


def append_loop(source: Random, model: ModelProto) -> None:
    """A loop that runs as often as a number in the file says."""
    if not model.graph.output:
        return
    body = helper.make_graph(
        [helper.make_node("Neg", ["v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [_any("i"), _any("c"), _any("v")],
        [_any("d"), _any("w")],
    )
    trips = [source.choice((0, 3, 1000, 10**9, 2**62))]
    model.graph.initializer.append(helper.make_tensor("trips", TensorProto.INT64, [], trips))
    model.graph.initializer.append(helper.make_tensor("go", TensorProto.BOOL, [], [True]))
    last = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Loop", ["trips", "go", last], ["looped"], body=body))
    model.graph.output[0].name = "looped"


def rename(source: Random, model: ModelProto) -> None:
    named = [*model.graph.input, *model.graph.output, *model.graph.initializer, *_nodes(model)]
    thing = _choose(source, [*named, model.graph])
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


ON_MODEL: tuple[OnModel, ...] = (
    *(change_input_dimension, change_rank, change_element_type, change_kind_of_input),
    *(change_initializer_shape, change_initializer_data, change_small_constant),
    *(move_outside, make_sparse, change_operator, change_operator, change_attribute),
    *(change_attribute, add_attribute, rewire, rewire, swap_inputs, change_number_of_inputs),
    *(change_outputs, remove_node, repeat_node, shuffle_nodes, change_versions),
    *(append_chain, append_growth, append_deep, append_loop, rename, drop_field),
)


# ---------------------------------------------------------------- looking into a model


def _nodes(model: ModelProto) -> list[NodeProto]:
    return list(model.graph.node)


def _constants(model: ModelProto) -> list[TensorProto]:
    found = [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    return [t for t in found if t.raw_data]


def _operators() -> tuple[str, ...]:
    return tuple(sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}))


def _any(name: str) -> onnx.ValueInfoProto:
    return helper.make_empty_tensor_value_info(name)


def _copy(node: NodeProto) -> NodeProto:
    new = NodeProto()
    new.CopyFrom(node)
    return new


def _choose(source: Random, items):
    items = list(items)
    return source.choice(items) if items else None


__all__ = ["GraphProto", "mutate"]
