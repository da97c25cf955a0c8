"""What cores divide of a contraction, and that layers before and behind are divided alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import model, node

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.graph import Graph
from tilewright.ir.loop import For, Kernel, LoopKind, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.kernels import build
from tilewright.plan.default import default_schedule
from tilewright.targets import cpu

TWO = cpu.cpu("avx2", cores=2)


def layers(*nodes: tuple, size: tuple[int, int] = (12, 12), channels: int = 3) -> Graph:
    """A chain of (operator, shape of its weights or None, attributes)."""
    rng = np.random.default_rng(0)
    made, constants, x = [], {}, "x"
    for i, (op, shape, attributes) in enumerate(nodes):
        inputs, y = [x], "y" if i == len(nodes) - 1 else f"t{i}"
        if shape is not None:
            constants[f"w{i}"] = rng.integers(-2, 3, shape).astype(np.float32)
            inputs.append(f"w{i}")
        made.append(node(op, inputs, [y], **attributes))
        x = y
    return import_model(model(made, {"x": (1, channels, *size)}, constants=constants))


def scheduled(graph: Graph) -> list[Kernel]:
    """The kernels that compute something."""
    found = tilewright.compile(graph, target=TWO, until="scheduled")
    return [s.kernel for name, s in found.items() if "relayout" not in name]


def of_first_core(kernel: Kernel, *, last: bool = False) -> Kernel:
    """The kernel with the first half of each loop that two cores share, or of the last of them."""
    shared = [x for x in kernel.body if isinstance(x, For) and x.kind is LoopKind.PARALLEL]
    assert shared, str(kernel)
    shared = shared[-1:] if last else shared
    assert all(x.extent % 2 == 0 for x in shared)
    halves = (replace(x, extent=x.extent // 2) if x in shared else x for x in kernel.body)
    return kernel.with_(body=tuple(halves))


def run(kernel: Kernel, inputs: list[np.ndarray]) -> np.ndarray:
    """What a kernel writes to a result of NaN."""
    result = np.full(kernel.outputs[0].shape, np.nan, "f")
    build(kernel, TWO)(*inputs, result)
    return result


def rows_written(kernel: Kernel, inputs: list[np.ndarray], width: int) -> list[int]:
    """The rows of the picture that the first core makes, which must not be NaN, and whole."""
    result = run(of_first_core(kernel), inputs)
    channels, block = result.shape[1], result.shape[-1]
    by_rows = result.reshape(channels, -1, width, block)
    made = ~np.isnan(by_rows).any(axis=(0, 2, 3))
    assert np.isnan(by_rows[:, ~made]).all()
    return list(np.flatnonzero(made))


WINDOW = {"pads": [1, 1, 1, 1]}


def test_a_core_reads_what_it_wrote_itself():
    """Of all layers behind each other the first core makes the upper half of the picture, and reads
    of the lower half no more than the windows' halo."""
    graph = layers(
        ("Conv", (32, 3, 3, 3), WINDOW),
        ("MaxPool", None, {"kernel_shape": [3, 3], **WINDOW}),
        ("Conv", (16, 32, 3, 3), WINDOW),
        ("Conv", (16, 1, 3, 3), {"group": 16, **WINDOW}),
        ("Conv", (32, 16, 1, 1), {}),
        ("Conv", (16, 32, 3, 3), {"strides": [2, 2], **WINDOW}),
        size=(24, 12),
    )
    kernels = scheduled(graph)
    assert len(kernels) == 6
    rng = np.random.default_rng(0)
    for number, kernel in enumerate(kernels):
        inputs = [rng.standard_normal(b.shape).astype("f") for b in kernel.inputs]
        rows, width = 24, 12
        data = inputs[0].reshape(*inputs[0].shape[:2], rows, width, -1)
        data[:, :, rows // 2 + (0 if number == 4 else 1) :] = np.nan
        height, across = (12, 6) if number == 5 else (rows, width)
        found = rows_written(kernel, inputs, across)
        assert found == list(range(height // 2)), kernel.name


def test_columns_are_shared_where_weights_are_larger():
    graph = layers(("Conv", (128, 64, 3, 3), WINDOW), size=(6, 6), channels=64)
    kernel = next(k for k in scheduled(graph) if "conv" in k.name)
    inputs = [np.ones(b.shape, "f") for b in kernel.inputs]
    result = run(of_first_core(kernel, last=True), inputs)
    channels = result.shape[1]
    assert not np.isnan(result[:, : channels // 2]).any()
    assert np.isnan(result[:, channels // 2 :]).all()


def test_heads_are_shared():
    """Of a product for each head, both operands."""
    kernel = parse_kernel(
        """
def scores(x: f32[12, 16, 32], w: f32[12, 32, 64], y: out(f32[12, 16, 64])):
    for h in range(12):
        for m in range(16):
            for n in range(64):
                y[h, m, n] = f32(0.0)
                for k in range(32):
                    y[h, m, n] += x[h, m, k] * w[h, k, n]
""".strip()
    )
    s = default_schedule(kernel, TWO)
    assert s.fallback == ""
    inputs = [np.ones(b.shape, "f") for b in kernel.inputs]
    for array in inputs:
        array[6:] = np.nan
    result = run(of_first_core(s.kernel), inputs)
    assert not np.isnan(result[:6]).any()
    assert np.isnan(result[6:]).all()


@pytest.mark.parametrize("channels, groups", [(16, 8), (32, 4), (64, 8)])
def test_groups_share_no_lines(channels: int, groups: int):
    """Where the channels of a core's groups would be neighbours of another's in lines of 64 bytes,
    cores share rows; a group's copy with zeros around it is made for it alone."""
    weights = (channels, channels // groups, 3, 3)
    graph = layers(("Conv", weights, {"group": groups, **WINDOW}), size=(24, 12), channels=channels)
    kernel = next(k for k in scheduled(graph) if "conv" in k.name)
    (loop,) = (x for x in kernel.body if isinstance(x, For))
    assert loop.kind is LoopKind.PARALLEL
    inputs = [np.ones(b.shape, "f") for b in kernel.inputs]
    made = ~np.isnan(run(of_first_core(kernel), inputs))
    lines = made.reshape(-1, 16)
    assert (lines.all(axis=1) | ~lines.any(axis=1)).all()
    assert made.mean() == 0.5


@pytest.mark.parametrize("rows, columns", [(67, 24), (66, 10), (197, 48), (29, 40)])
def test_tiles_of_rows_are_shared_where_nothing_else_is(rows: int, columns: int):
    """Also of a prime number of rows, and where the last of two tiles of columns is narrower."""
    kernel = parse_kernel(
        f"""
def k(x: f32[{rows}, 32], w: f32[32, {columns}], y: out(f32[{rows}, {columns}])):
    for m in range({rows}):
        for n in range({columns}):
            y[m, n] = f32(0.0)
            for k in range(32):
                y[m, n] += x[m, k] * w[k, n]
""".strip()
    )
    s = default_schedule(kernel, TWO)
    assert s.fallback == ""
    loops = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    assert [x.extent > 1 for x in loops if x.kind is LoopKind.PARALLEL] == [True]
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, b.shape).astype("f") for b in kernel.inputs]
    result = np.full((rows, columns), np.nan, "f")
    build(s.kernel, TWO)(*inputs, result)
    np.testing.assert_array_equal(result, inputs[0] @ inputs[1])


@pytest.mark.parametrize("cores", [1, 2])
def test_a_batch_of_unknown_size_is_shared_beside_columns(cores: int):
    """The last tile of columns, which is narrower, is done on its own as for one core: nobody knows
    that cores would wait."""
    graph = import_model(
        model([node("MatMul", ["x", "w"], ["y"])], {"x": ("b", 40, 64), "w": ("b", 64, 176)})
    )
    target = cpu.cpu("avx512", cores=cores)
    (s,) = tilewright.compile(graph, target=target, until="scheduled").values()
    tiles = [x for x in walk_statements(s.kernel.body) if isinstance(x, For)]
    assert len([x for x in tiles if x.var.name.startswith("k")]) == 2, str(s.kernel)


SIZES = st.integers(1, 40)


@settings(max_examples=20, deadline=None)
@given(SIZES, SIZES, st.integers(1, 40), st.sampled_from([1, 3]), st.sampled_from([1, 2]),
       st.sampled_from([2, 3, 8]), st.booleans())  # fmt: skip
def test_results_are_the_same(height, width, channels, window, stride, cores, apart):
    """For any number of cores, sizes that they do not divide, and channels of their own."""
    border = {"pads": [window // 2] * 4, "strides": [stride, stride]}
    groups = {"group": channels} if apart else {}
    pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    graph = layers(
        ("Conv", (channels, 3, 1, 1), {}),
        ("Conv", (channels, 1 if apart else channels, window, window), {**border, **groups}),
        ("MaxPool", None, pool),
        size=(height, width),
    )
    x = np.random.default_rng(height).integers(-3, 4, (1, 3, height, width)).astype("f")
    wanted = tilewright.compile(graph, target=cpu.host(1))(x)
    found = tilewright.compile(graph, target=cpu.host(cores))(x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "op, inputs, attributes",
    [
        ("InstanceNormalization", ["c", "s", "s"], {}),
        ("Softmax", ["c"], {"axis": 2}),
        ("LpNormalization", ["c"], {"axis": 2}),
    ],
)
def test_what_goes_over_all_rows_is_shared_by_channels(op: str, inputs: list, attributes: dict):
    """Statistics of a channel are computed where they are used, by each core for its channels."""
    graph = import_model(
        model(
            [
                node("Conv", ["x", "w"], ["c"], **WINDOW),
                node(op, inputs, ["y"], **attributes),
            ],
            {"x": (1, 3, 24, 24)},
            constants={"w": np.ones((32, 3, 3, 3), "f"), "s": np.ones(32, "f")},
        )
    )
    kernel = scheduled(graph)[-1]
    loops = [x for x in kernel.body if isinstance(x, For)]
    assert [x.kind for x in loops] == [LoopKind.PARALLEL], str(kernel)
