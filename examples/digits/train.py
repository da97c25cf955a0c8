"""Train small convolutional networks on real handwritten digits, in numpy, and export them to ONNX.

    python examples/digits/train.py                      both
    python examples/digits/train.py digits_residual      one

writes, beside this file or into `--output`:

- `digits.onnx`: "image" [batch, 1, 8, 8] float32 in 0..1 -> "scores" [batch, 10]
- `digits_residual.onnx`: the same, by depthwise convolutions in residual blocks
- `held_out.npz`: `images` [360, 1, 8, 8] and `labels` [360] that training never saw
- `calibration.npz`: `image` [128, 1, 8, 8], of those for training, to quantise with

It needs numpy, onnx and scikit-learn, which brings the digits along, and takes about a minute.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from layers import (
    Array,
    Convolution,
    Depthwise,
    GlobalAverage,
    Layer,
    Linear,
    MaxPool,
    Normalization,
    Pointwise,
    Relu,
    Residual,
)
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

SEED = 0
HELD_OUT = 360  # of 1797
EPOCHS = 30
BATCH = 32
RATE = 3e-3
CALIBRATION = 128  # images to quantise with


def main() -> None:
    """Load, train, measure, export."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder")
    parser.add_argument("--quiet", action="store_true", help="print the result alone")
    options = parser.parse_args()
    for name in options.networks or NETWORKS:
        random = np.random.default_rng(SEED)
        (images, labels), (held_images, held_labels) = split_digits(random)
        layers = NETWORKS[name](random)
        started = time.perf_counter()
        train(layers, images, labels, random, quiet=options.quiet)
        correct = accuracy(layers, held_images, held_labels)
        seconds = time.perf_counter() - started
        print(f"{name}: {correct:.2%} of {len(held_labels)} held-out digits, {seconds:.0f} s")
        onnx.save(export(layers, name), options.output / f"{name}.onnx")
    np.savez_compressed(options.output / "held_out.npz", images=held_images, labels=held_labels)
    np.savez_compressed(options.output / "calibration.npz", image=images[:CALIBRATION])


Digits = tuple[Array, Array]
"""Images [n, 1, 8, 8] float32 in 0..1, and labels [n] int64 in 0..9."""


