"""The graph passes on graphs written by hand: what each does, as text."""

import ast

import ml_dtypes
import numpy as np
import pytest
from graph_cases import Maker, check_same, expect, read

from tilewright.base.dtype import bf16, f16, f32, i32
from tilewright.base.errors import CompileError
from tilewright.ir.expr import Symbol
from tilewright.optimize.assign_devices import place
from tilewright.optimize.edit import remove_dead
from tilewright.optimize.fold_constants import fold_constants
from tilewright.optimize.fold_scales import fold_scales
from tilewright.optimize.merge_common import merge_common
from tilewright.optimize.move_reshapes import move_reshapes
from tilewright.optimize.simplify_nodes import simplify_nodes

CONV = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}


# ---------------------------------------------------------------- remove_dead


def test_remove_dead():
    graph = read(
        """
        def model(x: f32[2], unused: f32[3]):
            c: f32[()] = constant(1.0)
            d: f32[()] = constant(2.0)
            a: f32[2] = add(x, c)
            b: f32[2] = mul(a, d)
            y: f32[2] = neg(a)
            return y
        """
    )
    expect(
        remove_dead(graph),
        """
        def model(x: f32[2], unused: f32[3]):
            c: f32[()] = constant(1.0)
            a: f32[2] = add(x, c)
            y: f32[2] = neg(a)
            return y
        """,
    )
    assert remove_dead(remove_dead(graph)) is not graph
    alive = remove_dead(graph)
    assert remove_dead(alive) is alive  # nothing to do: the same graph


# ---------------------------------------------------------------- merge_common


def test_merge_common():
    graph = read(
        """
        def model(x: f32[2]):
            c: f32[2] = constant([1.0, 2.0])
            d: f32[2] = constant([1.0, 2.0])
            e: f32[1, 2] = constant([[1.0, 2.0]])
            a: f32[2] = add(x, c)
            b: f32[2] = add(d, x)
            s: f32[2] = sub(x, c)
            t: f32[2] = sub(d, x)
            u: f32[1, 2] = sub(x, e)
            v: f32[2] = mul(a, b)
            return v, s, t, u, b
        """
    )
    after = merge_common(graph)
    expect(
        after,
        """
        def model(x: f32[2]):
            c: f32[2] = constant([1.0, 2.0])
            e: f32[1, 2] = constant([[1.0, 2.0]])
            a: f32[2] = add(x, c)
            s: f32[2] = sub(x, c)
            t: f32[2] = sub(c, x)
            u: f32[1, 2] = sub(x, e)
            v: f32[2] = mul(a, a)
            return v, s, t, u, a
        """,
    )
    check_same(graph, after)


def test_merge_common_tells_alike_attributes_apart():
    graph = read(
        """
        def model(x: f32[2]):
            a: f32[2] = leaky_relu(x, alpha=0.0)
            b: f32[2] = leaky_relu(x, alpha=-0.0)
            c: f32[2] = leaky_relu(x, alpha=0.0, name="again")
            return a, b, c
        """
    )
    assert [n.name for n in merge_common(graph).nodes] == ["", ""]


def test_merge_common_keeps_devices_and_large_constants():
    m = Maker()
    x = m.input(1000)
    big = np.arange(1000.0)
    other = big.copy()
    other[501] += 1  # where the sample does not look
    for array in (big, big.copy(), other):
        m.op("add", x, m.constant(array))
    a, b, c = (n.outputs[0] for n in m.nodes)
    after = merge_common(m.graph(a, b, c))
    assert after.outputs == (a, a, c)
    assert len(after.constants) == 2
    first, *rest = m.nodes
    moved = [type(n)(n.op, n.attrs, n.inputs, n.outputs, n.name, "npu") for n in rest]
    assert len(merge_common(m.graph(a, b, c).with_(nodes=(first, *moved))).nodes) == 3


# ---------------------------------------------------------------- fold_constants


def test_fold_constants():
    graph = read(
        """
        def model(x: f32[2, 2]):
            c: f32[2] = constant([1.0, 4.0])
            k: f32[()] = constant(3.0)
            r: f32[2] = sqrt(c)
            s: f32[2] = mul(r, k)
            t: f32[1, 2] = reshape(s, shape=(1, 2))
            y: f32[2, 2] = add(x, t)
            return y, s
        """
    )
    after = fold_constants(graph)
    expect(
        after,
        """
        def model(x: f32[2, 2]):
            s: f32[2] = constant([3.0, 6.0])
            t: f32[1, 2] = constant([[3.0, 6.0]])
            y: f32[2, 2] = add(x, t)
            return y, s
        """,
    )
    check_same(graph, after)


