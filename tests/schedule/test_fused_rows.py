"""Products over whole pictures: rows and columns of pixels are one axis, wherever they are
neighbours in all that a kernel reads and writes."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_graphs import check_compiled, scheduled_kernels
from onnx_models import model, node

from tilewright.frontends.onnx.load import import_model
from tilewright.ir.graph import Graph
from tilewright.ir.loop import Kernel
from tilewright.ir.tensor_type import Layout
from tilewright.ir.text.loop import parse_kernel
from tilewright.options import Options
from tilewright.plan.fused_axes import fuse_rows
from tilewright.targets import cpu

TARGET = cpu.cpu("avx2")

CONV = """
def conv(x: f32[1, 16, 6, 7], w: f32[8, 16], b: f32[8, 1, 1], y: out(f32[1, 8, 6, 7])):
    sums = alloc(f32[1, 8, 6, 7])
    for n in range(1):
        for o in range(8):
            for h in range(6):
                for q in range(7):
                    sums[n, o, h, q] = f32(0.0)
                    for c in range(16):
                        sums[n, o, h, q] += x[n, c, h, q] * w[o, c]
    for n in range(1):
        for o in range(8):
            for h in range(6):
                for q in range(7):
                    y[n, o, h, q] = sums[n, o, h, q] + b[o, 0, 0]
"""


def parsed(text: str = CONV) -> Kernel:
    return parse_kernel(text.strip())


def test_rows_and_columns_of_pixels_are_one_axis():
    fused = fuse_rows(parsed(), {})
    assert fused is not None
    assert [b.shape for b in fused.kernel.params] == [(1, 16, 42), (8, 16), (8, 1, 1), (1, 8, 42)]
    assert fused.steps == ({"x": (2, 3), "y": (2, 3)},)


def test_sums_without_products_have_one_axis_too():
    fused = fuse_rows(parsed(CONV.replace(" * w[o, c]", "")), {})
    assert fused is not None
    assert fused.steps == ({"x": (2, 3), "y": (2, 3)},)


def test_softmax_along_the_first_axis_runs_along_all_others():
    """Vectors of the last axis alone would have two lanes."""
    graph = import_model(model([node("Softmax", ["x"], ["y"], axis=0)], {"x": (6, 5, 3, 2)}))
    (kernel,) = scheduled_kernels(graph, TARGET).values()
    assert [b.shape for b in (*kernel.inputs, *kernel.outputs)] == [(6, 30), (6, 30)]


def test_layouts_lose_an_axis_and_get_it_back():
    blocks, rows = Layout((0, 1, 2, 3), ((1, 8),)), Layout((0, 2, 3, 1))
    fused = fuse_rows(parsed(), {"x": blocks, "y": rows})
    assert fused is not None
    arranged = {"x": Layout((0, 1, 2), ((1, 8),)), "y": Layout((0, 2, 1))}
    assert fused.fuse_layouts({"x": blocks, "y": rows}) == arranged
    assert {n: fused.split_layout(n, x) for n, x in arranged.items()} == {"x": blocks, "y": rows}
    assert fused.split_layout("w", Layout((1, 0))) == Layout((1, 0))
    assert fused.split_layout("x", Layout((0, 1, 2), ((2, 8),))) is None


@pytest.mark.parametrize(
    "layout",
    [Layout((0, 1, 3, 2)), Layout((2, 0, 1, 3)), Layout((0, 1, 2, 3), ((2, 2),))],
    ids=["turned", "apart", "blocks of rows"],
)
def test_axes_that_lie_apart_stay_two(layout: Layout):
    assert fuse_rows(parsed(), {"x": layout}) is None


@pytest.mark.parametrize(
    "old, new",
    [
        ("x[n, c, h, q]", "x[n, c, h, 6 - q]"),
        ("x[n, c, h, q]", "x[n, c, 0, q]"),
        ("+ b[o, 0, 0]", "+ b[h, 0, 0]"),
        ("for q in range(7)", "for q in range(6)"),
    ],
    ids=["backwards", "one row", "a bias of rows", "a part"],
)
def test_other_kernels_stay_as_they_are(old: str, new: str):
    assert old in CONV
    assert fuse_rows(parsed(CONV.replace(old, new)), {}) is None


def convolution(nodes: list, size: tuple[int, int] = (5, 9), batch: int | str = 2) -> Graph:
    """A 1x1 convolution of a 3x3 one's result `a`, whose result the nodes take as `c`."""
    rng = np.random.default_rng(0)
    first = rng.integers(-3, 4, (24, 3, 3, 3)).astype(np.float32)
    second = rng.integers(-3, 4, (40, 24, 1, 1)).astype(np.float32)
    before = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "v"], ["c"]),
    ]
    constants = {"w": first, "v": second, "columns": np.arange(9, dtype=np.float32)}
    graph = model([*before, *nodes], {"x": (batch, 3, *size)}, constants=constants)
    return import_model(graph)


@pytest.mark.parametrize("level", ["sse2", "avx2"])
@pytest.mark.parametrize(
    "nodes, rows",
    [
        ([node("Relu", ["c"], ["y"])], True),
        ([node("Add", ["c", "c"], ["y"])], True),
        ([node("Conv", ["a", "v"], ["d"], strides=[2, 2]), node("Relu", ["d"], ["y"])], False),
        ([node("Add", ["c", "columns"], ["y"])], False),
        ([node("GlobalAveragePool", ["c"], ["y"])], True),
    ],
    ids=["relu", "twice", "stride", "columns", "mean"],
)
def test_models_compute_the_same(nodes: list, rows: bool, level: str):
    kernels = scheduled_kernels(convolution(nodes), cpu.cpu(level))
    pictures = [k for k in kernels.values() if any(45 in b.shape for b in k.params)]
    assert bool(pictures) == rows


def test_batches_of_unknown_size():
    graph = convolution([node("Relu", ["c"], ["y"])], batch="N")
    check_compiled(graph, [np.ones((3, 3, 5, 9), np.float32)], {"N": 3}, TARGET, Options())
