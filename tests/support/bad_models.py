"""Small models that are wrong in one way each, and what people are told about them."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(16, dtype=np.float32).reshape(4, 4) / 10
CHECK = "check the model with onnx.checker.check_model(full_check=True)"
ORDER = "nodes must stand in the order in which they can run, and form no cycle"


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, name, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


def model(nodes, inputs, outputs, constants=(), opset=17):
    """The bytes of a model file."""
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


X, Y = tensor("x", ("n", 4)), tensor("y", ("n", 4))
W = numpy_helper.from_array(WEIGHT, "w")
PRODUCT = node("MatMul", "x w", "y", "product")
GOOD = model([PRODUCT], [X], [Y], [W])


def flipped():
    data = bytearray(GOOD)
    data[8] ^= 0xFF
    return bytes(data)


def external(location, **entries):
    """The good model with its weight in a file."""
    proto = onnx.ModelProto.FromString(GOOD)
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=value)
    return proto.SerializeToString()


DAMAGED = (
    "{name!r} is not an ONNX model, or is damaged\n"
    "  hint: it does not parse as a ModelProto message: was the file cut short?"
)

# By file name: the bytes, and the error's text.
BAD_MODELS: dict[str, tuple[bytes, str]] = {
    "empty.onnx": (b"", "'empty.onnx' is empty\n  hint: was it written to the end?"),
    "text.onnx": (b"hello, I am a text\n", DAMAGED.format(name="text.onnx")),
    "truncated.onnx": (GOOD[: len(GOOD) // 2], DAMAGED.format(name="truncated.onnx")),
    "flipped.onnx": (flipped(), DAMAGED.format(name="flipped.onnx")),
    "cyclic.onnx": (
        model(
            [node("Add", "x b", "a", "one"), node("Neg", "a", "b", "two")],
            [X],
            [tensor("b", ("n", 4))],
        ),
        (
            "operator Add (node 'one', opset 17): it reads 'b', which only a later node computes\n"
            f"  hint: {ORDER}"
        ),
    ),
    "types.onnx": (
        model([node("Add", "x i", "y", "sum")], [X, tensor("i", ("n", 4), TensorProto.INT64)], [Y]),
        (
            "operator Add (node 'sum', opset 17): add: operands differ in type: f32, i64\n"
            f"  hint: {CHECK}"
        ),
    ),
    "shapes.onnx": (
        model([PRODUCT], [tensor("x", (2, 3))], [tensor("y", (2, 4))], [W]),
        (
            "operator MatMul (node 'product', opset 17): matmul: the inner dimensions differ:"
            f" 3 against 4\n  hint: {CHECK}"
        ),
    ),
    "declared.onnx": (
        model([node("Neg", "x", "y", "a")], [X], [tensor("y", ("n", 4), TensorProto.INT64)]),
        (
            "the output 'y' is declared as i64, but computed as f32\n"
            "  hint: the model is inconsistent: export it again"
        ),
    ),
    "operator.onnx": (
        model([node("Conw", "x w", "y", "c")], [X], [Y], [W]),
        (
            "operator Conw (node 'c', opset 17): there is no such operator\n"
            "  hint: did you mean 'Conv' or 'Concat'?"
        ),
    ),
    "attribute.onnx": (
        model([node("Transpose", "x", "y", "turn", perm=[0, 0])], [X], [Y]),
        (
            "operator Transpose (node 'turn', opset 17): transpose: (0, 0) is no permutation of the"
            f" 2 axes\n  hint: {CHECK}"
        ),
    ),
    "twice.onnx": (
        model([node("Neg", "x", "y", "a"), node("Abs", "x", "y", "b")], [X], [Y]),
        (
            "operator Abs (node 'b', opset 17): it computes 'y', which is defined already\n"
            "  hint: every value of a graph has one definition"
        ),
    ),
    "missing.onnx": (
        model([node("Neg", "z", "y", "a")], [X], [Y]),
        "operator Neg (node 'a', opset 17): it reads 'z', which nothing computes\n  hint: known: x",
    ),
    "opset.onnx": (
        model([PRODUCT], [X], [Y], [W], opset=999),
        (
            "the model is written for opset 999, which is newer than the installed onnx\n"
            f"  hint: convert it to opset 1 … {onnx.defs.onnx_opset_version()} with"
            " onnx.version_converter"
        ),
    ),
    "negative.onnx": (
        model([PRODUCT], [tensor("x", (-3, 4))], [Y], [W]),
        "input 'x' has the dimension -3 on axis 0\n  hint: dimensions are 0 … 2147483647",
    ),
    "huge.onnx": (
        model([PRODUCT], [tensor("x", (2**40, 4))], [Y], [W]),
        (
            "input 'x' has the dimension 1099511627776 on axis 0\n"
            "  hint: dimensions are 0 … 2147483647"
        ),
    ),
    "too_large.onnx": (
        model([PRODUCT], [tensor("x", (2**31 - 1, 2**20))], [Y], [W]),
        "x: a tensor f32[2147483647, 1048576] takes more than 1024 GiB",
    ),
    "no_data.onnx": (
        external("w.bin"),
        (
            "the initializer 'w' lies in 'w.bin', which cannot be read: No such file or directory\n"
            "  hint: put the data file beside the model file"
        ),
    ),
    "outside.onnx": (
        external("../w.bin"),
        (
            "the initializer 'w' lies in '../w.bin', which is not inside the model's folder\n"
            "  hint: external data must be a relative path without '..'"
        ),
    ),
    "absolute.onnx": (
        external("/etc/passwd"),
        (
            "the initializer 'w' lies in '/etc/passwd', which is not inside the model's folder\n"
            "  hint: external data must be a relative path without '..'"
        ),
    ),
    "short_data.onnx": (
        external("four.bytes", offset="2"),
        (
            "the initializer 'w' lies at bytes 2 … 66 of 'four.bytes', which has 4\n"
            "  hint: the data file is damaged, cut short, or belongs to another model"
        ),
    ),
    "long_name.onnx": (
        external("x" * 5000),
        f"the initializer 'w' lies in '{'x' * 119}…': File name too long",
    ),
}


def write_bad_models(folder: Path) -> None:
    (folder / "four.bytes").write_bytes(b"1234")
    (folder / "folder.onnx").mkdir()
    for name, (data, _) in BAD_MODELS.items():
        (folder / name).write_bytes(data)
    (folder / "good.onnx").write_bytes(GOOD)
