"""What a graph or host program must not do, and what the error says."""

import textwrap

import numpy as np
import pytest
from hypothesis import given
from strategies import graphs

from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import op_program
from tilewright.ir.expr import Buffer, Symbol, const
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ir.text.graph import parse_graph
from tilewright.ir.verify.graph import verify_graph
from tilewright.ir.verify.host import verify_host
from tilewright.ir.verify.tensor import verify_program
from tilewright.ops.common import NoAttrs
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


def error_of(verify, program) -> str:
    with pytest.raises(CompileError) as caught:
        verify(program)
    return str(caught.value)


@given(graphs(OPS))
def test_random_graphs_and_their_operators_are_legal(g):
    verify_graph(g)
    for n in g.nodes:
        if n.op.compute is not None:
            inputs = [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]
            verify_program(op_program(n.op, n.attrs, inputs))


# ---------------------------------------------------------------- graphs, as text

GRAPHS = [
    (
        """
        def g(x: f32[4]):
            y: f32[5] = relu(x, name="Relu_1")
            return y
        """,
        """
        y is f32[5], but relu gives f32[4]
          in: def g(x: f32[4]):
                  y: f32[5] = relu(x, name="Relu_1")
        """,
    ),
    (
        """
        def g(x: f32[4], z: f32[3]):
            y: f32[4] = add(x, z)
            return y
        """,
        """
        shapes [4] and [3] do not broadcast: 4 against 3
          in: def g(x: f32[4], z: f32[3]):
                  y: f32[4] = add(x, z)
        """,
    ),
    (
        """
        def g(x: f32[4]):
            y: f32[4] = add(x)
            return y
        """,
        """
        add has 1 operands, not 2 … 2
          in: def g(x: f32[4]):
                  y: f32[4] = add(x)
        """,
    ),
    (
        """
        def g(x: f32[4]):
            a, b = relu(x, types=(f32[4], f32[4]))
            return a
        """,
        """
        relu gives 1 values, not 2
          in: def g(x: f32[4]):
                  a, b = relu(x, types=(f32[4], f32[4]))
        """,
    ),
    (
        """
        def g(x: f32[4]):
            w: f32[4] = constant([1.0, 2.0])
            return x
        """,
        """
        constant w is float32[2], its type f32[4]
          in: def g(x: f32[4]):
                  ...
        """,
    ),
    (
        """
        def g(x: f32[4, 2] @ layout[0, 0]):
            return x
        """,
        """
        layout[0, 0] of x does not order its 2 axes
          in: def g(x: f32[4, 2] @ layout[0, 0]):
                  ...
        """,
    ),
    (
        """
        def g(x: f32[4, 2] @ layout[0, 1, 2:4]):
            return x
        """,
        """
        layout[0, 1, 2:4] of x cuts 4 off axis 2
          in: def g(x: f32[4, 2] @ layout[0, 1, 2:4]):
                  ...
          hint: a block is an axis of the value, and at least 2
        """,
    ),
    (
        """
        def g(x: f32[4, 2]):
            y: f32[4, 2] = relayout(x, layout=layout[1, 0])
            return y
        """,
        """
        y is f32[4, 2], but relayout gives f32[4, 2] @ layout[1, 0]
          in: def g(x: f32[4, 2]):
                  y: f32[4, 2] = relayout(x, layout=layout[1, 0])
        """,
    ),
    (
        """
        def g(x: f32[-4]):
            return x
        """,
        """
        a dimension of x is -4
          in: def g(x: f32[-4]):
                  ...
          hint: it must not be negative
        """,
    ),
    (
        """
        def g(x: f32[4]):
            def body(a: f32[4]):
                b: f32[5] = relu(a)
                return b
            y: f32[5] = call(x, body=body, name="group")
            return y
        """,
        """
        b is f32[5], but relu gives f32[4]
          while checking body of call 'group'
          in: def body(a: f32[4]):
                  b: f32[5] = relu(a)
        """,
    ),
]


@pytest.mark.parametrize("text, error", GRAPHS)
def test_graph_errors(text, error):
    assert error_of(verify_graph, parse_graph(block(text), OPS, {})) == block(error)


# ---------------------------------------------------------------- graphs that text cannot say

kind = TensorType(f32, (4,))
x, y, z = (Value(n, kind) for n in "xyz")


def op(name: str, inputs: tuple[Value, ...], *outputs: Value, **attrs) -> GraphNode:
    return GraphNode(OPS[name], OPS[name].make_attrs(**attrs), inputs, outputs)


def graph(*nodes: GraphNode, inputs=(x,), outputs=(y,), constants=None) -> Graph:
    return Graph("g", inputs, outputs, nodes, constants or {})


