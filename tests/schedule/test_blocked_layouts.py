"""What follows a convolution reads its blocks of channels along vectors: pooling, statistics of a
channel, concatenations; also where the channels do not fill their blocks."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_graphs import check_compiled, scheduled_kernels
from onnx_models import model, node

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.graph import Graph
from tilewright.ir.loop import Alloc, Call, For, If, Kernel, LoopKind, walk_statements
from tilewright.options import Options
from tilewright.targets import cpu

TARGETS = {level: cpu.cpu(level) for level in ("sse2", "avx2")}


def behind_a_convolution(nodes: list, channels: int, size: int = 9, **constants: object) -> Graph:
    """A convolution of two channels, whose result the nodes take as `c`; they give `y`."""
    rng = np.random.default_rng(channels)
    weights = rng.integers(-3, 4, (channels, 2, 3, 3)).astype(np.float32)
    conv = node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    inputs = {"x": (1, 2, size, size)}
    return import_model(model([conv, *nodes], inputs, constants={"w": weights, **constants}))


def check(graph: Graph, level: str = "avx2") -> dict[str, Kernel]:
    """Compiled and compared after every stage; the kernels as they are scheduled."""
    return scheduled_kernels(graph, TARGETS[level])


def scalar_loops(kernel: Kernel) -> list[int]:
    """Iterations of innermost loops that are no vectors, and are not unrolled."""
    inner = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    inner = [x for x in inner if not any(isinstance(y, (For, Call)) for y in x.body)]
    return [x.extent for x in inner if x.kind is LoopKind.SERIAL and x.extent != 1]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("channels", [8, 12, 16, 20, 3])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling(channels: int, op: str):
    pool = node(op, ["c"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    kernels = check(behind_a_convolution([pool], channels))
    (kernel,) = (k for name, k in kernels.items() if "pool" in name or "average" in name)
    assert channels == 3 or not scalar_loops(kernel)


@pytest.mark.parametrize("channels", [8, 16, 12])
@pytest.mark.parametrize("op, window", [("MaxPool", 5), ("MaxPool", 7), ("AveragePool", 6)])
def test_windows_along_one_axis_after_the_other(channels: int, op: str, window: int):
    """What windows along rows leave for windows along columns lies in blocks as well."""
    pads = [window // 2, window // 2, (window - 1) // 2, (window - 1) // 2]
    pool = node(op, ["c"], ["y"], kernel_shape=[window] * 2, pads=pads)
    kernels = check(behind_a_convolution([pool], channels, size=11))
    (kernel,) = (k for name, k in kernels.items() if "pool" in name or "average" in name)
    assert not scalar_loops(kernel)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pooling_of_volumes(op: str):
    weights = np.random.default_rng(0).integers(-3, 4, (16, 2, 1, 1, 1)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node(op, ["c"], ["y"], kernel_shape=[3, 3, 3], pads=[1] * 6),
    ]
    kernels = check(import_model(model(nodes, {"x": (1, 2, 4, 6, 5)}, constants={"w": weights})))
    (kernel,) = (k for name, k in kernels.items() if "pool" in name or "average" in name)
    assert not scalar_loops(kernel)


@pytest.mark.parametrize("channels", [8, 24, 12])
def test_the_greatest_of_a_channel(channels: int):
    reduce = node("GlobalMaxPool", ["c"], ["y"])
    kernels = check(behind_a_convolution([reduce], channels))
    (kernel,) = (k for name, k in kernels.items() if "max" in name)
    assert channels == 12 or not scalar_loops(kernel)


@pytest.mark.parametrize("channels", [8, 24, 21])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceSum", "ArgMax"])
def test_reductions_over_channels(channels: int, op: str):
    """They go along blocks, and what is left of the last one."""
    attributes = {"axis": 1} if op == "ArgMax" else {}
    inputs = ["c"] if op == "ArgMax" else ["c", "one"]
    reduce = node(op, inputs, ["y"], **attributes)
    kernels = check(behind_a_convolution([reduce], channels, one=np.array([1])))
    (kernel,) = (k for name, k in kernels.items() if not name.startswith("k0_conv"))
    assert 8 not in scalar_loops(kernel)
    assert channels not in scalar_loops(kernel)


@pytest.mark.parametrize("channels", [8, 16, 12])
def test_statistics_of_a_channel(channels: int):
    ones = np.ones(channels, np.float32)
    norm = node("InstanceNormalization", ["c", "s", "s"], ["y"])
    kernels = check(behind_a_convolution([norm], channels, s=ones))
    (kernel,) = (k for name, k in kernels.items() if "standardize" in name)
    assert channels == 12 or not scalar_loops(kernel)


@pytest.mark.parametrize("channels", [8, 12, 20, 6])
def test_concatenations(channels: int):
    """A boundary between blocks, in the middle of one, and anywhere."""
    join = node("Concat", ["c", "d"], ["y"], axis=1)
    kernels = check(behind_a_convolution([node("Sigmoid", ["c"], ["d"]), join], channels))
    kernel = next(k for name, k in kernels.items() if "concat" in name)
    vectors = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    assert any(x.kind is LoopKind.VECTORIZE for x in vectors)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("level", sorted(TARGETS))
@pytest.mark.parametrize("width, groups, stride", [(1, 6, 1), (3, 4, 1), (3, 4, 2), (5, 3, 2)])
def test_narrow_groups(level: str, width: int, groups: int, stride: int):
    """Their vectors lie along rows of the picture, which come behind a convolution in blocks."""
    weights = np.ones((2 * width * groups, width, 3, 3), np.float32)
    nodes = [
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "v"], ["y"], group=groups, strides=[stride] * 2, pads=[1] * 4),
    ]
    check(behind_a_convolution(nodes, width * groups, v=weights), level)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("filters", [1, 2, 3, 5])
@pytest.mark.parametrize("window", [1, 3])
def test_few_filters(filters: int, window: int):
    weights = np.ones((filters, 8, window, window), np.float32)
    conv = node("Conv", ["c", "v"], ["y"], pads=[window // 2] * 4)
    kernels = check(behind_a_convolution([conv], 8, v=weights))
    if filters == 1:  # along rows of pixels, which are not in blocks
        *_, last = kernels.values()
        assert last.inputs[0].shape in ((1, 8, 9, 9), (1, 8, 81))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.5, 3.0), (1.0, 1.5)])
def test_resizing(mode: str, scales: tuple[float, float]):
    resize = node("Resize", ["c", "", "k"], ["y"], mode=mode)
    check(behind_a_convolution([resize], 8, k=np.array([1, 1, *scales], np.float32)))


@pytest.mark.parametrize("length", [512, 96, 500])
def test_rows_are_shared_where_nothing_else_is(length: int):
    """A convolution along one axis with one block of filters, on two cores."""
    weights = np.ones((8, 4, 3), np.float32)
    conv = node("Conv", ["x", "w"], ["y"], pads=[1, 1])
    source = model([conv], {"x": (1, 4, length)}, constants={"w": weights})
    target = cpu.cpu("avx2", cores=2)
    graph = import_model(source)
    check_compiled(graph, [np.ones((1, 4, length), "f")], {}, target, Options())
    kernels = tilewright.compile(graph, target=target, until="scheduled")
    kernel = next(s.kernel for name, s in kernels.items() if "conv" in name)
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    assert any(x.kind is LoopKind.PARALLEL and x.extent > 1 for x in loops) or length < 512


@pytest.mark.parametrize("channels", [12, 20, 24])
@pytest.mark.parametrize("batch", [1, 2])
def test_blocks_that_are_full_have_no_masks(channels: int, batch: int):
    """The last block alone is moved under a condition, of which the others know nothing."""
    conv = node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=channels)
    weights = np.ones((channels, 1, 3, 3), np.float32)
    made = model(
        [conv, node("Relu", ["c"], ["y"])], {"x": (batch, channels, 9, 9)}, constants={"w": weights}
    )
    kernels = check(import_model(made))
    kernel = next(k for name, k in kernels.items() if "relayout" in name)
    loops = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
    vectors = [x for x in loops if x.kind is LoopKind.VECTORIZE]
    masked = [x for x in vectors if any(isinstance(y, If) for y in walk_statements(x.body))]
    assert len(vectors) == (1 if channels % 8 == 0 else 2), str(kernel)
    assert len(masked) == (0 if channels % 8 == 0 else 1), str(kernel)


def padded_copies(channels: int, cores: int = 1, stride: int = 1) -> tuple[int, list[int]]:
    """In how many loops around it the padded copy of a depthwise convolution behind another one is
    allocated, and the extents of loops that cores share there."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-3, 4, (channels, 1, 3, 3)).astype(np.float32)
    attrs = {"group": channels, "pads": [1, 1, 1, 1], "strides": [stride, stride]}
    graph = behind_a_convolution(
        [node("Conv", ["c", "d"], ["y"], **attrs)], channels, 33, d=weights
    )
    target = cpu.cpu("avx2", cores=cores)
    if cores == 1:
        check(graph)
    found = tilewright.compile(graph, target=target, until="scheduled")
    kernel = [s.kernel for name, s in found.items() if "conv" in name][-1]
    around = [x for x in kernel.body if isinstance(x, For)]
    inside = [x for x in around if any(isinstance(y, Alloc) for y in x.body)]
    shared = [x.extent for x in around if x.kind is LoopKind.PARALLEL]
    return len(inside), shared


