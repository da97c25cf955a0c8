"""Memory plans: no two values that are needed at the same time share a byte, and little is wasted."""

import numpy as np
from graph_cases import Maker, expect, graphs, random_inputs
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtype import f32
from tilewright.ir.evaluate import evaluate_dim, evaluate_graph
from tilewright.ir.expr import Buffer
from tilewright.ir.graph import Graph
from tilewright.ir.op import Category
from tilewright.optimize.fuse import fuse
from tilewright.optimize.plan_memory import KernelUse, MemoryPlan, plan_memory
from tilewright.optimize.run_reference import State, is_given, run_host, slots_of
from tilewright.optimize.views import is_view


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
        reads, writes, scratch = slots_of(step, *counts)
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
        assert evaluate_dim(slot.offset, symbols or {}) % 64 == 0


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
    plan = plan_memory(graph, kernels_for(graph))
    expect_program(
        plan,
        """
        host model(x) -> v4
          memory constants on host: constants, 1024 bytes
          memory arena on host: arena, 1024 bytes
          memory x on host: input, 512 bytes
          memory v4 on host: output, 512 bytes
        """,
    )
    check_plan(graph, plan)
    assert plan.arena == plan.least_arena


def expect_program(plan: MemoryPlan, text: str) -> None:
    print(plan.program)
    expect(plan.program, text)
