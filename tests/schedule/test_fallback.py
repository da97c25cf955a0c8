"""Default schedules that the rules refuse are plain ones, and say so."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from op_cases import prepare, program_of
from op_examples import CASES

import tilewright
from tilewright.base.errors import ScheduleError
from tilewright.ops.table import OPS
from tilewright.plan import default
from tilewright.plan.create_loops import create_loops
from tilewright.targets import cpu

COMPUTED = [c for c in CASES if OPS[c.op].compute is not None]


def test_no_example_of_an_operator_is_refused():
    refused = {}
    for case in COMPUTED:
        op, attrs, types, _ = prepare(case, 5)
        program = program_of(op, attrs, types)
        schedule = default.default_schedule(create_loops(program), cpu.cpu("avx2"))
        if schedule.fallback:
            refused[case.op] = schedule.fallback
    assert refused == {}


@pytest.fixture
def refusing(monkeypatch):
    def refuse(*_: object) -> None:
        raise ScheduleError("a tile of 7 by 0 rows")

    monkeypatch.setattr(default, "schedule_contraction", refuse)


def test_a_refusal_is_kept_in_the_plan(refusing):
    a, b, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in "aby")
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "g", [a, b], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    module = tilewright.compile(onnx.ModelProto.FromString(model.SerializeToString()))
    assert [s.fallback for s in module.program.steps] == ["a tile of 7 by 0 rows"]
    ones = np.ones((4, 4), np.float32)
    assert (module(ones, ones) == 4).all()
