"""Convolutional networks of many families that classify images, and the builder of layers.

Each network has the blocks, the order of nodes and the proportions that its paper describes, in
the form in which the PyTorch exporter writes them, at a size of tens to hundreds of millions of
multiply-accumulates. About half keep BatchNormalization as a node of its own; in the others it is
folded into the convolutions, which then have a bias.

Weights are He-scaled (variance 2 / fan-in), and the last layer of a residual branch is small, so
that activations neither vanish nor explode along the depth.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from model_builder import ModelBuilder
from zoo_conv import BRANCH_SCALE, _classifier
from zoo_text import _erf_gelu, _layer_norm, _linear

LINEAR = 0.5**0.5  # the scale of weights whose outputs are not rectified

Sizes = int | tuple[int, ...]
"""A size for each spatial axis, or one for all of them."""

Stage = tuple[int, int, int, int]
"""Hidden channels, output channels, blocks, stride of the first block."""


class NetworkBuilder(ModelBuilder):
    """A ModelBuilder with layers, which names weights itself and has one style for convolutions.

    `normalized` networks keep BatchNormalization after a convolution, others have it folded into
    the convolution. `activation` is an operator's name, "Silu" or "Gelu".
    """

    def __init__(
        self, name: str, *, seed: int, normalized: bool = False, activation: str = "Relu"
    ) -> None:
        super().__init__(name, seed=seed)
        self.normalized = normalized
        self.activation = activation

    def fresh(self, stem: str) -> str:
        """A name that no other weights of this network have."""
        return self._fresh(f"{stem}.weights")

    def image(self, side: int) -> str:
        """The input: one square image with three channels."""
        return self.input("image", (1, 3, side, side))

    def convolve(
        self,
        x: str,
        inputs: int,
        outputs: int,
        kernel: Sizes,
        *,
        stride: Sizes = 1,
        groups: int = 1,
        dilation: int = 1,
        padding: Sizes | None = None,
        scale: float = 1.0,
        bias: bool = True,
    ) -> str:
        """A convolution; a kernel given as one number is square. By default half the kernel is
        padded on each side. `scale` multiplies the standard deviation of the weights."""
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        name, shape = self.fresh("conv"), (outputs, inputs // groups, *window)
        std = scale * (2.0 / prod(shape[1:])) ** 0.5
        weights = [self.normal(f"{name}.weight", shape, std=std)]
        if bias:
            weights.append(self.normal(f"{name}.bias", (outputs,), std=0.1))
        pads = [dilation * (size - 1) // 2 for size in window]
        if padding is not None:
            pads = _per_axis(padding, len(window))
        return self.node(
            "Conv",
            x,
            *weights,
            kernel_shape=list(window),
            strides=_per_axis(stride, len(window)),
            pads=pads * 2,
            dilations=[dilation] * len(window),
            group=groups,
        )

    def conv(self, x: str, inputs: int, outputs: int, kernel: Sizes, **options: Any) -> str:
        """A convolution and its normalization, in this network's style; options of `convolve`."""
        y = self.convolve(x, inputs, outputs, kernel, bias=not self.normalized, **options)
        return self.normalize(y, outputs) if self.normalized else y

    def conv_act(self, x: str, inputs: int, outputs: int, kernel: Sizes, **options: Any) -> str:
        """A convolution, its normalization and this network's activation."""
        return self.activate(self.conv(x, inputs, outputs, kernel, **options))

    def normalize(self, x: str, channels: int) -> str:
        """Batch normalization as a node, with statistics around mean 0 and variance 1."""
        name = self.fresh("norm")
        return self.node(
            "BatchNormalization",
            x,
            self.uniform(f"{name}.weight", (channels,), low=0.8, high=1.2),
            self.normal(f"{name}.bias", (channels,), std=0.1),
            self.normal(f"{name}.running_mean", (channels,), std=0.1),
            self.uniform(f"{name}.running_var", (channels,), low=0.8, high=1.25),
            epsilon=1e-5,
        )

    def activate(self, x: str, activation: str | None = None) -> str:
        """The named activation, or this network's."""
        name = activation or self.activation
        if name == "Silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        if name == "Gelu":
            return _erf_gelu(self, x)
        if name == "HardSigmoid":
            return self.node(name, x, alpha=1.0 / 6.0)
        return self.node(name, x)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """x [.., inputs] @ weight + bias."""
        return _linear(self, x, inputs, outputs, self.fresh("linear"))

    def project(self, x: str, inputs: int, outputs: int, *, scale: float = 1.0) -> str:
        """x [.., inputs] @ weight, without bias."""
        shape = (inputs, outputs)
        weight = self.normal(self.fresh("linear"), shape, std=scale * inputs**-0.5)
        return self.node("MatMul", x, weight)

    def layer_norm(self, x: str, width: int) -> str:
        """Layer normalization over the last axis."""
        return _layer_norm(self, x, width, self.fresh("layer_norm"))

    def reshape(self, x: str, *sizes: int) -> str:
        """The same elements in another shape."""
        return self.node("Reshape", x, self.constant(sizes))

    def concat(self, *values: str, axis: int = 1) -> str:
        """Values one behind the other; by default along the channels."""
        return self.node("Concat", *values, axis=axis)

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """Every `step`-th element of one axis, from `start` to before `end`."""
        return self.node("Slice", x, *(self.constant([n]) for n in (start, end, axis, step)))

    def upsample(self, x: str, factor: int = 2) -> str:
        """Nearest neighbours, each repeated `factor` times along height and width."""
        scales = self.constant(np.array([1, 1, factor, factor], np.float32))
        options = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self.node("Resize", x, "", scales, mode="nearest", **options)

    def max_pool(
        self, x: str, kernel: Sizes, stride: Sizes, padding: int = 0, dims: int = 2
    ) -> str:
        """The maximum of each window."""
        return self.node(
            "MaxPool",
            x,
            kernel_shape=_per_axis(kernel, dims),
            strides=_per_axis(stride, dims),
            pads=[padding] * (2 * dims),
        )


