"""What the runtime is given beside a host program: host functions, constants."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from handmade_programs import Placed, host_program, slot, tensor

from tilewright.backends.host.constants import pack_constants
from tilewright.backends.host.functions import attrs_from_json, attrs_to_json, host_table
from tilewright.base.dtype import DType, bf16, f32
from tilewright.base.errors import CompileError, ModelError
from tilewright.ir.expr import Symbol
from tilewright.ir.op import Attrs, Category, Op, attr
from tilewright.ops.table import OPS
from tilewright.program.host_program import MemoryKind

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


def refusal(what, *args, **named):
    with pytest.raises((CompileError, ModelError)) as caught:
        what(*args, **named)
    return caught.value.what


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
    growing = program.memories[0].with_(size="n")
    assert growing.kind is MemoryKind.CONSTANTS
    assert refusal(pack_constants, program.with_(memories=(growing,)), []) == (
        "the size of 'weights' is n, not a number"
    )
    assert slot("s", "weights", tensor(1)).name == "s"