@pytest.mark.parametrize("stride", [1, 2])
def test_padded_copies_are_made_block_by_block(stride: int):
    assert padded_copies(32, stride=stride) == (1, [])  # in the loop over blocks of 8 channels
    assert padded_copies(8, stride=stride) == (0, [])  # there is one block
    assert padded_copies(36, stride=stride) == (0, [])  # the last block has fewer channels


def test_cores_that_share_blocks_make_the_copies_of_theirs():
    assert padded_copies(32, cores=2) == (1, [4])
    inside, shared = padded_copies(24, cores=2)  # three blocks for two cores
    assert inside == 0
    assert len(shared) == 2


def test_a_residual_from_outside_is_copied_to_the_blocks():
    rng = np.random.default_rng(0)
    w = rng.integers(-3, 4, (16, 3, 1, 1)).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Add", ["c", "r"], ["y"])]
    inputs = {"x": (1, 3, 12, 12), "r": (1, 16, 12, 12)}
    kernels = check(import_model(model(nodes, inputs, constants={"w": w})))
    relayouts = [name for name in kernels if "relayout" in name]
    assert len(relayouts) == 2, kernels  # the residual, and the result


def test_a_residual_that_two_read_is_copied_once():
    rng = np.random.default_rng(0)
    w, v = (rng.integers(-3, 4, (16, 3, 1, 1)).astype(np.float32) for _ in range(2))
    nodes = [
        node("Conv", ["x", "w"], ["c"]), node("Add", ["c", "r"], ["p"]),
        node("Conv", ["x", "v"], ["d"]), node("Add", ["d", "r"], ["q"]),
        node("Mul", ["p", "q"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": (1, 3, 12, 12), "r": (1, 16, 12, 12)}
    graph = import_model(model(nodes, inputs, constants={"w": w, "v": v}))
    check(graph)
    host = str(tilewright.compile(graph, target=TARGETS["avx2"], until="host"))
    assert host.count("relayout_r") == 1, host


@pytest.mark.parametrize("channels", [16, 12])
def test_windows_along_channels_go_along_pixels(channels: int):
    kernels = check(behind_a_convolution([node("LRN", ["c"], ["y"], size=3)], channels))
    (kernel,) = (k for name, k in kernels.items() if "lrn" in name)
    assert not scalar_loops(kernel)
    assert kernel.inputs[0].shape == (1, channels, 81)


def test_transposes_inherit_no_blocks():
    """Channels that become the last axis leave no blocks along rows of pixels."""
    for transpose in (True, False):
        nodes = [node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1])] if transpose else []
        nodes.append(node("Softmax", ["t" if transpose else "c"], ["y"], axis=-1))
        kernels = check(behind_a_convolution(nodes, 16, size=24))
        (kernel,) = (k for name, k in kernels.items() if "softmax" in name)
        wanted = [(1, 576, 16)] if transpose else [(1, 2, 24, 24, 8)]
        assert [b.shape for b in kernel.outputs] == wanted
