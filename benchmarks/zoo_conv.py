"""Convolutional networks at 224x224: ResNet-18, ResNet-50 v1.5 and MobileNetV2 1.0.

Layer tables follow the papers (He et al. 2015, arXiv 1512.03385; Sandler et al. 2018, arXiv
1801.04381) and torchvision's definitions, which put the stride of ResNet-50's bottleneck on its 3x3
convolution. BatchNormalization stays a node of its own, in inference form, as a model saved before
folding has it.

Weights are He-scaled (variance 2 / fan-in). Running statistics scatter around mean 0 and variance 1
and the last normalization of a residual branch has a small scale, as in trained networks, so that
the activations neither vanish nor explode along the depth.
"""

import onnx
from model_builder import ModelBuilder, Size

IMAGE_SIDE = 224
CLASSES = 1000
BRANCH_SCALE = 0.35  # of the last normalization of a residual branch


def resnet18(*, batch: Size = 1, seed: int = 0) -> onnx.ModelProto:
    """ResNet-18: image [batch, 3, 224, 224] -> scores [batch, 1000].

    1.81 GMAC, 11.7 M weights.
    """
    b = ModelBuilder("resnet18", seed=seed)
    x, channels = _resnet_stem(b, batch), 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _basic_block(b, x, channels, width, stride, f"layer{stage + 1}.{block}")
            channels = width
    return _classifier(b, x, channels, batch)


def resnet50(*, batch: Size = 1, seed: int = 0) -> onnx.ModelProto:
    """ResNet-50 v1.5: image [batch, 3, 224, 224] -> scores [batch, 1000].

    4.09 GMAC, 25.6 M weights.
    """
    b = ModelBuilder("resnet50", seed=seed)
    x, channels = _resnet_stem(b, batch), 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(b, x, channels, width, stride, f"layer{stage + 1}.{block}")
            channels = 4 * width
    return _classifier(b, x, channels, batch)


def mobilenetv2(*, batch: Size = 1, seed: int = 0) -> onnx.ModelProto:
    """MobileNetV2 1.0: image [batch, 3, 224, 224] -> scores [batch, 1000].

    0.30 GMAC, 3.5 M weights.
    """
    b = ModelBuilder("mobilenetv2", seed=seed)
    image = b.input("image", (batch, 3, IMAGE_SIDE, IMAGE_SIDE))
    x, channels = _relu6(b, _conv_norm(b, image, 3, 32, 3, "features.0", stride=2)), 32
    table = (  # expansion, channels, blocks, stride of the first: table 2 of the paper
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    index = 1
    for expansion, width, blocks, first_stride in table:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(b, x, channels, width, stride, expansion, f"features.{index}")
            channels, index = width, index + 1
    x = _relu6(b, _conv_norm(b, x, channels, 1280, 1, f"features.{index}"))
    return _classifier(b, x, 1280, batch)


# ---- blocks: each takes and returns [batch, channels, height, width] -----------------------------


def _resnet_stem(b: ModelBuilder, batch: Size) -> str:
    image = b.input("image", (batch, 3, IMAGE_SIDE, IMAGE_SIDE))
    x = b.node("Relu", _conv_norm(b, image, 3, 64, 7, "stem", stride=2))
    return b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def _basic_block(b: ModelBuilder, x: str, channels: int, width: int, stride: int, name: str) -> str:
    branch = b.node("Relu", _conv_norm(b, x, channels, width, 3, f"{name}.conv1", stride=stride))
    branch = _conv_norm(b, branch, width, width, 3, f"{name}.conv2", scale=BRANCH_SCALE)
    if stride != 1 or channels != width:
        x = _conv_norm(b, x, channels, width, 1, f"{name}.shortcut", stride=stride)
    return b.node("Relu", b.node("Add", branch, x))


def _bottleneck(b: ModelBuilder, x: str, channels: int, width: int, stride: int, name: str) -> str:
    branch = b.node("Relu", _conv_norm(b, x, channels, width, 1, f"{name}.conv1"))
    branch = b.node("Relu", _conv_norm(b, branch, width, width, 3, f"{name}.conv2", stride=stride))
    branch = _conv_norm(b, branch, width, 4 * width, 1, f"{name}.conv3", scale=BRANCH_SCALE)
    if stride != 1 or channels != 4 * width:
        x = _conv_norm(b, x, channels, 4 * width, 1, f"{name}.shortcut", stride=stride)
    return b.node("Relu", b.node("Add", branch, x))


def _inverted_residual(
    b: ModelBuilder, x: str, channels: int, width: int, stride: int, expansion: int, name: str
) -> str:
    hidden, branch = channels * expansion, x
    if expansion != 1:
        branch = _relu6(b, _conv_norm(b, branch, channels, hidden, 1, f"{name}.expand"))
    depthwise = _conv_norm(
        b, branch, hidden, hidden, 3, f"{name}.depthwise", stride=stride, groups=hidden
    )
    adds = stride == 1 and channels == width
    scale = BRANCH_SCALE if adds else 1.0
    branch = _conv_norm(b, _relu6(b, depthwise), hidden, width, 1, f"{name}.project", scale=scale)
    return b.node("Add", x, branch) if adds else branch


def _classifier(b: ModelBuilder, x: str, channels: int, batch: Size) -> onnx.ModelProto:
    """Global average, flatten and a fully connected layer; finishes the model."""
    pooled = b.node("Flatten", b.node("GlobalAveragePool", x), axis=1)
    weight = b.normal("classifier.weight", (CLASSES, channels), std=channels**-0.5)
    bias = b.normal("classifier.bias", (CLASSES,), std=0.1)
    b.output(b.node("Gemm", pooled, weight, bias, transB=1), "scores", (batch, CLASSES))
    return b.build()


def _conv_norm(
    b: ModelBuilder,
    x: str,
    inputs: int,
    outputs: int,
    kernel: int,
    name: str,
    *,
    stride: int = 1,
    groups: int = 1,
    scale: float = 1.0,
) -> str:
    """A padded convolution without bias, weights [outputs, inputs / groups, k, k]; normalized."""
    shape = (outputs, inputs // groups, kernel, kernel)
    fan_in = shape[1] * kernel * kernel
    weight = b.normal(f"{name}.weight", shape, std=(2.0 / fan_in) ** 0.5)
    conv = b.node(
        "Conv",
        x,
        weight,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[kernel // 2] * 4,
        dilations=[1, 1],
        group=groups,
    )
    return b.node(
        "BatchNormalization",
        conv,
        b.uniform(f"{name}.norm.weight", (outputs,), low=0.8 * scale, high=1.2 * scale),
        b.normal(f"{name}.norm.bias", (outputs,), std=0.1),
        b.normal(f"{name}.norm.running_mean", (outputs,), std=0.1),
        b.uniform(f"{name}.norm.running_var", (outputs,), low=0.8, high=1.25),
        epsilon=1e-5,
    )


def _relu6(b: ModelBuilder, x: str) -> str:
    return b.node("Clip", x, b.constant(0.0), b.constant(6.0))
