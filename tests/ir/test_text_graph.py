"""Graphs and host programs as text: what prints parses, and prints the same again."""

import textwrap

import numpy as np
import pytest
from hypothesis import given
from strategies import graphs

from tilewright.base.dtype import bf16, bool_, f32, i4, i64
from tilewright.ir.expr import Symbol
from tilewright.ir.graph import Graph, GraphNode, Value, format_attr, large_constants
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.text.graph import parse_graph
from tilewright.ir.text.host import parse_host
from tilewright.ir.verify.graph import verify_graph
from tilewright.ir.verify.host import verify_host
from tilewright.ops.table import OPS
from tilewright.program.host_program import (
    Copy,
    HostCall,
    HostProgram,
    KernelCall,
    MemoryKind,
    MemorySpec,
    Slot,
    SymbolSpec,
)
from tilewright.program.size import Arithmetic


def block(text: str) -> str:
    return textwrap.dedent(text).strip()


def read(text: str, **constants: np.ndarray) -> Graph:
    return parse_graph(block(text), OPS, constants)


def op(name: str, inputs: tuple[Value, ...], output: Value, **attrs) -> GraphNode:
    return GraphNode(OPS[name], OPS[name].make_attrs(**attrs), inputs, (output,))


@given(graphs(OPS))
def test_every_graph_parses_back(g):
    again = parse_graph(str(g), OPS, large_constants(g))
    assert str(again) == str(g)
    for before, after in zip(g.nodes, again.nodes, strict=True):
        assert (before.op, before.name, before.device) == (after.op, after.name, after.device)
        assert format_attr(tuple(v for _, v in before.attrs.items())) == format_attr(
            tuple(v for _, v in after.attrs.items())
        )
    verify_graph(again)


GRAPHS = [
    """
    def mobile(image: f32[n, 3, 224, 224]):
        n = symbol(1, 16)
        bias: f32[2, 1, 1] = constant([[[0.1]], [[-inf]]])
        low: f32[()] = constant(0.0)
        scale: bf16[2] = constant([0.1, nan])
        flags: bool[3] = constant([True, False, True])
        none: i64[0, 4] = constant([])
        y: f32[n, 3, 224, 224] @ layout[0, 2, 3, 1, 1:16] = relu(image, name="Relu_0", device="cpu")
        z: f32[n, 3, 224, 224] = clip(y, low=0.0, high=6.0, name="a \\"b\\"")
        return z, y
    """,
    """
    def parts(x: f32[4, n + 1]):
        n = symbol(0)
        values, places = top_k(x, k=2, axis=0, types=(f32[2, n + 1], i64[2, n + 1]))
        to: i32[2, n + 1] = cast(values, to=i32)
        grown: i32[2, 2 * n + 2] = tile(to, repeats=(1, 2))
        made: f32[n * 3] = full(shape=(n * 3,), dtype=f32)
        return grown, places, made
    """,
    """
    def nothing():
        return
    """,
]


@pytest.mark.parametrize("text", GRAPHS)
def test_graph_text(text):
    assert str(read(text)) == block(text)


def test_large_constants_stay_out_of_the_text():
    x, w = (Value(n, TensorType(f32, (3, 3))) for n in "xw")
    y = Value("y", TensorType(f32, (3, 3)))
    array = np.arange(9, dtype=np.float32).reshape(3, 3)
    g = Graph("g", (x,), (y,), (op("add", (x, w), y),), {w: array})
    assert str(g) == block(
        """
        def g(x: f32[3, 3]):
            w: f32[3, 3] = constant()
            y: f32[3, 3] = add(x, w)
            return y
        """
    )
    known = large_constants(g)
    assert list(known) == ["w"]
    again = parse_graph(str(g), OPS, known)
    assert next(iter(again.constants.values())) is array


def test_graphs_within_graphs():
    """Groups that share a name, with constants of their own, called what is taken outside."""
    kind = TensorType(f32, (3, 3))

    def group(value: float) -> Graph:
        a, w, b = (Value(n, kind) for n in "awb")
        array = np.full((3, 3), value, np.float32)
        return Graph("and", (a,), (b,), (op("add", (a, w), b),), {w: array})

    x, y, z = (Value(n, kind) for n in "xyz")
    calls = (op("call", (x,), y, body=group(1)), op("call", (y,), z, body=group(2)))
    g = Graph("g", (x,), (z,), calls, {})
    assert str(g) == block(
        """
        def g(x: f32[3, 3]):
            def and_(a: f32[3, 3]):
                w: f32[3, 3] = constant()
                b: f32[3, 3] = add(a, w)
                return b
            y: f32[3, 3] = call(x, body=and_)
            def and_(a: f32[3, 3]):
                w: f32[3, 3] = constant()
                b: f32[3, 3] = add(a, w)
                return b
            z: f32[3, 3] = call(y, body=and_)
            return z
        """
    )
    known = large_constants(g)
    assert {k: a[0, 0] for k, a in known.items()} == {"y.body.w": 1, "z.body.w": 2}
    again = parse_graph(str(g), OPS, known)
    assert str(again) == str(g)
    for before, after in zip(g.nodes, again.nodes, strict=True):
        assert after.attrs.body.name == "and"
        (left,), (right,) = (
            before.attrs.body.constants.values(),
            after.attrs.body.constants.values(),
        )
        assert left is right


