"""Damage to what a model declares and holds: types, shapes, constants."""

from damage_common import EXTREMES, TEXTS, OnModel, Random, choose, constants
from onnx import ModelProto, TensorProto

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
    value = choose(source, [*model.graph.input, *model.graph.output])
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
    tensor = choose(source, model.graph.initializer)
    value = choose(source, [*model.graph.input, *model.graph.output])
    if tensor is not None and source.random() < 0.5:
        tensor.data_type = number
    elif value is not None:
        value.type.tensor_type.elem_type = number


def change_kind_of_input(source: Random, model: ModelProto) -> None:
    value = choose(source, [*model.graph.input, *model.graph.output])
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
    tensor = choose(source, model.graph.initializer)
    if tensor is None:
        return
    if tensor.dims and source.random() < 0.7:
        tensor.dims[source.randrange(len(tensor.dims))] = source.choice(EXTREMES)
    else:
        tensor.dims.append(source.choice(EXTREMES))


def change_initializer_data(source: Random, model: ModelProto) -> None:
    tensor = choose(source, [*model.graph.initializer, *constants(model)])
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
    tensors = [*model.graph.initializer, *constants(model)]
    small = [t for t in tensors if t.data_type == TensorProto.INT64 and t.raw_data]
    tensor = choose(source, small)
    if tensor is not None:
        count = len(tensor.raw_data) // 8
        numbers = [tensor.raw_data[8 * i : 8 * i + 8] for i in range(count)]
        if numbers:
            chosen = source.choice(EXTREMES).to_bytes(8, "little", signed=True)
            numbers[source.randrange(count)] = chosen
            tensor.raw_data = b"".join(numbers)


def spoil_weights(source: Random, model: ModelProto) -> None:
    """NaN, infinities and subnormal numbers: no reason to refuse a model."""
    floats = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    tensor = choose(source, [t for t in floats if len(t.raw_data) >= 4])
    if tensor is not None:
        raw = bytearray(tensor.raw_data)
        for _ in range(source.randint(1, 8)):
            at = source.randrange(len(raw) // 4) * 4
            raw[at : at + 4] = source.choice(
                (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\1\0\0\0")
            )
        tensor.raw_data = bytes(raw)


def move_outside(source: Random, model: ModelProto) -> None:
    """External data that is not there, not ours, or not enough."""
    tensor = choose(source, model.graph.initializer)
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
    tensor = choose(source, model.graph.initializer)
    if tensor is not None:
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.dims.extend(source.choice(EXTREMES) for _ in range(source.randint(0, 4)))
        sparse.indices.data_type = TensorProto.INT64
        sparse.indices.dims.append(source.choice(EXTREMES))
        model.graph.initializer.remove(tensor)


ON_VALUES: tuple[OnModel, ...] = (
    *(change_input_dimension, change_rank, change_element_type, change_kind_of_input),
    *(change_initializer_shape, change_initializer_data, change_small_constant),
    *(change_small_constant, spoil_weights, move_outside, make_sparse),
)
