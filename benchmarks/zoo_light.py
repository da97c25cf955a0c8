"""The nine `light_*` networks of the onnx package, with weights that make outputs worth comparing.

The package ships the graphs of real Caffe2 models (opset 9, 224x224, batch 1) for its own backend
tests, but every weight is a ConstantOfShape of 0.02, so all outputs are constant. Here each of
these nodes becomes an initializer of seeded random numbers whose scale follows from its use: He for
weights, positive running variances, a small scale for normalizations that feed a residual sum.
Old-format oddities that carry nothing are dropped: initializers repeated among the inputs, and
initializers that nothing reads.
"""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import onnx
from model_builder import IR_VERSION, Size
from onnx import TensorProto, numpy_helper

NAMES = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)

TRANSPARENT = ("Reshape", "Unsqueeze", "BatchNormalization", "Mul", "Add")
"""What keeps the scale of its first input: Mul and Add apply one number per channel here."""

GAINS = {"Conv": 1.0, "rectified Conv": 2.0, "Gemm": 1.0, "rectified Gemm": 2.0}
"""Variance of weights times fan-in: a Relu halves the second moment, what feeds one doubles it."""

SCALES = {"scale": 1.0, "Mul": 1.0, "residual scale": 0.5}
"""Mean of scales per channel; one that feeds a residual sum is small, or the sums would explode."""

Use = tuple[str, int]
"""Who reads a value: the kind of operator and the position among its inputs."""


def light(name: str, *, batch: Size = 1, seed: int = 0) -> onnx.ModelProto:
    """One of `NAMES`: image [1, 3, 224, 224] -> 1000 class probabilities (densenet121: scores)."""
    if name not in NAMES:
        raise ValueError(
            f"no network named {name!r} in the onnx package; it has {', '.join(NAMES)}"
        )
    if batch != 1:
        raise ValueError(f"{name} is shipped with batch 1 written into its reshapes, got {batch!r}")
    data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(data / f"{name}.onnx")
    model.ir_version = IR_VERSION  # from 4 on, an initializer need not be an input
    _draw_weights(model.graph, np.random.default_rng(seed))
    _drop_unused(model.graph)
    return model


def _draw_weights(graph: onnx.GraphProto, random: np.random.Generator) -> None:
    """Replace every constant-filled weight and every float initializer by random numbers."""
    uses = _uses(graph)
    sizes = {
        t.name: numpy_helper.to_array(t)
        for t in graph.initializer
        if t.data_type == TensorProto.INT64
    }
    weights, kept = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        name, shape = node.output[0], tuple(int(n) for n in sizes[node.input[0]])
        weights.append(_draw(name, shape, uses, random))
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            weights.append(_draw(tensor.name, tuple(tensor.dims), uses, random))
        else:
            weights.append(tensor)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(weights)


def _draw(
    name: str, shape: tuple[int, ...], uses: dict[str, list[Use]], random: np.random.Generator
) -> TensorProto:
    """Random numbers fit for what the weight is used as."""
    use, position = uses[name][0] if uses.get(name) else ("nothing", 0)
    array: np.ndarray = random.standard_normal(shape, np.float32)
    if position == 1 and use in GAINS:
        fan_in = prod(shape[1:]) if use.endswith("Conv") else shape[-1]  # Gemm: transB is set
        array *= (GAINS[use] / fan_in) ** 0.5
    elif use in SCALES:
        array = SCALES[use] * (1.0 + 0.1 * array)
    elif use == "BatchNormalization" and position == 4:
        array = random.uniform(0.8, 1.25, shape)
    else:  # a bias or a running mean
        array *= 0.1
    return numpy_helper.from_array(array.astype(np.float32, copy=False), name)


def _uses(graph: onnx.GraphProto) -> dict[str, list[Use]]:
    """For every value its readers, looking through normalizations, scales, offsets and reshapes."""
    uses: dict[str, list[Use]] = {}
    for node in reversed(graph.node):
        for position, name in enumerate(node.input):
            uses.setdefault(name, []).extend(_read(node, position, uses))
    return uses


def _read(node: onnx.NodeProto, position: int, uses: dict[str, list[Use]]) -> Iterator[Use]:
    readers = {use for use, _ in uses.get(node.output[0], [])}
    if node.op_type in TRANSPARENT and position == 0:
        yield from uses.get(node.output[0], [])
    elif node.op_type in ("Conv", "Gemm") and "Relu" in readers:
        yield f"rectified {node.op_type}", position
    elif node.op_type == "BatchNormalization" and position == 1:
        yield ("residual scale" if "Sum" in readers else "scale"), position
    else:
        yield node.op_type, position


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Keep the initializers that a node reads, and of the inputs only what a caller must give."""
    read = {name for node in graph.node for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    given = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in given]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(weights)
    graph.input.extend(inputs)
