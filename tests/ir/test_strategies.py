"""The strategies themselves: what they promise, and that nothing is left out."""

import pytest
from hypothesis import Phase, find, given, settings
from strategies import array, exprs, graphs, kernels, tensor_programs
from strategies_graph import GENERATORS

from tilewright.base.dtype import DTYPES, f32
from tilewright.ir.expr import COMBINERS, Expr, Load, Symbol
from tilewright.ir.loop import Accumulate, Alloc, If, Kernel, LoopKind, walk_statements
from tilewright.ir.op import Category
from tilewright.ir.tensor import Scan
from tilewright.ops.table import OPS

QUICK = settings(max_examples=3000, database=None, derandomize=True, phases=(Phase.generate,))


def drawable() -> list[str]:
    return [op.name for op in OPS.values() if op.elementwise or op.name in GENERATORS]


@pytest.mark.parametrize("name", drawable())
def test_every_operator_can_be_drawn(name):
    ops = {n: OPS[n] for n in (name, "relu")}
    find(graphs(ops, nodes=1), lambda g: g.nodes[0].op.name == name, settings=QUICK)


def test_every_operator_has_a_generator():
    """A new operator that is not element by element needs one, in strategies_graph.py."""
    assert set(drawable()) == set(OPS)
    assert set(GENERATORS) <= set(OPS)


def test_all_categories_are_drawn():
    assert {OPS[name].category for name in drawable()} == set(Category)


def has(kernel: Kernel, kind: type, *tests) -> bool:
    found = [s for s in walk_statements(kernel.body) if isinstance(s, kind)]
    return any(all(test(s) for test in tests) for s in found)


@pytest.mark.parametrize("op", sorted(COMBINERS, key=str), ids=lambda op: op.value)
def test_kernels_accumulate_with_every_operator(op):
    find(kernels(), lambda k: has(k, Accumulate, lambda s: s.op is op), settings=QUICK)


@pytest.mark.parametrize("kind", list(LoopKind), ids=lambda kind: kind.value)
def test_kernels_have_loops_of_every_kind(kind):
    find(kernels(), lambda k: f" in {kind.value}(" in str(k), settings=QUICK)


def _gathers(e: Expr) -> bool:
    return any(
        isinstance(inner, Load)
        for load in e.walk()
        if isinstance(load, Load)
        for i in load.indices
        for inner in i.walk()
    )


@pytest.mark.parametrize(
    "wanted",
    [
        lambda k: has(k, If) and has(k, Alloc),
        lambda k: has(k, Alloc, lambda s: s.buffer.memory != "dram"),
        lambda k: any(isinstance(x, Symbol) for x in k.walk()),
        lambda k: any(_gathers(s.value) for s in walk_statements(k.body) if hasattr(s, "value")),
    ],
    ids=["guards and buffers", "memories", "symbols", "gathers"],
)
def test_kernels_have(wanted):
    find(kernels(), wanted, settings=QUICK)


def test_tensor_programs_have_scans():
    find(tensor_programs(), lambda p: any(isinstance(i, Scan) for i in p.items), settings=QUICK)


@given(kernels(dtypes=(f32,), symbolic=False, kinds=False))
def test_what_is_not_wanted_is_left_out(k):
    text = str(k)
    assert "symbol(" not in text
    assert not any(f" in {kind}(" in text for kind in ("parallel", "vectorize", "unroll"))
    assert {b.dtype for b in k.params} == {f32}


@given(exprs(dtypes=(f32,), depth=2))
def test_expressions_have_the_type_asked_for(e):
    assert e.dtype == f32


@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_arrays_depend_on_their_seed_alone(t):
    for seed in range(4):
        one, two = (array(seed, t, (3, 0, 2)) for _ in range(2))
        assert one.shape == (3, 0, 2)
        assert one.dtype == t.numpy
        assert (one == two).all()
        assert not (array(seed, t, (64,)) == array(seed + 1, t, (64,))).all()
