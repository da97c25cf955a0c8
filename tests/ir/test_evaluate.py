"""Two definitions of one meaning: tensor programs evaluated by numpy, and their loops run one
iteration at a time."""

import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arrays, graphs, kernels, same, symbol_values, tensor_programs

from tilewright.base.dtype import bf16, f16, f32, i32, i64
from tilewright.base.errors import CompileError
from tilewright.ir import evaluate as evaluate_module
from tilewright.ir.evaluate import (
    evaluate_dim,
    evaluate_graph,
    evaluate_program,
    evaluate_steps,
    op_program,
)
from tilewright.ir.expr import BinaryOp, Buffer, Symbol, const
from tilewright.ir.graph import Graph, GraphNode, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.loop import symbols
from tilewright.ir.tensor import Builder, TensorProgram
from tilewright.ir.tensor_type import TensorType
from tilewright.ir.text.loop import parse_kernel
from tilewright.ir.text.tensor import parse_program
from tilewright.ops.table import OPS
from tilewright.plan.create_loops import create_loops


def block(text: str) -> str:
    return textwrap.dedent(text).strip()


def check_loops_agree(p: TensorProgram, data: st.DataObject) -> None:
    values = data.draw(symbol_values(symbols(p)))
    inputs = data.draw(arrays(p.inputs, values))
    wanted = evaluate_program(p, inputs, values)
    found = interpret(create_loops(p), inputs, values)
    for buffer, a, b in zip(p.outputs, wanted, found, strict=True):
        assert a.shape == tuple(evaluate_dim(d, values) for d in buffer.shape)
        assert a.dtype == buffer.dtype.numpy
        assert same(a, b), f"{buffer.name}: {a} and {b}"


@given(tensor_programs(), st.data())
def test_loops_mean_what_the_tensor_program_means(p, data):
    check_loops_agree(p, data)


@given(tensor_programs(parts=1), st.data())
def test_reductions_in_steps_mean_the_same(p, data):
    """When an intermediate would be too large, reductions are stepped through."""
    before, evaluate_module.CHUNK = evaluate_module.CHUNK, 4
    try:
        check_loops_agree(p, data)
    finally:
        evaluate_module.CHUNK = before


@given(kernels(), st.data())
def test_random_kernels_are_well_defined(k, data):
    """They read nothing before it is written (it would be NaN) and stay inside their buffers."""
    values = data.draw(symbol_values(symbols(k)))
    for found in interpret(k, data.draw(arrays(k.inputs, values)), values):
        assert not np.any(found != found)


