"""What the runtime is told of a host program."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from handmade_programs import Placed, host_program, slot, tensor

from tilewright.backends.host.plan import (
    KernelCost,
    attrs_from_json,
    attrs_to_json,
    host_table,
    pack_constants,
    plan_json,
    size_json,
)
from tilewright.base.dtype import DType, bf16, f32
from tilewright.base.errors import CompileError, ModelError
from tilewright.ir.expr import Symbol, UnaryOp, unary
from tilewright.ir.graph import GraphNode, Value
from tilewright.ir.host_program import Call, Copy, HostCall, MemoryKind
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ir.tensor_type import Layout, TensorType
from tilewright.ops.table import OPS
from tilewright.runtime.plan import plan_from_json
from tilewright.runtime.size import evaluate_size, size_from_json

N = Symbol("n", 2, 9)


@dataclass(frozen=True, slots=True)
class ManyAttrs(Attrs):
    to: DType = attr(f32, doc="a type")
    axes: tuple[int, ...] = attr((), doc="numbers", high=9)
    scale: float | None = attr(None, doc="a number")
    mode: str = attr("a", doc="a word")
    exact: bool = attr(False, doc="yes or no")
    value: Any = attr(0, doc="anything")


OPAQUE = Op(
    "many",
    ManyAttrs,
    lambda attrs, types: types,
    Category.OPAQUE,
    "for tests",
    (1, 1),
    evaluate=lambda attrs, inputs: [inputs[0] + len(attrs.axes)],
)


def node(**attrs):
    kind = tensor(N)
    return GraphNode(OPAQUE, ManyAttrs(**attrs), (Value("x", kind),), (Value("y", kind),))


def refusal(what, *args, **named):
    with pytest.raises((CompileError, ModelError)) as caught:
        what(*args, **named)
    return caught.value.what


def test_a_plan():
    kind = tensor(N, 3)
    steps = [
        Call("k", "cpu", ("x", "t"), (N,), ("a", "b")),
        HostCall(0, "many", ("t",), ("y",), ("c",)),
        Copy("y", "z"),
        Call("costed", "cpu", ("x", "x"), (), ()),
    ]
    program = host_program(
        {"x": kind}, {"y": kind, "z": kind}, steps, scratch={"t": kind}, name="m"
    )
    cost = {"costed": KernelCost(N * 2, 7)}
    found = plan_json(program, functions=[node(axes=(1,))], costs=cost, output_names=("u", "v"))
    sizes = [size_from_json(s["bytes"], "here") for s in found["steps"]]
    assert [evaluate_size(s, {"n": 5}) for s in sizes] == [120, 120, 120, 7]
    plan = plan_from_json(found, "plan")
    assert [str(t) for t in (*plan.inputs, *plan.outputs)] == [
        "x: f32[n, 3]",
        "u: f32[n, 3]",
        "v: f32[n, 3]",
    ]
    assert [(s.kind.value, s.name, s.device, s.nodes) for s in plan.steps] == [
        ("call", "k", "cpu", ("a", "b")),
        ("host_call", "many", "", ("c",)),
        ("copy", "copy y to z", "cpu", ()),
        ("call", "costed", "cpu", ()),
    ]
    assert [m.kind.value for m in plan.memories] == [
        "constants",
        "arena",
        "input",
        "output",
        "output",
    ]
    assert plan.functions[0].op == "many"
    assert [t.name for t in plan.functions[0].inputs] == ["t"]
    (symbol,) = plan.symbols
    assert (symbol.name, symbol.lower, symbol.upper) == ("n", 2, 9)
    assert plan.steps[3].operations == ("mul", "n", 2)


def test_sizes_the_host_cannot_compute():
    assert refusal(size_json, unary(UnaryOp.ABS, N)) == (
        "abs(n) is not arithmetic on symbols, and the host computes nothing else"
    )


def test_what_the_host_sees_must_be_row_major():
    kind = TensorType(f32, (4, 4), Layout((1, 0)))
    program = host_program({"x": kind}, {"y": kind}, [])
    assert refusal(plan_json, program) == (
        f"'x' is arranged as {kind}, and what the host sees must be row-major"
    )


def test_numbers_of_host_functions():
    kind = tensor(N)
    steps = [HostCall(0, "many", ("x",), ("y",), ())]
    program = host_program({"x": kind}, {"y": kind}, steps)
    assert refusal(plan_json, program) == "host call many has number 0, which is no such function"
    assert refusal(plan_json, program, functions=[node(), node()]) == (
        "no step calls host function 1"
    )
    other = tensor(N, 1)
    steps = [HostCall(0, "many", ("x",), ("y",), ()), HostCall(0, "many", ("z",), ("y",), ())]
    program = host_program({"x": kind, "z": other}, {"y": kind}, steps)
    assert refusal(plan_json, program, functions=[node()]) == (
        "host calls of number 0 (many) differ in types"
    )


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"to": bf16, "axes": (1, 2), "scale": 0.5, "mode": "b", "exact": True},
        {"scale": float("inf"), "value": ((1, 2.5), ("a", None))},
    ],
)
def test_attributes_are_what_they_were_in_json(attrs):
    wanted = ManyAttrs(**attrs)
    assert attrs_from_json(OPAQUE, attrs_to_json("many", wanted)) == wanted


def test_attributes_that_cannot_be():
    assert refusal(attrs_to_json, "many", ManyAttrs(value=N)) == (
        "many: attribute value is n: on the host it must be a number"
    )
    assert refusal(attrs_to_json, "many", ManyAttrs(value=np.zeros(1))) == (
        "many: attribute value is a ndarray, which a host call cannot have"
    )
    assert refusal(attrs_from_json, OPAQUE, {"zz": 1}) == (
        "many cannot have the attributes {'zz': 1}; it has to, axes, scale, mode, exact, value"
    )
    assert refusal(attrs_from_json, OPAQUE, {"axes": [10]}) == "many: attribute axes is (10,)"


def test_the_table_of_host_functions():
    assert set(host_table(OPS)) == {name for name, op in OPS.items() if op.evaluate is not None}
    run = host_table({"many": OPAQUE})["many"]({"axes": [1, 2]})
    np.testing.assert_array_equal(run([np.ones(2)])[0], [3, 3])


def test_constants_are_packed():
    program = host_program({}, {}, [], constants={"a": np.ones(3), "b": np.ones(20)})
    program = program.with_(memories=program.memories[:1])
    a, b = np.arange(3, dtype=np.float64), np.arange(20, dtype=np.float64).reshape(4, 5).T
    (packed,) = pack_constants(program, [Placed("weights", 0, a), Placed("weights", 64, b)])
    assert packed.ctypes.data % 64 == 0
    np.testing.assert_array_equal(packed[:24].view(np.float64), a)
    np.testing.assert_array_equal(packed[64:224].view(np.float64).reshape(5, 4), b)
    assert not packed[224:].any()
    assert refusal(pack_constants, program, [Placed("weights", 250, a)]) == (
        "a constant of 24 bytes at 250 of 'weights' lies outside the constants"
    )
    growing = program.memories[0].with_(size=N)
    assert growing.kind is MemoryKind.CONSTANTS
    assert refusal(pack_constants, program.with_(memories=(growing,)), []) == (
        "the size of 'weights' is n, not a number"
    )
    assert slot("s", "weights", tensor(1)).name == "s"
