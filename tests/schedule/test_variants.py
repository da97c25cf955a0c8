"""Kernels whose rows are known late have a body for each of some ranges, and are right in all."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.analyze.conditions import conjuncts
from tilewright.ir.evaluate import evaluate_dim
from tilewright.ir.expr import Symbol, as_expr
from tilewright.ir.loop import If, Kernel, walk_statements
from tilewright.plan.contraction_roles import SYMBOLIC_ROWS, SYMBOLIC_WINDOWS
from tilewright.plan.variants import ranges_of
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
RANDOM = np.random.default_rng(0)


def model_of(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def ranges_in(model: onnx.ModelProto) -> list[int]:
    """The values from which on kernels have bodies of their own."""
    found = tilewright.compile(model, target=HOST, until="scheduled")
    branches = [
        s for k in found.values() for s in walk_statements(k.kernel.body) if isinstance(s, If)
    ]
    conditions = (conjuncts(b.cond)[0] for b in branches)
    return [int(c.b.value) for c in conditions if isinstance(c.a, Symbol)]


def test_the_values_of_a_symbol_are_those_where_rows_come_to_thresholds() -> None:
    n = Symbol("n", 0, 100)
    assert ranges_of(n, [48, 4]) == (n, [48, 4])
    assert ranges_of((as_expr(n) + 1) // 2, [48, 4]) == (n, [95, 7])
    assert ranges_of(as_expr(n) * 6, [48, 4, 1]) == (n, [8, 1, None])
    assert ranges_of(n, [101]) is None
    assert ranges_of(n, [101, 7]) == (n, [None, 7])
    assert ranges_of(Symbol("m", 5, None), [48, 4]) == (Symbol("m", 5, None), [48, None])
    assert ranges_of(as_expr(n) + Symbol("m"), [4]) is None
    assert ranges_of(7, [4]) is None


@pytest.mark.parametrize(
    "width, rows", [(56, 14), (40, 8), (64, 8), (21, 7), (18, 6), (25, 5), (12, 6), (2, 2)]
)
def test_the_tile_is_taken_that_divides_the_rows(width: int, rows: int) -> None:
    """Whichever body's condition holds first is what runs."""
    w = RANDOM.standard_normal((32, 6, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    model = model_of([node], {"w": w}, [1, 6, "h", "w_"])
    found = tilewright.compile(model, target=cpu.cpu("avx512"), until="scheduled")
    (kernel,) = (k.kernel for k in found.values() if "conv" in k.kernel.name)
    assert SYMBOLIC_WINDOWS[taken(kernel, {"w_": width, "h": 9})] == rows


def taken(kernel: Kernel, sizes: dict[str, int]) -> int:
    """Which of a kernel's bodies runs."""
    (body,), number = kernel.body, 0
    while isinstance(body, If):
        if all(evaluate_dim(c, sizes) for c in conjuncts(body.cond)):
            break
        (body,), number = body.orelse, number + 1
    return number


@pytest.mark.parametrize(
    "n, rows",
    [
        (7, 4),
        (8, 4),
        (9, 5),
        (10, 5),
        (11, 6),
        (12, 6),
        (15, 5),
        (16, 4),
        (18, 6),
        (47, 6),
        (64, 6),
    ],
)
def test_products_have_the_tile_that_takes_least(n: int, rows: int) -> None:
    """From 8 rows on, until tiles of 6 are what there is."""
    w = RANDOM.standard_normal((32, 256), np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, ["n", 32])
    found = tilewright.compile(model, target=cpu.cpu("avx512"), until="scheduled")
    (kernel,) = (k.kernel for k in found.values() if "matmul" in k.kernel.name)
    assert [*SYMBOLIC_ROWS.values()][taken(kernel, {"n": n})] == rows


def test_products_of_any_number_of_rows() -> None:
    w, b = (RANDOM.standard_normal(s, np.float32) for s in ((24, 70), (70,)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    model = model_of(nodes, {"w": w, "b": b}, ["n", 24])
    assert ranges_in(model) == list(SYMBOLIC_ROWS)
    module = tilewright.compile(model, target=HOST)
    for rows in [*range(15), 24, 47, 48, 49, 53, 54, 100]:
        x = RANDOM.standard_normal((rows, 24), np.float32)
        np.testing.assert_allclose(module(x), np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_any_size(stride: int) -> None:
    w = RANDOM.standard_normal((20, 6, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[stride, stride])
    model = model_of([node], {"w": w}, [1, 6, "h", "w_"])
    assert ranges_in(model) == [n * stride - (stride - 1) for n in SYMBOLIC_WINDOWS]
    module = tilewright.compile(model, target=HOST)
    for height, width in ((1, 1), (3, 4), (5, 9), (7, 17), (9, 33), (4, 48), (6, 95), (3, 97)):
        x = RANDOM.standard_normal((1, 6, height, width), np.float32)
        exact = tilewright.compile(
            model, target=HOST, options=tilewright.Options(dims={"h": height, "w_": width})
        )(x)
        np.testing.assert_allclose(module(x), exact, rtol=1e-4, atol=1e-4)


def test_softmax_along_an_axis_of_any_size() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    module = tilewright.compile(model_of([node], {}, [3, "n"]), target=HOST)
    for n in (1, 2, 15, 16, 17, 31, 32, 100, 513):
        x = RANDOM.standard_normal((3, n), np.float32)
        e = np.exp(x - x.max(-1, keepdims=True))
        np.testing.assert_allclose(module(x), e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_groups_of_an_odd_number_of_channels_are_not_packed() -> None:
    w = RANDOM.standard_normal((34, 17, 3, 3), np.float32)
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["v"], axis=1),
        helper.make_node("Conv", ["v", "w"], ["y"], pads=[1, 1, 1, 1], group=2),
    ]
    x = RANDOM.standard_normal((1, 17, 1, 1), np.float32)
    verified = tilewright.Options(verify=True)
    y = tilewright.compile(model_of(nodes, {"w": w}, [1, 17, 1, 1]), target=HOST, options=verified)(
        x
    )
    wanted = w[:, :, 1, 1] @ x.reshape(17)
    np.testing.assert_allclose(y.reshape(34), wanted, rtol=1e-4, atol=1e-4)
