"""Memory plans: what is needed at the same time lies apart, and little is wasted."""

import json

import numpy as np
import pytest
from graph_cases import Maker, expect, graphs, random_inputs, read
from hypothesis import given, settings
from hypothesis import strategies as st
from run_host_program import State, is_given, run_host, uses_of

from tilewright.base.dtype import f32
from tilewright.base.errors import CompileError
from tilewright.ir.evaluate import evaluate_graph
from tilewright.ir.expr import Buffer, Symbol
from tilewright.ir.graph import Graph, Value
from tilewright.ir.op import Category
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.optimize.edit import is_view
from tilewright.optimize.fuse import fuse
from tilewright.optimize.plan_memory import KernelUse, MemoryPlan, plan_memory
from tilewright.program.host_program import HostCall
from tilewright.program.size import evaluate_size


def kernels_for(graph: Graph, scratch: int = 0) -> dict:
    """A kernel for each node, each with `scratch` floats of working memory."""
    buffers = (Buffer("s", f32, (scratch,)),) if scratch else ()
    return {
        n: KernelUse(f"k{i}", buffers)
        for i, n in enumerate(graph.nodes)
        if n.op.category is not Category.OPAQUE and not is_view(n)
    }


class Ownership:
    """Follows who wrote each byte: a value read must still be there whole."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.plan = plan
        self.nodes = iter(plan.nodes)
        self.owners: dict[str, np.ndarray] = {}
        self.writes = 0

    def __call__(self, step, state: State) -> None:
        if not self.owners:
            self.owners = {m: np.zeros(len(a), np.int64) for m, a in state.memories.items()}
            for slot in self.plan.program.slots:
                if is_given(self.plan, slot):
                    self._write(slot.name, state)
        n = next(self.nodes)
        counts = (len(n.inputs), len(n.outputs)) if n else (1, 1)
        reads, writes, scratch = uses_of(step, *counts)
        for name in reads:
            span = self._span(name, state)
            assert len(set(span.tolist())) <= 1, f"{step}: part of {name} was overwritten"
            assert span.all(), f"{step}: {name} was never written"
        spans = [state.span(name) for name in dict.fromkeys((*writes, *scratch))]
        spans += [state.span(name) for name in dict.fromkeys(reads)]
        for i, (memory, start, end) in enumerate(spans[: len(writes) + len(scratch)]):
            for other, low, high in spans[i + 1 :]:
                assert memory != other or end <= low or high <= start, f"{step}: slots overlap"
        for name in (*scratch, *writes):
            self._write(name, state)

    def _span(self, name: str, state: State) -> np.ndarray:
        memory, start, end = state.span(name)
        return self.owners[memory][start:end]

    def _write(self, name: str, state: State) -> None:
        self.writes += 1
        self._span(name, state)[:] = self.writes


def check_plan(graph: Graph, plan: MemoryPlan, symbols: dict | None = None) -> None:
    """The plan computes what the graph does, without ever losing a value."""
    inputs = random_inputs(graph, symbols)
    with np.errstate(all="ignore"):
        found = run_host(plan, inputs, symbols, Ownership(plan))
        wanted = evaluate_graph(graph, inputs, symbols)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)
    for slot in plan.program.slots:
        assert evaluate_size(slot.offset, symbols or {}) % 64 == 0


# ---------------------------------------------------------------- random graphs


@settings(max_examples=200)
@given(graph=graphs(), scratch=st.sampled_from([0, 3, 100]))
def test_random_graphs(graph, scratch):
    fused = fuse(graph)
    plan = plan_memory(fused, kernels_for(fused, scratch))
    check_plan(graph, plan)
    check_plan(graph, plan_memory(graph, kernels_for(graph, scratch)))


@settings(max_examples=100)
@given(graph=graphs(), seed=st.integers(0, 99))
def test_several_devices(graph, seed):
    rng = np.random.default_rng(seed)
    devices = {n: ["cpu", "npu", "gpu"][rng.integers(3)] for n in graph.nodes}
    nodes = [type(n)(n.op, n.attrs, n.inputs, n.outputs, n.name, devices[n]) for n in graph.nodes]
    fused = fuse(graph.with_(nodes=tuple(nodes)))
    plan = plan_memory(fused, kernels_for(fused, 5), {"npu": "npu", "gpu": "gpu"})
    check_plan(graph, plan)
    for step in plan.program.steps:
        for name in getattr(step, "slots", ()):
            memory = next(s.memory for s in plan.program.slots if s.name == name)
            device = next(m.device for m in plan.program.memories if m.name == memory)
            assert device == {"cpu": ""}.get(step.device, step.device)


# ---------------------------------------------------------------- by hand


def test_slots_are_shared():
    m = Maker()
    x = m.input(8, 16, name="x")
    w = m.constant(np.eye(16), name="w")
    y = x
    for _ in range(4):
        y = m.op("matmul", y, w)
    graph = m.graph(y)
    plan = plan_memory(graph, kernels_for(graph, 4))
    expect(
        plan.program,
        """
        def model(x):
            constants = memory("constants", "", 1024)
            arena = memory("arena", "", 1088)
            x = memory("input", "", 512)
            v4 = memory("output", "", 512)
            x: f32[8, 16] = x[0]
            w: f32[16, 16] = constants[0]
            v1: f32[8, 16] = arena[0]
            k0_s: f32[4] = arena[512]
            v2: f32[8, 16] = arena[512]
            k1_s: f32[4] = arena[1024]
            v3: f32[8, 16] = arena[0]
            k2_s: f32[4] = arena[1024]
            v4: f32[8, 16] = v4[0]
            k3_s: f32[4] = arena[512]
            call(k0(x, w, v1, k0_s), "", nodes=["matmul_0"])
            call(k1(v1, w, v2, k1_s), "", nodes=["matmul_1"])
            call(k2(v2, w, v3, k2_s), "", nodes=["matmul_2"])
            call(k3(v3, w, v4, k3_s), "", nodes=["matmul_3"])
            return v4
        """,
    )
    check_plan(graph, plan)
    assert plan.arena == plan.least_arena


def test_views_share_memory():
    graph = read(
        """
        def model(x: f32[2, 3]):
            a: f32[6] = reshape(x, shape=(6,))
            b: f32[6] = relu(a, name="relu")
            c: f32[3, 2] = reshape(b, shape=(3, 2))
            d: f32[3, 2] = neg(c, name="neg")
            y: f32[6] = reshape(d, shape=(6,))
            return y
        """
    )
    plan = plan_memory(graph, kernels_for(graph))
    expect(
        plan.program,
        """
        def model(x):
            arena = memory("arena", "", 64)
            x = memory("input", "", 24)
            y = memory("output", "", 24)
            x: f32[2, 3] = x[0]
            a: f32[6] = x[0]
            b: f32[6] = arena[0]
            c: f32[3, 2] = arena[0]
            d: f32[3, 2] = y[0]
            y: f32[6] = y[0]
            call(k1(a, b), "", nodes=["relu"])
            call(k3(c, d), "", nodes=["neg"])
            return y
        """,
    )
    check_plan(graph, plan)


def test_outputs_that_need_copies():
    """Inputs, constants, views of them, and values given back twice."""
    graph = read(
        """
        def model(x: f32[2, 3]):
            c: f32[2] = constant([1.0, 2.0])
            v: f32[6] = reshape(x, shape=(6,))
            y: f32[2, 3] = relu(x, name="relu")
            w: f32[6] = reshape(y, shape=(6,))
            return x, c, v, y, w, y
        """
    )
    plan = plan_memory(graph, kernels_for(graph))
    expect(
        plan.program,
        """
        def model(x):
            constants = memory("constants", "", 64)
            x = memory("input", "", 24)
            x_1 = memory("output", "", 24)
            c = memory("output", "", 8)
            v = memory("output", "", 24)
            y = memory("output", "", 24)
            w = memory("output", "", 24)
            y_1 = memory("output", "", 24)
            x: f32[2, 3] = x[0]
            y: f32[2, 3] = y[0]
            x_1: f32[2, 3] = x_1[0]
            c: f32[2] = constants[0]
            c_1: f32[2] = c[0]
            v: f32[6] = x[0]
            v_1: f32[6] = v[0]
            w: f32[6] = y[0]
            w_1: f32[6] = w[0]
            y_1: f32[2, 3] = y_1[0]
            call(k1(x, y), "", nodes=["relu"])
            x_1 = copy(x)
            c_1 = copy(c)
            v_1 = copy(v)
            w_1 = copy(w)
            y_1 = copy(y)
            return x_1, c_1, v_1, y, w_1, y_1
        """,
    )
    check_plan(graph, plan)


def test_equal_constants_are_stored_once():
    m = Maker()
    x = m.input(4, name="x")
    a, b = m.constant(np.arange(4.0), "a"), m.constant(np.arange(4.0).reshape(2, 2), "b")
    c, empty = m.constant(np.arange(1.0, 5.0), "c"), m.constant(np.zeros((0, 4)), "empty")
    y, z = m.op("add", x, a), m.op("matmul", b, b)
    w = m.op("add", c, m.op("reduce_sum", empty, axes=(0,), keepdims=False))
    graph = m.graph(y, z, w)
    plan = plan_memory(graph, kernels_for(graph))
    offsets = {s.name: s.offset for s in plan.program.slots if s.memory == "constants"}
    assert offsets == {"a": 0, "b": 0, "empty": 64, "c": 128}
    assert [(p.offset, p.array.size) for p in plan.constants] == [(0, 4), (64, 0), (128, 4)]
    check_plan(graph, plan)


def test_constants_in_the_layout_of_their_type():
    m = Maker()
    x = m.input(3, 5)
    w = m.constant(np.arange(15.0).reshape(3, 5), "w")
    packed = Value("packed", TensorType(f32, (3, 5), Layout((1, 0), ((1, 4),))))
    y = m.op("add", x, w)
    graph = m.graph(y)
    (n,) = graph.nodes
    graph = graph.with_(
        nodes=(type(n)(n.op, n.attrs, (x, packed), n.outputs, n.name),),
        constants={packed: graph.constants[w]},
    )
    plan = plan_memory(graph, kernels_for(graph))
    (placed,) = plan.constants
    assert placed.array.shape == (2, 3, 4)
    assert placed.array[0].tolist() == [[0, 1, 2, 3], [5, 6, 7, 8], [10, 11, 12, 13]]
    assert placed.array[1].tolist() == [[4, 0, 0, 0], [9, 0, 0, 0], [14, 0, 0, 0]]
    check_plan(graph, plan)


def test_values_between_devices():
    graph = read(
        """
        def model(x: f32[4]):
            c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
            a: f32[4] = add(x, c, name="a", device="npu")
            b: f32[4] = relu(a, name="b", device="npu")
            r: f32[2, 2] = reshape(a, shape=(2, 2))
            d: f32[2, 2] = neg(r, name="d", device="cpu")
            e: f32[2, 2] = abs(r, name="e", device="cpu")
            f: f32[4] = add(b, c, name="f", device="cpu")
            return b, d, e, f
        """
    )
    plan = plan_memory(graph, kernels_for(graph), {"npu": "npu"})
    expect(
        plan.program,
        """
        def model(x):
            constants = memory("constants", "", 64)
            constants_npu = memory("constants", "npu", 64)
            arena = memory("arena", "", 64)
            arena_npu = memory("arena", "npu", 128)
            x = memory("input", "", 16)
            b = memory("output", "", 16)
            d = memory("output", "", 16)
            e = memory("output", "", 16)
            f = memory("output", "", 16)
            x: f32[4] = x[0]
            x_npu: f32[4] = arena_npu[0]
            c_npu: f32[4] = constants_npu[0]
            a_npu: f32[4] = arena_npu[64]
            b_npu: f32[4] = arena_npu[0]
            b: f32[4] = b[0]
            a: f32[4] = arena[0]
            r: f32[2, 2] = arena[0]
            d: f32[2, 2] = d[0]
            e: f32[2, 2] = e[0]
            c: f32[4] = constants[0]
            f: f32[4] = f[0]
            x_npu = copy(x)
            call(k0(x_npu, c_npu, a_npu), "npu", nodes=["a"])
            call(k1(a_npu, b_npu), "npu", nodes=["b"])
            b = copy(b_npu)
            a = copy(a_npu)
            call(k3(r, d), "cpu", nodes=["d"])
            call(k4(r, e), "cpu", nodes=["e"])
            call(k5(b, c, f), "cpu", nodes=["f"])
            return b, d, e, f
        """,
    )
    check_plan(graph, plan)


def test_host_calls():
    m = Maker()
    x = m.op("relu", m.input(6, name="x"))
    best, where = m.ops("top_k", x, k=2, node="best")
    worst, _ = m.ops("top_k", m.op("neg", best), k=1, node="worst")
    graph = m.graph(worst, where)
    plan = plan_memory(graph, kernels_for(graph), {"": ""})
    calls = [s for s in plan.program.steps if isinstance(s, HostCall)]
    assert [(c.op, json.loads(c.attrs)["k"], c.nodes) for c in calls] == [
        ("top_k", 2, ("best",)),
        ("top_k", 1, ("worst",)),
    ]
    assert plan.program.callbacks == tuple(calls)
    check_plan(graph, plan)


# ---------------------------------------------------------------- symbolic sizes


def test_symbolic_sizes():
    m = Maker()
    n, s = Symbol("n"), Symbol("s")
    x = m.input(n, s, 16, name="x")
    m.input(s, name="lengths")
    scores = m.op("matmul", x, m.op("transpose", x, perm=(0, 2, 1)))
    y = m.op("matmul", m.op("softmax", scores, axis=-1), x)
    y = m.op("matmul", m.op("relu", y), m.constant(np.ones((16, 16))))
    graph = m.graph(y)
    for g in (graph, fuse(graph)):
        plan = plan_memory(g, kernels_for(g, 40))
        sizes = [str(m.size) for m in plan.program.memories if m.kind.value == "input"]
        assert sizes == ["64 * n * s", "4 * s"]
        for symbols in ({"n": 1, "s": 1}, {"n": 3, "s": 2}, {"n": 1, "s": 40}, {"n": 7, "s": 5}):
            check_plan(g, plan, symbols)


def test_sizes_that_depend_on_data_are_refused():
    m = Maker()
    x = m.input(4, name="x")
    y = m.op("nonzero", x, count=Symbol("found"), node="find")
    graph = m.graph(y).with_(source="opset 13")
    with pytest.raises(CompileError) as error:
        plan_memory(graph, {})
    assert str(error.value) == (
        "operator nonzero (node 'find', opset 13): the size of v1: i64[1, found] is known only "
        "after it has run: found is no dimension of an input\n"
        "  hint: run that part of the model outside, or make what it reads constant"
    )


def test_kernels_must_be_given():
    m = Maker()
    graph = m.graph(m.op("relu", m.input(4, name="x"), node="Relu_0"))
    with pytest.raises(CompileError) as error:
        plan_memory(graph, {})
    assert str(error.value) == (
        'no kernel was given for Relu_0\n  in: v1: f32[4] = relu(x, name="Relu_0")'
    )