def test_fold_constants_keeps_what_depends_on_a_size():
    graph = read(
        """
        def model(x: f32[n]):
            n = symbol(1, 5)
            y: i64[1] = dims(values=(n,))
            return y
        """
    )
    assert fold_constants(graph).nodes == graph.nodes


def test_fold_constants_keeps_what_would_grow():
    m = Maker()
    n = Symbol("n")
    one = m.constant(np.ones(()))
    weight = m.constant(np.zeros((300, 100)))
    m.input(n)
    large = m.op("expand", one, shape=(1000, 1000))
    small = m.op("expand", one, shape=(10, 10))
    symbolic = m.op("expand", one, shape=(n,))
    turned = m.op("transpose", weight, perm=(1, 0))  # as large as the weight, which it replaces
    copied = m.op("expand", weight, shape=(10, 300, 100))
    again = m.op("neg", large)  # its operand stays, and so does it
    after = fold_constants(m.graph(large, small, symbolic, turned, copied, again))
    assert [n.op.name for n in after.nodes] == ["expand", "expand", "expand", "neg"]
    assert {small, turned} <= set(after.constants)
    everything = fold_constants(m.graph(large, small, turned, copied), growth=1 << 30)
    assert [n.outputs[0] for n in everything.nodes] == [symbolic]
    little_time = fold_constants(m.graph(small, turned), work=150)
    assert small in little_time.constants
    assert turned not in little_time.constants


# ---------------------------------------------------------------- simplify_nodes

SIMPLER = [
    ("y = transpose(x, perm=(0, 1, 2))", "x"),
    ("y = transpose(transpose(x, perm=(2, 0, 1)), perm=(1, 2, 0))", "x"),
    ("y = transpose(transpose(x, perm=(2, 0, 1)), perm=(2, 1, 0))", "transpose((1, 0, 2))"),
    ("y = transpose(one, perm=(1, 0, 2))", "reshape((4, 1, 3))"),
    ("y = reshape(x, shape=(2, 4, 3))", "x"),
    ("y = reshape(reshape(x, shape=(24,)), shape=(4, 6))", "reshape((4, 6))"),
    ("y = slice(x, starts=(0, 0, 0), sizes=(2, 4, 3), steps=(1, 1, 1))", "x"),
    ("y = slice(x, starts=(1, 0, 0), sizes=(2, 4, 3), steps=(-1, 1, 1))", "slice"),
    ("y = pad(x, before=(0, 0, 0), after=(0, 0, 0))", "x"),
    ("y = expand(x, shape=(2, 4, 3))", "x"),
    ("y = expand(one, shape=(2, 4, 3))", "expand"),
    ("y = add(x, expand(one, shape=(2, 4, 3)))", "add(x, one)"),
    ("y = add(one, expand(one, shape=(2, 4, 3)))", "expand add"),
    ("y = tile(x, repeats=(1, 1, 1))", "x"),
    ("y = concat(x, axis=1)", "x"),
    ("y = cast(x, to=f32)", "x"),
    ("y = cast(x, to=f16)", "cast"),
    ("y = clip(x)", "x"),
    ("y = neg(neg(x))", "x"),
    ("y = relu(relu(x))", "relu"),
    ("y = mul(x, 1.0)", "x"),
    ("y = mul(1.0, x)", "x"),
    ("y = div(x, 1.0)", "x"),
    ("y = div(1.0, x)", "div"),
    ("y = add(x, 0.0)", "add"),  # -0.0 + 0.0 is 0.0
    ("y = add(x, -0.0)", "x"),
    ("y = sub(x, 0.0)", "x"),
    ("y = sub(x, -0.0)", "sub"),
    ("y = sub(0.0, x)", "sub"),
    ("y = div(x, 8.0)", "mul(x, 0.125)"),
    ("y = div(x, 3.0)", "div"),
    ("y = pow(x, 1.0)", "x"),
    ("y = pow(x, 2.0)", "mul(x, x)"),
    ("y = pow(x, 3.0)", "mul(x, x) mul(v, x)"),
    ("y = log(add(x, 1.0))", "log1p(x)"),
    ("y = log(add(1.0, exp(x)))", "exp(x) log1p(v)"),
    ("y = log(add(x, 2.0))", "add log"),
    ("y = sub(exp(x), 1.0)", "expm1(x)"),
    ("y = sub(exp(x), 2.0)", "exp sub"),
    ("y = div(1.0, add(1.0, exp(neg(x))))", "sigmoid(x)"),
    ("y = div(1.0, add(1.0, exp(x)))", "exp add div"),
    ("y = where(true, x, one)", "x"),
    ("y = where(false, x, one)", "where"),  # the shape is not that of `one`
]


