"""Attention with many scores: one kernel that goes through blocks of rows."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_graphs import check_compiled, scheduled_kernels
from onnx_models import model, node

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.graph import Graph
from tilewright.ir.loop import Alloc, For, Kernel, LoopKind, walk_statements
from tilewright.ir.text.loop import parse_kernel
from tilewright.kernels import build
from tilewright.options import Options
from tilewright.plan.default import default_schedule
from tilewright.targets import cpu

TARGET = cpu.cpu("avx2")


def attention(
    rows: int = 200,
    keys: int = 190,
    width: int = 20,
    between: list | None = None,
    axis: int = -1,
    terms: int = 8,
    heads: int | str = 2,
) -> Graph:
    """Two heads; `between` are nodes from `scores` to `masked`."""
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        *(between or [node("Mul", ["scores", "scale"], ["masked"])]),
        node("Softmax", ["masked"], ["shares"], axis=axis),
        node("MatMul", ["shares", "v"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "scale": np.float32(0.25),
        "mask": np.where(rng.random((rows, keys)) < 0.3, -np.inf, 0).astype(np.float32),
    }
    inputs = {"q": (heads, rows, terms), "k": (heads, terms, keys), "v": (heads, keys, width)}
    return import_model(model(nodes, inputs, constants=constants))


def sizes(kernel: Kernel) -> list[int]:
    """Elements of what a kernel allocates."""
    allocs = [x.buffer for x in walk_statements(kernel.body) if isinstance(x, Alloc)]
    return [int(np.prod(b.shape)) for b in allocs]


def chains(kernels: dict[str, Kernel]) -> list[Kernel]:
    return [k for name, k in kernels.items() if name.count("matmul") > 1]


MASKED = [node("Mul", ["scores", "scale"], ["s"]), node("Add", ["s", "mask"], ["masked"])]


@pytest.mark.parametrize(
    "rows, keys, width, between",
    [(200, 190, 20, None), (197, 197, 16, None), (192, 256, 17, MASKED), (97, 400, 40, MASKED)],
)
def test_scores_are_never_whole(rows: int, keys: int, width: int, between: list | None):
    kernels = scheduled_kernels(attention(rows, keys, width, between), TARGET)
    (kernel,) = chains(kernels)
    assert max(sizes(kernel)) * 4 < rows * keys


@pytest.mark.parametrize("cores", [2, 3])
def test_blocks_are_shared_among_cores_where_they_do_not_overlap(cores: int):
    target = cpu.cpu("avx2", cores=cores)
    for rows, shared in ((192, 2 * 192), (199, 2)):
        (kernel,) = chains(scheduled_kernels(attention(rows, 256), target))
        outer = [x for x in walk_statements(kernel.body) if isinstance(x, For)]
        (loop,) = (x for x in outer if x.kind is LoopKind.PARALLEL)
        assert shared % loop.extent == 0
        assert (loop.extent > 2) == (rows == 192)


@pytest.mark.parametrize(
    "graph",
    [
        attention(rows=20, keys=4000),  # few rows
        attention(rows=64, keys=64),  # few scores
        attention(width=12),
        attention(width=136),
        attention(terms=136),
        attention(axis=-2),  # every row is wanted for each column
        attention(between=[node("Softmax", ["scores"], ["masked"])]),
    ],
    ids=["few rows", "few scores", "narrow", "wide", "long sums", "columns", "two softmaxes"],
)
def test_other_products_are_kernels_of_their_own(graph: Graph):
    assert not chains(scheduled_kernels(graph, TARGET))


def test_batches_of_unknown_size():
    graph = attention(heads="N")
    inputs = [
        np.random.default_rng(0).integers(-2, 3, (3, *v.shape[1:])).astype(np.float32)
        for v in graph.inputs
    ]
    check_compiled(graph, inputs, {"N": 3}, TARGET, Options())
    scheduled = tilewright.compile(graph, target=TARGET, until="scheduled")
    (chain,) = (s.kernel for name, s in scheduled.items() if name.count("matmul") > 1)
    assert max(sizes(chain)) * 4 < 200 * 190


def test_scores_that_others_read():
    graph = attention()
    scores = next(v for n in graph.nodes for v in n.outputs if n.op.name == "matmul")
    shown = graph.with_(outputs=(*graph.outputs, scores))
    inputs = [np.ones([int(n) for n in v.shape], np.float32) for v in graph.inputs]
    check_compiled(shown, inputs, {}, TARGET, Options())
    assert not chains(tilewright.compile(shown, target=TARGET, until="lowered"))


def test_chains_of_chains():
    """The result of one attention is what the next asks with."""
    nodes = [
        node("MatMul", ["q", "k"], ["a"]),
        node("Softmax", ["a"], ["b"]),
        node("MatMul", ["b", "k2"], ["c"]),
        node("Softmax", ["c"], ["d"]),
        node("MatMul", ["d", "v"], ["y"]),
    ]
    inputs = {"q": (300, 8), "k": (8, 120), "k2": (120, 110), "v": (110, 16)}
    kernels = scheduled_kernels(import_model(model(nodes, inputs)), TARGET)
    assert [name.count("matmul") for name in kernels] == [1, 0, 2]


WHOLE = """
def columns(x: f32[256, 8], w: f32[8, 256], v: f32[256, 16], y: out(f32[256, 16])):
    a = alloc(f32[256, 256])
    m = alloc(f32[256])
    p = alloc(f32[256, 256])
    for i in range(256):
        for j in range(256):
            a[i, j] = f32(0.0)
            for k in range(8):
                a[i, j] += x[i, k] * w[k, j]
    for n in range(256):
        m[n] = f32(-inf)
        for o in range(256):
            accumulate(max, m[n], a[o, n])
    for q in range(256):
        for r in range(256):
            p[q, r] = exp(a[q, r] - m[r])
    for s in range(256):
        for t in range(16):
            y[s, t] = f32(0.0)
            for u in range(256):
                y[s, t] += p[s, u] * v[u, t]
"""


def test_rows_that_need_all_others():
    """Blocks would make all scores again for each of them."""
    kernel = parse_kernel(WHOLE.strip())
    s = default_schedule(kernel, TARGET)
    assert s.fallback == ""
    assert max(sizes(s.kernel)) == 256 * 256
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal(n).astype("f") for n in ((256, 8), (8, 256), (256, 16)))
    y = np.empty((256, 16), np.float32)
    build(s, TARGET)(x, w, v, y)
    exact = [array.astype(np.float64) for array in (x, w, v)]
    scores = exact[0] @ exact[1]
    p = np.exp(scores - scores.max(0))
    # Of the sum of what is added, since sums may cancel: numpy's own floats were 1e-3 off in one.
    assert np.all(np.abs(y - p @ exact[2]) <= 1e-5 * (p @ np.abs(exact[2])))