@given(graphs(OPS, nodes=3), st.data())
def test_every_operator_means_what_its_loops_mean(g, data):
    values = data.draw(symbol_values(g.symbols()))
    known = dict(zip(g.inputs, data.draw(arrays(g.inputs, values)), strict=True)) | g.constants
    for n, results in evaluate_steps(g, known, values):
        if n.op.compute is None:
            continue
        inputs = [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]
        loops = create_loops(op_program(n.op, n.attrs, inputs))
        found = interpret(loops, [known[v] for v in n.inputs], values)
        for a, b in zip(results.values(), found, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


@given(graphs(OPS), st.data())
def test_values_have_the_types_the_graph_says(g, data):
    values = data.draw(symbol_values(g.symbols()))
    inputs = data.draw(arrays(g.inputs, values))
    for value, array in zip(g.outputs, evaluate_graph(g, inputs), strict=True):
        assert array.dtype == value.dtype.numpy
        assert array.ndim == value.type.rank
        for dim, size in zip(value.shape, array.shape, strict=True):
            data_dependent = isinstance(dim, Symbol) and dim.name not in values
            assert data_dependent or size == evaluate_dim(dim, values)


# ---------------------------------------------------------------- plain examples


def test_matmul():
    k = parse_kernel(
        block(
            """
            def matmul(a: f32[m, 3], b: f32[3, 2], c: out(f32[m, 2])):
                m = symbol(1)
                for i in parallel(m):
                    for j in vectorize(2):
                        c[i, j] = f32(0.0)
                        for k in range(3):
                            c[i, j] += a[i, k] * b[k, j]
            """
        )
    )
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(6, dtype=np.float32).reshape(3, 2)
    (c,) = interpret(k, [a, b], {"m": 2})
    assert c.tolist() == (a @ b).tolist()


def test_a_reduction_over_nothing_is_its_first_value_once():
    b = Builder({"x"})
    x = Buffer("x", f32, (0, 3))
    total = b.reduce(
        "total", (2,), BinaryOp.ADD, (0, 3), lambda i, j, k: x[j, k], init=const(5, f32)
    )
    p = TensorProgram("p", (x,), b.items, (total,))
    empty = np.zeros((0, 3), np.float32)
    assert evaluate_program(p, [empty])[0].tolist() == [5, 5]
    assert interpret(create_loops(p), [empty])[0].tolist() == [5, 5]


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_narrow_sums_round_after_every_step(dtype):
    """1 is lost below half a unit: both definitions round a narrow sum each time."""
    b = Builder({"x"})
    x = Buffer("x", dtype, (64,))
    total = b.reduce("total", (), BinaryOp.ADD, (64,), lambda k: x[k], init=const(2048, dtype))
    p = TensorProgram("p", (x,), b.items, (total,))
    ones = np.ones(64, dtype.numpy)
    for found in (evaluate_program(p, [ones])[0], interpret(create_loops(p), [ones])[0]):
        assert float(found) in (2048, 2048 + 64)  # one after another, or summed first


def test_a_guarded_read_is_lazy():
    k = parse_kernel(
        block(
            """
            def shift(x: f32[4], y: out(f32[4])):
                for i in range(4):
                    y[i] = select(i > 0, x[i - 1], f32(-1.0))
            """
        )
    )
    assert interpret(k, [np.arange(4, dtype=np.float32)])[0].tolist() == [-1, 0, 1, 2]


def test_an_unwritten_element_shows():
    k = parse_kernel("def k(y: out(f32[4])):\n    for i in range(3):\n        y[i] = f32(1.0)")
    assert np.isnan(interpret(k, [])[0]).tolist() == [False, False, False, True]


def test_a_state_that_was_not_written_shows():
    text = block(
        """
        def p(x: f32[2]):
            s = tensor(f32[2])
            for t in scan(2):
                define(s[t], s[1 - t] + x[t])
            return s
        """
    )
    p = parse_program(text)
    x = [np.ones(2, np.float32)]
    assert np.isnan(evaluate_program(p, x)[0]).all()
    assert np.isnan(interpret(create_loops(p), x)[0]).all()


def test_a_subscript_out_of_range_is_an_error():
    k = parse_kernel(
        block(
            """
            def k(x: f32[4], y: out(f32[5])):
                for i in range(5):
                    y[i] = x[i]
            """
        )
    )
    with pytest.raises(CompileError) as caught:
        interpret(k, [np.zeros(4, np.float32)])
    assert str(caught.value) == block(
        """
        subscript 0 of x is 4, outside 0 … 3
          in: x[i]
              with i=4
        """
    )


def test_a_stage_that_writes_out_of_range_is_an_error():
    p = parse_program(
        block(
            """
            def p(x: f32[4]):
                y = tensor(f32[4])
                for t in scan(4):
                    define(y[t - 1], x[t])
                return y
            """
        )
    )
    with pytest.raises(CompileError) as caught:
        evaluate_program(p, [np.zeros(4, np.float32)])
    assert str(caught.value) == block(
        """
        subscript 0 of y is -1 … -1, outside 0 … 3
          in: define(y[t - 1], x[t])
        """
    )


def test_loop_variables_do_not_take_the_names_of_symbols():
    """An operator's axes are called m and n; so may the model's dimensions be."""
    m, n = Symbol("m"), Symbol("n")
    x, y = Buffer("x", f32, (m, 3)), Buffer("y", f32, (3, n))
    p = op_program(OPS["matmul"], OPS["matmul"].make_attrs(), [x, y])
    assert parse_program(str(p)) == p
    assert {a.var.name for item in p.items for a in item.axes}.isdisjoint({"m", "n"})


def test_symbols_get_their_values_from_arrays():
    """Those of inputs, and those that a host operator finds out."""
    n, count = Symbol("n"), Symbol("count", 0)
    x = Value("x", TensorType(f32, (n,)))
    found = Value("found", TensorType(i64, (1, count)))
    doubled = Value("doubled", TensorType(i64, (1, count)))
    nodes = (
        GraphNode(OPS["nonzero"], OPS["nonzero"].make_attrs(count=count), (x,), (found,)),
        GraphNode(OPS["add"], OPS["add"].make_attrs(), (found, found), (doubled,)),
    )
    g = Graph("g", (x,), (doubled,), nodes, {})
    result = evaluate_graph(g, [np.array([0, 1, 0, 2, 3], np.float32)])
    assert result[0].tolist() == [[2, 6, 8]]


def test_values_may_be_changed_between_nodes():
    x, y, z = (Value(n, TensorType(i32, (2,))) for n in "xyz")
    neg = OPS["neg"]
    nodes = tuple(GraphNode(neg, neg.make_attrs(), (a,), (b,)) for a, b in ((x, y), (y, z)))
    values = {x: np.array([1, 2], np.int32)}
    for n, results in evaluate_steps(Graph("g", (x,), (z,), nodes, {}), values, {}):
        if n is nodes[0]:
            values[y] = results[y] * 10
    assert values[z].tolist() == [10, 20]