@pytest.mark.parametrize("text, wanted", SIMPLER)
def test_simplify_nodes(text, wanted):
    m = Maker()
    known = {"x": m.input(2, 4, 3, name="x"), "one": m.input(1, 4, 3, name="one")}

    def build(node):
        if isinstance(node, ast.Name):
            return known.get(node.id) or m.constant(np.asarray(node.id == "true"))
        if not isinstance(node, ast.Call):
            return m.constant(np.float32(ast.literal_eval(node)))
        attrs = {k.arg: _attr(k.value) for k in node.keywords}
        return m.op(node.func.id, *map(build, node.args), **attrs)

    graph = m.graph(build(ast.parse(text).body[0].value))
    after = remove_dead(simplify_nodes(graph))
    nearer = ("mul(v, x)", "log1p", "expm1", "sigmoid")  # rules that change last bits
    check_same(graph, after, exact=not any(name in wanted for name in nearer))
    assert _brief(after, wanted) == wanted


def _attr(node):
    return (
        {"f16": f16, "f32": f32}[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)
    )


def _brief(graph, like):
    """The nodes in short: as much of each as `like` says."""
    if not graph.nodes:
        return graph.outputs[0].name
    if "(" not in like:
        return " ".join(n.op.name for n in graph.nodes)
    if "((" in like:
        (n,) = graph.nodes
        return f"{n.op.name}({next(v for _, v in n.attrs.items())})"
    numbers = {v: str(a) for v, a in graph.constants.items()}
    names = {v: "v" for n in graph.nodes for v in n.outputs} | numbers
    return " ".join(
        f"{n.op.name}({', '.join(names.get(v, v.name) for v in n.inputs)})" for n in graph.nodes
    )


def test_simplify_nodes_other_types():
    m = Maker()
    i, b = m.input(4, dtype=i32), m.input(4, dtype=bf16)
    half = m.constant(np.ones(4, ml_dtypes.bfloat16))
    y = m.op("add", i, m.constant(np.zeros((1,), np.int32)))
    z = m.op("mul", b, half)
    wide = m.op("mul", i, m.constant(np.ones((3, 1), np.int32)))  # broadcasts: it stays
    graph = m.graph(y, z, wide)
    after = simplify_nodes(graph)
    assert after.outputs[:2] == (i, b)
    assert [n.op.name for n in after.nodes] == ["mul"]
    check_same(graph, after)


# ---------------------------------------------------------------- fold_scales


def test_fold_scales_of_a_batch_norm():
    graph = read(
        """
        def model(x: f32[1, 1, 2, 2]):
            w: f32[2, 1, 1, 1] = constant([[[[1.0]]], [[[2.0]]]])
            mean: f32[2, 1, 1] = constant([[[1.0]], [[2.0]]])
            scale: f32[2, 1, 1] = constant([[[4.0]], [[8.0]]])
            beta: f32[2, 1, 1] = constant([[[0.5]], [[0.25]]])
            c: f32[1, 2, 2, 2] = conv(x, w, strides=(1, 1),
                pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1), name="conv")
            s: f32[1, 2, 2, 2] = sub(c, mean, name="bn")
            m: f32[1, 2, 2, 2] = mul(s, scale, name="bn")
            b: f32[1, 2, 2, 2] = add(m, beta, name="bn")
            y: f32[1, 2, 2, 2] = relu(b)
            return y
        """
    )
    after = fold_scales(graph)
    expect(
        after,
        """
        def model(x: f32[1, 1, 2, 2]):
            w_1: f32[2, 1, 1, 1] = constant([[[[4.0]]], [[[16.0]]]])
            b_shift: f32[2, 1, 1] = constant([[[-3.5]], [[-15.75]]])
            c: f32[1, 2, 2, 2] = conv(x, w_1, strides=(1, 1),
                pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1), name="conv")
            b: f32[1, 2, 2, 2] = add(c, b_shift, name="bn")
            y: f32[1, 2, 2, 2] = relu(b)
            return y
        """,
    )
    check_same(graph, after, exact=False)
    assert fold_scales(after) is after


