"""Which nodes become one kernel."""

import numpy as np
from graph_cases import Maker, check_same, expect, graphs, read
from hypothesis import given, settings

from tilewright.base.dtype import f32
from tilewright.ir.evaluate import evaluate_graph, op_program
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.op import Category
from tilewright.ops.function import CALL
from tilewright.optimize.edit import is_view
from tilewright.optimize.fuse import fuse, short_name

CONV = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}


def kernels(graph) -> list[str]:
    """The operators of each kernel, and what is no kernel in brackets."""
    return [
        " ".join(m.op.name for m in n.attrs.body.nodes) if n.op is CALL else f"({n.op.name})"
        for n in graph.nodes
    ]


def check(m: Maker, *outputs, symbols=None) -> list[str]:
    """Fuses, checks that the result is the same, and gives its kernels."""
    graph = m.graph(*outputs)
    fused = fuse(graph)
    check_same(graph, fused, symbols=symbols)
    return kernels(fused)


def conv(m: Maker, x, channels: int = 4, size: int = 3):
    w = m.constant(np.ones((channels, x.shape[1], size, size)))
    pads = {"pads_begin": (size // 2,) * 2, "pads_end": (size // 2,) * 2}
    return m.op("conv", x, w, **{**CONV, **pads})


def bias(m: Maker, x):
    channels = x.shape[1] if len(x.shape) == 4 else x.shape[-1]
    shape = (channels, 1, 1) if len(x.shape) == 4 else (channels,)
    return m.op("add", x, m.constant(np.arange(float(channels)).reshape(shape)))


def dense(m: Maker, x, width: int):
    return bias(m, m.op("matmul", x, m.constant(np.ones((x.shape[-1], width)))))


# ---------------------------------------------------------------- text


def test_text():
    graph = read(
        """
        def model(x: f32[2, 3], w: f32[3, 4]):
            k: f32[1, 1] = constant([[0.5]])
            b: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
            m: f32[2, 4] = matmul(x, w, name="layer/MatMul", device="cpu")
            a: f32[2, 4] = add(b, m, name="layer/Add", device="cpu")
            s: f32[2, 4] = mul(a, k, name="layer/Mul", device="cpu")
            r: f32[8] = reshape(s, shape=(8,), name="Reshape", device="cpu")
            y: f32[8] = relu(r, name="Relu", device="cpu")
            return y
        """
    )
    fused = fuse(graph)
    expect(
        fused,
        """
        def model(x: f32[2, 3], w: f32[3, 4]):
            b: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
            def body(x0: f32[2, 3], x1: f32[3, 4], x2: f32[4]):
                c0: f32[1, 1] = constant([[0.5]])
                v0: f32[2, 4] = matmul(x0, x1)
                v1: f32[2, 4] = add(x2, v0)
                v2: f32[2, 4] = mul(v1, c0)
                return v2
            s: f32[2, 4] = call(x, w, b, body=body,
                origins=("layer/MatMul", "layer/Add", "layer/Mul"),
                name="layer/MatMul+Add+Mul", device="cpu")
            r: f32[8] = reshape(s, shape=(8,), name="Reshape", device="cpu")
            def body(x0: f32[8]):
                v0: f32[8] = relu(x0)
                return v0
            y: f32[8] = call(r, body=body, origins=("Relu",), name="Relu", device="cpu")
            return y
        """,
    )
    check_same(graph, fused)


# ---------------------------------------------------------------- networks


def test_residual_block():
    m = Maker()
    x = m.input(1, 4, 6, 6)
    y = m.op("relu", bias(m, conv(m, x)))
    y = m.op("relu", m.op("add", bias(m, conv(m, y)), x))
    assert check(m, y) == ["conv add relu", "conv add add relu"]


def test_residual_block_with_convolution_beside():
    """Where two convolutions meet, the later one takes the addition."""
    m = Maker()
    x = m.input(1, 4, 6, 6)
    main = bias(m, conv(m, m.op("relu", bias(m, conv(m, x)))))
    beside = bias(m, conv(m, x, size=1))
    y = m.op("relu", m.op("add", main, beside))
    assert check(m, y) == ["conv add relu", "conv add", "conv add add relu"]


def test_convolution_then_pooling():
    m = Maker()
    x = conv(m, m.input(1, 4, 6, 6))
    pool = {"kernel": (3, 3), "strides": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)}
    y = m.op("max_pool", m.op("relu", bias(m, x)), **pool, dilations=(1, 1))
    y = m.op("reduce_mean", y, axes=(2, 3))
    assert check(m, y) == ["conv add relu", "max_pool", "reduce_mean"]


def test_activations_are_diamonds():
    """Values read several times within the epilogue: silu, gelu, hard swish."""
    m = Maker()
    x = bias(m, conv(m, m.input(1, 4, 6, 6)))
    x = conv(m, m.op("mul", x, m.op("sigmoid", x)))
    low, six = m.constant(np.float32(3)), m.constant(np.float32(1 / 6))
    y = m.op("mul", x, m.op("mul", m.op("clip", m.op("add", x, low), low=0.0, high=6.0), six))
    assert check(m, y) == ["conv add sigmoid mul", "conv add clip mul mul"]


def gelu(m: Maker, x):
    root, one, half = (m.constant(np.float32(c)) for c in (2**0.5, 1, 0.5))
    erf = m.op("erf", m.op("div", x, root))
    return m.op("mul", m.op("mul", x, m.op("add", erf, one)), half)


def layer_norm(m: Maker, x):
    width = x.shape[-1]
    return m.op("layer_norm", x, m.constant(np.ones(width)), m.constant(np.ones(width)))


def attention(m: Maker, x, mask, heads: int):
    batch, length, width = x.shape
    q, k, v = (
        m.op(
            "transpose",
            m.op("reshape", dense(m, x, width), shape=(batch, length, heads, width // heads)),
            perm=(0, 2, 1, 3),
        )
        for _ in range(3)
    )
    scores = m.op("matmul", q, m.op("transpose", k, perm=(0, 1, 3, 2)))
    scores = m.op("add", m.op("div", scores, m.constant(np.float32(3))), mask)
    values = m.op("matmul", m.op("softmax", scores, axis=-1), v)
    rows = m.op("reshape", m.op("transpose", values, perm=(0, 2, 1, 3)), shape=x.shape)
    return dense(m, rows, width)


PROJECTIONS = ["matmul add", "(reshape)", "transpose"]
ATTENTION = [
    *PROJECTIONS,
    "matmul add",
    "(reshape)",
    "matmul add",
    "(reshape)",
    "transpose",
    "transpose transpose",
    "matmul div add",
    "softmax",
    "matmul",
    "transpose",
    "(reshape)",
]


def test_transformer_layer_with_normalisation_behind():
    """BERT: what the layer norm alone reads, it adds up itself."""
    m = Maker()
    x, mask = m.input(2, 5, 8), m.input(2, 1, 1, 5)
    x = layer_norm(m, m.op("add", x, attention(m, x, mask, 2)))
    x = layer_norm(m, m.op("add", dense(m, gelu(m, dense(m, x, 16)), 8), x))
    ends = [
        "matmul add",
        "add layer_norm",
        "matmul add div erf add mul mul",
        "matmul add",
        "add layer_norm",
    ]
    found = check(m, x)
    assert sorted(found[: len(ATTENTION)]) == sorted(ATTENTION)
    assert found[len(ATTENTION) :] == ends


def test_transformer_layer_with_normalisation_in_front():
    """GPT: the sum is read again behind the next layer, so the matmul adds it up."""
    m = Maker()
    x, mask = m.input(2, 5, 8), m.input(2, 1, 1, 5)
    x = m.op("add", x, attention(m, layer_norm(m, x), mask, 2))
    x = m.op("add", x, dense(m, gelu(m, dense(m, layer_norm(m, x), 16)), 8))
    ends = ["matmul add add", "layer_norm", "matmul add div erf add mul mul", "matmul add add"]
    assert check(m, x)[-len(ends) :] == ends


# ---------------------------------------------------------------- rules


def test_values_read_outside_end_a_group():
    m = Maker()
    x = bias(m, conv(m, m.input(1, 4, 6, 6)))
    y = m.op("relu", x)
    assert check(m, y, x) == ["conv add", "relu"]
    assert check(m, m.op("neg", y), m.op("transpose", x, perm=(3, 2, 1, 0))) == [
        "conv add",
        "relu neg",
        "transpose",
    ]


def test_shapes_that_change_end_a_group():
    m = Maker()
    x = m.op("matmul", m.input(1, 3), m.input(3, 4))
    assert check(m, m.op("add", x, m.input(5, 4))) == ["matmul", "add"]


def test_injective_nodes_merge():
    m = Maker()
    x = m.input(4, 6)
    y = m.op("transpose", m.op("exp", x), perm=(1, 0))
    y = m.op("slice", y, starts=(1, 0), sizes=(3, 4), steps=(2, 1))
    y = m.op("concat", y, m.op("neg", m.input(3, 2)), axis=1)
    assert check(m, y) == ["exp transpose slice neg concat"]


def test_dear_values_are_not_computed_twice():
    m = Maker()
    gate = m.op("sigmoid", m.input(1, 4, 1, 1))
    y = m.op("mul", m.input(1, 4, 6, 6), gate)
    assert check(m, y) == ["sigmoid", "mul"]
    m = Maker()
    y = m.op("softmax", m.op("exp", m.input(4, 6)), axis=-1)
    assert check(m, y) == ["exp", "softmax"]
    m = Maker()
    y = m.op("reduce_sum", m.op("exp", m.input(4, 6)), axes=(1,))  # each element is read once
    assert check(m, y) == ["exp reduce_sum"]
    m = Maker()
    y = m.op("softmax", m.op("relu", m.input(4, 6)), axis=-1)  # and a relu is cheap
    assert check(m, y) == ["relu softmax"]


def test_windows_do_not_recompute_much():
    m = Maker()
    window = {"kernel": (3, 3), "pads_begin": (1, 1), "pads_end": (1, 1), "dilations": (1, 1)}
    x = m.input(1, 2, 9, 9)
    two = m.op("max_pool", m.op("relu", x), strides=(2, 2), **window)
    nine = m.op("max_pool", m.op("neg", x), strides=(1, 1), **window)
    assert check(m, two, nine) == ["relu max_pool", "neg", "max_pool"]


def test_reductions_take_what_follows():
    m = Maker()
    x = m.op("reduce_mean", m.input(4, 6), axes=(1,))
    y = m.op("sqrt", m.op("add", x, m.constant(np.float32(1e-5))))
    assert check(m, y) == ["reduce_mean add sqrt"]
    assert check(m, m.op("add", y, m.input(4, 4))) == ["reduce_mean add sqrt", "add"]


def test_one_anchor_in_a_group():
    m = Maker()
    x = m.input(4, 6)
    total = m.op("reduce_sum", x, axes=(1,), keepdims=True)
    y = m.op("softmax", m.op("sub", x, total), axis=1)
    y = m.op("matmul", m.op("relu", y), m.input(6, 2))
    assert check(m, y) == ["reduce_sum", "sub softmax relu", "matmul"]


def test_cheap_nodes_move_into_all_readers():
    m = Maker()
    x = m.op("relu", m.input(4, 6))
    a = m.op("transpose", x, perm=(1, 0))
    b = m.op("reduce_sum", x, axes=(1,))
    assert check(m, a, b) == ["relu transpose", "relu reduce_sum"]
    c = m.op("matmul", x, m.input(6, 2))  # a contraction reads its operand from memory
    assert check(m, a, b, c) == ["relu", "transpose", "reduce_sum", "matmul"]
    m = Maker()
    x = m.op("add", m.input(4, 6), m.input(4, 6))  # reading two tensors costs more than one
    a, b = m.op("transpose", x, perm=(1, 0)), m.op("reduce_sum", x, axes=(1,))
    assert check(m, a, b) == ["add", "transpose", "reduce_sum"]


def test_doubling_does_not_explode():
    """x = x * x, forty times over: written out it would have 2⁴⁰ factors."""
    m = Maker()
    x = m.input(3)
    for _ in range(40):
        x = m.op("mul", x, x)
    found = check(m, x)
    assert all(1 < len(k.split()) <= 7 for k in found[1:])
    m = Maker()
    x = m.op("matmul", m.input(3, 3), m.input(3, 3))
    for _ in range(40):
        x = m.op("add", x, x)
    found = check(m, x)
    assert found[0].startswith("matmul add add")
    assert max(len(k.split()) for k in found) <= 8


def test_opaque_nodes_and_devices_separate():
    m = Maker()
    x = m.op("relu", m.input(4))
    values, places = m.ops("top_k", x, k=2)
    y = m.op("neg", m.op("abs", m.op("exp", values)))
    graph = m.graph(y, places)
    assert kernels(fuse(graph)) == ["relu", "(top_k)", "exp abs neg"]
    devices = ["a", "", "a", "b", "b"]
    nodes = [
        type(n)(n.op, n.attrs, n.inputs, n.outputs, n.name, d)
        for n, d in zip(graph.nodes, devices, strict=True)
    ]
    fused = fuse(graph.with_(nodes=tuple(nodes)))
    assert kernels(fused) == ["relu", "(top_k)", "exp", "abs neg"]
    assert [n.device for n in fused.nodes] == ["a", "", "a", "b"]
    check_same(graph, fused)


def test_symbolic_shapes():
    m = Maker()
    n = Symbol("n")
    x = m.input(n, 4)
    y = m.op("relu", m.op("add", m.op("matmul", x, m.input(4, 4)), x))
    y = m.op("reshape", y, shape=(n * 4,))
    assert check(m, y, symbols={"n": 3}) == ["matmul add relu", "(reshape)"]


def test_several_results():
    m = Maker()
    x = m.input(2, 3)
    y, *_ = m.ops("layer_norm", m.op("relu", x), m.constant(np.ones(3)), statistics=True)
    graph = m.graph(m.op("neg", y))
    check_same(graph, fuse(graph))
    both = m.graph(*m.nodes[1].outputs)
    fused = fuse(both)
    assert [v for n in fused.nodes for v in n.outputs][: len(both.outputs)] == list(both.outputs)
    check_same(both, fused)


# ---------------------------------------------------------------- equal structures


def programs(graph) -> list:
    return [
        op_program(
            CALL, n.attrs, [Buffer(f"x{i}", v.dtype, v.shape) for i, v in enumerate(n.inputs)]
        )
        for n in fuse(graph).nodes
        if n.op is CALL
    ]


def test_equal_groups_have_equal_programs():
    m = Maker()
    x = m.input(1, 4, 6, 6)
    for _ in range(3):
        w = m.constant(np.random.default_rng(0).standard_normal((4, 4, 3, 3)))
        y = m.op("conv", x, w, **CONV)
        x = m.op("relu", m.op("add", y, m.op("mul", m.constant(np.float32(0.5)), y)))
    first, *rest = programs(m.graph(x))
    assert len(rest) == 2
    assert all(p == first and str(p) == str(first) and hash(p) == hash(first) for p in rest)


def test_order_of_nodes_does_not_matter():
    def build(swap: bool):
        m = Maker()
        x, y = m.input(2, 3), m.input(2, 3)
        a, b = (
            (m.op("exp", x), m.op("neg", y)) if swap else reversed((m.op("neg", y), m.op("exp", x)))
        )
        return programs(m.graph(m.op("add", a, b)))

    assert build(True) == build(False)


def test_scalars_are_part_of_the_program():
    def build(value: float):
        m = Maker()
        x = m.input(2, 3)
        return programs(m.graph(m.op("mul", x, m.constant(np.full((1, 1), value)))))

    assert build(0.5) == build(0.5) != build(0.25)


# ---------------------------------------------------------------- the call operator


def test_call_of_outputs_that_are_inputs_or_constants():
    call = read(
        """
        def model(x: f32[2], n: i4[2]):
            def body(x0: f32[2], x1: i4[2]):
                c0: bf16[1, 1] = constant([[0.5]])
                c1: bool[()] = constant(True)
                c2: f32[()] = constant(nan)
                c3: i4[()] = constant(-3)
                v0: f32[2] = neg(x0)
                v1: i4[2] = mul(x1, c3)
                return x0, v0, v0, c0, c1, c2, v1
            a, b, c, d, e, f, g = call(x, n, body=body,
                types=(f32[2], f32[2], f32[2], bf16[1, 1], bool[()], f32[()], i4[2]))
            return a, b, c, d, e, f, g
        """
    )
    (n,) = call.nodes
    program = op_program(
        CALL, n.attrs, [Buffer("x0", f32, (2,)), Buffer("x1", n.inputs[1].dtype, (2,))]
    )
    assert len(set(program.outputs)) == len(program.outputs)
    assert not set(program.outputs) & set(program.inputs)
    x = np.array([1, 2], np.float32)
    found = evaluate_graph(call, [x, np.array([2, 3], n.inputs[1].dtype.numpy)])
    for array, wanted in zip(found, [x, -x, -x, [[0.5]], True, np.nan, [-6, 7]], strict=True):
        np.testing.assert_array_equal(array.astype(np.float64), np.asarray(wanted, np.float64))


def test_short_names():
    assert short_name(("Relu",)) == "Relu"
    assert short_name(("a/b/Conv", "a/b/Add", "a/c/Relu")) == "a/b/Conv+Add+a/c/Relu"
    assert short_name(("Conv_0", "Add_1", "Div_2", "Relu_3")) == "Conv_0+Add_1+…+Relu_3"


# ---------------------------------------------------------------- random graphs


@settings(max_examples=150)
@given(graph=graphs(most=20))
def test_every_node_is_in_a_kernel(graph):
    fused = fuse(graph)
    check_same(graph, fused)
    for n in fused.nodes:
        assert n.op is CALL or is_view(n)
        if n.op is CALL:
            anchors = [m for m in n.attrs.body.nodes if m.op.category is not Category.INJECTIVE]
            assert len(anchors) <= 1
    again = fuse(fused)
    assert again is fused
