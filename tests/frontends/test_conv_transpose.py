"""Transposed convolutions by phases, where the weights are known, against those of an input with
zeros between its elements, where they are not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.ir.evaluate import evaluate_graph


def model(
    w: np.ndarray, sizes: tuple[int, ...], *, known: bool, symbolic: bool = False, **attrs: object
) -> onnx.ModelProto:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attrs)
    shape = (2, w.shape[0], *((f"n{i}" for i in range(len(sizes))) if symbolic else sizes))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if not known:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, w.shape))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(w, "w")] if known else []
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def ops(graph: object) -> set[str]:
    return {n.op.name for n in graph.nodes}  # type: ignore[attr-defined]


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], dict]:
    rank = draw(st.integers(1, 2))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel, strides, sizes = each(1, 5), each(1, 4), each(1, 5)
    dilations = [draw(st.integers(1, 2)) if s == 1 else 1 for s in strides]
    extra = [draw(st.integers(0, s - 1)) for s in strides]
    pads = []
    for n, s, k, d, e in zip(sizes, strides, kernel, dilations, extra, strict=True):
        most = (n - 1) * s + (k - 1) * d + e  # that leaves an element
        begin = draw(st.integers(0, min(most, 4)))
        pads.append((begin, draw(st.integers(0, min(most - begin, 4)))))
    attrs = {
        "strides": strides,
        "dilations": dilations,
        "output_padding": extra,
        "pads": [p[0] for p in pads] + [p[1] for p in pads],
        "group": groups,
    }
    shape = (groups * draw(st.integers(1, 2)), draw(st.integers(1, 2)), *kernel)
    w = np.random.default_rng(draw(st.integers(0, 99))).integers(-4, 5, shape)
    return w.astype(np.float32), tuple(sizes), attrs


@settings(max_examples=150, deadline=None)
@given(case=cases(), symbolic=st.booleans())
def test_phases_are_what_the_definition_says(case, symbolic: bool):
    w, sizes, attrs = case
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (2, w.shape[0], *sizes)).astype(np.float32)
    apart = tw.compile(model(w, sizes, known=True, symbolic=symbolic, **attrs), until="graph")
    whole = tw.compile(model(w, sizes, known=False, **attrs), until="graph")
    if max(attrs["strides"]) > 1 and (attrs["group"] == 1 or np.prod(attrs["strides"]) <= 8):
        assert "dilate" not in ops(apart)
    np.testing.assert_array_equal(evaluate_graph(apart, [x])[0], evaluate_graph(whole, [x, w])[0])


@pytest.mark.parametrize("stride, kernel", [(2, 2), (2, 4), (3, 3), (32, 64)])
def test_channels_of_their_own_are_one_convolution(stride: int, kernel: int):
    """Which learned upsampling is: its phases are channels, as many as it takes."""
    rng = np.random.default_rng(0)
    w = rng.integers(-4, 5, (5, 2, kernel, kernel)).astype(np.float32)
    made = model(w, (6, 3), known=True, strides=[stride] * 2, group=5)
    graph = tw.compile(made, until="graph")
    assert [n.op.name for n in graph.nodes].count("conv") == 1
    assert not {"concat", "dilate"} & ops(graph)
    x = rng.integers(-4, 5, (2, 5, 6, 3)).astype(np.float32)
    np.testing.assert_array_equal(tw.compile(made)(x), evaluate_graph(graph, [x])[0])


@pytest.mark.parametrize("stride, kernel", [(2, 4), (2, 3), (4, 4), (3, 2)])
def test_compiled(stride: int, kernel: int):
    rng = np.random.default_rng(0)
    w = rng.integers(-4, 5, (8, 6, kernel, kernel)).astype(np.float32)
    x = rng.integers(-4, 5, (2, 8, 7, 9)).astype(np.float32)
    made = model(w, (7, 9), known=True, strides=[stride] * 2, pads=[1, 0, 0, 1])
    wanted = evaluate_graph(tw.compile(made, until="graph"), [x])[0]
    np.testing.assert_array_equal(tw.compile(made)(x), wanted)


def test_channels_that_do_not_divide_into_groups():
    made = model(np.ones((3, 2, 3), np.float32), (5,), known=True, group=2, strides=[2])
    with pytest.raises(tw.TilewrightError, match="3 input channels do not divide into 2 groups"):
        tw.compile(made, until="graph")