def _matmul_chain(m, *steps, w=None):
    """matmul by w, then op by op with constants; "op" has the matmul first, "=op" second."""
    x = m.input(3, 4)
    y = m.op("matmul", x, m.constant(np.ones((4, 2))) if w is None else w)
    for name, number in steps:
        c = m.constant(np.asarray(number))
        y = m.op(name.lstrip("="), *((c, y) if name.startswith("=") else (y, c)))
    return y


def test_fold_scales_of_a_matmul():
    m = Maker()
    steps = [("=sub", [1.0, 2.0]), ("div", 4.0), ("mul", [[3.0, 5.0]]), ("add", 1.0)]
    y = _matmul_chain(m, *steps)
    graph = m.graph(y)
    after = fold_scales(graph)
    assert [n.op.name for n in after.nodes] == ["matmul", "add"]
    assert after.outputs == (y,)
    check_same(graph, after, exact=False)


STAYS = {
    "one addition": [("add", 1.0)],
    "divided by the result": [("=div", 1.0)],
    "varies along rows": [("mul", [[1.0], [2.0], [3.0]])],
    "gets wider": [("mul", np.ones((5, 3, 2)))],
    "overflows": [("mul", 1e38), ("mul", 1e38)],
    "infinite": [("mul", np.inf)],
}


@pytest.mark.parametrize("steps", STAYS.values(), ids=STAYS)
def test_fold_scales_leaves_alone(steps):
    m = Maker()
    graph = m.graph(_matmul_chain(m, *steps))
    assert fold_scales(graph) is graph


def test_fold_scales_without_addition_and_with_two():
    m = Maker()
    graph = m.graph(_matmul_chain(m, ("mul", [2.0, 3.0])))
    assert [n.op.name for n in fold_scales(graph).nodes] == ["matmul"]
    m = Maker()
    graph = m.graph(_matmul_chain(m, ("add", [2.0, 3.0]), ("sub", 1.0)))
    after = fold_scales(graph)
    assert [n.op.name for n in after.nodes] == ["matmul", "add"]
    assert after.nodes[0] is graph.nodes[0]  # the weights are the same


def test_fold_scales_only_where_nobody_else_looks():
    m = Maker()
    shared = m.constant(np.ones((4, 2)))
    a = _matmul_chain(m, ("mul", 2.0), w=shared)
    b = _matmul_chain(m, ("add", 2.0), ("add", 1.0), ("mul", 2.0), w=shared)
    after = fold_scales(m.graph(a, b))
    assert [n.op.name for n in after.nodes] == ["matmul", "mul", "matmul", "add", "mul"]
    check_same(m.graph(a, b), after, exact=False)
    m = Maker()
    y = _matmul_chain(m, ("mul", 2.0), ("add", 1.0))
    middle = m.nodes[1].outputs[0]
    both = fold_scales(m.graph(y, middle))  # the product is read outside: it is folded alone
    assert [n.op.name for n in both.nodes] == ["matmul", "add"]
    check_same(m.graph(y, middle), both, exact=False)
    seen = m.graph(y, m.nodes[0].outputs[0])
    assert fold_scales(seen) is seen


# ---------------------------------------------------------------- move_reshapes


def test_move_reshapes():
    graph = read(
        """
        def model(x: f32[6, 4], w: f32[4, 5], z: f32[2, 3, 5]):
            b: f32[5] = constant([1.0, 2.0, 3.0, 4.0, 5.0])
            k: f32[1, 1, 1] = constant([[[0.5]]])
            m: f32[6, 5] = matmul(x, w)
            r: f32[2, 3, 5] = reshape(m, shape=(2, 3, 5))
            s: f32[2, 3, 5] = sigmoid(r)
            t: f32[2, 3, 5] = mul(r, s)
            u: f32[2, 3, 5] = add(t, b)
            v: f32[2, 3, 5] = mul(u, k)
            y: f32[2, 3, 5] = add(v, z)
            return y
        """
    )
    after = remove_dead(fold_constants(move_reshapes(graph)))
    expect(
        after,
        """
        def model(x: f32[6, 4], w: f32[4, 5], z: f32[2, 3, 5]):
            b: f32[5] = constant([1.0, 2.0, 3.0, 4.0, 5.0])
            k_1: f32[()] = constant(0.5)
            m: f32[6, 5] = matmul(x, w)
            s_1: f32[6, 5] = sigmoid(m)
            t_1: f32[6, 5] = mul(m, s_1)
            u_1: f32[6, 5] = add(t_1, b)
            v_1: f32[6, 5] = mul(u_1, k_1)
            z_1: f32[6, 5] = reshape(z, shape=(6, 5))
            y_1: f32[6, 5] = add(v_1, z_1)
            y: f32[2, 3, 5] = reshape(y_1, shape=(2, 3, 5))
            return y
        """,
    )
    check_same(graph, after)


