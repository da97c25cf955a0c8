"""Products of a few rows by weights of 8, 4 and 2 bits, which stay as they are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.frontends.onnx.load import import_model
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.graph import Graph
from tilewright.ops.compact import CompactAttrs
from tilewright.optimize.compact_weights import FEW, compact_weights
from tilewright.targets import cpu

KINDS = {
    "i8": (TensorProto.INT8, np.int8, -128, 127),
    "u8": (TensorProto.UINT8, np.uint8, 0, 255),
    "i4": (TensorProto.INT4, ml_dtypes.int4, -8, 7),
    "u4": (TensorProto.UINT4, ml_dtypes.uint4, 0, 15),
}
HOST = cpu.host(threads=1)


def model_of(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], rows: int | str, depth: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def dequantised(
    kind: str, rows: int | str, depth: int, columns: int, block: int, *, zero: bool, turned: bool
) -> onnx.ModelProto:
    """y = x @ DequantizeLinear(q), of blocks along the summed axis, or with a scale a column."""
    _, dtype, low, high = KINDS[kind]
    random = np.random.default_rng(depth + columns)
    shape = (depth // block, columns) if block else (columns,)
    weights = {
        "q": random.integers(low, high + 1, (depth, columns)).astype(dtype),
        "s": random.uniform(0.001, 0.01, shape).astype(np.float32),
    }
    if zero:
        weights["z"] = random.integers(low, high + 1, shape).astype(dtype)
    axis, more = (0 if block else 1), {"block_size": block} if block else {}
    if turned:
        weights = {k: np.ascontiguousarray(a.T) for k, a in weights.items()}
        axis = 1 - axis
    nodes = [helper.make_node("DequantizeLinear", list(weights), ["w"], axis=axis, **more)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", nodes[-1].output[0]], ["y"]))
    return model_of(nodes, weights, rows, depth)


def n_bits(
    bits: int, rows: int | str, depth: int, columns: int, block: int, *others: str, **more: int
) -> onnx.ModelProto:
    random = np.random.default_rng(depth)
    blocks = -(-depth // block)
    weights = {
        "q": random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": random.uniform(0.001, 0.01, columns * blocks).astype(np.float32),
        "z": random.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8),
        "floats": random.uniform(0, 15, columns * blocks).astype(np.float32),
        "order": np.zeros(depth, np.int32),
        "b": random.standard_normal(columns).astype(np.float32),
    }
    inputs = ["x", "q", "s", *others]
    sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block} | more
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", **sizes)
    kept = {k: a for k, a in weights.items() if k in inputs}
    return model_of([node], kept, rows, depth)


def reference(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What com.microsoft says of MatMulNBits, in numpy's f64."""
    (node,) = model.graph.node
    sizes = {a.name: a.i for a in node.attribute}
    depth, columns, block, bits = (sizes[k] for k in ("K", "N", "block_size", "bits"))
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    blocks, each = -(-depth // block), 8 // bits
    shifts = np.arange(each) * bits

    def unpacked(a: np.ndarray, count: int) -> np.ndarray:
        codes = a.reshape(columns, -1, 1) >> shifts & (1 << bits) - 1
        return codes.reshape(columns, -1)[:, :count].astype(np.float64)

    zeros = np.full((columns, blocks), 1 << bits - 1, np.float64)
    if "z" in weights:
        zeros = unpacked(weights["z"], blocks)
    if "floats" in weights:
        zeros = weights["floats"].reshape(columns, blocks).astype(np.float64)
    scale = weights["s"].reshape(columns, blocks).astype(np.float64)
    parts = (np.repeat(a, block, 1)[:, :depth] for a in (zeros, scale))
    zero, factor = parts
    w = (unpacked(weights["q"], blocks * block)[:, :depth] - zero) * factor
    return x.astype(np.float64) @ w.T + weights.get("b", 0)


def compacted(model: onnx.ModelProto) -> tuple[Graph, CompactAttrs | None]:
    """The graph behind the pass, and the attributes of its product if there is one."""
    graph = compact_weights(import_model(model))
    found = [n.attrs_of(CompactAttrs) for n in graph.nodes if n.op.name == "matmul_compact"]
    return graph, found[0] if found else None


def rows_of(count: int, depth: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, depth), np.float32)


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [0, 32])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_every_way_to_write_it(kind: str, block: int, zero: bool, turned: bool) -> None:
    model = dequantised(kind, 2, 128, 160, block, zero=zero, turned=turned)
    before = import_model(model)
    after, attrs = compacted(model)
    assert attrs is not None
    assert attrs.bits == (8 if kind in ("i8", "u8") else 4)
    assert attrs.block == (block or 128)
    x = rows_of(2, 128)
    (wanted,) = evaluate_graph(before, [x])
    close(evaluate_graph(after, [x])[0], wanted)
    module = tilewright.compile(model, target=HOST)
    close(module(x), wanted)
    weights = 128 * 160 * attrs.bits // 8
    assert sum(c.nbytes for c in module.program.constants) < 1.5 * weights + 1024


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("others", [(), ("z",), ("floats",), ("", "", "b"), ("z", "", "b")])
@pytest.mark.parametrize("sizes", [(1, 256, 96, 32), (3, 240, 130, 16), ("m", 512, 64, 128)])
def test_matmul_n_bits_is_what_its_domain_says(
    bits: int, others: tuple[str, ...], sizes: tuple[Any, ...]
) -> None:
    model = n_bits(bits, *sizes, *others)
    x = rows_of(3 if sizes[0] == "m" else sizes[0], sizes[1])
    wanted = reference(model, x)
    assert compacted(model)[1] is not None
    close(tilewright.compile(model, target=HOST)(x), wanted)


