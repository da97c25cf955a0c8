"""Products of bf16 in the place of f32's: which, how exact, and on which targets."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import Maker

import tilewright
from tilewright import Options
from tilewright.base.dtype import bf16, f32
from tilewright.base.passes import Recorder
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.graph import Graph
from tilewright.optimize.shorten_floats import shorten_floats
from tilewright.targets import cpu

VNNI = cpu.cpu("avx512-vnni")
SHORT = {n: cpu.cpu(n) for n in ("avx512-vnni", "neon-dot")}
MNEMONICS = {"avx512-vnni": "vdpbf16ps", "neon-dot": "bfdot"}


def product(rows: int, depth: int, columns: int) -> Graph:
    """relu(x @ w + b)."""
    m, random = Maker(), np.random.default_rng(0)
    x = m.input(rows, depth)
    w = m.constant(random.standard_normal((depth, columns), np.float32))
    b = m.constant(random.standard_normal(columns, np.float32))
    return m.graph(m.op("relu", m.op("add", m.op("matmul", x, w), b)))


def convolution(channels: int, groups: int = 1) -> Graph:
    m, random = Maker(), np.random.default_rng(0)
    x = m.input(1, channels, 9, 9)
    w = m.constant(random.standard_normal((32, channels // groups, 3, 3), np.float32))
    window = {"strides": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1), "dilations": (1, 1)}
    return m.graph(m.op("conv", x, w, **window, groups=groups))


def data_of(graph: Graph) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.standard_normal(v.shape, np.float32) for v in graph.inputs]


@pytest.mark.parametrize("graph", [product(7, 64, 50), convolution(16), convolution(4)])
def test_results_are_those_of_rounded_operands(graph: Graph) -> None:
    short = shorten_floats(graph, VNNI, bf16)
    assert {n.inputs[0].dtype for n in short.nodes if n.op.name in ("matmul", "conv")} == {bf16}
    assert short.outputs[0].dtype == f32
    inputs = data_of(graph)
    (exact,), (wanted,) = evaluate_graph(graph, inputs), evaluate_graph(short, inputs)
    deviation = np.sqrt(np.mean((wanted - exact) ** 2)) / exact.std()
    assert 1e-4 < deviation < 1e-2
    host = cpu.host(threads=1)
    if "avx512bf16" not in host.llvm.features:
        return
    found = tilewright.compile(graph, target=host, options=Options(precision="bf16"))(*inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("graph", [product(7, 64, 50), convolution(16)])
def test_code_has_the_instruction(name: str, graph: Graph) -> None:
    recorder = Recorder()
    texts = tilewright.compile(
        graph,
        target=SHORT[name],
        options=Options(precision="bf16", verify=True),
        recorder=recorder,
        until="asm",
    )
    assert any(MNEMONICS[name] in text for text in texts.values())


def test_products_that_stay() -> None:
    computed = Maker()
    x = computed.input(4, 8)
    y = computed.input(8, 6)
    for graph in (
        computed.graph(computed.op("matmul", x, y)),
        product(7, 63, 50),
        convolution(3),
        convolution(8, 8),
    ):
        assert shorten_floats(graph, VNNI, bf16) is graph


def test_targets_without_such_products() -> None:
    with pytest.raises(tilewright.CompileError) as caught:
        tilewright.compile(
            product(7, 64, 50), target=cpu.cpu("avx2"), options=Options(precision="bf16")
        )
    assert caught.value.what == (
        "cpu-avx2 has no instruction that multiplies bf16 and sums up in f32"
    )
    assert caught.value.hint == 'leave it to f32: Options(precision="f32")'


def test_other_precisions() -> None:
    with pytest.raises(tilewright.CompileError) as caught:
        tilewright.compile(product(7, 64, 50), options=Options(precision="f8"))
    assert str(caught.value) == (
        "precision is 'f8', and must be 'f32' or 'bf16'\n"
        '  hint: for example options=Options(precision="bf16")'
    )
