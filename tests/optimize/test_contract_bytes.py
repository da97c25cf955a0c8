"""Contractions of bytes: quantised convolutions and products are done with products of bytes that a
processor has, with any types, zero points, scales, padding and groups, and give what the
model means: integers to the bit, floats to a rounding."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.assemble import target_facts
from tilewright.base.dtype import i8, i16, u8
from tilewright.base.passes import Recorder
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.graph import Graph, GraphNode
from tilewright.ops.function import CALL, CallAttrs
from tilewright.runtime.processor import runs_here
from tilewright.target.target import Target
from tilewright.targets import cpu

HOST = cpu.host(threads=1)
LEVELS = ["avx512-vnni", "neon-dot"]  # with products of u8 by i8
SHORT = ["sse2", "avx2", "avx512", "neon", "rvv"]  # with products of i16 alone
KINDS = {"u8": np.uint8, "i8": np.int8}
ONNX = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}


@dataclass(frozen=True)
class Case:
    """A quantised convolution, or product of matrices where `window` is None."""

    data: str = "u8"
    zero: int = 3
    weight_zero: int = 0
    channels: int = 8
    filters: int = 20
    window: tuple[int, ...] | None = (3, 3)
    size: int = 9
    pads: int = 1
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    scales: int = 20  # of the weights: one for each filter, or 1


def arrays(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Data of all bytes; weights that are bytes without a small zero point as well."""
    rng = np.random.default_rng(seed)
    most = 127 - abs(case.weight_zero) if abs(case.weight_zero) < 50 else 127
    kind = KINDS[case.data]
    low, high = np.iinfo(kind).min, np.iinfo(kind).max + 1
    if case.window is None:
        x = rng.integers(low, high, (2, case.size, case.channels))
        shape: tuple[int, ...] = (case.channels, case.filters)
        return x.astype(kind), rng.integers(-most, most, shape, np.int8, endpoint=True)
    x = rng.integers(low, high, (1, case.channels, *[case.size] * len(case.window)))
    shape = (case.filters, case.channels // case.groups, *case.window)
    return x.astype(kind), rng.integers(-most, most, shape, np.int8, endpoint=True)


def attributes(case: Case) -> dict[str, object]:
    if case.window is None:
        return {}
    rank = len(case.window)
    return {
        "pads": [case.pads] * (2 * rank),
        "strides": [case.stride] * rank,
        "dilations": [case.dilation] * rank,
        "group": case.groups,
    }


def qdq(case: Case) -> onnx.ModelProto:
    """DequantizeLinear of both, and their contraction in f32."""
    x, w = arrays(case)
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.01, 0.1, case.scales if case.scales > 1 else ()).astype(np.float32)
    zeros = np.full(scales.shape, case.weight_zero, np.int8)
    axis = 0 if case.window else 1
    contraction = "Conv" if case.window else "MatMul"
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "step", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "scales", "zeros"], ["b"], axis=axis),
        helper.make_node(contraction, ["a", "b"], ["y"], **attributes(case)),
    ]
    constants = {
        "step": np.float32(0.03),
        "zero": np.array(case.zero, KINDS[case.data]),
        "w": w,
        "scales": scales,
        "zeros": zeros,
    }
    return model(nodes, {"x": x}, constants, TensorProto.FLOAT)


def integer(case: Case) -> onnx.ModelProto:
    """ConvInteger or MatMulInteger."""
    x, w = arrays(case)
    op = "ConvInteger" if case.window else "MatMulInteger"
    nodes = [helper.make_node(op, ["x", "w", "zero", "zeros"], ["y"], **attributes(case))]
    constants = {
        "w": w,
        "zero": np.array(case.zero, KINDS[case.data]),
        "zeros": np.array(case.weight_zero, np.int8),
    }
    return model(nodes, {"x": x}, constants, TensorProto.INT32)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    result: int,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "quantised",
        [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for k, a in inputs.items()
        ],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(np.asarray(a), k) for k, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def contractions(graph: Graph) -> list[GraphNode]:
    """Those of the bodies of calls."""
    found: list[GraphNode] = []
    for n in graph.nodes:
        if n.op is CALL:
            found += contractions(n.attrs_of(CallAttrs).body)
        elif n.op.name in ("conv", "matmul"):
            found.append(n)
    return found