def split_digits(random: np.random.Generator) -> tuple[Digits, Digits]:
    """The digits for training and those held out, shuffled."""
    digits = load_digits()
    order = random.permutation(len(digits.target))
    images = (digits.images[order, None] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    return (images[HELD_OUT:], labels[HELD_OUT:]), (images[:HELD_OUT], labels[:HELD_OUT])


def network(random: np.random.Generator) -> list[Layer]:
    """Two convolutions at 8x8, one at 4x4, and a linear layer: 6,178 parameters."""
    return [
        *(Convolution(1, 8, random), Normalization(8), Relu()),
        *(Convolution(8, 16, random), Normalization(16), Relu()),
        MaxPool(),
        *(Convolution(16, 16, random), Normalization(16), Relu()),
        Linear(16 * 4 * 4, 10, random),
    ]


def residual_network(random: np.random.Generator) -> list[Layer]:
    """Two residual blocks of a depthwise and a 1x1 convolution, and a mean of each channel: 2,986
    parameters."""

    def block(channels: int) -> list[Layer]:
        body = [
            *(Depthwise(channels, random), Normalization(channels), Relu()),
            *(Pointwise(channels, channels, random), Normalization(channels)),
        ]
        return [Residual(*body), Relu()]

    return [
        *(Convolution(1, 16, random), Normalization(16), Relu()),
        *block(16),
        MaxPool(),
        *(Pointwise(16, 32, random), Normalization(32), Relu()),
        *block(32),
        GlobalAverage(),
        Linear(32, 10, random),
    ]


NETWORKS = {"digits": network, "digits_residual": residual_network}


# ---- training ------------------------------------------------------------------------------------


def train(
    layers: list[Layer], images: Array, labels: Array, random: np.random.Generator, *, quiet: bool
) -> None:
    """Adam on the cross entropy of shuffled batches; the rate falls along a half cosine."""
    optimizer = Adam(layers)
    steps = EPOCHS * (len(images) // BATCH)
    for epoch in range(EPOCHS):
        losses = []
        for chosen in np.array_split(random.permutation(len(images)), len(images) // BATCH):
            scores = forward(layers, shifted(images[chosen], random), training=True)
            loss, grad = cross_entropy(scores, labels[chosen])
            for layer in reversed(layers):
                grad = layer.backward(grad)
            optimizer.step(RATE * 0.5 * (1.0 + np.cos(np.pi * optimizer.steps / steps)))
            losses.append(loss)
        if not quiet:
            print(f"epoch {epoch + 1:2} of {EPOCHS}: loss {np.mean(losses):.4f}", flush=True)


def forward(layers: list[Layer], x: Array, *, training: bool = False) -> Array:
    """Images [batch, 1, 8, 8] -> scores [batch, 10]."""
    for layer in layers:
        x = layer.forward(x, training=training)
    return x


def accuracy(layers: list[Layer], images: Array, labels: Array) -> float:
    """The share of images whose highest score is that of the label."""
    return float((forward(layers, images).argmax(1) == labels).mean())


def shifted(images: Array, random: np.random.Generator) -> Array:
    """Each image moved by at most one pixel up, down, left or right: cheap variety."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    corners = random.integers(3, size=(len(images), 2))
    moved = [pad[:, y : y + 8, x : x + 8] for pad, (y, x) in zip(padded, corners, strict=True)]
    return np.stack(moved)


def cross_entropy(scores: Array, labels: Array) -> tuple[float, Array]:
    """The mean loss of softmax(scores), [batch, 10], and its gradient by `scores`."""
    shifted_scores = scores - scores.max(1, keepdims=True)
    logs = shifted_scores - np.log(np.exp(shifted_scores).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    grad = np.exp(logs)
    grad[rows, labels] -= 1.0
    return float(-logs[rows, labels].mean()), grad / np.float32(len(labels))


def every(layers: Iterable[Layer]) -> Iterator[Layer]:
    """All layers, those within residual blocks included."""
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from every(layer.body)


class Adam:
    """Adam (Kingma and Ba 2014): steps scaled by running moments of each parameter's gradient."""

    def __init__(self, layers: list[Layer]) -> None:
        self.steps = 0
        self._slots = [(layer, key) for layer in every(layers) for key in layer.parameters]
        self._first = [np.zeros_like(layer.parameters[key]) for layer, key in self._slots]
        self._second = [np.zeros_like(layer.parameters[key]) for layer, key in self._slots]

    def step(self, rate: float) -> None:
        """Change every parameter in place by its last gradient."""
        self.steps += 1
        unbias = (1.0 - 0.999**self.steps) ** 0.5 / (1.0 - 0.9**self.steps)
        for (layer, key), first, second in zip(self._slots, self._first, self._second, strict=True):
            grad = layer.gradients[key]
            first += 0.1 * (grad - first)
            second += 0.001 * (grad * grad - second)
            layer.parameters[key] -= rate * unbias * first / (np.sqrt(second) + 1e-8)


# ---- export --------------------------------------------------------------------------------------


def export(layers: list[Layer], name: str) -> onnx.ModelProto:
    """The trained network in inference form, for any batch size."""
    writer = Writer()
    writer.write(layers, "image", "scores")
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(writer.nodes, name, [image], [scores], writer.weights)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="train.py")
    onnx.checker.check_model(model, full_check=True)
    return model


class Writer:
    """Layers as ONNX's nodes and weights, numbered as they come."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def write(self, layers: Sequence[Layer], value: str, result: str = "") -> str:
        """Layers one after another, and what the last makes, called `result` if that is given."""
        for layer in layers:
            made = result if result and layer is layers[-1] else f"value{self.count}"
            index, self.count = self.count, self.count + 1
            if isinstance(layer, Residual):
                inputs = [value, self.write(layer.body, value)]
                self.nodes.append(helper.make_node("Add", inputs, [made]))
            else:
                self.layer(layer, index, value, made)
            value = made
        return value

    def layer(self, layer: Layer, index: int, value: str, made: str) -> None:
        """A layer's operator; a linear layer's input is flattened first."""
        named = {f"layer{index}.{key}": array for key, array in saved(layer).items()}
        if isinstance(layer, Linear):
            self.nodes.append(helper.make_node("Flatten", [value], [f"flat{index}"], axis=1))
            value = f"flat{index}"
        op, attributes = OPERATORS[type(layer)]
        if isinstance(layer, Depthwise):
            attributes = {**attributes, "group": len(layer.parameters["weight"])}
        self.nodes.append(helper.make_node(op, [value, *named], [made], **attributes))
        self.weights += [numpy_helper.from_array(array, name) for name, array in named.items()]


OPERATORS: dict[type[Layer], tuple[str, dict[str, Any]]] = {
    Convolution: ("Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Depthwise: ("Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Pointwise: ("Conv", {"kernel_shape": [1, 1]}),
    Normalization: ("BatchNormalization", {"epsilon": Normalization.epsilon}),
    Relu: ("Relu", {}),
    MaxPool: ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    GlobalAverage: ("GlobalAveragePool", {}),
    Linear: ("Gemm", {"transB": 1}),
}


def saved(layer: Layer) -> dict[str, Array]:
    """What a layer's ONNX operator takes beside its input, in the operator's order."""
    if isinstance(layer, Normalization):
        return {**layer.parameters, "mean": layer.running_mean, "var": layer.running_var}
    return layer.parameters


if __name__ == "__main__":
    main()
