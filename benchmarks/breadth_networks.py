"""Networks of many families, to compare engines on what no list of benchmarks named.

`BREADTH` has them all, by name. They are built in place from seeded random weights: no downloads,
no torch. Convolutional classifiers of images are in breadth_vision, attention and recurrence in
breadth_sequence; here are networks that give maps, boxes and images, and convolutional networks for
videos, points and signals.

    from breadth_networks import BREADTH
    model = BREADTH["unet"](seed=0)
"""

from collections.abc import Callable
from functools import partial

import breadth_sequence
import breadth_vision
import numpy as np
import onnx
from breadth_vision import LINEAR, NetworkBuilder, _pooled_stem, _preactivated, _scores
from model_builder import Size
from zoo import Builder
from zoo_conv import BRANCH_SCALE, _basic_block

# ---- a class for each pixel ----------------------------------------------------------------------


def deeplab(*, seed: int = 0) -> onnx.ModelProto:
    """DeepLabV3 (Chen et al. 2017, arXiv 1706.05587): dilated convolutions, spatial pyramid."""
    b = NetworkBuilder("deeplab", seed=seed)
    side, width, classes = 160, 48, 21
    x, channels = _pooled_stem(b, side, 32), 32
    for outputs, stride, dilation in ((32, 1, 1), (64, 2, 1), (96, 1, 2), (128, 1, 4)):
        for block_stride in (stride, 1):
            x = _dilated_block(b, x, channels, outputs, block_stride, dilation)
            channels = outputs
    x = _spatial_pyramid(b, x, channels, width, side // 8)
    x = b.convolve(b.conv_act(x, width, width, 3), width, classes, 1, scale=LINEAR)
    b.output(_stretch(b, x, classes, side), "scores", (1, classes, side, side))
    return b.build()


def _dilated_block(
    b: NetworkBuilder, x: str, channels: int, outputs: int, stride: int, dilation: int
) -> str:
    """ResNet's basic block, with dilated convolutions."""
    y = b.conv_act(x, channels, outputs, 3, stride=stride, dilation=dilation)
    y = b.conv(y, outputs, outputs, 3, dilation=dilation, scale=BRANCH_SCALE)
    if stride != 1 or channels != outputs:
        x = b.conv(x, channels, outputs, 1, stride=stride, scale=LINEAR)
    return b.node("Relu", b.node("Add", y, x))


def _spatial_pyramid(b: NetworkBuilder, x: str, channels: int, width: int, side: int) -> str:
    """Convolutions with several dilations and the average of the image, side by side."""
    parts = [b.conv_act(x, channels, width, 1)]
    parts += [b.conv_act(x, channels, width, 3, dilation=rate) for rate in (6, 12, 18)]
    pooled = b.conv_act(b.node("GlobalAveragePool", x), channels, width, 1)
    parts.append(_stretch(b, pooled, width, side))
    return b.conv_act(b.concat(*parts), 5 * width, width, 1)


def _stretch(b: NetworkBuilder, x: str, channels: int, side: int) -> str:
    """Linear interpolation to a square of that side."""
    sizes, mode = b.constant([1, channels, side, side]), "pytorch_half_pixel"
    return b.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)


def unet(*, seed: int = 0) -> onnx.ModelProto:
    """U-Net (Ronneberger et al. 2015, arXiv 1505.04597): down, and up with what was there."""
    b = NetworkBuilder("unet", seed=seed, normalized=True)
    side, widths, classes = 96, (16, 32, 64, 128, 256), 2
    x, channels = b.image(side), 3
    levels: list[str] = []
    for width in widths:
        x = b.max_pool(levels[-1], 2, 2) if levels else x
        x = b.conv_act(b.conv_act(x, channels, width, 3), width, width, 3)
        levels.append(x)
        channels = width
    for width, level in zip(widths[-2::-1], levels[-2::-1], strict=True):
        x = b.concat(level, _double(b, x, 2 * width, width))
        x = b.conv_act(b.conv_act(x, 2 * width, width, 3), width, width, 3)
    x = b.convolve(x, widths[0], classes, 1, scale=LINEAR)
    b.output(x, "scores", (1, classes, side, side))
    return b.build()