def _per_axis(sizes: Sizes, dims: int) -> list[int]:
    return [sizes] * dims if isinstance(sizes, int) else list(sizes)


def _scores(b: NetworkBuilder, x: str, width: int, classes: int) -> onnx.ModelProto:
    """The last layer, [1, width] -> [1, classes]; finishes the model."""
    weight = b.normal("classifier.weight", (classes, width), std=width**-0.5)
    bias = b.normal("classifier.bias", (classes,), std=0.1)
    b.output(b.node("Gemm", x, weight, bias, transB=1), "scores", (1, classes))
    return b.build()


# ---- residual networks with bottlenecks ----------------------------------------------------------


def seresnet(*, seed: int = 0) -> onnx.ModelProto:
    """SE-ResNet (Hu et al. 2017, arXiv 1709.01507): bottlenecks with squeeze and excitation."""
    b = NetworkBuilder("seresnet", seed=seed, normalized=True)
    x = _pooled_stem(b, 128, 64)
    table = ((48, 192, 2, 1), (96, 384, 2, 2), (192, 768, 2, 2), (384, 1536, 2, 2))
    x = _bottlenecks(b, x, 64, table, squeezed=True)
    return _classifier(b, x, 1536, 1)


def resnext(*, seed: int = 0) -> onnx.ModelProto:
    """ResNeXt 32x4d (Xie et al. 2016, arXiv 1611.05431): bottlenecks of 32 groups."""
    b = NetworkBuilder("resnext", seed=seed, normalized=True)
    x = _pooled_stem(b, 112, 64)
    table = ((128, 256, 2, 1), (256, 512, 2, 2), (512, 1024, 2, 2), (1024, 2048, 1, 2))
    x = _bottlenecks(b, x, 64, table, groups=32)
    return _classifier(b, x, 2048, 1)


def regnet(*, seed: int = 0) -> onnx.ModelProto:
    """RegNetX-600MF (Radosavovic et al. 2020, arXiv 2003.13678): groups of 24 channels."""
    b = NetworkBuilder("regnet", seed=seed)
    x = b.conv_act(b.image(160), 3, 32, 3, stride=2)
    table = ((48, 48, 1, 2), (96, 96, 3, 2), (240, 240, 5, 2), (528, 528, 7, 2))
    x = _bottlenecks(b, x, 32, table, group_width=24)
    return _classifier(b, x, 528, 1)