RELU = op("relu", (x,), y)
ODD = [
    (graph(), "output y is not defined"),
    (graph(RELU, RELU), "y is defined twice"),
    (graph(op("relu", (x,), x)), "x is defined twice"),
    (graph(op("relu", (x,), Value("x", kind))), "two values are called 'x'"),
    (graph(op("relu", (z,), y), op("relu", (x,), z)), "z is used before it is defined"),
    (graph(RELU, inputs=(x, x)), "x is defined twice"),
    (
        graph(GraphNode(OPS["clip"], NoAttrs(), (x,), (y,))),
        "clip has NoAttrs, not ClipAttrs",
    ),
    (
        graph(
            GraphNode(
                OPS["conv"],
                OPS["conv"].attrs(strides=(0,), pads_begin=(0,), pads_end=(0,), dilations=(1,)),
                (x, x),
                (y,),
            )
        ),
        "conv: attribute strides is (0,)",
    ),
    (
        graph(op("reshape", (x,), y, shape=(const(4),))),
        "attribute shape is the constant 4, not a number",
    ),
    (
        graph(
            op("add", (x, Value("w", TensorType(f32, (Symbol("n", 1),)))), y),
            inputs=(x, Value("w", TensorType(f32, (Symbol("n", 1), Symbol("n", 2))))),
        ),
        "symbol n has two bounds: 1 … None and 2 … None",
    ),
    (
        graph(RELU, constants={z: np.zeros(4, np.float64)}),
        "constant z is float64[4], its type f32[4]",
    ),
]


@pytest.mark.parametrize("g, what", ODD, ids=[what for _, what in ODD])
def test_odd_graphs(g, what):
    assert error_of(verify_graph, g).startswith(f"{what}\n  in: def g(x: f32[4]")


def test_layouts_may_be_chosen_where_the_operator_says_none():
    packed = Value("y", TensorType(f32, (4,), Layout((0,), ((0, 2),))))
    verify_graph(graph(op("relu", (x,), packed), outputs=(packed,)))


# ---------------------------------------------------------------- host programs

N16 = Arithmetic("mul", "n", 16)
HOST = HostProgram(
    "h",
    (SymbolSpec("n", 1, 8),),
    ("x",),
    ("y",),
    (
        MemorySpec("weights", "", MemoryKind.CONSTANTS, 64),
        MemorySpec("in", "", MemoryKind.INPUT, N16),
        MemorySpec("out", "", MemoryKind.OUTPUT, N16),
    ),
    (
        Slot("w", "weights", 0, f32, (4, 4)),
        Slot("x", "in", 0, f32, ("n", 4)),
        Slot("y", "out", 0, f32, ("n", 4)),
    ),
    (KernelCall("k", "cpu", ("x", "w", "y"), ("n",)),),
)


def steps(*found) -> HostProgram:
    return HOST.with_(steps=found)


HOSTS = [
    (
        steps(KernelCall("k", "cpu", ("x", "v", "y"), ("n",))),
        """
        there is no slot called 'v'
          in: def h(x):
                  call(k(x, v, y, n=n), "cpu")
          hint: known: w, x, y
        """,
    ),
    (
        steps(Copy("x", "w")),
        """
        w is written, in constants
          in: def h(x):
                  w = copy(x)
        """,
    ),
    (
        steps(Copy("w", "y")),
        """
        w is f32[4, 4], but y is f32[n, 4]
          in: def h(x):
                  y = copy(w)
          hint: a copy moves a whole slot
        """,
    ),
    (
        steps(HostCall("nonzero", "[1]", ("x",), ("y",))),
        """
        the attributes '[1]' are no JSON object
          in: def h(x):
                  y = host_call(nonzero(x), attrs="[1]")
        """,
    ),
    (
        steps(KernelCall("k", "cpu", (), ("m",))),
        """
        m is no symbol of the program
          in: def h(x):
                  call(k(m=m), "cpu")
        """,
    ),
    (
        HOST.with_(memories=HOST.memories[1:]),
        """
        there is no memory called 'weights'
          in: def h(x):
                  w: f32[4, 4] = weights[0]
          hint: known: in, out
        """,
    ),
    (
        HOST.with_(slots=(HOST.slots[0].with_(offset=16), *HOST.slots[1:])),
        """
        slot w ends at 80, beyond the 64 bytes of weights
          in: def h(x):
                  w: f32[4, 4] = weights[16]
        """,
    ),
    (
        HOST.with_(slots=(*HOST.slots, HOST.slots[0])),
        """
        slot w stands twice
          in: def h(x):
                  w: f32[4, 4] = weights[0]
        """,
    ),
    (
        HOST.with_(memories=(*HOST.memories, MemorySpec("more", "", MemoryKind.OUTPUT, "k"))),
        """
        the size is k, and k is no symbol of the program
          in: def h(x):
                  more = memory("output", "", k)
        """,
    ),
    (
        HOST.with_(outputs=("z",)),
        """
        there is no slot called 'z'
          in: def h(x):
                  ...
          hint: known: w, x, y
        """,
    ),
]


@pytest.mark.parametrize("program, error", HOSTS)
def test_host_errors(program, error):
    assert error_of(verify_host, program) == block(error)


def test_a_host_program_that_is_right():
    verify_host(HOST)