def test_a_last_block_that_is_not_whole() -> None:
    model = n_bits(4, 1, 250, 96, 32, "z")
    x = rows_of(1, 250)
    close(tilewright.compile(model, target=HOST)(x), reference(model, x))


def test_codes_of_2_bits_lie_four_to_a_byte() -> None:
    model = n_bits(2, 1, 256, 128, 32)
    before = import_model(model)
    after, attrs = compacted(model)
    assert attrs is not None
    assert attrs.bits == 2
    x = rows_of(1, 256)
    (wanted,) = evaluate_graph(before, [x])
    close(evaluate_graph(after, [x])[0], wanted)
    close(tilewright.compile(model, target=HOST)(x), wanted)


def test_many_rows_and_few_weights_become_floats() -> None:
    many = dequantised("i8", FEW + 1, 128, 160, 0, zero=False, turned=False)
    small = dequantised("i8", 1, 32, 32, 0, zero=False, turned=False)
    single = dequantised("i8", 1, 128, 160, 4, zero=False, turned=False)  # codes by code
    for model in (many, small, single):
        assert compacted(model)[1] is None
    free = dequantised("i8", "n", 128, 160, 0, zero=False, turned=False)
    assert compacted(free)[1] is not None


def test_floats_stay_as_they_are() -> None:
    node = helper.make_node("MatMul", ["x", "v"], ["y"])
    before = import_model(model_of([node], {"v": np.ones((128, 160), np.float32)}, 1, 128))
    assert compact_weights(before) is before


@settings(max_examples=15)
@given(st.data())
def test_random_products(data: st.DataObject) -> None:
    draw = data.draw
    bits = draw(st.sampled_from([4, 8]))
    block = draw(st.sampled_from([16, 32, 64]))
    depth = block * draw(st.integers(1, 5)) * 2
    columns = -(-(1 << 14) // depth) + draw(st.integers(0, 40))
    rows = draw(st.integers(1, FEW))
    others = draw(st.sampled_from([(), ("z",)]))
    model = n_bits(bits, rows, depth, columns, block, *others)
    x = rows_of(rows, depth)
    (wanted,) = evaluate_graph(import_model(model), [x])
    assert compacted(model)[1] is not None
    for target in (HOST, cpu.cpu("avx2")):
        close(tilewright.compile(model, target=target)(x), wanted)


ERRORS = (
    (
        {"bits": 3},
        (),
        "96 columns of 256 codes of 3 bits, in blocks of 32",
    ),
    (
        {"block_size": 64},
        (),
        "768 scales for 96 columns of 4 blocks",
    ),
    ({}, ("", "order"), "reordered weights (g_idx, weight_prepacked) are not supported"),
    (
        {"weight_prepacked": 1},
        (),
        "reordered weights (g_idx, weight_prepacked) are not supported",
    ),
)


@pytest.mark.parametrize("more, others, what", ERRORS)
def test_what_matmul_n_bits_refuses(
    more: dict[str, int], others: tuple[str, ...], what: str
) -> None:
    model = n_bits(4, 1, 256, 96, 32, *others)
    (node,) = model.graph.node
    for name, value in more.items():
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])
    with pytest.raises(tilewright.ModelError) as caught:
        import_model(model)
    where = "operator com.microsoft.MatMulNBits (node 'MatMulNBits_0', opset 1): "
    assert str(caught.value).startswith(where + what)


def test_operators_of_that_domain_that_are_not_there() -> None:
    node = helper.make_node("MatMulNBit", ["x"], ["y"], domain="com.microsoft")
    with pytest.raises(tilewright.ModelError) as caught:
        import_model(model_of([node], {}, 1, 4))
    assert str(caught.value) == (
        "operator com.microsoft.MatMulNBit (node 'MatMulNBit_0', opset 1):"
        " there is no such operator\n  hint: did you mean 'MatMulNBits'?"
    )