ATTRIBUTES = [
    (3, "3"),
    (-3, "-3"),
    (True, "True"),
    (None, "None"),
    (0.1, "0.1"),
    (float("-inf"), "-inf"),
    (float("nan"), "nan"),
    (-0.0, "-0.0"),
    (np.float32(0.5), "0.5"),
    (np.int64(7), "7"),
    ("a 'b' \"c\"\n", "'a \\'b\\' \"c\"\\n'"),
    ("plain", '"plain"'),
    ((), "()"),
    ((1,), "(1,)"),
    ((1, (2.0, "x")), '(1, (2.0, "x"))'),
    (bool_, "bool"),
    (Layout((1, 0), ((1, 16), (0, 2))), "layout[1, 0, 1:16, 0:2]"),
    (Layout(()), "layout[()]"),
    (Layout((0,)), "layout[0]"),
    (TensorType(bf16, ()), "bf16[()]"),
    (TensorType(f32, (2, 3), Layout((0, 1))), "f32[2, 3] @ layout[0, 1]"),
    (Symbol("n") * 2 + 1, "n * 2 + 1"),
    (Symbol("f32") - 1, "f32_ - 1"),
    (np.array([[1.5, np.nan]], np.float32), "array([[1.5, nan]], f32)"),
    (np.array([-8, 7], i4.numpy), "array([-8, 7], i4)"),
    (np.zeros((0, 3), np.int64), "array([], i64, (0, 3))"),
]


@pytest.mark.parametrize("value, text", ATTRIBUTES, ids=[t for _, t in ATTRIBUTES])
def test_attribute_values(value, text):
    """Whatever an attribute may hold stands in text as a Python expression."""
    assert format_attr(value) == text
    # `pad` declares no limits for its `value`, so it takes anything here.
    source = f"""
        def g(x: f32[n]):
            n = symbol(1)
            f32_ = symbol(1)
            y: f32[n] = pad(x, before=(0,), after=(0,), value={text}, name="p")
            return y
    """
    found = read(source).nodes[0].attrs.value
    assert format_attr(found) == text
    if not isinstance(value, (np.ndarray, np.generic, float)):
        assert found == value
        assert type(found) is type(value)


def test_no_operator_has_an_attribute_that_text_uses_for_itself():
    for operator in OPS.values():
        assert not {"name", "device", "types"} & set(operator.attrs.keys()), operator


# ---------------------------------------------------------------- host programs

HOST = HostProgram(
    "resnet",
    (SymbolSpec("n", 1, 8),),
    ("image/0",),
    ("y",),
    (
        MemorySpec("weights", "", MemoryKind.CONSTANTS, 4096),
        MemorySpec("arena", "gpu", MemoryKind.ARENA, Arithmetic("mul", "n", 1024)),
        MemorySpec("image/0", "", MemoryKind.INPUT, Arithmetic("mul", "n", 12)),
        MemorySpec("y", "", MemoryKind.OUTPUT, Arithmetic("mul", "n", 12)),
    ),
    (
        Slot("w", "weights", 0, f32, (4, 3)),
        Slot("image/0", "image/0", 0, f32, ("n", 3)),
        Slot("h", "arena", Arithmetic("mul", "n", 512), f32, ("n", 3)),
        Slot("y", "y", 0, f32, ("n", 3)),
        Slot("and", "arena", 64, i64, ()),
    ),
    (
        KernelCall("conv_relu", "gpu", ("image/0", "w", "h"), ("n",), ("Conv_0", "Relu/1")),
        Copy("h", "y"),
        HostCall("nonzero", "{}", ("y",), ("and",), ("N",)),
        HostCall("not", "{}", ("y",), ()),
        HostCall("top_k", '{"k":1}', ("h",), ("y", "h")),
    ),
    ("probabilities",),
)


def test_host_text():
    verify_host(HOST)
    assert str(HOST) == block(
        """
        def resnet(image_x2f_0):
            n = symbol(1, 8)
            weights = memory("constants", "", 4096)
            arena = memory("arena", "gpu", n * 1024)
            image_x2f_0 = memory("input", "", n * 12)
            y = memory("output", "", n * 12)
            w: f32[4, 3] = weights[0]
            image_x2f_0: f32[n, 3] = image_x2f_0[0]
            h: f32[n, 3] = arena[n * 512]
            y: f32[n, 3] = y[0]
            and_: i64[()] = arena[64]
            call(conv_relu(image_x2f_0, w, h, n=n), "gpu", nodes=["Conv_0", "Relu/1"])
            y = copy(h)
            and_ = host_call(nonzero(y), nodes=["N"])
            host_call(not_(y))
            y, h = host_call(top_k(h), attrs="{\\"k\\":1}")
            return named(y, "probabilities")
        """
    )
    assert parse_host(str(HOST)) == HOST


def test_an_empty_host_program():
    empty = HostProgram("h", (), (), (), (), (), ())
    assert str(empty) == "def h():\n    return"
    assert parse_host(str(empty)) == empty