def of_bytes(source: onnx.ModelProto, target: Target = HOST) -> bool:
    """Whether all contractions of the optimized model multiply u8 by i8, and there are some."""
    optimized = tilewright.compile(source, target=target, until="optimized")
    assert isinstance(optimized, Graph)
    found = contractions(optimized)
    assert found
    return all([v.dtype for v in n.inputs] == [u8, i8] for n in found)


def check(source: onnx.ModelProto, x: np.ndarray, *, exact: bool, target: Target = HOST) -> None:
    """The compiled model gives what the evaluator does."""
    graph = tilewright.compile(source, until="graph")
    assert isinstance(graph, Graph)
    (wanted,) = evaluate_graph(graph, [x])
    found = tilewright.compile(source, target=target)(x)
    assert found.dtype == wanted.dtype
    if exact:
        np.testing.assert_array_equal(found, wanted)
    else:
        atol = 2e-6 * float(np.abs(wanted).max(initial=0))
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=atol)


CASES = [
    Case(),
    Case(data="i8", zero=-5),
    Case(zero=0, scales=1),
    Case(weight_zero=2, channels=6),
    Case(channels=3, filters=16, window=(7, 7), size=23, pads=3, stride=2, scales=16),
    Case(channels=48, filters=40, window=(1, 1), pads=0, scales=40),
    Case(channels=16, filters=16, groups=16, scales=16),
    Case(channels=32, filters=32, groups=32, scales=32, stride=2, size=11),
    Case(data="i8", channels=16, filters=16, groups=16, window=(5, 5), pads=2, scales=16),
    Case(channels=16, filters=16, groups=16, window=(4, 4), pads=0, scales=16),
    Case(channels=16, filters=16, groups=16, window=(9,), size=40, pads=4, scales=16),
    Case(channels=16, filters=16, groups=16, window=(2, 3, 3), size=6, scales=16),
    Case(channels=16, filters=16, groups=16, dilation=2, scales=16),
    Case(channels=12, filters=12, groups=12, scales=12),
    Case(data="i8", channels=16, filters=32, groups=4, scales=32),
    Case(channels=48, filters=96, groups=6, scales=96),
    Case(channels=24, filters=24, groups=12, scales=24),
    Case(data="i8", channels=32, filters=64, groups=2, window=(1, 1), pads=0, scales=64),
    Case(channels=5, filters=7, window=(5,), size=31, pads=2, dilation=2, scales=7),
    Case(channels=8, filters=16, window=(3, 3, 3), size=6, scales=16),
    Case(window=None, channels=32, filters=100, size=13, scales=100),
    Case(window=None, channels=30, filters=5, size=1, scales=1),
    Case(window=None, channels=4, filters=40_000, size=1, scales=40_000),
    Case(data="i8", zero=7, window=None, channels=64, filters=64, size=9, scales=64),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_floats(case: Case):
    check(qdq(case), arrays(case)[0], exact=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", [c for c in CASES if c.scales == 1 or c.window], ids=str)
def test_integers(case: Case):
    check(integer(case), arrays(case)[0], exact=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_they_multiply_bytes(case: Case, level: str):
    for source in (qdq(case), integer(case)):
        target = cpu.cpu(level)
        if level == "neon-dot" and case.data == "i8":  # which multiplies i8 by i8 as well
            optimized = tilewright.compile(source, target=target, until="optimized")
            assert all([v.dtype for v in n.inputs] == [i8, i8] for n in contractions(optimized))
        else:
            assert of_bytes(source, target)


@pytest.mark.parametrize("case", [c for c in CASES if c.groups == 1], ids=str)
def test_they_use_the_instruction(case: Case):
    """The scheduled kernel calls it, and nothing multiplies beside it."""
    for level, names in ("avx512-vnni", ["vpdpbusd"]), ("neon-dot", ["usdot", "sdot"]):
        done = tilewright.compile(qdq(case), target=level, until="scheduled")
        shown = "\n".join(s.show() for s in done.values())
        assert any(f" {name}(" in shown for name in names), shown
        assert "cast(i32, x1[" not in shown


GROUPS = {  # columns in a group, steps in it: how many of 12 groups are taken as one
    (16, 4): 1,
    (32, 16): 1,
    (8, 8): 2,
    (24, 8): 2,
    (4, 4): 4,
    (4, 1): 4,
    (16, 3): 4,
    (12, 12): 4,
    (5, 4): None,  # never whole vectors
    (2, 2): None,  # sixteen divided by two is no divisor of twelve, and more than is worth it
}


@pytest.mark.parametrize("columns, steps", GROUPS)
def test_groups_are_taken_together_until_they_fill_vectors(columns: int, steps: int):
    case = Case(channels=12 * steps, filters=12 * columns, groups=12, scales=1)
    done = tilewright.compile(integer(case), target="avx512-vnni", until="optimized")
    found = contractions(done)
    together = GROUPS[columns, steps]
    assert [n.attrs.groups for n in found] == [12 // (together or 1)]
    shown = tilewright.compile(integer(case), target="avx512-vnni", until="scheduled")
    calls = any("vpdpbusd(" in s.show() for s in shown.values())
    assert calls == (together is not None)
    check(integer(case), arrays(case)[0], exact=True)


DEPTHWISE = [c for c in CASES if c.groups == c.filters == c.channels]


@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_channels_of_their_own_use_it_as_well(case: Case):
    """Where all lanes have a channel, and what they add up are neighbours."""
    for level, names in ("avx512-vnni", ["vpdpbusd"]), ("neon-dot", ["usdot", "sdot"]):
        done = tilewright.compile(qdq(case), target=level, until="scheduled")
        shown = "\n".join(s.show() for s in done.values())
        lanes = 16 if level == "avx512-vnni" else 4
        fits = case.dilation == 1 and case.channels % lanes == 0
        assert any(f" {name}_rows(" in shown for name in names) == fits, shown
        assert all(s.fallback == "" for s in done.values())


@pytest.mark.parametrize("level", SHORT)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_they_multiply_short_integers(case: Case, level: str):
    for source in (qdq(case), integer(case)):
        optimized = tilewright.compile(source, target=level, until="optimized")
        found = contractions(optimized)
        assert found
        assert all([v.dtype for v in n.inputs] == [i16, i16] for n in found)


def without(target: Target, *names: str) -> Target:
    kept = tuple(i for i in target.instructions if i.name not in names)
    assert len(kept) == len(target.instructions) - len(names)
    return replace(target, instructions=kept)


def name_of(target: Target) -> str:
    return target.name


SIGNED = without(cpu.cpu("neon-dot"), "usdot", "udot")  # i8 by i8 alone, as older processors have
NONE = without(cpu.cpu("avx2"), "pmaddwd")


@pytest.mark.parametrize("case", [c for c in CASES if c.scales == 1 or c.window], ids=str)
@pytest.mark.parametrize("target", [SIGNED, *map(cpu.cpu, LEVELS + SHORT)], ids=name_of)
def test_what_targets_are_given(case: Case, target: Target):
    """The graph with contractions of a target's types means the same."""
    x = arrays(case)[0]
    recorder = Recorder()
    tilewright.compile(integer(case), target=target, until="optimized", recorder=recorder)
    graphs = [s.program for s in recorder.steps if isinstance(s.program, Graph)]
    plain = [g for g in graphs if not any(v.type.layout for n in g.nodes for v in n.outputs)]
    (wanted,), (found,) = (evaluate_graph(g, [x]) for g in (plain[0], plain[-1]))
    np.testing.assert_array_equal(found, wanted)
    kinds = {tuple(v.dtype for v in n.inputs) for n in contractions(plain[-1])}
    assert kinds
    assert kinds <= {(u8, i8), (i8, i8), (i16, i16)}


def test_u8_are_kept_as_i8_where_only_these_are_multiplied():
    optimized = tilewright.compile(integer(Case()), target=SIGNED, until="optimized")
    assert all([v.dtype for v in n.inputs] == [i8, i8] for n in contractions(optimized))


def test_targets_without_any_keep_floats():
    optimized = tilewright.compile(qdq(Case()), target=NONE, until="optimized")
    assert not any(v.dtype.is_integer for n in contractions(optimized) for v in n.inputs)


LESSER = map(cpu.cpu, ("sse2", "avx2", "avx2-vnni", "avx512", "neon"))
HERE = [t for t in LESSER if runs_here(target_facts(t))]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", HERE, ids=name_of)
def test_lesser_levels(case: Case, target: Target):
    """What can be run here, of the levels below."""
    check(qdq(case), arrays(case)[0], exact=False, target=target)
    check(integer(case), arrays(case)[0], exact=True, target=target)


@pytest.mark.parametrize("level, name", [("sse2", "pmaddwd"), ("avx2", "vpmaddwd")])
def test_they_use_products_of_pairs(level: str, name: str):
    """The innermost loop multiplies pairs, and does nothing else with them than add."""
    done = tilewright.compile(qdq(Case()), target=level, until="asm")
    text = "\n".join(done.values())
    assert re.search(rf"\s{name}\s", text)
    assert not re.search(r"pmulld|pmullw|mulps", text.split("pmaddwd")[1])


def test_weights_that_do_not_fit():
    """A zero point that leaves numbers beyond i8: floats, and right."""
    case = Case(weight_zero=100)
    assert not of_bytes(qdq(case), cpu.cpu("avx512-vnni"))
    check(qdq(case), arrays(case)[0], exact=False)
    check(integer(case), arrays(case)[0], exact=True)


@pytest.mark.parametrize(
    "step, scale", [(1e30, 1e10), (1e-25, 1e-20), (1e38, 1e-38), (1e-40, 0.02)]
)
def test_scales_whose_product_is_beyond_f32(step: float, scale: float):
    case = Case(window=None, channels=8, filters=4, size=3, scales=1)
    source = qdq(case)
    for t in source.graph.initializer:
        if t.name in ("step", "scales"):
            number = np.array(step if t.name == "step" else scale, np.float32)
            t.CopyFrom(numpy_helper.from_array(number, t.name))
    assert not of_bytes(source, cpu.cpu("avx512-vnni"))


def test_sums_that_could_overflow():
    """So many products that i32 might not hold their sum stay as they are."""
    case = Case(window=None, channels=70_000, filters=1, size=1, scales=1)
    x, _ = arrays(case)
    source = integer(case)
    for t in source.graph.initializer:
        if t.name == "w":
            t.CopyFrom(numpy_helper.from_array(np.full((70_000, 1), 127, np.int8), "w"))
    assert not of_bytes(source, cpu.cpu("avx512-vnni"))
    check(source, x, exact=True)


def test_a_computed_zero_point():
    """DynamicQuantizeLinear, MatMulInteger, and the scales behind it."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((7, 40)).astype(np.float32)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "step", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "step"], ["y"]),
    ]
    weights = rng.integers(-128, 128, (40, 33), np.int8)
    source = model(nodes, {"x": x}, {"w": weights}, TensorProto.FLOAT)
    assert of_bytes(source, cpu.cpu("avx512-vnni"))
    check(source, x, exact=False)


def test_qlinear():
    """QLinearConv with a bias and QLinearMatMul, to the bit."""
    case = Case(channels=16, filters=24, scales=24)
    x, w = arrays(case)
    rng = np.random.default_rng(4)
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(120),
        "w": w,
        "w_scale": rng.uniform(0.001, 0.01, 24).astype(np.float32),
        "w_zero": np.zeros(24, np.int8),
        "y_scale": np.float32(0.5),
        "y_zero": np.uint8(7),
        "bias": rng.integers(-9999, 9999, 24, np.int32),
    }
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "bias"]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1])
    source = model([node], {"x": x}, constants, TensorProto.UINT8)
    assert of_bytes(source, cpu.cpu("avx512-vnni"))
    check(source, x, exact=True)


def test_bytes_read_twice():
    """i8 that a contraction and an addition read: kept once, as u8."""
    case = Case(data="i8", zero=-9, channels=16, filters=16, window=(1, 1), pads=0, scales=16)
    source = qdq(case)
    source.graph.node[-1].output[0] = "c"
    source.graph.node.append(helper.make_node("Add", ["c", "a"], ["y"]))
    check(source, arrays(case)[0], exact=False)


def test_a_transposed_weight():
    """Gemm with transB, and a scale for each row of what it transposes."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 256, (5, 24), np.uint8)
    constants = {
        "step": np.float32(0.1),
        "zero": np.uint8(128),
        "w": rng.integers(-128, 128, (10, 24), np.int8),
        "scales": rng.uniform(0.01, 0.1, 10).astype(np.float32),
        "bias": rng.standard_normal(10).astype(np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "step", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "scales"], ["b"], axis=0),
        helper.make_node("Gemm", ["a", "b", "bias"], ["y"], transB=1),
    ]
    source = model(nodes, {"x": x}, constants, TensorProto.FLOAT)
    assert of_bytes(source, cpu.cpu("avx512-vnni"))
    check(source, x, exact=False)


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(0, 3))
    groups = draw(st.sampled_from([1, 1, 1, 2, 4, 16, 32])) if rank else 1
    most = 24 if groups < 16 else draw(st.sampled_from([1, 1, 2]))
    channels = groups * draw(st.integers(1, most))
    filters = groups * draw(st.integers(1, most))
    data = draw(st.sampled_from(list(KINDS)))
    low = np.iinfo(KINDS[data]).min
    window = tuple(draw(st.integers(1, 4)) for _ in range(rank)) if rank else None
    return Case(
        data=data,
        zero=low + draw(st.integers(0, 255)),
        weight_zero=draw(st.sampled_from([0, 0, 1, -1, 40])),
        channels=channels,
        filters=filters,
        window=window,
        size=draw(st.integers(7, 12 if rank < 3 else 8)),
        pads=draw(st.integers(0, 2)),
        stride=draw(st.integers(1, 3)),
        dilation=draw(st.integers(1, 2)),
        groups=groups,
        scales=draw(st.sampled_from([1, filters])),
    )


@settings(max_examples=12, deadline=None)
@given(random_cases())
def test_random(case: Case):
    check(qdq(case), arrays(case)[0], exact=False)
    check(integer(case), arrays(case)[0], exact=True)


def test_pass_by_pass():
    """Each graph pass keeps what the model means."""
    case = Case(data="i8", zero=-5, channels=7, filters=20)
    x = arrays(case)[0]
    recorder = Recorder()
    tilewright.compile(integer(case), target=HOST, recorder=recorder)
    graphs = [s.program for s in recorder.steps if isinstance(s.program, Graph)]
    (wanted,) = evaluate_graph(graphs[0], [x])
    plain = [g for g in graphs if not any(v.type.layout for n in g.nodes for v in n.outputs)]
    assert len(plain) > 1
    for graph in plain:
        np.testing.assert_array_equal(evaluate_graph(graph, [x])[0], wanted)