def _pooled_stem(b: NetworkBuilder, side: int, channels: int) -> str:
    """ResNet's: an image at a quarter of its resolution."""
    x = b.conv_act(b.image(side), 3, channels, 7, stride=2)
    return b.max_pool(x, 3, 2, padding=1)


def _bottlenecks(
    b: NetworkBuilder,
    x: str,
    channels: int,
    table: Iterable[Stage],
    *,
    groups: int = 1,
    group_width: int | None = None,
    squeezed: bool = False,
) -> str:
    for hidden, outputs, blocks, first_stride in table:
        if group_width is not None:
            groups = hidden // group_width
        for stride in (first_stride, *[1] * (blocks - 1)):
            x = _bottleneck(b, x, channels, hidden, outputs, stride, groups, squeezed=squeezed)
            channels = outputs
    return x


def _bottleneck(
    b: NetworkBuilder,
    x: str,
    channels: int,
    hidden: int,
    outputs: int,
    stride: int,
    groups: int,
    *,
    squeezed: bool,
) -> str:
    y = b.conv_act(x, channels, hidden, 1)
    y = b.conv_act(y, hidden, hidden, 3, stride=stride, groups=groups)
    y = b.conv(y, hidden, outputs, 1, scale=BRANCH_SCALE)
    if squeezed:
        y = _squeeze_excite(b, y, outputs, outputs // 16)
    if stride != 1 or channels != outputs:
        x = b.conv(x, channels, outputs, 1, stride=stride, scale=LINEAR)
    return b.node("Relu", b.node("Add", y, x))


def _squeeze_excite(
    b: NetworkBuilder, x: str, channels: int, reduced: int, gate: str = "Sigmoid"
) -> str:
    """Channels scaled by a gate that a small network computes from their averages."""
    hidden = b.convolve(b.node("GlobalAveragePool", x), channels, reduced, 1)
    hidden = b.activate(hidden, "Silu" if b.activation == "Silu" else "Relu")
    return b.node("Mul", x, b.activate(b.convolve(hidden, reduced, channels, 1), gate))


# ---- light networks with depthwise convolutions --------------------------------------------------


def efficientnet(*, seed: int = 0) -> onnx.ModelProto:
    """EfficientNet-B0 (Tan and Le 2019, arXiv 1905.11946): SiLU, squeeze and excitation."""
    b = NetworkBuilder("efficientnet", seed=seed, activation="Silu")
    x, channels = b.conv_act(b.image(160), 3, 32, 3, stride=2), 32
    table = (  # kernel, expansion, channels, blocks, stride of the first: table 1 of the paper
        (3, 1, 16, 1, 1),
        (3, 6, 24, 2, 2),
        (5, 6, 40, 2, 2),
        (3, 6, 80, 3, 2),
        (5, 6, 112, 3, 1),
        (5, 6, 192, 4, 2),
        (3, 6, 320, 1, 1),
    )
    for kernel, expansion, outputs, blocks, first_stride in table:
        for stride in (first_stride, *[1] * (blocks - 1)):
            hidden, reduced = channels * expansion, channels // 4
            x = _inverted(b, x, channels, hidden, outputs, stride, (kernel,), reduced=reduced)
            channels = outputs
    return _classifier(b, b.conv_act(x, 320, 1280, 1), 1280, 1)


def mobilenet_v3(*, seed: int = 0) -> onnx.ModelProto:
    """MobileNetV3-Large (Howard et al. 2019, arXiv 1905.02244): hard-swish, hard-sigmoid gates."""
    b = NetworkBuilder("mobilenet_v3", seed=seed, normalized=True, activation="HardSwish")
    x, channels = b.conv_act(b.image(224), 3, 16, 3, stride=2), 16
    table = (  # kernel, hidden, channels, squeezed, activation, stride: table 1 of the paper
        (3, 16, 16, False, "Relu", 1),
        (3, 64, 24, False, "Relu", 2),
        (3, 72, 24, False, "Relu", 1),
        (5, 72, 40, True, "Relu", 2),
        (5, 120, 40, True, "Relu", 1),
        (5, 120, 40, True, "Relu", 1),
        (3, 240, 80, False, "HardSwish", 2),
        (3, 200, 80, False, "HardSwish", 1),
        (3, 184, 80, False, "HardSwish", 1),
        (3, 184, 80, False, "HardSwish", 1),
        (3, 480, 112, True, "HardSwish", 1),
        (3, 672, 112, True, "HardSwish", 1),
        (5, 672, 160, True, "HardSwish", 2),
        (5, 960, 160, True, "HardSwish", 1),
        (5, 960, 160, True, "HardSwish", 1),
    )
    for kernel, hidden, outputs, squeezed, activation, stride in table:
        b.activation = activation
        reduced, gate = hidden // 4 if squeezed else 0, "HardSigmoid"
        x = _inverted(b, x, channels, hidden, outputs, stride, (kernel,), reduced, gate)
        channels = outputs
    return _classifier(b, b.conv_act(x, 160, 960, 1), 960, 1)


def mixnet(*, seed: int = 0) -> onnx.ModelProto:
    """MixNet-S (Tan and Le 2019, arXiv 1907.09595): kernels of several sizes in one layer."""
    b = NetworkBuilder("mixnet", seed=seed, activation="Silu")
    x, channels = b.conv_act(b.image(160), 3, 16, 3, stride=2), 16
    table = (  # kernels, expansion, channels, blocks, stride of the first, squeeze ratio
        ((3,), 1, 16, 1, 1, 0.0),
        ((3,), 6, 24, 1, 2, 0.0),
        ((3,), 3, 24, 1, 1, 0.0),
        ((3, 5, 7), 6, 40, 1, 2, 0.5),
        ((3, 5), 6, 40, 3, 1, 0.5),
        ((3, 5, 7), 6, 80, 1, 2, 0.25),
        ((3, 5), 6, 80, 2, 1, 0.25),
        ((3, 5, 7), 6, 120, 1, 1, 0.5),
        ((3, 5, 7, 9), 3, 120, 2, 1, 0.5),
        ((3, 5, 7, 9, 11), 6, 200, 1, 2, 0.5),
        ((3, 5, 7, 9), 6, 200, 2, 1, 0.5),
    )
    for kernels, expansion, outputs, blocks, first_stride, ratio in table:
        for stride in (first_stride, *[1] * (blocks - 1)):
            hidden, reduced = channels * expansion, int(channels * ratio)
            x = _inverted(b, x, channels, hidden, outputs, stride, kernels, reduced)
            channels = outputs
    return _classifier(b, b.conv_act(x, 200, 1536, 1), 1536, 1)


def _inverted(
    b: NetworkBuilder,
    x: str,
    channels: int,
    hidden: int,
    outputs: int,
    stride: int,
    kernels: Sequence[int],
    reduced: int = 0,
    gate: str = "Sigmoid",
) -> str:
    """MobileNet's inverted residual block; the kernels share out the channels, and it squeezes
    to `reduced` channels if there are any."""
    y = x if hidden == channels else b.conv_act(x, channels, hidden, 1)
    y = b.activate(_mixed_depthwise(b, y, hidden, kernels, stride))
    if reduced:
        y = _squeeze_excite(b, y, hidden, reduced, gate)
    adds = stride == 1 and channels == outputs
    scale = BRANCH_SCALE if adds else LINEAR
    y = b.conv(y, hidden, outputs, 1, scale=2 * scale if reduced else scale)  # gates halve
    return b.node("Add", y, x) if adds else y


def _mixed_depthwise(
    b: NetworkBuilder, x: str, channels: int, kernels: Sequence[int], stride: int
) -> str:
    if len(kernels) == 1:
        return b.conv(x, channels, channels, kernels[0], stride=stride, groups=channels)
    part = channels // len(kernels)
    sizes = b.constant([part] * len(kernels))
    parts = b.nodes("Split", x, sizes, outputs=len(kernels), axis=1)
    mixed = [
        b.conv(y, part, part, kernel, stride=stride, groups=part)
        for y, kernel in zip(parts, kernels, strict=True)
    ]
    return b.concat(*mixed)


def ghostnet(*, seed: int = 0) -> onnx.ModelProto:
    """GhostNet (Han et al. 2019, arXiv 1911.11907): half the channels are cheap ghosts."""
    b = NetworkBuilder("ghostnet", seed=seed)
    x, channels = b.conv_act(b.image(192), 3, 16, 3, stride=2), 16
    table = (  # kernel, hidden, channels, squeezed, stride: table 1 of the paper
        (3, 16, 16, False, 1),
        (3, 48, 24, False, 2),
        (3, 72, 24, False, 1),
        (5, 72, 40, True, 2),
        (5, 120, 40, True, 1),
        (3, 240, 80, False, 2),
        (3, 200, 80, False, 1),
        (3, 184, 80, False, 1),
        (3, 480, 112, True, 1),
        (3, 672, 112, True, 1),
        (5, 672, 160, True, 2),
        (5, 960, 160, False, 1),
        (5, 960, 160, True, 1),
    )
    for kernel, hidden, outputs, squeezed, stride in table:
        x = _ghost_bottleneck(b, x, channels, hidden, outputs, kernel, stride, squeezed=squeezed)
        channels = outputs
    return _classifier(b, b.conv_act(x, 160, 960, 1), 960, 1)


def _ghost_bottleneck(
    b: NetworkBuilder,
    x: str,
    channels: int,
    hidden: int,
    outputs: int,
    kernel: int,
    stride: int,
    *,
    squeezed: bool,
) -> str:
    y = _ghost(b, x, channels, hidden, activated=True)
    if stride != 1:
        y = b.conv(y, hidden, hidden, kernel, stride=stride, groups=hidden, scale=LINEAR)
    if squeezed:
        y = _squeeze_excite(b, y, hidden, hidden // 4, "HardSigmoid")
    y = _ghost(b, y, hidden, outputs, activated=False)
    if stride != 1 or channels != outputs:
        x = b.conv(x, channels, channels, kernel, stride=stride, groups=channels, scale=LINEAR)
        x = b.conv(x, channels, outputs, 1, scale=LINEAR)
    return b.node("Add", y, x)


def _ghost(b: NetworkBuilder, x: str, inputs: int, outputs: int, *, activated: bool) -> str:
    """Half the channels from all inputs, and of each a second one by a depthwise convolution."""
    half = outputs // 2
    x = b.conv(x, inputs, half, 1, scale=1.0 if activated else BRANCH_SCALE)
    x = b.activate(x) if activated else x
    ghosts = b.conv(x, half, half, 3, groups=half, scale=1.0 if activated else LINEAR)
    return b.concat(x, b.activate(ghosts) if activated else ghosts)


def shufflenet_v2(*, seed: int = 0) -> onnx.ModelProto:
    """ShuffleNet V2 1.0 (Ma et al. 2018, arXiv 1807.11164): split, transform half, shuffle."""
    b = NetworkBuilder("shufflenet_v2", seed=seed, normalized=True)
    x = b.max_pool(b.conv_act(b.image(224), 3, 24, 3, stride=2), 3, 2, padding=1)
    channels, side = 24, 56
    for outputs, blocks in ((116, 4), (232, 8), (464, 4)):
        half, side = outputs // 2, side // 2
        left = b.conv(x, channels, channels, 3, stride=2, groups=channels, scale=LINEAR)
        left = b.conv_act(left, channels, half, 1)
        x = _shuffle(b, left, _shuffle_branch(b, x, channels, half, 2), half, side)
        for _ in range(blocks - 1):
            left, right = b.nodes("Split", x, b.constant([half, half]), outputs=2, axis=1)
            x = _shuffle(b, left, _shuffle_branch(b, right, half, half, 1), half, side)
        channels = outputs
    return _classifier(b, b.conv_act(x, 464, 1024, 1), 1024, 1)


def _shuffle_branch(b: NetworkBuilder, x: str, inputs: int, outputs: int, stride: int) -> str:
    x = b.conv_act(x, inputs, outputs, 1)
    x = b.conv(x, outputs, outputs, 3, stride=stride, groups=outputs, scale=LINEAR)
    return b.conv_act(x, outputs, outputs, 1)


def _shuffle(b: NetworkBuilder, left: str, right: str, half: int, side: int) -> str:
    """Two halves of the channels, interleaved."""
    x = b.reshape(b.concat(left, right), 1, 2, half, side, side)
    return b.reshape(b.node("Transpose", x, perm=[0, 2, 1, 3, 4]), 1, 2 * half, side, side)


# ---- dense connections and large kernels ---------------------------------------------------------


def densenet(*, seed: int = 0) -> onnx.ModelProto:
    """DenseNet (Huang et al. 2016, arXiv 1608.06993): every layer reads all layers before it."""
    b = NetworkBuilder("densenet", seed=seed, normalized=True)
    growth, channels = 32, 64
    x = _pooled_stem(b, 128, channels)
    for block, layers in enumerate((4, 8, 12, 8)):
        if block:
            x = _preactivated(b, x, channels, channels // 2, 1)
            x, channels = _halve(b, x), channels // 2
        for _ in range(layers):
            y = _preactivated(b, x, channels, 4 * growth, 1)
            x = b.concat(x, _preactivated(b, y, 4 * growth, growth, 3))
            channels += growth
    return _classifier(b, b.node("Relu", b.normalize(x, channels)), channels, 1)


def _preactivated(
    b: NetworkBuilder, x: str, inputs: int, outputs: int, kernel: int, scale: float = 1.0
) -> str:
    """Normalization and Relu before the convolution."""
    x = b.node("Relu", b.normalize(x, inputs))
    return b.convolve(x, inputs, outputs, kernel, scale=scale, bias=False)


def _halve(b: NetworkBuilder, x: str) -> str:
    return b.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])


def convnext(*, seed: int = 0) -> onnx.ModelProto:
    """ConvNeXt (Liu et al. 2022, arXiv 2201.03545), the size called atto: 7x7 depthwise."""
    b = NetworkBuilder("convnext", seed=seed, activation="Gelu")
    x = b.convolve(b.image(160), 3, 40, 4, stride=4, padding=0, scale=LINEAR)
    x, channels = _channel_norm(b, x, 40), 40
    for outputs, blocks in ((40, 2), (80, 2), (160, 6), (320, 2)):
        if outputs != channels:
            x = _channel_norm(b, x, channels)
            x = b.convolve(x, channels, outputs, 2, stride=2, padding=0, scale=LINEAR)
            channels = outputs
        for _ in range(blocks):
            x = _convnext_block(b, x, channels)
    return _classifier(b, _channel_norm(b, x, channels), channels, 1)


def _channel_norm(b: NetworkBuilder, x: str, channels: int) -> str:
    """Layer normalization over the channels of [1, channels, height, width]."""
    x = b.layer_norm(b.node("Transpose", x, perm=[0, 2, 3, 1]), channels)
    return b.node("Transpose", x, perm=[0, 3, 1, 2])


def _convnext_block(b: NetworkBuilder, x: str, channels: int) -> str:
    y = b.convolve(x, channels, channels, 7, groups=channels, scale=LINEAR)
    y = b.layer_norm(b.node("Transpose", y, perm=[0, 2, 3, 1]), channels)
    y = b.activate(b.linear(y, channels, 4 * channels))
    y = b.linear(y, 4 * channels, channels)
    y = b.node("Mul", b.normal(b.fresh("layer_scale"), (channels,), std=0.2, mean=0.8), y)
    return b.node("Add", x, b.node("Transpose", y, perm=[0, 3, 1, 2]))


def replknet(*, seed: int = 0) -> onnx.ModelProto:
    """RepLKNet (Ding et al. 2022, arXiv 2203.06717): depthwise kernels from 21x21 to 13x13.

    The parallel small kernels are merged into the large ones, as they are for inference.
    """
    b = NetworkBuilder("replknet", seed=seed)
    x, channels = b.conv_act(b.image(192), 3, 48, 3, stride=2), 48
    x = b.conv_act(x, 48, 48, 3, stride=2, groups=48)
    for outputs, kernel, blocks in ((48, 21, 1), (96, 19, 2), (192, 17, 4), (384, 13, 1)):
        if outputs != channels:
            x = b.conv_act(x, channels, outputs, 1)
            x = b.conv_act(x, outputs, outputs, 3, stride=2, groups=outputs)
            channels = outputs
        for _ in range(blocks):
            y = b.conv_act(b.normalize(x, channels), channels, channels, 1)
            y = b.conv_act(y, channels, channels, kernel, groups=channels)
            x = b.node("Add", x, b.conv(y, channels, channels, 1, scale=BRANCH_SCALE))
            y = b.conv(b.normalize(x, channels), channels, 4 * channels, 1)
            y = b.conv(b.activate(y, "Gelu"), 4 * channels, channels, 1, scale=BRANCH_SCALE)
            x = b.node("Add", x, y)
    return _classifier(b, b.normalize(x, channels), channels, 1)