def _double(b: NetworkBuilder, x: str, inputs: int, outputs: int) -> str:
    """A transposed 2x2 convolution with stride 2."""
    name = b.fresh("transposed")
    weight = b.normal(f"{name}.weight", (inputs, outputs, 2, 2), std=inputs**-0.5)
    bias = b.normal(f"{name}.bias", (outputs,), std=0.1)
    return b.node("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])


# ---- boxes, pyramids and key points --------------------------------------------------------------


def yolo(*, seed: int = 0) -> onnx.ModelProto:
    """YOLOv5n (Jocher 2020, after Redmon and Farhadi 2018, arXiv 1804.02767): boxes decoded."""
    b = NetworkBuilder("yolo", seed=seed, activation="Silu")
    side = 224
    x, channels = b.conv_act(b.image(side), 3, 16, 6, stride=2, padding=2), 16
    levels = []
    for width, blocks in ((32, 1), (64, 2), (128, 3), (256, 1)):
        x = b.conv_act(x, channels, width, 3, stride=2)
        x, channels = _cross_stage(b, x, width, width, blocks, adds=True), width
        levels.append(x)
    low, middle, high = _path_aggregation(b, levels[1], levels[2], _pooling_pyramid(b, x, 256))
    heads = (
        (low, 64, 8, ((10, 13), (16, 30), (33, 23))),
        (middle, 128, 16, ((30, 61), (62, 45), (59, 119))),
        (high, 256, 32, ((116, 90), (156, 198), (373, 326))),
    )
    boxes = [_decoded_boxes(b, *head, side) for head in heads]
    count = sum(3 * (side // stride) ** 2 for stride in (8, 16, 32))
    b.output(b.concat(*boxes), "boxes", (1, count, 85))
    return b.build()


def _cross_stage(
    b: NetworkBuilder, x: str, inputs: int, outputs: int, blocks: int, *, adds: bool
) -> str:
    """YOLOv5's C3: one half of the channels through bottlenecks, the other past them."""
    half = outputs // 2
    y = b.conv_act(x, inputs, half, 1)
    for _ in range(blocks):
        branch = b.conv_act(b.conv_act(y, half, half, 1), half, half, 3)
        y = b.node("Add", y, branch) if adds else branch
    return b.conv_act(b.concat(y, b.conv_act(x, inputs, half, 1)), outputs, outputs, 1)


def _pooling_pyramid(b: NetworkBuilder, x: str, channels: int) -> str:
    """YOLOv5's SPPF: maxima over 5x5, 9x9 and 13x13 by three pools in a row."""
    parts = [b.conv_act(x, channels, channels // 2, 1)]
    for _ in range(3):
        parts.append(b.max_pool(parts[-1], 5, 1, padding=2))
    return b.conv_act(b.concat(*parts), 2 * channels, channels, 1)


def _path_aggregation(b: NetworkBuilder, low: str, middle: str, high: str) -> tuple[str, str, str]:
    """Maps of 64, 128 and 256 channels: down to the finest, and up again."""
    high = b.conv_act(high, 256, 128, 1)
    middle = _cross_stage(b, b.concat(b.upsample(high), middle), 256, 128, 1, adds=False)
    middle = b.conv_act(middle, 128, 64, 1)
    low = _cross_stage(b, b.concat(b.upsample(middle), low), 128, 64, 1, adds=False)
    down = b.conv_act(low, 64, 64, 3, stride=2)
    middle = _cross_stage(b, b.concat(down, middle), 128, 128, 1, adds=False)
    down = b.conv_act(middle, 128, 128, 3, stride=2)
    return low, middle, _cross_stage(b, b.concat(down, high), 256, 256, 1, adds=False)


def _decoded_boxes(
    b: NetworkBuilder,
    x: str,
    channels: int,
    stride: int,
    anchors: tuple[tuple[int, int], ...],
    side: int,
) -> str:
    """[1, places, 85]: a centre, a size, and how sure it is of a box and of each of 80 classes."""
    cells = side // stride
    x = b.reshape(b.convolve(x, channels, 3 * 85, 1, scale=LINEAR), 1, 3, 85, cells, cells)
    x = b.node("Sigmoid", b.node("Transpose", x, perm=[0, 1, 3, 4, 2]))
    centre, size, sure = b.nodes("Split", x, b.constant([2, 2, 81]), outputs=3, axis=4)
    rows, columns = np.meshgrid(np.arange(cells), np.arange(cells), indexing="ij")
    grid = b.constant(np.stack([columns, rows], axis=2)[None, None].astype(np.float32) - 0.5)
    centre = b.node("Add", b.node("Mul", centre, b.constant(2.0)), grid)
    centre = b.node("Mul", centre, b.constant(float(stride)))
    size = b.node("Pow", b.node("Mul", size, b.constant(2.0)), b.constant(2.0))
    shapes = np.array(anchors, np.float32).reshape(1, 3, 1, 1, 2)
    size = b.node("Mul", size, b.constant(shapes))
    return b.reshape(b.concat(centre, size, sure, axis=4), 1, 3 * cells * cells, 85)


def fpn(*, seed: int = 0) -> onnx.ModelProto:
    """A feature pyramid (Lin et al. 2016, arXiv 1612.03144) over a narrow ResNet-18."""
    b = NetworkBuilder("fpn", seed=seed, normalized=True)
    side, width, channels = 160, 64, 32
    x, levels, widths = _pooled_stem(b, side, channels), [], (32, 64, 128, 256)
    for stage, outputs in enumerate(widths):
        for block in range(2):
            stride = 2 if stage and not block else 1
            x = _basic_block(b, x, channels, outputs, stride, f"layer{stage + 1}.{block}")
            channels = outputs
        levels.append(b.convolve(x, outputs, width, 1, scale=LINEAR))
    merged = levels[-1]
    for stage in (3, 2, 1, 0):
        if stage != 3:
            merged = b.node("Add", levels[stage], b.upsample(merged))
        extent = side // 4 >> stage
        level = b.convolve(merged, width, width, 3, scale=LINEAR)
        b.output(level, f"level{stage + 2}", (1, width, extent, extent))
    return b.build()


def hourglass(*, seed: int = 0) -> onnx.ModelProto:
    """Two stacked hourglasses (Newell et al. 2016, arXiv 1603.06937): maps of key points."""
    b = NetworkBuilder("hourglass", seed=seed, normalized=True)
    width, points, extent, depth = 96, 16, 32, 4
    x = b.conv_act(b.image(4 * extent), 3, width // 2, 7, stride=2)
    x = _preactivated_bottleneck(b, x, width // 2, width)
    x = _preactivated_bottleneck(b, b.max_pool(x, 2, 2), width, width)
    for stack in range(2):
        y = _preactivated_bottleneck(b, _hourglass(b, x, width, depth), width, width)
        y = b.conv_act(y, width, width, 1, scale=0.5**depth)  # each level adds two maps
        maps = b.convolve(y, width, points, 1, scale=LINEAR)
        b.output(b.node("Identity", maps), f"maps{stack}", (1, points, extent, extent))
        back = b.convolve(maps, points, width, 1, scale=BRANCH_SCALE)
        x = b.node("Add", b.node("Add", x, b.convolve(y, width, width, 1, scale=LINEAR)), back)
    return b.build()


def _hourglass(b: NetworkBuilder, x: str, width: int, depth: int) -> str:
    """At half the resolution, `depth` times one in the other; added to what goes past."""
    past = _preactivated_bottleneck(b, x, width, width)
    y = _preactivated_bottleneck(b, b.max_pool(x, 2, 2), width, width)
    y = _hourglass(b, y, width, depth - 1) if depth > 1 else y
    return b.node("Add", past, b.upsample(_preactivated_bottleneck(b, y, width, width)))


def _preactivated_bottleneck(b: NetworkBuilder, x: str, inputs: int, outputs: int) -> str:
    y = _preactivated(b, x, inputs, outputs // 2, 1)
    y = _preactivated(b, y, outputs // 2, outputs // 2, 3)
    y = _preactivated(b, y, outputs // 2, outputs, 1, BRANCH_SCALE)
    x = x if inputs == outputs else b.convolve(x, inputs, outputs, 1, scale=LINEAR)
    return b.node("Add", x, y)


# ---- images from images --------------------------------------------------------------------------


def super_resolution(*, seed: int = 0) -> onnx.ModelProto:
    """EDSR (Lim et al. 2017, arXiv 1707.02921): residual blocks, then depth becomes space."""
    b = NetworkBuilder("super_resolution", seed=seed)
    side, width = 32, 64
    first = b.convolve(b.image(side), 3, width, 3, scale=LINEAR)
    x = first
    for _ in range(4):
        y = b.convolve(b.conv_act(x, width, width, 3), width, width, 3, scale=LINEAR)
        x = b.node("Add", x, b.node("Mul", y, b.constant(0.1)))
    x = b.node("Add", b.convolve(x, width, width, 3, scale=LINEAR), first)
    x = b.convolve(x, width, 4 * width, 3, scale=LINEAR)
    x = b.node("DepthToSpace", x, blocksize=2, mode="CRD")
    x = b.convolve(x, width, 3, 3, scale=LINEAR)
    b.output(x, "image_large", (1, 3, 2 * side, 2 * side))
    return b.build()


def style_transfer(*, seed: int = 0) -> onnx.ModelProto:
    """Fast style transfer (Johnson et al. 2016, arXiv 1603.08155), with instance normalization."""
    b = NetworkBuilder("style_transfer", seed=seed)
    side = 96
    x = b.image(side)
    for inputs, outputs, kernel, stride in ((3, 16, 9, 1), (16, 32, 3, 2), (32, 64, 3, 2)):
        x = b.node("Relu", _reflected(b, x, inputs, outputs, kernel, stride))
    for _ in range(5):
        y = b.node("Relu", _reflected(b, x, 64, 64, 3))
        x = b.node("Add", _reflected(b, y, 64, 64, 3), x)
    for inputs, outputs in ((64, 32), (32, 16)):
        x = b.node("Relu", _reflected(b, b.upsample(x), inputs, outputs, 3))
    x = b.convolve(_reflect(b, x, 4), 16, 3, 9, padding=0)
    b.output(x, "image_out", (1, 3, side, side))
    return b.build()


def _reflected(
    b: NetworkBuilder, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1
) -> str:
    """A convolution whose border is a reflection of the image, and instance normalization."""
    x = _reflect(b, x, kernel // 2)
    x = b.convolve(x, inputs, outputs, kernel, stride=stride, padding=0)
    name = b.fresh("instance_norm")
    weight = b.normal(f"{name}.weight", (outputs,), std=0.1, mean=1.0)
    bias = b.normal(f"{name}.bias", (outputs,), std=0.1)
    return b.node("InstanceNormalization", x, weight, bias, epsilon=1e-5)


def _reflect(b: NetworkBuilder, x: str, border: int) -> str:
    return b.node("Pad", x, b.constant([0, 0, border, border] * 2), mode="reflect")


# ---- videos, points and signals ------------------------------------------------------------------


def c3d(*, seed: int = 0) -> onnx.ModelProto:
    """C3D (Tran et al. 2014, arXiv 1412.0767): 3x3x3 convolutions over 16 frames."""
    b = NetworkBuilder("c3d", seed=seed)
    x, channels = b.input("video", (1, 3, 16, 48, 48)), 3
    stages = ((16, 1, (1, 2, 2)), (32, 1, 2), (64, 2, 2), (128, 2, 2))
    for outputs, layers, pool in stages:
        for _ in range(layers):
            x, channels = b.conv_act(x, channels, outputs, (3, 3, 3)), outputs
        x = b.max_pool(x, pool, pool, dims=3)
    x = b.node("Flatten", x, axis=1)  # 128 channels of 2 frames of 3x3
    for inputs, outputs in ((2304, 512), (512, 512)):
        x = b.node("Relu", _fully_connected(b, x, inputs, outputs, 2.0))
    return _scores(b, x, 512, 101)


def pointnet(*, seed: int = 0) -> onnx.ModelProto:
    """PointNet (Qi et al. 2016, arXiv 1612.00593): each point alone, then the maximum."""
    b = NetworkBuilder("pointnet", seed=seed, normalized=True)
    x = _aligned(b, b.input("points", (1, 3, 512)), 3)
    x = b.conv_act(b.conv_act(x, 3, 64, (1,)), 64, 64, (1,))
    x = _point_features(b, _aligned(b, x, 64), 64)
    x = b.node("Relu", _fully_connected(b, x, 1024, 512, 0.2))
    x = b.node("Relu", _fully_connected(b, x, 512, 256, 2.0))
    return _scores(b, x, 256, 40)


def _point_features(b: NetworkBuilder, x: str, channels: int) -> str:
    """[1, channels, points] -> [1, 1024]: the maximum over all points."""
    for inputs, outputs in ((channels, 64), (64, 128), (128, 1024)):
        x = b.conv_act(x, inputs, outputs, (1,))
    return b.node("ReduceMax", x, axes=[2], keepdims=0)


def _aligned(b: NetworkBuilder, x: str, channels: int) -> str:
    """Points times a matrix that a small PointNet of its own computes, near the identity."""
    y = b.node("Relu", _fully_connected(b, _point_features(b, x, channels), 1024, 256, 0.2))
    y = _fully_connected(b, y, 256, channels * channels, 0.1 / channels)
    y = b.node("Add", y, b.constant(np.eye(channels, dtype=np.float32).reshape(1, -1)))
    matrix = b.reshape(y, -1, channels, channels)
    turned = b.node("MatMul", b.node("Transpose", x, perm=[0, 2, 1]), matrix)
    return b.node("Transpose", turned, perm=[0, 2, 1])


def _fully_connected(b: NetworkBuilder, x: str, inputs: int, outputs: int, gain: float) -> str:
    """[1, inputs] -> [1, outputs]; `gain` is the variance of the weights times the inputs."""
    name = b.fresh("fully_connected")
    weight = b.normal(f"{name}.weight", (outputs, inputs), std=(gain / inputs) ** 0.5)
    bias = b.normal(f"{name}.bias", (outputs,), std=0.1)
    return b.node("Gemm", x, weight, bias, transB=1)


def wavenet(*, seed: int = 0) -> onnx.ModelProto:
    """WaveNet (van den Oord et al. 2016, arXiv 1609.03499): dilated causal gated convolutions."""
    b = NetworkBuilder("wavenet", seed=seed)
    length, width, skips = 512, 64, 128
    x = b.convolve(b.input("audio", (1, 1, length)), 1, width, (1,))
    collected = []
    for dilation in (1, 2, 4, 8, 16, 32, 64, 128) * 2:
        past = b.node("Pad", x, b.constant([0, 0, dilation, 0, 0, 0]), b.constant(0.0))
        value, gate = (
            b.convolve(past, width, width, (2,), dilation=dilation, padding=0) for _ in range(2)
        )
        y = b.node("Mul", b.node("Tanh", value), b.node("Sigmoid", gate))
        collected.append(b.convolve(y, width, skips, (1,)))
        x = b.node("Add", b.convolve(y, width, width, (1,)), x)
    total = collected[0]
    for skip in collected[1:]:
        total = b.node("Add", total, skip)
    y = b.convolve(b.node("Relu", total), skips, skips, (1,), scale=BRANCH_SCALE)
    y = b.convolve(b.node("Relu", y), skips, 256, (1,))
    b.output(y, "scores", (1, 256, length))
    return b.build()


def tcn(*, seed: int = 0) -> onnx.ModelProto:
    """A temporal convolutional network (Bai et al. 2018, arXiv 1803.01271): causal and dilated."""
    b = NetworkBuilder("tcn", seed=seed)
    length, features, width, classes = 256, 40, 128, 10
    x, inputs = b.input("features", (1, features, length)), features
    for dilation in (1, 2, 4, 8, 16, 32):
        y, reach = x, 2 * dilation
        for channels, scale in ((inputs, 1.0), (width, BRANCH_SCALE)):
            y = b.convolve(y, channels, width, (3,), dilation=dilation, padding=reach, scale=scale)
            y = b.node("Relu", b.slice(y, 2, 0, length))
        x = x if inputs == width else b.convolve(x, inputs, width, (1,), scale=LINEAR)
        x, inputs = b.node("Relu", b.node("Add", y, x)), width
    last = b.node("Gather", x, b.constant(np.array(length - 1)), axis=2)
    return _scores(b, last, width, classes)


def keyword_spotting(*, seed: int = 0) -> onnx.ModelProto:
    """DS-CNN-L (Zhang et al. 2017, arXiv 1711.07128): separable convolutions over ten features."""
    b = NetworkBuilder("keyword_spotting", seed=seed, normalized=True)
    width = 276
    x = b.input("features", (1, 1, 49, 10))
    x = b.conv_act(x, 1, width, (10, 4), stride=(2, 1), padding=(5, 2))
    for stride in (2, 1, 1, 1, 1):
        x = b.conv_act(x, width, width, 3, stride=stride, groups=width)
        x = b.conv_act(x, width, width, 1)
    x = b.node("Flatten", b.node("GlobalAveragePool", x), axis=1)
    return _scores(b, x, width, 12)


# ---- all of them ---------------------------------------------------------------------------------


NETWORKS: tuple[Callable[..., onnx.ModelProto], ...] = (
    breadth_vision.seresnet,
    breadth_vision.efficientnet,
    breadth_vision.resnext,
    breadth_vision.regnet,
    breadth_vision.shufflenet_v2,
    breadth_vision.densenet,
    breadth_vision.ghostnet,
    breadth_vision.mobilenet_v3,
    breadth_vision.mixnet,
    breadth_vision.convnext,
    breadth_vision.replknet,
    deeplab,
    unet,
    yolo,
    fpn,
    hourglass,
    super_resolution,
    style_transfer,
    c3d,
    pointnet,
    breadth_sequence.vit,
    breadth_sequence.swin,
    breadth_sequence.mlp_mixer,
    breadth_sequence.efficientvit,
    breadth_sequence.llama,
    breadth_sequence.t5,
    breadth_sequence.gru_tagger,
    breadth_sequence.mamba,
    breadth_sequence.conformer,
    breadth_sequence.wav2vec,
    wavenet,
    tcn,
    keyword_spotting,
)


def _of_one(
    build: Callable[..., onnx.ModelProto], *, batch: Size = 1, seed: int = 0
) -> onnx.ModelProto:
    """The network for batch 1, which is written into its reshapes."""
    if batch != 1:
        raise ValueError(f"{build.__name__} is built for batch 1 only, got {batch!r}")
    return build(seed=seed)


BREADTH: dict[str, Builder] = {build.__name__: partial(_of_one, build) for build in NETWORKS}