@pytest.mark.parametrize(
    "old, new, operand, wanted",
    [
        ((4, 3, 5, 5), (1, 4, 3, 5, 5), (1, 4, 1, 5, 5), (4, 1, 5, 5)),
        ((1, 4, 3, 5, 5), (4, 3, 5, 5), (4, 1, 1, 1), (4, 1, 1, 1)),
        ((6, 5), (2, 3, 5), (2, 3, 1), (6, 1)),
        ((6, 5), (2, 3, 5), (1, 5), (1, 5)),
        ((2, 15), (2, 3, 5), (3, 5), (1, 15)),
    ],
)
def test_move_reshapes_of_operands(old: tuple, new: tuple, operand: tuple, wanted: tuple):
    """Windows with a mask each: the mask takes the shape that scores had."""
    m = Maker()
    x = m.op("matmul", m.input(*old[:-1], 4), m.input(*old[:-2], 4, old[-1]))
    mask = m.op("relu", m.input(*operand))
    y = m.op("add", m.op("reshape", x, shape=new), mask)
    graph = m.graph(y)
    after = move_reshapes(graph)
    added = next(n for n in after.nodes if n.op.name == "add")
    assert [v.shape for v in added.inputs] == [old, wanted]
    check_same(graph, after)


def test_move_reshapes_stops():
    """At operands that vary along a part of an axis, and where the reshape is needed."""
    m = Maker()
    x = m.op("matmul", m.input(6, 4), m.input(4, 5))
    r = m.op("reshape", x, shape=(2, 3, 5))
    y = m.op("add", r, m.constant(np.arange(3.0).reshape(1, 3, 1)))
    assert move_reshapes(m.graph(y)).nodes == tuple(m.nodes)
    m = Maker()
    x = m.op("matmul", m.input(6, 4), m.input(4, 5))
    r = m.op("reshape", x, shape=(2, 3, 5))
    y = m.op("relu", r)
    assert move_reshapes(m.graph(y, r)).nodes == tuple(m.nodes)
    z = m.op("transpose", r, perm=(2, 1, 0))
    assert move_reshapes(m.graph(y, z)).nodes == tuple(m.nodes)


# ---------------------------------------------------------------- place

DEVICES = {"cpu": None, "npu": None}


def _two_nodes():
    m = Maker()
    x = m.input(2)
    y = m.op("relu", x, node="first")
    return m.graph(m.op("neg", y, node="second"))


def _where(graph):
    return [n.device for n in graph.nodes]


def test_place():
    graph = _two_nodes()
    assert _where(place(graph, DEVICES, None, "cpu")) == ["cpu", "cpu"]
    assert _where(place(graph, DEVICES, {"second": "npu"}, "cpu")) == ["cpu", "npu"]
    by_op = place(graph, DEVICES, lambda n: "npu" if n.op.name == "relu" else None, "cpu")
    assert _where(by_op) == ["npu", "cpu"]
    assert place(by_op, DEVICES, {"first": "npu"}, "cpu") is by_op


def test_place_opaque_nodes_on_the_host():
    m = Maker()
    x = m.input(3)
    graph = m.graph(m.op("top_k", x, k=2, node="find"))
    assert _where(place(graph, DEVICES, lambda n: "npu", "cpu")) == [""]
    with pytest.raises(CompileError) as error:
        place(graph, DEVICES, {"find": "npu"}, "cpu")
    assert str(error.value) == (
        "'find' is assigned to 'npu', but top_k is a function of the host\n"
        "  hint: leave it out: it is placed on the host"
    )


def test_place_errors():
    graph = _two_nodes()
    with pytest.raises(CompileError) as error:
        place(graph, DEVICES, {"secnod": "npu"}, "cpu")
    assert str(error.value) == (
        "'secnod' is assigned to 'npu', but model has no node of that name\n"
        "  hint: did you mean 'second'?"
    )
    with pytest.raises(CompileError) as error:
        place(graph, DEVICES, {"second": "npx"}, "cpu")
    assert str(error.value) == (
        "'npx' was chosen for second, but there is no such device\n  hint: did you mean 'npu'?"
    )
    with pytest.raises(CompileError) as error:
        place(graph, DEVICES, None, "gpu")
    assert str(error.value) == (
        "'gpu' was chosen by default, but there is no such device\n"
        "  hint: did you mean 'npu' or 'cpu'?"
    )
